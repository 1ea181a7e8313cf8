"""One-dimensional transforms of lines that are distributed over all ranks."""
