"""Grids: updates with boundaries, the way back, items that move, whole fields, mistakes."""

from __future__ import annotations

import os
import shutil
import tempfile
from types import SimpleNamespace

import numpy as np
from cases import need, parameters, ranks
from errors import agreed, raises
from mpi4py import MPI
from subjects import by

from onesided.collectives import (
    Grid,
    MismatchError,
    PatternError,
    RequestError,
    ResourceError,
)
from onesided.collectives.context import Context
from onesided.collectives.halo import grid as grids
from onesided.collectives.halo import migration, redistribution
from onesided.collectives.halo.migration import REVIEW
from onesided.pencilfft import DistArray, Pencil, Subcomm, read_field, write_field

MODES = {"copy": "edge", "reflect": "symmetric", 7: "constant"}
SHAPES = [((13,), (2,)), ((7, 9), ((1, 2), 1)), ((9, 8, 7), (1, (2, 1), 1))]
#: Blocks thinner than their halos, and more ranks than cells from some number of ranks on.
THIN = [((5,), (3,)), ((2, 3), (1, 2)), ((1, 2, 2), (1, 1, 2))]


def tenfold(ghosts, inside, axis, side, coordinates, t):
    ghosts[...] = 10 * inside


def timely(ghosts, inside, axis, side, coordinates, t):
    ghosts[...] = t


def padded(whole, grid, conditions, staggered=()):
    """A global array with its ghosts, axis after axis, as NumPy pads."""
    lead = whole.ndim - len(grid.shape)
    for axis, layers in enumerate(grid.layers):
        width = [(0, 0)] * whole.ndim
        width[lead + axis] = layers
        condition, sign = conditions[axis], 1
        if grid.periodic[axis]:
            whole = np.pad(whole, width, mode="wrap")
            continue
        if condition in ("antireflect", tenfold):
            sign, condition = (-1 if condition == "antireflect" else 10), "reflect"
        mode = MODES[condition]
        if mode == "symmetric" and axis in staggered:
            mode = "reflect"
        more = {"constant_values": 7} if mode == "constant" else {}
        before = whole.shape[lead + axis]
        whole = np.pad(whole, width, mode=mode, **more)
        ends = np.moveaxis(whole, lead + axis, 0)
        ends[: layers[0]] *= sign
        ends[layers[0] + before :] *= sign
    return whole


def window(array, grid, field):
    """What a rank's field must show of the padded global array."""
    lead = field.ndim - len(grid.shape)
    return array[(..., *(slice(part.start, part.start + n)
                         for part, n in zip(grid.box, field.shape[lead:], strict=True)))]


def beyond(grid, field, staggered):
    """Which points lie outside the whole grid, along an axis that is not periodic."""
    dims = len(grid.shape)
    found = np.zeros(field.shape[field.ndim - dims:], bool)
    for axis, n in enumerate(found.shape):
        if not grid.periodic[axis] and 0 not in grid.local_shape:
            at = grid.box[axis].start - grid.layers[axis][0] + np.arange(n)
            outside = (at < 0) | (at >= grid.shape[axis] + (axis in staggered))
            found |= outside.reshape([-1 if each == axis else 1 for each in range(dims)])
    return found


def shows(grid, field, want):
    """Whether a field is this window of a padded array; a block without cells shows nothing."""
    return 0 in grid.local_shape or np.array_equal(field, window(want, grid, field))


def numbers(grid, components=(), dtype="i8", staggered=()):
    """The global array of a field: its index, small."""
    shape = [n + (axis in staggered and not grid.periodic[axis])
             for axis, n in enumerate(grid.shape)]
    whole = np.arange(np.prod([*components, *shape])).reshape(*components, *shape) % 97 + 1
    return whole.astype(dtype)


def set_own(grid, field, whole):
    field[...] = np.array(55).astype(field.dtype)
    start = [part.start for part in grid.box]
    own = field[grid.owned]
    lead = own.ndim - len(start)
    own[...] = whole[(..., *(slice(s, s + n)
                             for s, n in zip(start, own.shape[lead:], strict=True)))]


@parameters(form=SHAPES + THIN, way=["staged", "store", "message"])
def case_update(comm, form, way):
    """Several fields in one message, periodic and not, every condition, as NumPy pads them; corners
    directly and along axes."""
    (shape, halo), names = form, ["copy", "reflect", 7, "antireflect", tenfold]
    for turn, name in enumerate(names):
        conditions = [name, *names[turn:], *names][: len(shape)]
        periodic = [(turn + axis) % 3 == 1 for axis in range(len(shape))]
        with by(way) as info:
            grid = Grid(comm, shape, halo, periodic=periodic, corners=("axes", "direct")[turn % 2],
                        boundary=dict(enumerate(conditions)))
            forms = [((), "i8", ()), ((2,), "f4", (turn % len(shape),)), ((), "c16", ())]
            fields = [grid.zeros(*each) for each in forms]
            halo_of = grid.halo(*fields, info=info)
        for _ in range(3):
            for field, each in zip(fields, forms, strict=True):
                set_own(grid, field, numbers(grid, *each))
            halo_of.Start()
            halo_of.Wait()
            for field, each in zip(fields, forms, strict=True):
                want = padded(numbers(grid, *each), grid, conditions, each[2])
                assert shows(grid, field, want), (turn, each, grid)
        halo_of.Free()
        for field, each in zip(fields, forms, strict=True):
            set_own(grid, field, numbers(grid, *each))
        assert grid.update(*fields)[1] is fields[1]
        for field, each in zip(fields, forms, strict=True):
            want = padded(numbers(grid, *each), grid, conditions, each[2])
            assert shows(grid, field, want)
        grid.Free()


def case_what_a_rank_owns(comm):
    """Interior and boundary cover every own cell once; thin blocks have no interior."""
    for shape, halo in [((4 * comm.size + 1, 9), (1, 2)), ((2 * comm.size, 3), 1), ((30, 30), 0),
                        ((2, 1), 3)]:
        grid = Grid(comm, shape, halo)
        count = grid.zeros(2, "i4")
        for part in [grid.interior, *grid.boundary]:
            count[part] += 1
        assert (count[grid.owned] == 1).all()
        assert count.sum() == count[grid.owned].size
        if any(n < sum(ghosts) for n, ghosts in zip(grid.local_shape, grid.layers, strict=True)):
            for by in (-2, -1, 1, 2):  # as a stencil does: still empty
                moved = [slice(part.start + by, part.stop + by) for part in grid.interior[1:]]
                assert not count[(..., *moved)].size
        x, y = grid.coordinates()
        assert x.shape == (grid.local_shape[0], 1)
        for points, part in ((x, grid.box[0]), (y, grid.box[1])):
            assert not points.size or points.min() == part.start + 0.5
        assert comm.allreduce(x.size * y.size) == np.prod(shape)
        assert count.any() or 0 in grid.local_shape
        wide = grid.coordinates(0, ghosts=True)[0]
        assert wide.shape == (grid.empty(staggered=0).shape[0], 1)
        assert wide.size < 7 or wide[grid.layers[0][0], 0] == grid.box[0].start
        grid.Free()


@parameters(way=["staged", "store", "message"])
def case_turns(comm, way):
    """Two time levels of one request, a field beside; walls, whose ghosts are filled when all has
    come."""
    with by(way) as info:
        grid = Grid(comm, (6, 4 * comm.size), periodic=(False, True), boundary=0, info=info)
        u, new, beside = grid.zeros(), grid.zeros(), grid.zeros(2, "i4")
        for turn in range(5):
            now, still = (u, new)[:: -1 if turn % 2 else 1]
            before = still.copy()
            set_own(grid, now, numbers(grid) + turn)
            set_own(grid, beside, numbers(grid, (2,)) + turn)
            given = grid.update((u, new), beside)
            assert given[0] is now
            assert np.array_equal(still, before)
            for field, each in ((now, ()), (beside, (2,))):
                lead = ((0, 0),) * len(each)
                want = np.pad(numbers(grid, each) + turn, (*lead, (1, 1), (0, 0)))
                want = np.pad(want, (*lead, (0, 0), (1, 1)), "wrap")
                assert np.array_equal(field, window(want, grid, field))
        assert len(grid._plans) == 1
    grid.Free()


@parameters(form=SHAPES + THIN, ghosts=["all", "edges", "faces"])
def case_accumulate_is_the_adjoint(comm, form, ghosts, seed):
    """(update x, y) = (x, accumulate y), exactly, in whole numbers."""
    (shape, halo), rng = form, np.random.default_rng([seed, comm.rank])
    for turn, name in enumerate(["copy", "reflect", "antireflect", 0, None]):
        periodic = [(turn + axis) % 2 == 1 for axis in range(len(shape))]
        grid = Grid(comm, shape, halo, periodic=periodic, boundary=name, ghosts=ghosts,
                    corners=("direct", "axes")[turn % 2])
        fields = [grid.zeros((), "i8"), grid.zeros(2, "i8", staggered=0)]
        before = [rng.integers(-9, 9, field.shape) for field in fields]
        weights = [rng.integers(-9, 9, field.shape) for field in fields]
        for values, other in ((before, weights), (weights, before)):
            for field, value in zip(fields, values, strict=True):
                field[...] = value
            (grid.update if values is before else grid.accumulate)(*fields)
            mine = sum(int((field * each).sum())
                       for field, each in zip(fields, other, strict=True))
            total = comm.allreduce(mine)
            if values is before:
                forward = total
        if name is not None:
            assert total == forward, (name, periodic)
        else:
            for field, each, staggered in zip(fields, weights, ((), (0,)), strict=True):
                ends = beyond(grid, field, staggered)
                assert np.array_equal(field[..., ends], each[..., ends])
        grid.Free()


@parameters(op=["min", "max"])
def case_accumulate_extremes(comm, op, seed):
    shape = (5, 3 * comm.size)
    grid = Grid(comm, shape, (1, 2), periodic=(False, True), boundary="copy")
    field, combine = grid.zeros((), "f8"), {"min": np.minimum, "max": np.maximum}[op]
    field[...] = np.random.default_rng([seed, comm.rank]).random(field.shape)
    index = window(padded(np.arange(np.prod(shape)).reshape(shape), grid, ["copy"] * 2), grid,
                   field)
    start = np.inf if op == "min" else -np.inf
    mine = np.full(np.prod(shape), start)
    combine.at(mine, index.ravel(), field.ravel())
    comm.Allreduce(mine.copy(), mine, MPI.MIN if op == "min" else MPI.MAX)
    grid.accumulate(field, op=op)
    assert np.array_equal(field[grid.owned], mine[index][grid.owned])
    grid.Free()


@parameters(way=["staged", "store", "message"], boundary=["copy", "reflect", "antireflect", None])
def case_accumulate_where_floating_point_errors_are_raised(comm, way, boundary):
    """What is no number goes its way, and breaks no rank's request."""
    with by(way) as info:
        grid = Grid(comm, (3 * comm.size, 5), 1, periodic=(boundary is None, False),
                    boundary=None if boundary is None else (boundary, None), info=info)
        field = grid.zeros()
    field[...] = -np.inf
    field[grid.owned] = np.inf
    with np.errstate(all="raise"):
        for _ in range(2):
            grid.accumulate(field)
    assert comm.size == 1 or np.isnan(field[grid.owned]).any()
    grid.Free()


def case_fields_in_each_other_s_gaps(comm):
    """Arrays may be interleaved as long as no element is in two of them."""
    grid = Grid(comm, (3 * comm.size, 5), 1, periodic=True)
    memory = np.zeros((*grid.zeros().shape, 2), "i8")
    fields = [memory[..., k] for k in range(2)]
    for turn, field in enumerate(fields):
        set_own(grid, field, numbers(grid) + turn)
    grid.update(*fields)
    for turn, field in enumerate(fields):
        want = padded(numbers(grid) + turn, grid, [None, None])
        assert np.array_equal(field, window(want, grid, field))
    everywhere(comm, PatternError, "share memory", grid.update, fields[0], memory[..., :1][..., 0])
    grid.Free()


@parameters(empty=["first", "last", "between"], way=["staged", "store", "message"])
def case_fields_without_components(comm, empty, way):
    """They take nothing from the others, wherever they stand in the list."""
    with by(way) as info:
        grid = Grid(comm, (4 * comm.size, 6), 1, periodic=True)
        none, u, v = grid.zeros(0), grid.zeros((), "i8"), grid.zeros(2, "i8")
        fields = {"first": (none, u, v), "last": (u, v, none), "between": (u, none, v)}[empty]
        halo = grid.halo(*fields, info=info)
    for turn in range(3):
        for field, components in ((u, ()), (v, (2,))):
            set_own(grid, field, numbers(grid, components) + turn)
        halo.exchange()
        for field, components in ((u, ()), (v, (2,))):
            want = padded(numbers(grid, components) + turn, grid, [None, None])
            assert np.array_equal(field, window(want, grid, field))
    halo.Free()
    grid.update(*fields)
    if comm.size > 1:
        three, mine = grid.zeros(3, "i8"), comm.rank == 0
        everywhere(comm, PatternError, "sends a box of shape", grid.update, none if mine else three)
        for other in (u, three):
            everywhere(comm, MismatchError, "in components", grid.global_shape,
                       other if mine else v)
    grid.Free()


@parameters(memory=["window", "plain"], staggered=[(), (0,), (1,)])
def case_boundaries_that_change(comm, memory, staggered):
    """A number, an array without axes, a function of place and time: others in every call, and
    nothing is planned again."""
    grid = Grid(comm, (4 * comm.size, 5), 2, bounds=[(0.0, 2.0), (-1.0, 1.0)])
    u = grid.zeros((), staggered=staggered)
    if memory == "plain":
        u = u.copy()
    x, y = grid.coordinates(staggered, ghosts=True)
    value = np.zeros(())

    def field(scale):
        def show(ghosts, inside, axis, side, coordinates, t):
            ghosts[...] = scale * coordinates[0] + coordinates[1] + t
            return False

        return show

    inside = np.zeros(u.shape, bool)
    inside[grid.owned] = True
    outside = ~inside
    if grid.coords[0] != 0:
        outside[:2] = False
    if grid.coords[0] != grid.dims[0] - 1:
        outside[-2:] = False
    for turn in range(4):
        value[...] = 3.0 * turn
        u[grid.owned] = 77.0
        grid.update(u, boundary=(np.bool_, np.bool_, int, np.float32)[turn](turn))
        assert (u[outside] == turn).all()
        grid.update(u, boundary=value)
        assert (u[outside] == 3 * turn).all()
        grid.update(u, boundary=field(turn), t=10 * turn)
        want = turn * x + y + 10 * turn
        assert np.allclose(u[outside], np.broadcast_to(want, u.shape)[outside], atol=1e-14)
        assert (u[grid.owned] == 77.0).all()
    assert len(grid._plans) == 2
    halo = grid.halo(u, boundary=field(2))
    for t in (1.0, 2.0):
        halo.Start()
        halo.boundary.time = t
        halo.Wait()
        assert np.allclose(u[outside], np.broadcast_to(2 * x + y + t, u.shape)[outside])
    halo.Free()
    halo = grid.halo(u, boundary=1)  # and an array later, which is looked at once
    value[...] = 8
    halo.boundary.set([[(value, value)] * 2])
    value[...] = 9
    halo.exchange()
    assert (u[outside] == 8).all()
    halo.Free()
    halo, kept = grid.halo(u, boundary=value), Grid(comm, grid.shape, 2, boundary=value)
    other = kept.zeros((), staggered=staggered)
    for turn in range(3):
        value[...] = turn
        halo.exchange()
        kept.update(other)
        assert (u[outside] == turn).all()
        assert (other[outside] == turn).all()
    halo.Free()
    kept.Free()
    grid.Free()


def case_points_on_lower_ends(comm):
    """A field that is staggered along a periodic axis has no point more, but other coordinates."""
    grid = Grid(comm, (4 * comm.size, 5), 1, periodic=(True, False))
    seen = []

    def look(ghosts, inside, axis, side, coordinates, t):
        seen.append(coordinates[0].ravel().copy())

    for staggered in ((), (0,)):
        u = grid.zeros((), staggered=staggered)
        grid.update(u, boundary={1: (look, None)})
        want = grid.coordinates(staggered, ghosts=True)[0].ravel()
        assert np.array_equal(seen.pop(), want)
    grid.Free()


@ranks(at_least=2)
def case_what_one_rank_gives_alone(comm):
    """Raised on every rank, and nothing is left: conditions, hints, items that are none."""
    mine = comm.rank == comm.size - 1
    grid = Grid(comm, (4 * comm.size, 6), 1, info=MPI.Info.Create({"progress": "manual"}))
    u = grid.zeros()
    for bad in ("bogus", [0, 1]):
        everywhere(comm, PatternError, "a boundary condition", grid.update, u,
                   boundary=bad if mine else 0)
    everywhere(comm, PatternError, "axis 7 of a grid", grid.zeros, staggered=7 if mine else 0)
    everywhere(comm, TypeError, "not iterable", grid.zeros, 1.5 if mine else 1)
    everywhere(comm, TypeError, "unhashable", grid.update, u, ghosts=["all"] if mine else "all")
    everywhere(comm, PatternError, "a field is an array", grid.redistribute, u,
               None if mine else u)
    for dims in ((2,), ()):
        everywhere(comm, PatternError, "sizes has", Grid, comm, (4, 6), 1, dims=dims,
                   sizes=[[4], [6]])
    everywhere(comm, MismatchError, "HaloExchange", grid.halo, u,
               info={"ranks_per_node": "1"} if mine else None)
    grid.migrate([], np.ones((1, 2)))
    for bad in ([[1, 2], [3]], None, 7):
        everywhere(comm, PatternError, "arrays that are not", grid.migrate,
                   [bad] if mine else [np.zeros(1)], np.ones((1, 2)))
    backwards = comm.Split(0, -comm.rank)
    other = Grid(backwards, grid.shape, 1)
    everywhere(comm, PatternError, "ranks in other orders", grid.redistribute, u, other,
               other.zeros())
    some = comm.Split(comm.rank % 2)
    few = Grid(some, (4 * some.size, 6), 1)
    if comm.rank % 2 == 0:  # the others are not there to answer
        everywhere(some, PatternError, "of other ranks", few.redistribute, few.zeros(), grid, u)
    grid.update(u, ghosts="all")  # which is kept
    v, fine, apart = grid.zeros(), Grid(comm, (8 * comm.size, 12), 1, dims=(1, comm.size)), (
        np.zeros([2 * n for n in u.shape])[::2, ::2])
    for module, name, call, arguments in [
        (redistribution, "empty", grid.redistribute, (u, grid, apart)),
        (grids, "empty", grid.redistribute, (u, grid)),
        (redistribution, "zeros", grid.refine, (u, fine, fine.zeros())),
        (grids, "empty", grid.refine, (u, fine)),
        (migration, "zeros", grid.migrate, ([np.zeros(40)], np.ones((40, 2)))),
        (migration, "empty", grid.migrate, ([np.zeros(40)], np.ones((40, 2)))),
    ]:
        if mine:
            module.np = SimpleNamespace(**{**vars(np), name: short})
        try:
            everywhere(comm, MemoryError, "no memory", call, *arguments)
        finally:
            module.np = np
    for _ in range(2):
        u[...], v[...] = 5, 3
        assert grid.redistribute(u, grid, v) is v
        assert (v[grid.owned] == 5).all()
    for each in (fine, few, other, grid):
        each.Free()
    some.Free()
    backwards.Free()


def short(*_, **__):
    raise MemoryError("no memory")


@parameters(halo=[1, 2], cells=[2, 3, 9], staggered=[(), (0,)])
def case_overlap(comm, halo, cells, staggered):
    """Every point once, the interior before the ghosts are needed; the last block has one point
    more where the field is staggered. What is raised leaves nothing."""
    grid = Grid(comm, (cells * comm.size, 5), (halo, 0), periodic=(not staggered, False),
                dims=(comm.size, 1), boundary=0)  # fmt: skip
    u, seen = (grid.zeros((), "i8", staggered) for _ in range(2))
    for turn in range(3):
        whole = numbers(grid, staggered=staggered) + turn
        set_own(grid, u, whole)
        seen[...] = 0
        order = []

        def count(where, seen=seen, order=order):
            seen[where] += 1
            order.append(where)

        assert grid.overlap(count, u) is u
        own = seen[halo:-halo]
        assert len(own) == cells + (bool(staggered) and comm.rank == comm.size - 1)
        assert (own == 1).all()
        assert seen.sum() == own.size
        assert cells < 9 or staggered or order[0] == grid.interior
        if not staggered:
            assert np.array_equal(u, window(padded(whole, grid, [None, "copy"]), grid, u))

    def fails(where):
        raise ZeroDivisionError

    if comm.rank == 0:
        raises(ZeroDivisionError, lambda: grid.overlap(fails, u))
    else:
        grid.overlap(len, u)
    grid.update(u)
    grid.Free()


@parameters(call=["update", "overlap", "accumulate", "redistribute", "refine", "migrate",
                  "items that leave"])
def case_interrupted_before_the_wait(comm, call):
    """Ctrl-C between Start and Wait of a request that the program does not have: Free gives it
    back."""
    grid = Grid(comm, (4 * comm.size, 5), 1, periodic=True)
    fine = Grid(comm, (8 * comm.size, 10), 1, dims=(1, comm.size), periodic=True)
    other = Grid(comm, grid.shape, 2, dims=(1, comm.size))
    u, v, w, x = grid.zeros(), fine.zeros(), other.zeros(), np.full((2, 2), 0.5)
    calls = {
        "update": lambda: grid.update(u),
        "overlap": lambda: grid.overlap(len, u),
        "accumulate": lambda: grid.accumulate(u),
        "redistribute": lambda: grid.redistribute(u, other, w),
        "refine": lambda: grid.refine(u, fine, v, order=0),
        "migrate": lambda: grid.migrate([], x),
        "items that leave": lambda: grid.migrate([], x),
    }
    calls[call]()
    plans = [*grid._plans]
    if call in ("migrate", "items that leave"):
        while call != "migrate" and comm.size > 1 and not grid._migration.plans:
            grid.migrate([], np.full((60, 2), 4.0 * ((comm.rank + 1) % comm.size) + 0.5))
        records = [each._data for each in grid._migration._records.values()]
        plans = [grid._migration._agree] if call == "migrate" else records
    request = next((getattr(each, "_request", each) for each in plans), None)
    request = getattr(request, "_request", request)  # of a way in a way
    if request is not None:
        class Interrupted(type(request)):
            def Wait(self, status=None):
                raise KeyboardInterrupt

        kind, request.__class__ = type(request), Interrupted
        raises(KeyboardInterrupt, calls[call])
        request.__class__ = kind
        assert request.state == "broken"
    comm.Barrier()
    for each in (grid, fine, other):
        each.Free()
    assert not Context.of(comm).live


@parameters(nodes=[None, "1"])
def case_one_rank_is_interrupted_before_the_wait(comm, nodes):
    """It has sent, so its neighbors' round ends well; it waits in no other one, until Free."""
    info = None if nodes is None else {"ranks_per_node": nodes}
    ring = Grid(comm, (4 * comm.size,), 1, periodic=True, info=info)
    u = ring.from_function(lambda x: x)
    halo = ring.halo(u)
    if comm.rank == 0:
        class Interrupted(type(halo)):
            def Wait(self, status=None):
                raise KeyboardInterrupt

        kind, halo.__class__ = type(halo), Interrupted
        comm.Barrier()
        raises(KeyboardInterrupt, halo.exchange)
        halo.__class__ = kind
        assert halo.state == "broken"
        raises(RequestError, halo.exchange, "because KeyboardInterrupt was raised")
    else:
        halo.Start()
        comm.Barrier()
        halo.Wait()
        ends = (np.array([-0.5, 4.5]) + 4 * comm.rank) % (4 * comm.size)
        assert np.array_equal(u[[0, -1]], ends)
    halo.Free()
    ring.Free()
    assert not Context.of(comm).live


@parameters(form=[((), ()), ((2,), (1,)), ((), (0, 1))], nodes=[None, "1", "2"])
def case_redistribute(comm, form, nodes):
    """From any grid to any grid: other cuts, ghosts, sizes of blocks, orders of ranks."""
    components, staggered = form
    shape = (5 * comm.size + 2, 3 * comm.size + 1)
    info = None if nodes is None else {"ranks_per_node": nodes}
    first = [2] * (comm.size - 1)
    grids = [
        Grid(comm, shape, 1, dims=(comm.size, 1)),
        Grid(comm, shape, (0, 2), dims=(1, comm.size), info=info),
        Grid(comm, shape, (1, 0), sizes=[[*first, shape[0] - sum(first)], [shape[1]]], info=info),
        Grid(comm, shape, 1, info=info),
        Grid(comm, shape, 2, sizes=[[0] * (comm.size - 1) + [shape[0]], [shape[1]]], info=info),
        Grid(comm, shape, 2, sizes=[[shape[0]], [1, *first[1:], shape[1] - 2 * len(first) + 1][
            : comm.size] if comm.size > 1 else [shape[1]]], info=info),
    ]
    whole = numbers(grids[0], components, "f8", staggered)
    u = grids[0].zeros(components, staggered=staggered)
    set_own(grids[0], u, whole)
    here, field = grids[0], u
    for other in (*grids[1:], grids[0]):
        out = other.zeros(components, staggered=staggered)
        for turn in range(2):
            field[here.owned] += turn
            assert here.redistribute(field, other, out) is out
        assert np.array_equal(out[other.owned], whole[other.part(comm.rank, whole.shape)] + 1)
        other.update(out)
        field[here.owned] -= 1
        kept = [len(held) for each in (here, other) for held in (each._plans, each._regions)]
        fresh = here.redistribute(field, other)
        assert kept == [len(held) for each in (here, other)
                        for held in (each._plans, each._regions)]
        assert np.array_equal(fresh[other.owned], out[other.owned] - 1)
        here, field = other, fresh
    wrong = Grid(comm, (shape[0] + 1, shape[1]), 1)
    everywhere(comm, PatternError, "and one of", grids[0].redistribute, u, wrong,
               wrong.zeros(components, staggered=staggered))
    everywhere(comm, PatternError, "and one of float32", grids[0].redistribute, u, grids[1],
               grids[1].zeros(components, "f4", staggered))
    everywhere(comm, PatternError, "cannot be arranged", Grid, comm, shape, 1,
               sizes=[[shape[0] - 2, 1, 1], [shape[1]]] if comm.size != 3 else [shape[:1],
                                                                                 shape[1:]])
    assert "bytes leave nodes" in grids[1].report()
    for grid in (*grids, wrong):
        grid.Free()


@parameters(nodes=["1", "2"], periodic=[True, False])
def case_orders_of_ranks(comm, nodes, periodic):
    """Ranks that share nodes have neighboring blocks; ghosts, sums and items find them."""
    grid = Grid(comm, (4 * comm.size, 8, 6), 1, periodic=periodic, boundary="copy",
                info={"ranks_per_node": nodes})
    u = grid.zeros((), "i8")
    set_own(grid, u, numbers(grid))
    grid.update(u)
    want = padded(numbers(grid), grid, ["copy"] * 3)
    assert np.array_equal(u, window(want, grid, u))
    assert comm.allreduce(int(np.prod(grid.local_shape))) == np.prod(grid.shape)
    x = np.stack([c.ravel() for c in np.meshgrid(*[
        np.arange(n) + 0.5 for n in grid.shape], indexing="ij")], axis=1)
    x = x[comm.rank :: comm.size]
    _, x = grid.migrate([], x)
    assert len(x) == np.prod(grid.local_shape)
    for axis, box in enumerate(grid.box):
        assert ((x[:, axis] > box.start) & (x[:, axis] < box.stop)).all()
    grid.Free()


@parameters(boundary=["reflect", "antireflect", "function"], halo=[2, (1, 3)])
def case_mirrored_cells_that_are_not_there(comm, boundary, halo):
    """Fewer cells than ghosts: told everywhere; other conditions need no mirror."""
    condition = tenfold if boundary == "function" else boundary
    grid = Grid(comm, (1,), [halo])
    u = grid.zeros()
    everywhere(comm, PatternError, "mirror layers that the block", grid.update, u,
               boundary=condition)
    set_own(grid, u, numbers(grid) + 4)
    grid.update(u, boundary="copy")
    assert 0 in grid.local_shape or (u == 5).all()
    grid.Free()


#: Of the coarse grid, periodic and not; blocks of one cell, and none, from some number of ranks on.
COARSE = [((6,), (True,)), ((3,), (False,)), ((5, 4), (False, True)), ((1, 2), (True, False)),
          ((2, 3, 2), (True, False, False))]


@parameters(form=COARSE, order=[0, 1], cut=["aligned", "chosen", "other ranks"])
def case_refine_and_coarsen(comm, form, order, cut, seed):
    """As NumPy does it on one rank; adjoint to each other with every condition, exactly."""
    shape, periodic = form
    axes, fine_shape = len(shape), tuple(2 * n for n in shape)
    coarse = Grid(comm, shape, (1, (1, 2), 1)[:axes], periodic=periodic)
    more = {}
    if cut == "aligned":
        starts = coarse.starts
        more["sizes"] = [[2 * int(n) for n in np.diff(each)] for each in starts]
    elif cut == "other ranks":
        more["dims"] = [1] * (axes - 1) + [comm.size]
    fine = Grid(comm, fine_shape, 2, periodic=periodic, **more)
    rng = np.random.default_rng(seed)
    for components, dtype, boundary in [((), "f8", "copy"), ((2,), "c16", "antireflect"),
                                        ((), "f4", None), ((), "f8", timely),
                                        ((), "f8", "reflect")]:
        whole_u = rng.integers(-9, 9, (*components, *shape)).astype(dtype)
        whole_v = rng.integers(-9, 9, (*components, *fine_shape)).astype(dtype)
        u, v = coarse.zeros(components, dtype), fine.zeros(components, dtype)
        set_own(coarse, u, whole_u)
        set_own(fine, v, whole_v)
        if boundary is None:  # ghosts are taken as they are
            coarse._clear_ghosts(u)
        there = coarse.refine(u, fine, order=order, boundary=boundary, t=0)
        back = fine.coarsen(v, coarse, order=order, boundary=boundary)
        assert order == 0 or abs(back).sum() == abs(back[coarse.owned]).sum()
        want = interpolated(whole_u, coarse, boundary, order)
        assert np.array_equal(there[fine.owned], want[fine.part(comm.rank, want.shape)])
        one = comm.allreduce(complex((there[fine.owned] * v[fine.owned]).sum()))
        other = comm.allreduce(complex((u[coarse.owned] * back[coarse.owned]).sum()))
        assert one == 2**axes * other, (one, other)
        if order == 0:
            halves = whole_v.reshape(*components, *(m for n in shape for m in (n, 2)))
            mean = halves.mean(tuple(range(len(components) + 1, halves.ndim, 2)))
            assert np.array_equal(back[coarse.owned], mean[coarse.part(comm.rank, mean.shape)])
        assert coarse.refine(u, fine, there, order=order, boundary=boundary, t=0) is there
        assert np.array_equal(there[fine.owned], want[fine.part(comm.rank, want.shape)])
        assert fine.coarsen(v, coarse, back, order=order, boundary=boundary) is back
        again = comm.allreduce(complex((u[coarse.owned] * back[coarse.owned]).sum()))
        assert again == other
    fine.Free()
    coarse.Free()


def interpolated(whole, grid, boundary, order):
    """A global array, refined along one axis after the other."""
    lead = whole.ndim - len(grid.shape)
    for axis, periodic in enumerate(grid.periodic, lead):
        if order == 0:
            whole = np.repeat(whole, 2, axis)
            continue
        width = [(int(a == axis),) * 2 for a in range(whole.ndim)]
        mode = {"copy": "edge", None: "constant", timely: "constant"}.get(boundary, "symmetric")
        mode = "wrap" if periodic else mode
        wide = np.moveaxis(np.pad(whole, width, mode=mode), axis, 0)
        if boundary == "antireflect" and not periodic:
            wide[0], wide[-1] = -wide[0], -wide[-1]
        low, high = 3 * wide[1:-1] + wide[:-2], 3 * wide[1:-1] + wide[2:]
        both = np.stack([low, high], 1).reshape(-1, *wide.shape[1:]) / 4
        whole = np.moveaxis(both, 0, axis).astype(whole.dtype)
    return whole


def case_refine_mistakes(comm):
    """Told everywhere, and nothing is left."""
    last = comm.rank == comm.size - 1
    coarse, fine = Grid(comm, (4, 6), 1), Grid(comm, (8, 12), (0, 1))
    other = Grid(comm, (8, 11), 1)
    u, v = coarse.zeros(), fine.zeros()
    coarse.update(u, ghosts="all")  # which is kept, whatever else is wrong
    single, both = fine.zeros((), "f4"), fine.zeros(2)
    staggered, whole_numbers = coarse.zeros((), staggered=1), coarse.zeros((), "i4")
    for call, arguments, options, text in [
        (coarse.refine, (u, other), {}, "has not twice as many cells"),
        (fine.refine, (v, coarse), {"order": 0}, "has not twice as many cells"),
        (coarse.refine, (whole_numbers, fine), {"order": 0}, "only real and complex"),
        (coarse.refine, (u, fine, single), {}, "a field of float32 (8, 12), which has not"),
        (coarse.refine, (u, fine, both), {}, "a field of float64 (2, 8, 12), which has not"),
        (coarse.refine, (staggered, fine, v), {"order": 0}, "middles of cells"),
        (coarse.refine, (u, fine, v), {"order": 2}, "order 2 is not 0"),
    ]:
        everywhere(comm, PatternError, text, call, *arguments, **options)
    everywhere(comm, PatternError, "a boundary condition", coarse.refine, u, fine,
               boundary="nonsense")
    narrow = Grid(comm, (4, 6), (0, 1))
    thin = narrow.zeros()
    narrow.update(thin, ghosts="all")
    everywhere(comm, PatternError, "or 1 with ghosts", narrow.refine, thin, fine, v)
    bare = DistArray.of(Pencil(Subcomm(comm, [1, 0]), coarse.shape, 0))
    everywhere(comm, PatternError, "or 1 with ghosts", fine.coarsen, v, coarse, bare, order=1)
    if comm.size > 1:
        everywhere(comm, MismatchError, "refine", coarse.refine, coarse.zeros(), fine, v,
                   order=int(last))

    def refuse(*_):
        raise ValueError("no value there")

    assert [len(grid._plans) for grid in (coarse, fine, other, narrow)] == [1, 0, 0, 1]
    raises(ValueError, lambda: coarse.refine(u, fine, boundary=refuse), "no value there")
    assert [plan.state for plan in coarse._plans] == ["inactive", "broken"]
    coarse.refine(u, fine, v)
    fine.Free()
    fine = Grid(comm, (8, 12), 1)
    coarse.refine(u, fine)
    for each in (coarse, fine, other, narrow):
        each.Free()
    assert not Context.of(comm).live


@parameters(memory=["window", "strided"], cut=["alike", "other"],
            way=["redistribute", "scatter", "refine 0", "refine 1", "coarsen 0", "coarsen 1"])
def case_targets_that_cannot_be_written(comm, way, memory, cut):
    """On one rank alone, and every rank is told before anything travels."""
    ranks = {"alike": (comm.size, 1), "other": (1, comm.size)}[cut]
    here = Grid(comm, (4 * comm.size, 8), 1, dims=(comm.size, 1))
    there = Grid(comm, {"refine": (8 * comm.size, 16), "coarsen": (2 * comm.size, 4)}.get(
        way.split()[0], here.shape), 1, dims=ranks)
    source, target = here.zeros(), there.zeros()
    if memory == "strided":
        target = np.zeros([2 * n for n in target.shape])[::2, ::2]
    target.flags.writeable = comm.rank != comm.size - 1
    here.update(source, ghosts="all")  # which is kept
    name, _, order = way.partition(" ")
    calls = {
        "redistribute": lambda: here.redistribute(source, there, target),
        "scatter": lambda: there.scatter(np.ones(there.shape), target),
        "refine": lambda: here.refine(source, there, target, order=int(order)),
        "coarsen": lambda: here.coarsen(source, there, target, order=int(order)),
    }
    everywhere(comm, PatternError, "cannot be written", calls[name])
    here.Free()
    there.Free()


@parameters(root=[0, -1], memory=["window", "strided"], dtype=["c8", ">i2", "S5", "i4,(2,)f8"])
def case_gather_and_scatter(comm, root, memory, dtype):
    root %= comm.size
    grid = Grid(comm, (3 * comm.size + 1, 5), 1, periodic=(True, False))
    for components, staggered in [((), ()), ((2,), (1,)), ((), (0, 1))]:
        u, v = (grid.zeros(components, dtype, staggered) for _ in range(2))
        if memory == "strided":
            u, v = (np.zeros([2 * n for n in u.shape], dtype)[(slice(1, None, 2),) * u.ndim]
                    for _ in range(2))
        whole = numbers(grid, components, dtype, staggered)
        set_own(grid, u, whole)
        got = grid.gather(u, root)
        assert (got is None) == (comm.rank != root)
        assert got is None or np.array_equal(got, whole)
        box = (*[slice(0, 1)] * len(components), slice(2, 4), slice(1, None))
        some = grid.gather(u, root, box)
        assert some is None if got is None else np.array_equal(some, whole[box])
        grid.scatter(got, v, root)
        assert np.array_equal(u[grid.owned], v[grid.owned])
    everywhere(comm, PatternError, "and one of", grid.scatter,
               None if comm.rank == root else 3, u, root)
    everywhere(comm, PatternError, "the root is", grid.gather, u, comm.size)
    everywhere(comm, PatternError, "out of bounds", grid.gather, u, 0, (slice(0, 99),))
    grid.Free()


@parameters(form=[((), ()), ((2,), ()), ((2,), (0, 2))])
def case_pencils_and_files(comm, form):
    """To a distributed array of another decomposition and back; through a file to another grid."""
    components, staggered = form
    grid = Grid(comm, (9, 2 * comm.size + 1, 5), (1, 2, 0), periodic=(False, True, False))
    u, v = (grid.zeros(components, staggered=staggered) for _ in range(2))
    whole = numbers(grid, components, "f8", staggered)
    set_own(grid, u, whole)
    assert grid.global_shape(u) == whole.shape
    mine = grid.part(comm.rank, whole.shape)
    subcomm = Subcomm(comm, [1, 0, 0])
    pencil = Pencil(subcomm, whole.shape[len(components) :], 0)
    array = DistArray.of(pencil, components=components)
    for turn in range(2):
        u[grid.owned] = (turn + 1) * whole[mine]
        assert grid.redistribute(u, array) is array
        assert np.array_equal(array.v, (turn + 1) * whole[(..., *array.local_slice()[-3:])])
        array *= 2
        assert grid.redistribute(array, grid, u) is u
        assert np.array_equal(u[grid.owned], 2 * (turn + 1) * whole[mine])
    fresh = grid.redistribute(array, grid)
    assert fresh.shape == u.shape
    assert np.array_equal(fresh[grid.owned], u[grid.owned])
    assert len(grid._plans) == 2
    u[grid.owned] /= 2
    subcomm.destroy()
    other_form = DistArray.of(array.pencil, "f4", components=components)
    everywhere(comm, PatternError, "and one of", grid.redistribute, v, other_form)
    if comm.size > 1:  # whole on every rank: nobody's block
        twice = DistArray(whole.shape, (MPI.COMM_SELF,) * len(whole.shape))
        everywhere(comm, PatternError, "do not make up", grid.redistribute, v, twice)
        longer = DistArray((whole.shape[0] + 1, *whole.shape[1:]), twice.subcomm)
        everywhere(comm, MismatchError, "of shape", grid.redistribute, v,
                   longer if comm.rank == 0 else twice)
        for block, kind, words in [(lambda: (slice(None),), TypeError, "NoneType"),
                                   (lambda: 1 // 0, ZeroDivisionError, "by zero")]:
            if comm.rank == 0:
                twice.local_slice = block
            everywhere(comm, kind, words, grid.redistribute, v, twice)
    need("h5py")
    folder = comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None)
    write_field(grid, u, f"{folder}/u", "u", 3)
    dims = (1, 1, comm.size) if comm.size < 6 else None
    cart = comm.Create_cart(dims or [comm.size], [False] * len(dims or [0]), reorder=False)
    other = Grid(cart, grid.shape, 1, dims=dims, periodic=grid.periodic)
    w = other.zeros(components, staggered=staggered)
    read_field(other, w, f"{folder}/u", "u", 3)
    assert np.array_equal(w[other.owned] / 2, whole[other.part(comm.rank, whole.shape)])
    everywhere(comm, PatternError, "has shape", read_field, other,
               other.zeros(3, staggered=staggered), f"{folder}/u", "u", 3)
    line = Grid(comm, (2 * comm.size + 1,), 2)
    x, y = line.from_function(lambda x: x), line.zeros()
    write_field(line, x, f"{folder}/x")
    read_field(line, y, f"{folder}/x")
    assert np.array_equal(x, y)
    comm.Barrier()
    if comm.rank == 0:
        shutil.rmtree(folder)
    for each in (line, other, grid):
        each.Free()
    cart.Free()


@parameters(axes=[1, 2, 3], dtype=[">f8", "padded", "i2", "c16"], piece=[7, 1 << 14])
def case_migrate(comm, axes, dtype, piece, seed, monkeypatch):
    """Nothing is lost, nothing doubled, and everything is where it belongs; few plans. Dtypes stay
    what they are; a rank that has no items need not know them. The caller's arrays are read."""
    monkeypatch.setattr(migration, "PIECE", piece)
    rng = np.random.default_rng([seed, comm.rank])
    bounds = [(-1.0, 1.0), (0.0, 3.0), (5.0, 6.0)][:axes]
    grid = Grid(comm, (3 * comm.size, 7, 5)[:axes], 1, periodic=True, bounds=bounds)
    count = 200 * comm.rank  # rank 0 has none
    x = np.array([low + (high - low) * rng.random(count) for low, high in bounds]).T.copy()
    number = np.arange(count) + 100_000 * comm.rank
    velocity = rng.normal(size=(count, axes)).astype("f4")
    if dtype == "padded":
        dtype = np.dtype([("a", "i4"), ("b", "f8"), ("c", "i1")], align=True)
    marks = np.zeros(count, dtype if count else float)
    everything = sorted(np.concatenate(comm.allgather(number)).tolist())
    speed = dict(zip(np.concatenate(comm.allgather(number)).tolist(),
                     np.concatenate(comm.allgather(velocity)).tolist(), strict=True))
    for turn in range(12):
        x += (0.05 if turn % 4 else 5.0) * velocity
        if turn == 6:  # all of a corner
            x = np.clip(x, [low for low, _ in bounds], [low + 1e-3 for low, _ in bounds])
        place = {n: p for n, p in zip(number.tolist(), x.tolist(), strict=True)}
        place = {n: p for some in comm.allgather(place) for n, p in some.items()}
        if comm.rank == 0 and turn == 0:
            velocity = velocity.astype(float)
        given, before = x, x.copy()
        (number, velocity, marks), x = grid.migrate([number, velocity, marks], x)
        assert np.array_equal(given, before)
        if comm.size > 1:
            assert (velocity.dtype, marks.dtype) == (np.float32, np.dtype(dtype))
            assert marks.dtype.isnative == np.dtype(dtype).isnative
        assert sorted(np.concatenate(comm.allgather(number)).tolist()) == everything
        for axis, (low, high) in enumerate(bounds):
            step = grid.spacing[axis]
            assert (x[:, axis] >= low + grid.box[axis].start * step - 1e-12).all()
            assert (x[:, axis] <= low + grid.box[axis].stop * step + 1e-12).all()
            was = np.array([place[n][axis] for n in number.tolist()]).reshape(-1)
            turns = (x[:, axis] - was) / (high - low)
            assert np.allclose(turns, np.round(turns), atol=1e-9)
        assert all(speed[n] == v for n, v in zip(number.tolist(), velocity.tolist(), strict=True))
        grid.migrate([], x)  # another form between
    for _ in range(3):  # at rest
        grid.migrate([number, velocity, marks], x)
    before = grid._migration.plans
    grid.migrate([number, velocity, marks], x)
    assert grid._migration.plans == before
    grid.Free()


def drifting(grid, x, by):
    """Positions moved along the first axis."""
    x = x.copy()
    x[:, 0] += by
    return x


@ranks(at_least=2)
@parameters(dtype=["f4", "f8"])
def case_a_burst_leaves_no_room_behind(comm, dtype):
    """All items leave once, and only few from then on: the exchange has room for few."""
    count, cells = 4000, 8 * comm.size
    grid = Grid(comm, (cells, 4), 1, periodic=True)
    rng = np.random.default_rng(comm.rank)
    x = (rng.random((count, 2)) * np.array([8, 4]) + [8 * comm.rank, 0]).astype(dtype)
    tag = np.arange(count) + count * comm.rank
    everything = np.arange(count * comm.size)

    def move(by):
        nonlocal tag, x
        (tag,), x = grid.migrate([tag], drifting(grid, x, by))
        assert np.array_equal(np.sort(np.concatenate(comm.allgather(tag))), everything)

    move(8.0)  # everybody to the next block
    for _ in range(4):
        move(0.01)
    (records,) = grid._migration._records.values()
    assert 0 < records.room.sum() < count // 10
    for _ in range(2):  # a new regime has room from its second call on
        move(4.0)
    assert records.room.sum() > count // 3
    for _ in range(2 * REVIEW):  # and gives it up
        move(0.001)
    assert records.room.sum() < count // 10
    grid.Free()


@parameters(dtype=["f4", "f8"], axis=[0, 1], sizes=["even", "no last", "no first"])
def case_items_beyond_an_open_end(comm, dtype, axis, sizes):
    """An error of all ranks, or dropped; an item on the end itself stays, as its dtype rounds.
    Ranks without cells get none."""
    without = {"even": None, "no last": [3] + [0] * (comm.size - 1),
               "no first": [0] * (comm.size - 1) + [3]}[sizes]
    cells = 2 * comm.size if without is None else 3
    grid = Grid(comm, (cells, 3), 1, bounds=[(0, 0.1), (0, 0.3)],
                sizes=None if without is None else [without, [3]])
    ends = np.array([end for _, end in grid.bounds], dtype)
    x = np.zeros((3, 2), dtype)
    x[:] = ends / 2
    x[0] = ends
    x[1, axis] = -1 if comm.rank == 0 else x[1, axis]
    tag = np.arange(3) + 10 * comm.rank
    inside = np.full_like(x, 0.05)
    inside[0] = ends
    _, here = grid.migrate([tag], inside)
    assert not len(here) or 0 not in grid.local_shape
    everywhere(comm, PatternError, "items beyond an end", grid.migrate, [tag], x)
    (left,), y = grid.migrate([tag], x, outside="drop")
    assert len(left) == len(y)
    found = np.sort(np.concatenate(comm.allgather(left))).tolist()
    want = [n + 10 * rank for rank in range(comm.size) for n in range(3) if (rank, n) != (0, 1)]
    assert found == want
    everywhere(comm, PatternError, "outside that is none of", grid.migrate, [tag], x,
               outside="keep")
    grid.Free()


@ranks(at_least=2)
def case_room_that_cannot_be_had(comm):
    """Items go by exchanges of one call then; none is lost."""
    grid = Grid(comm, (comm.size, 2), 1, periodic=True)
    tag = np.arange(100) + 100 * comm.rank
    x = np.full((100, 2), 0.5)
    x[:, 0] += comm.rank
    fails, real = [True], migration.Alltoallv_init

    def short(*arguments, **options):
        if fails[0]:
            raise ResourceError("no shared memory is left")
        return real(*arguments, **options)

    grid.migrate([], x)
    migration.Alltoallv_init = short
    try:
        for turn in range(5):
            fails[0] = turn < 3
            for move in range(2):
                x[: 100 if move else 2, 0] += 1
                try:
                    (tag,), x = grid.migrate([tag], x)
                except ResourceError:
                    x[: 100 if move else 2, 0] -= 1
                everything = np.sort(np.concatenate(comm.allgather(tag)))
                assert np.array_equal(everything, np.arange(100 * comm.size))
    finally:
        migration.Alltoallv_init = real
    grid.Free()


@parameters(kind=["f2", "f4", "f8", ">f4", "g"], outside=["raise", "drop"])
def case_migrate_around_what_the_dtype_cannot_count(comm, kind, outside):
    """No position of this dtype is as long as the axis; all items are legal."""
    end = {"f2": 4e4, "f4": 3e38, ">f4": 3e38}.get(kind, 8e307)
    given = np.array([-1.125, -1, -0.5, 0, 0.5, 1, 1.0625], "g") * end
    wrapped = np.array([0.875, -1, -0.5, 0, 0.5, -1, -0.9375]) * end
    with Grid(comm, (8 * comm.size, 2), 1, periodic=True, dims=(comm.size, 1),
              bounds=[(-end, end), (0, 1)]) as grid:
        positions = np.column_stack([given, np.full(7, 0.5)]).astype(kind)
        (tag,), x = grid.migrate([np.arange(7)], positions, outside=outside)
        assert x.dtype == np.dtype(kind)
        assert np.allclose(x[:, 0].astype(float) / end, wrapped[tag] / end, rtol=1e-3)
        edges = grid.edges(0)[comm.rank : comm.rank + 2].astype(kind)
        assert ((x[:, 0] >= edges[0]) & (x[:, 0] < edges[1])).all()
        assert (x[:, 1] == 0.5).all()
        everything = np.sort(np.concatenate(comm.allgather(tag)))
        assert np.array_equal(everything, np.repeat(np.arange(7), comm.size))


@ranks(at_least=2)
def case_migrate_mistakes(comm):
    """Told everywhere, before anything moves; the next call works."""
    grid, mine = Grid(comm, (comm.size, 2), 1, periodic=(True, False)), comm.rank == 1
    good = np.full((3, 2), 0.5)
    off = np.array([[0.5, 2.5]] * 3)
    grid.migrate([], good)
    for arrays, positions, text in [
        ([], off, "rank 1: items beyond an end"),
        ([], np.full((3, 2), np.nan), "rank 1: items beyond an end"),
        ([np.zeros(2)], good, "rank 1: arrays that are not"),
        ([], np.zeros((3, 3)), "rank 1: arrays that are not"),
        ([], np.zeros((3, 2), int), "rank 1: arrays that are not"),
        ([np.zeros(3)], good, ": arrays of another form"),
        ([], np.full((3, 2), 0.5, ">f8"), ": arrays of another form"),
    ]:
        everywhere(comm, PatternError, text, grid.migrate, *((arrays, positions) if mine
                                                             else ([], good)))
    (none,), nowhere = grid.migrate([np.zeros((0, 3))], np.zeros((0, 2)))  # of nobody
    assert none.shape == (0, 3)
    assert nowhere.shape == (0, 2)
    with Grid(comm, grid.shape, 1, periodic=True, bounds=[(-8e307, 8e307)] * 2) as wide:
        far = np.full((3, 2), 1.7e308 if mine else 0.0)  # its distance from an end is no number
        _, x = wide.migrate([], far)
        assert comm.allreduce(len(x)) == 3 * comm.size
        everywhere(comm, PatternError, "items beyond an end", wide.migrate, [],
                   np.where(far > 0, np.inf, far))
    tiny = np.full((3, 2), 2.5e-323) if mine else good
    with np.errstate(all="raise"):  # what underflows on one rank is no error there
        grid.migrate([], tiny)
    _, x = grid.migrate([], good)
    assert len(x) == (0 if comm.rank else 3 * comm.size)
    grid.Free()


def everywhere(comm, kind, text, call, *arguments, **options):
    agreed(comm, kind, lambda: call(*arguments, **options), text)


def case_bad_grids(comm):
    last = comm.rank == comm.size - 1
    for arguments, text in [
        (((), 1), "no grid of shape ()"), (((0, 4), 1), "no grid of shape"),
        (((4, 4), -1), "width"), (((4, 4), (1, 2, 3)), "width"),
    ]:
        everywhere(comm, PatternError, text, Grid, comm, *arguments)
    for options, text in [
        ({"periodic": (True,)}, "not one truth per axis"), ({"periodic": "no"}, "not one truth"),
        ({"dims": (7, 7)}, "cannot be arranged"),
        ({"bounds": [(0, 1)]}, "bounds"), ({"bounds": [(0, 1), (1, 1)]}, "bounds"),
        ({"bounds": [(0, 1), (0, np.nan)]}, "bounds"), ({"dims": (None, "2")}, "not an integer"),
        ({"bounds": [(0, 1), (-1e308, 1e308)]}, "bounds"),
        ({"boundary": "mirror"}, "a boundary condition is 'mirror'"),
        ({"boundary": {5: 0}}, "a boundary condition for axis 5"),
        ({"ghosts": "some"}, "ghosts is"), ({"corners": "some"}, "corners is"),
    ]:
        everywhere(comm, PatternError, text, Grid, comm, (9, 5 * comm.size), 1, **options)
    if comm.size > 1:
        everywhere(comm, MismatchError, "rank 0 is in", Grid, comm, (9, 5 * comm.size + last), 1)
    wide = Grid(comm, (2, 3, 5 * comm.size), 1)  # more ranks than there are planes
    assert wide.dims[0] <= 2
    assert wide.dims[1] <= 3
    wide.Free()


def case_bad_fields(comm):
    """Told everywhere at the first call, and nothing is left of it."""
    last = comm.rank == comm.size - 1
    grid = Grid(comm, (4 * comm.size, 6), 1, periodic=True)
    other = Grid(comm, (5 * comm.size, 6), 1)
    near = Grid(comm, (4 * comm.size, 4), (1, 2))  # fields of the same extents
    u, v, wrong = grid.zeros(), grid.zeros((), "f4"), other.zeros()
    alike = near.zeros(2)
    assert alike.shape[1:] == u.shape or comm.size > 1
    for fields, text in [
        ((), "no field"), ((3,), "a field is an array"), ((np.zeros(4),), "an array of shape (4,)"),
        ((wrong,), "a field of this grid has"), ((u, u), "share memory"),
        *([((alike[1],), "a field of another grid")] if alike.shape[1:] == u.shape else []),
        (((u, v),), "cannot take turns"),
    ]:
        one = len(fields) == 1 and not isinstance(fields[0], tuple)
        given = (u,) if one and not last else fields  # of one rank, or of all
        everywhere(comm, PatternError, text, grid.update, *given)
    if comm.size > 1:
        everywhere(comm, PatternError, "of float32 (", grid.update, v if last else u)
        everywhere(comm, PatternError, "sends a box of shape", grid.update,
                   grid.zeros(2) if last else grid.zeros(3))
        everywhere(comm, PatternError, "no field is given", grid.update, *((u,) if last else ()))
        everywhere(comm, MismatchError, "2 fields", grid.update, *((u,) if last else (u, v)))
    for op in ("mean", None):
        everywhere(comm, PatternError, f"no operation '{op}'", grid.accumulate, u, op=op)
    everywhere(comm, PatternError, "|S3 has no sum", grid.accumulate, grid.zeros((), "S3"))
    everywhere(comm, PatternError, "no field is given", grid.update, () if last else u)
    everywhere(comm, PatternError, "bool has no negatives", other.update,
               other.zeros((), bool), boundary="antireflect")
    everywhere(comm, PatternError, "2 boundary conditions for 1 fields", grid.update, u,
               boundary=("copy", "copy"))
    everywhere(comm, PatternError, "antireflect has no max", other.accumulate, wrong, op="max",
               boundary="antireflect")
    assert not grid._plans
    grid.update(u)  # which is kept by its name
    everywhere(comm, PatternError, "no operation 'update'", grid.accumulate, u, op="update")
    grid.update(u)
    grid.update(u, v)
    grid.accumulate(u)
    for each in (grid, near, other, grid):
        each.Free()
    assert not Context.of(comm).live


@ranks(at_least=2)
def case_debug_mode(comm):
    """A new array on one rank alone is told everywhere; ghosts are spoiled where they are given
    up."""
    os.environ["ONESIDED_DEBUG"] = "1"
    try:
        grid = Grid(comm, (4 * comm.size, 6), 1, periodic=True, dims=(comm.size, 1))
        u, v = grid.zeros(), grid.zeros((), "i4")
        grid.update(u)
        everywhere(comm, MismatchError, "a new request: update", grid.update,
                   v if comm.rank == 0 else u)
        grid.update(v)
        everywhere(comm, MismatchError, "request 1: update", grid.update,
                   v if comm.rank == 0 else u)
        halo = grid.halo(u, v)
        u[...], v[...] = 1, 2
        if comm.rank == 0:
            halo.Start()
            assert np.isnan(u[0, 1:-1]).all()
            assert (v[0, 1:-1] == -1).all()
        comm.Barrier()
        if comm.rank:
            halo.Start()
        halo.Wait()
        assert (u == 1).all()
        assert (v == 2).all()
        halo.Free()
        grid.Free()
    finally:
        del os.environ["ONESIDED_DEBUG"]


def case_many_plans(comm):
    """A program that makes fields again and again does not run out of memory."""
    grid = Grid(comm, (8 * comm.size,), 1, periodic=True)
    fine = Grid(comm, (16 * comm.size,), 1, periodic=True,
                sizes=[[15 * comm.size + 1] + [1] * (comm.size - 1)])
    often, out = grid.zeros(), fine.zeros()
    for turn in range(80):
        u = np.full(10, float(comm.rank + turn))
        grid.update(u)
        assert (u[0], u[-1]) == tuple((comm.rank + step) % comm.size + turn for step in (-1, 1))
        if turn % 30 == 0:  # what is found is not what goes for the update in the same call
            often[...] = turn
            grid.refine(often, fine, out, boundary=("copy", 0, None)[turn // 30])
            assert (out[fine.owned] == turn).all()
    assert len(grid._plans) == 32
    both = grid.zeros(2)
    for turn in range(5):  # views that are new each time, of the same memory
        both[...] = comm.rank + turn
        grid.update(both[0], both[1])
        assert (both[:, 0] == (comm.rank - 1) % comm.size + turn).all()
    assert sum(getattr(each, "rounds", 0) == 5 for each in grid._plans) == 1
    pairs = [(np.zeros(10), np.zeros(10)) for _ in range(34)]
    for count, pair in enumerate(3 * pairs):  # they take turns, however many others there are
        set_own(grid, pair[count // 34 % 2], np.full(8 * comm.size, float(count)))
        grid.update(pair)
        assert (pair[count // 34 % 2] == count).all()
    fine.Free()
    grid.Free()
