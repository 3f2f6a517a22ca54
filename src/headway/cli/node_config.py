"""`headway node-config`: the configuration of an execution point with a store."""

from __future__ import annotations

import socket
import time
from argparse import Namespace
from pathlib import Path

from headway.cli.commands import FAILED, OK
from headway.cli.parser import Parser, UsageError, whole_number
from headway.cli.terminal import near, print_json, print_stderr
from headway.spec.units import parse_duration, parse_size

_MOST_PERIOD = 86400
_MOST_SLOTS = 32


def parser(name: str) -> Parser:
    made = Parser(
        name,
        call,
        "[--accounts own|shared] [options] [-o FILE | --check]",
        "Print the configuration for an HTCondor execution point, or for a pilot, that keeps inputs"
        " for the next job and brings outputs home while the next job runs: where the store is, the"
        " cron job that makes and sweeps it and tells the pool what it keeps, the transfer slots,"
        " and what containers see of the store. The slots that are there stay. Each line has a"
        " comment. The last lines say what to type, and how to undo it. With --check, headway"
        " node-config changes nothing and looks at a startd that is running.",
        [
            ("headway node-config --share-inputs", "for pilots whose users trust each other"),
            ("headway node-config --accounts own", "for nodes where each user has an account"),
            ("headway node-config -o 90-headway-store.conf", "write it"),
            ("headway node-config --check node7.example.org", "is it at work there?"),
        ],
    )
    text = "of --check: the name of the machine; default: this one"
    made.argument("machine", "MACHINE", text, nargs="?")
    made.option("--store", "PATH", "the store's folder; default: $(LOCAL_DIR)/headway-store")
    text = "where headway-node.pyz is; default: /usr/local/libexec/headway-node.pyz"
    made.option("--program", "PATH", text)
    text = "whose account jobs run as: `own`, or one that several people share; default: shared"
    made.option("--accounts", "WHOSE", text, choices=("own", "shared"), default="shared")
    text = "keep inputs although people share an account; every byte is checked each time"
    made.flag("--share-inputs", text)
    made.option("--quota", "SIZE", "what one account may keep; default: no limit", parse=parse_size)
    text = "how much of the disk stays free; default: 10 GB"
    made.option("--keep-free", "SIZE", text, parse=parse_size)
    text = "inputs that nobody has used for so long go; default: 30d"
    made.option("--age", "TIME", text, parse=parse_duration)
    text = "seconds between two looks of the sweeper; default: 60"
    made.option("--period", "N", text, parse=whole_number(_MOST_PERIOD, least=1))
    text = (
        "how many couriers may bring outputs home at the same time; they share the machine's"
        " network, so for one busy slot 2 were as fast as 8; default: 4, so that one slow"
        " destination does not hold up the others; 0: no transfer slots"
    )
    made.option("--transfer-slots", "N", text, parse=whole_number(_MOST_SLOTS))
    made.flag("--no-containers", "do not let containers see the store")
    made.option("-o", "--to", "FILE", "write it to a file that does not exist yet")
    made.flag("--check", "look at a startd that is running, and change nothing")
    made.option(
        "--pool", "POOL", "of --check: htcondor, or htcondor:collector=NAME", default="htcondor"
    )
    return made


def call(arguments: Namespace) -> int:
    from headway.pool.htcondor.node_config import NodeSettings, node_config, steps

    if arguments.check:
        return _check(arguments)
    if arguments.machine:
        raise UsageError("a machine goes with --check", "leave it out, or add --check")
    given = {
        name: getattr(arguments, name)
        for name in ("store", "program", "quota", "keep_free", "age", "period", "transfer_slots")
    }
    settings = NodeSettings(
        shared_account=arguments.accounts == "shared",
        share_inputs=arguments.share_inputs,
        containers=not arguments.no_containers,
        **{name: value for name, value in given.items() if value is not None},
    )
    text, todo = node_config(settings), steps(settings)
    if arguments.to:
        _write(Path(arguments.to), text)
    if arguments.json:
        listed = [{"command": command, "does": what} for command, what in todo]
        print_json({"config": text, "written": arguments.to, "steps": listed})
        return OK
    if not arguments.to:
        print(text)
    else:
        print(f"wrote {near(Path(arguments.to).absolute())}")
    width = max(len(command) for command, _ in todo)
    for command, what in todo:
        print_stderr(f"{command:<{width}}  # {what}")
    return OK


def _write(target: Path, text: str) -> None:
    from headway.errors import HeadwayError
    from headway.node.files import write_atomically

    try:
        write_atomically(target, text.encode(), exclusive=True)
    except FileExistsError:
        what, remedy = f"{target} exists", "remove it first, or name another file"
        raise HeadwayError(what, remedy=remedy) from None
    except OSError as error:
        raise HeadwayError(f"{target} cannot be written: {error.strerror}") from None


def _check(arguments: Namespace) -> int:
    from headway.errors import PoolError
    from headway.node.classad import quoted
    from headway.pool.htcondor.node_config import ATTRIBUTES, check_ads
    from headway.pool.htcondor.pool import HTCondorPool
    from headway.pool.htcondor.schedd import Schedd

    kind, _, options = arguments.pool.partition(":")
    if kind != HTCondorPool.kind:
        raise UsageError(f"--pool {arguments.pool} has no startds", "name an HTCondor pool")
    machine = arguments.machine or socket.getfqdn()
    facts = HTCondorPool.parse(options).facts()
    name = quoted(machine)
    try:
        ads = Schedd(None, facts["collector"]).slots(
            f"Machine == {name} || GLIDEIN_ResourceName == {name}", ATTRIBUTES
        )
    except PoolError as error:
        remedy = error.remedy or "type it where condor_status works, or add --pool"
        raise PoolError(f"the collector: {error.message}", remedy=remedy) from None
    if not ads:
        raise PoolError(
            f"the collector knows no slot of {machine}",
            remedy="`condor_status -af Machine` lists the machines",
        )
    now = time.time()
    found = check_ads(ads, now, arguments.period or 60, arguments.transfer_slots)
    bad = [each for each in found if each.problem]
    if arguments.json:
        checked = [{"what": e.what, "found": e.found, "problem": e.problem} for e in found]
        print_json({"machine": machine, "ok": not bad, "checked": checked})
    else:
        for each in found:
            mark = "wrong" if each.problem else "ok"
            print(f"{mark:<6} {each.what}: {each.problem or each.found}")
    return FAILED if bad else OK
