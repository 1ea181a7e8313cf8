"""A run that is killed while it writes leaves the last good step, and nothing for long."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import sys

import mpi_harness
import pytest
import servers
from mpi4py import MPI

sys.path.insert(0, str(mpi_harness.TESTS / "mpi"))

import io_events
from io_data import Blocks, files_in, files_of, new_folder, values

from onesided.pencilfft.io.hdf5 import HDF5File, consolidate

PROGRAM = mpi_harness.TESTS / "programs" / "io_faults.py"
SHAPE = (6, 5, 4)


class Alone:
    """A communicator of one that calls no MPI: for a process that was forked."""

    rank, size = 0, 1

    def allgather(self, value):
        return [value]

    def bcast(self, value):
        return value

    def Allreduce(self, send, receive, op):
        (given, *_), (found, *_) = send, receive
        found[...] = given

    def gather(self, value):
        return [value]

    def scatter(self, values):
        return values[0]


@pytest.fixture
def folder():
    path = new_folder()
    yield path
    shutil.rmtree(path)


def block(step):
    return Blocks.part_of(MPI.COMM_SELF, values(SHAPE, "f8", step))


def state(path, name, *candidates):
    """Which of these the file has, right to the last bit: a dict from steps to seeds of values."""
    file = HDF5File(path, comm=MPI.COMM_SELF)
    for steps in candidates:
        if file.steps(name) == sorted(steps) and all(
            holds(file, name, step, seed) for step, seed in steps.items()
        ):
            return steps
    raise AssertionError(f"{name} has steps {file.steps(name)}, which is none of {candidates}")


def holds(file, name, step, seed):
    found = Blocks.new(MPI.COMM_SELF, SHAPE)
    file.read(found, name, step)
    return found.is_part_of(values(SHAPE, "f8", seed))


def check_that_nothing_is_left(path):
    """After one more write every file in the folder is one that the main file needs."""
    HDF5File(path).write(99, {"u": [block(99)]})
    assert files_in(os.path.dirname(path)) == files_of(path)


def forked(action, last):
    """Do ``action`` in a process that is killed at the event ``last``; whether it was."""
    child = os.fork()
    if child == 0:
        try:
            io_events.Events(last)
            action()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def steps(path, *numbers, mode="a", name="u", seed=None):
    file = HDF5File(path, mode=mode, comm=Alone())
    for number in numbers:
        whole = values(SHAPE, "f8", number if seed is None else seed)
        array = Blocks.part_of(Alone(), whole)
        array.comm = None
        file.write(number, {name: [array]})


BEFORE = {0: 0, 1: 1}
ACTIONS = {
    # what is done, and the steps and seeds that are there when it is complete
    "first step": (lambda path: steps(path, 0), {0: 0}),
    "next step": (lambda path: steps(path, 2), {**BEFORE, 2: 2}),
    "same step": (lambda path: steps(path, 1, seed=7), {0: 0, 1: 7}),
    "begin anew": (lambda path: steps(path, 5, mode="w"), {5: 5}),
    "consolidate": (consolidate, BEFORE),
}


@pytest.mark.parametrize("stride", [11, pytest.param(1, marks=pytest.mark.full)])
@pytest.mark.parametrize("plain", [False, True], ids=["parts", "plain"])
@pytest.mark.parametrize("name", list(ACTIONS))
def test_killed_while_a_file_is_changed(folder, name, plain, stride):
    """Wherever it ends, the file is that of before or that of after."""
    action, after = ACTIONS[name]
    before = {} if name == "first step" else BEFORE
    ended = set()
    for last in range(0, 300, stride):
        path = f"{folder}/{last}/u.h5"
        os.mkdir(f"{folder}/{last}")
        steps(path, *before)
        if plain and before:
            consolidate(path)
        killed = forked(functools.partial(action, path), last)
        there = before
        if os.path.exists(path):
            there = state(path, "u", *filter(None, (before, after)))
        assert killed or there == after
        check_that_nothing_is_left(path)
        state(path, "u", {**there, 99: 99})
        ended.add(killed)
        if not killed:
            break
    assert not killed
    assert True in ended or (plain and name == "consolidate")  # which then has nothing to do


def killed(folder, victim, event, ranks=2):
    """What a job that was killed has left is right, and can be continued."""
    path = f"{folder}/u.h5"
    outcome = mpi_harness.run(PROGRAM, ranks, path, str(victim), str(event), timeout=40)
    assert outcome.kind in ("crash", "error"), outcome.report()
    assert "Traceback" not in outcome.stderr, outcome.report()
    there = state(path, "u", *({k: k for k in range(n)} for n in (2, 3, 4)))
    rolling = state(path, "rolling", {0: len(there) - 1}, {0: len(there) - 2})
    check_that_nothing_is_left(path)
    state(path, "u", {**there, 99: 99})
    state(path, "rolling", rolling)


def test_a_job_that_is_not_killed(folder):
    outcome = servers.run(PROGRAM, 2, f"{folder}/u.h5", "none", "-1", timeout=40)
    assert outcome.kind == "pass", outcome.report()
    assert outcome.stdout.count(" events") == 2


@pytest.mark.some(2)
@pytest.mark.parametrize(("victim", "event"), [(0, 2), (1, 4), ("all", 9), (0, 30)])
def test_a_rank_of_a_job_is_killed(folder, victim, event):
    killed(folder, victim, event)


@pytest.mark.full
@pytest.mark.parametrize("victim", [0, 1, 2, "all"])
@pytest.mark.parametrize("event", range(0, 60, 3))
def test_a_rank_of_a_job_is_killed_anywhere(folder, victim, event):
    killed(folder, victim, event, ranks=3)
