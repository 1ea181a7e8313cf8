"""mpi4py's own test programs for persistent collectives, unmodified, with our requests."""

from __future__ import annotations

import mpi_harness
import pytest
import released
from mpi_harness import TESTS

METHODS = ["rma-notify,rma-binomial,rma-p2p", "p2p"]


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    """The folder of mpi4py's tests, of the version that is installed."""
    version = released.installed_version("mpi4py", "mpi4py")
    return released.source("mpi4py", version, tmp_path_factory.mktemp("mpi4py"))


def run(programs, name, ranks, methods):
    file = f"test_cco_pr_{name}.py"
    assert (programs / file).is_file()
    program = TESTS / "programs" / "foreign_collectives.py"
    outcome = mpi_harness.run(program, ranks, str(programs), file, timeout=600.0,
                              env={"ONESIDED_METHODS": methods})
    assert outcome.kind == "pass", outcome.report()


@pytest.mark.some(3)
@pytest.mark.parametrize(("name", "ranks"), [
    ("buf", 1), ("vec", 2), ("ngh_buf", 1), ("buf", 2), ("vec", 1), ("ngh_buf", 2),
    *(pytest.param(name, n, marks=pytest.mark.full)
      for name in ("buf", "vec", "ngh_buf") for n in (3, 4, 5))])  # fmt: skip
def test_persistent_collectives(programs, name, ranks):
    run(programs, name, ranks, METHODS[0])


@pytest.mark.full
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", ["buf", "vec", "ngh_buf"])
def test_persistent_collectives_by_messages(programs, name, ranks):
    run(programs, name, ranks, METHODS[1])
