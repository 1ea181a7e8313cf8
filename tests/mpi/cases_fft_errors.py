"""Wrong arguments of plans and transforms: one clear exception, on every rank where all see it."""

from __future__ import annotations

import time
import warnings
from contextlib import contextmanager
from unittest import mock

import numpy as np
import pytest
from cases import parameters, ranks
from errors import agreed

from onesided.collectives import (
    MethodError,
    MismatchError,
    PatternError,
    RequestError,
    ResourceError,
    UnsupportedError,
    memory,
    sums,
)
from onesided.pencilfft import (
    PFFT,
    DistArray,
    Subcomm,
    commons,
    newDistArray,
)
from onesided.pencilfft.redistribution import Redistributions

METHOD = "rma-notify"
WRONG = {
    "axis twice": ({"axes": (0, 1, -3)}, PatternError, "axis 0 twice"),
    "no such axis": ({"axes": (0, 3)}, PatternError, "axis 3 does not exist"),
    "no axes": ({"axes": ()}, PatternError, "no axis"),
    "axes in words": ({"axes": "xyz"}, PatternError, "not integers"),
    "integer dtype": ({"dtype": int}, PatternError, "int64"),
    "half precision": ({"dtype": "e"}, PatternError, "is not supported"),
    "grid too large": ({"grid": (97,)}, PatternError, "does not fit"),
    "grid too long": ({"grid": (1, 1, 1, 1)}, PatternError, "more entries"),
    "grid in words": ({"grid": "square"}, PatternError, "'square'"),
    "slab and grid": ({"grid": (-1,), "slab": True}, PatternError, "exclude"),
    "shape of text": ({"shape": "abc"}, PatternError, "'abc'"),
    "shape of zero": ({"shape": (4, 0, 4)}, PatternError, "without elements"),
    "no dimension": ({"shape": ()}, PatternError, "has no axis"),
    "one dimension, cosines": (
        {"shape": (64,), "kinds": "dct2"},
        UnsupportedError,
        "one-dimensional",
    ),
    "padding of too many axes": ({"padding": (1.5,) * 4}, PatternError, "4 factors"),
    "padding below one": ({"padding": 0.5}, PatternError, "0.5"),
    "transforms of no function": ({"transforms": {(0,): ("hfft", "x")}}, UnsupportedError, "hfft"),
    "transforms of text": ({"transforms": "dct"}, PatternError, "'dct'"),
    "transforms and kinds": ({"transforms": {(0,): ()}, "kinds": "dct2"}, PatternError, "exclude"),
    "kind": ({"kinds": "dct5"}, PatternError, "'dct5'"),
    "kind of no axis": ({"axes": (0, 1), "kinds": {2: "dct2"}}, PatternError, "axis 2"),
    "too few kinds": ({"kinds": ("dct2", "dct2")}, PatternError, "2 entries"),
    "complex to complex of real data": ({"kinds": {2: "c2c"}}, PatternError, "c2c"),
    "real to complex twice": ({"kinds": {2: "r2c", 1: "r2c"}}, PatternError, "r2c"),
    "dct1 of one point": ({"shape": (4, 1), "kinds": {1: "dct1"}}, PatternError, "dct1"),
    "dct1 of one mode": (
        {"shape": (4, 1), "kinds": {1: "dct1"}, "padding": (1, 2)}, PatternError, "2 modes"),
    "effort": ({"effort": "much"}, PatternError, "'much'"),
    "batch of nothing": ({"batch": (0,)}, PatternError, "batch"),
    "norm": ({"norm": "euclid"}, PatternError, "'euclid'"),
    "backend": ({"backend": "fftpack"}, PatternError, "'fftpack'"),
    "method": ({"method": "pigeons"}, MethodError, "pigeons"),
}


@contextmanager
def failing(leg, here, pause=0.0):
    """The kernels of a leg raise on this rank, late."""
    kept, leg.scripts = leg.scripts, {}

    def fail(*arguments):
        time.sleep(pause)
        raise ZeroDivisionError("a kernel")

    if here:
        leg.prepare = lambda *arguments: fail
    yield
    leg.scripts = kept
    vars(leg).pop("prepare", None)


@parameters(mistake=list(WRONG))
def case_wrong_plans(comm, mistake):
    options, kind, words = WRONG[mistake]
    arguments = {"shape": (8, 8, 8), **options}
    text = agreed(comm, kind, lambda: PFFT(comm, **arguments))
    assert words in text, text


@ranks(at_least=2)
@parameters(mistake=[
    "shape", "grid", "wrong shape", "array", "dims", "out", "axis", "no axis", "hints",
    "given dims", "dtype", "dtype of one", "part of dtype", "part of order", "part of shape",
    "part of objects"])
def case_ranks_that_disagree(comm, mistake):
    """Also where some know a redistribution from an earlier call."""
    last = comm.rank == comm.size - 1
    grids = Subcomm(comm, [0, 1]), Subcomm(comm, [1, 0])
    u, v = (DistArray((8, 8), grid) for grid in grids)
    lines = comm.Create_cart([comm.size], reorder=False)
    u.redistribute(out=v)
    u.redistribute(0)
    x, y = (DistArray((8, 8), grid, dtype="f" if last else "d") for grid in grids)
    order, objects = (DistArray((8, 8), grids[0], dtype=a if last else "<f8") for a in (">f8", "O"))
    call, kind = {
        "shape": (lambda: PFFT(comm, (8, 8, 9 if last else 8)), MismatchError),
        "grid": (lambda: PFFT(comm, (8, 8, 8), grid=(1, -1) if last else (-1,)), MismatchError),
        "wrong shape": (lambda: PFFT(comm, (8, 8, 0 if last else 8)), PatternError),
        "array": (lambda: PFFT(comm, darray=np.zeros(3) if last else u), PatternError),
        "dims": (lambda: Subcomm(comm, [comm.size, 1][:: -1 if last else 1]), MismatchError),
        "out": (lambda: u.redistribute(out=np.zeros((8, 8)) if last else v), PatternError),
        "axis": (lambda: u.redistribute(0 if last else 1), MismatchError),
        "no axis": (lambda: u.redistribute(**({} if last else {"out": v})), PatternError),
        "hints": (lambda: PFFT(comm, (8, 8, 8), info={"slots": "1"} if last else {}),
                  MismatchError),
        "given dims": (lambda: Subcomm(lines, [comm.size] if last else None), MismatchError),
        "dtype": (lambda: x.redistribute(out=y), MismatchError),
        "dtype of one": (lambda: x.redistribute(0), MismatchError),
        "part of dtype": (lambda: x.get(()), MismatchError),
        "part of order": (lambda: order.get(()), MismatchError),
        "part of shape": (lambda: DistArray((8, 9 if last else 8), grids[0]).get([0, 0]),
                          MismatchError),
        "part of objects": (lambda: objects.get(()), PatternError),
    }[mistake]
    assert f"rank {comm.size - 1}" in agreed(comm, kind, call)
    lines.Free()
    for grid in grids:
        grid.destroy()


@ranks(at_least=2)
def case_a_warning_that_is_an_error_is_every_ranks(comm):
    """Rank 0 alone warns of plain memory."""
    refuses = mock.Mock(**{"of.return_value.claim.side_effect": ResourceError("no memory is left")})
    with mock.patch.object(commons, "Arena", refuses), mock.patch.object(memory, "_warned", False):
        with warnings.catch_warnings(action="error", category=RuntimeWarning):
            text = agreed(
                comm, RuntimeWarning, lambda: PFFT(comm, (8, 8, 8), method=METHOD))
    assert "no memory is left" in text


@parameters(shape=[(6, 8, 10), (1, 8, 10)])
def case_wrong_arrays(comm, shape):
    """Found before anything starts, and on every rank, also of one that has nothing to send; the
    plan goes on working."""
    with PFFT(comm, shape, grid=(-1,), method=METHOD) as plan:
        u, u_hat = newDistArray(plan, False), newDistArray(plan)
        longer = np.zeros((*u.shape[:2], u.shape[2] + 1))
        locked = u_hat.v.copy()
        locked.flags.writeable = False
        wrong = [
            ((longer, u_hat), f"{longer.shape}", f"{u.shape}"),
            ((u, longer), f"{longer.shape}", f"{u_hat.shape}"),
            # an empty block takes it
            *[((np.array(["a"]), u_hat), "<U1", "float64")] * (shape[0] > 1),
            ((u, u_hat.tolist()), "list", "NumPy"),
            ((u, locked), "read-only", "output"),
        ]
        for arrays, *words in wrong:
            late = comm.size - 1  # one rank alone is wrong, and of its arrays all are told
            words = comm.bcast(words, late)
            given = arrays if comm.rank == late else (u, u_hat)
            text = agreed(comm, PatternError, lambda given=given: plan.forward(*given))
            assert all(word in text for word in words), text
        if late:
            text = agreed(
                comm, PatternError, lambda: plan.forward(u, u_hat, normalize=comm.rank != late))
            assert "factors" in text
        u[...] = 1.0
        plan.forward(u, u_hat)
        total = comm.allreduce(complex(u_hat.v.sum()))
        assert abs(total - 1.0) < 1e-12


@ranks(at_most=1)
def case_overlapping_arrays_without_a_transpose(comm):
    with PFFT(comm, (4, 4, 4), dtype=complex, method=METHOD) as plan:
        memory = np.arange(96.0).reshape(6, 4, 4) + 0j
        with pytest.raises(PatternError, match="overlap"):
            plan.forward(memory[:4], memory[1:5])
        expected = np.fft.fftn(memory[:4], norm="forward")
        np.testing.assert_allclose(plan.forward(memory[:4], memory[:4]), expected, atol=1e-12)


def case_use_after_destroy(comm):
    plan = PFFT(comm, (6, 8, 10), method=METHOD)
    u = newDistArray(plan, False)
    plan.forward(u)
    plan.destroy()
    plan.destroy()
    for call in (lambda: plan.forward(u), lambda: plan.backward(u)):
        with pytest.raises(RequestError, match="destroyed"):
            call()
    assert plan.shape(False) == u.shape


def case_leaving_by_an_exception_calls_nothing_collective(comm):
    """Every rank leaves with its own error; had the plan called anything, ranks would hang."""
    plan = PFFT(comm, (6, 8, 10), method=METHOD)
    try:
        with plan:
            if comm.rank == 0:
                raise KeyError("one rank alone")
            comm.Barrier  # noqa: B018 - the others are still inside
            raise ValueError("the others")
    except (KeyError, ValueError):
        pass
    plan.forward(newDistArray(plan, False))
    plan.destroy()


@parameters(grid=["pencil", "slab", "line"], method=["rma-notify", "rma-fence", "p2p"],
            call=[0, 1, 2, 3])
def case_an_error_of_a_kernel_is_every_ranks(comm, grid, method, call):
    """On one rank, in whichever step: the others neither hang nor go on, and the next call works.

    Also where the rank that fails is late, and its peers stage their blocks.
    """
    shape = (comm.size * 12,) if grid == "line" else (6, 8, 10)
    options = {"grid": (-1,) if grid == "slab" else None, "effort": "estimate"}
    with PFFT(comm, shape, dtype=complex, method=method, **options) as plan:
        u, u_hat = newDistArray(plan, False, val=1), newDistArray(plan)
        plan.forward(u, u_hat)
        legs = [leg for forward in (True, False) for leg in plan._execution.engine.legs(forward)]
        leg = legs[call % len(legs)]
        forward = call % len(legs) < len(legs) // 2
        with failing(leg, comm.rank == comm.size - 1, 0.01):
            with pytest.raises(ZeroDivisionError, match="a kernel"):
                plan.forward(u, u_hat) if forward else plan.backward(u_hat, u)
        u[...] = comm.rank + 1.0
        plan.forward(u, u_hat)
        back = plan.backward(u_hat, newDistArray(plan, False))
        np.testing.assert_allclose(back, u, atol=1e-12)


@parameters(where=["pass", "sums", "flight"])
def case_an_interrupt_breaks_one_plan(comm, where):
    """It refuses everything from then on; what else is there on the communicator goes on."""
    plan, other = (PFFT(comm, (6, 8, 10), grid=(-1,), method=METHOD) for _ in range(2))
    execution, u = plan._execution, newDistArray(plan, False, val=1)

    def interrupted(*arguments):
        raise KeyboardInterrupt

    agreement = execution._sums
    if where == "sums" and agreement is None:
        where = "pass"
    if where == "sums":  # the last rank alone: the others have what they wait for
        start = agreement.start
        if comm.rank == comm.size - 1:
            agreement.start = lambda: interrupted(start())
    else:
        last = execution.engine.legs(True)[-1]
        last.scripts, last.prepare = {}, lambda *_: interrupted
    begun = where == "flight"
    if begun:
        plan.forward.Start(u)
    calls = [plan.forward.Wait] if begun else [lambda: plan.forward(u)]
    try:
        calls[0]()
    except KeyboardInterrupt:
        calls += [plan.forward.Test] if begun else [plan.backward]
        for call in (*calls, lambda: plan.forward(u)):
            with pytest.raises(RequestError, match="make a new plan"):
                call()
    else:
        assert where == "sums"
        assert comm.rank < comm.size - 1
    assert sums(comm, 3, np.int64).of(1) == [comm.size]
    plan.destroy()
    for each in (other, PFFT(comm, (6, 8, 10), grid=(-1,), method=METHOD)):
        np.testing.assert_allclose(each.backward(each.forward(u)), u, atol=1e-12)
        each.destroy()


class Interrupt:
    """What an interrupt meets, once, in the middle of a redistribution."""

    def __init__(self, parts):
        self._parts, self._came = parts, False

    def __iter__(self):
        if not self._came:
            self._came = True
            raise KeyboardInterrupt
        return iter(self._parts)


@ranks(at_least=2)
@parameters(call=["out", "axis"], where=["kept", "incoming"])
def case_an_interrupted_redistribution_is_made_anew(comm, call, where):
    """Of the last rank, before it has waited or before it has read; the others are complete."""
    grids = [Subcomm(comm, dims, reorder=False) for dims in ([0, 1], [1, 0])]
    u, v = (DistArray((3 * comm.size, 2 * comm.size), grid, val=-1.0) for grid in grids)
    u[...] = np.arange(u.size).reshape(u.shape) + 100 * comm.rank
    v[...] = 0
    over = grids[0][0]
    calls = {
        "out": (comm, lambda: u.redistribute(out=v)),
        "axis": (over, lambda: u.redistribute(0)),
    }
    over, do = calls[call]
    expected = np.array(do())
    last = comm.rank == comm.size - 1
    if last:
        (found,) = Redistributions.of(over)._known.values()
        for way in found._ways:
            setattr(way, where, Interrupt(getattr(way, where)))
    try:
        do()
    except KeyboardInterrupt:
        assert last
    else:
        assert not last
    for _ in range(3):
        v[...] = 0
        np.testing.assert_array_equal(do(), expected)
    for grid in grids:
        grid.destroy()
