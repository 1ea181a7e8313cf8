"""The ways of broadcasting by name, as :mod:`..registry` has those of the exchange.

A new one is one new file in ``transports/`` and one line here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onesided.collectives.registry import Method, choose

if TYPE_CHECKING:
    from onesided.collectives.broadcast.request import BroadcastRequest

# fmt: off
_METHODS: tuple[Method[BroadcastRequest], ...] = (
    Method("mpi", "broadcast.transports.mpi:Bcast", False, False, "MPI_Bcast at every start: the baseline"),
    Method("mpi-persistent", "broadcast.transports.mpi_persistent:PersistentBcast", True, True, "MPI_Bcast_init, or MPI_Ibcast with cached arguments"),
    Method("p2p", "broadcast.transports.p2p:PointToPoint", True, True, "persistent sends down a binomial tree; works everywhere"),
    Method("rma-linear", "broadcast.transports.linear:Linear", True, True, "the root stores on its node and Puts to every rank off it"),
    Method("rma-binomial", "broadcast.transports.binomial:Binomial", True, True, "Put down a binomial tree of nodes, shared memory inside them"),
    Method("rma-pipelined", "broadcast.transports.pipelined:Pipelined", True, True, "as rma-binomial in segments that follow each other, down a chain where they are many"),
    Method("auto", "broadcast.transports.auto:Auto", True, False, "measures the candidates on the real size and memory and keeps the best"),
)
# fmt: on


def broadcast_methods() -> dict[str, Method[BroadcastRequest]]:
    """Local. The methods of :func:`Bcast_init` by name, in the order of the documentation."""
    return {method.name: method for method in _METHODS}


def find(name: str) -> Method[BroadcastRequest]:
    """Local. The method of this name; :class:`MethodError` lists the known ones."""
    return choose(name, broadcast_methods())
