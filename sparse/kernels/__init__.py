"""Local products y = A x: compiled ones, and SciPy's."""
