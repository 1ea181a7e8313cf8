"""What LogP and LogGP predict for the contestants of ``onesided bench broadcast``; no MPI calls.

Methods that share memory inside a node send between nodes only: the binomial tree has as many
ranks as there are nodes, and the linear one the root and the ranks off its node. Where that is one
rank there is nothing to predict. The other two send to every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from onesided.apps.broadcasters import BINOMIAL, LINEAR, ONE_SIDED, PASSIVE
from onesided.apps.network import WITH_FLAG
from onesided.collectives.modelling.broadcasts import binomial, linear
from onesided.collectives.modelling.loggp import LogGP
from onesided.collectives.trees import LARGEST_FIRST

FAR = 1 << 30  # bytes; the models are straight lines over the length
MOST = 128  # ranks


@dataclass(frozen=True)
class Forecast:
    """``networks``: parameters by method; ``nodes``: by rank of the job, a number of its node."""

    networks: Mapping[str, LogGP]
    nodes: Sequence[int]

    def time(self, method: str, order: str, ranks: int, nbytes: int) -> float | None:
        """Local. Seconds of a broadcast among the first ``ranks``; None where no model applies."""
        rule = _RULES.get(method)
        network = None if rule is None else self.networks.get(rule.parameters)
        if rule is None or network is None:
            return None
        taking_part = rule.ranks([self._node(rank) for rank in range(ranks)])
        return None if taking_part < 2 else rule.time(network, taking_part, nbytes, order)

    def covers(self, method: str, other: str, ranks: int) -> bool:
        """Local. Whether there is a model of both methods on so many ranks."""
        times = [self.time(name, LARGEST_FIRST, ranks, 1) for name in (method, other)]
        return None not in times

    def spreads(self, method: str) -> bool:
        """Local. Whether each rank is a node of its own, or the method takes it for one."""
        return _RULES[method].everywhere or len(set(self.nodes)) == len(self.nodes)

    def crossover_bytes(self, method: str, order: str, other: str, ranks: int) -> float | None:
        """Local. The length from which on ``method`` is not slower than ``other``, if any is."""
        ahead = [self._ahead(method, order, other, ranks, nbytes) for nbytes in (1, FAR)]
        if ahead[0] is None or ahead[1] is None:
            return None
        near, far = ahead[0], ahead[1]
        if near >= 0:
            return 1.0 if far >= 0 else None
        slope = (far - near) / (FAR - 1)
        return 1.0 - near / slope if slope > 0 else None

    def crossover_ranks(self, method: str, order: str, other: str, nbytes: int) -> int | None:
        """Local. The least number of ranks from which on it is so, up to :data:`MOST`.

        Ranks beyond the job are taken to be nodes of their own, as is right where all others are;
        None where they are not.
        """
        if not self.spreads(method):
            return None
        least = None
        for ranks in range(MOST, 1, -1):
            ahead = self._ahead(method, order, other, ranks, nbytes)
            if ahead is None or ahead < 0:
                break
            least = ranks
        return least

    def _ahead(self, method: str, order: str, other: str, ranks: int, nbytes: int) -> float | None:
        mine, theirs = (
            self.time(method, order, ranks, nbytes),
            self.time(other, "", ranks, nbytes),
        )
        return None if mine is None or theirs is None else theirs - mine

    def _node(self, rank: int) -> int:
        return self.nodes[rank] if rank < len(self.nodes) else rank


@dataclass(frozen=True)
class _Rule:
    """Whose parameters hold for a method, which formula, and how many ranks it counts."""

    parameters: str
    time: Callable[[LogGP, int, int, str], float]
    ranks: Callable[[Sequence[int]], int]
    everywhere: bool = False


def _linear(network: LogGP, ranks: int, nbytes: int, order: str) -> float:
    """One message to each rank; opening and closing the epoch is o_r."""
    return linear(network, ranks, nbytes) + network.waiting


def _flagged(network: LogGP, ranks: int, nbytes: int, order: str) -> float:
    """Data and a flag to each rank, and the ranks wait for it actively: o_r, once."""
    return _linear(replace(network, gap=WITH_FLAG * network.gap), ranks, nbytes, order)


def _off_node(nodes: Sequence[int]) -> int:
    return 1 + sum(node != nodes[0] for node in nodes)


def _of_nodes(nodes: Sequence[int]) -> int:
    return len(set(nodes))


_RULES = {
    LINEAR: _Rule(BINOMIAL, _flagged, _off_node),
    BINOMIAL: _Rule(BINOMIAL, binomial, _of_nodes),
    ONE_SIDED: _Rule(ONE_SIDED, _linear, len, everywhere=True),
    PASSIVE: _Rule(PASSIVE, binomial, len, everywhere=True),
}
