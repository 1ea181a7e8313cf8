"""The cost formulas by method: the only place where one is chosen.

A new method is a class in ``formulas/`` and one line here.
"""

from __future__ import annotations

from collections.abc import Callable

from onesided.collectives.modelling.formulas.costs import Formula
from onesided.collectives.modelling.formulas.fence import (
    FenceHierarchyRound,
    FenceRound,
    PrintedFenceRound,
)
from onesided.collectives.modelling.formulas.lock import (
    LockHierarchyRound,
    LockRound,
    PrintedLockRound,
)
from onesided.collectives.modelling.formulas.notify import NotifyRound
from onesided.collectives.modelling.formulas.pscw import PscwRound
from onesided.collectives.modelling.formulas.two_sided import Collective, PointToPoint
from onesided.collectives.models import Network, binomial, linear

_FORMULAS: dict[str, Formula] = {
    "mpi": Collective(),
    "mpi-persistent": Collective(),
    "p2p": PointToPoint(),
    "rma-fence": FenceRound(),
    "rma-lock": LockRound(),
    "rma-notify": NotifyRound(),
    "rma-pscw": PscwRound(),
    "rma-fence-hier": FenceHierarchyRound(),
    "rma-lock-hier": LockHierarchyRound(),
    "rma-fence-paper": PrintedFenceRound(),
    "rma-lock-paper": PrintedLockRound(),
}


def formulas() -> dict[str, Formula]:
    """Local. The formulas by method, in the order of the methods' own registry."""
    return dict(_FORMULAS)


def _linear(network: Network, ranks: int, nbytes: int, order: str) -> float:
    return linear(network, ranks, nbytes)


#: Between nodes: parameters, number of nodes, bytes, order of the children; seconds.
_BROADCASTS: dict[str, Callable[[Network, int, int, str], float]] = {
    "rma-linear": _linear,
    "rma-binomial": binomial,
}


def broadcast_formulas() -> dict[str, Callable[[Network, int, int, str], float]]:
    """Local. The formulas of broadcasts between nodes by method; not every method has one."""
    return dict(_BROADCASTS)
