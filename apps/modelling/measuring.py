"""From times to the parameters of the model: which probe gives which parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf

import numpy as np
from mpi4py import MPI

from onesided.apps.bench.race import Contestant, clocked, race, repeats, unchecked
from onesided.apps.bench.ranks import among
from onesided.apps.bench.selection import BASELINE, hints
from onesided.apps.cli.options import Options
from onesided.apps.cli.statistics import quartiles
from onesided.apps.modelling.probes import IN_A_ROW, SHORT, Call, Probes, SharedProbes
from onesided.collectives import Alltoallv_init, Request, UnsupportedError
from onesided.collectives.modelling.exchanges import formulas
from onesided.collectives.modelling.loggp import Fit, PiecewiseLogGP, fit
from onesided.collectives.modelling.parameters import Level, Parameters, Validity

#: Bytes of the messages, Puts and stores through whose times lines are laid.
SIZES = tuple(SHORT if power == 3 else 1 << power for power in (3, *range(8, 23)))
#: The same of rounds that a rank has with itself.
OWN_SIZES = tuple(SHORT if power == 3 else 1 << power for power in (3, 10, 13, 15, 17, 19, 20, 22))
#: How often a request of every method is made and freed.
SETUPS = 3
#: What no probe finds: it would take more than a pair of ranks.
ASSUMED = tuple(
    f"network.{name}" for name in ("link_byte_gap", "link_gap", "congestion", "contention")
)


@dataclass
class Findings:
    """The parameters, and how well the lines describe what they were fitted to, by name.

    ``times`` are the seconds of what was timed, by level and name.
    """

    parameters: Parameters
    errors: dict[str, float] = field(default_factory=dict)
    times: dict[str, dict[str, float]] = field(default_factory=dict)


def find(comm: MPI.Intracomm, options: Options, nodes: Sequence[int]) -> Findings:
    """Collective. Parameters between rank 0 and the next rank of its node, and one off it.

    ``nodes[i]`` is a number of rank i's node. The same findings on every rank.
    """
    partners = {
        "node": next((r for r in range(1, comm.size) if nodes[r] == nodes[0]), None),
        "network": next((r for r in range(1, comm.size) if nodes[r] != nodes[0]), None),
    }
    known = {which: partner for which, partner in partners.items() if partner is not None}
    share = options.seconds / (2 + 2 * len(known))
    near = [rank for rank in range(comm.size) if nodes[rank] == nodes[0]]
    stores, counter, error = among(comm, near, lambda few: _stores(few, options, share))
    software = among(comm, near, lambda few: _software(few, options, share))
    errors, times = {"stores": error}, {}
    levels: dict[str, Level | None] = {"node": None, "network": None}
    for which, partner in known.items():
        work = partial(
            _level, options=options, seconds=2 * share, software=software, near=which == "node"
        )
        level, more, seconds_of = among(comm, [0, partner], work)
        levels[which] = level
        errors |= {f"{kind}, {which}": error for kind, error in more.items()}
        times[which] = seconds_of
    node = levels["node"]
    if node is not None:  # on a node nobody accumulates: the counter is stored
        levels["node"] = replace(node, notice=counter)
    parameters = Parameters(
        stores,
        levels["node"],
        levels["network"],
        software,
        setup=_setups(comm, options),
        assumed=() if levels["network"] is None else ASSUMED,
        measured=Validity(2, SIZES[0], SIZES[-1]),
    )
    return Findings(parameters, errors, times)


def quick(times: Sequence[float]) -> float:
    """Local. The first quartile: other programs on the machine only ever add to a time."""
    return quartiles(times)[0]


def seconds_of(
    comm: MPI.Intracomm, calls: Mapping[str, Call], rounds: int, seconds: float = inf
) -> dict[str, float]:
    """Collective. What each takes, by the slowest rank; all take turns in so many rounds."""
    why = unchecked("a probe moves bytes that nobody reads")
    contestants = [Contestant(name, call, why, repeats(comm, call)) for name, call in calls.items()]
    found = race(comm, contestants, iterations=rounds, seconds=seconds)
    return {name: quick(times) for name, times in found.times.items()}


def _stores(
    node: MPI.Intracomm, options: Options, seconds: float
) -> tuple[PiecewiseLogGP, float, float]:
    """Collective. Copies into shared memory, a counter in it, and the error of the lines."""
    with ExitStack() as stack:
        calls = SharedProbes(node, SIZES, stack).calls
        times = seconds_of(node, calls, options.iterations, seconds)
    lines = _fit(times, "stores")
    each = times["stores in a row"] / IN_A_ROW
    return lines.piecewise(each, each, 1), times.get("counter", 0.0), lines.typical_error


def _software(node: MPI.Intracomm, options: Options, seconds: float) -> dict[str, PiecewiseLogGP]:
    """Collective. Rounds of every method in which each rank sends to itself, all at once."""
    found = {}
    alone = node.Split(node.rank)
    for method in formulas():
        calls: dict[str, Call] = {}
        with ExitStack() as stack:
            try:
                for nbytes in OWN_SIZES:
                    block = [np.ones(nbytes, np.uint8), [nbytes]]
                    request = Alltoallv_init(alone, block, None, method=method)
                    stack.callback(request.Free)
                    calls[f"own {nbytes}"] = round_of(request)
            except UnsupportedError:
                continue
            times = seconds_of(node, calls, options.iterations, seconds / len(formulas()))
            node.Barrier()
        found[method] = _fit(times, "own", OWN_SIZES).piecewise(0.0, 0.0, 1)
    alone.Free()
    return found


def _setups(comm: MPI.Intracomm, options: Options) -> dict[str, float]:
    """Collective. Seconds of making and freeing a request on all ranks, by method."""
    blocks, info = [np.zeros(comm.size, np.uint8), [1] * comm.size], hints(options)
    found = {}
    for method in formulas():

        def once(method: str = method) -> None:
            Alltoallv_init(comm, blocks, None, method=method, info=info).Free()

        with suppress(UnsupportedError):  # on every rank
            found[method] = quick([clocked(comm, once)[1] for _ in range(SETUPS)])
    return found


def round_of(request: Request) -> Call:
    """Local. What starts a round and waits for it."""
    def call() -> None:
        request.Start()
        request.Wait()

    return call


def _level(
    pair: MPI.Intracomm,
    options: Options,
    seconds: float,
    software: Mapping[str, PiecewiseLogGP],
    near: bool,
) -> tuple[Level, dict[str, float], dict[str, float]]:
    """Collective over two ranks. The level, the errors of its lines, and what was timed."""
    with ExitStack() as stack:
        probes = Probes(pair, SIZES, stack, own=near)
        overhead = probes.puts.overhead()
        times = seconds_of(pair, probes.calls, options.iterations, seconds)
        pair.Barrier()
    calling = float(software[BASELINE].time(1, 0)) if BASELINE in software else 0.0
    for nbytes in SIZES:  # without what the call takes in any case
        name = f"collective {nbytes}"
        times[name] = max(times[name] - calling, 0.1 * times[name])
    messages, puts, collective = (
        _fit(times, "messages"), _fit(times, "puts"), _fit(times, "collective")
    )  # fmt: skip
    gap = max(times["stream"] - times["message"], 0.0) / (IN_A_ROW - 1)
    put_gap = max(times["puts in a row"] - times["put"], 0.0) / (IN_A_ROW - 1)
    sent = messages.piecewise(gap / 2, gap, 2)
    if near:  # two messages, of which one is the rank's own
        collective = collective.halved(gap)
    level = Level(
        messages=sent,
        puts=puts.piecewise(overhead, put_gap, 1),
        collective=collective.piecewise(gap / 2, gap, 2),
        link_byte_gap=sent.segments[-1].loggp.byte_gap,
        **synchronization(times),
    )
    errors = {
        "messages": messages.typical_error,
        "collective": collective.typical_error,
        "puts": puts.typical_error,
    }
    return level, errors, times


def synchronization(times: Mapping[str, float]) -> dict[str, float]:
    """Local. What synchronizing costs, where it follows on a Put beside that Put flushed."""
    known = {name: times[name] for name in ("signal", "barrier", "opening")}
    known["empty_fence"] = times["empty fence"]
    beyond = {name: times[name] - times["put"] for name in ("done", "notice", "fence", "relock")}
    beyond["epoch"] = times["epoch"] - times["put"] - times["signal"]
    return known | {name: max(seconds, 0.0) for name, seconds in beyond.items()}


def _fit(times: Mapping[str, float], kind: str, sizes: Sequence[int] = SIZES) -> Fit:
    return fit(sizes, [times[f"{kind} {nbytes}"] for nbytes in sizes])
