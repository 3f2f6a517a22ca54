"""What every page of ours is made of: the style, and the policy under which it is shown."""

from __future__ import annotations

import base64
import hashlib
from datetime import datetime, timezone
from functools import cache
from importlib.resources import files

from headway.report.page.markup import Markup, join, tag
from headway.report.words import Phase, Verdict


def policy(style: str, script: str = "") -> str:
    """Nothing from anywhere: only this very script, if there is one, and this very style."""
    scripts = f"script-src '{_hash(script)}'; " if script else ""
    return (
        f"default-src 'none'; {scripts}style-src '{_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )


def patterns() -> Markup:
    """Stripes for badput and checks for what is not decided, in the colour of each phase."""
    made = []
    for phase in Phase:
        ground = tag("rect", width=6, height=6, class_=f"ground {phase.value}")
        stripes = tag("path", d="M-1 7L7 -1M-1 1L1 -1M5 7L7 5", class_="stripe")
        speck = tag("rect", x=1.5, y=1.5, width=3, height=3, class_="speck")
        for verdict, mark in ((Verdict.BAD, stripes), (Verdict.OPEN, speck)):
            made.append(
                tag(
                    "pattern",
                    ground,
                    mark,
                    id=f"{phase.value}-{verdict.value}",
                    width=6,
                    height=6,
                    patternUnits="userSpaceOnUse",
                )
            )
    return join(*made)


@cache
def asset(name: str) -> str:
    """A file of the page's assets; the style with the rules for its patterns."""
    body = (files("headway.report.page") / "assets" / name).read_text(encoding="utf-8")
    if name != "page.css":
        return body
    rules = [
        f".{phase.value}.{verdict.value} {{ fill: url(#{phase.value}-{verdict.value}); }}\n"
        for phase in Phase
        for verdict in (Verdict.BAD, Verdict.OPEN)
    ]
    return body + ".ground { fill: var(--own); }\n" + "".join(f".piece{rule}" for rule in rules)


def local_zone(at: float) -> timezone:
    """This machine's offset from UTC at that time."""
    try:
        shift = datetime.fromtimestamp(at).astimezone().utcoffset()
    except (OverflowError, ValueError, OSError):
        return timezone.utc
    return timezone(shift) if shift else timezone.utc


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
