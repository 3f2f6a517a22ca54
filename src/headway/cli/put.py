"""`headway put`: hand one file over to a URL, whole and proven, or not at all."""

from __future__ import annotations

import os
from argparse import Namespace

from headway.cli import OK
from headway.cli.parser import Parser

_PROOF = {
    "digest": "the server's digest of it is right",
    "size": "as many bytes are there",
    "": "the server does not say what it has",
}


def parser(name: str) -> Parser:
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
    made.add_argument("--overwrite", action="store_true", help="replace what lies there already")
    made.set_defaults(call=call)
    return made


def call(arguments: Namespace) -> int:
    from headway.cli.show import metered, print_json, printable
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
