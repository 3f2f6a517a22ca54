"""Whatever happens, in whatever order: budgets hold, one canary, no double action, none lost."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.holds.audit import HealState
from headway.holds.hold import HEAL, HEALS
from headway.holds.rules import Rules

from .world import Job, Mind, World

RULES = Rules(
    most_per_job=3, most_per_hour=9, backoff=5.0, pause=20.0, patience=60.0, takeover=30.0
)
OPERATIONS = (
    "look", "look", "look", "killed", "rival", "rival killed", "hold", "hold", "run", "succeed",
    "fail", "remove", "user hold", "user release", "own release", "opt out", "wait", "wait long",
)  # fmt: skip
STORY = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 40)), min_size=5, max_size=60
)


def tell(world: World, minds: list[Mind], operation: str, n: int) -> None:
    job = world.jobs[n % len(world.jobs)]
    mind = minds["rival" in operation]
    if operation in ("look", "rival"):
        mind.look()
    elif operation in ("killed", "rival killed"):
        mind.look(fuse=n % 7)
    elif operation == "wait":
        world.now += n
    elif operation == "wait long":
        world.now += 400.0
    elif operation == "hold":
        for each in world.jobs[:: 1 + n % 3]:
            world.hold(each)
    elif operation == "user hold":
        world.hold(job, code=1)
    elif operation == "opt out":
        if n % 5 == 0:
            job.facts[HEAL] = False
    elif operation == "own release":
        _own_release(world, job)
    elif operation == "user release":
        if job.code == 1:
            world.release(job)
    else:
        _goes_on(world, operation, n)


def _own_release(world: World, job: Job) -> None:
    """The submit description's own, with a bound below heal's budget."""
    if job.status == "held" and job.code == 13 and job.holds - job.wanted <= 2:
        world.release(job)


def _goes_on(world: World, operation: str, n: int) -> None:
    wanted = {"run": ("idle",), "succeed": ("running",), "fail": ("running",)}
    after = {"run": "running", "succeed": "success", "fail": "failed", "remove": "removed"}
    fitting = wanted.get(operation, ("idle", "running", "held"))
    jobs = [job for job in world.jobs if job.status in fitting]
    if operation == "remove":
        jobs = jobs[:1]
    for job in jobs[:: 1 + n % 2]:
        job.status = after[operation]


@given(st.integers(1, 12), STORY)
@settings(max_examples=150, deadline=None)
def test_no_story_breaks_a_promise(jobs: int, story: list[tuple[str, int]]) -> None:
    world = World(jobs, RULES)
    minds = [Mind(world, "one"), Mind(world, "two")]
    for operation, n in story:
        tell(world, minds, operation, n)
        for job in world.jobs:
            assert job.releases <= max(RULES.most_per_job, 2), "beyond its budget"
            assert len(job.healed) <= job.facts.get(HEALS, 0), "a release that was not counted"
    world.now += 1000.0
    for mind in minds:
        mind.look()
        state = HealState.of(mind.records, RULES)
        assert not state.pending, "a decision was lost"
    claims = [(job.number, claim) for job in world.jobs for claim in job.healed]
    assert len(claims) == len(set(claims)), "the same decision was carried out twice"
    known = {
        (key.proc, claim)
        for mind in minds
        for (key, _), found in mind.intents().items()
        for claim in found
    }
    assert set(claims) <= known, "a release without a decision in an audit"
    done = sum(
        bool(entry.done)
        for mind in minds
        for entry in HealState.of(mind.records, RULES).by_id.values()
    )
    assert done == len(claims), "what the audits tell is not what was done"


@given(STORY)
@settings(max_examples=25, deadline=None)
def test_a_dead_cache_gets_canaries_and_no_stampede(story: list[tuple[str, int]]) -> None:
    """Every release is held again within seconds, 40 jobs wait: nobody is let loose on it."""
    rules = Rules(backoff=60.0, most_per_job=5)
    world = World(40, rules)
    for job in world.jobs:
        job.cause = 0
    mind = Mind(world, "one")
    world.now += 120.0
    for operation, n in story:
        mind.look(fuse=n % 7 if "killed" in operation else -1)
        world.now += 5.0 + n
        for job in world.jobs:
            world.hold(job)
    # In less than 45 minutes: 3 until the breaker opens, then one for each doubled pause.
    assert len(world.released) <= 3 + 4, world.released


def test_a_cache_that_is_well_gets_ever_more() -> None:
    world = World(500, Rules())
    for job in world.jobs:
        job.cause = 0
    mind = Mind(world, "one")
    world.now += 120.0
    steps = []
    for _ in range(14):
        before = len(world.released)
        mind.look()
        steps.append(len(world.released) - before)
        for job in world.jobs:
            if job.status == "idle":
                job.status = "success"
        world.now += 10.0
    assert steps[:7] == [1, 2, 4, 8, 16, 32, 64] and sum(steps) == 500, steps
    assert max(steps) <= Rules().widest
