"""From job.toml to a Job, or to everything that is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from headway.errors import Problem, SpecError
from headway.spec.check import Draft, check
from headway.spec.fields import Reading
from headway.spec.files import check_container, expand_files
from headway.spec.job import Input, Job, Output
from headway.spec.keys import unknown_key
from headway.spec.override import apply_options
from headway.spec.problems import KNOWN_KEYS, Places, explain
from headway.spec.table import Rows, read_table
from headway.spec.templates import placeholders
from headway.spec.toml import read_toml
from headway.spec.words import Wrong

AnyModel = TypeVar("AnyModel", bound=BaseModel)


def load_job(
    path: str | Path, *, overrides: Sequence[str] = (), resources: Sequence[str] = ()
) -> Job:
    """The job that a job.toml describes, after `--set` and `--resource` options."""
    path = Path(path)
    raw = read_toml(path)
    return build_job(
        raw, folder=path.parent, source=path.name, overrides=overrides, resources=resources
    )


def build_job(
    raw: Mapping[str, Any],
    *,
    folder: Path,
    source: str = "job.toml",
    overrides: Sequence[str] = (),
    resources: Sequence[str] = (),
) -> Job:
    """The job that a TOML document describes; raises SpecError with every problem at once."""
    applied = apply_options(raw, overrides, resources)
    places = Places(source, raw, applied.raw, applied.settings)
    problems = list(applied.problems)
    document = dict(applied.raw)

    if "rows" in document:
        del document["rows"]
        problems.append(Problem(places.where(("rows",)), *unknown_key(("rows",), KNOWN_KEYS)))
    rows, columns = _take_table(document, folder, places, problems)
    if "files" in document:
        document["files"], wrong = expand_files(document["files"], folder, places.where)
        problems += wrong
    context = Reading(columns)
    job: Job | None = None
    try:
        job = Job.model_validate({**document, "rows": rows}, context=context)
    except ValidationError as error:
        problems += explain(error, places)
    problems += _container_problems(document, job, folder, places)
    draft = _draft(document, rows, columns, folder, context)
    problems += [Problem(places.where(loc), *words) for loc, *words in check(draft)]
    if problems or job is None:
        raise SpecError(problems)
    return job


def make_job(job: Job, given: Mapping[str, Any]) -> None:
    """Fill in a Job that is made in Python; raises SpecError with every problem at once.

    Nobody has said yet where its `files` and its container lie: they are looked for at submit.
    """
    document = dict(given)
    places = Places("Job", document, document)
    problems: list[Problem] = []
    folder = Path.cwd()
    if "rows" in document:
        if "table" in document:
            what = "is the same as `table`"
            problems.append(Problem(places.where(("rows",)), what, "keep one of the two"))
        document.setdefault("table", document.pop("rows"))
    if document.get("table", "") is None:
        del document["table"]
    rows, columns = _take_table(document, folder, places, problems)
    document["files"] = _path_texts(document.get("files", ()))
    context = Reading(columns, units=False)
    try:
        job.__pydantic_validator__.validate_python(
            {**document, "rows": rows}, self_instance=job, context=context
        )
    except ValidationError as error:
        problems += explain(error, places)
    draft = _draft({**document, "files": ()}, rows, columns, folder, context)
    problems += [Problem(places.where(loc), *words) for loc, *words in check(draft)]
    if problems:
        raise SpecError(problems)


def _path_texts(value: Any) -> Any:
    """A list in which paths are texts, as in job.toml."""
    if isinstance(value, (list, tuple)):
        return [os.fspath(each) if isinstance(each, os.PathLike) else each for each in value]
    return value


def dump_job(job: Job) -> str:
    """The resolved job as JSON: sizes in bytes, durations in seconds."""
    return job.model_dump_json(by_alias=True, indent=2) + "\n"


def load_resolved(text: str) -> Job:
    """The job that `dump_job` wrote."""
    try:
        return Job.model_validate_json(text)
    except ValidationError as error:
        remedy = "it is written by Headway: restore it, or submit the job again"
        raise SpecError(explain(error, Places("job.json", {}, {})), remedy=remedy) from None


def _take_table(
    document: dict[str, Any], folder: Path, places: Places, problems: list[Problem]
) -> tuple[Rows | None, set[str] | None]:
    """The rows, and the columns that placeholders may name (None: not known)."""
    if "table" not in document:
        return None, {"job"}
    if "count" in document:
        what = "the table's rows already say how many jobs there are"
        problems.append(Problem(places.where(("count",)), what, "keep one of `count` and `table`"))
    rows, wrong = read_table(document.pop("table"), folder, places.where)
    problems += wrong
    return rows, {*rows[0], "job"} if rows else None


def _container_problems(
    document: Mapping[str, Any], job: Job | None, folder: Path, places: Places
) -> list[Problem]:
    image = job.container if job else document.get("container")
    if not isinstance(image, str) or not image.strip() or "\0" in image:
        return []
    try:
        check_container(image.strip(), folder)
    except Wrong as wrong:
        return [Problem(places.where(("container",)), wrong.what, wrong.remedy)]
    return []


def _draft(
    document: Mapping[str, Any],
    rows: Rows | None,
    columns: set[str] | None,
    folder: Path,
    context: Reading,
) -> Draft:
    """What is good of a description, so that a wrong key does not hide a collision elsewhere."""
    inputs = _good(Input, document.get("inputs"), context)
    outputs = _good(Output, document.get("outputs"), context)
    if columns is None:  # without the table, only what needs none can be compared
        inputs = [(n, i) for n, i in inputs if not _asks((i.path, *i.urls))]
        outputs = [(n, o) for n, o in outputs if not _asks((o.path, o.to or ""))]
    count = document.get("count", 1)
    good = isinstance(count, int) and not isinstance(count, bool) and 1 <= count <= 1_000_000
    size = len(rows) if rows is not None else count if good and columns is not None else 1
    files = document.get("files", ())
    return Draft(inputs, outputs, files, rows, size, folder, _checkpoint_paths(document))


def _checkpoint_paths(document: Mapping[str, Any]) -> list[str]:
    given = document.get("checkpoint")
    paths = given.get("paths") if isinstance(given, dict) else None
    return [p for p in paths if isinstance(p, str)] if isinstance(paths, list) else []


def _good(model: type[AnyModel], items: Any, context: Reading) -> list[tuple[int, AnyModel]]:
    found = []
    for index, item in enumerate(items if isinstance(items, (list, tuple)) else ()):
        one = _salvaged(model, item, context)
        if one is not None:
            found.append((index, one))
    return found


def _salvaged(model: type[AnyModel], item: Any, context: Reading) -> AnyModel | None:
    """The item without the keys that are wrong in it, if that leaves one."""
    try:
        return model.model_validate(item, context=context)
    except ValidationError as error:
        bad = {one["loc"][0] for one in error.errors(include_url=False) if one["loc"]}
    if not isinstance(item, dict) or not bad:
        return None
    try:
        rest = {key: value for key, value in item.items() if key not in bad}
        return model.model_validate(rest, context=context)
    except ValidationError:
        return None


def _asks(texts: Sequence[str]) -> bool:
    return any(placeholders(text) for text in texts)
