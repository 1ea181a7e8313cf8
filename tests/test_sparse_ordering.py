"""Orderings, partitions by METIS, generated meshes and files; the cases are in mpi/."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from onesided.apps.tools.trace_mesh import Refinement, refined, uniform
from onesided.collectives import UnsupportedError
from onesided.sparse.grids import stencil7
from onesided.sparse.ordering import metis_parts


@pytest.fixture
def metis():
    pytest.importorskip("pymetis", reason="the METIS partition needs pymetis")
    return metis_parts


@pytest.mark.parametrize("parts", [1, 2, 3, 9])
def test_metis_parts_are_balanced_and_the_same_every_time(metis, parts):
    graph = stencil7(10)
    graph.setdiag(0)
    graph.eliminate_zeros()
    weights = np.diff(graph.indptr).astype(np.int64)
    owners = metis(graph, weights, parts)
    assert np.array_equal(owners, metis(graph, weights, parts))
    loads = np.bincount(owners, weights, minlength=parts)
    assert len(loads) == parts
    assert loads.max() <= 1.06 * loads.mean()


@pytest.mark.parametrize(("vertices", "parts"), [(0, 3), (2, 5), (6, 6), (40, 3)])
def test_metis_parts_of_hardly_any_graph(metis, vertices, parts):
    graph = sparse.csr_array((vertices, vertices), dtype=bool)
    owners = metis(graph, np.ones(vertices, np.int64), parts)
    assert len(owners) == vertices
    assert np.bincount(owners, minlength=parts).max() <= -(-vertices // parts)


def test_metis_is_not_given_more_than_it_can_count(metis):
    graph = stencil7(2)
    with pytest.raises(UnsupportedError, match="32 bits"):
        metis(graph, np.full(8, 1 << 30), 2)


def mesh_of(coarse, fine, seed):
    refinement = Refinement(seed, coarse, fine)
    return refinement, refined(refinement, uniform(refinement, 0), 0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("levels", [(0, 0), (3, 6), (6, 12)])
def test_triangulations_have_no_vertex_inside_a_side(levels, seed):
    """A side belongs to two triangles, or to one at the edge of the square."""
    refinement, triangles = mesh_of(*levels, seed)
    edges, counts = np.unique(triangles.edges(), return_counts=True)
    assert counts.max() == 2
    twice = 2 * refinement.extent
    ends = np.stack([edges >> 32, edges & 0xFFFFFFFF])
    at_edge = np.any((ends == 0) | (ends == twice), axis=0)
    assert np.array_equal(at_edge, counts == 1)
    legs = triangles.first - triangles.apex, triangles.last - triangles.apex
    areas = np.abs(legs[0][:, 0] * legs[1][:, 1] - legs[0][:, 1] * legs[1][:, 0])
    assert areas.sum(dtype=np.int64) == 2 * refinement.extent**2
    assert areas.min() > 0
