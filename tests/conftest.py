"""Settings of pytest, which runs serially; what runs under MPI is launched by mpi_harness."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

import mpi4py
import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).resolve().parent))
os.environ.setdefault("ONESIDED_WISDOM", "off")  # nothing is left in the user's cache
os.environ.setdefault("ONESIDED_TUNING", "off")
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):  # many processes, but each file is compiled once
    os.environ["PYTHONPYCACHEPREFIX"] = tempfile.mkdtemp(prefix="onesided-compiled-")

import cluster
import mpi_harness
import mpi_items
import servers

# how long an example takes says nothing on a busy machine; every run has the same ones
settings.register_profile("onesided", deadline=None, derandomize=True)
settings.load_profile("onesided")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run the tests marked full, too")


def _interrupt(number: int, frame: object) -> NoReturn:
    """Asked to end, pytest ends as by Ctrl-C: what runs is ended and tidied up."""
    raise KeyboardInterrupt


def pytest_configure(config: pytest.Config) -> None:
    signal.signal(signal.SIGTERM, _interrupt)
    if all(Path(word.partition("::")[0]).name.startswith("cases_") for word in config.args):
        # only its jobs call MPI; alone, that of Debian would start a daemon, or end pytest
        mpi4py.rc.initialize = False
    config.pluginmanager.register(mpi_items.Outer(is_full(config)), "mpi-items")


def pytest_unconfigure() -> None:
    folder = os.environ.get("PYTHONPYCACHEPREFIX", "")
    if "onesided-compiled-" in folder:
        shutil.rmtree(folder, ignore_errors=True)


def is_full(config: pytest.Config) -> bool:
    return config.getoption("--full") or os.environ.get("ONESIDED_TEST") == "all"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if is_full(config):
        return
    left_out = {item for item in items if "full" in item.keywords}
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item not in left_out and item.get_closest_marker("some"):
            groups.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, group in groups.items():
        marker = group[0].get_closest_marker("some")
        assert marker
        left_out |= set(group) - set(random.Random(name).sample(group, marker.args[0]))
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
def mpi_name() -> str:
    """mpich or openmpi: the MPI that the tests run with."""
    return mpi_harness.mpi_name()


@pytest.fixture
def virtual_nodes() -> None:
    """Virtual nodes, each with memory and network of its own, can be made here."""
    reason = cluster.available()
    if reason:
        pytest.skip(f"no virtual nodes: {reason}")
