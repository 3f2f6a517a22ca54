"""`headway publish` and `headway put`: write the manifest of a file, and upload a file."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli.commands import OK
from headway.cli.parser import Parser
from headway.cli.terminal import metered, near, print_json, print_stderr
from headway.spec.units import format_size, parse_size
from headway.text import many, printable

if TYPE_CHECKING:
    from headway.node.transfer.manifest import Published

_PROOF = {
    "digest": "the server's digest of it is right",
    "size": "the server has as many bytes",
    "": "the server does not say what it has",
}


def parser(name: str) -> Parser:
    """The parser of `headway publish`, or of `headway put`."""
    if name == "put":
        made = Parser(
            name,
            put_file,
            "FILE URL [options]",
            "Upload a file to an https://, osdf://, pelican:// or file:// URL. Where the server"
            " allows it, the file gets its final name only when all of it has arrived. Headway then"
            " verifies the upload by digest or size. A URL that ends in `/` keeps the file's name.",
            [
                ("headway put model.pt osdf:///ospool/ap40/data/me/model.pt", "to an OSDF origin"),
                ("headway put model.pt https://store.org/me/", "as https://store.org/me/model.pt"),
                ("headway put model.pt file:///scratch/model.pt --overwrite", "replace the file"),
            ],
        )
        made.argument("file", "FILE", "the file to upload")
        made.argument("url", "URL", "where to upload it")
        made.flag("--overwrite", "replace a file that is there already")
        return made
    made = Parser(
        name,
        call,
        "PATH [--chunk-size SIZE] [--no-index]",
        "Write PATH.headway, the manifest of a file: its size, the digest of each chunk, and for a"
        " tar file the place of each member. Upload both to where your jobs fetch the file. With"
        " the digest of the manifest in job.toml, Headway verifies every chunk on arrival and"
        " fetches only the bad ones again.",
        [
            ("headway publish train.tar", "writes train.tar.headway, prints its digest"),
            ("headway publish train.tar --chunk-size '32 MiB'", "with chunks of that size"),
            ("headway publish weights.bin --json", "for scripts"),
        ],
    )
    made.argument("path", "PATH", "the file that jobs will fetch")
    text = "64 KiB to 1 GiB; default: 256 KiB to 1 MiB, depending on the file's size"
    made.option("--chunk-size", "SIZE", text, parse=parse_size)
    made.flag("--no-index", "do not look into a tar file")
    return made


def call(arguments: Namespace) -> int:
    from headway.transfers import publish

    path, index = arguments.path, not arguments.no_index
    with metered(f"reading {os.path.basename(path)}") as progress:
        done = publish(path, chunk_size=arguments.chunk_size, index=index, progress=progress)
    if arguments.json:
        print_json(_document(path, done))
    else:
        _print(done)
    return OK


def _document(path: str, done: Published) -> dict[str, Any]:
    manifest = done.manifest
    return {
        "path": path,
        "manifest": done.path,
        "digest": done.digest,
        "bytes": done.bytes,
        "size": manifest.size,
        "sha256": manifest.sha256,
        "chunk_size": manifest.chunk_size,
        "chunks": manifest.chunks,
        "members": manifest.member_count if manifest.is_tar else None,
        "classes": len(manifest.classes),
        "tars": len(manifest.tars),
        "notes": done.notes,
    }


def _print(done: Published) -> None:
    manifest = done.manifest
    content = f"{format_size(manifest.size)} in {many(manifest.chunks, 'chunk')}"
    if manifest.is_tar:
        content += f", {many(manifest.member_count, 'member')}"
        if manifest.tars:
            content += f" in {many(len(manifest.tars), 'nested tar file')}"
        if manifest.classes:
            content += f", {many(len(manifest.classes), 'class', 'classes')}"
    print(f"wrote {near(Path(done.path))}: {content}")
    for note in done.notes:
        print_stderr(f"note: {note}")
    print("upload it next to the file, and add this line to the file's [[inputs]] in job.toml:")
    print(f'  manifest = "{done.digest}"')


def put_file(arguments: Namespace) -> int:
    from headway.node.transfer import shown
    from headway.transfers import destination, put

    path, overwrite = arguments.file, arguments.overwrite
    with metered(f"sending {os.path.basename(path)}") as progress:

        def sent_so_far(done: int, total: int | None) -> None:
            progress(done, total or 0)

        sent = put(path, arguments.url, overwrite=overwrite, progress=sent_so_far)
    url = shown(destination(path, arguments.url))
    if arguments.json:
        seconds = round(sent.seconds, 3)
        print_json({"url": url, "bytes": sent.bytes, "seconds": seconds, "proof": sent.proof})
    else:
        rate = sent.bytes / sent.seconds / 1e6 if sent.seconds > 0 else 0.0
        print(
            f"sent {printable(url)}: {sent.bytes:,} bytes in {sent.seconds:.1f} s "
            f"({rate:.1f} MB/s); {_PROOF[sent.proof]}"
        )
    return OK
