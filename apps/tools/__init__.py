"""Commands on one transform, one matrix, one MPI, and the benchmarks beside other libraries."""
