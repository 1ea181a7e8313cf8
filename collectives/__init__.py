"""Persistent collectives over one-sided communication: plan once, start many times."""

if __name__ == "collectives":  # imported from the source folder, not from the package
    raise ImportError("import onesided.collectives, not collectives", name="collectives")

from onesided.collectives.agreement import agree, agreed
from onesided.collectives.alltoall import Alltoallv_init, Alltoallw_init, Neighbor_alltoallv_init
from onesided.collectives.broadcast.operation import Bcast_init
from onesided.collectives.errors import (
    BroadcastError,
    MethodError,
    MismatchError,
    OnesidedError,
    PatternError,
    RequestError,
    ResourceError,
    UnsupportedError,
    abort_on_exception,
)
from onesided.collectives.halo.exchange import HaloExchange
from onesided.collectives.halo.faces import Face
from onesided.collectives.halo.grid import Grid
from onesided.collectives.memory import empty, free
from onesided.collectives.partitioned.channel import PartitionedMethod, partitioned_methods
from onesided.collectives.partitioned.init import Precv_init, Psend_init
from onesided.collectives.partitioned.request import (
    PartitionedReceive,
    PartitionedRequest,
    PartitionedSend,
)
from onesided.collectives.passive.runtime import OneSidedBroadcast
from onesided.collectives.passive.windows import Extents, bcast_linear, extents_of
from onesided.collectives.program import interpreter
from onesided.collectives.progress import (
    Startall,
    Testall,
    Testany,
    Testsome,
    Waitall,
    Waitany,
    Waitsome,
)
from onesided.collectives.registry import Method, broadcast_methods, methods, register
from onesided.collectives.request import Request, alternate
from onesided.collectives.transport import Transport

__all__ = [
    "Alltoallv_init",
    "Alltoallw_init",
    "Bcast_init",
    "BroadcastError",
    "Extents",
    "Face",
    "Grid",
    "HaloExchange",
    "Method",
    "MethodError",
    "MismatchError",
    "Neighbor_alltoallv_init",
    "OneSidedBroadcast",
    "OnesidedError",
    "PartitionedMethod",
    "PartitionedReceive",
    "PartitionedRequest",
    "PartitionedSend",
    "PatternError",
    "Precv_init",
    "Psend_init",
    "Request",
    "RequestError",
    "ResourceError",
    "Startall",
    "Testall",
    "Testany",
    "Testsome",
    "Transport",
    "UnsupportedError",
    "Waitall",
    "Waitany",
    "Waitsome",
    "abort_on_exception",
    "agree",
    "agreed",
    "alternate",
    "bcast_linear",
    "broadcast_methods",
    "empty",
    "extents_of",
    "free",
    "interpreter",
    "methods",
    "partitioned_methods",
    "register",
]
