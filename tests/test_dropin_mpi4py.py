"""mpi4py's own test programs for persistent collectives, unmodified, with our requests."""

from __future__ import annotations

import os
from pathlib import Path

import mpi_harness
import pytest
from mpi_harness import TESTS

VARIABLE = "ONESIDED_MPI4PY_TESTS"


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", ["buf", "vec", "ngh_buf"])
def test_persistent_collectives(name, ranks):
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"{VARIABLE} does not name the folder of mpi4py's tests")
    program = TESTS / "programs" / "foreign_collectives.py"
    file = f"test_cco_pr_{name}.py"
    assert (Path(folder) / file).is_file()
    outcome = mpi_harness.run(program, ranks, folder, file, timeout=600.0)
    assert outcome.kind == "pass", outcome.report()
