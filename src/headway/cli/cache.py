"""`headway cache`: what this machine keeps for the next run, and how to keep less."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import TYPE_CHECKING

from headway.cli.commands import FAILED, OK
from headway.cli.parser import Parser, UsageError
from headway.cli.terminal import print_json, print_stderr, print_table
from headway.spec.units import format_duration, format_size, parse_duration
from headway.text import many

if TYPE_CHECKING:
    from headway.cache import Cache

ACTIONS = ("list", "size", "clean", "pin", "unpin")


def parser(name: str) -> Parser:
    made = Parser(
        name,
        call,
        f"[{'|'.join(ACTIONS)}] [INPUT…] [--older TIME]",
        "Show or change what this machine keeps of the inputs that runs on it have downloaded."
        " The next run gets a kept input at once, if its checksum or manifest is declared and the"
        " same, or if the server says that the file at its URL has not changed. What was not used"
        " for longest goes first when the limits are met. The folder is ~/.cache/headway/inputs,"
        " or what HEADWAY_CACHE names; HEADWAY_CACHE=off keeps nothing.",
        [
            ("headway cache", "list what is kept, and why"),
            ("headway cache size", "how much it is, and the limits"),
            ("headway cache clean", "remove everything that is not pinned"),
            ("headway cache clean --older 7d", "remove what was not used for 7 days"),
            ("headway cache pin train.tar", "keep it whatever the limits are"),
        ],
    )
    text = "list (as without a word), size, clean, pin or unpin"
    made.argument("action", "ACTION", text, nargs="?", default="list")
    text = "of clean, pin and unpin: file names, URLs, or ids; clean without any: all"
    made.argument("inputs", "INPUT", text, nargs="*")
    made.option(
        "--older",
        "TIME",
        "of clean: only what was not used for so long, such as 7d",
        parse=parse_duration,
    )
    return made


def call(arguments: Namespace) -> int:
    from headway.cache import Cache

    action, names = arguments.action, arguments.inputs
    if action not in ACTIONS:
        raise UsageError(f"there is no action {action!r}", f"the actions are {', '.join(ACTIONS)}")
    if action in ("pin", "unpin") and not names:
        raise UsageError(f"{action} needs an input", "`headway cache` lists what is there")
    if action in ("list", "size") and names:
        raise UsageError(f"{action} takes no input", "leave it out")
    if arguments.older is not None and action != "clean":
        raise UsageError(f"--older does not go with {action}", "it goes with clean")
    cache = Cache()
    if action in ("list", "size"):
        return _show(cache, arguments)
    if action == "clean":
        return _clean(cache, arguments)
    found = cache.find(names)
    cache.pin(found, pinned=action == "pin")
    if arguments.json:
        print_json({"action": action, "inputs": [each.id for each in found]})
    else:
        for each in found:
            print(f"{action}ned {each.file or each.id}")
    return OK


def _show(cache: Cache, arguments: Namespace) -> int:
    now, kept = time.time(), cache.kept()
    total, settings = sum(each.bytes for each in kept), cache.settings
    if arguments.json:
        inputs = [{**each.as_dict(), "stays": cache.stays(each, now)} for each in kept]
        found = {"folder": str(cache.folder), "bytes": total, "quota": settings.quota}
        found |= {"keep_free": settings.keep_free, "age": settings.age}
        print_json(found if arguments.action == "size" else {**found, "inputs": inputs})
        return OK
    if arguments.action == "list" and kept:
        rows = [
            (
                each.file or each.id,
                each.id.partition("-")[2][:10],
                format_size(each.bytes),
                format_duration(int(max(0.0, now - each.used))),
                each.wanted_by,
                cache.stays(each, now),
            )
            for each in reversed(kept)
        ]
        titles = ("input", "id", "size", "used ago", "known by", "stays")
        print_table(titles, rows, ["" for _ in rows])
    quota = format_size(settings.quota) if settings.quota is not None else "no limit"
    print(f"{many(len(kept), 'input')}, {format_size(total)} of {quota}, in {cache.folder}")
    print(f"{format_size(settings.keep_free)} of the disk stay free")
    return OK


def _clean(cache: Cache, arguments: Namespace) -> int:
    now = time.time()
    chosen = cache.find(arguments.inputs) if arguments.inputs else cache.kept()
    if arguments.older is not None:
        chosen = [each for each in chosen if now - each.used >= arguments.older]
    if not arguments.inputs:
        chosen = [each for each in chosen if not each.pinned]
    stay = cache.remove(chosen)
    kept = {each.id for each in stay}
    gone = [each for each in chosen if each.id not in kept]
    cache.sweep()
    if arguments.json:
        removed = [each.id for each in gone]
        print_json({"action": "clean", "inputs": removed, "in_use": sorted(kept)})
    else:
        for each in stay:
            print_stderr(f"{each.file or each.id} stays: a job is reading it")
        print(f"removed {many(len(gone), 'input')}, {format_size(sum(e.bytes for e in gone))}")
    return FAILED if stay else OK
