"""What one plan has measured, the next one knows: kernels, process grid, method and blocks."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import contextmanager
from unittest import mock

import numpy as np
import pytest
from cases import parameters
from errors import agreed

from onesided.collectives import UnsupportedError, registry
from onesided.collectives.tuning.race import Race
from onesided.pencilfft import PFFT, engine, legs, newDistArray, planner
from onesided.pencilfft.kernels import selection
from onesided.pencilfft.kernels.wisdom import Wisdom

pytestmark = pytest.mark.one_mpi

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


@contextmanager
def measured(comm):
    """A file that knows a plan, and what was chosen for it."""
    with wisdom_file(comm) as path:
        with plan_of(comm, path) as first:
            choice = first.choice
        comm.Barrier()
        yield path, choice


def case_a_plan_is_measured_once(comm):
    with measured(comm) as (path, choice):
        with open(path) as file:
            kept = json.load(file)["decisions"]
        assert any("PFFT(" in key for section in kept.values() for key in section)
        with unused(planner, "seconds_of"), plan_of(comm, path) as second:
            assert second.choice == choice
            works(comm, second)
        choices = comm.allgather(choice)
        assert all(each == choice for each in choices)


def case_a_method_of_the_environment_is_another_plan(comm):
    """It counts where wisdom knows better, and teaches nothing of plans without it."""
    with measured(comm) as (path, choice):
        for method in [name for name in ("p2p", "rma-fence") if name != choice.method]:
            with mock.patch.dict(os.environ, {registry.VARIABLE: f"exchange={method}"}):
                with plan_of(comm, path) as plan:
                    assert plan.choice.method == method or comm.size == 1
        comm.Barrier()
        with unused(planner, "seconds_of"), plan_of(comm, path) as again:
            assert again.choice == choice


def case_other_arguments_are_measured_anew(comm):
    with measured(comm) as (path, _):
        with watched(planner, "fastest") as fastest, plan_of(comm, path, dtype="f") as other:
            assert other.dtype(False) == np.float32
        assert fastest.called


@parameters(text=["", "[]", "{}", "no json", *GRIDS])
def case_what_makes_no_sense_is_measured_anew(comm, text):
    with measured(comm) as (path, _):
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


def case_ranks_with_different_wisdom_agree(comm):
    """Rank 0's counts: the others know another answer, or none."""
    with measured(comm) as (path, choice):
        own = path if comm.rank == 0 else f"{path}.{comm.rank}"
        with unused(planner, "seconds_of"), plan_of(comm, own) as plan:
            assert plan.choice == choice
            works(comm, plan)


@parameters(effort=["measure", "brief"])
def case_what_works_no_more_is_looked_for_anew(comm, effort):
    with measured(comm) as (path, choice):
        made, kept = [], planner.Planner.make

        def make(self, wanted):
            made.append(wanted)
            if len(made) == 1:
                raise UnsupportedError("not on this machine")
            return kept(self, wanted)

        with mock.patch.object(planner.Planner, "make", make):
            with plan_of(comm, path, effort=effort) as second:
                works(comm, second)
        assert made[0] == choice
        assert len(made) > 1


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


def case_an_estimate_measures_nothing(comm):
    with (
        wisdom_file(comm) as path,
        unused(planner, "seconds_of"),
        unused(selection, "measure"),
        unused(Race, "run"),
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
            unused(planner, "seconds_of"),
            unused(selection, "measure"),
            unused(planner.Planner, "make"),
        ):
            for _ in range(40):
                np.testing.assert_array_equal(plan.forward(u, u_hat), first[0])
                np.testing.assert_array_equal(plan.backward(u_hat), first[1])
        assert plan._execution.engine is engine


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
