"""Problems that no single key shows: paths that collide, and bad values from the table."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from headway.spec.errors import Loc, Wrong, first_few, show
from headway.spec.places import (
    begins_with_placeholder,
    filled_path_wrong,
    filler,
    input_url,
    is_url,
    local_path,
    output_to,
    parents,
    plain_destination,
    plain_url,
    tidy,
)

Collision = tuple[Loc, str, str]  # where, what, remedy

_ENOUGH = 1000  # jobs of a `count` that are looked at: they differ in nothing but {job}
_UNTIDY = re.compile(r"/\.{0,2}/|/\.{0,2}$|^\.{1,2}/")


class GivenInput(Protocol):
    """What the checks need of an input."""

    urls: tuple[str, ...]
    path: str
    unpack: bool

    @property
    def file(self) -> str: ...


class GivenOutput(Protocol):
    """What the checks need of an output."""

    path: str
    to: str | None


@dataclass(frozen=True)
class Draft:
    """The valid parts of a description; inputs and outputs with their numbers in the file."""

    inputs: Sequence[tuple[int, GivenInput]]
    outputs: Sequence[tuple[int, GivenOutput]]
    files: Sequence[str]
    rows: Sequence[Mapping[str, str]] | None
    size: int
    folder: Path
    saved: Sequence[str] = ()  # the paths of the checkpoint


@dataclass(frozen=True)
class _Filled:
    """One template over all jobs; a single text where it has no placeholder."""

    loc: Loc
    template: str
    columns: tuple[str, ...]
    texts: list[str]

    def __getitem__(self, job: int) -> str:
        return self.texts[job if self.columns else 0]


def find_collisions(draft: Draft) -> Iterator[Collision]:
    """Everything that is wrong between the keys of a description."""
    columns = _Columns(draft)
    places = [columns.fill_path(("inputs", n, "path"), i.path) for n, i in draft.inputs]
    places += [columns.fill_path(("inputs", n, "url"), i.file) for n, i in draft.inputs if i.unpack]
    yield from _each(columns, places, filled_path_wrong)
    for number, given in draft.inputs:
        locs = ((("inputs", number, "url", index), url) for index, url in enumerate(given.urls))
        yield from _each(columns, (columns.fill(loc, url) for loc, url in locs), _url_wrong)
    yield from _same_place(columns, places, "input")
    yield from _nested(places)
    yield from _hidden(columns, places, draft)
    yield from _saved_within(places, draft)
    left = [columns.fill_path(("outputs", n, "path"), o.path) for n, o in draft.outputs]
    yield from _each(columns, left, filled_path_wrong)
    yield from _same_place(columns, left, "output")
    sent = [columns.fill(("outputs", n, "to"), o.to) for n, o in draft.outputs if o.to]
    yield from _destinations(columns, sent, draft)


class _Columns(dict[str, list[str]]):
    """The table by column, each made when it is first used."""

    def __init__(self, draft: Draft) -> None:
        super().__init__()
        self._rows = draft.rows
        self._jobs = len(draft.rows) if draft.rows is not None else min(draft.size, _ENOUGH)

    def __missing__(self, name: str) -> list[str]:
        if name == "job":
            self[name] = [str(job) for job in range(self._jobs)]
        else:
            self[name] = [row[name] for row in self._rows or ()]
        return self[name]

    def fill(self, loc: Loc, template: str) -> _Filled:
        names, filled = filler(template)
        return _Filled(loc, template, names, filled(self))

    def fill_path(self, loc: Loc, template: str) -> _Filled:
        filled = self.fill(loc, template)
        return replace(filled, texts=[tidy(text) or text for text in filled.texts])

    def job(self, filled: _Filled, job: int) -> str:
        """A job by its number and the values that make it what it is."""
        given = [f"{name} = {show(self[name][job])}" for name in filled.columns if name != "job"]
        return f"job {job} ({', '.join(given)})" if given else f"job {job}"


def _each(
    columns: _Columns, templates: Iterable[_Filled], wrong: Callable[[str], Wrong | None]
) -> Iterator[Collision]:
    """Templates that a row's values make wrong."""
    for filled in templates:
        texts = filled.texts if filled.columns else ()
        bad = [(job, reason) for job, text in enumerate(texts) if (reason := wrong(text))]
        if bad:
            jobs = first_few([columns.job(filled, job) for job, _ in bad])
            yield filled.loc, f"{bad[0][1].what}, in {jobs}", bad[0][1].remedy


def _url_wrong(url: str) -> Wrong | None:
    if plain_url(url):
        return None
    try:
        # A brace in a row's value is not a placeholder.
        input_url(url.replace("{", "%7B"))
    except Wrong as wrong:
        return wrong
    return None


def _same_place(columns: _Columns, places: Sequence[_Filled], noun: str) -> Iterator[Collision]:
    """Two of a job's inputs, or outputs, at one path."""
    for later, place in enumerate(places):
        for earlier in places[:later]:
            job = _first_equal(earlier, place)
            if job is not None:
                what = f"{show(place[job])} is the path of another {noun} too"
                if place.columns or earlier.columns:
                    what += f", in {columns.job(place, job)}"
                yield place.loc, what, f"give each {noun} its own `path`"
                break


def _first_equal(one: _Filled, two: _Filled) -> int | None:
    if one.template == two.template:
        return 0
    if not one.columns or not two.columns:
        fixed, texts = (one[0], two.texts) if not one.columns else (two[0], one.texts)
        return texts.index(fixed) if fixed in texts else None
    pairs = zip(one.texts, two.texts, strict=True)
    return next((job for job, (first, second) in enumerate(pairs) if first == second), None)


def _nested(places: Sequence[_Filled]) -> Iterator[Collision]:
    """Inputs that would be within another input, which is a file."""
    files = {place[0] for place in places}
    for place in places:
        up = next((parent for parent in parents(place[0]) if parent in files), None)
        if up:
            what = f"{show(place[0])} lies within {show(up)}, which is another input"
            yield place.loc, what, "give it another `path`"


def _hidden(columns: _Columns, places: Sequence[_Filled], draft: Draft) -> Iterator[Collision]:
    """Inputs at the path of one of `files`."""
    files = set(draft.files)
    if not files:
        return
    above = {parent for name in files for parent in parents(name)}
    folders = {name for name in files if (draft.folder / name).is_dir()}
    for place in places:
        for job, path in enumerate(place.texts):
            up = [name for name in parents(path) if name in files] if "/" in path else []
            within = up and (up[0] not in folders or os.path.lexists(draft.folder / path))
            if path in files or path in above or within:
                where = f", in {columns.job(place, job)}" if place.columns else ""
                what = f"the input {show(path)} would hide one of `files`{where}"
                yield place.loc, what, "give it another `path`"
                break


def _saved_within(places: Sequence[_Filled], draft: Draft) -> Iterator[Collision]:
    """Checkpoints within an input that is unpacked, and so replaced after they are restored."""
    unpacked = {number for number, given in draft.inputs if given.unpack}
    folders = {place[0]: place for place in places if place.loc[1] in unpacked}
    for number, path in enumerate(draft.saved):
        plain = tidy(path) or path
        up = next((each for each in (plain, *parents(plain)) if each in folders), None)
        if up:
            what = f"{show(path)} lies within {show(up)}, which is an input that is unpacked anew"
            yield ("checkpoint", "paths", number), what, "let the command save it elsewhere"


def _destinations(columns: _Columns, sent: Sequence[_Filled], draft: Draft) -> Iterator[Collision]:
    """Outputs of one job or of several that would be written to the same place."""
    size, beside = draft.size, f"{os.path.abspath(draft.folder)}/"
    owners: dict[str, tuple[_Filled, int]] = {}
    for to in sent:
        if size > 1 and not to.columns:
            what = f"all {size} jobs would write to {show(to.template)}"
            yield to.loc, what, "tell them apart with a placeholder, such as `{job}`"
            continue
        bad = list(_each(columns, [to], _destination_wrong(to.template)))
        if bad:
            yield from bad
            continue
        if begins_with_placeholder(to.template) and len(set(map(is_url, to.texts))) > 1:
            what = f"{show(to.template)} is a URL in some rows and a path in others"
            yield to.loc, what, "use URLs in all rows, or paths in all rows"
            continue
        for job, text in enumerate(to.texts):
            place = _settled(text, beside)
            owner, of = owners.setdefault(place, (to, job))
            if owner is not to or of != job:
                what = f"another output goes to {show(text)}, too"
                if owner.loc == to.loc or of != job:
                    who = f"{columns.job(owner, of)} and {columns.job(to, job)}"
                    what = f"{who} would both write to {show(text)}"
                yield to.loc, what, "tell them apart with a placeholder, such as `{job}`"
                break


def _destination_wrong(template: str) -> Callable[[str], Wrong | None]:
    ups = template.split("/").count("..")

    def wrong(text: str) -> Wrong | None:
        if plain_destination(text):
            return None
        if ".." in text and text.split("/").count("..") != ups:
            return Wrong(f"{show(text)} leads out of its folder", "use values without `..`")
        try:
            output_to(text.replace("{", "_"))
        except Wrong as reason:
            return reason
        return None

    return wrong


def _settled(text: str, beside: str) -> str:
    """A destination in a form in which equal places compare equal."""
    if plain_destination(text):
        return text.removeprefix(beside)
    place = local_path(text)
    if not is_url(place) and _UNTIDY.search(place):
        place = os.path.normpath(place)
    return place.removeprefix(beside)
