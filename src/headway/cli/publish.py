"""`headway publish`: what an object must be, written down beside it."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli.commands import OK
from headway.cli.parser import Parser, parsed

if TYPE_CHECKING:
    from headway.node.transfer.manifest import Published


def parser(name: str) -> Parser:
    """The parser of `headway publish`, or of `headway put`."""
    return _put_parser(name) if name == "put" else _publish_parser(name)


def _publish_parser(name: str) -> Parser:
    made = Parser(
        name,
        "PATH [--chunk-size SIZE] [--no-index]",
        "Write PATH.headway, the manifest of a file: its size, the digest of each chunk of it,\n"
        "and for a tar file where each member is. Put both where your jobs fetch the file. With\n"
        "the manifest's digest in job.toml, every chunk is proven on arrival, and a bad one is\n"
        "fetched again alone.",
        [
            ("headway publish train.tar", "writes train.tar.headway, prints its digest"),
            ("headway publish train.tar --chunk-size '32 MiB'", "other chunks than by its size"),
            ("headway publish weights.bin --json", "for scripts"),
        ],
    )
    made.add_argument("path", metavar="PATH", help="the file that jobs will fetch")
    made.add_argument(
        "--chunk-size",
        metavar="SIZE",
        help="64 KiB to 1 GiB; default: 256 KiB to 1 MiB, by the file's size",
    )
    made.flag("--no-index", help="do not look into a tar file")
    made.set_defaults(call=call)
    return made


def call(arguments: Namespace) -> int:
    from headway.cli.terminal import metered, print_json
    from headway.spec.units import parse_size
    from headway.transfers import publish

    chunk_size = parsed(arguments.chunk_size, parse_size, "headway publish: --chunk-size")
    with metered(f"reading {os.path.basename(arguments.path)}") as told:
        done = publish(
            arguments.path, chunk_size=chunk_size, index=not arguments.no_index, progress=told
        )
    if arguments.json:
        print_json(_facts(arguments.path, done))
    else:
        _print(done)
    return OK


def _facts(path: str, done: Published) -> dict[str, Any]:
    manifest = done.manifest
    facts = {"path": path, "manifest": done.path, "digest": done.digest, "bytes": done.bytes}
    return {
        **facts,
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
    from headway.cli.terminal import near, printable
    from headway.spec.units import format_size

    manifest = done.manifest
    said = f"{format_size(manifest.size)} in {_count(manifest.chunks, 'chunk')}"
    if manifest.is_tar:
        said += f", {_count(manifest.member_count, 'member')}"
        if manifest.tars:
            said += f" in {_count(len(manifest.tars), 'nested tar file')}"
        if manifest.classes:
            said += f", {_count(len(manifest.classes), 'class')}"
    print(f"{printable(near(Path(done.path)))} is written: {said}")
    for note in done.notes:
        print(f"note: {note}", file=sys.stderr)
    print("put it beside the file, and pin it in job.toml, in the file's [[inputs]]:")
    print(f'  manifest = "{done.digest}"')


def _count(number: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


# `headway put`: hand one file over to a URL, whole and proven, or not at all.


_PROOF = {
    "digest": "the server's digest of it is right",
    "size": "as many bytes are there",
    "": "the server does not say what it has",
}


def _put_parser(name: str) -> Parser:
    made = Parser(
        name,
        "FILE URL [options]",
        "Send a file to an https://, osdf://, pelican:// or file:// URL. It gets its final name\n"
        "when all of it is there, wherever the server allows that, and is proven afterwards by\n"
        "digest or size. A URL that ends in `/` keeps the file's name.",
        [
            ("headway put model.pt osdf:///ospool/ap40/data/me/model.pt", "to an OSDF origin"),
            ("headway put model.pt https://store.org/me/", "as https://store.org/me/model.pt"),
            ("headway put model.pt file:///scratch/model.pt --overwrite", "replace what is there"),
        ],
    )
    made.add_argument("file", metavar="FILE", help="what to send")
    made.add_argument("url", metavar="URL", help="where to")
    made.flag("--overwrite", help="replace what lies there already")
    made.set_defaults(call=put_file)
    return made


def put_file(arguments: Namespace) -> int:
    from headway.cli.terminal import metered, print_json, printable
    from headway.node.transfer import shown
    from headway.transfers import destination, put

    path, url = arguments.file, arguments.url
    with metered(f"sending {os.path.basename(path)}") as told:
        sent = put(
            path,
            url,
            overwrite=arguments.overwrite,
            progress=lambda done, total: told(done, total or 0),
        )
    url = destination(path, url)
    if arguments.json:
        print_json(
            {
                "url": shown(url),
                "bytes": sent.bytes,
                "seconds": round(sent.seconds, 3),
                "proof": sent.proof,
            }
        )
    else:
        rate = sent.bytes / sent.seconds / 1e6 if sent.seconds > 0 else 0.0
        print(
            f"sent {printable(shown(url))}: {sent.bytes:,} bytes in {sent.seconds:.1f} s "
            f"({rate:.1f} MB/s); {_PROOF[sent.proof]}"
        )
    return OK
