"""What is measured when a plan is made: kernels, which the next one knows, grids and methods."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from unittest import mock

import numpy as np
import pytest
from cases import parameters
from errors import agreed

from onesided.collectives import UnsupportedError
from onesided.collectives.tuning import auto
from onesided.collectives.tuning.race import Race
from onesided.pencilfft import PFFT, engine, legs, newDistArray, planner
from onesided.pencilfft.kernels import selection
from onesided.pencilfft.kernels.wisdom import Wisdom

pytestmark = pytest.mark.one_mpi

SHAPE = (8, 9, 10)


@contextmanager
def wisdom_file(comm):
    """A path that all ranks know."""
    with tempfile.TemporaryDirectory(prefix="onesided-wisdom-") as own:
        yield os.path.join(comm.bcast(own), "wisdom.json")
        comm.Barrier()


def unused(place, name):
    """An error where it is called."""
    return mock.patch.object(place, name, side_effect=AssertionError(f"{name} was called"))


def watched(place, name):
    """What it is called with."""
    return mock.patch.object(place, name, wraps=getattr(place, name))


def works(comm, plan):
    source = newDistArray(plan, False)
    source[...] = np.random.default_rng(comm.rank).standard_normal(source.shape)
    back = plan.backward(plan.forward(source))
    assert np.allclose(back, source)


def plan_of(comm, path, **more):
    # wisdom of its own for every plan, as in another run
    words = {"grid": "auto", "effort": "measure"} | more
    return PFFT(comm, SHAPE, wisdom=path and Wisdom(path), **words)


def reasons(plan):
    """By what the methods of its transposes were chosen."""
    return {each.request.chosen_by for each in plan.transposes}


def case_grid_and_methods_are_measured_where_that_is_asked_for(comm):
    with watched(planner, "seconds_of") as tried, plan_of(comm, False) as plan:
        works(comm, plan)
        assert len(set(comm.allgather(plan.grid))) == 1
        assert reasons(plan) <= {auto.MEASURED, auto.RECALLED}
    assert tried.called or comm.size == 1


@parameters(effort=["estimate", "brief"])
def case_else_what_usually_wins_is_taken(comm, effort):
    with (
        unused(planner, "seconds_of"),
        unused(Race, "run"),
        plan_of(comm, False, effort=effort) as plan,
    ):
        works(comm, plan)
        assert reasons(plan) <= {auto.USUAL}


@parameters(failing=[1, 99])
def case_grids_that_do_not_work_are_left_out(comm, failing):
    if comm.size == 1:
        pytest.skip("one rank has one grid")
    kept, made = planner.Course.of, []

    def of(settings, comms):
        made.append(tuple(each.size for each in comms))
        if len(set(made)) <= failing:
            raise UnsupportedError("not on this machine")
        return kept(settings, comms)

    with mock.patch.object(planner.Course, "of", of):
        if failing == 1:
            with plan_of(comm, False) as plan:
                works(comm, plan)
                assert plan.grid != made[0]
        else:
            words = agreed(comm, UnsupportedError, lambda: plan_of(comm, False))
            assert "no process grid works here: not on this machine" in words


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

    with (
        mock.patch.object(planner, "array_in", fails),
        mock.patch.object(legs.Flight, "wait", failed),
    ):
        words = agreed(comm, MemoryError, lambda: PFFT(
            comm, SHAPE, grid="auto", effort="measure", wisdom=False))  # fmt: skip
    assert f"rank {comm.size - 1}: no room for this" in words
    with PFFT(comm, SHAPE) as plan:
        works(comm, plan)


def case_an_estimate_asks_no_file(comm):
    with (
        wisdom_file(comm) as path,
        unused(selection, "measure"),
        plan_of(comm, path, effort="estimate") as plan,
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
            unused(planner, "seconds_of"),
            unused(selection, "measure"),
            unused(planner, "build"),
        ):
            for _ in range(40):
                np.testing.assert_array_equal(plan.forward(u, u_hat), first[0])
                np.testing.assert_array_equal(plan.backward(u_hat), first[1])
        assert plan._execution.engine is engine


def case_the_default_measures_kernels_and_the_next_plan_knows_them(comm):
    with wisdom_file(comm) as path:
        for _ in range(9):  # in a few plans there is time for all kernels
            with (
                watched(selection, "measure") as measure,
                plan_of(comm, path, effort="brief") as again,
            ):
                works(comm, again)
            comm.Barrier()
            if not comm.allreduce(measure.call_count):
                break
        else:
            raise AssertionError("it never knows")


@parameters(what=["Pass", "prepare"])
def case_a_failure_on_one_rank_is_every_ranks(comm, what):
    place = engine if what == "Pass" else legs.Leg
    kept = getattr(place, what)

    def fail(*arguments, **words):
        if comm.rank == comm.size - 1:
            raise MemoryError("no more")
        return kept(*arguments, **words)

    with mock.patch.object(place, what, fail):
        text = agreed(comm, MemoryError, lambda: PFFT(comm, SHAPE, effort="estimate"))
    assert "no more" in text
    with PFFT(comm, SHAPE, effort="estimate") as plan:
        works(comm, plan)
