"""The transports by name: the only place where a method is chosen.

A new transport is one new file in ``transports/`` and one line here; every line runs the same
conformance tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Generic, TypeVar

from onesided.collectives.errors import MethodError

if TYPE_CHECKING:
    from onesided.collectives.persistent import Persistent
    from onesided.collectives.request import PersistentRequest

R = TypeVar("R", bound="Persistent")


@dataclass(frozen=True)
class Method(Generic[R]):
    """A transport: its name, what it guarantees, and where its class is.

    ``any_order``: ranks may start and complete requests of this method in different orders
    (MPI-4.1 section 7.13); the others are strictly ordered. ``candidate``: ``auto`` considers it.
    """

    name: str
    where: str
    any_order: bool
    candidate: bool
    summary: str

    def load(self) -> type[R]:
        """Local. The transport's class."""
        module, _, name = self.where.partition(":")
        found: type[R] = getattr(import_module(f"onesided.collectives.{module}"), name)
        return found


# fmt: off
_METHODS: tuple[Method[PersistentRequest], ...] = (
    Method("mpi", "transports.mpi:Alltoall", False, True, "MPI_Alltoallv at every start: the baseline"),
    Method("mpi-persistent", "transports.mpi_persistent:PersistentAlltoall", True, True, "MPI_Alltoallv_init, or MPI_Ialltoallv with cached arguments"),
    Method("p2p", "transports.p2p:PointToPoint", True, True, "persistent sends and receives; works everywhere"),
    Method("rma-fence", "transports.fence:Fence", False, True, "store on the node, Put off it, between fences (Algorithm 1)"),
    Method("rma-lock", "transports.lock:Lock", True, True, "store or Put in a passive epoch held from init; ready and done messages"),
    Method("rma-notify", "transports.notify:Notify", True, True, "store or Put, then a counter at the target"),
    Method("rma-pscw", "transports.pscw:Pscw", True, True, "post, start, complete, wait among the ranks that exchange data"),
    Method("rma-fence-hier", "transports.fence:FenceHierarchy", False, False, "as rma-fence, off-node Puts first (Algorithm 2)"),
    Method("rma-lock-hier", "transports.lock:LockHierarchy", True, False, "as rma-lock, off-node Puts first"),
    Method("rma-fence-paper", "transports.paper:FencePaper", False, False, "Algorithm 1 as printed: Put of every block into a created window"),
    Method("rma-lock-paper", "transports.paper:LockPaper", False, False, "Algorithm 3 with both barriers, on a created window"),
    Method("auto", "transports.auto:Auto", True, False, "measures the candidates on the real pattern and keeps the best"),
)
# fmt: on


def methods() -> dict[str, Method[PersistentRequest]]:
    """Local. The registered transports by name, in the order of the documentation."""
    return {method.name: method for method in _METHODS}


def find(name: str) -> Method[PersistentRequest]:
    """Local. The transport of this name; :class:`MethodError` lists the known ones."""
    return choose(name, methods())


def choose(name: str, known: Mapping[str, Method[R]]) -> Method[R]:
    """Local. The method of this name; :class:`MethodError` lists the known ones."""
    if name not in known:
        raise MethodError(f"no method {name!r}; the methods are {', '.join(known)}")
    return known[name]
