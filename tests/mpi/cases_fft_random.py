"""Plans of every kind at random, and every way in which passes go about their blocks."""

from __future__ import annotations

import os
import tracemalloc

import numpy as np
from cases import parameters, ranks
from cases_fft_kinds import blocks, transformed
from cases_random import examine
from exchange_data import names
from fft_data import block, close, whole
from hypothesis import strategies as st

from onesided.pencilfft import PFFT, newDistArray
from onesided.pencilfft.decomposition import factorizations
from onesided.pencilfft.passes import Blocking

REAL = [f"{family}{number}" for family in ("dct", "dst") for number in (1, 2, 3, 4)]
WAYS = [(a, b, c) for a in (False, True) for b in (False, True) for c in (False, True) if not a * c]
METHODS = [name for name in names() if name != "auto"]

#: These keep packed blocks of their own, on both sides of every exchange.
PACKING = ["p2p", "rma-fence-paper", "rma-lock-paper"]

#: Older versions of NumPy have buffers of their own where complex arrays take a real factor.
OLD = np.lib.NumpyVersion(np.__version__) < "2.4.0"
BUFFERS = 3 * 16 * np.getbufsize() if OLD else 0


def array(shape, dtype, layout):
    """Memory of the caller's, in another order or with gaps."""
    if layout == "sliced":
        return np.zeros([n + 2 for n in shape], dtype)[(slice(1, -1),) * len(shape)]
    if layout == "permuted":
        return np.moveaxis(np.zeros((*shape[1:], *shape[:1]), dtype), -1, 0)
    return np.zeros(shape, dtype, order=layout)


@st.composite
def plans(draw, size):
    """Arguments of a plan, and what it shall transform."""
    ndim = draw(st.integers(2, 5))
    longest = {2: 23, 3: 13, 4: 7, 5: 5}[ndim]
    shape = tuple(draw(st.lists(st.integers(1, longest), min_size=ndim, max_size=ndim)))
    axes = draw(st.permutations(range(ndim)))[: draw(st.integers(1, ndim))]
    char = draw(st.sampled_from("fdFD"))
    kinds = {a: draw(st.sampled_from([None, *REAL])) for a in axes}
    kinds = {a: kind for a, kind in kinds.items() if kind and shape[a] > 1 and draw(st.booleans())}
    free = [a for a in range(ndim) if a != axes[-1]]
    grid = [1] * ndim
    possible = [list(parts) for parts in factorizations(size, len(free))]
    for axis, parts in zip(free, draw(st.sampled_from(possible)), strict=True):
        grid[axis] = parts
    return {
        "shape": shape,
        "axes": tuple(a - draw(st.sampled_from([0, ndim])) for a in axes),
        "dtype": char,
        "kinds": kinds,
        "grid": grid,
        "batch": draw(st.sampled_from([(), (2,), (1, 3)])),
        "norm": draw(st.sampled_from(["backward", "ortho", "forward", None])),
        "transposed_out": draw(st.booleans()),
        "order": draw(st.sampled_from(["C", "plan"])),
        "method": draw(st.sampled_from(METHODS)),
        "backend": draw(st.sampled_from(["scipy", "ducc0", "pyfftw"])),
    }, draw(st.sampled_from(["C", "F", "sliced", "permuted"])), (
        draw(st.sampled_from([1, 500, 4000, 1 << 20])), *draw(st.sampled_from(WAYS)))


def case_random_plans(comm, seed, options):
    def body(example):
        words, layout, way = example
        batch, char, norm = words["batch"], words["dtype"], words["norm"] or "forward"
        values = whole(batch + words["shape"], char, seed)
        skipped = len(batch)
        order = [axis % len(words["shape"]) + skipped for axis in words["axes"]]
        kinds = {axis + skipped: kind for axis, kind in words["kinds"].items()}
        expected = transformed(values, kinds, norm, order[::-1])
        with blocks(*way), PFFT(comm, effort="estimate", **words) as plan:
            assert plan.backend == words["backend"]
            if not words["transposed_out"]:
                parts = [[p.geometry.parts(axis) for axis in range(len(words["shape"]))]
                         for p in plan.pencil]
                assert parts[0] == parts[1]
            u = block(plan, values, False)
            kept = u.copy()
            u_hat = plan.forward(u)
            assert np.array_equal(u, kept), "the input was written to"
            assert u_hat.dtype == expected.dtype
            close(u_hat, expected[plan.local_slice()], char)
            kept = u_hat.copy()
            back = plan.backward(u_hat)
            assert np.array_equal(u_hat, kept), "the input of backward was written to"
            close(back, u, char)
            given, spectrum = (array(a.shape, a.dtype, layout) for a in (u, u_hat))
            given[...] = u
            assert plan.forward(given, spectrum) is spectrum
            close(spectrum, expected[plan.local_slice()], char)
            given[...] = 0
            assert plan.backward(spectrum, given) is given
            close(given, u, char)
        return values.size

    examples = int(options.get("examples", "400" if _all() else "25"))
    sizes = examine(comm, plans(comm.size), body, examples)
    assert sum(sizes) > 0, "every array was empty"


def _all():
    return os.environ.get("ONESIDED_FFT_CASES") == "all"


@parameters(way=WAYS, nbytes=[1, 3000], char="dF", padding=[False, True])
def case_every_way_of_blocks(comm, way, nbytes, char, padding, seed):
    """The same numbers, whether transforms are made in the source, in scratch or in the target."""
    shape = (6, 9, 16)
    with PFFT(comm, shape, dtype=char, padding=padding, effort="estimate", method="p2p") as usual:
        values = whole(usual.global_shape(False), char, seed)
        expected = usual.forward(block(usual, values, False))
        physical = usual.backward(expected)
    options = {"dtype": char, "padding": padding, "effort": "estimate", "order": "plan"}
    with blocks(nbytes, *way), PFFT(comm, shape, backend="scipy", **options) as plan:
        assert plan.choice.blocking == Blocking(nbytes, *way)
        u = block(plan, values, False)
        for _ in range(3):
            u_hat = plan.forward(u)
            close(u_hat, expected, char)
            close(plan.backward(u_hat), physical, char)
        assert np.array_equal(u, values[plan.local_slice(False)])


@ranks(at_least=2)
@parameters(method=METHODS, char="dD", transposed_out=[True, False])
def case_memory_of_a_plan_and_its_calls(comm, method, char, transposed_out):
    """Beside the user's arrays: at most three local volumes, and blocks that fit the cache.

    A slab that is brought back to the layout of the input is transposed twice over one grid axis.
    """
    words = {"dtype": char, "transposed_out": transposed_out, "info": {"slots": "1"}}
    tracemalloc.start()
    try:
        with PFFT(comm, (64, 96, 80), method=method, effort="estimate", **words) as plan:
            space = plan._engine._workspace
            pieces = space.nbytes - space._plain.nbytes
            made = tracemalloc.get_traced_memory()[1]  # its arrays of the user's layouts included
            u, u_hat = newDistArray(plan, False), newDistArray(plan)
            u[...] = 1
            plan.forward(u, u_hat)
            plan.backward(u_hat, u)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(3):
                plan.forward(u, u_hat)
                plan.backward(u_hat, u)
            grown = tracemalloc.get_traced_memory()[1] - before
            volume = max(u.nbytes, u_hat.nbytes)
            volumes = 3.2 + (2 * len(plan.transposes) if method in PACKING else 0)
    finally:
        tracemalloc.stop()
    users = u.nbytes + u_hat.nbytes
    assert pieces > 0
    for used in (before, made):
        used += pieces - users
        assert used <= volumes * volume + (3 << 20), (used, pieces, volume, volumes)
    assert grown < volume / 20 + BUFFERS, (grown, volume)
