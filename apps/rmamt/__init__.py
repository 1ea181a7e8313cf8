"""Multi-threaded one-sided micro-benchmarks, as in paper 002 (RMA-MT)."""
