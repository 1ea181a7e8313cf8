"""What a program runs on: the processor, and how the ranks of a communicator lie on nodes.

Measurements hold for one processor; what is kept of them, or reported, names it.
"""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mpi4py import MPI


@cache
def processor() -> str:
    """Local. The processor's model, as the kernel names it."""
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1).strip() if found else platform.processor() or platform.machine()


@dataclass(frozen=True)
class Layout:
    """How the ranks of a communicator lie on nodes: ranks per node, in order of lowest rank."""

    ranks_per_node: tuple[int, ...]

    @classmethod
    def of(cls, comm: MPI.Comm) -> Layout:
        """Collective."""
        node = comm.Split_type(MPI.COMM_TYPE_SHARED, key=comm.rank)
        first = node.bcast(comm.rank)
        node.Free()
        firsts = comm.allgather(first)
        return cls(tuple(firsts.count(rank) for rank in sorted(set(firsts))))

    def __str__(self) -> str:
        nodes, ranks = len(self.ranks_per_node), sum(self.ranks_per_node)
        if nodes == 1:
            return f"1 node, {ranks} rank{'s' if ranks > 1 else ''}"
        per_node = sorted(set(self.ranks_per_node))
        span = f"{per_node[0]}" if len(per_node) == 1 else f"{per_node[0]} to {per_node[-1]}"
        return f"{nodes} nodes, {span} ranks each"
