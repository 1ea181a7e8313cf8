"""Local products y = A x: SciPy's and MKL's, on rows as they are or sorted by length."""
