"""Credentials of the user's shell: the agent's transfers have them, the command has not."""

from __future__ import annotations

import os

import pytest
from tests.lab import Authority, Held, Server
from tests.node.transfer.federation import TRACER, Registry, creds, jwt

from headway.events import Outcome

from .house import SMALL, House

DATA = b"guarded" * 1000


@pytest.mark.parametrize("way", ["BEARER_TOKEN", "BEARER_TOKEN_FILE", "_CONDOR_CREDS"])
def test_a_token_reaches_the_agent_and_not_the_command(house: House, way: str) -> None:
    token = jwt("storage.read:/")
    if way == "BEARER_TOKEN":
        house.environment[way] = token
    elif way == "BEARER_TOKEN_FILE":
        house.write(token, "token")
        house.environment[way] = "token"  # as a shell in this folder would understand it
    else:
        house.environment |= creds(house.folder, scitokens=token)
    # brought with the job, so that it is not there yet when the node is looked at
    house.write(Authority.get().bundle.read_text(), "ca.pem")
    origin = Server({"/lab/in": Held(DATA)}, tls=Authority.get().good)
    with origin, Registry("/lab", [origin], [origin], require_token=True) as it:
        run = house.run(
            'name = "guarded"\nshell = true\ncommand = "env > seen; cat in | wc -c"\n'
            'files = ["ca.pem"]\nenvironment = { SSL_CERT_FILE = "ca.pem" }\n'
            f'outputs = ["seen"]\n[[inputs]]\nurl = "{it.pelican_url("/in")}"\n' + SMALL
        )
        assert origin.saw(TRACER)
    assert run.jobs[0].outcome is Outcome.SUCCESS
    names = {line.partition("=")[0] for line in (run.outputs(0) / "seen").read_text().splitlines()}
    assert (
        names & {"BEARER_TOKEN", "BEARER_TOKEN_FILE", "_CONDOR_CREDS", "HEADWAY_PRIVATE"} == set()
    )
    kept = [path for path in run.folder.path.rglob("*") if path.is_file()]
    assert not [path for path in kept if TRACER.encode() in path.read_bytes()]


def test_what_job_toml_says_reaches_the_command(house: House) -> None:
    house.environment["BEARER_TOKEN"] = os.urandom(8).hex()
    run = house.run(
        'name = "told"\ncommand = "sh -c \'echo $BEARER_TOKEN > said\'"\noutputs = ["said"]\n'
        'environment = { BEARER_TOKEN = "mine" }\n' + SMALL
    )
    assert (run.outputs(0) / "said").read_text() == "mine\n"
