"""PETSc's solvers on our matrices; the cases are in mpi/cases_petsc.py."""

from __future__ import annotations

import pytest


def test_petsc(run_cases):
    pytest.importorskip(
        "petsc4py", reason="`make test-petsc` has an environment with Debian's petsc4py"
    )
    run_cases("cases_petsc", 2)
