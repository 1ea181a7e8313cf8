"""``onesided bench fft``: the distributed FFT against others, both directions.

One shape with several methods; or, with ``--targets``, the table of cases with what each is to
reach. Where an opponent is not to be had, the report says why.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from statistics import median
from typing import Any

from mpi4py import MPI

from onesided.apps.bench.race import clocked
from onesided.apps.bench.selection import BASELINE, chosen
from onesided.apps.bench.store import Part, Parts
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import Report, Row, compared, conclusions
from onesided.apps.cli.statistics import Target, Verdict, conclusion, ratio
from onesided.apps.tools.fft import (
    DIRECTIONS,
    FFTW_MPI,
    LOCAL,
    PEER,
    Outcome,
    contest,
    in_words,
    plan_maker,
)
from onesided.apps.tools.fft_contest import BUDGET, OPPONENTS, SLOW_LINK, Case, cases
from onesided.collectives import methods
from onesided.pencilfft import PFFT

# ``onesided bench fft --targets``: all cases of the table, each with what it has to reach.

TARGETS_REMARK = (
    "Reached: the median over the rounds of how many times as fast as the opponent ours is "
    "(at least), or of our time over the opponent's (at most). Local work: the kernels over the "
    "whole local volume and one memcpy of the moved volume per transpose. Plans: making one with "
    "nothing remembered, as mpi4py-fft makes its own, and one that is recalled."
)
#: What the shapes are divided by with ``--quick``.
SHRINK = 16
#: Seconds for which a transform runs before it is timed: see :mod:`onesided.apps.bench.race`.
LEAD = 0.1
#: How often a plan is made.
PLANS = 5


def run_targets(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command with ``--targets``; 1 where a result is wrong, or, with
    ``--strict``, a target is missed."""
    names = chosen(options.comm, baseline=False)
    table = cases(comm.size, SHRINK if options.quick else 1)
    opponents = [OPPONENTS[word] for word in options.against or OPPONENTS]
    pattern = {"ranks": comm.size, "plans": {}}
    report = Report("bench fft --targets", options.settings(), pattern, remarks=[TARGETS_REMARK])
    parts = Parts(comm, report, options.json)
    verdicts: list[Verdict] = []
    against = ""
    for case in table:
        own = _with_case(options, case, len(table))

        def measure(part: Part, case: Case = case, own: Options = own) -> None:
            if case.setups and PEER in opponents and find_spec("mpi4py_fft") is not None:
                part.rows += _setups(comm, own, case, names[0])
            outcome = contest(comm, own, names, opponents, lead=LEAD)
            plans = {**outcome.choices, FFTW_MPI: outcome.facts, PEER: outcome.best_peer}
            part.pattern["plans"] = {case.name: plans}
            part.rows += _target_rows(case, outcome)
            part.remarks += [f"{case.name}, {each}" for each in in_words(outcome.choices)]
            part.remarks += [f"{case.name}, {key}: {why}" for key, why in outcome.absent.items()]
            errors = [[each.error, each.tolerance] for each in outcome.verdicts.values()]
            part.more = [outcome.against, errors]

        against, errors = parts.add(case.name, measure).more
        verdicts += [Verdict(*each) for each in errors]
    nothing = f"no targets are set for these shapes on {comm.size} ranks"
    report.remarks += conclusions(report.rows, nothing)
    report.remarks.append(conclusion(verdicts, against))
    return report.end(comm, options)


def _setups(comm: MPI.Intracomm, options: Options, case: Case, method: str) -> list[Row]:
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
    times: dict[str, tuple[str, list[float], list[float]]] = {
        PEER: ("a first plan", _seconds(comm, first), _seconds(comm, theirs)),
        BUDGET.opponent: ("a plan recalled", _seconds(comm, recalled), []),
    }
    rows = []
    for target in case.setups:
        words, ours, others = times[target.opponent]
        labels = {"case": case.name, "direction": words, "method": method}
        rows.append(compared(labels, ours, others, target, wanted=True))
    return rows


def _seconds(comm: MPI.Intracomm, make: Callable[[], Any]) -> list[float]:
    """Collective. To make a plan, several times."""
    times = []
    for _ in range(PLANS):
        plan, seconds = clocked(comm, make)
        plan.destroy()
        times.append(seconds)
    return times


def _with_case(options: Options, case: Case, count: int) -> Options:
    """The options of one case; the time is shared by all."""
    return options.but(
        shape=list(case.shape),
        dtype=case.dtype,
        backend=case.backend if case.backend != "auto" else options.backend,
        grid=["auto"] if case.grid is None else list(case.grid),
        seconds=options.seconds / count,
    )


def _target_rows(case: Case, outcome: Outcome) -> list[Row]:
    """A row for every direction, method and opponent, and why a method is missing."""
    usual = {each: Target(each, 0.0, least=each != LOCAL) for each in (PEER, LOCAL, FFTW_MPI)}
    set_ = {each.opponent: each for each in case.targets}
    rows = [
        compared(
            {"case": case.name, "direction": direction, "method": outcome.labels[method]},
            outcome.times[method, direction],
            outcome.times[opponent, direction],
            set_.get(opponent, target),
            wanted=opponent in set_,
            nbytes=outcome.nbytes,
            verdict=outcome.verdicts.get(method),
        )
        for direction in DIRECTIONS
        for method in outcome.methods
        for opponent, target in usual.items()
        if (opponent, direction) in outcome.times
    ]
    return rows + outcome.candidates.refused(case=case.name)


REMARK = (
    "GB/s: bytes that a rank sends to others, per second of the whole transform. Set-up: making "
    "and freeing the plan of both directions. Local work: the kernels over the whole local volume "
    "and one memcpy of the moved volume per transpose."
)
ONE_SIDED = "rma-"  # how the names of the one-sided methods begin
CHOOSER = "auto"  # the method that chooses one of the others
USUAL = ("mpi4py-fft", "local-work")


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command."""
    if options.targets:
        return run_targets(comm, options)
    opponents = [OPPONENTS[word] for word in options.against or USUAL]
    outcome = contest(comm, options, chosen(options.comm), opponents, lead=LEAD)
    pattern = {**outcome.pattern, "plans": outcome.choices, FFTW_MPI: outcome.facts}
    report = Report("bench fft", options.settings(), pattern, remarks=[REMARK])
    report.rows = _rows(outcome)
    report.remarks += [f"{name}: {reason}" for name, reason in outcome.absent.items()]
    report.remarks += in_words(outcome.choices)
    report.remarks += _speeds(outcome)
    if outcome.best_peer:
        report.remarks.append(f"{PEER}: by its fastest kernel, {outcome.best_peer}")
    report.remarks += _methods_compared(outcome)
    report.remarks.append(conclusion(outcome.verdicts.values(), outcome.against))
    return report.end(comm, options)


def _rows(outcome: Outcome) -> list[Row]:
    """A row for each direction of everybody, and why a method is missing."""
    rows = []
    for direction in DIRECTIONS:
        timed = {name: times for (name, way), times in outcome.times.items() if way == direction}
        against = {name: timed[name] for name in (PEER, FFTW_MPI, LOCAL, BASELINE) if name in timed}
        rows += [
            Row(
                {"direction": direction, "method": outcome.labels.get(name, name)},
                times,
                outcome.setup(name),
                0 if name == LOCAL else outcome.nbytes,
                against,
                verdict=outcome.verdicts.get(name),
                hidden=("error",),
            )
            for name, times in timed.items()
            if name != PEER
        ]
    return rows + outcome.candidates.refused()


def _speeds(outcome: Outcome) -> list[str]:
    """How many times as fast as others every method is."""
    sentences = []
    for direction in DIRECTIONS:
        for opponent in (PEER, FFTW_MPI):
            theirs = outcome.times.get((opponent, direction))
            if theirs is not None:
                target = Target(opponent, 0.0)
                speeds = (
                    f"{method} {target.reached(outcome.times[method, direction], theirs):.2f}"
                    for method in outcome.methods
                )
                sentences.append(f"{direction}, times as fast as {opponent}: {', '.join(speeds)}")
    return sentences


def _methods_compared(outcome: Outcome) -> list[str]:
    """The best any-order one-sided method against ``mpi``, and the plan's choice against the best.

    By the times of both directions together; nothing is said of methods that were not run.
    """
    known = methods()
    times = {name: outcome.both(name) for name in outcome.methods}
    fixed = {name: each for name, each in times.items() if name != CHOOSER}
    any_order = {name: each for name, each in fixed.items() if known[name].any_order}
    one_sided = {name: each for name, each in any_order.items() if name.startswith(ONE_SIDED)}
    goal = f"over a slow link at most {SLOW_LINK} is wanted"
    sentences = []
    if one_sided and BASELINE in times:
        best = _quickest(one_sided)
        value = ratio(times[best], times[BASELINE])
        words = f"{value:.2f} times the time of {BASELINE}; {goal}"
        sentences.append(f"best any-order one-sided method, both directions: {best}, {words}")
    if any_order and CHOOSER in times:
        for best in dict.fromkeys((_quickest(fixed), _quickest(any_order))):
            value = ratio(times[CHOOSER], times[best])
            order = "an any-order method" if known[best].any_order else "strictly ordered"
            words = f"{value:.2f} times the time of the best, {best} ({order}); {goal}"
            sentences.append(f"{outcome.labels[CHOOSER]}, both directions: {words}")
    return sentences


def _quickest(times: dict[str, list[float]]) -> str:
    return min(times, key=lambda name: median(times[name]))
