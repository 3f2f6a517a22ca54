"""Every Python trap in a bad form that is found, and in a good form that raises no alarm."""

from __future__ import annotations

import pytest

from headway.pool.lint.script_traps import script_traps
from headway.pool.lint.traps import Context, Severity

CONTEXT = Context(
    checkpointed=True, cpus=4, gpus=1, provided=frozenset({"bert", "data.tar", "train.py"})
)


def ids(text: str, context: Context = CONTEXT) -> list[str]:
    return [trap.id for trap in script_traps(text, "train.py", context)]


BAD = [
    ("weights", "models.resnet50(pretrained=True)"),
    ("weights", 'models.resnet50(weights="DEFAULT")'),
    ("weights", 'models.resnet50(weights="IMAGENET1K_V2")'),
    ("weights", "resnet50(weights=ResNet50_Weights.DEFAULT)"),
    ("weights", "resnet50(weights=models.ResNet50_Weights.IMAGENET1K_V1)"),
    ("weights", 'keras.applications.VGG16(weights="imagenet")'),
    ("weights", 'import torch\ntorch.hub.load("pytorch/vision", "resnet50")'),
    ("weights", 'from torch import hub\nhub.load("pytorch/vision", "resnet50")'),
    ("weights", 'AutoModel.from_pretrained("bert-base-uncased")'),
    ("weights", "from torch.hub import load_state_dict_from_url as l\nl(x)"),
    ("weights", "import huggingface_hub\nhuggingface_hub.snapshot_download(x)"),
    ("dataset", 'from datasets import load_dataset\nload_dataset("imdb")'),
    ("dataset", 'load_dataset("json", data_files="https://x/y.json")'),
    ("dataset", 'CIFAR10("data", download=True)'),
    ("dataset", 'import nltk\nnltk.download("punkt")'),
    ("dataset", "from sklearn import datasets\ndatasets.fetch_openml(x)"),
    ("dataset", "import tensorflow as tf\ntf.keras.datasets.mnist.load_data()"),
    ("fetch", "import urllib.request\nurllib.request.urlretrieve(u, f)"),
    ("fetch", "from urllib.request import urlretrieve\nurlretrieve(u, f)"),
    ("fetch", "import requests\nrequests.get(u)"),
    ("fetch", "import requests as r\nr.get(u)"),
    ("fetch", "import wget\nwget.download(u)"),
    ("fetch", 'import os\nos.system("wget https://x/y")'),
    ("fetch", 'import os\nos.system(f"wget {url}")'),
    ("install", 'import subprocess\nsubprocess.run(["pip", "install", "x"])'),
    (
        "install",
        'import subprocess as s, sys\ns.run([sys.executable, "-m", "pip", "install", "x"])',
    ),
    ("install", 'import subprocess\nsubprocess.run("pip install x", shell=True)'),
    ("clone", 'import os\nos.system("git clone https://x/y")'),
    ("workers", "DataLoader(d, num_workers=16)"),
    ("workers", 'p.add_argument("--num-workers", type=int, default=16)'),
    ("workers", 'p.add_argument("-j", "--workers", default=16)'),
    ("cpu-count", "import os\nDataLoader(d, num_workers=os.cpu_count())"),
    ("gpu-index", 'torch.device("cuda:1")'),
    ("gpu-index", "model.cuda(1)"),
    ("gpu-index", "import torch\ntorch.cuda.set_device(2)"),
    ("visible-devices", 'import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "0,1"'),
    ("zip", 'import zipfile\nzipfile.ZipFile("x.zip")'),
    ("zip", 'from zipfile import ZipFile\nwith ZipFile("x.zip") as z: z.extractall()'),
    ("makedirs", 'import os\nos.makedirs("out")'),
    ("makedirs", 'import os\nos.mkdir("out")'),
    ("makedirs", 'from pathlib import Path\nPath("out").mkdir(parents=True)'),
    ("absolute-path", 'open("/home/me/x.csv")'),
    ("absolute-path", 'root = "/staging/me/data"'),
    ("absolute-path", 'open(f"/home/me/{name}.csv")'),
    ("syntax", "print 'hello'"),
]


@pytest.mark.parametrize(("id", "text"), BAD)
def test_found(id: str, text: str) -> None:
    found = script_traps(f"{text}\n", "train.py", CONTEXT)
    assert [trap.id for trap in found] == [id]
    assert found[0].where == f"train.py:{text.count(chr(10)) + 1}"
    assert found[0].line == text.split("\n")[-1]
    assert "{" not in found[0].what.replace("{name}", "").replace("{url}", "")


GOOD = [
    "models.resnet50(weights=None)",
    "models.resnet50(pretrained=False)",
    "models.resnet50(pretrained=args.pretrained)",
    "import numpy as np\nnp.average(x, weights=w)",
    'np.histogram(x, weights="w")',
    'torch.hub.load("repo", "m", source="local")',
    'AutoModel.from_pretrained("./bert")',
    'AutoModel.from_pretrained("bert")',
    'AutoModel.from_pretrained("bert/large")',
    "AutoModel.from_pretrained(args.model)",
    'AutoModel.from_pretrained("bert-base", local_files_only=True)',
    'load_dataset("json", data_files="a.json")',
    'load_dataset("imagefolder", data_dir="x")',
    'CIFAR10("data", download=False)',
    "# models.resnet50(pretrained=True)",
    '"""requests.get(url), cuda:1, /home/me/x"""',
    'def f():\n    """torch.hub.load downloads."""',
    'print("pip install torch first")',
    "session.get(u)",
    'd = {}\nd.get("x")',
    "download(url)",
    'import subprocess\nsubprocess.run(["ls"])',
    "import subprocess\nsubprocess.run(command)",
    "DataLoader(d, num_workers=4)",
    "DataLoader(d, num_workers=args.workers)",
    'p.add_argument("--workers", default=2)',
    'p.add_argument("--epochs", default=90)',
    'torch.device("cuda:0")',
    'torch.device("cuda")',
    "model.cuda()",
    "model.cuda(0)",
    'os.environ["OMP_NUM_THREADS"] = "1"',
    'import os\nos.makedirs("out", exist_ok=True)',
    'import os\nif not os.path.isdir("out"):\n    os.mkdir("out")',
    'try:\n    os.mkdir("out")\nexcept FileExistsError:\n    pass',
    'open("data/home/me/x")',
    'import zipfile\nzipfile.ZipFile("x.zip", "w")',
    'os.path.expanduser("~/.cache")',
    "if 1:\n    x = 1",
    "",
]


@pytest.mark.parametrize("text", GOOD)
def test_no_false_alarm(text: str) -> None:
    assert ids(f"{text}\n") == []


def test_what_the_job_asks_for_decides() -> None:
    loader = "DataLoader(d, num_workers=8)\n"
    assert ids(loader, Context(cpus=8)) == []
    assert ids(loader, Context(cpus=7)) == ["workers"]
    assert ids(loader, Context()) == []
    second = 'torch.device("cuda:1")\n'
    assert ids(second, Context(gpus=2)) == []
    guarded = script_traps(f"if torch.cuda.device_count() > 1:\n    {second}", "t.py", CONTEXT)
    assert [trap.severity for trap in guarded] == [Severity.HINT]


def test_a_python_program_needs_its_first_line() -> None:
    assert ids("import os\n", Context(program=True)) == ["shebang-missing"]
    assert ids("#!/usr/bin/env python3\nimport os\n", Context(program=True)) == []


@pytest.mark.parametrize("text", ["\0", "def f(:\n", "x" * 10 + "(" * 500, "\ufeffimport os\n"])
def test_never_fails(text: str) -> None:
    assert set(ids(text)) <= {"syntax"}
