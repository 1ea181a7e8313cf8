"""Settings of pytest, which runs serially; what runs under MPI is launched by mpi_harness."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).resolve().parent))
os.environ.setdefault("ONESIDED_WISDOM", "off")  # nothing is left in the user's cache
os.environ.setdefault("ONESIDED_TUNING", "off")
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):  # many processes, but each file is compiled once
    os.environ["PYTHONPYCACHEPREFIX"] = tempfile.mkdtemp(prefix="onesided-compiled-")

import cluster
import mpi_harness
import servers

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
    parser.addoption(
        "--turn", type=int, default=int(time.time() // 86400), metavar="NUMBER",
        help="which of the tests and numbers of ranks that take turns are due (default: the day)",
    )  # fmt: skip


def _interrupt(number: int, frame: object) -> NoReturn:
    """Asked to end, pytest ends as by Ctrl-C: what runs is ended and tidied up."""
    raise KeyboardInterrupt


def pytest_configure(config: pytest.Config) -> None:
    signal.signal(signal.SIGTERM, _interrupt)
    config.addinivalue_line("markers", "full: takes long; only make test-all runs it")
    config.addinivalue_line("markers", "in_turn(n): of its parameters n are due; in full all are")


def pytest_unconfigure() -> None:
    folder = os.environ.get("PYTHONPYCACHEPREFIX", "")
    if "onesided-compiled-" in folder:
        shutil.rmtree(folder, ignore_errors=True)


def pytest_report_header(config: pytest.Config) -> str:
    return f"what takes turns: --turn {config.getoption('--turn')}"


def is_full(config: pytest.Config) -> bool:
    return config.getoption("--full") or os.environ.get("ONESIDED_TEST") == "all"


def due(length: int, number: int, turn: int) -> set[int]:
    """So many places of a list; the next turn goes on where this one ends."""
    return {(turn * number + place) % length for place in range(number)}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if is_full(config):
        return
    left_out = {item for item in items if "full" in item.keywords}
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item not in left_out and item.get_closest_marker("in_turn"):
            groups.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for group in groups.values():
        marker = group[0].get_closest_marker("in_turn")
        assert marker
        places = due(len(group), marker.args[0], config.getoption("--turn"))
        left_out |= {item for place, item in enumerate(group) if place not in places}
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session", autouse=True)
def _jobs_end_well():
    """The jobs that tests had in common end with the session, and must have left nothing."""
    yield
    outcomes = servers.SERVERS.close()
    if outcomes:
        pytest.fail("\n\n".join(outcome.report() for outcome in outcomes), pytrace=False)


@pytest.fixture
def run_cases(pytestconfig: pytest.Config):
    """``run_cases(module, ranks, ...)`` of ``servers``; in full nothing takes turns."""

    def run(
        *arguments: Any, among: Sequence[int] = (), share: int = 1, **options: Any
    ) -> list[dict[str, Any]]:
        if not is_full(pytestconfig):
            options |= {"among": among, "share": share, "turn": pytestconfig.getoption("--turn")}
        return servers.run_cases(*arguments, **options)

    return run


@pytest.fixture
def half(pytestconfig: pytest.Config):
    """``half(seeds)``: the half of a range that is due, in the next turn the other; in full all."""

    def half(seeds: range) -> range:
        middle, turn = len(seeds) // 2, pytestconfig.getoption("--turn")
        if is_full(pytestconfig):
            return seeds
        return seeds[middle:] if turn % 2 else seeds[:middle]

    return half


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
        reason = cluster.available()
        also = f"; no virtual nodes: {reason}" if reason else ""
        pytest.skip(f"only MPICH can split a node into cliques{also}")
    return Layout(ranks=4, env={"MPIR_CVAR_NUM_CLIQUES": "2", "MPIR_CVAR_CLIQUES_BY_BLOCK": "1"})


@pytest.fixture
def two_nodes(request: pytest.FixtureRequest) -> Layout:
    """Two nodes of two ranks: virtual ones, or cliques where those cannot be made; in full both."""
    return request.getfixturevalue(request.param)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "two_nodes" in metafunc.fixturenames:
        ways = ["cliques" if cluster.available() else "virtual_nodes"]
        ways = ["virtual_nodes", "cliques"] if is_full(metafunc.config) else ways
        metafunc.parametrize("two_nodes", ways, indirect=True)
