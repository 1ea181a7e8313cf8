"""What programs written for mpi4py-fft rely on, beside mpi4py-fft where it is installed."""

from __future__ import annotations

import gc
import warnings
import weakref
from functools import partial
from importlib import import_module

import numpy as np
import pytest
from cases import need, parameters
from errors import agreed
from fft_data import whole

from onesided.collectives import PatternError, RequestError, UnsupportedError
from onesided.pencilfft import (
    PFFT,
    DistArray,
    Subcomm,
    Transfer,
    block,
    newDistArray,
)

OPTIONS = {"method": "rma-notify", "effort": "estimate"}
SHAPE = (8, 9, 10)


def both(comm, shape=SHAPE, **words):
    """Plans of mpi4py-fft and of ours."""
    need("mpi4py_fft")
    theirs = import_module("mpi4py_fft").PFFT(comm, shape, **words)
    return theirs, PFFT(comm, shape, **words, **OPTIONS)


def close(found, expected):
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    tolerance = {"f": 2e-4, "d": 1e-10, "g": 1e-16}[expected.dtype.char.lower()]
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


@parameters(dtype="dDfgG")
def case_calls_without_arrays(comm, dtype):
    theirs, ours = both(comm, dtype=dtype)
    u = whole(ours.shape(False), dtype, comm.rank)
    with ours:
        array = import_module("mpi4py_fft").newDistArray(theirs, False)
        array[...] = u
        close(ours.forward(array), theirs.forward(array))
        found, expected = ours.forward(u), theirs.forward(u)
        close(found, expected)
        assert found.flags.c_contiguous
        assert np.shares_memory(found, ours.backward.input_array)
        close(ours.backward(), u)  # from the result of the call before
        found[...] *= 2
        back = ours.backward()
        close(back, 2 * u)
        assert np.shares_memory(back, ours.forward.input_array)
        close(ours.forward(), 2 * expected)
        assert ours.forward(u) is ours.forward.output_array
    theirs.destroy()


def case_results_in_arrays_of_the_caller(comm):
    with PFFT(comm, SHAPE, **OPTIONS) as plan:
        u = whole(plan.shape(False), "d", comm.rank)
        u_hat = newDistArray(plan)
        assert plan.forward(u, u_hat) is u_hat
        close(plan.backward(), u)  # the plan's own array is made now, and is the result
        plan.forward(2 * u, u_hat)
        close(plan.backward(), 2 * u)
        plan.forward(2 * u, u_hat)
        u_hat[...] *= 2  # it is looked at when it is needed
        close(plan.backward(), 4 * u)
    with PFFT(comm, SHAPE, **OPTIONS) as plan:
        for k in range(3):  # in parts of an array, as every program for vectors does
            plan.forward(u, np.zeros((3, *plan.shape()), complex)[k])
        assert "caller's that is gone" in agreed(comm, RequestError, plan.backward)
        for array in (plan.forward.output_array, plan.backward.input_array):
            assert array.shape == plan.shape()
            assert array.dtype == plan.dtype(True)
            assert np.all(np.isnan(array))


@parameters(way=["call", "start", "refused call", "refused start"], given=[False, True])
def case_a_plan_keeps_no_array_of_the_callers(comm, way, given):
    refused = way.startswith("refused")
    with PFFT(comm, SHAPE, **OPTIONS) as plan:
        u, out = newDistArray(plan, False), newDistArray(plan) if given else None
        if refused and comm.rank == comm.size - 1:
            out = np.zeros(3)
        try:
            if way.endswith("start"):
                plan.forward.Start(u, out)
                plan.forward.Wait()
            else:
                plan.forward(u, out)
        except PatternError:
            assert refused
        else:
            assert not refused
        left = [weakref.ref(array) for array in (u, out) if array is not None]
        del u, out
        gc.collect()
        assert [each() for each in left] == [None] * len(left)


@parameters(in_place=[False, True], seen=["itself", "plain", "part"])
def case_what_somebody_keeps_of_a_plans_array_is_the_last_result(comm, in_place, seen):
    """And the next transform takes what is made of it."""
    with PFFT(comm, SHAPE, batch=(2,), in_place=in_place, **OPTIONS) as plan:
        u, out = whole(plan.shape(False), "d", comm.rank), newDistArray(plan)
        kept = plan.forward.output_array
        kept = {"itself": kept, "plain": np.asarray(kept), "part": kept[:1]}[seen]
        plan.forward(u, out)
        assert out.any()
        assert np.array_equal(kept, out[: len(kept)])
        kept *= 2
        close(plan.backward()[0], 2 * u[0])


@parameters(in_place=[False, True], where=["input_array", "output_array"])
def case_looking_at_an_array_changes_no_later_result(comm, in_place, where):
    """An earlier result that went to an array of the caller's comes not over a later one."""
    with PFFT(comm, SHAPE, in_place=in_place, **OPTIONS) as plan:
        mine, u = (whole(plan.shape(False), "d", comm.rank) for _ in range(2))
        out = newDistArray(plan, val=1)
        plan.backward(out, mine)
        found = plan.forward(u)
        expected = np.array(found)
        assert getattr(plan.forward, where).size
        assert np.array_equal(found, expected)


@parameters(dims=[None, "one", "two"])
def case_a_plan_on_a_cartesian_communicator(comm, dims):
    """Its own grid is that of a Subcomm without dims; a plan chooses one, or takes a given one."""
    cart = comm.Create_cart([comm.size], reorder=False)
    grid = {None: None, "one": (-1,), "two": (1, -1)}[dims]
    totals = []
    with PFFT(cart, SHAPE, grid=grid, **OPTIONS) as plan, PFFT(comm, SHAPE, **OPTIONS) as other:
        for each in (plan, other):
            u = newDistArray(each, False)
            u[...] = sum(np.ix_(*(np.arange(n)[part] for n, part in
                                  zip(u.global_shape, u.local_slice(), strict=True))))
            spectrum = each.forward(u)
            totals.append(comm.allreduce(float(np.sum(np.abs(spectrum) ** 2))))
    assert np.isclose(*totals)
    cart.Free()


@parameters(dtypes=[("f8", "i8"), ("i8", "f8")])
def case_records_of_one_size_have_a_way_each(comm, dtypes):
    kind = np.dtype([("a", dtypes[0]), ("b", dtypes[1])])
    grids = Subcomm(comm, [0, 1]), Subcomm(comm, [1, 0])
    u, v = (DistArray((8, 8), grid, dtype=kind) for grid in grids)
    u.v["a"], u.v["b"] = 1, 2.5
    u.redistribute(out=v)
    assert np.all(v.v == np.array((1, 2.5), kind))
    for grid in grids:
        grid.destroy()


@parameters(keepdims=[False, True])
def case_what_a_reduction_gives_is_nobodys_block(comm, keepdims):
    """Also where its extents are those of the block on some rank."""
    grid = Subcomm(comm, [0, 1, 1])
    u = DistArray((3, 5, 3, 3), grid, rank=1, val=1.0)
    found = u.sum(axis=1, keepdims=keepdims), u.max(axis=1, keepdims=keepdims), np.cumsum(u, 1)
    assert [type(each) for each in found] == [np.ndarray] * 3
    assert type(2 * u) is DistArray
    assert type(np.sqrt(u)) is DistArray
    grid.destroy()


@parameters(in_place=[False, True], wrong=["shape", "what it holds"])
def case_a_refused_input_leaves_the_last_result(comm, in_place, wrong):
    with PFFT(comm, SHAPE, in_place=in_place, **OPTIONS) as plan:
        u, out = whole(plan.shape(False), "d", comm.rank), newDistArray(plan)
        plan.forward(u, out)
        given = np.zeros(1000) if wrong == "shape" else np.full(plan.shape(), "no number")
        text = agreed(comm, PatternError, lambda: plan.backward(given))
        assert "cannot be assigned" in text
        close(plan.backward(), u)


@parameters(axes=[None, ((0,), (1, 2))], dtype="dD", collapse=[False, True])
def case_transfers_of_a_plan(comm, axes, dtype, collapse):
    theirs, ours = both(comm, axes=axes, dtype=dtype, collapse=collapse)
    with ours:
        assert len(ours.transfer) == len(theirs.transfer) == len(ours.axes) - 1
        for one, other in zip(theirs.transfer, ours.transfer, strict=True):
            shapes = [tuple(shape) for shape in (one.subshapeA, one.subshapeB)]
            assert (other.subshapeA, other.subshapeB) == tuple(shapes)
            assert (other.axisA, other.axisB, other.dtype) == (one.axisA, one.axisB, one.dtype)
            source = whole(shapes[0], other.dtype.char, comm.rank)
            found, expected = (np.zeros(shapes[1], other.dtype) for _ in range(2))
            one.forward(source, expected)
            other.forward(source, found)
            assert np.array_equal(found, expected)
            back = np.zeros_like(source)
            other.backward(found, back)
            assert np.array_equal(back, source)
    assert len(ours.transfer) == 0
    theirs.destroy()


def case_the_word_for_messages(comm):
    """pySDC's programs give mpi4py-fft's next version a word that this one passes over."""
    with PFFT(comm, SHAPE, comm_backend="MPI", **OPTIONS) as plan:
        assert plan.global_shape(True) == (8, 9, 6)
    text = agreed(comm, UnsupportedError, lambda: PFFT(comm, SHAPE, comm_backend="NCCL"))
    assert "NCCL" in text


INPUTS = {
    "single": lambda shape: np.ones(shape, np.float32),
    "integers": lambda shape: np.arange(np.prod(shape)).reshape(shape),
    "number": lambda shape: 3.0,
    "line": lambda shape: np.arange(shape[-1]) + 0.5,
    "list": lambda shape: list(range(shape[-1])),
    "one more axis": lambda shape: np.full((1, *shape), 2.0),
    "complex": lambda shape: np.full(shape, 1 + 2j),
}


@parameters(kind=list(INPUTS), dtype="dD")
def case_inputs_are_assigned(comm, kind, dtype):
    theirs, ours = both(comm, dtype=dtype)
    with ours, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of NumPy, where imaginary parts are lost
        given = INPUTS[kind](ours.shape(False))
        close(ours.forward(given), theirs.forward(given))
    theirs.destroy()


@parameters(dtype="FDG")
def case_outputs_are_assigned(comm, dtype):
    theirs, ours = both(comm)
    with ours:
        u = whole(ours.shape(False), "d", comm.rank)
        for more in ((), (3,)):
            found, expected = (np.zeros((*more, *ours.shape()), dtype) for _ in range(2))
            assert ours.forward(u, found) is found
            theirs.forward(u, expected)
            np.testing.assert_allclose(found, expected, atol=1e-5)
        close(ours.backward(), u)
    theirs.destroy()


def functions(name, **words):
    fftw = import_module("mpi4py_fft.fftw")
    pair = {
        "cosines": (fftw.dctn, fftw.idctn),
        "sines": (fftw.dstn, fftw.idstn),
        "cosines undone": (fftw.idctn, fftw.dctn),
        "positive sign": (fftw.ifftn, fftw.fftn),
        "twice the same": (fftw.fftn, fftw.fftn),
        "halves": (fftw.ihfftn, fftw.hfftn),
        "cosines and sines": (fftw.dctn, fftw.dstn),
    }[name]
    return tuple(partial(function, **words) for function in pair)


@parameters(
    name=["cosines", "sines", "cosines undone", "positive sign", "twice the same", "halves",
          "cosines and sines"],
    axes=[(2,), (1, 2)],
    collapse=[False, True],
)  # fmt: skip
def case_transforms_are_what_they_say(comm, name, axes, collapse):
    """Both functions count, and with ``collapse`` the groups that come of it are looked up."""
    need("mpi4py_fft")
    words = {"grid": (-1,), "axes": (0, 1, 2) if collapse else ((0,), (1,), (2,))}
    if axes == (1, 2) and not collapse:
        words["axes"] = ((0,), (1, 2))
    if collapse and axes == (1, 2) and comm.size == 1:
        words["axes"] = (1, 2)
    dtype = complex if name in ("positive sign", "twice the same") else float
    for kind in (1, 2, 3, 4) if "ines" in name and axes == (1, 2) else (2,):
        if name == "cosines and sines" and kind == 1:
            continue
        options = {"type": kind} if "ines" in name else {}
        transforms = {axes: functions(name, **options)}
        theirs, ours = both(
            comm, dtype=dtype, collapse=collapse, transforms=transforms, **words
        )
        with ours:
            assert ours.axes == theirs.axes
            assert ours.shape() == theirs.shape()
            u = whole(ours.shape(False), dtype, comm.rank)
            found, expected = ours.forward(u), theirs.forward(u).copy()
            close(found, expected)
            assert np.abs(expected).max(initial=1.0) > 0
            for normalize in (False, True):
                back = theirs.backward(expected.copy(), normalize=normalize)
                close(ours.backward(found, normalize=normalize), back)
        theirs.destroy()


def case_pairs_that_do_not_fit(comm):
    need("mpi4py_fft")
    fftw = import_module("mpi4py_fft.fftw")
    for pair in ((fftw.rfftn, fftw.ifftn), (fftw.dctn, fftw.ifftn), (fftw.hfftn, fftw.ihfftn),
                 (partial(fftw.dctn, type=1), fftw.idctn)):  # fmt: skip
        words = {"transforms": {(2,): pair}, "dtype": complex if pair[0] is fftw.hfftn else float}
        agreed(comm, UnsupportedError, lambda words=words: PFFT(comm, SHAPE, **words))


@parameters(effort=["FFTW_ESTIMATE", "FFTW_MEASURE", "FFTW_PATIENT"],
            overwrite=["FFTW_DESTROY_INPUT", False])
def case_words_for_fftw(comm, effort, overwrite):
    words = {"planner_effort": effort, "overwrite_input": overwrite, "threads": 2}
    words |= {"in_place": np.bool_(False), "padding": np.bool_(False)}
    with PFFT(comm, (6, 5, 4), backend="pyfftw", wisdom=False, **words) as plan:
        u = whole(plan.shape(False), "d", comm.rank)
        kept = u.copy()
        close(plan.backward(plan.forward(u, implicit=True)), u)
        assert np.array_equal(u, kept)
    wrong = (
        {"planner_effort": "much"}, {"threads": 0}, {"planner_effort": effort, "effort": "x"},
        {"overwrite_input": "yes"},
    )  # fmt: skip
    for words in wrong:
        agreed(comm, PatternError, lambda words=words: PFFT(comm, SHAPE, **words))


# Plans that are dropped, and many of them.


# Redistribution by itself.


def grids(size):
    """Every process grid in three dimensions that leaves an axis whole."""
    found = [g for g in np.ndindex(*[size + 1] * 3) if np.prod(g) == size and 1 in g]
    return [tuple(int(part) for part in g) for g in found]


def numbered(array):
    """Every element is its place in the global array."""
    places = np.arange(np.prod(array.global_shape)).reshape(array.global_shape)
    array.v[...] = places[array.local_slice()]
    return array


@parameters(rank=[0, 1])
def case_from_any_decomposition_to_any_other(comm, rank):
    shape = (3,) * rank + (7, 6, 5)
    made = [Subcomm(comm, grid, reorder=False) for grid in grids(comm.size)]
    words = {"dtype": ">i8" if rank else int, "rank": rank}
    root, places = comm.size - 1, np.arange(3**rank * 210).reshape(shape)
    for _ in range(2):  # what the first time has made is found again
        for here in made:
            source = numbered(DistArray(shape, here, **words))
            for part in ((), (1,) * len(shape), (1,) * rank + (slice(1, 7, 3), 2)):
                expected = places[part] if comm.rank == root else None
                np.testing.assert_array_equal(source.get(part, root), expected)
            for there in made:
                target = DistArray(shape, there, val=-1, **words)
                kept = source.copy()
                assert source.redistribute(out=target) is target
                assert np.array_equal(target, numbered(DistArray(shape, there, **words)))
                assert np.array_equal(source, kept)
    for each in made:
        each.destroy()


@parameters(order="CF", axes=[(0, 1), (2, 0), (-1, 1)], method=["rma-notify", "p2p"])
def case_transfers_of_plain_arrays(comm, order, axes, method):
    shape = (7, 6, 5)
    whole = np.arange(np.prod(shape)).reshape(shape)
    cuts = [[slice(None)] * 3 for _ in axes]
    for cut, split in zip(cuts, axes[::-1], strict=True):
        cut[split] = slice(*block(shape[split], comm.size, comm.rank))
    source, expected = (np.array(whole[tuple(cut)], order=order) for cut in cuts)
    transfer = Transfer(comm, shape, int, source.shape, axes[0], expected.shape, axes[1],
                        method=method)  # fmt: skip
    for factor in (1, 2, 3):
        target = np.zeros_like(expected)
        transfer.forward(factor * source, target)
        assert np.array_equal(target, factor * expected)
        back = np.zeros_like(source)
        transfer.backward(target, back)
        assert np.array_equal(back, factor * source)
    with pytest.raises(PatternError, match="float64"):
        transfer.forward(source.astype(float), target)
    transfer.destroy()


def case_a_subclass_brings_its_own_transfers(comm):
    """As shenfun's does: a list that it appends to."""

    class Space(PFFT):
        def __init__(self):
            self.transfer = []
            self.transfer.append("one")

    assert Space().transfer == ["one"]
