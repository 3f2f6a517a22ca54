"""`headway sources`: where an object can be downloaded from, in which order, and how fast."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from headway.cli.commands import FAILED, OK
from headway.cli.parser import Parser
from headway.cli.terminal import patience, print_json, print_stderr, print_table
from headway.spec.units import parse_duration
from headway.text import printable

if TYPE_CHECKING:
    from headway.node.transfer.discovery import Health
    from headway.node.transfer.source import Fault

_STYLES = {"well": "", "slow": "yellow", "sick": "red"}


def parser(name: str) -> Parser:
    made = Parser(
        name,
        call,
        "URL… [options]",
        "Show the sources of an object in the order in which Headway would try them, and how well"
        " each of them works right now. Headway downloads the first megabyte from one source after"
        " the other. Several URLs are mirrors of one object.",
        [
            ("headway sources osdf:///ospool/ap40/data/me/train.tar", "its caches and its origin"),
            ("headway sources https://a.org/x https://b.org/x", "two mirrors of one object"),
            ("headway sources osdf:///ospool/… --quick", "only the order, without a download"),
        ],
    )
    made.argument("url", "URL", "the object, or mirrors of it", nargs="+")
    made.flag("--quick", "show only the order; measure nothing")
    text = "how long to wait for each source; default: 10 s"
    made.option("--patience", "TIME", text, parse=parse_duration)
    return made


def call(arguments: Namespace) -> int:
    from headway.node.transfer.discovery import LIMIT, Health, examine, judge
    from headway.node.transfer.federation import sources_of
    from headway.node.transfer.source import Fault
    from headway.node.transfer.urls import shown

    faults: dict[str, Fault] = {}
    found: list[Health] = []
    with patience("asking the director"):
        try:
            offers = sources_of(arguments.url, origins=True, faults=faults)
        except Fault:  # it is among the others
            offers = []
    for offer in offers:
        with patience(f"asking {offer.name}"):
            limit = arguments.patience or LIMIT
            found.append(Health(offer) if arguments.quick else examine(offer, limit=limit))
    if not arguments.quick:
        judge(found)
    if arguments.json:
        print_json(
            {
                "urls": [shown(url) for url in arguments.url],
                "sources": [_document(each, arguments.quick) for each in found],
                "faults": [
                    {
                        "url": shown(url),
                        "words": fault.words,
                        "phase": fault.phase,
                        "retryable": fault.retryable,
                        "remedy": _remedy(fault),
                    }
                    for url, fault in faults.items()
                ],
            }
        )
    else:
        _print(found, arguments.quick)
        for url, fault in faults.items():
            print_stderr(
                f"no sources: {printable(shown(url))}: {printable(fault.words)}", "bold red"
            )
            print_stderr(f"  {printable(_remedy(fault))}")
    return OK if any(each.state != "sick" for each in found) else FAILED


def _document(health: Health, quick: bool) -> dict[str, Any]:
    from headway.node.transfer.urls import shown

    offer = health.offer
    document: dict[str, Any] = {
        "name": offer.name,
        "url": shown(offer.url),
        "kind": _kind(health),
        "priority": offer.priority,
        "token": offer.token is not None,
    }
    if quick:
        return document
    return document | {
        "state": health.state,
        "words": health.words,
        "phase": health.fault.phase if health.fault else "",
        "retryable": health.fault.retryable if health.fault else None,
        "first_byte": _rounded(health.first_byte),
        "rate": _rounded(health.rate),
        "size": health.size,
        "age": health.age,
        "ranges": health.ranges,
    }


def _kind(health: Health) -> str:
    return "origin" if health.offer.origin else "cache" if health.offer.cache else "mirror"


def _print(found: list[Health], quick: bool) -> None:
    if found and quick:
        print_table(("source", "kind"), [(each.offer.name, _kind(each)) for each in found])
    elif found:
        rows = [
            (
                printable(each.offer.name),
                _kind(each),
                "-" if each.first_byte is None else f"{each.first_byte * 1000:.0f} ms",
                "-" if each.rate is None else f"{each.rate / 1e6:.1f} MB/s",
                "-" if each.size is None else f"{each.size:,}",
                printable(f"{each.state}: {each.words}" if each.words else each.state),
            )
            for each in found
        ]
        styles = [_STYLES[each.state] for each in found]
        print_table(("source", "kind", "first byte", "rate", "bytes", "state"), rows, styles)


def _remedy(fault: Fault) -> str:
    """What to do next; the engine says so only where it knows better than anybody would."""
    if fault.remedy:
        return fault.remedy
    if not fault.retryable:
        return "correct the URL"
    if fault.phase in ("resolve", "connect", "TLS", ""):
        return (
            "check that this machine can reach the network (name service, firewall, https_proxy)"
            " and try again; a plain https:// URL of the object needs no federation"
        )
    return "try again later"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
