"""What the environment says about the MPI job that this process belongs to.

Read before MPI is initialized: printing a usage message, or starting the job, needs no MPI.
"""

from __future__ import annotations

import os

# MPICH and its relatives; Open MPI; any launcher that speaks PMIx
RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")


def in_job() -> bool:
    """Local. True where a launcher has started this process as a rank."""
    return any(name in os.environ for name in RANK_VARIABLES)


def early_rank() -> int:
    """Local. This process's rank as the launcher told it; 0 outside a job."""
    for name in RANK_VARIABLES:
        if name in os.environ:
            return int(os.environ[name])
    return 0
