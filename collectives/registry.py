"""The methods by name, of every operation: the only place where one is chosen.

A new method is one file with a transport, and one line here; every line runs the same conformance
tests. One from outside is registered by :func:`register`, or by an entry point of the group
``onesided.methods`` whose value names a function that calls it.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from onesided.collectives.errors import MethodError, likely

EXCHANGE, BROADCAST, REDUCTION = "exchange", "broadcast", "reduction"

#: Environment variable with the methods to take where a program leaves the choice to ``auto``:
#: ``exchange=p2p,reduction=rma-p2p``.
VARIABLE = "ONESIDED_METHOD"


@dataclass(frozen=True)
class Method:
    """A way of moving data: its name, what it guarantees, and where its transport is.

    ``where`` is ``module:class``, relative to this package where it begins with a dot.
    ``any_order``: ranks may start and complete requests of this method in different orders
    (MPI-4.1 section 7.13), and other ranks never wait for a call of this one; the others are
    strictly ordered. ``candidate``: ``auto`` considers it. ``chooses``: it is no transport, but a
    function that makes the request of another method.

    Examples
    --------
    >>> method = methods("reduction")["p2p"]
    >>> method.name, method.candidate
    ('p2p', True)
    """

    name: str
    where: str
    any_order: bool
    candidate: bool
    summary: str
    chooses: bool = False

    def load(self) -> Callable[..., Any]:
        """Local. The class of the transport; where it ``chooses``, the function."""
        module, _, name = self.where.partition(":")
        found: Callable[..., Any] = getattr(import_module(module, __package__), name)
        return found


# fmt: off
_METHODS: dict[str, dict[str, Method]] = {
    EXCHANGE: {method.name: method for method in (
        Method("mpi", ".transports.mpi:BlockingExchange", False, True, "MPI_Alltoallv, or what it is, at every start: the baseline"),
        Method("mpi-persistent", ".transports.mpi:PersistentExchange", True, True, "MPI_Alltoallv_init, or what it is, or MPI_Ialltoallv with cached arguments"),
        Method("p2p", ".transports.p2p:PointToPoint", True, True, "persistent sends and receives; works everywhere"),
        Method("rma-fence", ".transports.fence:Fence", False, True, "store on the node, Put off it, between fences (Algorithm 1)"),
        Method("rma-lock", ".transports.lock:Lock", True, False, "store or Put in a passive epoch held from init; ready and done messages"),
        Method("rma-notify", ".transports.notify:Notify", True, True, "store or Put, then a counter at the target"),
        Method("rma-p2p", ".transports.notify:StoreAndSend", True, True, "store and a counter on the node, persistent messages off it"),
        Method("rma-node", ".transports.node:NodeAware", True, True, "as rma-p2p, one message from a rank, or a node where short, to each other node"),
        Method("rma-fence-hier", ".transports.fence:FenceHierarchy", False, False, "as rma-fence, off-node Puts first (Algorithm 2)"),
        Method("rma-lock-hier", ".transports.lock:LockHierarchy", True, False, "as rma-lock, off-node Puts first"),
        Method("auto", ".tuning.auto:choose", True, False, "measures the candidates on the real pattern and keeps the best", True),
    )},
    BROADCAST: {method.name: method for method in (
        Method("mpi", ".broadcast.two_sided:Bcast", False, False, "MPI_Bcast at every start: the baseline"),
        Method("mpi-persistent", ".broadcast.two_sided:PersistentBcast", True, True, "MPI_Bcast_init, or MPI_Ibcast with cached arguments"),
        Method("p2p", ".broadcast.two_sided:PointToPoint", True, True, "persistent sends down a binomial tree; works everywhere"),
        Method("rma-linear", ".broadcast.one_sided:Linear", True, True, "the root stores on its node and Puts to every rank off it"),
        Method("rma-binomial", ".broadcast.one_sided:Binomial", True, True, "Put down a binomial tree of nodes, shared memory inside them"),
        Method("rma-pipelined", ".broadcast.one_sided:Pipelined", True, True, "as rma-binomial in segments that follow each other, down a chain where they are many"),
        Method("auto", ".tuning.auto:choose", True, False, "measures the candidates on the real size and memory and keeps the best", True),
    )},
    REDUCTION: {method.name: method for method in (
        Method("mpi", ".reduction.messages:BlockingReduction", False, True, "MPI's own, at every start: the baseline"),
        Method("mpi-persistent", ".reduction.messages:PersistentReduction", True, True, "MPI's own persistent one, or its nonblocking one with cached arguments"),
        Method("p2p", ".reduction.messages:PointToPoint", True, True, "persistent messages: recursive doubling, halving, trees; works everywhere"),
        Method("rma-p2p", ".reduction.shared:StoreAndSend", True, True, "counters and slots in shared memory on the node, persistent messages between nodes"),
        Method("auto", ".tuning.auto:choose", True, False, "measures the candidates on the real size and keeps the best", True),
    )},
}
# fmt: on


def register(method: Method, operation: str = EXCHANGE) -> None:
    """Local, the same on all ranks. Add a method of ``"exchange"``, ``"broadcast"`` or ``"reduction"``.

    Raises :class:`MethodError` where the name is taken, or there is no such operation.

    Examples
    --------
    >>> mine = Method("mine", ".transports.p2p:PointToPoint", any_order=True, candidate=False,
    ...               summary="as p2p")
    >>> register(mine)
    >>> with Alltoall_init(comm, np.zeros(comm.size), None, method="mine") as request:
    ...     request.method
    'mine'
    """
    known = _METHODS.get(operation)
    if known is None:
        raise MethodError(
            f"no operation {operation!r}{likely(operation, _METHODS)}; they are "
            f"{', '.join(_METHODS)}"
        )
    if known.setdefault(method.name, method) is not method:
        raise MethodError(f"there is a method {method.name!r} of {operation} already")


#: Those that have not been loaded; None before they have been looked for.
_entry_points: list[EntryPoint] | None = None
_loading = threading.RLock()  # what is loaded may ask for methods itself


def _load_entry_points() -> None:
    global _entry_points
    with _loading:
        if _entry_points is None:
            _entry_points = list(entry_points(group="onesided.methods"))
        while _entry_points:
            entry = _entry_points.pop(0)
            try:
                entry.load()()
            except Exception as error:  # others work without it
                words = f"methods of {entry.value} are not there: {type(error).__name__}: {error}"
                warnings.warn(words, RuntimeWarning, stacklevel=3)


def methods(operation: str = EXCHANGE) -> dict[str, Method]:
    """Local. The methods of ``"exchange"``, ``"broadcast"`` or ``"reduction"`` by name, in the order
    of the documentation.

    Examples
    --------
    >>> methods()["rma-notify"].any_order
    True
    >>> "rma-binomial" in methods("broadcast")
    True
    """
    _load_entry_points()
    return dict(_METHODS[operation])


def find(name: str, operation: str = EXCHANGE) -> Method:
    """Local. The method of this name; :class:`MethodError` lists the known ones."""
    known = methods(operation)
    if name not in known:
        raise MethodError(
            f"no method {name!r} of {operation}{likely(name, known)}; the methods are "
            f"{', '.join(known)}"
        )
    return known[name]


def wanted(name: str, operation: str = EXCHANGE) -> Method:
    """Local. As :func:`find`; where that leaves the choice to us, what the environment names
    (:data:`VARIABLE`) comes first."""
    method = find(name, operation)
    other = overruled().get(operation)
    return find(other, operation) if method.chooses and other is not None else method


def overruled() -> dict[str, str]:
    """Local. What :data:`VARIABLE` says: by operation the method to take."""
    text = os.environ.get(VARIABLE, "")
    found = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        operation, _, name = (each.strip() for each in part.partition("="))
        if operation not in _METHODS or not name:
            raise MethodError(
                f"{VARIABLE} says {part!r}{likely(operation, _METHODS)}, where OPERATION=METHOD "
                f"is wanted; operations are {', '.join(_METHODS)}"
            )
        found[operation] = name
    return found
