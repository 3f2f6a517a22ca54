"""The units of examples/systemd: systemd accepts them, and they say what the page says."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headway.cli import parser_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/administrators.md").read_text(encoding="utf-8")
UNITS = sorted((ROOT / "examples/systemd").glob("*.service"))
#: What must not be forgotten of a service that runs for ever.
HARDENED = {"NoNewPrivileges": "true", "ProtectSystem": "strict", "CapabilityBoundingSet": ""}


def service(unit: Path) -> dict[str, str]:
    read = configparser.ConfigParser(interpolation=None, strict=False)
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read_string(unit.read_text(encoding="utf-8"))
    return dict(read["Service"])


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_runs_a_command_that_there_is_without_privileges(unit: Path) -> None:
    said = service(unit)
    program, name, *words = shlex.split(said["ExecStart"])
    assert program == "/opt/headway/bin/headway"
    parser_of(name).parse(words)
    assert said["User"] == "headway"
    assert HARDENED.items() <= said.items()
    assert f"../examples/systemd/{unit.name}" in PAGE
    assert f"systemctl enable --now {unit.stem}" in PAGE
    assert f"systemctl disable --now {unit.stem}" in PAGE


def test_the_schedd_can_know_who_heals() -> None:
    said = service(ROOT / "examples/systemd/headway-heal.service")
    assert said["PrivateTmp"] == "false" and said["ReadWritePaths"] == "/tmp"
    assert "AF_NETLINK" in said["RestrictAddressFamilies"].split()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_accepts_it(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name
    text = unit.read_text(encoding="utf-8")
    copy.write_text(text.replace("/opt/headway/bin/headway", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True
    )
    said = [line for line in done.stderr.splitlines() if unit.name in line]
    assert done.returncode == 0 and not said, done.stderr


def test_the_page_types_commands_that_there_are() -> None:
    lines = re.findall(r"^    (?:sudo -u headway )?(?:/opt/headway/bin/)?headway (.*)$", PAGE, re.M)
    assert len(lines) >= 4
    for line in lines:
        name, *words = shlex.split(line, comments=True)
        parser_of(name).parse(words)
