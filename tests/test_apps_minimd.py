"""``onesided minimd``: the problem, its input, lists, and forces."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

import numpy as np
import pytest

from onesided.apps.cli.failures import CommandError
from onesided.apps.miniapps.minimd import (
    Output,
    check_energy,
    degrees,
    differing,
    lattice,
    runs_of,
)
from onesided.apps.miniapps.minimd_atoms import Problem
from onesided.apps.miniapps.minimd_kernels import RUN, Cells, Kernel, load

#: The potential energy of an atom of the lattice, and the pressure with 4,000 atoms, as other
#: programs print them for the same problem.
LATTICE_ENERGY, PRESSURE = -6.7733681, -5.0199732


@pytest.fixture(params=["numpy", "numba"])
def kernel(request):
    """What makes one of a problem."""
    if request.param == "numpy":
        return Kernel
    pytest.importorskip("numba")
    return load


def atoms_with_images(problem, disorder, seed=1):
    """Own positions, and those with all periodic images within reach."""
    lengths = np.array(problem.lengths)
    x, _ = lattice(problem, [slice(0, count) for count in problem.halves])
    draw = np.random.default_rng(seed)
    own = (x + disorder * draw.standard_normal(x.shape)) % lengths[:, None]
    every = own
    for axis in range(3):
        low = every[:, every[axis] < problem.reach].copy()
        high = every[:, every[axis] >= lengths[axis] - problem.reach].copy()
        low[axis] += lengths[axis]
        high[axis] -= lengths[axis]
        every = np.concatenate([every, low, high], axis=1)
    return own, np.ascontiguousarray(every), lengths


def folded(problem, own, every, forces):
    """Forces on own atoms with those on their images."""
    lengths = np.array(problem.lengths)[:, None]
    places = {tuple(np.round(place, 6)): number for number, place in enumerate(own.T)}
    total = np.zeros_like(own)
    for place, force in zip((every % lengths).T, forces.T, strict=True):
        key = tuple(np.round(place, 6))
        if key not in places:  # at the upper end, by rounding
            key = min(places, key=lambda one: np.abs(np.subtract(one, key)).max())
        total[:, places[key]] += force
    return total


def by_all_pairs(problem, own):
    """Energy, virial, pairs and forces by the nearest images of all pairs."""
    lengths = np.array(problem.lengths)[:, None, None]
    apart = own[:, :, None] - own[:, None, :]
    apart -= lengths * np.round(apart / lengths)
    squares = (apart**2).sum(axis=0)
    np.fill_diagonal(squares, np.inf)
    near = squares < problem.cutoff**2
    sixths = np.where(near, (problem.sigma**2 / squares) ** 3, 0.0)
    weights = 48.0 * problem.epsilon * sixths * (sixths - 0.5) / squares
    forces = (apart * weights).sum(axis=2)
    energy = 2.0 * problem.epsilon * (sixths * (sixths - 1.0)).sum()
    return energy, 0.5 * (weights[near] * squares[near]).sum(), near.sum() // 2, forces


@pytest.mark.parametrize(
    ("changes", "disorder"),
    [
        ({}, 0.0),
        ({}, 0.1),
        ({"cells": (4, 5, 6), "epsilon": 0.7, "sigma": 1.1}, 0.1),
        ({"cells": (5, 4, 4), "cutoff": 2.0, "skin": 0.0}, 0.2),
        ({"cells": (3, 3, 3), "density": 0.05}, 0.3),
    ],
)
def test_forces_are_those_of_all_pairs(kernel, changes, disorder):
    problem = replace(Problem(cells=(4, 4, 4)), **changes)
    own, every, lengths = atoms_with_images(problem, disorder)
    made = kernel(problem)
    forces = np.full_like(every, np.nan)
    for _ in range(2):  # the second lists have the room of the first ones
        made.build(every, own.shape[1], np.zeros(3), lengths)
    tally = made.forces(every, forces, own.shape[1], True)
    energy, virial, pairs, expected = by_all_pairs(problem, own)
    assert tally.pairs == pairs
    assert tally.energy == pytest.approx(energy, rel=1e-12)
    assert tally.virial == pytest.approx(virial, rel=1e-11)
    scale = max(np.abs(expected).max(), 1.0)
    assert np.abs(folded(problem, own, every, forces) - expected).max() < 1e-9 * scale
    again = np.full_like(every, np.nan)
    made.forces(every, again, own.shape[1], False)
    assert (again == forces).all()


def test_a_rank_without_atoms_has_no_forces(kernel):
    problem = Problem(cells=(4, 4, 4))
    made = kernel(problem)
    nothing, ghosts = np.zeros((3, 0)), np.zeros((3, 5))
    for x in (nothing, ghosts):
        made.build(x, 0, np.zeros(3), np.full(3, 4.0))
        forces = np.ones_like(x)
        assert made.forces(x, forces, 0, True).pairs == 0
        assert not forces.any()


def test_what_is_near_an_atom_at_the_upper_corner_is_in_the_runs_around_it():
    """Rounding has put it there; it belongs to the part all the same."""
    problem, low, high = Problem(), np.zeros(3), np.full(3, 28.0)
    near = 0.57 * problem.reach * np.array(list(product((-1, 0, 1), repeat=3)))
    x = np.concatenate([high, *(high + near)]).reshape(-1, 3).T
    cells = Cells.of(x, 1, low, high, problem.reach)
    found = []
    for begin in cells.cell[0] + cells.runs:
        assert 0 <= begin < begin + RUN < cells.starts.size
        found += cells.order[cells.starts[begin] : cells.starts[begin + RUN]].tolist()
    assert sorted(found) == list(range(x.shape[1]))


def test_the_lattice_has_the_energy_that_others_print():
    problem = Problem()
    own, every, lengths = atoms_with_images(problem, 0.0)
    assert own.shape == (3, 4000)
    made = Kernel(problem)
    made.build(every, 4000, np.zeros(3), lengths)
    tally = made.forces(every, np.empty_like(every), 4000, True)
    assert tally.energy / 4000 == pytest.approx(LATTICE_ENERGY, abs=1e-7)
    squares = problem.temperature * degrees(problem)
    assert (squares + tally.virial) / (3 * prod(lengths)) == pytest.approx(PRESSURE, abs=1e-7)


def test_every_atom_starts_on_one_rank():
    problem, found = Problem(cells=(5, 6, 7)), []
    cuts = [(slice(0, 3), slice(3, n)) for n in problem.halves]
    for box in product(*cuts):
        x, numbers = lattice(problem, box)
        for row, part in zip(x / (0.5 * problem.constant), box, strict=True):
            assert (np.round(row) >= part.start).all()
            assert (np.round(row) < part.stop).all()
        found += numbers.tolist()
    assert sorted(found) == sorted(set(found))
    assert len(found) == problem.atoms


def test_states_are_compared_bit_by_bit():
    one = np.random.default_rng(0).standard_normal((7, 10))
    other = one.copy()
    assert differing(one, other) == 0
    other[3, 4] = np.nextafter(other[3, 4], 9)
    assert differing(one, other) == 0.1
    assert differing(one, other[:, :9]) == 1
    assert differing(one[:, :0], one[:, :0]) == 0


def line(step, energy, temperature=1.0):
    return Output(step, temperature, -5.0, 0.1, energy)


def test_a_blow_up_is_told():
    problem = Problem()
    check_energy(problem, line(0, -4.0), line(10, -4.5))
    for energy in (3.0, -20.0, float("nan"), float("inf")):
        with pytest.raises(CommandError, match=r"step 10: .*time step 0\.005 is too long"):
            check_energy(problem, line(0, -4.0), line(10, energy))


def test_runs_end_where_lists_are_made():
    assert runs_of(Problem(steps=140, every=20), 7) == (7, 20)
    assert runs_of(Problem(steps=140, every=20), 5) == (1, 140)
    assert runs_of(Problem(steps=120, every=20), 5) == (3, 40)
    assert runs_of(Problem(steps=15, every=20), 5) == (1, 15)
