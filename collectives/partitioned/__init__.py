"""Partitioned sends: one message, filled and sent piece by piece (MPI-4.1 chapter 4)."""
