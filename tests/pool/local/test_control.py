"""Asking a supervisor by files."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headway.errors import PoolError, PoolUnreachable
from headway.pool.folder import RunFolder
from headway.pool.local import supervisor

from .house import wait


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


def left(folder: RunFolder) -> list[str]:
    return sorted(path.name for path in (folder.path / "control").iterdir())


def asked(folder: RunFolder) -> list[Path]:
    return list((folder.path / "control").glob("[!.]*.json"))


def test_questions_are_answered_in_order(folder: RunFolder) -> None:
    answers: list[object] = []

    def ask(number: int) -> None:
        answers.append(supervisor.ask(folder, {"number": number}, alive=lambda: True))

    threads = []
    for number in range(3):
        threads.append(threading.Thread(target=ask, args=(number,)))
        threads[-1].start()
        wait(lambda n=number: len(asked(folder)) == n + 1)  # type: ignore[misc]
    seen = []

    def double(body: Mapping[str, Any]) -> list[int]:
        seen.append(body["number"])
        return [body["number"] * 2]

    supervisor.answer_requests(folder, double)
    for thread in threads:
        thread.join()
    assert seen == [0, 1, 2]
    assert sorted(answers, key=str) == [[0], [2], [4]]
    assert left(folder) == []


def test_a_supervisor_that_ends_gives_no_answer(folder: RunFolder) -> None:
    assert supervisor.ask(folder, {}, alive=lambda: False) is None
    assert left(folder) == []


def test_one_that_is_busy_can_be_asked_again(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_PATIENCE", 0.1)
    with pytest.raises(PoolUnreachable, match="did not answer"):
        supervisor.ask(folder, {}, alive=lambda: True)
    assert left(folder) == []


def test_what_is_no_question_is_put_aside(folder: RunFolder) -> None:
    place = folder.path / "control"
    seen: list[object] = []
    supervisor.answer_requests(folder, seen.append)
    assert seen == []
    place.mkdir()
    (place / "1.json").write_text("{")
    (place / "2.json").write_text(json.dumps({"a": 1}))
    (place / ".3.json.tmp").write_text("{")
    supervisor.answer_requests(folder, seen.append)
    assert seen == [{"a": 1}]
    (place / "4.answer").write_text("[]")
    assert left(folder) == [".3.json.tmp", "1.json.bad", "2.answer", "4.answer"]
    supervisor.remove_answers(folder)
    assert left(folder) == [".3.json.tmp", "1.json.bad"]


def test_a_folder_that_cannot_be_written_is_told(folder: RunFolder) -> None:
    (folder.path / "control").write_text("")
    with pytest.raises(PoolError, match="cannot be asked"):
        supervisor.ask(folder, {}, alive=lambda: True)
