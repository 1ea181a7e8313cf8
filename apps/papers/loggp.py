"""What a broadcast costs in the LogP and LogGP models: paper 003, section 3; no MPI.

LogGP is of Alexandrov, Ionescu, Schauser, Scheiman 1995. The paper gives the binomial broadcast
``(o + 2q + L + o_r) log2(P) + o_s + L`` in LogP, and
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
from dataclasses import dataclass

from onesided.collectives import PatternError
from onesided.collectives.trees import LARGEST_FIRST, steps

#: Messages of a hop beyond the first: the description and the request.
GAPS = 2


@dataclass(frozen=True)
class LogGP:
    """The parameters of LogGP in seconds; LogP is LogGP for messages of one byte.

    ``latency`` is L, ``overhead`` o (of sending or receiving a message), ``gap`` g (the least time
    between two messages of a rank), ``byte_gap`` G (that between two bytes of a message), and
    ``waiting`` o_r: how long it takes a rank that waits actively to see a request (paper 003).
    """

    latency: float
    overhead: float
    gap: float
    byte_gap: float = 0.0
    waiting: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < math.inf:
                raise PatternError(f"{name} is {value!r}, not a time in seconds")

    def length(self, nbytes: int) -> float:
        """Local. Seconds between the first byte of a message and its last: (m - 1)G."""
        return max(nbytes - 1, 0) * self.byte_gap


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


def _check(ranks: int, nbytes: int) -> None:
    if ranks < 1 or nbytes < 0:
        raise PatternError(f"a broadcast of {nbytes} bytes to {ranks} ranks")
