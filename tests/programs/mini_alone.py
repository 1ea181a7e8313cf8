"""A command in which the last rank fails in the middle of a run, and no other does."""

from __future__ import annotations

import sys

from mpi4py import MPI

from onesided.apps.cli import failures
from onesided.apps.cli.main import main
from onesided.apps.miniapps.halos import TwoSided

failures.LONGEST_WAIT = 1.0
START = TwoSided.start
CALLS = iter(range(30))  # after which the rank fails


def failing(self, x):
    if MPI.COMM_WORLD.rank == MPI.COMM_WORLD.size - 1 and next(CALLS, None) is None:
        raise MemoryError("this rank fails")
    START(self, x)


TwoSided.start = failing
sys.exit(main(sys.argv[1:]))
