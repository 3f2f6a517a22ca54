"""Every shell trap in a bad form that is found, and in a good form that raises no alarm."""

from __future__ import annotations

import pytest

from headway.pool.lint.script_traps import script_traps
from headway.pool.lint.traps import Context, Severity

STRICT = "#!/bin/bash\nset -e\n"
CHECKPOINTED = Context(checkpointed=True, provided=frozenset({"data.tar", "train.py"}))
PROGRAM = Context(program=True)


def ids(text: str, context: Context | None = None, name: str = "run.sh") -> list[str]:
    return [trap.id for trap in script_traps(text, name, context)]


BAD = [
    ("continuation-space", "python3 train.py \\ \n  --epochs 3\n", 3),
    ("continuation-space", "python3 train.py \\\t\n  data\n", 3),
    ("continuation-comment", "python3 train.py \\\n  # --lr 1 \\\n  --epochs 3\n", 3),
    ("continuation-comment", "python3 train.py \\\n  # lr\n  --epochs 3\n", 3),
    ("continuation-blank", "python3 train.py \\\n\n  --epochs 3\n", 3),
    ("continuation-option", "python3 train.py\n  --epochs 3\n", 4),
    ("continuation-swallow", "python3 train.py --epochs 3 \\\nexit 85\n", 3),
    ("continuation-swallow", "timeout 1h ./train \\\nstatus=$?\n", 3),
    ("mkdir", "mkdir data\n", 3),
    ("mkdir", "mkdir -m 755 data\n", 3),
    ("rm", "rm data.tar\n", 3),
    ("mv", "mv data.tar data/\n", 3),
    ("mv", "for f in 1; do\n mv ILSVRC.tar data/; done\n", 4),
    ("pipe", "python3 train.py | tee log\n", 3),
    ("fetch", "wget https://x/y\n", 3),
    ("fetch", "x=$(curl -s https://x/y)\n", 3),
    ("fetch", "timeout 1h curl -O https://x/y\n", 3),
    ("fetch", "if true; then\n aws s3 cp s3://b/k .\nfi\n", 4),
    ("install", "pip install scipy\n", 3),
    ("install", "python3 -m pip install --user scipy\n", 3),
    ("install", "conda install -y numpy\n", 3),
    ("install", "sudo apt-get -y install unzip\n", 3),
    ("clone", "git clone https://x/y\n", 3),
    ("unzip", "unzip -q data.zip\n", 3),
    ("extract", "tar -xzf data.tar\n", 3),
    ("extract", "tar xf data.tar -C x\n", 3),
    ("extract", "tar --extract -f data.tar\n", 3),
    ("absolute-path", "python3 /home/me/train.py\n", 3),
    ("absolute-path", "python3 train.py --data=/staging/me/x\n", 3),
    ("scratch-path", "python3 train.py > /scratch/me/log\n", 3),
    ("scratch-path", "cd /scratch/local\n", 3),
    ("scratch-path", "python3 train.py --cache=/tmp/me/cache\n", 3),
    ("scratch-path", "export TMPDIR=/var/tmp/me\n", 3),
    ("absolute-path", "python3 train.py /data/imagenet\n", 3),
    ("absolute-path", "python3 train.py --out /work1/me/run1\n", 3),
    ("absolute-path", "rsync -a x /nfs/tank/me/ || exit 1\n", 3),
    ("absolute-path", "export PATH=/home/me/bin:$PATH\n", 3),
    ("absolute-path", "cp ~/x .\n", 3),
]


@pytest.mark.parametrize(("id", "body", "line"), BAD)
def test_found(id: str, body: str, line: int) -> None:
    traps = [t for t in script_traps(STRICT + body, "run.sh", CHECKPOINTED) if t.id == id]
    assert [trap.where for trap in traps] == [f"run.sh:{line}"]
    assert traps[0].line == (STRICT + body).split("\n")[line - 1]
    assert traps[0].what
    assert traps[0].remedy


GOOD = [
    "python3 train.py \\\n  --epochs 3 \\\n  --lr 1\n",
    "python3 train.py \\\n  --epochs 3 \\\n\nexit 85\n",
    "# a comment \\ \n# another \\\npython3 train.py\n",
    "python3 train.py && \\\nexit 0\n",
    "echo 'a \\ \n --b'\n",
    'echo "a \\\n --b"\n',
    "cat > x <<EOF\nwget y \\ \n--flag\nmkdir z\nEOF\n",
    "case $1 in\n  -h|--help) exit 0;;\n  --lr) lr=$2;;\nesac\n",
    "args=(\n  --lr 1\n  --epochs 2\n)\n",
    "mkdir -p data\n",
    "mkdir -pv data\n",
    "mkdir --parents data\n",
    "[ -d data ] || mkdir data\n",
    "mkdir data || true\n",
    "if [ ! -d data ]; then\n  mkdir data\nfi\n",
    "if ! mkdir data; then exit 1; fi\n",
    "rm -f data.tar\n",
    "rm -rf data\n",
    "[ -e data.tar ] && rm data.tar\n",
    "[ ! -e data.tar ] || mv data.tar data/\n",
    "mv model.tmp model.pt\n",
    "set -o pipefail\npython3 train.py | tee log\n",
    "ls | grep x\n",
    "if python3 check.py | grep -q ok; then echo ok; fi\n",
    "curl -T out.tar https://x/\n",
    "curl -X POST https://x/ --data a\n",
    "curl --version\n",
    "echo wget https://x/y\n",
    "# wget https://x/y\n",
    "pip list\n",
    "pip install --no-index wheels/x.whl\n",
    "git status\n",
    "git -C my-clone log\n",
    "conda activate base\n",
    "tar -cf out.tar x\n",
    "tar cf x.tar extra\n",
    "tar tf x.tar\n",
    "echo /home/me\n",
    "cp /cvmfs/x .\n",
    "ls /tmp/x $HOME/y\n",
    "[ -d /scratch/local ] && cd /scratch/local\n",
    "cd ${TMPDIR:-/tmp}\n",
    "python3 train.py --tmp /tmp --data https://x.org/data/y\n",
    "python3 train.py --lib /usr/local/lib --cvmfs /cvmfs/x/y\n",
    "python3 train.py --path workdir/data/x\n",
    "python3 train.py --url https://x/home/me/y\n",
]


@pytest.mark.parametrize("body", GOOD)
def test_no_false_alarm(body: str) -> None:
    assert ids(STRICT + body, CHECKPOINTED) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # several steps, and nothing stops at the first failure
        ("#!/bin/bash\ntar cf a b\npython3 train.py\n", ["errexit"]),
        ("#!/bin/bash\npython3 a.py\npython3 b.py\n", ["errexit"]),
        # what comes last always succeeds
        ("#!/bin/bash\npython3 train.py\nrm -rf data\n", ["status"]),
        ("#!/bin/bash\npython3 train.py\necho done\n", ["status"]),
        ("#!/bin/bash\npython3 train.py\nexit 0\n", ["status"]),
        ("#!/bin/bash\npython3 train.py; tar cf out.tar out\n", ["status"]),
        # good forms
        ("#!/bin/bash\npython3 train.py\n", []),
        ("#!/bin/bash\necho start\nhostname\npython3 train.py\n", []),
        ("#!/bin/bash -e\npython3 a.py\npython3 b.py\n", []),
        ("#!/bin/bash\nset -euo pipefail\npython3 a.py\nrm -rf data\n", []),
        ("#!/bin/bash\nset -o errexit\npython3 a.py\nrm -rf data\n", []),
        ("#!/bin/bash\npython3 a.py || exit 1\npython3 b.py\n", []),
        ("#!/bin/bash\npython3 a.py && python3 b.py\n", []),
        ("#!/bin/bash\npython3 a.py\nstatus=$?\nrm -rf data\nexit $status\n", []),
        ("#!/bin/bash\ntrap 'exit 3' ERR\npython3 a.py\npython3 b.py\n", []),
        ("#!/bin/bash\nclean() {\n rm -rf x\n}\ntrap clean EXIT\npython3 a.py\n", []),
    ],
)
def test_exit_status(text: str, expected: list[str]) -> None:
    assert ids(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("python3 train.py\n", "shebang-missing"),
        ("\n#!/bin/bash\npython3 train.py\n", "shebang-late"),
        (" #!/bin/bash\npython3 train.py\n", "shebang-late"),
        ("\ufeff#!/bin/bash\npython3 train.py\n", "shebang-late"),
        ("# !/bin/bash\npython3 train.py\n", "shebang-late"),
        ("#!bin/bash\npython3 train.py\n", "shebang-relative"),
        ("#!\npython3 train.py\n", "shebang-relative"),
        ("#!/usr/bin/env bash -e\npython3 train.py\n", "shebang-arguments"),
        ("#!/home/me/conda/bin/bash\npython3 train.py\n", "shebang-far"),
    ],
)
def test_first_line_of_a_program(text: str, expected: str) -> None:
    found = script_traps(text, "run.sh", PROGRAM)
    assert [(trap.id, trap.severity) for trap in found] == [(expected, Severity.ERROR)]
    assert ids(text) == []  # `bash run.sh` does not look at it


@pytest.mark.parametrize(
    "first", ["#!/bin/bash", "#!/bin/sh -e", "#!/usr/bin/env bash", "#!/usr/bin/env -S bash -e"]
)
def test_good_first_lines(first: str) -> None:
    assert ids(f"{first}\npython3 train.py\n", PROGRAM) == []


def test_windows_line_ends_are_one_error() -> None:
    text = "#!/bin/bash\r\nset -e\r\npython3 a.py \\\r\n  --b\r\n"
    assert [(t.id, t.severity) for t in script_traps(text, "run.sh", PROGRAM)] == [
        ("crlf", Severity.ERROR)
    ]


def test_bashisms_only_matter_to_sh() -> None:
    body = "\nset -e\nif [[ -f x ]]; then python3 a.py; fi\n"
    assert ids("#!/bin/sh" + body) == ["bashism"]
    assert ids("#!/bin/bash" + body) == []
    assert ids("[[ -f x ]] && ./a", Context(interpreter="sh"), "command") == ["bashism"]


@pytest.mark.parametrize(
    ("head", "checkpointed", "expected"),
    [
        ("#!/bin/bash\nset -e\n", True, Severity.ERROR),
        ("#!/bin/bash\n", True, Severity.WARNING),
        ("#!/bin/bash\nset -e\n", False, Severity.HINT),
    ],
)
def test_how_bad_a_second_mkdir_is(head: str, checkpointed: bool, expected: Severity) -> None:
    found = script_traps(f"{head}mkdir data\n", "run.sh", Context(checkpointed=checkpointed))
    assert [(trap.id, trap.severity) for trap in found] == [("mkdir", expected)]


@pytest.mark.parametrize("body", ["mkdir tmp\ntrap 'rm -rf tmp' EXIT\n", "mkdir $TMP\n"])
def test_a_folder_that_may_go_again_is_no_error(body: str) -> None:
    found = script_traps(STRICT + body, "run.sh", CHECKPOINTED)
    assert [trap.severity for trap in found] == [Severity.WARNING]


def test_the_wrapper_of_the_imagenet_study() -> None:
    text = (
        "#!/bin/bash\n"
        "mkdir data\n"
        "mv ILSVRC2012_img_train.tar data/\n"
        "cd data\n"
        "tar -xf ILSVRC2012_img_train.tar > /dev/null 2>&1\n"
        "rm ILSVRC2012_img_train.tar\n"
        'for f in *.tar; do mkdir "${f%.tar}"; tar -xf "$f" -C "${f%.tar}"; rm "$f"; done\n'
        "cd ..\n"
        "pip install scipy\n"
        "python3 main3.py --epochs 5\n"
        "rm -rf data\n"
    )
    assert set(ids(text)) == {"mkdir", "mv", "extract", "rm", "install", "status"}
