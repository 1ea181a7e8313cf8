"""Persistent collectives over one-sided communication: plan once, start many times."""

if __name__ == "collectives":  # imported from the source folder, not from the package
    raise ImportError("import onesided.collectives, not collectives", name="collectives")

from importlib.metadata import version

from onesided.collectives.agreement import agree, agreed
from onesided.collectives.broadcast.operation import Bcast_init
from onesided.collectives.errors import (
    BroadcastError,
    MethodError,
    MismatchError,
    MPIError,
    OnesidedError,
    PatternError,
    RequestError,
    ResourceError,
    UnsupportedError,
    abort_on_exception,
)
from onesided.collectives.exchange import ExchangeTransport
from onesided.collectives.exchanges import (
    Allgather_init,
    Allgatherv_init,
    Alltoall_init,
    Alltoallv_init,
    Alltoallw_init,
    Gather_init,
    Gatherv_init,
    Neighbor_allgather_init,
    Neighbor_allgatherv_init,
    Neighbor_alltoall_init,
    Neighbor_alltoallv_init,
    Neighbor_alltoallw_init,
    Scatter_init,
    Scatterv_init,
    alternate,
)
from onesided.collectives.halo.exchange import HaloExchange
from onesided.collectives.halo.faces import Face
from onesided.collectives.halo.grid import Grid
from onesided.collectives.memory import empty, free
from onesided.collectives.partitioned.channel import PartitionedMethod, partitioned_methods
from onesided.collectives.partitioned.request import (
    PartitionedReceive,
    PartitionedRequest,
    PartitionedSend,
    Precv_init,
    Psend_init,
)
from onesided.collectives.passive.runtime import OneSidedBroadcast
from onesided.collectives.passive.windows import Extents, bcast_linear, extents_of
from onesided.collectives.profiling import Profile, profile
from onesided.collectives.program import interpreter
from onesided.collectives.progress import (
    Get_status_all,
    Get_status_any,
    Get_status_some,
    Startall,
    Testall,
    Testany,
    Testsome,
    Waitall,
    Waitany,
    Waitsome,
)
from onesided.collectives.reduction.operation import (
    Allreduce_init,
    Barrier_init,
    Exscan_init,
    Reduce_init,
    Reduce_scatter_block_init,
    Reduce_scatter_init,
    Scan_init,
    Sums,
    sums,
)
from onesided.collectives.registry import Method, methods, register
from onesided.collectives.request import Request
from onesided.collectives.transport import Transport

__all__ = [
    "Allgather_init",
    "Allgatherv_init",
    "Allreduce_init",
    "Alltoall_init",
    "Alltoallv_init",
    "Alltoallw_init",
    "Barrier_init",
    "Bcast_init",
    "BroadcastError",
    "ExchangeTransport",
    "Exscan_init",
    "Extents",
    "Face",
    "Gather_init",
    "Gatherv_init",
    "Get_status_all",
    "Get_status_any",
    "Get_status_some",
    "Grid",
    "HaloExchange",
    "MPIError",
    "Method",
    "MethodError",
    "MismatchError",
    "Neighbor_allgather_init",
    "Neighbor_allgatherv_init",
    "Neighbor_alltoall_init",
    "Neighbor_alltoallv_init",
    "Neighbor_alltoallw_init",
    "OneSidedBroadcast",
    "OnesidedError",
    "PartitionedMethod",
    "PartitionedReceive",
    "PartitionedRequest",
    "PartitionedSend",
    "PatternError",
    "Precv_init",
    "Profile",
    "Psend_init",
    "Reduce_init",
    "Reduce_scatter_block_init",
    "Reduce_scatter_init",
    "Request",
    "RequestError",
    "ResourceError",
    "Scan_init",
    "Scatter_init",
    "Scatterv_init",
    "Startall",
    "Sums",
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
    "empty",
    "extents_of",
    "free",
    "interpreter",
    "methods",
    "partitioned_methods",
    "profile",
    "register",
    "sums",
]


def __getattr__(name: str) -> str:
    if name == "__version__":
        return version("onesided")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
