"""``onesided bench rounds``: rounds and set-ups beside MPI's own, and beside what is wanted.

Rounds of a uniform exchange, one after the other, as a solver runs them, into every kind of receive
memory; the contestants take turns in an order that changes, several rounds at a time where a round
is short. All that is received is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import median

from mpi4py import MPI

from onesided.apps.bench.race import clocked, nothing
from onesided.apps.bench.selection import BASELINE, chosen
from onesided.apps.bench.store import Part, Parts
from onesided.apps.cli.options import Options
from onesided.apps.cli.progress import progress
from onesided.apps.cli.report import Report, byte_count, compared, conclusions, duration
from onesided.apps.cli.statistics import Target
from onesided.apps.papers.exchange import Contest, exchangers, uniform
from onesided.apps.papers.goals import Goal, wanted

#: Seconds of the rounds that are timed in a row.
IN_A_ROW = 1e-3

#: What a round may take of one with MPI_Alltoallv.
TARGETS = (
    *(Goal(bound, 0, most, "MPICH", {"memory": [memory]}) for memory, most, bound in (
        ("slots", 8 << 10, 0.15), ("slots", 128 << 10, 0.12), ("slots", 1 << 20, 0.22),
        ("slots", 2 << 20, 0.40), ("slots", 16 << 20, 0.65), ("empty", 8 << 10, 0.30),
        ("plain", 8 << 10, 0.50), ("plain", 1 << 20, 0.35), ("plain", 16 << 20, 0.65),
    )),
    Goal(0.60, 0, 16 << 20, "Open MPI"),
)  # fmt: skip

#: What ``auto`` may take of the fastest any-order method, and seconds of a set-up.
AUTO_TARGET, SETUP_TARGET = 1.10, 0.3e-3

#: Rounds that ``auto`` is told to expect.
EXPECTED = "200"

SETUPS = 22
AUTO = "auto"
REMARK = (
    "Ratios are medians, and where these lie with 95 % confidence. Set-up is that of the second "
    "and later requests of a communicator."
)


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; 1 after wrong data, with ``--strict`` after a missed target."""
    names = chosen(options.comm, baseline=False)
    report = Report("bench rounds", options.settings(), {"ranks": comm.size}, remarks=[REMARK])
    sizes = sorted(set(options.sizes))
    parts = Parts(comm, report, options.json)
    with progress(comm, options, "rounds", len(sizes) * len(options.memory)) as tick:
        for memory in options.memory:
            for nbytes in sizes:
                measure = partial(_compare, comm, memory, nbytes, names, options)
                parts.add(f"{memory} {nbytes}", measure)
                tick()
    for method in ("rma-notify", "rma-p2p", "p2p"):
        parts.add(f"set-up {method}", partial(_setup, comm, method))
    report.remarks += conclusions(report.rows, "no targets are set for this MPI")
    return report.end(comm, options)


def _compare(
    comm: MPI.Intracomm,
    memory: str,
    nbytes: int,
    names: Sequence[str],
    options: Options,
    part: Part,
) -> None:
    """Collective. A row for each contestant, and ``auto`` against the best of the others."""
    problem = uniform(comm, max(nbytes // 8 // comm.size, 1))
    given = options.but(
        memory=[memory], repeats=1, info=[("expected_iterations", EXPECTED), *options.info]
    )
    seconds = options.seconds / (len(options.memory) * len(set(options.sizes)))
    contest = Contest(
        comm, given, [AUTO, *names], {"bytes": byte_count(nbytes)}, seconds, copies=False,
        region=IN_A_ROW,
    )  # fmt: skip
    rows = {row.labels["method"]: row for row in contest.rows(problem, nothing)}
    for name, row in rows.items():
        row.hidden = ("error", "GB/s", "mean", "set-up", "break-even")
        if name == BASELINE:
            row.against, row.hidden = {}, (*row.hidden, "median", "quartiles")
            row.labels = {**row.labels, "memory": memory}
            row.shown = {"ours": duration(median(row.times))}
    bound = wanted(TARGETS, nbytes, MPI.get_vendor()[0], memory=memory)
    auto = rows[AUTO]
    auto.aim, auto.wanted = Target(BASELINE, bound or 0.0, least=False), bound is not None
    part.rows += rows.values()
    others = [name for name in names if rows[name].times]
    best = min(others, key=lambda name: median(rows[name].times))
    aim = Target(best, AUTO_TARGET, least=False)
    part.rows.append(
        compared(auto.labels, auto.times, rows[best].times, aim, wanted=True, nbytes=nbytes)
    )


def _setup(comm: MPI.Intracomm, method: str, part: Part) -> None:
    """Collective. Seconds to initialize a request on a communicator that has had some."""
    make = exchangers(comm, uniform(comm, 1), "slots", {})
    seconds = []
    for _ in range(SETUPS):
        exchanger, taken = clocked(comm, partial(make, method))
        exchanger.free()
        seconds.append(taken)
    aim = Target(f"{1e3 * SETUP_TARGET:.1f} ms", 1.0, least=False, seconds=SETUP_TARGET)
    labels = {"bytes": "set-up", "method": method, "memory": "slots"}
    part.rows.append(compared(labels, seconds[2:], (), aim, wanted=True))
