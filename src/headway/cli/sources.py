"""`headway sources`: where an object can come from, in which order, and how each source is."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from headway.cli.commands import FAILED, OK
from headway.cli.parser import Parser, parsed

if TYPE_CHECKING:
    from headway.node.transfer.discovery import Health
    from headway.node.transfer.source import Fault

_STYLES = {"well": "", "slow": "yellow", "sick": "red"}


def parser(name: str) -> Parser:
    made = Parser(
        name,
        "URL… [options]",
        "Say where an object can come from, in the order in which Headway would ask, and how\n"
        "each source is right now: it is asked for the first megabyte, one source after the\n"
        "other. Several URLs are mirrors of one object.",
        [
            ("headway sources osdf:///ospool/ap40/data/me/train.tar", "its caches and its origin"),
            ("headway sources https://a.org/x https://b.org/x", "two mirrors of one object"),
            ("headway sources osdf:///ospool/… --quick", "the order alone, nobody is asked"),
        ],
    )
    made.add_argument("url", nargs="+", metavar="URL", help="the object, or mirrors of it")
    made.flag("--quick", help="only the order; measure nothing")
    made.add_argument(
        "--patience", metavar="TIME", help="how long each source may take; default: 10 s"
    )
    made.set_defaults(call=call)
    return made


def call(arguments: Namespace) -> int:
    from headway.cli.terminal import patience, print_json
    from headway.node.transfer.discovery import LIMIT, Health, examine, judge
    from headway.node.transfer.federation import sources_of
    from headway.node.transfer.source import Fault
    from headway.node.transfer.urls import shown
    from headway.spec.units import parse_duration

    limit = parsed(arguments.patience, parse_duration, "headway sources: --patience") or LIMIT
    faults: dict[str, Fault] = {}
    found: list[Health] = []
    with patience("asking the director"):
        try:
            offers = sources_of(arguments.url, origins=True, faults=faults)
        except Fault:  # it is among the others
            offers = []
    for offer in offers:
        if arguments.quick:
            found.append(Health(offer))
            continue
        with patience(f"asking {offer.name}"):
            found.append(examine(offer, limit=limit))
    if not arguments.quick:
        judge(found)
    if arguments.json:
        print_json(
            {
                "urls": [shown(url) for url in arguments.url],
                "sources": [_facts(each, arguments.quick) for each in found],
                "faults": [_fault_facts(shown(url), fault) for url, fault in faults.items()],
            }
        )
    else:
        _print(found, arguments.quick)
        for url, fault in faults.items():
            _print_fault(shown(url), fault)
    good = any(each.state != "sick" for each in found)
    return OK if good else FAILED


def _facts(health: Health, quick: bool) -> dict[str, Any]:
    from headway.node.transfer.urls import shown

    offer = health.offer
    facts: dict[str, Any] = {
        "name": offer.name,
        "url": shown(offer.url),
        "kind": _kind(health),
        "priority": offer.priority,
        "token": offer.token is not None,
    }
    if quick:
        return facts
    return facts | {
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


def _fault_facts(url: str, fault: Fault) -> dict[str, Any]:
    return {
        "url": url,
        "words": fault.words,
        "phase": fault.phase,
        "retryable": fault.retryable,
        "remedy": _remedy(fault),
    }


def _kind(health: Health) -> str:
    offer = health.offer
    return "origin" if offer.origin else "cache" if offer.cache else "mirror"


def _print(found: list[Health], quick: bool) -> None:
    from headway.cli.terminal import print_table, printable

    if not found:
        return
    if quick:
        rows = [(each.offer.name, _kind(each)) for each in found]
        print_table(("source", "kind"), rows)
        return
    told = []
    for each in found:
        first = "-" if each.first_byte is None else f"{each.first_byte * 1000:.0f} ms"
        rate = "-" if each.rate is None else f"{each.rate / 1e6:.1f} MB/s"
        size = "-" if each.size is None else f"{each.size:,}"
        words = f"{each.state}: {each.words}" if each.words else each.state
        name = printable(each.offer.name)
        told.append((name, _kind(each), first, rate, size, printable(words)))
    styles = [_STYLES[each.state] for each in found]
    print_table(("source", "kind", "first byte", "rate", "bytes", "state"), told, styles)


def _print_fault(url: str, fault: Fault) -> None:
    from headway.cli.terminal import paint, printable

    lead = paint("no sources:", "bold red", sys.stderr)
    print(f"{lead} {printable(url)}: {printable(fault.words)}", file=sys.stderr)
    print(f"  {printable(_remedy(fault))}", file=sys.stderr)


def _remedy(fault: Fault) -> str:
    """What to do next; the engine says so only where it knows better than anybody would."""
    if fault.remedy:
        return fault.remedy
    if not fault.retryable:
        return "correct the URL"
    if fault.phase in ("resolve", "connect", "TLS", ""):
        return (
            "see whether this machine has a way out (name service, firewall, https_proxy) and"
            " try again; a plain https:// URL of the object needs no federation"
        )
    return "try again in a while"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
