"""What one plan has measured, the next one knows: kernels, process grid, method and blocks."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import contextmanager

import numpy as np
import pytest
from cases import parameters
from io_data import same_error

from onesided.collectives import UnsupportedError
from onesided.collectives.tuning.race import Race
from onesided.pencilfft import PFFT, legs, newDistArray, planner
from onesided.pencilfft.kernels import selection
from onesided.pencilfft.kernels.wisdom import Wisdom

WAY = {"in_source": False, "in_target": False, "straight": False}
SHAPE = (8, 9, 10)

#: Choices for other ranks and axes.
GRIDS = [
    json.dumps({"grid": grid, "method": "p2p", "blocking": {"nbytes": 1 << 20} | WAY})
    for grid in ([97, 1, 1], [1, 1], [1, 1, 1, 1])
]


@contextmanager
def wisdom_file(comm):
    """A path that all ranks know."""
    with tempfile.TemporaryDirectory(prefix="onesided-wisdom-") as own:
        yield os.path.join(comm.bcast(own), "wisdom.json")
        comm.Barrier()


@contextmanager
def no_measuring():
    """An error where candidates are measured."""
    fastest = planner.fastest

    def refuse(comm, choices, make, size):
        if len(choices) > 1:
            raise AssertionError(f"measured: {choices}")
        return choices[0]

    planner.fastest = refuse
    try:
        yield
    finally:
        planner.fastest = fastest


@contextmanager
def patched(place, name, value):
    kept = getattr(place, name)
    setattr(place, name, value)
    try:
        yield kept
    finally:
        setattr(place, name, kept)


def refuse(*arguments, **words):
    raise AssertionError("measured")


def works(comm, plan):
    source = newDistArray(plan, False)
    source[...] = np.random.default_rng(comm.rank).standard_normal(source.shape)
    back = plan.backward(plan.forward(source))
    assert np.allclose(back, source)


def plan_of(comm, path, **more):
    # wisdom of its own for every plan, as in another run
    words = {"grid": "auto", "effort": "measure"} | more
    return PFFT(comm, SHAPE, wisdom=path and Wisdom(path), **words)


def case_a_plan_is_measured_once(comm):
    with wisdom_file(comm) as path:
        with plan_of(comm, path) as first:
            choice = first.choice
        comm.Barrier()
        with open(path) as file:
            kept = json.load(file)["decisions"]
        assert any("PFFT(" in key for section in kept.values() for key in section)
        with no_measuring(), plan_of(comm, path) as second:
            assert second.choice == choice
            works(comm, second)
        choices = comm.allgather(choice)
        assert all(each == choice for each in choices)


def case_other_arguments_are_measured_anew(comm):
    with wisdom_file(comm) as path:
        with plan_of(comm, path):
            pass
        comm.Barrier()
        measured = []
        fastest = planner.fastest

        def count(comm, choices, make, size):
            measured.append(len(choices))
            return fastest(comm, choices, make, size)

        planner.fastest = count
        try:
            with plan_of(comm, path, dtype=np.float32) as other:
                works_in_single_precision = other.dtype(False) == np.float32
        finally:
            planner.fastest = fastest
        assert measured
        assert works_in_single_precision


@parameters(text=["", "[]", "{}", "no json", *GRIDS])
def case_what_makes_no_sense_is_measured_anew(comm, text):
    with wisdom_file(comm) as path:
        with plan_of(comm, path):
            pass
        comm.Barrier()
        if comm.rank == 0:
            with open(path) as file:
                content = json.load(file)
            spoilt = 0
            for section in content["decisions"].values():
                for key in section:
                    if "PFFT(" in key:
                        section[key][0], spoilt = text, spoilt + 1
            assert spoilt == 1
            with open(path, "w") as file:
                json.dump(content, file)
        comm.Barrier()
        with plan_of(comm, path) as plan:
            works(comm, plan)


def case_without_wisdom_nothing_is_kept(comm):
    with wisdom_file(comm) as path:
        with PFFT(comm, SHAPE, grid="auto", wisdom=False):
            pass
        comm.Barrier()
        assert not os.path.exists(path)


def case_ranks_with_different_wisdom_agree(comm):
    """Rank 0's counts: the others know another answer, or none."""
    with wisdom_file(comm) as path:
        with plan_of(comm, path) as first:
            choice = first.choice
        comm.Barrier()
        own = path if comm.rank == 0 else f"{path}.{comm.rank}"
        with no_measuring(), plan_of(comm, own) as plan:
            assert plan.choice == choice
            works(comm, plan)


@parameters(effort=["measure", "brief"])
def case_what_works_no_more_is_looked_for_anew(comm, effort):
    with wisdom_file(comm) as path:
        with plan_of(comm, path) as first:
            choice = first.choice
        comm.Barrier()
        made = []

        def make(self, wanted):
            made.append(wanted)
            if len(made) == 1:
                raise UnsupportedError("not on this machine")
            return kept(self, wanted)

        with patched(planner.Planner, "make", make) as kept:
            with plan_of(comm, path, effort=effort) as second:
                works(comm, second)
        assert made[0] == choice
        assert len(made) > 1


@parameters(grid=["auto", None])
def case_only_what_was_measured_counts_as_measured(comm, grid):
    """A plan that was not tried teaches nothing of grids and methods."""
    with wisdom_file(comm) as path:
        with plan_of(comm, path, effort="brief", grid=grid) as first:
            for _ in range(9):
                works(comm, first)
        comm.Barrier()
        tried = []

        def seconds_of(*arguments):
            tried.append(1)
            return kept(*arguments)

        with patched(planner, "seconds_of", seconds_of) as kept:
            with plan_of(comm, path, grid=grid):
                pass
        assert tried or comm.size == 1


@parameters(where=["memory", "kernel"])
def case_an_error_of_one_rank_in_a_measurement_is_that_of_all(comm, where):
    """And what was made for it is given back."""
    if comm.size == 1:
        pytest.skip("one rank has one choice")
    last, wait, array_in = comm.rank == comm.size - 1, legs.Flight.wait, planner.array_in

    def fails(*arguments):
        if where == "memory" and last:
            raise MemoryError("no room for this")
        return array_in(*arguments)

    def failed(flight):
        error = wait(flight)
        return MemoryError("no room for this") if where == "kernel" and last else error

    with patched(planner, "array_in", fails), patched(legs.Flight, "wait", failed):
        words = same_error(
            comm, lambda: PFFT(comm, SHAPE, grid="auto", effort="measure", wisdom=False),
            MemoryError,
        )  # fmt: skip
    assert f"rank {comm.size - 1}: no room for this" in words
    with PFFT(comm, SHAPE) as plan:
        works(comm, plan)


def case_an_estimate_measures_nothing(comm):
    with (
        wisdom_file(comm) as path,
        patched(planner, "seconds_of", refuse),
        patched(selection, "measure", refuse),
        patched(Race, "run", refuse),
        PFFT(comm, SHAPE, grid="auto", effort="estimate", wisdom=Wisdom(path)) as plan,
    ):
        for _ in range(9):
            works(comm, plan)
        assert not os.path.exists(path)


@parameters(effort=["estimate", "brief", "measure"])
def case_a_plan_stays_as_it_was_made(comm, effort):
    """Equal calls give equal bits, and nothing is measured or made by them."""
    with plan_of(comm, False, effort=effort) as plan:
        u, u_hat = newDistArray(plan, False), newDistArray(plan)
        u[...] = np.random.default_rng(comm.rank).standard_normal(u.shape)
        engine = plan._execution.engine
        first = plan.forward(u, u_hat).copy(), plan.backward(u_hat).copy()
        with (
            patched(planner, "seconds_of", refuse),
            patched(selection, "measure", refuse),
            patched(planner.Planner, "make", refuse),
        ):
            for _ in range(40):
                np.testing.assert_array_equal(plan.forward(u, u_hat), first[0])
                np.testing.assert_array_equal(plan.backward(u_hat), first[1])
        assert plan._execution.engine is engine


def case_the_default_measures_kernels_only_and_the_next_plan_knows_them(comm):
    with wisdom_file(comm) as path:
        with patched(planner, "seconds_of", refuse), plan_of(comm, path, effort="brief") as plan:
            choice = plan.choice
        comm.Barrier()
        for _ in range(9):  # in a few plans there is time for all kernels
            measured = []

            def measure(*arguments, measured=measured):
                measured.append(1)
                return kept(*arguments)

            with patched(selection, "measure", measure) as kept:
                with plan_of(comm, path, effort="brief") as again:
                    assert again.choice == choice
                    works(comm, again)
            comm.Barrier()
            if not comm.allreduce(len(measured)):
                break
        else:
            raise AssertionError("it never knows")


@parameters(what=["Pass", "prepare"])
def case_a_failure_on_one_rank_is_every_ranks(comm, what):
    def fail(*arguments, **words):
        if comm.rank == comm.size - 1:
            raise MemoryError("no more")
        return kept(*arguments, **words)

    place = legs if what == "Pass" else legs.Leg
    with patched(place, what, fail) as kept:
        try:
            PFFT(comm, SHAPE, effort="estimate")
        except MemoryError as error:
            assert "no more" in str(error)
        else:
            raise AssertionError("it was made")
    with PFFT(comm, SHAPE, effort="estimate") as plan:
        works(comm, plan)
