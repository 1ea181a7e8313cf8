"""``onesided bench fft``: the distributed FFT against others, both directions.

One shape with several methods; or, with ``--suite``, the table of cases with what each is to
reach. Where an opponent is not to be had, the report says why.
"""

from __future__ import annotations

from argparse import Namespace
from statistics import median

from mpi4py import MPI

from onesided.apps.bench_fft_suite import run_suite
from onesided.apps.contest import DIRECTIONS, Outcome, contest, in_words
from onesided.apps.fft import FAILED
from onesided.apps.options import settings
from onesided.apps.progress import console
from onesided.apps.report import Report, Row, check_json
from onesided.apps.selection import BASELINE, chosen
from onesided.apps.summary import ratio
from onesided.apps.targets import FFTW_MPI, LOCAL, OPPONENTS, PEER, SLOW_LINK, Target
from onesided.apps.verdict import conclusion
from onesided.collectives import methods

REMARK = (
    "GB/s: bytes that a rank sends to others, per second of the whole transform. Set-up: making "
    "and freeing the plan of both directions. Local work: the kernels over the whole local volume "
    "and one memcpy of the moved volume per transpose."
)
ONE_SIDED = "rma-"  # how the names of the one-sided methods begin
CHOOSER = "auto"  # the method that chooses one of the others
USUAL = ("mpi4py-fft", "local-work")


def run(comm: MPI.Intracomm, options: Namespace) -> int:
    """Collective. The command."""
    check_json(comm, options)
    if options.suite:
        return run_suite(comm, options)
    opponents = [OPPONENTS[word] for word in options.against or USUAL]
    outcome = contest(comm, options, chosen(options.comm), opponents)
    pattern = {
        "shape": list(options.shape),
        "dtype": options.dtype,
        "ranks": comm.size,
        "plans": outcome.choices,
        "FFTW-MPI": outcome.facts,
    }
    report = Report("bench fft", settings(options), pattern, remarks=[REMARK])
    report.rows = _rows(outcome)
    report.remarks += [f"{name}: {reason}" for name, reason in outcome.absent.items()]
    report.remarks += in_words(outcome.choices)
    report.remarks += _speeds(outcome)
    report.remarks += _methods_compared(outcome)
    report.remarks.append(conclusion(outcome.verdicts.values(), outcome.against))
    report.finish(comm, console(options.terminal) if comm.rank == 0 else None, options.json)
    return FAILED if report.verified is False else 0


def _rows(outcome: Outcome) -> list[Row]:
    """A row for each direction of everybody, and why a method is missing."""
    setups = {each.method: each.setup + each.freeing for each in outcome.candidates}
    rows = []
    for direction in DIRECTIONS:
        against = {
            name: outcome.times[name, direction]
            for name in (PEER, FFTW_MPI, LOCAL, BASELINE)
            if (name, direction) in outcome.times
        }
        for name, way in outcome.times:
            if way == direction:
                labels = {"direction": direction, "method": outcome.labels.get(name, name)}
                nbytes = 0 if name == LOCAL else outcome.nbytes
                times = outcome.times[name, direction]
                verdict = outcome.verdicts.get(name)
                row = Row(labels, times, setups.get(name), nbytes, against, verdict=verdict)
                rows.append(row)
    rows += [
        Row({"method": each.method}, reason=each.reason)
        for each in outcome.candidates
        if each.reason
    ]
    return rows


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
