"""docs/administrators.md, step by step on a real pool."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lab import Made, Server

from headway.cli.wrap import write_plugin

from .harness import Pool
from .jobs import PlainJob

pytestmark = pytest.mark.pool

PAGE = (Path(__file__).parents[2] / "docs/administrators.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"<!-- file: \S+/(\S+) -->\n```text\n(.*?)```", PAGE, re.DOTALL))
SITE = "GP-ARGO-ksu-backfill"
EVERYBODY = ("--pool", "htcondor", "--everybody")
QUICK = ("--backoff", "1s", "--most-wait", "1s")


class Administrator:
    """Somebody who may change the pool's configuration."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    def type(self, line: str, config: Path | None = None) -> str:
        env = {**self.pool.env, "HOME": "/root"}
        if config is not None:
            env["CONDOR_CONFIG"] = str(config)
        done = subprocess.run(
            line, shell=True, env=env, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextlib.contextmanager
    def configured(self, config: Path, lines: str, *reconfig: str) -> Iterator[None]:
        """A configuration with the lines of the page, and afterwards without them."""
        before = config.read_text()
        for text in (f"{before}\n{lines}\n", before):
            config.write_text(text)
            for line in reconfig:
                assert f"    {line}\n" in PAGE
                self.type(line, config)
            if text is not before:
                try:
                    yield
                except BaseException:
                    config.write_text(before)
                    raise


def test_the_plugin_is_put_in_verified_and_taken_out(condor_pool: Pool) -> None:
    admin, plugin = Administrator(condor_pool), condor_pool.home / "libexec-headway-plugin"
    write_plugin(plugin)
    assert "SupportedMethods" in admin.type(f"{plugin} -classad")
    verify = "condor_history -epochs -type INPUT JOB -af InputPluginInvocations[0].PluginBasename"
    assert f"    {verify}\n" in PAGE

    def which_plugin(server: Server) -> str:
        wanted = {"requirements": f'GLIDEIN_ResourceName == "{SITE}"'}
        job = PlainJob(condor_pool)
        job.submit("true", transfer_input_files=server.url("/a.bin"), **wanted)
        job.log_with("005", "012")
        job.input_record()
        return admin.type(verify.replace("JOB", job.cluster)).strip()

    lines = BLOCKS["90-headway-plugin.conf"].replace(
        "/usr/local/libexec/headway-plugin", str(plugin)
    )
    slots = "condor_status -af Machine HasFileTransferPluginMethods"
    assert f"    {slots}\n" in PAGE
    slots += f" -constraint 'GLIDEIN_ResourceName == \"{SITE}\"'"
    with Server({"/a.bin": Made(1000)}) as server:
        config = condor_pool.home / "etc" / f"site-{SITE}"
        with admin.configured(config, lines, "condor_reconfig"):
            condor_pool.wait_for(lambda: "osdf" in admin.type(slots), 180, "osdf among the schemes")
            assert which_plugin(server) == plugin.name
        assert which_plugin(server) == "curl_plugin"


def test_the_event_log_is_switched_on_and_heal_may_act_for_all(condor_pool: Pool) -> None:
    admin, config = Administrator(condor_pool), condor_pool.home / "etc" / "condor_config"
    healer = pwd.getpwnam("daemon")  # any user but the jobs' own; `nobody` may do nothing
    home = condor_pool.home / "healer"
    home.mkdir(exist_ok=True)
    os.chown(home, healer.pw_uid, healer.pw_gid)

    def heal(*words: str) -> str:
        done = subprocess.run(
            ["python", "-m", "headway", "heal", *EVERYBODY, *QUICK, *words],
            env={**condor_pool.env, "HOME": str(home), "USER": "daemon", "LOGNAME": "daemon"},
            user=healer.pw_uid,
            group=healer.pw_gid,
            extra_groups=[],
            cwd=home,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    blocks = ("90-event-log.conf", "90-headway-heal.conf")
    lines = "\n".join(BLOCKS[name] for name in blocks).replace(", headway", ", daemon")
    with admin.configured(config, lines, "condor_reconfig -daemon schedd"):
        known = "condor_qusers -add headway"
        assert f"    {known}\n" in PAGE
        admin.type(known.replace("headway", healer.pw_name))
        job = PlainJob(condor_pool).submit(
            "true",
            requirements="MY.Dead =!= true",
            periodic_hold="JobStatus == 1 && Dead",
            periodic_hold_subcode="81",
            periodic_hold_reason='"Headway: an input did not arrive"',
            **{"My.Dead": "true"},
        )
        job.log_with("012")
        would = f"release  {job.cluster}.0"
        condor_pool.wait_for(lambda: would in heal(), 180, "a release that heal would make")
        condor_pool.run_as_user(["condor_qedit", job.cluster, "Dead", "false"])
        heal("--do", "--once")
        log = job.log_with("005")
        assert "\n013 (" in log, log
        kept = Path(admin.type("condor_config_val EVENT_LOG").strip()).read_text()
        assert f"\n005 ({int(job.cluster):03}." in kept
