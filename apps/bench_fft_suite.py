"""``onesided bench fft --suite``: all cases of the table, each with what it has to reach."""

from __future__ import annotations

from argparse import Namespace

from mpi4py import MPI

from onesided.apps.comparison import Comparison, any_missed, comparison, conclusions
from onesided.apps.contest import DIRECTIONS, Outcome, contest, in_words
from onesided.apps.options import settings
from onesided.apps.progress import console
from onesided.apps.report import Report, Row
from onesided.apps.selection import chosen
from onesided.apps.targets import FFTW_MPI, LOCAL, OPPONENTS, PEER, Case, Target, cases

REMARK = (
    "Reached: the median over the rounds of how many times as fast as the opponent ours is "
    "(at least), or of our time over the opponent's (at most). Local work: the kernels over the "
    "whole local volume and one memcpy of the moved volume per transpose."
)


def run_suite(comm: MPI.Intracomm, options: Namespace) -> int:
    """Collective. The command with ``--suite``; 1 where a target is missed, with ``--strict``."""
    names = chosen(options.comm, baseline=False)
    table = cases(comm.size, options.shrink)
    opponents = [OPPONENTS[word] for word in options.against or OPPONENTS]
    plans: dict[str, object] = {}
    pattern = {"ranks": comm.size, "plans": plans}
    report = Report("bench fft --suite", settings(options), pattern, remarks=[REMARK])
    for case in table:
        outcome = contest(comm, _with_case(options, case, len(table)), names, opponents)
        plans[case.name] = {**outcome.choices, FFTW_MPI: outcome.facts}
        report.rows += _rows(case, outcome)
        report.remarks += [f"{case.name}, {each}" for each in in_words(outcome.choices)]
        report.remarks += [f"{case.name}, {key}: {why}" for key, why in outcome.absent.items()]
    nothing = f"no targets are set for these shapes on {comm.size} ranks"
    report.remarks += conclusions(report.rows, nothing)
    report.finish(comm, console(options.terminal) if comm.rank == 0 else None, options.json)
    return int(options.strict and comm.bcast(any_missed(report.rows)))


def _with_case(options: Namespace, case: Case, count: int) -> Namespace:
    """The options of one case; the time is shared by all."""
    own = {
        "shape": list(case.shape),
        "dtype": case.dtype,
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
