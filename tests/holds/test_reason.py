"""Reasons become templates and values, whatever a log has in them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.holds.reason import parse

REAL = {
    "Error from slot1_3@glidein_2@127-0-0-1.pool.test: memory usage exceeded request_memory": (
        "Error from <slot>: memory usage exceeded request_memory",
        {"slot": "slot1_3@glidein_2@127-0-0-1.pool.test"},
    ),
    "Error from slot1_1@g@h.edu: Failed to execute '/x/train.sh': (errno=2: 'No such file or"
    " directory')": (
        "Error from <slot>: Failed to execute <path>: (errno=2: 'No such file or directory')",
        {"slot": "slot1_1@g@h.edu", "path": "/x/train.sh", "errno": "2"},
    ),
    "Transfer input files failure at execution point slot1_3@g@h.edu using protocol osdf. Details:"
    " server returned 404 Not Found for /data/x.txt (site CHTC) ( URL file = osdf:///data/x.txt )|":
    (
        "Transfer input files failure at execution point <slot> using protocol osdf. Details:"
        " server returned 404 Not Found for <path> (site <site>) ( URL file = <url> )",
        {
            "slot": "slot1_3@g@h.edu", "path": "/data/x.txt", "site": "CHTC", "status": "404",
            "url": "osdf:///data/x.txt", "protocol": "osdf",
        },
    ),
    "Job has gone over cgroup memory limit of 1024 megabytes. Last measured usage: 1023 megabytes."
    "  Consider resubmitting with a higher request_memory.": (
        "Job has gone over cgroup memory limit of <n> megabytes. Last measured usage: <n>"
        " megabytes. Consider resubmitting with a higher request_memory",
        {"limit": "1024", "used": "1023", "unit": "megabytes"},
    ),
    "The job exceeded allowed execute duration of 20:00:00": (
        "The job exceeded allowed execute duration of <n>",
        {"limit": "20:00:00"},
    ),
    "via condor_hold (by user alice)": ("via condor_hold (by user <user>)", {"user": "alice"}),
    "Transfer input files failure at access point ap40 while sending files to execution point"
    " slot1@h.edu. Details: from osdf-cache.example.net:8443: server returned 504 Gateway Timeout":
    (
        "Transfer input files failure at access point <host> while sending files to execution point"
        " <slot>. Details: from <host>: server returned 504 Gateway Timeout",
        {"host": "ap40", "slot": "slot1@h.edu", "status": "504",
         "source": "osdf-cache.example.net"},
    ),
    "Details: file transfer plugin /pool/plugins/osdf_plugin.py exited (exit code 62)": (
        "Details: file transfer plugin <path> exited (exit code 62)",
        {"plugin": "/pool/plugins/osdf_plugin.py", "exit": "62"},
    ),
    "Error from slot1@h.edu: STARTER at 10.0.0.1 failed to send file(s) to <10.0.0.2:9618?addrs=x>:"
    " error reading from /x/y.z: (errno 2) No such file or directory": (
        "Error from <slot>: STARTER at <host> failed to send file(s) to <host>: error reading from"
        " <path>: (errno 2) No such file or directory",
        {"slot": "slot1@h.edu", "host": "10.0.0.1", "path": "/x/y.z", "errno": "2"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("reason", REAL)
def test_real_reasons(reason: str) -> None:
    template, values = REAL[reason]
    assert parse(reason).template == template
    assert dict(parse(reason).values) == values


@pytest.mark.parametrize(
    ("reason", "name", "value"),
    [
        ('failed: Get "https://cache1.example.org:8443/a/b": EOF', "source", "cache1.example.org"),
        ("Could not resolve host: osdf.example.org", "source", "osdf.example.org"),
        ("failed to connect to osdf.example.org port 443", "source", "osdf.example.org"),
        ("non-zero exit (1) from /usr/libexec/condor/stash_plugin. |Error", "plugin",
         "/usr/libexec/condor/stash_plugin"),
        ("non-zero exit (1) from /usr/libexec/condor/stash_plugin. |Error", "exit", "1"),
        ("status code 503 from the cache", "status", "503"),
        ("disk used 12.5 GB of scratch", "used", "12.5"),
    ],
)  # fmt: skip
def test_values_of_other_real_reasons(reason: str, name: str, value: str) -> None:
    assert parse(reason).values[name].rstrip(".") == value


#: Pieces that reasons are made of, so that what hypothesis puts together looks like one.
PIECES = st.sampled_from(
    ["errno", "status", "exit code", "file", "site", "by user", "execution point", "URL file =",
     "'", '"', "<", ">", "<n>", "<path>", "<slot>", "/", "..", "://", "osdf://x", "@", "a@b", "404",
     "1.2.3.4", "12:00:00", "|", "\t", "\n", "(", ")", "-", ".", ":", "0x1f", "deadbeef01", "é",
     "\x1b[2J", "a.b.c", "_", "500 Bad", "using protocol", "limit of", "used", "5 GB", " "]
)  # fmt: skip
REASONS = st.lists(PIECES | st.text(max_size=6), max_size=25).map("".join) | st.lists(
    PIECES | st.text(max_size=6), max_size=25
).map(" ".join)


@given(REASONS)
def test_a_template_s_template_is_itself(reason: str) -> None:
    once = parse(reason).template
    assert parse(once).template == once


@given(REASONS | st.text())
def test_no_text_is_too_strange(reason: str) -> None:
    template, values = parse(reason)
    assert len(template) <= 1200 and "\x1b" not in template and "\n" not in template
    assert all(len(value) <= 500 for value in values.values())


NAME = st.from_regex(r"[a-z]{4,12}[0-9]{1,3}", fullmatch=True)


@given(NAME, NAME, NAME, NAME, st.integers(10_000, 10**9))
def test_values_do_not_leak_into_templates(a: str, b: str, c: str, d: str, n: int) -> None:
    reason = (
        f"Transfer input files failure at execution point slot1_1@{a}@{b}.site.edu using protocol"
        f" osdf. Details: {n} of {n} from {c}.cache.org:8443: at <10.1.2.3:{n % 60000}> reading"
        f" from file /home/{d}/{a}.pt: '{b} {c}' (by user {d}) ( URL file = https://{c}/{d}/{n} )|"
    )
    template = parse(reason).template
    for value in (a, b, c, d, str(n)):
        assert value not in template
    assert parse(reason.replace(a, "other1")).template == template


@pytest.mark.parametrize(
    "unit", ["a", "a.", "a@", "/a", "1.", "' ", "<1", "a://", "aaaa ", "0123456789abcdef", "of 1 "]
)
def test_a_giant_line_costs_no_more_than_its_beginning(unit: str) -> None:
    giant = unit * (2_000_000 // len(unit))
    begin = time.process_time()
    parse.__wrapped__(giant)
    assert time.process_time() - begin < 0.5
