"""Submit files in the shapes that people write them in: what the check says, and what it must not.

The shapes were found in public repositories; the files here were written for the test. Where
HTCondor's own condor_submit is at hand (tests/pool/pool.sh build), a dry run of each shape decides
whether it is refused, and what its values are for each job.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from headway.pool.lint.evaluate import at_each_queue, is_known
from headway.pool.lint.risks import risks
from headway.pool.lint.submit_file import split_files
from headway.pool.lint.traps import LintFinding, Severity

CACHE = os.environ.get("HEADWAY_POOL_CACHE") or (
    "/var/cache/headway/pool" if os.getuid() == 0 else os.path.expanduser("~/.cache/headway/pool")
)
RUNTIME = Path(CACHE) / "runtime"
SUBMIT = RUNTIME / "usr/bin/condor_submit"

RUN = '#!/bin/bash\nset -euo pipefail\n./work "$@"\n'
USUAL = "log = job.log\noutput = $(Process).out\nerror = $(Process).err\n"
ASKED = "request_cpus = 1\nrequest_memory = 2GB\nrequest_disk = 4GB\n"
HEAD = f"executable = run.sh\n{USUAL}{ASKED}"
#: Errors whose sentence says that condor_submit refuses the file.
REFUSES = re.compile(
    "refuses|condor_submit takes|cannot read|cannot follow|knows no universe"
    "|does not (?:fill|search)"
)
#: Of a job's ad, and what the submit file calls them.
ATTRIBUTES = {
    "Cmd": "executable",
    "Iwd": "initialdir",
    "In": "input",
    "Out": "output",
    "Err": "error",
    "UserLog": "log",
    "TransferInput": "transfer_input_files",
    "TransferOutput": "transfer_output_files",
}


@dataclass(frozen=True)
class Shape:
    """A submit file, its folder, and the ids that must and must not be found."""

    text: str
    says: str = ""
    silent: str = ""
    hints: str = ""  # of what it says: no more than a hint
    files: Mapping[str, str] = field(default_factory=lambda: {"run.sh": RUN})
    refused: bool | None = False  # by condor_submit; None: a dry run does not look at it
    env: Mapping[str, str] = field(default_factory=dict)


SHAPES = {
    "plain": Shape(
        HEAD + "queue\n", silent="no-request no-log same-file macro-unset absolute-path"
    ),
    "executable in a folder, from its parent": Shape(
        f"executable = condor/run.sh\n{USUAL}{ASKED}queue\n",
        silent="executable-missing",
        files={"condor/run.sh": RUN},
    ),
    "executable is not taken from initialdir": Shape(
        f"initialdir = sub\n{HEAD}queue\n",
        silent="executable-missing",
        files={"run.sh": RUN, "sub/x": ""},
    ),
    "executable that lies in initialdir only": Shape(
        f"initialdir = sub\n{HEAD}queue\n",
        says="executable-missing",
        files={"sub/run.sh": RUN},
        refused=True,
    ),
    "inputs are taken from initialdir": Shape(
        f"initialdir = sub\n{HEAD}transfer_input_files = a.csv, ../b.csv\nqueue\n",
        silent="input-missing",
        files={"run.sh": RUN, "sub/a.csv": "", "b.csv": ""},
    ),
    "inputs that are not in initialdir": Shape(
        f"initialdir = sub\n{HEAD}transfer_input_files = b.csv\nqueue\n",
        says="input-missing",
        files={"run.sh": RUN, "sub/a.csv": "", "b.csv": ""},
    ),
    "a folder for each job": Shape(
        f"{HEAD}initialdir = job$(Process)\nqueue 3\n",
        says="folder-missing",
        silent="same-file",
        files={"run.sh": RUN, "job0/x": "", "job1/x": ""},
        refused=True,
    ),
    "the same outputs in a folder for each job": Shape(
        f"executable = run.sh\n{ASKED}log = l\noutput = out\ntransfer_output_files = r.csv\n"
        "initialdir = job$(Process)\nqueue 2\n",
        silent="same-file folder-missing",
        files={"run.sh": RUN, "job0/x": "", "job1/x": ""},
    ),
    "logs in a folder that is there": Shape(
        f"executable = run.sh\n{ASKED}log = logs/a.log\noutput = logs/$(Cluster).$(Process).out\n"
        "queue 2\n",
        silent="folder-missing same-file macro-unset",
        files={"run.sh": RUN, "logs/.keep": ""},
    ),
    "outputs in a folder that nobody made": Shape(
        f"executable = run.sh\n{ASKED}log = logs/a.log\noutput = logs/$(Process).out\nqueue 2\n",
        says="folder-missing",
        hints="folder-missing",
    ),
    "a folder with the cluster's number": Shape(
        f"executable = run.sh\n{ASKED}log = a.log\noutput = out/$(ClusterId)/$(Process)\nqueue 2\n",
        silent="folder-missing",
    ),
    "outputs that are streamed to a folder that nobody made": Shape(
        f"executable = run.sh\n{ASKED}log = l\noutput = o/x\nstream_output = true\nqueue\n",
        says="folder-missing",
    ),
    "outputs in place in a folder that nobody made": Shape(
        f"executable = run.sh\n{ASKED}log = l\noutput = o/x\nshould_transfer_files = NO\nqueue\n",
        says="folder-missing",
    ),
    "a local job's outputs in a folder that nobody made": Shape(
        "universe = local\nexecutable = run.sh\nlog = l/a.log\noutput = o/x\nqueue\n",
        says="folder-missing",
    ),
    "all jobs write one file": Shape(
        f"executable = run.sh\n{ASKED}log = a.log\noutput = out.$(Cluster)\nqueue 20\n",
        says="same-file",
    ),
    "one job writes one file": Shape(
        f"executable = run.sh\n{ASKED}log = a.log\noutput = out\ntransfer_output_files = x.csv\n"
        "queue 1\n",
        silent="same-file",
    ),
    "results that overwrite one another": Shape(
        f"{HEAD}transfer_output_files = model.pt\nqueue 8\n", says="same-file output-missing"
    ),
    "results that are renamed": Shape(
        f"{HEAD}transfer_output_files = model.pt\n"
        'transfer_output_remaps = "model.pt=model.$(Process).pt"\nqueue 8\n',
        silent="same-file",
    ),
    "output and log in one file": Shape(
        f"executable = run.sh\n{ASKED}log = a.log\noutput = a.log\nqueue\n", says="same-file"
    ),
    "no outputs at all": Shape(
        f'{HEAD}transfer_output_files = ""\nqueue 3\n', silent="output-missing same-file"
    ),
    "transfer_output is not a list of files": Shape(
        f"{HEAD}transfer_output = True\ntransfer_error = True\nqueue\n",
        silent="output-missing typo",
    ),
    "a macro that is called out": Shape(
        f"out = results\nerr = errors\n{HEAD}queue\n", silent="folder-missing same-file"
    ),
    "rows from a file": Shape(
        f"{HEAD}arguments = $(lr) $(name)\nqueue lr, name from rows.txt\n",
        silent="queue macro-unset rows",
        files={"run.sh": RUN, "rows.txt": "0.1, a b\n0.2 c\n0.3\n"},
    ),
    "rows with comments and empty lines": Shape(
        f"{HEAD}arguments = $(lr) $(name)\nqueue lr, name from rows.txt\n",
        says="rows",
        files={"run.sh": RUN, "rows.txt": "0.1, a b\n# no\n\n0.2 c\n\n"},
    ),
    "rows from a file that is not here": Shape(
        f"{HEAD}arguments = $(lr)\nqueue lr from rows.txt\n",
        says="queue",
        silent="macro-unset",
        refused=True,
    ),
    "rows from a file beside the submit file only": Shape(
        f"{HEAD}arguments = $(lr)\nqueue lr from condor/rows.txt\n",
        silent="queue",
        files={"run.sh": RUN, "condor/rows.txt": "1\n2\n"},
    ),
    "rows from a program": Shape(
        f"{HEAD}arguments = $(Item)\nqueue Item from seq 0 1 3 |\n",
        silent="queue macro-unset same-file",
        refused=None,
    ),
    "rows from the standard input": Shape(
        f"{HEAD}arguments = $(x)\nqueue x from -\n", silent="queue macro-unset", refused=None
    ),
    "arguments as rows": Shape(
        f"{HEAD}queue arguments from (\n--lr 0.1 /scratch/me\n--lr 0.2\n)\n",
        says="scratch-path",
        silent="macro-unset",
    ),
    "inputs as rows": Shape(
        f"{HEAD}queue transfer_input_files from (\na.csv\nb.csv\n)\n",
        says="input-missing",
        files={"run.sh": RUN, "a.csv": ""},
    ),
    "items in a list": Shape(
        f"{HEAD}arguments = $(x)\ntransfer_input_files = $(x).csv\nqueue x in (a, b)\n",
        says="input-missing",
        silent="queue",
        files={"run.sh": RUN, "a.csv": ""},
    ),
    "files that match": Shape(
        f"{HEAD}transfer_input_files = $(f)\narguments = $Fnx(f) $Fn(f)\n"
        "queue f matching files in/*.dat\n",
        silent="queue input-missing",
        files={"run.sh": RUN, "in/a.dat": "", "in/b.dat": "", "in/c.txt": ""},
    ),
    "nothing matches": Shape(
        f"{HEAD}arguments = $(f)\nqueue f matching files in/*.dat\n", says="queue", refused=None
    ),
    "several queues": Shape(
        f"{HEAD}arguments = 1\nqueue\narguments = 2\ntransfer_input_files = gone.csv\nqueue\n",
        says="after-queue input-missing",
        refused=True,
    ),
    "a queue of a macro": Shape(f"N = 4\n{HEAD}queue $(N)\n", silent="queue macro-unset"),
    "a queue of nothing known": Shape(f"{HEAD}queue many\n", says="queue", refused=True),
    "no queue": Shape(HEAD, says="no-queue", refused=None),
    "variables of the shell": Shape(
        f"executable = $ENV(CODE)/run.sh\n{USUAL}{ASKED}arguments = $ENV(NAME:none) $ENV(CODE)\n"
        "queue\n",
        silent="executable-missing env-unset",
        files={"code/run.sh": RUN},
        env={"CODE": "code"},
    ),
    "a variable that is not set": Shape(
        f"{HEAD}arguments = $ENV(HEADWAY_NOT_SET)\nqueue\n", says="env-unset"
    ),
    "functions": Shape(
        f"f = in/data.tar.gz\nn = 3\n{HEAD}arguments = $Fn(f) $Fpx(f) $INT(n,%03d) $SUBSTR(f,3,4)"
        " $CHOICE(1,a,b) $BASENAME(f,.gz) $DIRNAME(f) $STRING(f) $EVAL(n) $Ff(f)\nqueue\n",
        silent="macro-unset arguments",
    ),
    "by chance": Shape(
        f"{HEAD}arguments = $RANDOM_INTEGER(1,9)\ntransfer_input_files = $RANDOM_CHOICE(a,b).csv\n"
        "queue\n",
        silent="input-missing macro-unset",
    ),
    "macros of the command line": Shape(
        f"{HEAD}arguments = $(model)\ntransfer_input_files = $(model).yaml\nqueue\n",
        says="macro-unset",
        silent="input-missing",
    ),
    "macros with defaults": Shape(
        f"{HEAD}arguments = $(model:resnet)\ntransfer_input_files = $(model:resnet).yaml\nqueue\n",
        says="input-missing",
        silent="macro-unset",
    ),
    "machines fill it in": Shape(
        f"executable = run.$$(OpSys).sh\n{USUAL}{ASKED}queue\n", silent="executable-missing"
    ),
    "machines evaluate it": Shape(
        f'{HEAD}arguments = "$$([ifThenElse(isUndefined(A),""no"",""yes"")]) $(Process)"\nqueue\n',
        silent="arguments macro-unset",
    ),
    "docker with a program of the image": Shape(
        f"universe = docker\ndocker_image = a/b:c\nexecutable = /app/run.sh\n{USUAL}{ASKED}queue\n",
        says="executable-missing",
        refused=True,
    ),
    "docker with transfer_executable = false": Shape(
        "universe = docker\ndocker_image = a/b:c\nexecutable = /usr/bin/python3\n"
        f"transfer_executable = false\narguments = /app/train.py /data/in\n{USUAL}{ASKED}queue\n",
        silent="executable-missing absolute-path program-copied",
    ),
    "docker without an executable": Shape(
        f"universe = docker\ndocker_image = a/b:c\n{USUAL}{ASKED}queue\n",
        silent="executable-missing",
    ),
    "docker without an image": Shape(
        f"universe = docker\n{HEAD}queue\n", says="universe", refused=True
    ),
    "docker with a home": Shape(
        f"universe = docker\ndocker_image = a/b\nshould_transfer_files = YES\n{HEAD}"
        "arguments = --data /home/me/data --cache /app/cache\nqueue\n",
        says="absolute-path",
    ),
    "container with two images": Shape(
        f"container_image = x.sif\ndocker_image = a/b\n{HEAD}queue\n",
        says="two-images",
        files={"run.sh": RUN, "x.sif": "x"},
        refused=True,
    ),
    "an image that is not here": Shape(
        f"container_image = images/x.sif\n{HEAD}queue\n", says="input-missing"
    ),
    "an image of a registry": Shape(
        f"container_image = docker://a/b:c\n{HEAD}queue\n", silent="input-missing"
    ),
    "an image that looks like one of a registry": Shape(
        f"container_image = pytorch/pytorch:latest\n{HEAD}queue\n", says="input-missing"
    ),
    "an image on the nodes": Shape(
        f"container_image = /cvmfs/x/y:latest\n{HEAD}queue\n",
        silent="input-missing other-machine absolute-path",
    ),
    "attributes as macros": Shape(
        f"MY.Threads = 4\n+Limit = 3\n{HEAD}arguments = $(MY.Threads) $(MY.Limit)\nqueue\n",
        silent="macro-unset",
    ),
    "a batch file": Shape(
        f"executable = run.bat\n{USUAL}{ASKED}queue\n",
        says="windows",
        silent="shebang-missing crlf executable-missing",
        files={"run.bat": "@echo off\r\nwork.exe\r\n"},
    ),
    "a batch file for Windows": Shape(
        f'executable = run.bat\n{USUAL}{ASKED}requirements = OpSys == "WINDOWS"\nqueue\n',
        silent="windows shebang-missing",
        files={"run.bat": "@echo off\r\n"},
    ),
    "paths of Windows": Shape(
        f"executable = bin\\run.bat\n{USUAL}{ASKED}"
        "transfer_input_files = data\\a.csv, C:\\x\\b.csv\n"
        'requirements = (OpSys == "WINDOWS")\nqueue\n',
        silent="executable-missing input-missing not-here other-machine",
        files={"bin/run.bat": "@echo off\r\n", "data/a.csv": ""},
        refused=None,
    ),
    "an exe for Linux": Shape(
        f"executable = model.exe\n{USUAL}{ASKED}queue\n",
        silent="windows shebang-missing",
        files={"model.exe": "\x7fELF\0\0\0"},
    ),
    "no GPU, no word of one": Shape(
        f"{HEAD}periodic_release = true\ntransfer_input_files = data.tar.gz\nqueue\n",
        says="release-unbounded extract",
        files={"run.sh": RUN + "tar xzf data.tar.gz\n", "data.tar.gz": "x"},
    ),
    "a GPU that waits": Shape(
        f"{HEAD}request_gpus = 1\ntransfer_input_files = data.tar.gz\nqueue\n",
        says="extract",
        files={"run.sh": RUN + "tar xzf data.tar.gz\n", "data.tar.gz": "x"},
    ),
    "GPU requirements without a request": Shape(
        f"{HEAD}requirements = CUDACapability >= 7.5\nqueue\n", says="gpu-keys"
    ),
    "a GPU in the singular": Shape(f"{HEAD}request_gpu = 1\nqueue\n", says="typo"),
    "scratch in the arguments": Shape(
        f"{HEAD}arguments = --tmp /scratch/local --out=/scratch/me/out\nqueue\n",
        says="scratch-path",
    ),
    "scratch in the environment": Shape(
        f'{HEAD}environment = "CACHE=/tmp/me/cache A=1"\nqueue\n', says="scratch-path"
    ),
    "scratch in the script": Shape(
        f"{HEAD}queue\n",
        says="scratch-path",
        files={"run.sh": "#!/bin/bash\nset -e\ncd /scratch/local\n./work > /tmp/me/log\n"},
    ),
    "scratch in other scripts": Shape(
        f"executable = run.csh\n{USUAL}{ASKED}transfer_input_files = fit.R, a.yaml\nqueue\n",
        says="scratch-path absolute-path",
        hints="scratch-path absolute-path",
        files={
            "run.csh": "#!/bin/csh\nsetenv TMP /scratch/me\nRscript fit.R\n",
            "fit.R": 'x <- read.csv("/data/group/x.csv")  # of the group\n',
            "a.yaml": "# /scratch/none\nurl: https://x.org/data/y\nlib: /usr/local/lib\n",
        },
    ),
    "scratch of the access point": Shape(
        f"executable = run.sh\n{ASKED}log = {{here}}/scratch/a.log\ninitialdir = {{here}}\n"
        "output = {here}/scratch/$(Process)\nqueue 2\n",
        silent="scratch-path absolute-path folder-missing",
        files={"run.sh": RUN, "scratch/x": ""},
    ),
    "storage in the arguments": Shape(
        f"should_transfer_files = YES\n{HEAD}arguments = /nfs/x/in.txt --w /work1/me\nqueue\n",
        says="absolute-path",
    ),
    "a shared file system": Shape(
        f"should_transfer_files = NO\n{HEAD}arguments = /nfs/x/in.txt /home/me/y\nqueue\n",
        says="no-transfer",
        silent="absolute-path transfer-conflict",
    ),
    "software of the nodes": Shape(
        f"{HEAD}arguments = /cvmfs/x/setup.sh /usr/bin/python3 /opt/x\nqueue\n",
        silent="absolute-path scratch-path",
    ),
    "an absolute output": Shape(
        f"{HEAD}transfer_output_files = /home/me/result.csv\nqueue\n", says="output-path"
    ),
    "files that are to be moved and are not": Shape(
        f"should_transfer_files = NO\n{HEAD}transfer_input_files = a.csv\nqueue\n",
        says="transfer-conflict",
        files={"run.sh": RUN, "a.csv": ""},
        refused=True,
    ),
    "moved on eviction if needed": Shape(
        f"{HEAD}should_transfer_files = IF_NEEDED\nwhen_to_transfer_output = ON_EXIT_OR_EVICT\n"
        "queue\n",
        says="transfer-conflict",
        refused=True,
    ),
    "a script that stays behind": Shape(
        "executable = /usr/bin/env\ntransfer_executable = false\nshould_transfer_files = YES\n"
        f"{USUAL}{ASKED}arguments = python3 train.py --config cfg/a.yaml\n"
        "transfer_input_files = cfg/a.yaml\nqueue\n",
        says="not-brought flattened",
        files={"train.py": "", "cfg/a.yaml": ""},
    ),
    "a folder that brings everything": Shape(
        f"should_transfer_files = YES\n{HEAD}arguments = train.py cfg/a.yaml\n"
        "transfer_input_files = ./\nqueue\n",
        silent="not-brought flattened",
        files={"run.sh": RUN, "train.py": "", "cfg/a.yaml": ""},
    ),
    "python of an environment": Shape(
        f"executable = {{here}}/env/bin/python\n{USUAL}{ASKED}should_transfer_files = YES\nqueue\n",
        says="program-copied",
        files={"env/bin/python": "\x7fELF\0"},
    ),
    "an interpreter by its name": Shape(
        f"executable = python3\n{USUAL}{ASKED}arguments = train.py\nqueue\n",
        says="executable-missing",
        files={"train.py": "x"},
        refused=True,
    ),
    "a command line as executable": Shape(
        f"executable = python3 train.py\n{USUAL}{ASKED}queue\n",
        says="executable-missing",
        files={"train.py": "x"},
        refused=True,
    ),
    "quotes around names": Shape(
        f'executable = "run.sh"\n{ASKED}log = "a.log"\nqueue\n',
        says="executable-missing quotes",
        refused=True,
    ),
    "a tilde": Shape(
        f"executable = ~/bin/run.sh\n{USUAL}{ASKED}queue\n", says="shell-word", refused=True
    ),
    "a variable in the shell's way": Shape(
        f"{HEAD}initialdir = $HOME/x\narguments = $HOME/y\nqueue\n",
        says="shell-word",
        silent="folder-missing other-machine",
        refused=None,
    ),
    "a template": Shape(
        f"executable = {{{{ x }}}}\n{USUAL}{ASKED}transfer_input_files = <the input>\nqueue\n",
        silent="executable-missing input-missing not-here",
        refused=None,
    ),
    "a template that is no submit file yet": Shape(
        f"{HEAD}{{% if gpu %}}\nqueue\n", says="strange-line", refused=True
    ),
    "a script that writes a submit file": Shape(
        f"#!/bin/bash\ncat > x.sub <<EOF\n{HEAD}queue\nEOF\ncondor_submit x.sub\n",
        says="not-submit",
        silent="after-queue strange-line",
        refused=None,
    ),
    "a comment after a value": Shape(
        f"{HEAD}stream_output = True # to watch it\nqueue\n", says="inline-comment", refused=True
    ),
    "a comment after arguments": Shape(
        f"{HEAD}arguments = 1 # the first\nqueue\n", says="inline-comment"
    ),
    "a number sign that is no comment": Shape(
        f'{HEAD}arguments = --color #ff0000 --id a#1\n+Note = "a # b"\nqueue\n',
        silent="inline-comment",
    ),
    "quotes in old arguments": Shape(
        f'{HEAD}arguments = --name "two words"\nqueue\n', says="arguments", refused=True
    ),
    "quotes in new arguments": Shape(
        f'{HEAD}arguments = "--name \'two words\' --say ""hi"" --it\'\'s"\nqueue\n',
        silent="arguments",
    ),
    "escaped quotes": Shape(
        f'{HEAD}arguments = --name \\"two words\\"\nqueue\n', silent="arguments"
    ),
    "an environment with semicolons in quotes": Shape(
        f'{HEAD}environment = "A=1;B=2"\nqueue\n', says="environment"
    ),
    "an environment with blanks and no quotes": Shape(
        f"{HEAD}environment = A=1 B=2\nqueue\n", says="environment"
    ),
    "an old environment": Shape(f"{HEAD}environment = A=1;B=x y\nqueue\n", silent="environment"),
    "an attribute without quotes": Shape(
        f"{HEAD}+ProjectName = my.project\n+Nice = true\nqueue\n", says="quotes", refused=None
    ),
    "attributes": Shape(
        f'{HEAD}+ProjectName = "x"\nMY.Flavour = "long"\n+Runtime = 3600\nqueue\n', silent="quotes"
    ),
    "comparisons": Shape(
        f"n = 3\n{HEAD}if $(n) > 2\n  arguments = big\nendif\nqueue\n",
        says="if-condition",
        refused=True,
    ),
    "conditions": Shape(
        f"{HEAD}if defined big\n  arguments = 1\nelif version >= 8.8\n  arguments = 2\nelse\n"
        "  arguments = 3\nendif\nqueue\n",
        silent="if-condition macro-unset",
    ),
    "an include": Shape(
        f"include : common.inc\n{USUAL}executable = run.sh\nqueue\n",
        silent="no-request",
        files={"run.sh": RUN, "common.inc": ASKED},
    ),
    "an include that is run": Shape(
        "include command : ./make-it\nqueue\n",
        silent="no-request no-log no-output executable-missing macro-unset",
        refused=None,
    ),
    "continued lines": Shape(
        f"{HEAD}transfer_input_files = a.csv, \\\n   b.csv, \\\n   c.csv\nrequirements = (Arch == "
        '"X86_64") && \\\n  (OpSys == "LINUX")\nqueue\n',
        silent="input-missing submit-comment",
        files={"run.sh": RUN, "a.csv": "", "b.csv": "", "c.csv": ""},
    ),
    "blanks between inputs": Shape(
        f"{HEAD}transfer_input_files = a.csv b.csv\nqueue\n",
        says="input-missing",
        files={"run.sh": RUN, "a.csv": "", "b.csv": ""},
    ),
    "capital letters and other names": Shape(
        "EXECUTABLE = run.sh\nUserLog = a.log\nRequestMemory = 2GB\nRequest_Disk = 4GB\n"
        "StdOut = o\nStdErr = e\nTransferInputFiles = a.csv\nInitial_Dir = sub\nQUEUE\n",
        says="input-missing",
        silent="no-log no-request no-output executable-missing",
        files={"run.sh": RUN, "sub/x": ""},
    ),
    "misspelt": Shape(
        f"{HEAD}transfer_input_file = a.csv\nrequirments = True\nqueue\n", says="typo"
    ),
    "own macros are not misspelt": Shape(
        f"input_dir = in\noutputs = x\nlogdir = y\n{HEAD}arguments = $(outputs)\nqueue\n",
        silent="typo",
    ),
    "the standard universe": Shape(
        f"universe = standard\n{HEAD}queue\n", says="universe", refused=True
    ),
    "an unknown universe": Shape(f"universe = moon\n{HEAD}queue\n", says="universe", refused=True),
    "the local universe": Shape(
        "universe = local\nexecutable = run.sh\nlog = l\noutput = o\narguments = /home/me /tmp/x\n"
        "getenv = true\nqueue\n",
        silent="no-request absolute-path scratch-path getenv retry-same-site",
    ),
    "the scheduler universe": Shape(
        "universe = scheduler\nexecutable = run.sh\nlog = l\noutput = o\narguments = /home/x\n"
        "queue\n",
        silent="no-request absolute-path",
    ),
    "the parallel universe": Shape(
        f"universe = parallel\nmachine_count = 4\n{HEAD}queue\n", silent="universe"
    ),
    "the parallel universe without machines": Shape(
        f"universe = parallel\n{HEAD}queue\n", says="universe", refused=True
    ),
    "the grid universe": Shape(
        "universe = grid\ngrid_resource = batch slurm\nexecutable = run.sh\nlog = l\noutput = o\n"
        "queue\n",
        silent="no-request universe executable-missing",
    ),
    "a grid that is gone": Shape(
        "universe = grid\ngrid_resource = gt2 ce.x.org/jobmanager-pbs\nexecutable = run.sh\n"
        "log = l\noutput = o\nqueue\n",
        says="universe",
        refused=True,
    ),
    "the vm universe": Shape(
        "universe = vm\nexecutable = a-name\nvm_type = kvm\nvm_memory = 512\n"
        "vm_disk = a.img:vda:w\nlog = l\nqueue\n",
        silent="executable-missing no-request no-output universe",
    ),
    "the java universe": Shape(
        f"universe = java\nexecutable = Main.class\narguments = Main\n{USUAL}{ASKED}queue\n",
        silent="shebang-missing executable-missing",
        files={"Main.class": "\xca\xfe\0"},
    ),
    "a shell command": Shape(
        f"shell = ./work --home $HOME\n{USUAL}{ASKED}queue\n",
        silent="executable-missing shell-word",
    ),
    "one machine": Shape(
        f'{HEAD}requirements = (Machine == "gpu1.x.org") || (machine == "gpu2.x.org")\nqueue\n',
        says="pinned",
    ),
    "machines to stay away from": Shape(
        f'{HEAD}requirements = (Machine != "bad.x.org") && TARGET.Machine =!= MachineAttrMachine1\n'
        'rank = (Machine == "fast.x.org")\nqueue\n',
        silent="pinned",
    ),
    "mails": Shape(f"{HEAD}notification = Always\nqueue\n", says="notification"),
    "no such mails": Shape(
        f"{HEAD}notification = maybe\nqueue\n", says="notification", refused=True
    ),
    "a proxy in /tmp": Shape(
        f"{HEAD}x509userproxy = /tmp/x509up_u1000\nqueue\n",
        silent="scratch-path absolute-path",
        refused=None,
    ),
    "sizes": Shape(
        f"{USUAL}executable = run.sh\nrequest_memory = 4 Gigabytes\nrequest_disk = 2048\nqueue\n",
        says="no-unit",
        refused=True,
    ),
    "nothing is here": Shape(
        f"{HEAD}transfer_input_files = a.csv, b.csv\nqueue\n",
        says="not-here",
        silent="executable-missing input-missing",
        files={"other": ""},
        refused=None,
    ),
    "a file of another machine": Shape(
        f"executable = /home/nobody-here/run.sh\n{USUAL}{ASKED}initialdir = /home/nobody-here/x\n"
        "queue\n",
        says="other-machine",
        silent="executable-missing folder-missing",
        refused=None,
    ),
}


@pytest.fixture
def shape(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shape:
    shape: Shape = SHAPES[request.param]
    for name, text in shape.files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="latin-1")
    monkeypatch.chdir(tmp_path)
    for name, value in shape.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", "/root")
    return replace(shape, text=shape.text.replace("{here}", str(tmp_path)))


every = pytest.mark.parametrize("shape", SHAPES, indirect=True)


def test_there_are_enough() -> None:
    assert len(SHAPES) >= 40


@every
def test_what_is_said(shape: Shape, tmp_path: Path) -> None:
    found = risks(shape.text, tmp_path)
    ids = {finding.id for finding in found}
    assert set(shape.says.split()) <= ids
    assert not ids & set(shape.silent.split())
    loud = {finding.id for finding in found if finding.severity is not Severity.HINT}
    assert not loud & set(shape.hints.split())
    fatal = {finding.id for finding in found if finding.severity is Severity.ERROR}
    assert fatal <= set(shape.says.split())
    for finding in found:
        assert finding.what and finding.remedy and "\x01" not in str(finding)
        assert len(finding.what) < 400
    gpus = "request_gpus" in shape.text
    assert gpus or "GPU waits" not in str(found)


@every
def test_as_condor_submit_has_it(shape: Shape, tmp_path: Path) -> None:
    if not SUBMIT.exists():
        pytest.skip("no condor_submit: tests/pool/pool.sh build")
    if shape.refused is None:
        pytest.skip("a dry run does not look at it")
    done = dry_run(shape, tmp_path)
    assert ("ERROR" in done.stderr) == shape.refused, done.stderr
    assert _refuses(risks(shape.text, tmp_path)) == shape.refused
    if not shape.refused:
        _same_values(shape, done.stdout, tmp_path)


def test_broken_files_break_nothing(tmp_path: Path) -> None:
    """Shapes that are cut, mixed and sprinkled with what is special are checked all the same."""
    chance = random.Random(15)
    texts = [shape.text for shape in SHAPES.values()]
    special = ["$(", "$$(", "$ENV(", "$INT(n,%99999d)", "$SUBSTR(a,", '"', "'", "\\", "\n", "queue"]
    special += ["(", ")", "x @=end", "if", "endif", "\x01?x\x02", "\0", "[1:2]", "from", "|", "{{"]
    for _ in range(400):
        text = chance.choice(texts)
        for _ in range(chance.randint(1, 8)):
            at, other = chance.randrange(len(text) + 1), chance.choice(texts)
            start = chance.randrange(len(other))
            added = chance.choice((chance.choice(special), other[start : start + 60], ""))
            text = text[:at] + added + text[at + chance.randint(0, 5) :]
        for finding in risks(text, tmp_path):
            assert finding.what and finding.remedy, text


def dry_run(shape: Shape, folder: Path) -> subprocess.CompletedProcess[str]:
    """What HTCondor makes of it; nothing is submitted, and no pool is asked."""
    (folder / "shape.sub").write_text(shape.text)
    libraries = RUNTIME / "usr/lib/x86_64-linux-gnu"
    env = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/root",
        "CONDOR_CONFIG": "/dev/null",
        "LD_LIBRARY_PATH": f"{libraries}:{libraries}/condor",
        **shape.env,
    }
    return subprocess.run(
        [str(SUBMIT), "-dry-run:full", "-", "shape.sub"],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def _refuses(found: list[LintFinding]) -> bool:
    errors = [finding for finding in found if finding.severity is Severity.ERROR]
    errors += [finding for finding in found if finding.id in ("after-queue", "executable-missing")]
    return any(REFUSES.search(finding.what) for finding in errors)


def _same_values(shape: Shape, printed: str, here: Path) -> None:
    """Each job's values are HTCondor's own."""
    ads = [dict(re.findall(r"(?m)^(\w+) = (.*)$", ad)) for ad in printed.split("\n\n")]
    ads = [ad for ad in ads if "ProcId" in ad]
    (said,) = at_each_queue(shape.text, here)
    assert len(ads) == len(said.rows)
    for job, ad in enumerate(ads):
        values = {key: _unquoted(value) for key, value in ad.items()}
        for attribute, key in ATTRIBUTES.items():
            ours = said.filled(said.text(key), job).replace("\x01?$(Cluster)\x02", "1")
            ours = ours.replace("\x01?$(ClusterId)\x02", "1")
            if not ours or not is_known(ours) or attribute not in values:
                continue
            if key in ("log", "initialdir") or (key == "executable" and ours[:1] != "/"):
                base = here / said.filled(said.text("initialdir"), job) if key == "log" else here
                moved = "TransferExecutable" not in values
                ours = os.path.normpath(base / ours) if key != "executable" or moved else ours
            theirs = values[attribute]
            if attribute in ("Iwd", "UserLog", "Cmd"):
                theirs = os.path.normpath(theirs)
            if "transfer" in key:
                image = said.filled(said.text("container_image"), job)
                sent = [image] if key == "transfer_input_files" and image in theirs else []
                ours = ",".join([*split_files(ours), *filter(None, sent)])
            assert theirs == ours or said.text("universe") in ("java",), (attribute, theirs, ours)
        given = said.filled(said.text("arguments"), job)
        if given and is_known(given) and not given.startswith('"') and "Args" in values:
            assert values["Args"] == given.replace('\\"', '"').strip()


def _unquoted(value: str) -> str:
    return value[1:-1].replace('\\"', '"') if value.startswith('"') else value
