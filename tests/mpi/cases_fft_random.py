"""Plans of every kind at random, with blocks of every size."""

from __future__ import annotations

import math
import os
import tracemalloc

import numpy as np
from cases import parameters, ranks
from cases_fft_kinds import blocks, interpolant, transformed
from cases_fft_line import good
from cases_random import examine
from exchange_data import names
from fft_data import block, close, whole
from hypothesis import strategies as st

from onesided.collectives import methods
from onesided.pencilfft import PFFT, newDistArray
from onesided.pencilfft.decomposition import factorizations
from onesided.pencilfft.kernels.registry import installed

REAL = [f"{family}{number}" for family in ("dct", "dst") for number in (1, 2, 3, 4)]
METHODS = [name for name in names() if name != "auto"]

#: These keep packed blocks of their own, on both sides of every exchange.
PACKING = ["p2p", "rma-fence-paper", "rma-lock-paper"]

#: NumPy's buffers where it scales the complex result of a kernel that cannot.
BUFFERS = 3 * 16 * np.getbufsize()


LAYOUTS = ["C", "F", "sliced", "permuted", "one memory"]


def array(shape, dtype, layout):
    """Memory of the caller's, in another order or with gaps."""
    if layout == "sliced":
        return np.zeros([n + 2 for n in shape], dtype)[(slice(1, -1),) * len(shape)]
    if layout == "permuted":
        return np.moveaxis(np.zeros((*shape[1:], *shape[:1]), dtype), -1, 0)
    return np.zeros(shape, dtype, order=layout)


def in_one_memory(arrays, last):
    """Two that overlap: real lines with room for their spectrum, as FFTW has them."""
    room = max(each.shape[last] * each.itemsize for each in arrays)
    memory = np.zeros(room * max(each.size for each in arrays) + room, np.uint8)
    for each in arrays:
        lines = np.moveaxis(each, last, -1).shape
        strides = [room * math.prod(lines[k + 1 : -1]) for k in range(each.ndim - 1)]
        made = np.ndarray(lines, each.dtype, memory, 0, [*strides, each.itemsize])
        yield np.moveaxis(made, -1, last)


@st.composite
def plans(draw, size):
    """Arguments of a plan, and what it shall transform."""
    ndim = draw(st.integers(1, 5))
    longest = {1: 60, 2: 23, 3: 13, 4: 7, 5: 5}[ndim]
    shape = tuple(draw(st.lists(st.integers(1, longest), min_size=ndim, max_size=ndim)))
    line = ndim == 1
    if line:
        shape = (good(shape[0], size),)
    axes = draw(st.permutations(range(ndim)))[: draw(st.integers(1, ndim))]
    char = draw(st.sampled_from("fdFD"))
    kinds = {a: draw(st.sampled_from([None, *REAL])) for a in axes if not line}
    kinds = {a: kind for a, kind in kinds.items() if kind and shape[a] > 1 and draw(st.booleans())}
    free = [a for a in range(ndim) if a != axes[-1]]
    grid = None if line else [1] * ndim
    norm = draw(st.sampled_from(["backward", "ortho", "forward", None]))
    more = {}
    if norm in ("forward", None) and not line and draw(st.booleans()):
        more["padding"] = [draw(st.sampled_from([1, 1.5, 2])) if a in axes else 1
                           for a in range(ndim)]  # fmt: skip
    elif memory := draw(st.sampled_from(["", "in_place", "overwrite_input"])):
        more[memory] = True
    possible = [] if line else [list(parts) for parts in factorizations(size, len(free))]
    for axis, parts in zip(free, draw(st.sampled_from(possible or [[]])), strict=True):
        grid[axis] = parts
    words = {
        "shape": shape,
        "axes": tuple(a - draw(st.sampled_from([0, ndim])) for a in axes),
        "dtype": char,
        "kinds": kinds,
        "grid": grid,
        "batch": draw(st.sampled_from([(), (2,), (1, 3)])),
        "norm": norm,
        "transposed_out": draw(st.booleans()) and not line,
        "order": draw(st.sampled_from(["C", "plan"])),
        "method": draw(st.sampled_from(METHODS)),
        "backend": draw(st.sampled_from(installed())),
        **more,
    }
    layout = draw(st.sampled_from(LAYOUTS[: -1 if "padding" in more else None]))
    return words, layout, draw(st.booleans()), draw(st.sampled_from([1, 500, 4000, 1 << 20]))


def case_random_plans(comm, seed, options):
    def body(example):
        words, layout, begun, nbytes = example

        def call(transform, *arrays):
            if not begun or not methods()[words["method"]].any_order:
                return transform(*arrays)
            transform.Start(*arrays)
            return transform.Wait()

        batch, char, norm = words["batch"], words["dtype"], words["norm"] or "forward"
        values = whole(batch + words["shape"], char, seed)
        skipped = len(batch)
        order = [axis % len(words["shape"]) + skipped for axis in words["axes"]]
        kinds = {axis + skipped: kind for axis, kind in words["kinds"].items()}
        expected = transformed(values, kinds, norm, order[::-1])
        for axis, factor in enumerate(words.get("padding", ()), skipped):
            if factor > 1:
                count = int(values.shape[axis] * factor)
                values = interpolant(values, kinds.get(axis), axis, count, False).astype(char)
        with blocks(nbytes), PFFT(comm, effort="estimate", **words) as plan:
            assert plan.global_shape(False) == values.shape
            assert plan.backend == words["backend"]
            if not words["transposed_out"] and words["grid"]:
                parts = [[p.geometry.parts(axis) for axis in range(len(words["shape"]))]
                         for p in plan.pencil]
                assert parts[0] == parts[1]
            stays = not {"in_place", "overwrite_input"} & words.keys()
            u, mine = values[plan.local_slice(False)], expected[plan.local_slice()]
            given = block(plan, values, False)
            u_hat = call(plan.forward, given)
            assert np.array_equal(given, u) or not stays, "the input was written to"
            assert u_hat.dtype == expected.dtype
            close(u_hat, mine, char)
            own = plan.forward.input_array, plan.forward.output_array
            if "in_place" in words and u.size and mine.size:
                assert np.shares_memory(*own)
            close(call(plan.backward), u, char)  # from the plan's own array, and into it
            close(call(plan.forward), mine, char)
            u_hat = block(plan, expected, True)
            close(call(plan.backward, u_hat), u, char)
            assert np.array_equal(u_hat, mine) or not stays, "the input of backward was written to"
            if layout == "one memory":
                given, spectrum = in_one_memory((u, u_hat), order[-1])
            else:
                given, spectrum = (array(a.shape, a.dtype, layout) for a in (u, u_hat))
            given[...] = u
            assert call(plan.forward, given, spectrum) is spectrum
            close(spectrum, mine, char)
            if layout != "one memory":
                given[...] = 0
            assert call(plan.backward, spectrum, given) is given
            close(given, u, char)
        return values.size

    examples = int(options.get("examples", "400" if _all() else "40"))
    sizes = examine(comm, plans(comm.size), body, examples)
    assert sum(sizes) > 0, "every array was empty"


def _all():
    return os.environ.get("ONESIDED_FFT_CASES") == "all"


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
