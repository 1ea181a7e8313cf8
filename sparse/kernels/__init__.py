"""Local products y = A x: compiled ones, SciPy's and MKL's."""
