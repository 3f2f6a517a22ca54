"""The totals in words, as the study's own tables have them."""

from __future__ import annotations

from headway.report.figures import Totals
from headway.report.numbers import count, rate, size, span
from headway.text import many


def total_rows(totals: Totals) -> list[tuple[str, str]]:
    """What and how much, without what there is nothing of."""
    t = totals

    def row(words: str, value: str, worth_it: object = True) -> list[tuple[str, str]]:
        return [(words, value)] if worth_it else []

    held = [
        (t.held_transfer, "on a transfer"),
        (t.held_duration, "on the time limit"),
        (t.held_other, "for other reasons"),
    ]
    reasons = [f"{number:,} {words}" for number, words in held if number]
    why = reasons[0] if len(reasons) == 1 else f"{t.held:,}: {', '.join(reasons)}"
    return [
        *row("jobs that succeeded", f"{t.succeeded:,} of {t.jobs:,}"),
        *row("jobs that failed", count(t.failed), t.failed),
        *row("jobs that are held", why, t.held),
        *row("jobs that were removed", count(t.removed), t.removed),
        *row("jobs that have not finished", count(t.unfinished), t.unfinished),
        *row(
            "attempts that started the command",
            f"{t.attempts_executed:,} of {t.attempts:,}",
            t.attempts_executed != t.attempts,
        ),
        *row(
            "transfers cut off or stalled",
            f"{t.stalls:,} in {many(t.stalled_jobs, 'job')}",
            t.stalls,
        ),
        *row("evictions", f"{t.evictions:,} in {many(t.evicted_jobs, 'job')}", t.evictions),
        *row("holds", count(t.holds), t.holds),
        *row("checkpoints that came home", count(t.checkpoints), t.checkpoints),
        *row("compute, jobs that succeeded", span(t.good_compute_s), t.good_compute_s),
        *row("their last transfers", span(t.last_transfer_s), t.last_transfer_s),
        *row("their transfers before that", span(t.retried_transfer_s), t.retried_transfer_s),
        *row("their compute that was lost", span(t.evicted_compute_s), t.evicted_compute_s),
        *row("compute, held jobs", span(t.held_compute_s), t.held_compute_s),
        *row("transfers, held jobs", span(t.held_transfer_s), t.held_transfer_s),
        *row("compute, failed jobs", span(t.wrong_compute_s), t.wrong_compute_s),
        *row(
            "transfers, failed jobs",
            f"{span(t.wrong_transfer_s)}, {span(t.wrong_last_transfer_s)} of it their last",
            t.wrong_transfer_s,
        ),
        *row(
            "compute and transfers of a result",
            f"{span(t.result_mean_s)} mean, {span(t.result_median_s)} median",
            t.result_mean_s,
        ),
        *row(
            "first match to result",
            f"{span(t.wall_mean_s)} mean, {span(t.wall_median_s)} median",
            t.wall_mean_s,
        ),
        *row("slots that computed nothing", span(t.idle_s), t.idle_s),
        *row("CPU time that attempts used", span(t.cpu_s), t.cpu_s),
        *row("time in the queue", span(t.queued_s), t.queued_s),
        *row("time held", span(t.held_s), t.held_s),
        *row(
            "longest transfer that arrived",
            f"{count(t.longest_arrived_transfer_s)} s",
            t.longest_arrived_transfer_s,
        ),
        *row(
            "shortest that was cut off",
            f"{count(t.shortest_cut_transfer_s)} s",
            t.shortest_cut_transfer_s,
        ),
        *row(
            "bytes in",
            f"{size(t.received)}" + (f" at {rate(t.transfer_rate)}" if t.transfer_rate else ""),
            t.received,
        ),
    ]
