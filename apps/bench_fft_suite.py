"""``onesided bench fft --suite``: all cases of the table, each with what it has to reach."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from mpi4py import MPI

from onesided.apps.comparison import Comparison, any_missed, comparison, conclusions
from onesided.apps.contest import DIRECTIONS, Outcome, contest, in_words
from onesided.apps.fft import FAILED, plan_maker
from onesided.apps.options import settings
from onesided.apps.progress import console
from onesided.apps.report import Report, Row
from onesided.apps.selection import chosen
from onesided.apps.targets import BUDGET, FFTW_MPI, LOCAL, OPPONENTS, PEER, Case, Target, cases
from onesided.apps.timing import setup_time
from onesided.apps.verdict import Verdict, conclusion
from onesided.pencilfft import PFFT

REMARK = (
    "Reached: the median over the rounds of how many times as fast as the opponent ours is "
    "(at least), or of our time over the opponent's (at most). Local work: the kernels over the "
    "whole local volume and one memcpy of the moved volume per transpose. Plans: making one with "
    "nothing remembered, as mpi4py-fft makes its own, and one that is recalled."
)
#: How often a plan is made.
PLANS = 5


def run_suite(comm: MPI.Intracomm, options: Namespace) -> int:
    """Collective. The command with ``--suite``; 1 where a result is wrong, or, with ``--strict``, a
    target is missed."""
    names = chosen(options.comm, baseline=False)
    table = cases(comm.size, options.shrink)
    opponents = [OPPONENTS[word] for word in options.against or OPPONENTS]
    plans: dict[str, object] = {}
    pattern = {"ranks": comm.size, "plans": plans}
    report = Report("bench fft --suite", settings(options), pattern, remarks=[REMARK])
    verdicts: list[Verdict] = []
    for case in table:
        own = _with_case(options, case, len(table))
        if case.setups and PEER in opponents and find_spec("mpi4py_fft") is not None:
            report.rows += _setups(comm, own, case, names[0])
        outcome = contest(comm, own, names, opponents)
        verdicts += outcome.verdicts.values()
        plans[case.name] = {**outcome.choices, FFTW_MPI: outcome.facts}
        report.rows += _rows(case, outcome)
        report.remarks += [f"{case.name}, {each}" for each in in_words(outcome.choices)]
        report.remarks += [f"{case.name}, {key}: {why}" for key, why in outcome.absent.items()]
    nothing = f"no targets are set for these shapes on {comm.size} ranks"
    report.remarks += conclusions(report.rows, nothing)
    report.remarks.append(conclusion(verdicts, outcome.against))
    report.finish(comm, console(options.terminal) if comm.rank == 0 else None, options.json)
    if not all(verdict.passed for verdict in verdicts):
        return FAILED
    return int(options.strict and comm.bcast(any_missed(report.rows)))


def _setups(comm: MPI.Intracomm, options: Namespace, case: Case, method: str) -> list[Row]:
    """Collective. Plans instead of transforms: made, destroyed, and made again."""
    library = import_module("mpi4py_fft")
    shape, dtype = case.shape, case.dtype

    def theirs() -> Any:
        library.fftw.forget_wisdom()
        return library.PFFT(comm, shape, dtype=dtype, grid=case.grid, backend="fftw")

    def first() -> PFFT:
        return PFFT(comm, shape, dtype=dtype, grid=case.grid, method=method, wisdom=False)

    def recalled() -> PFFT:
        return plan_maker(comm, options)(method)

    recalled().destroy()  # measured now, or by an earlier run
    times = {
        PEER: (_seconds(comm, first), _seconds(comm, theirs)),
        BUDGET: (_seconds(comm, recalled), [0.03] * PLANS),
    }
    words = {PEER: "a first plan", BUDGET: "a plan recalled"}
    return [
        comparison(
            {"case": case.name, "direction": words[target.opponent], "method": method},
            *times[target.opponent],
            target,
            wanted=True,
        )
        for target in case.setups
    ]


def _seconds(comm: MPI.Intracomm, make: Callable[[], Any]) -> list[float]:
    """Collective. To make a plan, several times."""
    times = []
    for _ in range(PLANS):
        made: list[Any] = []
        times.append(setup_time(comm, lambda made=made: made.append(make())))  # type: ignore[misc]
        made[0].destroy()
    return times


def _with_case(options: Namespace, case: Case, count: int) -> Namespace:
    """The options of one case; the time is shared by all."""
    own = {
        "shape": list(case.shape),
        "dtype": case.dtype,
        "backend": case.backend if case.backend != "auto" else options.backend,
        "grid": ["auto"] if case.grid is None else list(case.grid),
        "seconds": options.seconds / count,
    }
    return Namespace(**(vars(options) | own))


def _rows(case: Case, outcome: Outcome) -> list[Row]:
    """A row for every direction, method and opponent, and why a method is missing."""
    rows: list[Row] = [
        _row(case, outcome, direction, method, opponent)
        for direction in DIRECTIONS
        for method in outcome.methods
        for opponent in (PEER, LOCAL, FFTW_MPI)
        if (opponent, direction) in outcome.times
    ]
    rows += [
        Comparison({"case": case.name, "method": each.method}, reason=each.reason)
        for each in outcome.candidates
        if each.reason
    ]
    return rows


def _row(case: Case, outcome: Outcome, direction: str, method: str, opponent: str) -> Row:
    target = next((each for each in case.targets if each.opponent == opponent), None)
    usual = Target(opponent, 0.0, least=opponent != LOCAL)
    labels = {"case": case.name, "direction": direction, "method": outcome.labels[method]}
    return comparison(
        labels,
        outcome.times[method, direction],
        outcome.times[opponent, direction],
        target or usual,
        wanted=target is not None,
        nbytes=outcome.nbytes,
    )
