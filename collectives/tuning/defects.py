"""What is known to be wrong with an MPI library, and what this package does about it.

All of it was observed with the versions named, or is in the library's public list of issues.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mpi4py import MPI

Version = tuple[int, int, int]


@dataclass(frozen=True)
class Defect:
    """A defect of one library, from the first to the last version known to have it.

    ``corrupts`` has the methods that would hand out wrong data because of it: ``auto`` never takes
    them there.
    """

    vendor: str
    first: Version
    last: Version
    what: str
    here: str
    corrupts: tuple[str, ...] = ()


_KNOWN: dict[tuple[str, Version, Version], tuple[tuple[Any, ...], ...]] = {
    ("MPICH", (5, 0, 0), (5, 0, 2)): (
        ("a Put outside the target's window corrupts memory in silence",
         "ranges are checked at initialization"),
        ("MPI_Alltoallv_init truncates blocks in silence where counts do not match",
         "counts are compared at initialization"),
        ("an active persistent request can be freed without an error",
         "Free refuses on an active request"),
        ("no more than 2046 windows and communicators at a time",
         "a clear error names the limit"),
        ("a job in which a rank left early with code 0 counts as a success",
         "the tests count ranks that came to the end"),
        ("a segment of 4 MB stays in /dev/shm after every job that was killed",
         "remove mpich_shm_* files by hand"),
        ("four ranks do not start where /dev/shm has 16 MB",
         "give a container more, by --shm-size"),
        ("a probe on MPI_COMM_SELF drives no progress for other ranks",
         "waiting ranks probe the communicator of the request"),
    ),
    ("MPICH", (4, 0, 0), (4, 1, 2)): (
        ("a persistent collective may send the data of its initialization (issue 7078)",
         "auto does not take mpi-persistent", ("mpi-persistent",)),
    ),
    ("Open MPI", (4, 0, 0), (4, 1, 99)): (
        ("windows on user memory may fail: no one-sided component (issue 9871)",
         "use p2p; onesided doctor tells"),
    ),
    ("Open MPI", (5, 0, 0), (5, 0, 11)): (
        ("partitioned communication corrupts data from the second round on (issue 12328)",
         "it is not used"),
        ("a persistent collective crashes once its communicator is freed",
         "requests keep a communicator of their own"),
        ("counts above 2**31 - 1 are refused (MPI 3.1 interface)",
         "large blocks are split or given as larger types"),
        ("freeing a window with an open epoch gives no error",
         "requests close their epochs first"),
        ("osc/rdma over OFI crashes with several ranks on a node (issue 14203)",
         "choose another one-sided component, or p2p"),
        ("Puts of strided data travel element by element off the node",
         "blocks are packed before they leave the node"),
        ("Cartesian neighbor collectives swap the sides on a periodic axis of extent 1 or 2",
         "mpi and mpi-persistent refuse such a grid"),
    ),
}

DEFECTS = tuple(
    Defect(vendor, first, last, *words)
    for (vendor, first, last), known in _KNOWN.items()
    for words in known
)


def known_defects(vendor: str, version: Version) -> list[Defect]:
    return [
        each for each in DEFECTS if each.vendor == vendor and each.first <= version <= each.last
    ]


def library() -> tuple[str, Version]:
    """Local. Name and version of the MPI library of this job."""
    return MPI.get_vendor()


def corrupting() -> frozenset[str]:
    """Local. The methods that hand out wrong data with this library."""
    return frozenset(name for each in known_defects(*library()) for name in each.corrupts)
