"""The ledger: whatever lanes do in whatever order, no byte is lost, doubled or misattributed."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from headway.node.transfer.ledger import Lease, Ledger


def test_chunks_are_leased_in_order_and_end_at_the_grain() -> None:
    ledger = Ledger(100, grain=16)
    first, second = ledger.take(0, 20), ledger.take(1, 10)
    assert first is not None and (first.begin, first.end) == (0, 32)
    assert second is not None and (second.begin, second.end) == (32, 48)
    ledger.release(first)
    again = ledger.take(1, 1000)
    assert again is not None and (again.begin, again.end) == (0, 32)


def test_a_thief_takes_the_end_and_the_victim_stops_there() -> None:
    ledger = Ledger(100)
    victim = ledger.take(0, 100)
    assert victim is not None
    ledger.claim(victim, 30)
    ledger.wrote(victim)
    thief = ledger.steal(victim, 1, 50)
    assert thief is not None and (thief.begin, thief.end, victim.end) == (50, 100, 50)
    assert ledger.claim(victim, 40) == [(30, 50)]
    assert ledger.claim(victim, 10) == []


def test_a_hedge_writes_only_what_the_other_has_not() -> None:
    ledger = Ledger(100)
    slow = ledger.take(0, 100)
    assert slow is not None
    fast = ledger.hedge(slow, 1)
    assert fast is not None
    assert ledger.claim(fast, 60) == [(0, 60)]
    assert ledger.claim(slow, 70) == [(60, 70)]
    assert ledger.givers() == {1: 60, 0: 10}


def test_what_is_being_written_is_not_on_disk_yet() -> None:
    ledger = Ledger(10)
    lease = ledger.take(0, 10)
    assert lease is not None
    ledger.claim(lease, 10)
    assert (ledger.complete, ledger.prefix(), ledger.written()) == (False, 0, [])
    ledger.wrote(lease)
    assert (ledger.complete, ledger.prefix(), ledger.written()) == (True, 10, [(0, 10, 0)])


def test_what_is_still_being_written_is_not_written_by_another_lane() -> None:
    """A lane that was cut may be within its last write: it must not land upon newer bytes."""
    ledger = Ledger(10)
    old = ledger.take(0, 10)
    assert old is not None and ledger.claim(old, 6) == [(0, 6)]
    ledger.release(old)
    ledger.forget_all()
    new = ledger.take(1, 10)
    assert new is not None and ledger.claim(new, 10) == [(6, 10)]
    ledger.wrote(new)
    ledger.release(new)
    ledger.wrote(old)
    assert (ledger.wanted(), ledger.complete) == ([(0, 6)], False)
    again = ledger.take(1, 10)
    assert again is not None and ledger.claim(again, 6) == [(0, 6)]


def test_a_blamed_source_is_not_asked_for_the_same_again() -> None:
    ledger = Ledger(100)
    lease = ledger.take(0, 100)
    assert lease is not None
    ledger.claim(lease, 100)
    ledger.wrote(lease)
    ledger.release(lease)
    assert ledger.forget(20, 40, blame=True) == {0}
    assert ledger.take(0, 100) is None
    other = ledger.take(1, 100)
    assert other is not None and (other.begin, other.end) == (20, 40)
    ledger.release(other)
    ledger.pardon(0)
    assert ledger.take(0, 100) is not None


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30), st.integers(0, 2)), max_size=20))
def test_gaps_and_stretches_cover_everything_once(pieces: list[tuple[int, int, int]]) -> None:
    ledger, model = Ledger(90), [-1] * 90
    for begin, length, source in pieces:
        ledger.restore([(begin, begin + length, source)])
        for at in range(begin, begin + length):
            model[at] = source if model[at] < 0 else model[at]
    for begin, end in ledger.gaps(0, 90):
        assert set(model[begin:end]) == {-1}
    for begin, end, source in ledger.written():
        assert set(model[begin:end]) == {source}
    assert ledger.bytes == sum(who >= 0 for who in model)
    assert ledger.bytes + sum(end - begin for begin, end in ledger.gaps(0, 90)) == 90


class Lanes(RuleBasedStateMachine):
    """Lanes take, steal, hedge, write, fail and are blamed; each source has bytes of its own."""

    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(64, grain=4)
        self.disk = [-1] * 64  # who wrote each byte last
        self.writing: dict[int, list[tuple[int, int]]] = {}
        self.late: dict[int, Lease] = {}  # writes under way whose bytes count no more

    @rule(target=leases, source=st.integers(0, 2), most=st.integers(1, 40))
    def take(self, source: int, most: int) -> Lease | None:
        return self.ledger.take(source, most)

    @rule(target=leases, source=st.integers(0, 2))
    def take_whole(self, source: int) -> Lease:
        return self.ledger.take_whole(source)

    @rule(target=leases, victim=leases, source=st.integers(0, 2), count=st.integers(1, 40))
    def steal(self, victim: Lease | None, source: int, count: int) -> Lease | None:
        return self.ledger.steal(victim, source, count) if victim is not None else None

    @rule(target=leases, other=leases, source=st.integers(0, 2))
    def hedge(self, other: Lease | None, source: int) -> Lease | None:
        if other is None or other.over:
            return None
        return self.ledger.hedge(other, source)

    @rule(lease=leases, count=st.integers(1, 30))
    def claim(self, lease: Lease | None, count: int) -> None:
        if lease is None or lease.key in self.writing:
            return
        stretches = self.ledger.claim(lease, count)
        if stretches:
            self.writing[lease.key] = stretches

    @rule(lease=leases)
    def wrote(self, lease: Lease | None) -> None:
        if lease is None or lease.key not in self.writing:
            return
        for begin, end in self.writing.pop(lease.key):
            for at in range(begin, end):
                assert self.disk[at] == -1, "two lanes wrote the same byte"
                self.disk[at] = lease.source if lease.key not in self.late else -1
        self.late.pop(lease.key, None)
        self.ledger.wrote(lease)

    @rule(lease=consumes(leases))
    def release(self, lease: Lease | None) -> None:
        if lease is not None and lease.key not in self.writing:
            self.ledger.release(lease)

    @rule(begin=st.integers(0, 60), length=st.integers(1, 30), blame=st.booleans())
    def forget(self, begin: int, length: int, blame: bool) -> None:
        """As the prover does it: only what is on disk can be found wrong."""
        end = min(64, begin + length)
        if self.ledger.on_disk(begin, end):
            givers = {self.disk[at] for at in range(begin, end)}
            assert self.ledger.forget(begin, end, blame=blame) == givers
            self.disk[begin:end] = [-1] * (end - begin)

    @rule()
    def restart(self) -> None:
        """The object has become another one, whoever is within a write."""
        self.late.update({x.key: x for x in self.ledger.leases() if x.key in self.writing})
        self.ledger.revoke()
        self.ledger.forget_all()
        self.disk = [-1] * 64

    @invariant()
    def the_account_is_true(self) -> None:
        for begin, end, source in self.ledger.written():
            assert self.disk[begin:end] == [source] * (end - begin)
        assert all(who >= 0 for who in self.disk[: self.ledger.prefix()])
        if self.ledger.complete:
            assert -1 not in self.disk

    def teardown(self) -> None:
        """Whatever has happened, a healthy fourth source brings the rest."""
        for lease in [*self.ledger.leases(), *self.late.values()]:
            if lease.key in self.writing:
                self.wrote(lease)
        assert not self.writing
        self.ledger.revoke()
        while (last := self.ledger.take(3, 7)) is not None:
            self.claim(last, 64)
            self.wrote(last)
            self.ledger.release(last)
        assert self.ledger.complete
        assert -1 not in self.disk


Lanes.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLanes = Lanes.TestCase
