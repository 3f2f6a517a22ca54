"""The agent: takes one attempt through its phases; its exit code tells the pool how it ended."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys

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
    TransferError,
    code_of,
    is_bug,
    words_of,
)
from headway.node.files import short_folder
from headway.node.host import (
    SANDBOX,
    SINCE,
    TRANSFER_SLOT,
    TRANSFER_VARIABLES,
    HostInfo,
    machine_attribute,
)
from headway.node.plan import OUT, read_plan, read_row, take_secrets
from headway.node.process import (
    EVICTED,
    NO_DATA,
    OUT_OF_TIME,
    CannotStart,
    CommandResult,
    Group,
    Watch,
    own_archive,
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
    from headway.node.plan import Plan, PlannedInput
    from headway.node.store.folder import Held
    from headway.node.store.inputs import InputStore
    from headway.node.store.sandboxes import Sending
    from headway.node.stream.feed import Feeds


def run_agent(plan_path: str) -> int:
    """Run one attempt, or its next segment, in the current folder; returns the exit code."""
    parent = os.environ.get("HEADWAY_PARENT", "")
    watch = Watch(int(parent) if parent.isascii() and parent.isdigit() else None)
    try:
        os.makedirs(f"{OUT}/attempts", 0o755, exist_ok=True)
        attempt = begin_attempt()
        record = AttemptRecord(attempt, HostInfo(os.environ))
    except OSError as error:  # there is only stderr to say so
        sys.stderr.write(
            f"headway: {OUT}/ cannot be made in {os.getcwd()}: {error.strerror} "
            f"(on {HostInfo(os.environ)}, exit {int(Exit.BAD_NODE)}); another node may work\n"
        )
        return Exit.BAD_NODE
    code, reason = _Agent(plan_path, attempt, record, watch).run()
    if code not in (Exit.CHECKPOINT, ENDED_BY_POOL):
        with contextlib.suppress(OSError):
            checkpoint.discard()
    if code == Exit.INPUT_RETRYABLE:
        record.set_reason(reason)  # `pool.policy` holds the job now
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
        self._store: InputStore | None = None

    def run(self) -> tuple[int, str]:
        """Run all phases; returns the exit code and the reason."""
        try:
            code = self._phases()
            return int(code), MEANING[code]
        except Exception as error:
            return self._failure(error)

    def _failure(self, error: Exception) -> tuple[int, str]:
        if is_bug(error):
            import traceback

            self._record.note(traceback.format_exc())
        code, words = code_of(error), words_of(error)
        remedy = getattr(error, "remedy", "")
        message = f"{words} ({self._record.where()}, exit {code})"
        self._record.log(f"{message}; {remedy}" if remedy else message)
        if code == ENDED_BY_POOL:
            return code, f"{EVICTED}: {words}"
        return code, getattr(error, "brief", "") or words

    def _phases(self) -> Exit:
        if machine_attribute(os.environ, TRANSFER_SLOT) == "true":
            return self._deliver() if _has_sandbox() else self._prefetch()
        plan = self._check()
        seconds = 0.0
        try:
            self._stage_in(plan)
            self._record.write_early()
            mark = self._mark(plan)
            outcome = self._run(plan)
            seconds = outcome.seconds
            if self._streams is not None and outcome.status == 0 and not outcome.cause:
                self._streams.finish(self._watch)
        finally:
            if self._streams is not None:
                self._streams.end(seconds)
        if mark is not None:
            mark.release()
        self._judge_inputs(plan, outcome)
        if outcome.status == 0 and not outcome.cause:
            return self._stage_out(plan)
        return self._after_failure(plan, outcome)

    def _check(self) -> Plan:
        attempt = self._attempt
        with self._record.phase("check", attempt=attempt.id, segment=attempt.segment) as phase:
            plan = self._read_plan()
            plan.time_limit = _time_limit(plan.time_limit)
            _tidy_up(attempt.id)
            from headway.node import probe

            missing = []
            if plan.inputs:
                from headway.node import inputs, prefetch
                from headway.node.stage import PluginFallback
                from headway.node.store.inputs import open_inputs

                fallback = PluginFallback(os.environ)
                fallback.use_transferred(plan.inputs)
                prefetch.take_note(plan)
                self._store = open_inputs(os.environ, self._record.note, self._watch.must_stop)
                missing = inputs.missing(plan.inputs, attempt, self._store)
            if missing:
                facts = self._watch.work(lambda: probe.examine(plan, missing, os.environ))
            else:
                facts = probe.examine(plan, missing, os.environ)
            findings = probe.judge(facts)
            for finding in findings:
                if not finding.bad:
                    self._record.problem(finding.words)
            bad = [finding.words for finding in findings if finding.bad]
            remedy = "another node may work"
            if any(finding.no_network for finding in findings):
                phase["no_way_out"] = 1
                remedy = fallback.activate(self._record.set_attribute)
            if bad:
                raise NodeError("; ".join(bad), remedy=remedy)
            self._watch.check()
        return plan

    def _read_plan(self) -> Plan:
        """The plan, with the variables that it only names; the agent's transfers have them, too."""
        plan = read_plan(self._plan_path, read_row(os.environ.get("HEADWAY_ROW")))
        self._record.plan = plan
        self._attempt.secrets = take_secrets(plan.secrets)
        plan.environment.update(self._attempt.secrets)
        for name in TRANSFER_VARIABLES & plan.environment.keys():
            os.environ[name] = plan.environment[name]
        return plan

    def _stage_in(self, plan: Plan) -> None:
        record, watch, attempt = self._record, self._watch, self._attempt
        with record.phase("stage-in", files=len(plan.inputs)) as phase:
            watch.check()
            if plan.checkpoint is not None and os.path.isdir(f"{OUT}/checkpoint"):
                self._restore_checkpoint(plan.checkpoint.paths)
            if plan.payload is not None and not os.path.exists(plan.payload):
                words = f"{plan.payload} is not here; the pool did not transfer it"
                raise NodeError(words, remedy="another node may work")
            if plan.payload is not None and not _is_empty_tar(plan.payload):
                from headway.node.unpack import unpack_payload

                reserved = (plan.payload, os.path.normpath(self._plan_path))
                unpack_payload(plan.payload, os.curdir, reserved, watch.check, record.problem)
            if plan.inputs:
                from headway.node.inputs import stage_in, streamed

                later = streamed(plan.inputs, attempt, self._store)
                files = [each for each in plan.inputs if each not in later]
                progress = Progress({each.path: each.size for each in files})
                reporter = ProgressReporter(record, "stage-in", progress)
                entries: list[dict[str, object]] = []
                record.inputs = entries
                task = functools.partial(
                    stage_in, files, attempt, progress, watch.must_stop, record.note, entries
                )
                try:
                    watch.work(lambda: task(plan.disk, self._store), reporter.tick)
                finally:
                    reporter.report_arrivals()
                    phase["bytes"] = progress.done
                if later:
                    self._begin_streams(later)
            watch.check()

    def _begin_streams(self, inputs: list[PlannedInput]) -> None:
        """Start the inputs that arrive while the command runs."""
        from headway.node.inputs import pinned
        from headway.node.stream.feed import Feeds

        watch = self._watch
        self._streams = Feeds(self._record, self._attempt, self._store)
        for each in inputs:
            store = self._store if each.store else None
            task = functools.partial(pinned, each, watch.must_stop, keep=True, store=store)
            self._streams.begin(each, watch.work(task), watch)

    def _mark(self, plan: Plan) -> Held | None:
        """Note that this run computes here, so that inputs of its next job may come."""
        if not plan.prefetch:
            return None
        from headway.node import prefetch

        return prefetch.compute(plan)

    def _run(self, plan: Plan) -> CommandResult:
        record, attempt = self._record, self._attempt
        record.command = {"argv": plan.command, "shell": plan.shell}
        with record.phase("run", segment=attempt.segment) as phase:
            variables = environment(plan, attempt.id)
            limit = plan.time_limit
            if limit is not None:
                limit = max(0.0, limit - attempt.used)
            begin = record.now()
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
                        out_of_data=streams.out_of_data if streams is not None else lambda: False,
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
            phase.update(status=outcome.status, signal=outcome.signal)
            phase["ok"] = outcome.status == 0 or saved(plan, outcome.status)
            if outcome.cause:
                phase["cause"] = outcome.cause
        return outcome

    def _stage_out(self, plan: Plan) -> Exit:
        with self._record.phase("stage-out", files=len(plan.outputs)) as phase:
            self._watch.check()
            if plan.outputs:
                phase["bytes"] = self._hand_over(plan)
        return Exit.OK

    def _deliver(self) -> Exit:
        """Take out what an earlier attempt has left here, so that HTCondor brings it home."""
        from headway.node import delivery
        from headway.node.store.sandboxes import SandboxError

        record, watch = self._record, self._watch
        plan = record.plan = read_plan(self._plan_path, read_row(os.environ.get("HEADWAY_ROW")))
        take_secrets(plan.secrets)
        with record.phase("deliver", attempt=self._attempt.id) as phase:
            _tidy_up(self._attempt.id)
            try:
                task = functools.partial(delivery.take_out, record, watch.must_stop)
                ticket, sending = watch.work(task)
                phase.update(bytes=ticket.size, sandbox=ticket.sandbox)
                places = [(each, f"{delivery.TAKEN}/{each.path}") for each in plan.outputs]
                found = [outputs.FoundOutput(*each) for each in places if os.path.lexists(each[1])]
                sent = [each for each in found if each.output.url is not None]
                home = [each for each in found if each.output.url is None]
                self._send(sent, "deliver", sending)
                outputs.drop(sent, home)
                os.rename(delivery.TAKEN, _OUTPUTS)
            except SandboxError:
                raise
            except Stopped:
                delivery.put_off()
                raise
            except (HeadwayError, OSError) as error:  # the sandbox waits for another courier
                final = isinstance(error, TransferError) and not error.retryable
                code = Exit.OUTPUT_MISSING if final else Exit.INPUT_RETRYABLE
                if final:
                    os.rename(delivery.TAKEN, f"{self._attempt.folder}/outputs")
                else:
                    delivery.put_off()
                words = f"the outputs could not be delivered: {words_of(error)}"
                raise Failed(code, words, remedy=getattr(error, "remedy", "")) from None
            record.outputs += [each.entry(f"{_OUTPUTS}/{each.output.path}") for each in home]
        return Exit.OK

    def _prefetch(self) -> Exit:
        """Bring the job's inputs into this node's store; the job then goes on waiting."""
        from headway.node import prefetch

        record, watch = self._record, self._watch
        with record.phase("prefetch") as phase, prefetch.announced(record, watch):
            plan = self._read_plan()
            _tidy_up(self._attempt.id)
            phase["bytes"], words = prefetch.prefetch(plan, record, watch)
        # Never 0, so that nobody can take this end for the job's.
        raise Failed(Exit.BAD_NODE, words)

    def _judge_inputs(self, plan: Plan, outcome: CommandResult) -> None:
        """Raise the failure of an input, unless a checkpoint made from verified bytes was saved."""
        streams, is_saved = self._streams, saved(plan, outcome.status)
        if streams is None:
            return
        if outcome.cause in ("", NO_DATA):
            if not is_saved or not streams.can_continue():
                streams.raise_failure()
        elif is_saved and streams.in_doubt:
            if outcome.cause == OUT_OF_TIME:
                streams.raise_failure()
            raise Stopped(
                f"{self._watch.words()}; the checkpoint is not kept, because {streams.in_doubt} was"
                " found to be wrong while it was being read"
            )

    def _after_failure(self, plan: Plan, outcome: CommandResult) -> Exit:
        """Save a checkpoint, or raise why the command ended: by the pool, or by a failure."""
        ended_by_pool = outcome.cause not in ("", OUT_OF_TIME, NO_DATA)
        try:
            if plan.checkpoint is not None and saved(plan, outcome.status):
                self._save_checkpoint(plan.checkpoint.paths)
                return Exit.CHECKPOINT
        except Failed:
            if not ended_by_pool:
                self._keep_outputs(plan)
                raise
        if ended_by_pool:
            raise Stopped(self._watch.words())
        self._keep_outputs(plan)
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
        stdout, stderr = (f"{self._attempt.folder}/{name}" for name in ("stdout", "stderr"))
        _share_stdout(stdout)
        return os.open(stdout, flags, 0o644), os.open(stderr, flags, 0o644)

    def _hand_over(self, plan: Plan) -> int:
        """Verify, send and move the outputs of a command that succeeded; returns their bytes."""
        record = self._record
        try:
            found, faults = outputs.find(plan.outputs, record.problem)
            if faults:
                raise outputs.OutputError(
                    "; ".join(faults), remedy="look at the command's stdout and stderr"
                )
            if plan.deliver is not None and self._leave_here(plan, found):
                return sum(each.bytes for each in found)
            sent = [each for each in found if each.output.url is not None]
            rest = [each for each in found if each.output.url is None]
            self._send(sent, "stage-out")
            record.outputs += outputs.move(rest, _OUTPUTS)
            outputs.drop([each for each in sent if _within_outputs(each)], rest)
            if plan.deliver is not None:
                from headway.node import delivery

                delivery.nothing_left()
        except Stopped:
            raise
        except (HeadwayError, OSError) as error:
            self._keep_outputs(plan)
            remedy = getattr(error, "remedy", "")
            raise Failed(Exit.OUTPUT_MISSING, words_of(error), remedy=remedy) from None
        return sum(each.bytes for each in found)

    def _leave_here(self, plan: Plan, found: list[outputs.FoundOutput]) -> bool:
        """Leave verified outputs in this node's store, for a courier; False: they stay as found."""
        from headway.node import delivery

        record, size = self._record, sum(each.bytes for each in found)
        task = functools.partial(delivery.hand_over, plan, record, size, self._watch.must_stop)
        entries = outputs.move(found, _OUTPUTS)
        ticket = self._watch.work(task)
        if ticket is None:
            for each in found:
                each.place = f"{_OUTPUTS}/{each.output.path}"
            return False
        record.outputs += entries
        record.sandbox = {"sandbox": ticket.sandbox, "at": ticket.at, "size": ticket.size}
        return True

    def _send(
        self, found: list[outputs.FoundOutput], phase: str, sending: Sending | None = None
    ) -> None:
        """Send outputs to their URLs; `sending`: what couriers before this one have begun."""
        if not found:
            return
        progress = Progress({each.output.path: each.bytes for each in found})
        reporter = ProgressReporter(self._record, phase, progress)
        task = functools.partial(outputs.send, found, progress, self._watch.must_stop, sending)
        self._record.outputs += self._watch.work(task, reporter.tick)

    def _keep_outputs(self, plan: Plan) -> None:
        """Move the outputs that exist to the failed attempt, to be transferred with it."""
        record, folder = self._record, self._attempt.folder
        try:
            if os.path.isdir(_OUTPUTS):
                os.makedirs(folder, 0o755, exist_ok=True)
                os.rename(_OUTPUTS, f"{folder}/outputs")
            found, _ = outputs.find(plan.outputs, record.note)
            record.outputs = outputs.move(found, f"{folder}/outputs")
        except (OSError, HeadwayError) as error:
            record.note(f"outputs could not be kept: {words_of(error)}")

    def _save_checkpoint(self, paths: list[str]) -> None:
        """Put the checkpoint that the command has just written into the output folder."""
        lacking = ", ".join(path for path in paths if not os.path.exists(path))
        if lacking:
            raise Failed(
                Exit.COMMAND_FAILED,
                f"the command exited {self._record.command['status']} but {lacking} is missing",
                remedy="the command must write each checkpoint path before it exits",
            )
        try:
            checkpoint.save(paths, self._record.problem)
        except OSError as error:
            words = f"the checkpoint could not be saved: {words_of(error)}"
            raise Failed(Exit.COMMAND_FAILED, words) from None

    def _restore_checkpoint(self, paths: list[str]) -> None:
        """In a thread: a large checkpoint takes a while, and an eviction does not wait for it."""
        watch, record = self._watch, self._record
        for path in watch.work(lambda: checkpoint.restore(paths, watch.check, record.problem)):
            record.note(f"{path} restored from the checkpoint")


def _has_sandbox() -> bool:
    """Whether what an earlier attempt has left waits for a courier."""
    from headway.node.classad import read_job_ad

    return read_job_ad(os.environ).get(SINCE.lower()) is not None


def _time_limit(planned: float | None) -> float | None:
    """The time limit from the job's ad in the queue, or else from the plan."""
    from headway.node.classad import read_job_ad

    limit = read_job_ad(os.environ).get(TIME_LIMIT.lower())
    return float(limit) if isinstance(limit, int) and limit > 0 else planned


def _is_empty_tar(archive: str) -> bool:
    """Whether a tar file has no members; spares loading the code that unpacks it."""
    with open(archive, "rb") as file:
        return file.read(512) == bytes(512)


def _share_stdout(name: str) -> None:
    """Make stdout a second name for HTCondor's own, which users can read while the job runs."""
    own = "_condor_stdout"
    try:
        if os.path.samestat(os.stat(own), os.fstat(1)) and not os.path.exists(name):
            os.link(own, name)
    except OSError:
        pass  # not HTCondor, or no hard links: the command writes to a file of its own


def _within_outputs(each: outputs.FoundOutput) -> bool:
    """Whether it lies in the folder that goes home: it was to go to the store, which refused."""
    return each.place.startswith(f"{_OUTPUTS}/")


def _tidy_up(own: str) -> None:
    """Remove what an agent that was killed here has left."""
    if os.path.lexists(_OUTPUTS):
        import shutil

        shutil.rmtree(_OUTPUTS)
    from headway.node.classad import read_job_ad

    if isinstance(read_job_ad(os.environ).get(SANDBOX.lower()), str):
        from headway.node import delivery

        delivery.forget_what_is_home()
    for attempt in os.listdir(f"{OUT}/attempts"):
        if attempt != own and os.path.exists(f"{OUT}/attempts/{attempt}/{RESERVE}"):
            os.unlink(f"{OUT}/attempts/{attempt}/{RESERVE}")


_OUTPUTS = f"{OUT}/outputs"
# with the names in HEADWAY_PRIVATE, separated by spaces, these are for the agent only
_PRIVATE = ("HEADWAY_ROW", "HEADWAY_PARENT", "HEADWAY_PRIVATE")


def argv(plan: Plan) -> list[str]:
    """The command's arguments; a shell line is wrapped so that its exit code survives signals.

    A signal kills a shell at once, while the program that it runs is still saving its state. With
    the trap it waits for that program and passes on its exit code; the program has no trap.
    """
    if not plan.shell:
        return plan.command
    names = {"TERM"}
    if plan.checkpoint is not None and plan.checkpoint.signal is not None:
        names.add(plan.checkpoint.signal[3:])
    return ["/bin/sh", "-c", f"trap exit {' '.join(sorted(names))}\n{plan.command[0]}"]


def environment(plan: Plan, attempt: str) -> dict[str, str]:
    """The environment of the node and the plan, without Headway's own variables."""
    private = {*_PRIVATE, *os.environ.get("HEADWAY_PRIVATE", "").split()}
    filled = {name: value for name, value in os.environ.items() if name not in private}
    filled.setdefault("PYTHONUNBUFFERED", "1")  # its output appears at once
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
    package = own_archive()  # so that the command can import headway.checkpoint
    if package and os.pathsep not in package:
        before = filled.get("PYTHONPATH")
        filled["PYTHONPATH"] = f"{package}{os.pathsep}{before}" if before else package
    return filled


def nudge(plan: Plan) -> tuple[float, int] | None:
    """After how many seconds to ask the command for a checkpoint, and by which signal."""
    wanted = plan.checkpoint
    if wanted is None or wanted.interval is None or wanted.signal is None:
        return None
    return wanted.interval, getattr(signal, wanted.signal)


def saved(plan: Plan, status: int | None) -> bool:
    """Whether this exit status says that a checkpoint has been written."""
    return plan.checkpoint is not None and status == plan.checkpoint.exit_code
