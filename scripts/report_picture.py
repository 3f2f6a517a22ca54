"""Draw docs/images/report.png: the first screen of `headway report --html` on the study's 100 jobs.

    python scripts/report_picture.py [FILE.png]

The study's table becomes event logs (tests/report/study.py), the logs become the page, and a real
Chromium (apt-get install chromium) is asked what it shows. The same logs give the same picture.
"""

from __future__ import annotations

import os
import sys
import tempfile
from datetime import timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.report.browser import Browser  # noqa: E402
from tests.report.study import write  # noqa: E402

from headway.report import report as report_of  # noqa: E402
from headway.report.page import render  # noqa: E402

TARGET = ROOT / "docs" / "images" / "report.png"
TITLE = "ImageNet on the OSPool: the study's 100 jobs"
WIDTH, HEIGHT = 1280, 900
MOST = 400_000  # bytes: it stands in the README


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="headway-picture-") as name:
        folder = Path(name)
        write(folder)
        os.chdir(folder)  # so that the page names no temporary folder
        report = report_of(".")
        page = folder / "report.html"
        page.write_text(
            render(
                report.accounts,
                report.totals,
                report.losses,
                report.sites,
                report.findings,
                title=TITLE,
                generated=report.accounts.end,
                zone=timezone.utc,
            ),
            "utf-8",
        )
        with Browser(folder) as browser:
            shown = browser.page(WIDTH, HEIGHT)
            shown.media(scheme="light", motion="reduce")
            shown.open(page)
            picture = shown.picture(folder / "report.png").read_bytes()
    if len(picture) > MOST:
        raise SystemExit(f"the picture has {len(picture):,} bytes, more than {MOST:,}")
    target.write_bytes(picture)
    print(f"{target}: {len(picture):,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute() if sys.argv[1:] else TARGET)
