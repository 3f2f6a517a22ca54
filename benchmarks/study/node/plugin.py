#!/usr/bin/python3
"""A stand-in for Pelican's file-transfer plugin, by its published rules: one cache after the other.

The director's caches are tried in order. One that gives nothing for 100 s, or under 100 KiB/s over
30 s after the first 100 s, is left for the next, which goes on from the last byte; a plugin that is
started again begins from nothing. plugin.json beside this file says where the director is, how
these figures are scaled, and whether it is one of after 2024: then an answer of the director that
may pass is waited for, and errors that may pass are told as such (exit code 11).
"""

from __future__ import annotations

import http.client
import json
import os
import re
import sys
import time
import urllib.parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CAPABILITIES = """MultipleFileSupport = true
PluginType = "FileTransfer"
PluginVersion = "1.0"
ProtocolVersion = 2
SupportedMethods = "osdf,pelican"
"""
STOPPED, RAMP_UP, WINDOW = 100.0, 100.0, 30.0  # seconds
SLOW = 100 * 1024  # bytes a second
RETRYABLE = 11
ASKED, PAUSE = 10, 3.0  # questions to a director that may be passing through a fault, and seconds
PIECE = 1 << 16


class Failed(Exception):
    def __init__(self, words: str, *, passing: bool) -> None:
        super().__init__(words)
        self.passing = passing


def main() -> int:
    if "-classad" in sys.argv:
        print(CAPABILITIES, end="")
        return 0
    given = {name: sys.argv[sys.argv.index(name) + 1] for name in ("-infile", "-outfile")}
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "plugin.json")) as file:
        settings = json.load(file)
    with open(given["-infile"]) as file:
        wanted = re.findall(r"\[[^]]*\]", file.read())
    code = 0
    with open(given["-outfile"], "w") as out:
        for ad in wanted:
            url, path = value(ad, "Url"), value(ad, "LocalFileName")
            result: dict[str, Any] = {"TransferUrl": url, "TransferFileName": path}
            result["TransferProtocol"], result["TransferType"] = "osdf", "download"
            try:
                result["TransferFileBytes"] = fetch(url, path, settings)
                result["TransferTotalBytes"] = result["TransferFileBytes"]
                result["TransferSuccess"] = True
            except Failed as failed:
                result["TransferError"], result["TransferSuccess"] = str(failed), False
                code = RETRYABLE if failed.passing and settings["retries"] else 1
            lines = (f"{name} = {json.dumps(each)};" for name, each in result.items())
            out.write(f"[ {' '.join(lines)} ]\n")
    return code


def value(ad: str, name: str) -> str:
    found = re.search(rf'\b{name}\s*=\s*"([^"]*)"', ad)
    return found[1] if found else ""


def fetch(url: str, path: str, settings: dict[str, Any]) -> int:
    """The bytes of the file, once it is there."""
    words = "the director names none"
    open(path, "wb").close()
    for cache in ask(url, settings):
        try:
            return get(cache, path, settings)
        except (OSError, http.client.HTTPException, Failed) as error:
            words = f"the last was {urllib.parse.urlsplit(cache).netloc}: {error}"
    raise Failed(f"no cache gave the object; {words}", passing=True)


def ask(url: str, settings: dict[str, Any]) -> list[str]:
    """The caches, in the director's order."""
    for number in range(1, ASKED):
        try:
            return ask_once(url, settings)
        except Failed as failed:
            if not (failed.passing and settings["retries"]):
                raise
        time.sleep(PAUSE * number * settings["seconds"])
    return ask_once(url, settings)


def ask_once(url: str, settings: dict[str, Any]) -> list[str]:
    with open(os.environ["_CONDOR_MACHINE_AD"]) as file:
        ad = file.read()
    slot = f"{value(ad, 'StudyNode')}-{value(ad, 'Name').partition('@')[0]}"
    client = f"{value(ad, 'GLIDEIN_ResourceName')}/{slot}"
    try:
        path = urllib.parse.urlsplit(url).path
        answer = request(f"{settings['director']}/{client}{path}", 10)
        body = answer.read().decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        raise Failed(f"the director cannot be asked: {error}", passing=True) from None
    if answer.status != 307:
        genuine = (answer.getheader("Server") or "").startswith("pelican/")
        raise Failed(f"the director answers {answer.status}: {body}", passing=not genuine)
    return re.findall("<([^>]*)>", answer.getheader("Link") or "")


def get(url: str, path: str, settings: dict[str, Any]) -> int:
    stopped, ramp_up, span = (
        max(settings["least"], seconds * settings["seconds"])
        for seconds in (STOPPED, RAMP_UP, WINDOW)
    )
    begin_at = os.path.getsize(path)
    answer = request(url, stopped, {"Range": f"bytes={begin_at}-"} if begin_at else {})
    if answer.status != (206 if begin_at else 200):
        raise Failed(f"{answer.status} {answer.reason}", passing=True)
    size = begin_at + int(answer.getheader("Content-Length") or 0)
    got = before = begin_at
    begin = window = time.monotonic()
    with open(path, "ab") as file:
        while got < size:
            data = answer.read1(PIECE)
            if not data:
                raise Failed(f"it ended after {got} of {size} bytes", passing=True)
            file.write(data)
            got += len(data)
            now = time.monotonic()
            if now - window >= span:
                slow = (got - before) / (now - window) < SLOW * settings["rates"]
                if slow and now - begin > ramp_up:
                    raise Failed("it is too slow", passing=True)
                window, before = now, got
    return got


def request(
    url: str, seconds: float, headers: dict[str, str] | None = None
) -> http.client.HTTPResponse:
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=seconds)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    connection.request("GET", target, headers=headers or {})
    return connection.getresponse()


if __name__ == "__main__":
    sys.exit(main())
