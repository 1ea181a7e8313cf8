"""Persistent collectives over one-sided communication: plan once, start many times."""

if __name__ == "collectives":  # imported from the source folder, not from the package
    raise ImportError("import onesided.collectives, not collectives", name="collectives")

from .abort import abort_on_exception
from .agreement import agree, agreed
from .alltoall import Alltoallv_init, Alltoallw_init, Neighbor_alltoallv_init
from .errors import (
    MethodError,
    MismatchError,
    OnesidedError,
    PatternError,
    RequestError,
    ResourceError,
    UnsupportedError,
)
from .memory import empty, free
from .registry import Method, methods
from .request import PersistentRequest, Startall, Waitall

__all__ = [
    "Alltoallv_init",
    "Alltoallw_init",
    "Method",
    "MethodError",
    "MismatchError",
    "Neighbor_alltoallv_init",
    "OnesidedError",
    "PatternError",
    "PersistentRequest",
    "RequestError",
    "ResourceError",
    "Startall",
    "UnsupportedError",
    "Waitall",
    "abort_on_exception",
    "agree",
    "agreed",
    "empty",
    "free",
    "methods",
]
