"""``onesided minife``: boxes, meshes, elements, known solutions, and the command on two ranks."""

from __future__ import annotations

import json
from dataclasses import replace
from math import prod

import commands
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.options import Options, Parser
from onesided.apps.miniapps.halos import ways
from onesided.apps.miniapps.minife import converged, elements_of, grown, halved, orders
from onesided.apps.miniapps.minife_mesh import (
    CORNERS,
    GRADIENTS,
    SHAPES,
    Hexahedra,
    Mesh,
    fits,
)
from onesided.apps.miniapps.minife_mesh import PROBLEMS as KNOWN
from onesided.apps.miniapps.minife_system import assembled
from onesided.apps.miniapps.options import MESH_COMM, PROBLEMS, minife
from onesided.collectives import methods
from onesided.collectives.halo.faces import common, within


@given(st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(3, 7)), st.integers(1, 3))
def test_nodes_are_numbered_rank_by_rank(elements, ranks):
    mesh = Mesh.of(elements, ranks)
    whole = mesh.whole
    numbers = mesh.numbers(whole)
    assert sorted(numbers.reshape(-1)) == list(range(mesh.nodes))
    for rank in range(ranks):
        own = mesh.own(rank)
        corners = tuple(slice(a.start, a.stop + 1) for a in mesh.blocks.box(rank))
        mine = numbers[within(own, whole)].reshape(-1)
        assert mine.tolist() == list(range(*mesh.partition.range(rank)))
        assert common(own, corners) == own, "a rank owns nodes of its elements only"
        assert (mesh.numbers(corners) == numbers[within(corners, whole)]).all()
        marks = mesh.surface(corners)
        assert (marks == mesh.surface(whole)[within(corners, whole)]).all()
    inside = prod(count - 1 for count in elements)
    assert mesh.nodes - mesh.surface(whole).sum() == inside


def test_a_distorted_mesh_keeps_its_surface():
    straight, bent = Mesh.of((4, 5, 6), 1), Mesh.of((4, 5, 6), 1, 0.15)
    whole = straight.whole
    moved = np.abs(bent.coordinates(whole) - straight.coordinates(whole))
    surface = straight.surface(whole)
    assert not moved[:, surface].any()
    assert (moved[:, ~surface] > 0).all()
    part = (slice(1, 4), slice(2, 4), slice(0, 7))
    cut = bent.coordinates(whole)[(slice(None), *within(part, whole))]
    assert (bent.coordinates(part) == cut).all()


def bent(count, size=0.1):
    """Elements of no two equal edges: (8 corners, 3 axes, count)."""
    noise = np.random.default_rng(5).uniform(-size, size, (8, 3, count))
    return CORNERS[:, :, None] + noise


def test_element_matrices_are_the_integrals():
    corners = bent(7)
    elements = Hexahedra(corners)
    found, loads = elements.stiffness(), elements.load(np.ones((8, 7)))
    for number in range(7):
        expected, load = np.zeros((8, 8)), np.zeros(8)
        for gradient, shape in zip(GRADIENTS, SHAPES, strict=True):
            jacobian = gradient @ corners[:, :, number]
            slopes = np.linalg.solve(jacobian, gradient)
            volume = np.linalg.det(jacobian) / 8
            expected += volume * slopes.T @ slopes
            load += volume * shape
        np.testing.assert_allclose(found[:, :, number], expected, rtol=0, atol=1e-14)
        np.testing.assert_allclose(loads[:, number], load, rtol=1e-13)


def test_elements_know_constants_and_straight_lines():
    corners = bent(40)
    elements = Hexahedra(corners)
    matrices = elements.stiffness()
    assert np.abs(matrices.sum(axis=1)).max() < 1e-14
    slope = np.array([0.3, -1.2, 0.7])
    heights = np.einsum("d,adn->an", slope, corners)
    energy = np.einsum("an,abn,bn->n", heights, matrices, heights)
    np.testing.assert_allclose(energy, slope @ slope * elements.volumes.sum(axis=0), rtol=1e-12)
    points = elements.points()
    assert points.shape == (8, 3, 40)
    np.testing.assert_allclose(points.mean(axis=0), corners.mean(axis=0), atol=0.05)


def test_the_unit_cube():
    cube = Hexahedra(CORNERS[:, :, None].astype(float))
    assert cube.volumes.sum() == pytest.approx(1)
    first = cube.stiffness()[0, :, 0]
    twelfth = 1 / 12
    expected = [4, 0, 0, -1, 0, -1, -1, -1]  # corner, edge, edge, face ... diagonal
    np.testing.assert_allclose(first, np.array(expected) * twelfth, atol=1e-15)


LINEAR = replace(
    KNOWN["smooth"],
    name="linear",
    solution=lambda x, y, z: 1 + 2 * x - y + 0.5 * z,
    source=lambda x, y, z: np.zeros_like(x),
    boundary=lambda x, y, z: 1 + 2 * x - y + 0.5 * z,
)


@pytest.mark.parametrize("distortion", [0.0, 0.15])
def test_the_patch_test(distortion):
    """A linear temperature is exact on any mesh."""
    mesh = Mesh.of((5, 4, 6), 1, distortion)
    equations = assembled(MPI.COMM_SELF, mesh, LINEAR)
    exact = LINEAR.solution(*mesh.coordinates(mesh.own(0)).reshape(3, -1))
    residual = equations.rows @ exact - equations.side
    assert np.abs(residual).max() < 1e-14
    surface = mesh.surface(mesh.own(0)).reshape(-1)
    assert (equations.guess[surface] == exact[surface]).all()
    assert not equations.guess[~surface].any()


def test_the_matrix_is_symmetric_and_definite():
    mesh = Mesh.of((3, 4, 5), 1, 0.1)
    rows = assembled(MPI.COMM_SELF, mesh, KNOWN["hot-wall"]).rows
    dense = rows.toarray()
    assert np.abs(dense - dense.T).max() < 1e-15
    assert np.linalg.eigvalsh(dense).min() > 0
    assert rows.nnz == prod(3 * points - 2 for points in mesh.points)
    surface = np.flatnonzero(mesh.surface(mesh.own(0)))
    off = dense[surface] - np.diag(np.diag(dense))[surface]
    assert not off.any()


def test_elements_inside_out_are_an_error():
    with pytest.raises(ValueError, match=r"distortion of 0\.9 turns elements inside out"):
        assembled(MPI.COMM_SELF, Mesh.of((6, 6, 6), 1, 0.9), KNOWN["smooth"])


def test_the_smooth_solution_solves_its_equation():
    problem, step = KNOWN["smooth"], 1e-3
    place = np.random.default_rng(1).uniform(0.1, 0.9, (3, 50))
    laplacian = -6 * problem.solution(*place)
    for axis in range(3):
        for sign in (-step, step):
            moved = place.copy()
            moved[axis] += sign
            laplacian += problem.solution(*moved)
    np.testing.assert_allclose(-laplacian / step**2, problem.source(*place), rtol=0, atol=1e-3)


def test_the_series_of_the_hot_wall_is_harmonic_and_fits_its_walls():
    problem, step = KNOWN["hot-wall"], 1e-2
    rng = np.random.default_rng(2)
    place = rng.uniform(0.05, 0.45, (3, 50))
    laplacian = -6 * problem.solution(*place)
    for axis in range(3):
        for sign in (-step, step):
            moved = place.copy()
            moved[axis] += sign
            laplacian += problem.solution(*moved)
    assert np.abs(laplacian / step**2).max() < 5e-3
    half = np.full(1, 0.5)
    assert problem.solution(half, half, half) == pytest.approx(1 / 6)  # six walls, one of them hot
    zero = np.zeros(5)
    x = np.linspace(0.1, 0.5, 5)
    for walls in ((zero, x, x), (x, zero, x), (x, x, zero), (x, zero + 1, x)):
        assert np.abs(problem.solution(*walls)).max() < 1e-14
    one = np.ones(3)
    y, z = np.array([0.5, 0.0, 0.0]), np.array([0.5, 0.5, 1.0])
    assert problem.boundary(one, y, z).tolist() == [1.0, 0.5, 0.25]
    assert problem.boundary(0 * one, y, z).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("name", list(KNOWN))
@pytest.mark.parametrize("distort", [0.0, 0.15])
def test_errors_fall_by_the_second_order(name, distort):
    options = Options(rtol=1e-11, maxiter=1000, distort=distort)
    ticks, seen = [], []
    levels = converged(
        MPI.COMM_SELF, options, KNOWN[name], halved((20, 20, 20), 2),
        lambda system, x: seen.append(len(x)), lambda: ticks.append(1),
    )  # fmt: skip
    assert len(ticks) == len(levels) == 2
    assert seen == [11**3, 21**3]
    assert all(each.errors.largest < each.bound for each in levels)
    assert levels[0].errors.largest > 0.02 * levels[0].bound, "a bound that says nothing"
    assert orders(*levels)[0] == pytest.approx(2, abs=0.25)
    assert orders(*levels)[1] == pytest.approx(2, abs=0.25)


def test_sizes():
    assert elements_of([5]) == (5, 5, 5)
    assert elements_of([5, 6, 7]) == (5, 6, 7)
    for wrong in ([1], [5, 5], [4, 1, 4], [3] * 4):
        with pytest.raises(CommandError, match="--shape"):
            elements_of(wrong)
    assert halved((20, 12, 9), 3) == [(5, 3, 2), (10, 6, 4), (20, 12, 9)]
    assert len(halved((64, 64, 64), None)) == 3
    assert halved((4, 4, 4), None) == [(2, 2, 2), (4, 4, 4)]
    assert halved((2, 2, 2), None) == [(2, 2, 2)]
    assert len(halved((8, 8, 8), None, 8)) == 2
    assert len(halved((4, 4, 4), None, 64)) == 1
    assert halved((16, 16, 16), None, 7) == [(8, 8, 8), (16, 16, 16)]
    assert fits((4, 4, 8), 7)
    assert not fits((4, 4, 4), 7)
    with pytest.raises(CommandError, match=r"--levels 4 leaves 1 elements .* 12 x 12 x 12"):
        halved((12, 12, 12), 4)


@pytest.mark.parametrize("shares", [1, 2, 3, 4, 6, 8, 12, 13])
def test_a_grown_mesh_has_so_many_times_the_elements(shares):
    assert prod(grown((4, 4, 4), shares)) == 64 * shares
    assert grown((4, 4, 4), 8) == (8, 8, 8)
    assert grown((8, 4, 4), 2) == (8, 8, 4)


@pytest.mark.parametrize("ranks", [2, pytest.param(1, marks=pytest.mark.full)])
def test_minife(run_cases, ranks):
    run_cases("cases_minife", ranks)


@pytest.mark.full
@pytest.mark.parametrize("ranks", [3, 4, 6])
def test_minife_on_more_ranks(run_cases, ranks):
    run_cases("cases_minife", ranks)


def test_shared_nodes_of_four_ranks(run_cases):
    run_cases("cases_minife", 4, select="same_equations")


@pytest.mark.full
def test_minife_on_two_nodes(run_cases, two_nodes):
    run_cases(
        "cases_minife",
        two_nodes.ranks,
        select="every_way",
        env=two_nodes.env,
        nodes=two_nodes.nodes,
    )


def test_the_command_draws_and_tells(tmp_path):
    pytest.importorskip("matplotlib", reason="the picture needs matplotlib")
    files = [tmp_path / name for name in ("out.json", "out.png")]
    words = "minife --shape 8 10 16 --iterations 10 --repeats 2 --verify --comm fence,rma-notify"
    words += f" --json {files[0]} --picture {files[1]} --ranks 2"
    finished = commands.onesided(*words.split())
    assert finished.code == 0, finished
    assert "residuals of the solutions" in finished.out
    assert "Assembly, by the slowest rank" in finished.out
    found = json.loads(files[0].read_text())
    assert found["verified"] is True
    assert [row["labels"]["method"] for row in found["rows"]] == ["two-sided", "fence", "rma-notify"]
    assert [each["unknowns"] for each in found["levels"]] == [3, 84, 945]
    assert found["pattern"]["elements"] == [8, 10, 16]
    for row in found["rows"]:
        assert row["cg_iterations"] == 10
        assert row["nonzeros"] == prod(3 * points - 2 for points in (9, 11, 17))
        assert set(row["parts"]) == {"exchange", "product", "sums", "vectors"}
    assert "solutions, against rank 0 alone" in found["verdicts"]
    for file in files[1:]:
        assert file.read_bytes().startswith(b"\x89PNG")


def test_the_help_names_every_way():
    parser = Parser()
    minife(parser)
    text = parser.format_help().replace("\n", " ")
    own = [name for name in ways() if name not in methods()]
    assert len(own) == 5
    assert [name for name in own if name not in text] == []
    assert set(MESH_COMM.split(",")) <= set(ways())
    assert list(PROBLEMS) == list(KNOWN)


def test_mistakes_are_sentences():
    finished = commands.onesided("minife", "--shape", "1")
    assert finished.code == 2, finished
    assert "2 elements or more along each axis" in finished.sentences[0]
    finished = commands.onesided(*"minife --shape 8 --levels 1 --distort 0.9".split())
    assert finished.code == 2, finished
    assert finished.sentences == ["onesided: a distortion of 0.9 turns elements inside out"]
