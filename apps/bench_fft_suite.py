"""``onesided bench fft --suite``: all cases of the table, each with what it has to reach."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from statistics import median

from mpi4py import MPI

from onesided.apps.contest import DIRECTIONS, Outcome, contest, in_words
from onesided.apps.options import settings
from onesided.apps.progress import console
from onesided.apps.report import NOTHING, Report, Row, duration
from onesided.apps.selection import chosen
from onesided.apps.targets import FFTW_MPI, LOCAL, OPPONENTS, PEER, Case, Target, cases

REMARK = (
    "Reached: the median over the rounds of how many times as fast as the opponent ours is "
    "(at least), or of our time over the opponent's (at most). Local work: the kernels over the "
    "whole local volume and one memcpy of the moved volume per transpose."
)


class Comparison(Row):
    """A direction of a case, ours against one opponent; of the table only what is compared."""

    def cells(self) -> dict[str, str]:
        """Local. For the table."""
        if self.reason:
            return dict(self.labels)
        target, reached = self.values["target"], self.values["reached"]
        return {
            **{name: text for name, text in self.labels.items() if name != "bound"},
            "ours": duration(median(self.times)),
            "opponent's": duration(median(self.details["opponent's"])),
            "reached": f"{reached:.2f}",
            "target": NOTHING if target is None else f"{self.labels['bound']} {target:.2f}",
        }


def run_suite(comm: MPI.Intracomm, options: Namespace) -> int:
    """Collective. The command with ``--suite``."""
    names = chosen(options.comm, baseline=False)
    table = cases(comm.size, options.shrink)
    opponents = [OPPONENTS[word] for word in options.against or OPPONENTS]
    plans: dict[str, object] = {}
    pattern = {"ranks": comm.size, "plans": plans}
    report = Report("bench fft --suite", settings(options), pattern, remarks=[REMARK])
    missed: list[str] = []
    for case in table:
        outcome = contest(comm, _with_case(options, case, len(table)), names, opponents)
        plans[case.name] = {**outcome.choices, FFTW_MPI: outcome.facts}
        report.rows += _rows(case, outcome, missed)
        report.remarks += [f"{case.name}, {each}" for each in in_words(outcome.choices)]
        report.remarks += [f"{case.name}, {key}: {why}" for key, why in outcome.absent.items()]
    wanted = [row for row in report.rows if row.values.get("target") is not None]
    report.remarks.append(
        f"{len(wanted) - len(missed)} of {len(wanted)} targets reached"
        if wanted
        else f"no targets are set for these shapes on {comm.size} ranks"
    )
    report.remarks += [f"missed: {each}" for each in missed]
    report.finish(comm, console(options.terminal) if comm.rank == 0 else None, options.json)
    return 0


def _with_case(options: Namespace, case: Case, count: int) -> Namespace:
    """The options of one case; the time is shared by all."""
    own = {
        "shape": list(case.shape),
        "dtype": case.dtype,
        "grid": ["auto"] if case.grid is None else list(case.grid),
        "seconds": options.seconds / count,
    }
    return Namespace(**(vars(options) | own))


def _rows(case: Case, outcome: Outcome, missed: list[str]) -> list[Row]:
    """A row for every direction, method and opponent; ``missed`` gets the targets not reached."""
    rows = [
        _row(case, outcome, direction, method, opponent, missed)
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


def _row(
    case: Case, outcome: Outcome, direction: str, method: str, opponent: str, missed: list[str]
) -> Row:
    target = next((each for each in case.targets if each.opponent == opponent), None)
    usual = Target(opponent, 0.0, least=opponent != LOCAL)
    ours, theirs = outcome.times[method, direction], outcome.times[opponent, direction]
    reached = (target or usual).reached(ours, theirs)
    labels = {
        "case": case.name,
        "direction": direction,
        "method": outcome.labels[method],
        "opponent": opponent,
        "bound": (target or usual).words,
    }
    values: Mapping[str, float | None] = {
        "target": None if target is None else target.bound,
        "reached": reached,
    }
    if target is not None and not target.met(reached):
        missed.append(
            f"{case.name} {direction}, {method} against {opponent}: {reached:.2f}, "
            f"{target.words} {target.bound:.2f} is wanted"
        )
    details = {"opponent's": theirs}
    return Comparison(labels, ours, nbytes=outcome.nbytes, details=details, values=values)
