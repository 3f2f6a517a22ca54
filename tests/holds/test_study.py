"""The study's holds, judged by its own event logs."""

from __future__ import annotations

import pytest
from tests.report.study import rows, write

from headway.holds.advice import Act, Advice
from headway.holds.advise import advise
from headway.holds.evidence import Ends
from headway.holds.history import History
from headway.holds.hold import Cut


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    return History.from_logs(write(tmp_path_factory.mktemp("study")))


@pytest.fixture(scope="module")
def advices(history: History) -> dict[tuple[int, int], list[Advice]]:
    found: dict[tuple[int, int], list[Advice]] = {}
    for hold in sorted(history.every_hold(), key=lambda hold: hold.at):
        found.setdefault((hold.cluster, hold.proc), []).append(advise(hold, history))
    return found


def test_all_sixteen_404_holds_are_released_or_waited_for(
    advices: dict[tuple[int, int], list[Advice]],
) -> None:
    held = [(row.cluster, row.proc) for row in rows() if row.outcome == "held_transfer_404"]
    assert len(held) == 16
    for job in held:
        (advice,) = advices[job]
        assert advice.act in (Act.RELEASE, Act.WAIT), job
        assert advice.cause == "input-object-not-found" and advice.probability is not None
        if advice.act is Act.WAIT:
            assert "until the object answers" in advice.until_words and advice.until
            assert advice.command.startswith("headway sources osdf:///nrp/osdf/ILSVRC2012/")
        # The fleet's evidence: others have had their data, though no 404 is known at the first.
        reasons = " ".join(advice.reasons)
        assert "got their input in the 3 days before" in reasons
    first, *others = (advices[job][0] for job in held if job[0] == 794570)
    assert first.act is Act.RELEASE
    assert "for the same reason in the 15 minutes before" not in " ".join(first.reasons)
    for other in others:
        assert "for the same reason in the 15 minutes before" in " ".join(other.reasons)
    # The fifteenth knows of fourteen others, and that nobody gets past.
    assert "14 other holds" in " ".join(others[-1].reasons) and others[-1].act is Act.WAIT


def test_the_waits_end(history: History, advices: dict[tuple[int, int], list[Advice]]) -> None:
    for found in advices.values():
        for advice in found:
            if advice.act is Act.WAIT:
                assert advice.until is not None
                later = advise(advice.hold, history, now=advice.until + 1)
                assert later.act is Act.RELEASE


def test_the_two_over_time_holds_are_to_be_changed(
    advices: dict[tuple[int, int], list[Advice]],
) -> None:
    held = [(row.cluster, row.proc) for row in rows() if row.outcome == "held_execute_duration"]
    assert len(held) == 2
    for job in held:
        (advice,) = advices[job]
        assert advice.act is Act.CHANGE and "20:00:00" in advice.headline
        checkpoint, category = advice.changes
        assert "[checkpoint]" in checkpoint.line and checkpoint.attribute == ""
        assert (category.attribute, category.new) == ("JobDurationCategory", '"Long"')
        assert advice.cost_release is not None and advice.cost_release > 19  # 20 h once more


def test_the_released_jobs_are_judged_as_they_turned_out(
    history: History, advices: dict[tuple[int, int], list[Advice]]
) -> None:
    lasting = ("held_transfer_404", "held_execute_duration")
    released = {
        (row.cluster, row.proc): row for row in rows() if row.holds and row.outcome not in lasting
    }
    assert len(released) == 6
    for job, row in released.items():
        first, *more = advices[job]
        assert 1 + len(more) == row.holds and first.act is Act.RELEASE, job
        # One was held a second time: that is waited for, and then released as well.
        assert all(advice.act in (Act.RELEASE, Act.WAIT) for advice in more)
        for advice in (first, *more):
            assert advise(advice.hold, history, now=advice.hold.time + 1800).act is Act.RELEASE
    # And that is what became of them: the one that ended in a wrong output failed after its input.
    total = history.total(("releases", "input-network"), Cut(float("inf")))
    good = sum(row.outcome == "success" for row in released.values())
    assert Ends(*map(round, total)) == Ends(success=good, again=1, failed=1)
