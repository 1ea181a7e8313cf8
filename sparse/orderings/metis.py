"""Parts of a graph by METIS, where pymetis is installed. No MPI here."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from onesided.collectives import UnsupportedError
from onesided.sparse.partition import Partition

_FEW_PARTS = 8  # up to here METIS is better at halving again and again (its manual, section 5)
_LARGEST = np.iinfo(np.int32).max
_SEED = 1


def check_metis() -> None:
    """Local. :class:`UnsupportedError` where pymetis is not installed."""
    if find_spec("pymetis") is None:
        raise UnsupportedError("the METIS partition needs pymetis (the extra partition)")


def metis_parts(
    graph: sparse.csr_array, weights: NDArray[np.int64], parts: int
) -> NDArray[np.int32]:
    """Local. A part for each vertex: parts of about equal weight, few edges between them.

    ``graph`` is symmetric, without loops; its values are not looked at. The same graph gets the
    same parts. Raises :class:`UnsupportedError` without pymetis, and where METIS's 32-bit
    integers cannot count the graph's edges or its weight.
    """
    check_metis()
    if max(graph.nnz, int(weights.sum())) > _LARGEST:
        raise UnsupportedError(
            f"METIS counts in 32 bits: {graph.nnz} edges, weight {int(weights.sum())}"
        )
    vertices = len(weights)
    if parts == 1 or vertices <= parts or graph.nnz == 0:
        blocks = Partition.balanced(weights, parts)
        return blocks.owners(np.arange(vertices)).astype(np.int32)
    import pymetis

    adjacency = pymetis.CSRAdjacency(_narrow(graph.indptr), _narrow(graph.indices))
    options = pymetis.Options(seed=_SEED)
    _, found = pymetis.part_graph(
        parts,
        adjacency,
        vweights=_narrow(weights),
        recursive=parts <= _FEW_PARTS,
        options=options,
    )
    return np.asarray(found, np.int32)


def _narrow(numbers: NDArray[Any]) -> NDArray[np.int32]:
    return np.ascontiguousarray(numbers, np.int32)
