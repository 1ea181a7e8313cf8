"""Settings of pytest, which runs serially; what runs under MPI is launched by mpi_harness."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).resolve().parent))
os.environ.setdefault("ONESIDED_WISDOM", "off")  # nothing is left in the user's cache
os.environ.setdefault("ONESIDED_TUNING", "off")
os.environ.setdefault("ONESIDED_MODEL", "off")

import cluster
import mpi_harness

# how long an example takes says nothing on a busy machine
settings.register_profile("onesided", deadline=None, print_blob=True)
settings.load_profile("onesided")


@dataclass(frozen=True)
class Layout:
    """Where the ranks of a run live: keyword arguments for ``run`` and ``run_cases``."""

    ranks: int
    nodes: int = 1
    env: dict[str, str] = field(default_factory=dict)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run the tests marked full, too")


def _interrupt(number: int, frame: object) -> NoReturn:
    """Asked to end, pytest ends as by Ctrl-C: what runs is ended and tidied up."""
    raise KeyboardInterrupt


def pytest_configure(config: pytest.Config) -> None:
    signal.signal(signal.SIGTERM, _interrupt)
    config.addinivalue_line("markers", "full: takes long; only make test-all runs it")


def is_full(config: pytest.Config) -> bool:
    return config.getoption("--full") or os.environ.get("ONESIDED_TEST") == "all"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if is_full(config):
        return
    chosen = [item for item in items if "full" not in item.keywords]
    config.hook.pytest_deselected(items=[item for item in items if "full" in item.keywords])
    items[:] = chosen


@pytest.fixture(scope="module", autouse=True)
def _jobs_end_well():
    """The jobs that a test file's cases had in common end with it, and must have left nothing."""
    yield
    outcomes = mpi_harness.close_servers()
    if outcomes:
        pytest.fail("\n\n".join(outcome.report() for outcome in outcomes), pytrace=False)


@pytest.fixture
def run_cases(pytestconfig: pytest.Config):
    """``run_cases(module, ranks, ...)`` of mpi_harness; ``among`` does not count in full."""

    def run(*arguments: Any, among: Sequence[int] = (), **options: Any) -> list[dict[str, Any]]:
        among = () if is_full(pytestconfig) else among
        return mpi_harness.run_cases(*arguments, among=among, **options)

    return run


@pytest.fixture
def mpi_name() -> str:
    """mpich or openmpi: the MPI that the tests run with."""
    return mpi_harness.mpi_name()


@pytest.fixture
def virtual_nodes() -> Layout:
    """Two virtual nodes of two ranks each, each with memory and network of its own."""
    reason = cluster.available()
    if reason:
        pytest.skip(f"no virtual nodes: {reason}")
    return Layout(ranks=4, nodes=2)


@pytest.fixture
def cliques() -> Layout:
    """Two groups of two ranks that MPICH keeps apart as if they were nodes."""
    if mpi_harness.mpi_name() != "mpich":
        pytest.skip("only MPICH can split a node into cliques")
    return Layout(ranks=4, env={"MPIR_CVAR_NUM_CLIQUES": "2", "MPIR_CVAR_CLIQUES_BY_BLOCK": "1"})


@pytest.fixture(params=["virtual_nodes", "cliques"])
def two_nodes(request: pytest.FixtureRequest) -> Layout:
    """Both ways of having two nodes of two ranks."""
    return request.getfixturevalue(request.param)
