"""`headway fetch`: bring objects here, each proven before it gets its name."""

from __future__ import annotations

import contextlib
import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli import OK
from headway.cli.parser import Parser, UsageError, parsed

if TYPE_CHECKING:
    from headway.cli.signals import Asked
    from headway.transfers import Fetched

MOST_CONNECTIONS = 16
_PROOF = {
    "manifest": "every chunk is what the manifest says",
    "checksum": "its checksum is right",
    "digest": "it is what the server's own digest says",
    "size": "its size is right, no checksum was given",
    "": "nothing proves its bytes: no checksum was given, and the server tells none",
}
_ONE = ("--mirror", "--checksum", "--manifest", "--size")


def parser(name: str) -> Parser:
    made = Parser(
        name,
        "URL… [-o PATH] [--checksum ALG:HEX] [options]",
        "Bring objects here, from http(s)://, osdf://, stash://, pelican:// or file:// URLs.\n"
        "Several URLs are several files; other places of the one object are --mirror. The bytes\n"
        "gather in NAME.part; a fetch that was stopped, killed or given up goes on from there\n"
        "when the same command is given again. A file gets its name when it is whole and proven.",
        [
            ("headway fetch osdf:///ospool/ap40/data/me/train.tar", "to ./train.tar"),
            ("headway fetch https://a.org/x --mirror https://b.org/x", "one file, two sources"),
            ("headway fetch https://a.org/x https://a.org/y -o data", "data/x and data/y"),
            ("headway fetch https://a.org/x -o x.tar --checksum md5:…", "proven on arrival"),
        ],
    )
    made.add_argument("url", nargs="+", metavar="URL", help="the object, or several objects")
    made.add_argument(
        "-o",
        "--to",
        metavar="PATH",
        help="the file, or a folder for it; default: here, as the URL calls it",
    )
    made.add_argument(
        "--mirror",
        action="append",
        default=[],
        metavar="URL",
        help="another source of the same object; may be repeated",
    )
    made.add_argument(
        "--checksum", metavar="ALG:HEX", help="what it must be: sha256, md5, crc32c, adler32"
    )
    made.add_argument(
        "--manifest",
        metavar="sha256:HEX",
        help="prove each chunk by URL.headway, which must have this digest",
    )
    made.add_argument("--size", metavar="N", help="how large it must be: bytes, or with a unit")
    made.add_argument(
        "--overwrite", action="store_true", help="replace a file that is here, once proven"
    )
    made.add_argument(
        "--patience",
        metavar="TIME",
        help="how long nothing may come from anywhere; default: 30 min",
    )
    made.add_argument(
        "--connections",
        metavar="N",
        help="at once; default: 4, at most 2 of them to one server",
    )
    made.add_argument(
        "--direct", action="store_true", help="from the federation's origin, past its caches"
    )
    made.set_defaults(call=call)
    return made


def call(arguments: Namespace) -> int:
    from headway.cli.failure import report
    from headway.cli.signals import Asked
    from headway.errors import HeadwayError, Stopped

    options = _options(arguments)
    places = _places(arguments)
    asked = Asked()
    worst = OK
    with asked.heard():
        for url, place in zip(arguments.url, places, strict=True):
            try:
                _one(url, place, options, arguments, asked)
            except Stopped:
                return _stopped(place, asked)
            except HeadwayError as error:
                if len(places) == 1 or arguments.debug:
                    raise
                worst = max(worst, report(error, arguments.json))
    return worst


def _one(
    url: str, place: Path, options: dict[str, Any], arguments: Namespace, asked: Asked
) -> None:
    from headway.cli.meter import choose_meter
    from headway.cli.show import near, printable
    from headway.transfers import fetch, left_of

    left = left_of(place)
    if left is not None and not arguments.json:
        what = f"{printable(near(left))} is here: going on from it, if the object is still the same"
        print(what, file=sys.stderr)
    meter = choose_meter(place.name, options["patience"], silent=arguments.json)
    with contextlib.closing(meter):
        done = fetch(
            [url, *arguments.mirror],
            place,
            **options,
            progress=meter.saw,
            should_stop=lambda: bool(asked),
        )
    if arguments.json:
        from headway.cli.show import print_json

        print_json(_facts(url, arguments.mirror, done))
    else:
        print(_sentence(place, done))


def _options(arguments: Namespace) -> dict[str, Any]:
    """What the words of the command line mean; UsageError where they mean nothing."""
    from headway.spec.units import parse_duration
    from headway.transfers import PATIENCE

    if len(arguments.url) > 1:
        for option in _ONE:
            if getattr(arguments, option.strip("-")):
                raise UsageError(
                    f"headway fetch: {option} speaks of one object, and there are several URLs",
                    remedy="fetch them one by one; other sources of one object are --mirror URL",
                )
    patience = parsed(arguments.patience, parse_duration, "headway fetch: --patience")
    return {
        "checksum": arguments.checksum,
        "size": parsed(arguments.size, _size, "headway fetch: --size"),
        "manifest": arguments.manifest,
        "overwrite": arguments.overwrite,
        "patience": PATIENCE if patience is None else patience,
        "connections": parsed(arguments.connections, _connections, "headway fetch: --connections"),
        "direct": arguments.direct,
    }


def _size(text: object) -> int:
    """A size is copied from a listing of bytes as often as from words."""
    from headway.spec.units import parse_size

    plain = str(text).replace(",", "").replace("_", "")
    return int(plain) if plain.isascii() and plain.isdigit() else parse_size(text)


def _connections(text: object) -> int:
    from headway.spec.words import Wrong

    number = str(text)
    if not (number.isascii() and number.isdigit() and 1 <= int(number[:9]) <= MOST_CONNECTIONS):
        raise Wrong(
            f"{number[:20]!r} is not a number from 1 to {MOST_CONNECTIONS}",
            "few connections leave a cache room for other people's jobs",
        )
    return int(number)


def _places(arguments: Namespace) -> list[Path]:
    """Where each object goes."""
    from headway.transfers import target_of

    to = arguments.to
    if to == "-":
        raise UsageError(
            "headway fetch: the bytes arrive from several places at once, not in their order",
            remedy="name a file, and read it when it is whole",
        )
    if len(arguments.url) == 1:
        return [target_of(arguments.url[0], to)]
    if to is not None and os.path.lexists(to) and not os.path.isdir(to):
        raise UsageError(
            f"headway fetch: {to} is not a folder, and there are several URLs",
            remedy="name a folder; other sources of one object are --mirror URL",
        )
    places = [target_of(url, os.path.join(to or os.curdir, "")) for url in arguments.url]
    for number, place in enumerate(places):
        if place in places[:number]:
            raise UsageError(
                f"headway fetch: two of the URLs are called {place.name}",
                remedy="if they are one object, name one and give the other as --mirror URL;"
                " if not, fetch them one by one with -o",
            )
    return places


def _facts(url: str, mirrors: list[str], done: Fetched) -> dict[str, Any]:
    from headway.node.transfer import shown

    return {
        "urls": [shown(each) for each in (url, *mirrors)],
        "path": done.path,
        "bytes": done.bytes,
        "seconds": round(done.seconds, 3),
        "proof": done.proof,
        "verified": done.verified,
        "here": not done.url,
        "resumed": _resumed(done),
        "sources": [each.as_json() for each in done.snapshot.sources],
    }


def _resumed(done: Fetched) -> int:
    """Bytes that an earlier call had brought."""
    came = sum(each.bytes for each in done.snapshot.sources)
    return max(0, done.bytes - came) if done.url else 0


def _sentence(place: Path, done: Fetched) -> str:
    from headway.cli.show import near, printable
    from headway.spec.units import format_duration, format_size

    name, proof = printable(near(place)), _PROOF[done.proof]
    if not done.url:
        return f"{name} is here already, {format_size(done.bytes)}: {proof}"
    resumed = _resumed(done)
    rate = format_size((done.bytes - resumed) / done.seconds) if done.seconds > 0 else "?"
    text = f"{name}: {format_size(done.bytes)} in {format_duration(done.seconds)} ({rate}/s)"
    if resumed:
        text += f", {format_size(resumed)} of it were here"
    given = [each for each in done.snapshot.sources if each.bytes]
    came = sum(each.bytes for each in given)
    if len(given) > 1:
        given.sort(key=lambda each: -each.bytes)
        shares = (f"{printable(s.host)} {100 * s.bytes / came:.0f} %" for s in given)
        text += f", from {', '.join(shares)}"
    return f"{text}; {proof}"


def _stopped(place: Path, asked: Asked) -> int:
    from headway.cli.show import near, printable
    from headway.transfers import left_of

    left = left_of(place)
    what = "nothing had arrived yet"
    if left is not None:
        what = f"{printable(near(left))} stays, and the same command goes on from there"
    print(f"\nstopped: {what}", file=sys.stderr)
    return asked.exit_code
