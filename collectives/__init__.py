"""Persistent collectives over one-sided communication: plan once, start many times."""

if __name__ == "collectives":  # imported from the source folder, not from the package
    raise ImportError("import onesided.collectives, not collectives", name="collectives")

from onesided.collectives.abort import abort_on_exception
from onesided.collectives.agreement import agree, agreed
from onesided.collectives.alltoall import Alltoallv_init, Alltoallw_init, Neighbor_alltoallv_init
from onesided.collectives.alternation import alternate
from onesided.collectives.broadcast.initialization import Bcast_init
from onesided.collectives.broadcast.registry import broadcast_methods
from onesided.collectives.broadcast.request import BroadcastRequest
from onesided.collectives.errors import (
    BroadcastError,
    MethodError,
    MismatchError,
    OnesidedError,
    PatternError,
    RequestError,
    ResourceError,
    UnsupportedError,
)
from onesided.collectives.halo.exchange import HaloExchange
from onesided.collectives.halo.face import Face
from onesided.collectives.memory import empty, free
from onesided.collectives.partitioned.init import Precv_init, Psend_init
from onesided.collectives.partitioned.receive import PartitionedReceive
from onesided.collectives.partitioned.registry import PartitionedMethod, partitioned_methods
from onesided.collectives.partitioned.request import PartitionedRequest
from onesided.collectives.partitioned.send import PartitionedSend
from onesided.collectives.passive.runtime import OneSidedBroadcast
from onesided.collectives.passive.windows import Extents, bcast_linear, extents_of
from onesided.collectives.registry import Method, methods
from onesided.collectives.request import PersistentRequest
from onesided.collectives.requests import Startall, Waitall

__all__ = [
    "Alltoallv_init",
    "Alltoallw_init",
    "Bcast_init",
    "BroadcastError",
    "BroadcastRequest",
    "Extents",
    "Face",
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
    "PersistentRequest",
    "Precv_init",
    "Psend_init",
    "RequestError",
    "ResourceError",
    "Startall",
    "UnsupportedError",
    "Waitall",
    "abort_on_exception",
    "agree",
    "agreed",
    "alternate",
    "bcast_linear",
    "broadcast_methods",
    "empty",
    "extents_of",
    "free",
    "methods",
    "partitioned_methods",
]
