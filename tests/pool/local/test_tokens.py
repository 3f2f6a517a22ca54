"""Credentials of the user's shell: the agent's transfers have them, the command has not."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

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


APPTAINER = """#!{python}
# notes what `ps` shows of it, then the agent, with what the prefix carries, instead of a container
import json, os, sys
carried = {{k[13:]: v for k, v in os.environ.items() if k.startswith("APPTAINERENV_")}}
json.dump([sys.argv, carried], open({seen!r}, "w"))
os.chdir(sys.argv[sys.argv.index("--bind") + 1].removesuffix(":/srv"))
here = os.getcwd()
inside = {{k: v.replace("/srv", here) for k, v in carried.items()}}
inside |= {{"PATH": os.environ["PATH"], "HEADWAY_PARENT": str(os.getppid())}}
os.execve("./headway-node.pyz", ["headway-node.pyz", *sys.argv[-2:]], inside)
"""


def test_no_secret_is_among_the_arguments_of_a_container(house: House) -> None:
    """A proxy's password, a token: every user of the machine can read a process's arguments."""
    seen = str(house.folder / "seen.json")
    house.write(APPTAINER.format(python=sys.executable, seen=seen), "bin/apptainer", mode=0o755)
    house.environment["PATH"] = f"{house.folder}/bin:{house.environment['PATH']}"
    proxy = "http://me:pass,word@proxy.invalid:3128"
    house.environment |= {"https_proxy": proxy, "HTTP_PROXY": proxy, "BEARER_TOKEN": "tok-en"}
    house.write("image", "image.sif")
    run = house.run(
        'name = "boxed"\ncommand = "sh -c \'echo $https_proxy > said\'"\noutputs = ["said"]\n'
        'container = "image.sif"\n' + SMALL
    )
    arguments, carried = json.loads(Path(seen).read_text())
    assert "exec" in arguments
    assert "pass,word" not in str(arguments) and "tok-en" not in str(arguments)
    assert carried["https_proxy"] == proxy and carried["BEARER_TOKEN"] == "tok-en"
    assert carried.keys().isdisjoint({"PATH", "HOME"})
    assert (run.outputs(0) / "said").read_text().strip() == proxy


def test_what_job_toml_says_reaches_the_command(house: House) -> None:
    house.environment["BEARER_TOKEN"] = os.urandom(8).hex()
    run = house.run(
        'name = "told"\ncommand = "sh -c \'echo $BEARER_TOKEN > said\'"\noutputs = ["said"]\n'
        'environment = { BEARER_TOKEN = "mine" }\n' + SMALL
    )
    assert (run.outputs(0) / "said").read_text() == "mine\n"
