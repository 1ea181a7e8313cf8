"""The parallel FFT against scipy.fft on the whole array."""

from __future__ import annotations

import gc
import pickle
import sys
import time
from functools import partial

import numpy as np
import pytest
from cases import parameters, ranks
from fft_data import block, close, planned, spectrum, there_and_back, whole
from mpi4py import MPI

from onesided.collectives import PatternError, methods
from onesided.collectives.context import Context
from onesided.collectives.memory import find_region
from onesided.pencilfft import (
    PFFT,
    DistArray,
    distarray,
    fftshift,
    ifftshift,
    newDistArray,
    passes,
    workspace,
)
from onesided.pencilfft.commons import Commons
from onesided.pencilfft.pencil import near

GRIDS = {"pencil": None, "slab": (-1,), "second axis": (1, -1), "auto": "auto"}


def count_opened(plan):
    """Of every round that follows, whether its blocks are written where they are read next."""
    opened = []

    def noted(call):
        opened.append(call())
        return opened[-1]

    for leg in (leg for forward in (True, False) for leg in plan._execution.engine.legs(forward)):
        if leg.transpose is not None:
            leg.transpose.open = partial(noted, leg.transpose.open)
    return opened


@ranks(at_least=2)
@parameters(method=lambda: list(methods()), grid=["pencil", "slab"])
def case_delayed_ranks(comm, method, grid, seed):
    """One rank after the other is late, each direction several times in a row: nobody may write
    into a stage that is still in use, and none is late for the next transform, as ranks agree at
    the end of each."""
    shape = (8, 9, 10)
    inputs = [whole(shape, "D", seed + k) for k in range(3)]
    spectra = [spectrum(values) for values in inputs]
    with planned(comm, shape, dtype="D", grid=GRIDS[grid], method=method) as plan:
        assert method == "auto" or {each.method for each in plan.transposes} <= {method}
        mine = plan.local_slice(False)
        opened = count_opened(plan)
        for late in range(comm.size):
            found = []
            for transform, blocks in (
                (plan.forward, [values[mine] for values in inputs]),
                (plan.backward, [values[plan.local_slice()] for values in spectra]),
            ):
                for k, block_of in enumerate(blocks):
                    if comm.rank == late and k != 1:
                        time.sleep(0.01)
                    found.append(transform(block_of).copy())
            for k in range(3):
                close(found[k], spectra[k][plan.local_slice()], "d")
                close(found[3 + k], inputs[k][mine], "d")
        assert all(opened) or not plan.transposes[0].request.direct
        assert opened


@parameters(grid=list(GRIDS))
def case_stages_lie_in_window_memory_of_their_transpose(comm, grid):
    """Else it would be right, and slow."""
    with planned(comm, (8, 8, 8), grid=GRIDS[grid]) as plan:
        assert comm.size == 1 or plan.transposes
        for leg in (*plan._engine.legs(True), *plan._engine.legs(False)):
            if leg.source is not None:
                region = find_region(leg.reads[0])
                assert region is not None
                assert region.context.comm.size > 1


@parameters(norm=["forward", "ortho", "backward", None], char="fD")
def case_norms(comm, norm, char, seed):
    shape = (4, 6, 5)
    values = whole(shape, char, seed)
    expected = spectrum(values, norm=norm or "forward")
    with planned(comm, shape, dtype=char, norm=norm) as plan:
        there_and_back(plan, values, expected, char)
        u = values[plan.local_slice(False)]
        unscaled = spectrum(values, norm="backward")[plan.local_slice()]
        close(plan.forward(u, normalize=False), unscaled, char)
        close(plan.forward(u, normalize=True), unscaled / values.size, char)
        close(plan.backward(unscaled, normalize=True), u, char)
        close(plan.backward(unscaled / values.size, normalize=False), u, char)


def case_nothing_is_lost_with_nan(comm):
    """NaN comes out where it belongs and disturbs no later call."""
    shape = (6, 8, 10)
    values = whole(shape, "d", 3)
    with planned(comm, shape) as plan:
        assert np.all(np.isnan(plan.forward(np.full(plan.shape(False), np.nan))))
        there_and_back(plan, values, spectrum(values), "d")


@parameters(grid=["pencil", "slab"], char="dD", padding=[False, (1, 1.5, 1)])
def case_inputs_that_may_be_overwritten(comm, grid, char, padding, seed):
    """They are, and what cannot be is not; less memory is taken where nothing is transposed."""
    shape = (6, 8, 10)
    values = whole(shape, char, seed)
    options = {"dtype": char, "grid": GRIDS[grid], "padding": padding, "effort": "estimate"}
    taken = []
    with planned(comm, shape, **options) as plan:
        u = newDistArray(plan, False)
        u_hat = plan.forward(plan.backward(spectrum(values)[plan.local_slice()], u)).copy()
        close(u_hat, spectrum(values)[plan.local_slice()], char)
        taken.append(plan._engine._workspace.nbytes)
    with planned(comm, shape, overwrite_input=True, **options) as plan:
        taken.append(plan._engine._workspace.nbytes)
        given = u.copy(), np.asfortranarray(u), np.repeat(u, 2, axis=1)[:, ::2]
        for array in given:
            close(plan.forward(array), u_hat, char)
            assert char == "d" or not array.size or not np.array_equal(array, u)
        spectra = u_hat.copy(), np.asfortranarray(u_hat), u_hat[::-1].copy()[::-1]
        for array in spectra:
            close(plan.backward(array), u, char)
            assert not array.size or not np.array_equal(array, u_hat)
        fixed = u_hat.v.copy()
        fixed.flags.writeable = False
        close(plan.backward(fixed), u, char)
        np.testing.assert_array_equal(fixed, u_hat)
        one = np.zeros(1, plan.dtype(False)) + 2
        flat = np.lib.stride_tricks.as_strided(one, plan.shape(False), (0, 0, 0), writeable=True)
        everywhere = plan.forward(flat)
        assert one[0] == 2
        close(plan.backward(everywhere), np.full(plan.shape(False), 2), char)
    saved = comm.size == 1 and (char == "d" or bool(padding))
    assert taken[0] - taken[1] == saved * u_hat.nbytes


@parameters(view=[False, True], tensor=[0, 1, 2])
def case_distarray(comm, view, tensor):
    shape = (5, 8, 6)
    with planned(comm, shape) as plan:
        for forward_output in (False, True):
            array = newDistArray(plan, forward_output, val=2, rank=tensor, view=view)
            local = (3,) * tensor + plan.shape(forward_output)
            assert array.shape == local
            assert array.dtype == plan.dtype(forward_output)
            assert np.all(array == 2)
            assert isinstance(array, DistArray) is not view
            if view:
                assert isinstance(array.base, DistArray)
                assert array.base.rank == tensor
                continue
            assert array.global_shape == (3,) * tensor + plan.global_shape(forward_output)
            assert array.local_slice()[tensor:] == plan.local_slice(forward_output)
            assert array.rank == tensor
            component = array[(1,) * tensor]
            if tensor:
                assert isinstance(component, DistArray)
                assert component.rank == 0
                component[...] = 5
                assert np.all(array.v[(1,) * tensor] == 5)
            blocks = comm.allgather(array.size)
            assert sum(blocks) == np.prod(array.global_shape)
    axes = 2 + tensor // 2
    square = DistArray((4 * comm.size, 4, 4)[:axes], [0, 1, 1][:axes])
    for val in (1, np.True_, np.array(1.0)):
        assert np.all(DistArray(square.global_shape, [0, 1, 1][:axes], val, np.dtype("f4")) == 1)
    for turned in (square.T, square.swapaxes(0, 1), np.moveaxis(square, 0, -1), square.T.copy(),
                   pickle.loads(pickle.dumps(square))):
        assert type(turned) is np.ndarray
    for same in (square.view(), square + 1, 1 - square, -square, square.copy("F"), abs(square)):
        assert same.pencil is square.pencil


def dropped(things, count=None):
    """Let the first things of a list go, also those that refer to each other."""
    del things[:count]
    gc.collect()


def fails(engine):
    """Let it raise once it has been freed, on every rank."""
    free = engine.free

    def fail():
        free()
        raise ZeroDivisionError("an engine")

    engine.free = fail


@parameters(method=["rma-notify", "rma-fence", "p2p"], last=[
    "communicator", "plan", "dropped", "dropped late", "failed", "failed late"])
def case_a_destroyed_plan_leaves_nothing(comm, method, last, monkeypatch):
    """Of its own, while arrays and plan live on; and nothing at all with the communicator, which
    may be freed before a plan, and where what another plan has left cannot be freed."""
    before = list(Context._all)
    own = comm.Dup()
    left = []
    for _ in range(3):
        with PFFT(own, (6, 7, 8), dtype=float, method=method) as plan:
            spectrum = plan.forward(newDistArray(plan, False, val=1))
            plan.backward(spectrum)
        left.append(list(Context._all))
        arenas = [Context.of(part).arena for part in plan.subcomm if part.size > 1]
        assert not any(arena._taken for arena in arenas if arena is not None)
    assert left[0] == left[2]
    assert spectrum.shape == plan.shape()
    plans = [PFFT(own, (6, 7, 8), method=method) for _ in range(2 * (last != "communicator"))]
    heard, shared = [], Commons.of(own)
    monkeypatch.setattr(sys, "unraisablehook", lambda told: heard.append(told.exc_type))
    if "failed" in last:
        fails(plans[0]._execution.engine)
    if last in ("dropped", "failed", "failed late"):
        with pytest.warns(ResourceWarning, match="the next plan on its communicator"):
            dropped(plans, 1 if last == "failed late" else 2)
    if last == "failed late":
        with pytest.raises(ZeroDivisionError, match="an engine"):
            plans[0].destroy()
    own.Free()
    if last == "dropped late":
        with pytest.warns(ResourceWarning, match="MPI ends" if comm.size > 1 else "been freed"):
            dropped(plans)
        if comm.size > 1:
            shared.collect()  # MPI's end is far
    for plan in plans:
        plan.destroy()
    del arenas
    assert heard == [ZeroDivisionError] * (last == "failed")
    assert list(Context._all) == before


@ranks(at_least=2)
@parameters(least=[0, 300, 1 << 20], grid=[(-1,), None], method=["rma-notify", "p2p"])
def case_messages_of_several_blocks(comm, least, grid, method):
    """Between nodes blocks are delivered together until their messages are long enough."""
    kept = workspace.MESSAGE_BYTES, passes.CACHE_BYTES
    workspace.MESSAGE_BYTES, passes.CACHE_BYTES = least, 200
    values = whole((9, 10, 12), "d", 1)
    expected = spectrum(values)
    info = {"ranks_per_node": "1"}
    try:
        plan = planned(comm, values.shape, method, grid=grid, info=info, effort="estimate")
        with plan:
            counts = [len(each.routes()["direct"]) for each in plan.transposes]
            there_and_back(plan, values, expected, "d")
            there_and_back(plan, 2 * values, 2 * expected, "d")
    finally:
        workspace.MESSAGE_BYTES, passes.CACHE_BYTES = kept
    if least == 0:
        assert max(counts) > 1
    if least == 1 << 20:
        assert max(counts) == 1


@parameters(ranks_per_node=[1, 2, 3], options=[{}, {"collapse": True}, {"grid": (-1, 1)}])
def case_one_of_two_transposes_stays_on_a_node(comm, ranks_per_node, options):
    """Wherever so many ranks of a node make a grid that keeps all busy."""
    info = {"ranks_per_node": str(ranks_per_node)}
    with planned(comm, (12, 12, 12), info=info, effort="estimate", **options) as plan:
        there_and_back(plan, *(2 * [np.zeros((12, 12, 12))]), "d")
        values = whole((12, 12, 12), "d", 5)
        there_and_back(plan, values, spectrum(values), "d")
        node = set(Context.of(comm).node(ranks_per_node).ranks)
        here = set(plan.subcomm[1].allgather(comm.rank))
        if plan.grid[0] > 1 and comm.size % ranks_per_node == 0 and "grid" not in options:
            possible = [q for q in range(2, comm.size)
                        if comm.size % q == 0 and ranks_per_node % q == 0 and plan.grid[1] > 1]
            assert here <= node or not possible
        if "grid" in options:
            assert plan.grid == (comm.size, 1, 1)
    if not options and comm.size == MPI.COMM_WORLD.size:  # arrays that are made without a plan
        kept, distarray.near = distarray.near, partial(near, ranks_per_node=ranks_per_node)
        try:
            for shape in ((12, 12, 12), (1, 8, 8), (12, 12)):
                with planned(comm, shape, info=info, effort="estimate") as plan:
                    assert tuple(DistArray(shape).commsizes) == plan.grid
                    assert DistArray(shape).local_slice() == plan.local_slice(False)
        finally:
            distarray.near = kept


@parameters(shape=[(5, 6, 7), (1, 8), (36,)], batch=[(), (2,)], axes=[None, 0, (-1, 0), ()])
def case_shifted(comm, shape, batch, axes):
    """Of split and of whole axes, of even and odd lengths, and with fewer points than ranks."""
    if len(shape) == 1 and comm.size > 6:
        shape = (comm.size**2,)
    values = whole((*batch, *shape), "D", 3)
    with planned(comm, shape, dtype=complex, batch=batch, effort="estimate") as plan:
        u = block(plan, values, True)
        kept = u.copy()
        lead, ndim = len(batch), len(shape)
        chosen = range(ndim) if axes is None else np.atleast_1d(axes)
        places = [lead + int(axis) % ndim for axis in chosen]
        for ours, theirs in ((fftshift, np.fft.fftshift), (ifftshift, np.fft.ifftshift)):
            found = ours(u, axes)
            assert np.array_equal(found.v, theirs(values, places)[plan.local_slice()])
            assert found.pencil is u.pencil
            assert found.rank == u.rank
            assert not np.may_share_memory(found, u)
        assert np.array_equal(ifftshift(fftshift(u, axes), axes), kept)
        assert np.array_equal(u, kept)
        with pytest.raises(PatternError, match="are not among"):
            fftshift(u, ndim)
