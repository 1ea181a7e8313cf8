"""Persistent reductions: Reduce, Allreduce, Reduce_scatter, Scan, Exscan, and the Barrier."""
