"""Who brings the data on a real HTCondor: the agent, the plugin, or one in the other's stead."""

from __future__ import annotations

import json
import shutil

from tests.lab import Authority, Director, Made, Server, dead_url

from headway.events import Outcome

from .harness import Pool
from .places import CondorPlace, record
from .together import beside_others

SMALL = '[resources]\nmemory = "64 MB"\ndisk = "20 MB"\n'
CONTENT = Made(400_000, seed=21)


@beside_others(10)
def test_via_plugin_is_brought_from_the_federation_by_the_jobs_own_plugin(
    condor_pool: Pool,
) -> None:
    """At a site that knows the lab's federation and trusts it, as others do OSDF."""
    tls = Authority.get().good
    trust = shutil.copyfile(Authority.get().bundle, condor_pool.home / "federation.pem")
    trust.chmod(0o644)
    place = CondorPlace(condor_pool)
    with (
        Server({"/lab/in.bin": CONTENT}, tls=tls) as cache,
        Director("/lab", [cache], [cache]) as director,
    ):
        known = f"OSDF_FEDERATION_DISCOVERYURL={director.url('').rstrip('/')}"
        condor_pool.add_sites({"FED": f'STARTD_ENVIRONMENT = "SSL_CERT_FILE={trust} {known}"'})
        run = place.run(
            'name = "brought"\ncommand = "cp data/in.bin out.bin"\noutputs = ["out.bin"]\n'
            '[[inputs]]\nurl = "osdf:///lab/in.bin"\npath = "data/in.bin"\nvia = "plugin"\n'
            f'checksum = "{CONTENT.checksum()}"\npatience = "20 s"\n'
            f'[sites]\nonly = ["FED"]\n[submit]\n"+WantsSite" = \'"FED"\'\n{SMALL}'
        )
        agents = [request.headers["user-agent"] for request in cache.requests]
    assert run.jobs[0].outcome is Outcome.SUCCESS, place.story()
    assert CONTENT.fault(run.outputs(0) / "out.bin") is None
    (told,) = record(run)["inputs"]
    assert (told["fetched"], told["proof"]) == (False, "checksum")
    assert agents and all("headway" in agent for agent in agents)


@beside_others(10)
def test_where_the_agent_has_no_way_out_the_plugin_takes_over(condor_pool: Pool) -> None:
    """The job's proxy is dead, and no plugin sees a job's environment."""
    place = CondorPlace(condor_pool)
    with Server({"/in.bin": CONTENT}) as server:
        run = place.run(
            'name = "lost"\ncommand = "cp in.bin out.bin"\noutputs = ["out.bin"]\n'
            f'environment = {{ http_proxy = "{dead_url()}" }}\n'
            f'[[inputs]]\nurl = "{server.url("/in.bin", query="sig=geheim")}"\n'
            f"size = {CONTENT.size}\n" + SMALL
        )
        asked = len(server.requests)
    state = run.jobs[0]
    assert (state.outcome, state.attempts, state.requeues) == (Outcome.SUCCESS, 3, 2), state
    assert asked > 0
    assert CONTENT.fault(run.outputs(0) / "out.bin") is None
    attempts = [json.loads((a / "record.json").read_text()) for a in run.folder.attempts(0)]
    ends = sorted((each["exit"], "no way out" in each["reason"]) for each in attempts)
    assert ends == [(0, False), (80, True), (80, True)]
    log = run.folder.events.read_text()
    assert log.count("no_way_out=1") == 2
    assert "geheim" not in log


@beside_others(10)
def test_wrapped_jobs_stage_in_by_the_agent(condor_pool: Pool) -> None:
    folder = condor_pool.user_dir()
    (folder / "work.sh").write_text(
        "#!/bin/sh\nwc -c < same.bin > sizes\nwc -c < part-$1.bin >> sizes\n"
        'printf "%s|" "$@" >> sizes\ncat note.txt >> sizes\n[ "$1" = 0 ] || exit 3\n'
    )
    (folder / "note.txt").write_text("brought\n")
    parts = {f"/part-{n}.bin": Made(100_000 + n, seed=n) for n in (0, 1)}
    with Server({"/same.bin": CONTENT, **parts}) as server:
        (folder / "work.sub").write_text(
            "executable = work.sh\n"
            "arguments = \"$(Process) 'a b' c$(word)\"\n"
            f"base = {server.url('/').rstrip('/')}\n"
            "transfer_input_files = note.txt, $(base)/same.bin?sig=geheim,"
            " $(base)/part-$(Process).bin\n"
            "transfer_output_files = sizes\n"
            'transfer_output_remaps = "sizes = sizes-$(Process)"\n'
            "error = err-$(Process)\nrequest_memory = 64MB\nrequest_disk = 20MB\n"
            "max_retries = 0\n"
            "queue word from (\n  x\n  y\n)\n"
        )
        condor_pool.give(folder)
        done = condor_pool.headway(["wrap", "work.sub"], cwd=folder)
        assert done.returncode == 0, done.stderr
        sent = condor_pool.run_as_user(["condor_submit", "work.headway.sub"], cwd=folder)
        assert sent.returncode == 0, sent.stdout + sent.stderr
        log = folder / "work.events.log"

        def ended() -> str:
            text = log.read_text() if log.exists() else ""
            return text if text.count("\n005 (") == 2 else ""

        text = condor_pool.wait_for(ended, 180, f"two jobs in {folder}")
        agents = {request.headers.get("user-agent", "") for request in server.requests}
    errors = "".join(path.read_text() for path in folder.glob("err-*"))
    assert "(return value 0)" in text and "(return value 3)" in text, text + errors
    assert (folder / "sizes-0").read_text() == "400000\n100000\n0|a b|cx|brought\n"
    assert (folder / "sizes-1").read_text() == "400000\n100001\n1|a b|cy|brought\n"
    assert all("headway" in agent for agent in agents), agents
    assert text.count("phase=stage-in state=end") == 2
    assert "phase=run state=begin" in text
    assert "geheim" not in text
