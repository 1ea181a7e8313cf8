"""``onesided bench partitioned``: Listing 1 of the paper on partitioned communication in Open MPI.

Two ranks, a buffer in partitions, one side marks them ready; mechanisms, orders, numbers of threads
and sizes of partitions vary.
"""

from __future__ import annotations

from argparse import Namespace

from mpi4py import MPI

from onesided.apps.failures import CommandError
from onesided.apps.options import settings, size
from onesided.apps.partitioned.contestants import contestants, entries
from onesided.apps.partitioned.figures import figures
from onesided.apps.partitioned.goals import goal_report, narrowed
from onesided.apps.partitioned.options import SIZES
from onesided.apps.partitioned.rows import SweepReport, facts, reasons, timed_row
from onesided.apps.partitioned.runner import RANKS
from onesided.apps.partitioned.sweep import Sweep, whole_sweep
from onesided.apps.picture import check_picture
from onesided.apps.progress import console, progress
from onesided.apps.report import Report, check_json

REMARK = (
    "Times go from a barrier until both ranks have completed, after a millisecond of the same that "
    "does not count; GB/s by their medians, those by the mean, as in the paper, are in the JSON "
    "file. Contestants take turns; per cent: median of the ratios to the single message of the "
    "same round. Every partition is checked with data that change from round to round."
)
THREADS = (
    "Threads mark under Python's lock, one at a time; they overlap only where MPI, NumPy or the "
    "simulated work let go of it."
)
FOREIGN = (
    "!: WRONG data, the receiver found others than were sent; the times say how long that took. "
    "psend is the MPI's own partitioned send as it is."
)


def run(comm: MPI.Intracomm, options: Namespace) -> int:
    """Collective. The command; 1 where data were wrong with anything but the MPI's own."""
    if comm.size != RANKS:
        raise CommandError(
            f"it needs a sender and a receiver, {RANKS} ranks; the job has {comm.size}"
        )
    options = narrowed(options) if options.targets else options
    parts = partition_sizes(options)
    field = contestants(options.comm, options.aggregates, options.python)
    places = whole_sweep(
        parts, list(dict.fromkeys(options.orders)), list(dict.fromkeys(options.threads))
    )
    check_json(comm, options)
    drawn = figures(options) if options.picture is not None else []
    for figure in drawn:
        check_picture(comm, figure.path(options.picture))
    out = console(options.terminal) if comm.rank == 0 else None
    sweep = Sweep(options, field, options.seconds / len(places))
    with progress(out, "sending", len(places)) as tick:
        sweep.run(comm, places, tick)
    if comm.rank == 0:
        for figure in drawn:
            figure.draw(options.picture, sweep.results, options.buffer)
    report = goal_report(sweep) if options.targets else _report(sweep)
    report.finish(comm, out, options.json)
    return 1 if _failed(sweep) else 0


def partition_sizes(options: Namespace) -> list[int]:
    """Local. Bytes of a partition, ascending; :class:`CommandError` for one that does not fit."""
    nbytes = options.buffer
    if options.partition_sizes is None:
        found = [part for part in map(size, SIZES.split()) if nbytes % part == 0]
        return found or [nbytes]
    for part in options.partition_sizes:
        if nbytes % part:
            raise CommandError(f"partitions of {part} bytes do not divide a buffer of {nbytes}")
    return sorted(set(options.partition_sizes))


def _report(sweep: Sweep) -> Report:
    """Local. Of the whole sweep."""
    options = sweep.options
    rows = [
        timed_row(place, result, found, options.buffer)
        for place, found in sweep.results.items()
        for result in found
        if not result.reason
    ]
    remarks = [REMARK]
    if any(place.threads > 1 for place in sweep.results):
        remarks.append(THREADS)
    if any(row.fault for row in rows):
        remarks.append(FOREIGN)
    pattern = {"ranks": RANKS, "buffer_bytes": options.buffer, **facts(sweep.results)}
    report = SweepReport("bench partitioned", settings(options), pattern, remarks=remarks)
    report.rows = [*rows, *reasons(sweep)]
    report.lines = [entry.labels for entry in entries(sweep.contestants)]
    return report


def _failed(sweep: Sweep) -> bool:
    """Local. Whether data were wrong with a contestant that the MPI is not to be blamed for."""
    return any(
        result.wrong and not result.entry.contestant.foreign
        for found in sweep.results.values()
        for result in found
    )
