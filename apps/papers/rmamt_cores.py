"""Where threads run: the ranks of a host share its cores, each has its own.

Without this the system may wake a thread on the core where another rank waits busily, and a round
takes twice as long, or not, from one run to the next.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from mpi4py import MPI

from onesided.apps.cli.machine import boot

#: Open MPI binds ranks to single cores where there are few of them; with this it leaves them free.
FREE = ("PRTE_MCA_hwloc_default_binding_policy", "OMPI_MCA_hwloc_base_binding_policy")


def unbound(environment: Mapping[str, str]) -> dict[str, str]:
    """Local. Variables for a job whose launcher does not bind; what is set already stays."""
    return {name: "none" for name in FREE if name not in environment}


def share_cores(comm: MPI.Intracomm) -> None:
    """Collective. This process, and threads that it makes from now on, keep to a part of the cores.

    Nothing changes where a host has more ranks than cores, or where ranks are bound already.
    """
    mine = (boot(), sorted(os.sched_getaffinity(0)))
    everyone = comm.allgather(mine)
    beside = [rank for rank, (host, _) in enumerate(everyone) if host == mine[0]]
    usable = [everyone[rank][1] for rank in beside]
    share = part(usable, beside.index(comm.rank))
    if share:
        os.sched_setaffinity(0, share)


def part(usable: Sequence[Sequence[int]], place: int) -> list[int]:
    """Local. The cores of one rank of a host, of those that each of its ranks may use.

    Empty where it keeps what it has.
    """
    first, count = usable[0], len(usable)
    if any(each != first for each in usable) or len(first) < count:
        return []
    return list(first[place * len(first) // count : (place + 1) * len(first) // count])
