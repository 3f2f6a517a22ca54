"""The agent: takes one attempt through its phases; its exit code tells the pool how it ended."""

from __future__ import annotations

import contextlib
import os

from headway.node import command
from headway.node.attempt import Attempt, begin_attempt
from headway.node.environment import NAMES
from headway.node.errors import NodeError, Stopped
from headway.node.exits import MEANING, TIME_LIMIT, Exit
from headway.node.journal import RESERVE, Journal
from headway.node.place import Place
from headway.node.plan import OUT, PlanError, read_plan, read_row, take_secrets
from headway.node.process import NO_DATA, OUT_OF_TIME, CannotStart, Group, Outcome
from headway.node.temporary import short_folder
from headway.node.verdict import ENDED_BY_POOL, Failed, code_of, words_of
from headway.node.watch import EVICTED, Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.node.plan import Input, Plan
    from headway.node.streams import Streams


def run_agent(plan_path: str) -> int:
    """One attempt, or one more segment of it, in the current folder; returns the exit code."""
    parent = os.environ.get("HEADWAY_PARENT", "")
    watch = Watch(int(parent) if parent.isascii() and parent.isdigit() else None)
    try:
        os.makedirs(f"{OUT}/attempts", 0o755, exist_ok=True)
        attempt = begin_attempt()
        journal = Journal(attempt, Place(os.environ))
    except OSError as error:
        return _hopeless(error)
    code, reason = _Agent(plan_path, attempt, journal, watch).run()
    if code not in (Exit.CHECKPOINT, ENDED_BY_POOL):
        _drop_checkpoint()
    if code == Exit.INPUT_RETRYABLE:
        journal.set_reason(reason)  # the job is held now: `pool.policy` has the rule
    journal.finish(code, reason)
    if code == Exit.CHECKPOINT:
        try:
            attempt.segments = journal.segments(code)
            attempt.phases, attempt.inputs = journal.phases, journal.inputs
            attempt.leave_note()
        except OSError as error:
            journal.log(f"the next segment will be a new attempt: {error.strerror}")
    return code


class _Agent:
    def __init__(self, plan_path: str, attempt: Attempt, journal: Journal, watch: Watch) -> None:
        self._plan_path = plan_path
        self._attempt = attempt
        self._journal = journal
        self._watch = watch
        self._streams: Streams | None = None

    def run(self) -> tuple[int, str]:
        """All phases; returns the exit code and the reason in words."""
        try:
            code = self._phases()
            return int(code), MEANING[code]
        except Exception as error:
            return self._failure(error)

    def _failure(self, error: Exception) -> tuple[int, str]:
        meant = code_of(error)
        # plain numbers from here on: Python 3.9 writes the name of an IntEnum where 3.11 does not
        code = int(Exit.AGENT_ERROR if meant is None else meant)
        if meant is None:
            import traceback

            self._journal.note(traceback.format_exc())
        words = words_of(error)
        remedy = getattr(error, "remedy", "")
        told = f"{words} ({self._journal.where()}, exit {code})"
        self._journal.log(f"{told}; {remedy}" if remedy else told)
        if code == ENDED_BY_POOL:
            return code, f"{EVICTED}: {words}"
        return code, getattr(error, "brief", "") or words

    def _phases(self) -> Exit:
        plan = self._check()
        seconds = 0.0
        try:
            self._stage_in(plan)
            self._journal.write_early()
            outcome = self._run(plan)
            seconds = outcome.seconds
            if self._streams is not None and outcome.status == 0 and not outcome.cause:
                self._streams.finish(self._watch)
        finally:
            if self._streams is not None:
                self._streams.end(seconds)
        self._judge_inputs(plan, outcome)
        if outcome.status == 0 and not outcome.cause:
            return self._stage_out(plan)
        return self._after_failure(plan, outcome)

    def _check(self) -> Plan:
        attempt = self._attempt
        with self._journal.phase("check", attempt=attempt.id, segment=attempt.segment) as phase:
            plan = read_plan(self._plan_path, read_row(os.environ.get("HEADWAY_ROW")))
            self._journal.know(plan)
            attempt.secrets = take_secrets(plan.secrets)
            plan.environment.update(attempt.secrets)
            plan.time_limit = _time_limit(plan.time_limit)
            # these parts of the job's environment count for the agent's own transfers too
            for name in NAMES & plan.environment.keys():
                os.environ[name] = plan.environment[name]
            _tidy_up(attempt.id)
            from headway.node import probe

            missing = []
            if plan.inputs:
                from headway.node import inputs
                from headway.node.way_out import WayOut

                way_out = WayOut(os.environ)
                way_out.take_brought(plan.inputs)
                missing = inputs.missing(plan.inputs, attempt)
            if missing:
                facts = self._watch.work(lambda: probe.examine(plan, missing, os.environ))
            else:
                facts = probe.examine(plan, missing, os.environ)
            findings = probe.judge(facts)
            for finding in findings:
                if not finding.bad:
                    self._journal.problem(finding.words)
            bad = [finding.words for finding in findings if finding.bad]
            remedy = "another node may do"
            if any(finding.no_way_out for finding in findings):
                phase.told["no_way_out"] = 1
                remedy = way_out.none(self._journal.set_attribute)
            if bad:
                raise NodeError("; ".join(bad), remedy=remedy)
            self._watch.check()
        return plan

    def _stage_in(self, plan: Plan) -> None:
        journal, watch = self._journal, self._watch
        with journal.phase("stage-in", files=len(plan.inputs)) as phase:
            watch.check()
            if plan.checkpoint is not None and os.path.isdir(f"{OUT}/checkpoint"):
                from headway.node.handover import restore_checkpoint

                restore_checkpoint(plan.checkpoint.paths, journal, watch)
            if plan.payload is not None and not os.path.exists(plan.payload):
                raise PlanError(f"{plan.payload} is not here; the pool did not bring it")
            if plan.payload is not None and not _holds_nothing(plan.payload):
                from headway.node.payload import unpack

                reserved = (plan.payload, os.path.normpath(self._plan_path))
                unpack(plan.payload, os.curdir, reserved, watch.check, journal.problem)
            if plan.inputs:
                from headway.node.inputs import sizes, stage_in, streamed
                from headway.node.progress import Progress, Teller

                attempt = self._attempt
                told: list[dict[str, object]] = []
                later = streamed(plan.inputs, attempt)
                files = [each for each in plan.inputs if each not in later]
                progress = Progress(sizes(files))
                teller = Teller(journal, "stage-in", progress)
                journal.inputs = told
                try:
                    watch.work(
                        lambda: stage_in(
                            files,
                            attempt,
                            progress,
                            lambda: watch.cause != "",
                            journal.note,
                            told,
                            plan.disk,
                        ),
                        teller.tick,
                    )
                finally:
                    teller.tell_arrived()
                    phase.told["bytes"] = progress.done
                if later:
                    self._begin_streams(later)
            watch.check()

    def _begin_streams(self, inputs: list[Input]) -> None:
        """What arrives while the command runs; it only has to begin before that."""
        from headway.node.inputs import pinned
        from headway.node.streams import Streams

        watch = self._watch
        self._streams = Streams(self._journal, self._attempt)
        for each in inputs:
            manifest = watch.work(lambda each=each: pinned(each, lambda: watch.cause != ""))  # type: ignore[misc]
            self._streams.begin(each, manifest, watch)

    def _run(self, plan: Plan) -> Outcome:
        journal, attempt = self._journal, self._attempt
        journal.command = {"argv": plan.command, "shell": plan.shell}
        with journal.phase("run", segment=attempt.segment) as phase:
            environment = command.environment(plan, attempt.id)
            limit = plan.time_limit
            if limit is not None:
                limit = max(0.0, limit - attempt.used)
            begin = journal.clock.now()
            streams = self._streams
            own = {name: environment[name] for name in environment.keys() - plan.environment.keys()}
            try:
                with short_folder(own, journal.problem) as changes:
                    files = self._open_files()
                    group = Group(command.argv(plan), {**environment, **changes}, *files)
                    outcome = group.run(
                        self._watch,
                        grace=plan.grace,
                        limit=limit,
                        nudge=command.nudge(plan),
                        tick=streams.tick if streams is not None else None,
                        hopeless=streams.hopeless if streams is not None else lambda: False,
                    )
            except CannotStart as error:
                raise Failed(Exit.COMMAND_FAILED, f"the command did not start: {error}") from None
            journal.command.update(
                status=outcome.status,
                signal=outcome.signal,
                begin=round(begin, 3),
                end=round(begin + outcome.seconds, 3),
                seconds=round(outcome.seconds, 3),
                cpu_user=round(outcome.cpu_user, 3),
                cpu_system=round(outcome.cpu_system, 3),
                max_rss=outcome.max_rss,
            )
            attempt.used = 0.0 if outcome.cause == OUT_OF_TIME else attempt.used + outcome.seconds
            phase.told.update(status=outcome.status, signal=outcome.signal)
            phase.ok = outcome.status == 0 or command.saved(plan, outcome.status)
            if outcome.cause:
                phase.told["cause"] = outcome.cause
        return outcome

    def _stage_out(self, plan: Plan) -> Exit:
        with self._journal.phase("stage-out", files=len(plan.outputs)) as phase:
            self._watch.check()
            if plan.outputs:
                from headway.node.handover import hand_over

                phase.told["bytes"] = hand_over(plan, self._journal, self._watch)
        return Exit.OK

    def _judge_inputs(self, plan: Plan, outcome: Outcome) -> None:
        """An input that failed fails the attempt, unless a checkpoint of proven bytes was saved."""
        streams, saved = self._streams, command.saved(plan, outcome.status)
        if streams is None:
            return
        if outcome.cause in ("", NO_DATA):
            if not saved or not streams.vouch():
                streams.raise_failure()
        elif saved and streams.in_doubt:
            if outcome.cause == OUT_OF_TIME:
                streams.raise_failure()
            raise Stopped(
                f"{self._watch.words()}; the checkpoint is not kept, because {streams.in_doubt} was"
                " found to be wrong while it was being read"
            )

    def _after_failure(self, plan: Plan, outcome: Outcome) -> Exit:
        """The command did not simply succeed: a checkpoint, an end by the pool, or a failure."""
        from headway.node.handover import keep_outputs, save_checkpoint

        ended_by_pool = outcome.cause not in ("", OUT_OF_TIME, NO_DATA)
        try:
            if plan.checkpoint is not None and command.saved(plan, outcome.status):
                save_checkpoint(plan.checkpoint.paths, self._journal)
                return Exit.CHECKPOINT
        except Failed:
            if not ended_by_pool:
                keep_outputs(plan, self._journal)
                raise
        if ended_by_pool:
            raise Stopped(self._watch.words())
        keep_outputs(plan, self._journal)
        if outcome.cause == OUT_OF_TIME:
            raise Failed(
                Exit.OUT_OF_TIME,
                f"the time limit of {plan.time_limit:.0f} s is over; the command {outcome.words()}",
                remedy="raise time_limit, or save checkpoints",
            )
        raise Failed(
            Exit.COMMAND_FAILED, f"the command {outcome.words()}", remedy="look at its stderr"
        )

    def _open_files(self) -> tuple[int, int]:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        folder = self._attempt.folder
        _share_stdout(f"{folder}/stdout")
        return (
            os.open(f"{folder}/stdout", flags, 0o644),
            os.open(f"{folder}/stderr", flags, 0o644),
        )


def _time_limit(planned: float | None) -> float | None:
    """The limit that somebody has set for this job in the queue, else the plan's."""
    from headway.node.ads import read_job_ad

    limit = read_job_ad(os.environ).get(TIME_LIMIT.lower())
    return float(limit) if isinstance(limit, int) and limit > 0 else planned


def _holds_nothing(archive: str) -> bool:
    """Whether a tar file begins with its end, a block of zeros: no need to load what unpacks it."""
    with open(archive, "rb") as file:
        return file.read(512) == bytes(512)


def _share_stdout(name: str) -> None:
    """One file under two names: HTCondor lets users look into a running job's own stdout only."""
    own = "_condor_stdout"
    try:
        if os.path.samestat(os.stat(own), os.fstat(1)) and not os.path.exists(name):
            os.link(own, name)
    except OSError:
        pass  # not HTCondor, or no hard links: the command writes to a file of its own


def _drop_checkpoint() -> None:
    """An attempt that has ended by itself sends no checkpoint home."""
    if os.path.lexists(f"{OUT}/checkpoint"):
        from headway.node import checkpoint

        with contextlib.suppress(OSError):
            checkpoint.discard()


def _tidy_up(own: str) -> None:
    """An agent that was killed here may have left outputs which nothing vouches for."""
    if os.path.lexists(f"{OUT}/outputs"):
        import shutil

        shutil.rmtree(f"{OUT}/outputs")
    for attempt in os.listdir(f"{OUT}/attempts"):
        if attempt != own and os.path.exists(f"{OUT}/attempts/{attempt}/{RESERVE}"):
            os.unlink(f"{OUT}/attempts/{attempt}/{RESERVE}")


def _hopeless(error: OSError) -> int:
    """Not even the output folder can be made: there is only stderr to say so."""
    import sys

    sys.stderr.write(
        f"headway: {OUT}/ cannot be made in {os.getcwd()}: {error.strerror} "
        f"(on {Place(os.environ)}, exit {int(Exit.BAD_NODE)}); another node may do\n"
    )
    return Exit.BAD_NODE
