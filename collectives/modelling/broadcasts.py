"""What a broadcast costs in the LogP and LogGP models: paper 003, section 3; no MPI.

The paper gives the binomial broadcast ``(o + 2q + L + o_r) log2(P) + o_s + L`` in LogP, and
``(o + (m - 1)G + 2q + L + o_r) log2(P) + o + L`` in LogGP. Of its symbols, ``q`` and ``o_s`` are
never defined. They are read as follows. A hop sends three messages (data, description, request),
so two gaps lie between them: ``q`` is the gap ``g``. The last term is the message to the done
counter of the root: ``o_s`` is the overhead ``o`` of sending it, as the LogGP formula has it.

``log2(P)`` is the number of steps, one hop each, because a rank completes the data at one child
before it serves the next. That is so for a power of two and the largest subtree first; here it is
:func:`onesided.collectives.trees.steps`, for any number of ranks and both orders.

The linear broadcast, which the paper gives no formula for, issues all its Puts and then waits for
all: the data leave one after the other, a gap and their length apart, and the last ones are
acknowledged. Both models let pairs of ranks send at the same time without sharing anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from onesided.collectives.errors import PatternError
from onesided.collectives.modelling.loggp import LogGP
from onesided.collectives.trees import LARGEST_FIRST, steps

#: Messages of a hop beyond the first: the description and the request.
GAPS = 2


def hop(network: LogGP, nbytes: int) -> float:
    """Local. Seconds from one rank to a child of it, which has then seen the request."""
    sent = network.overhead + network.length(nbytes) + GAPS * network.gap
    return sent + network.latency + network.waiting


def binomial(network: LogGP, ranks: int, nbytes: int = 1, order: str = LARGEST_FIRST) -> float:
    """Local. Seconds until the root knows that all ranks have ``nbytes`` bytes.

    With one byte it is the LogP formula of the paper, with more the LogGP one.
    """
    _check(ranks, nbytes)
    hops = steps(ranks, order)
    if not hops:
        return 0.0
    return hops * hop(network, nbytes) + network.overhead + network.latency


def linear(network: LogGP, ranks: int, nbytes: int = 1) -> float:
    """Local. The same for Puts from the root to one rank after another."""
    _check(ranks, nbytes)
    others = ranks - 1
    if not others:
        return 0.0
    sent = network.overhead + (others - 1) * max(network.gap, network.overhead)
    there = sent + others * network.length(nbytes) + network.latency
    return there + network.overhead + network.latency


def crossover_bytes(network: LogGP, ranks: int, order: str = LARGEST_FIRST) -> float:
    """Local. The message length from which on the binomial broadcast is not slower.

    At least 1.0; infinite where the linear one is faster at any length, as with 2 ranks.
    """
    behind = binomial(network, ranks, 1, order) - linear(network, ranks, 1)
    if behind <= 0:
        return 1.0
    gained = (ranks - 1 - steps(ranks, order)) * network.byte_gap  # seconds per byte
    return 1.0 + behind / gained if gained > 0 else math.inf


def crossover_ranks(
    network: LogGP, nbytes: int, order: str = LARGEST_FIRST, most: int = 1024
) -> int | None:
    """Local. The least number of ranks from which on the binomial broadcast is not slower.

    Up to ``most`` ranks; None where the linear one is faster with ``most``.
    """
    least = None
    for ranks in range(most, 1, -1):
        if binomial(network, ranks, nbytes, order) > linear(network, ranks, nbytes):
            break
        least = ranks
    return least


def _check(ranks: int, nbytes: int) -> None:
    if ranks < 1 or nbytes < 0:
        raise PatternError(f"a broadcast of {nbytes} bytes to {ranks} ranks")


def _linear(network: LogGP, ranks: int, nbytes: int, order: str) -> float:
    return linear(network, ranks, nbytes)


#: Between nodes: parameters, number of nodes, bytes, order of the children; seconds.
_FORMULAS: dict[str, Callable[[LogGP, int, int, str], float]] = {
    "rma-linear": _linear,
    "rma-binomial": binomial,
}


def broadcast_formulas() -> dict[str, Callable[[LogGP, int, int, str], float]]:
    """Local. The formulas of broadcasts between nodes by method; not every method has one."""
    return dict(_FORMULAS)
