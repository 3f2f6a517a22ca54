"""The agent: takes one attempt through its phases; its exit code tells the pool how it ended."""

from __future__ import annotations

import contextlib
import os
import signal

import headway.node
from headway.node import checkpoint, outputs
from headway.node.errors import (
    ENDED_BY_POOL,
    MEANING,
    TIME_LIMIT,
    Exit,
    Failed,
    HeadwayError,
    NodeError,
    Stopped,
    code_of,
    words_of,
)
from headway.node.files import short_folder
from headway.node.host import TRANSFER_VARIABLES, HostInfo
from headway.node.plan import OUT, PlanError, read_plan, read_row, take_secrets
from headway.node.process import (
    EVICTED,
    NO_DATA,
    OUT_OF_TIME,
    CannotStart,
    CommandResult,
    Group,
    Watch,
)
from headway.node.record import (
    RESERVE,
    Attempt,
    AttemptRecord,
    Progress,
    ProgressReporter,
    begin_attempt,
)

TYPE_CHECKING = False

if TYPE_CHECKING:
    from headway.node.plan import Input, Plan
    from headway.node.stream.feed import Feeds


def run_agent(plan_path: str) -> int:
    """One attempt, or one more segment of it, in the current folder; returns the exit code."""
    parent = os.environ.get("HEADWAY_PARENT", "")
    watch = Watch(int(parent) if parent.isascii() and parent.isdigit() else None)
    try:
        os.makedirs(f"{OUT}/attempts", 0o755, exist_ok=True)
        attempt = begin_attempt()
        record = AttemptRecord(attempt, HostInfo(os.environ))
    except OSError as error:
        return _hopeless(error)
    code, reason = _Agent(plan_path, attempt, record, watch).run()
    if code not in (Exit.CHECKPOINT, ENDED_BY_POOL):
        _drop_checkpoint()
    if code == Exit.INPUT_RETRYABLE:
        record.set_reason(reason)  # the job is held now: `pool.policy` has the rule
    record.finish(code, reason)
    if code == Exit.CHECKPOINT:
        try:
            attempt.segments = record.segments(code)
            attempt.phases, attempt.inputs = record.phases, record.inputs
            attempt.leave_note()
        except OSError as error:
            record.log(f"the next segment will be a new attempt: {error.strerror}")
    return code


class _Agent:
    def __init__(
        self, plan_path: str, attempt: Attempt, record: AttemptRecord, watch: Watch
    ) -> None:
        self._plan_path = plan_path
        self._attempt = attempt
        self._record = record
        self._watch = watch
        self._streams: Feeds | None = None

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

            self._record.note(traceback.format_exc())
        words = words_of(error)
        remedy = getattr(error, "remedy", "")
        told = f"{words} ({self._record.where()}, exit {code})"
        self._record.log(f"{told}; {remedy}" if remedy else told)
        if code == ENDED_BY_POOL:
            return code, f"{EVICTED}: {words}"
        return code, getattr(error, "brief", "") or words

    def _phases(self) -> Exit:
        plan = self._check()
        seconds = 0.0
        try:
            self._stage_in(plan)
            self._record.write_early()
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
        with self._record.phase("check", attempt=attempt.id, segment=attempt.segment) as phase:
            plan = read_plan(self._plan_path, read_row(os.environ.get("HEADWAY_ROW")))
            self._record.know(plan)
            attempt.secrets = take_secrets(plan.secrets)
            plan.environment.update(attempt.secrets)
            plan.time_limit = _time_limit(plan.time_limit)
            # these parts of the job's environment count for the agent's own transfers too
            for name in TRANSFER_VARIABLES & plan.environment.keys():
                os.environ[name] = plan.environment[name]
            _tidy_up(attempt.id)
            from headway.node import probe

            missing = []
            if plan.inputs:
                from headway.node import inputs
                from headway.node.stage import PluginFallback

                fallback = PluginFallback(os.environ)
                fallback.take_brought(plan.inputs)
                missing = inputs.missing(plan.inputs, attempt)
            if missing:
                facts = self._watch.work(lambda: probe.examine(plan, missing, os.environ))
            else:
                facts = probe.examine(plan, missing, os.environ)
            findings = probe.judge(facts)
            for finding in findings:
                if not finding.bad:
                    self._record.problem(finding.words)
            bad = [finding.words for finding in findings if finding.bad]
            remedy = "another node may do"
            if any(finding.no_way_out for finding in findings):
                phase.told["no_way_out"] = 1
                remedy = fallback.none(self._record.set_attribute)
            if bad:
                raise NodeError("; ".join(bad), remedy=remedy)
            self._watch.check()
        return plan

    def _stage_in(self, plan: Plan) -> None:
        record, watch = self._record, self._watch
        with record.phase("stage-in", files=len(plan.inputs)) as phase:
            watch.check()
            if plan.checkpoint is not None and os.path.isdir(f"{OUT}/checkpoint"):
                restore_checkpoint(plan.checkpoint.paths, record, watch)
            if plan.payload is not None and not os.path.exists(plan.payload):
                raise PlanError(f"{plan.payload} is not here; the pool did not bring it")
            if plan.payload is not None and not _holds_nothing(plan.payload):
                from headway.node.unpack import unpack_payload

                reserved = (plan.payload, os.path.normpath(self._plan_path))
                unpack_payload(plan.payload, os.curdir, reserved, watch.check, record.problem)
            if plan.inputs:
                from headway.node.inputs import sizes, stage_in, streamed

                attempt = self._attempt
                told: list[dict[str, object]] = []
                later = streamed(plan.inputs, attempt)
                files = [each for each in plan.inputs if each not in later]
                progress = Progress(sizes(files))
                reporter = ProgressReporter(record, "stage-in", progress)
                record.inputs = told
                try:
                    watch.work(
                        lambda: stage_in(
                            files,
                            attempt,
                            progress,
                            lambda: watch.cause != "",
                            record.note,
                            told,
                            plan.disk,
                        ),
                        reporter.tick,
                    )
                finally:
                    reporter.tell_arrived()
                    phase.told["bytes"] = progress.done
                if later:
                    self._begin_streams(later)
            watch.check()

    def _begin_streams(self, inputs: list[Input]) -> None:
        """What arrives while the command runs; it only has to begin before that."""
        from headway.node.inputs import pinned
        from headway.node.stream.feed import Feeds

        watch = self._watch
        self._streams = Feeds(self._record, self._attempt)
        for each in inputs:
            manifest = watch.work(lambda each=each: pinned(each, lambda: watch.cause != ""))  # type: ignore[misc]
            self._streams.begin(each, manifest, watch)

    def _run(self, plan: Plan) -> CommandResult:
        record, attempt = self._record, self._attempt
        record.command = {"argv": plan.command, "shell": plan.shell}
        with record.phase("run", segment=attempt.segment) as phase:
            variables = environment(plan, attempt.id)
            limit = plan.time_limit
            if limit is not None:
                limit = max(0.0, limit - attempt.used)
            begin = record.clock.now()
            streams = self._streams
            own = {name: variables[name] for name in variables.keys() - plan.environment.keys()}
            try:
                with short_folder(own, record.problem) as changes:
                    files = self._open_files()
                    group = Group(argv(plan), {**variables, **changes}, *files)
                    outcome = group.run(
                        self._watch,
                        grace=plan.grace,
                        limit=limit,
                        nudge=nudge(plan),
                        tick=streams.tick if streams is not None else None,
                        hopeless=streams.hopeless if streams is not None else lambda: False,
                    )
            except CannotStart as error:
                raise Failed(Exit.COMMAND_FAILED, f"the command did not start: {error}") from None
            record.command.update(
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
            phase.ok = outcome.status == 0 or saved(plan, outcome.status)
            if outcome.cause:
                phase.told["cause"] = outcome.cause
        return outcome

    def _stage_out(self, plan: Plan) -> Exit:
        with self._record.phase("stage-out", files=len(plan.outputs)) as phase:
            self._watch.check()
            if plan.outputs:
                phase.told["bytes"] = hand_over(plan, self._record, self._watch)
        return Exit.OK

    def _judge_inputs(self, plan: Plan, outcome: CommandResult) -> None:
        """An input that failed fails the attempt, unless a checkpoint of proven bytes was saved."""
        streams, is_saved = self._streams, saved(plan, outcome.status)
        if streams is None:
            return
        if outcome.cause in ("", NO_DATA):
            if not is_saved or not streams.vouch():
                streams.raise_failure()
        elif is_saved and streams.in_doubt:
            if outcome.cause == OUT_OF_TIME:
                streams.raise_failure()
            raise Stopped(
                f"{self._watch.words()}; the checkpoint is not kept, because {streams.in_doubt} was"
                " found to be wrong while it was being read"
            )

    def _after_failure(self, plan: Plan, outcome: CommandResult) -> Exit:
        """The command did not simply succeed: a checkpoint, an end by the pool, or a failure."""

        ended_by_pool = outcome.cause not in ("", OUT_OF_TIME, NO_DATA)
        try:
            if plan.checkpoint is not None and saved(plan, outcome.status):
                save_checkpoint(plan.checkpoint.paths, self._record)
                return Exit.CHECKPOINT
        except Failed:
            if not ended_by_pool:
                keep_outputs(plan, self._record)
                raise
        if ended_by_pool:
            raise Stopped(self._watch.words())
        keep_outputs(plan, self._record)
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
    from headway.node.classad import read_job_ad

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
        f"(on {HostInfo(os.environ)}, exit {int(Exit.BAD_NODE)}); another node may do\n"
    )
    return Exit.BAD_NODE


# names in HEADWAY_PRIVATE, parted by spaces, are for the agent alone
_PRIVATE = ("HEADWAY_ROW", "HEADWAY_PARENT", "HEADWAY_PRIVATE")


def argv(plan: Plan) -> list[str]:
    """The arguments to start with; a shell line is wrapped so that its exit code survives signals.

    A shell dies of a signal at once, while the program that it runs is still saving its state. With
    the trap it waits for that program and passes its exit code on; the program has no trap.
    """
    if not plan.shell:
        return plan.command
    names = {"TERM"}
    if plan.checkpoint is not None and plan.checkpoint.signal is not None:
        names.add(plan.checkpoint.signal[3:])
    return ["/bin/sh", "-c", f"trap exit {' '.join(sorted(names))}\n{plan.command[0]}"]


def environment(plan: Plan, attempt: str) -> dict[str, str]:
    """The node's environment and the plan's, without what is headway's own."""
    private = {*_PRIVATE, *os.environ.get("HEADWAY_PRIVATE", "").split()}
    filled = {name: value for name, value in os.environ.items() if name not in private}
    filled.setdefault("PYTHONUNBUFFERED", "1")  # what it prints is seen when it prints it
    filled.update(plan.environment)
    filled["HEADWAY_JOB"] = plan.row.get("job", "0")
    filled["HEADWAY_ATTEMPT"] = attempt
    wanted = plan.checkpoint
    if wanted is not None:
        filled["HEADWAY_CHECKPOINT_EXIT_CODE"] = str(wanted.exit_code)
        if wanted.interval is not None:
            filled["HEADWAY_CHECKPOINT_INTERVAL"] = f"{wanted.interval:g}"
        if wanted.signal is not None:
            filled["HEADWAY_CHECKPOINT_SIGNAL"] = wanted.signal
    package = own_package()
    if package:
        before = filled.get("PYTHONPATH")
        filled["PYTHONPATH"] = f"{package}{os.pathsep}{before}" if before else package
    return filled


def own_package() -> str:
    """headway-node.pyz, if this runs from it: the command can import `headway.checkpoint` from it.

    Empty also where its path has the sign that parts PYTHONPATH.
    """
    package = os.path.abspath(headway.node.__path__[0])
    archive = os.path.dirname(os.path.dirname(package))
    return archive if os.path.isfile(archive) and os.pathsep not in archive else ""


def nudge(plan: Plan) -> tuple[float, int] | None:
    """When the command is to be asked for a checkpoint, and by which signal."""
    wanted = plan.checkpoint
    if wanted is None or wanted.interval is None or wanted.signal is None:
        return None
    return wanted.interval, getattr(signal, wanted.signal)


def saved(plan: Plan, status: int | None) -> bool:
    """Whether this exit status says that a checkpoint has been written."""
    return plan.checkpoint is not None and status == plan.checkpoint.exit_code


# The handover: what the command leaves behind goes to where it goes home from.

OUTPUTS = f"{OUT}/outputs"


def hand_over(plan: Plan, record: AttemptRecord, watch: Watch) -> int:
    """Verify, send and move the outputs of a command that succeeded; returns their bytes."""
    try:
        found, faults = outputs.find(plan.outputs, record.problem)
        if faults:
            raise outputs.OutputError(
                "; ".join(faults), remedy="look at the command's stdout and stderr"
            )
        sent = [each for each in found if each.output.url is not None]
        if sent:
            record.outputs += _send(sent, record, watch)
        rest = [each for each in found if each.output.url is None]
        record.outputs += outputs.move(rest, OUTPUTS)
    except Stopped:
        raise
    except (HeadwayError, OSError) as error:
        keep_outputs(plan, record)
        remedy = getattr(error, "remedy", "")
        raise Failed(Exit.OUTPUT_MISSING, words_of(error), remedy=remedy) from None
    return sum(each.bytes for each in found)


def keep_outputs(plan: Plan, record: AttemptRecord) -> None:
    """What there is of the outputs goes home with the failed attempt."""
    kept = f"{record.attempt.folder}/outputs"
    try:
        if os.path.isdir(OUTPUTS):
            os.makedirs(record.attempt.folder, 0o755, exist_ok=True)
            os.rename(OUTPUTS, kept)
        found, _ = outputs.find(plan.outputs, record.note)
        record.outputs = outputs.move(found, kept)
    except (OSError, HeadwayError) as error:
        record.note(f"outputs could not be kept: {words_of(error)}")


def save_checkpoint(paths: list[str], record: AttemptRecord) -> None:
    """Put the checkpoint that the command has just written into the output folder."""
    lacking = [path for path in paths if not os.path.exists(path)]
    if lacking:
        raise Failed(
            Exit.COMMAND_FAILED,
            f"the command exited {record.command['status']} but {', '.join(lacking)} is missing",
            remedy="the command must write each checkpoint path before it exits",
        )
    try:
        checkpoint.save(paths, record.problem)
    except OSError as error:
        raise Failed(
            Exit.COMMAND_FAILED, f"the checkpoint could not be kept: {words_of(error)}"
        ) from None


def restore_checkpoint(paths: list[str], record: AttemptRecord, watch: Watch) -> None:
    """In a thread: a large checkpoint takes its time, and an eviction does not wait for it."""
    for path in watch.work(lambda: checkpoint.restore(paths, watch.check, record.problem)):
        record.note(f"{path} restored from the checkpoint")


def _send(
    found: list[outputs.FoundOutput], record: AttemptRecord, watch: Watch
) -> list[dict[str, object]]:
    progress = Progress({each.output.path: each.bytes for each in found})
    reporter = ProgressReporter(record, "stage-out", progress)
    return watch.work(
        lambda: outputs.send(found, progress, lambda: watch.cause != ""), reporter.tick
    )
