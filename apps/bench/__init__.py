"""How everything is measured, kept and compared: what all benchmarks share."""
