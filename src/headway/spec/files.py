"""`files` and `container`: what has to lie beside job.toml."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable
from pathlib import Path

from headway.errors import Problem
from headway.spec.paths import folder_path, parents
from headway.spec.words import Loc, Wrong, closest, show


def expand_files(
    value: object, folder: Path, where: Callable[[Loc], str]
) -> tuple[tuple[str, ...], list[Problem]]:
    """The files and folders that `files` names, patterns expanded, sorted, none within another."""
    if not isinstance(value, list):
        remedy = (
            f"write [{show(value)}]" if isinstance(value, str) else 'write files = ["train.py"]'
        )
        return (), [
            Problem(where(("files",)), f"should be a list of files, not {show(value)}", remedy)
        ]
    found: set[str] = set()
    problems: list[Problem] = []
    for index, entry in enumerate(value):
        try:
            found |= _matches(entry, folder)
        except Wrong as wrong:
            problems.append(Problem(where(("files", index)), wrong.what, wrong.remedy))
    kept = [path for path in sorted(found) if not any(up in found for up in parents(path))]
    return tuple(kept), problems


def check_container(image: str, folder: Path) -> None:
    """Raise Wrong if an image file beside job.toml is meant and is not there."""
    if "://" in image or image.startswith("/"):
        return
    if (folder / image).exists():
        return
    if image.endswith((".sif", ".img", ".sqsh")):
        raise Wrong(
            f"there is no file {show(image)}", "paths are relative to the folder of job.toml"
        )
    if re.match(r"(docker|osdf|pelican|stash|https?):", image):
        raise Wrong(f"{show(image)} is not a URL", "write it with `://`")
    raise Wrong(
        f"there is no file {show(image)}", f'for an image of a registry write "docker://{image}"'
    )


def _matches(entry: object, folder: Path) -> set[str]:
    if not isinstance(entry, str):
        raise Wrong(f"should be text, not {show(entry)}", "write the name in quotes")
    path = folder_path(entry)
    target = folder / path
    if not os.path.lexists(target) and glob.has_magic(path):
        names = glob.glob(path, root_dir=folder, recursive=True)
        if not names:
            raise Wrong(f"{show(path)} matches nothing", f"look into {folder.name or folder}/")
        return {_usable(folder_path(name), folder) for name in names}
    return {_usable(path, folder)}


def _usable(path: str, folder: Path) -> str:
    target = folder / path
    try:
        if not target.exists():
            if target.is_symlink():
                raise Wrong(f"{show(path)} is a link that leads nowhere", "mend the link")
            raise Wrong(f"there is no file {show(path)}", like(target))
        if not (target.is_file() or target.is_dir()):
            raise Wrong(f"{show(path)} is neither a file nor a folder", "name a regular file")
    except OSError as error:
        raise Wrong(
            f"{show(path)} cannot be read: {error.strerror}", "check its permissions"
        ) from None
    if not os.access(target, os.R_OK | (os.X_OK if target.is_dir() else 0)):
        raise Wrong(f"{show(path)} cannot be read", "check its permissions")
    return path


def like(path: Path) -> str:
    """The remedy for a file that is not there: one whose name is close to it."""
    try:
        near = closest(path.name, [entry.name for entry in path.parent.iterdir()])
    except OSError:
        near = None
    return f"did you mean {show(near)}?" if near else "paths are relative to the folder of job.toml"
