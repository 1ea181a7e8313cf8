"""``onesided bench halo``: the ghosts of a grid, and the same by persistent messages.

Periodic grids of float64 with one layer of ghosts, corners too. The opponents are written with
mpi4py alone: a persistent message to and from every neighbor, of packed faces or of MPI's subarray
types. Three fields in one update are compared with one field, and with three updates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.sweep import Case, Labels, Make, product_of, sweep
from onesided.apps.bench.timing import STEADY, WARM, Variant, nothing
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import Report
from onesided.apps.cli.statistics import Verdict
from onesided.collectives import Grid

Call: TypeAlias = Callable[[], object]
FIELDS = 3
OURS, JOINT, APART = "one field", f"{FIELDS} fields", f"{FIELDS} updates"
PACKED, TYPED = "packed messages", "messages of types"
SHAPES = ((256, 256), (2048, 2048), (128, 128, 128), (64, 64, 64))
REMARK = (
    "vs: the median over the rounds of the time over the other's in that round. Every ghost is "
    "verified, in three rounds with other numbers."
)


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where ghosts are wrong."""
    report = Report("bench halo", options.settings(), {"ranks": comm.size}, remarks=[REMARK],
                    by="grid")  # fmt: skip
    names = (OURS, JOINT, APART, PACKED, TYPED)
    cases = [
        Case({"grid": "x".join(map(str, shape))}, product_of(method=names),
             partial(_opened, tuple(shape)), against=(PACKED, TYPED, OURS, APART), region=STEADY)
        for shape in options.shape or SHAPES
    ]  # fmt: skip
    sweep(comm, options, report, cases, "exchanging")
    return report.end(comm, options)


def _opened(shape: tuple[int, ...], comm: MPI.Intracomm, stack: ExitStack) -> Make:
    """Collective. The grid, and what makes fields on it with what fills their ghosts."""
    grid = Grid(comm, shape, periodic=True)
    stack.callback(grid.Free)
    cart = comm.Create_cart(grid.dims, [True] * len(shape), reorder=False)
    stack.callback(cart.Free)

    def make(labels: Labels) -> Variant:
        name = labels["method"]
        if name in (PACKED, TYPED):
            hand = (Packed if name == PACKED else Typed)(cart, np.zeros_like(grid.zeros()))
            return ready([hand.array], hand.exchange, hand.free)
        groups = [
            [grid.zeros() for _ in range(count)]
            for count in {OURS: [1], JOINT: [FIELDS], APART: [1] * FIELDS}[name]
        ]

        def exchange() -> None:
            for group in groups:
                grid.update(*group)

        return ready([field for group in groups for field in group], exchange, nothing)

    def ready(fields: list[NDArray[Any]], exchange: Call, free: Call) -> Variant:
        check = partial(_verdict, comm, grid, fields, exchange)
        return Variant(exchange, check, warm_up=WARM, free=free, set_up=False)

    return make


def _verdict(
    comm: MPI.Intracomm, grid: Grid, fields: Sequence[NDArray[Any]], exchange: Call
) -> Verdict:
    """Collective. The largest share of ghosts that are wrong on a rank."""
    return Verdict(comm.allreduce(_wrong(comm, grid, fields, exchange), op=MPI.MAX), 0.0)


def _wrong(
    comm: MPI.Intracomm, grid: Grid, fields: Sequence[NDArray[Any]], exchange: Call
) -> float:
    """Collective in the sense of MPI. The share of ghosts, and of all else, that is wrong."""
    found = 0.0
    for turn in range(3):
        for number, field in enumerate(fields):
            field[...] = -1.0
            field[grid.owned] = _numbers(grid, turn + number)[grid.owned]
        comm.Barrier()
        exchange()
        for number, field in enumerate(fields):
            found = max(found, float(np.mean(field != _numbers(grid, turn + number))))
    return found


def _numbers(grid: Grid, more: int) -> NDArray[np.float64]:
    """Local. What a field has at every point, ghosts included: its place in the grid."""
    total = np.full((1,) * len(grid.shape), float(more))
    for axis, (part, extent) in enumerate(zip(grid.box, grid.shape, strict=True)):
        low, high = grid.layers[axis]
        places = np.arange(part.start - low, part.stop + high) % extent
        total = total * extent + places.reshape([-1 if a == axis else 1 for a in range(total.ndim)])
    return total


class Packed:
    """Persistent messages of packed faces, edges and corners; those that need no packing go as
    they are."""

    def __init__(self, cart: MPI.Cartcomm, array: NDArray[Any]) -> None:
        self.array = array
        self._copies_in: list[tuple[NDArray[Any], NDArray[Any]]] = []
        self._copies_out: list[tuple[NDArray[Any], NDArray[Any]]] = []
        self._sends: list[MPI.Prequest] = []
        self._recvs: list[MPI.Prequest] = []
        for tag, steps in enumerate(product((-1, 0, 1), repeat=array.ndim)):
            if not any(steps):
                continue
            to, source = (
                cart.Get_cart_rank([c + sign * s for c, s in zip(cart.coords, steps, strict=True)])
                for sign in (1, -1)
            )
            out = tuple({-1: slice(1, 2), 0: slice(1, -1), 1: slice(-2, -1)}[s] for s in steps)
            into = tuple({-1: slice(-1, None), 0: slice(1, -1), 1: slice(0, 1)}[s] for s in steps)
            self._sends.append(cart.Send_init(self._spec(out, self._copies_in), to, tag))
            self._recvs.append(cart.Recv_init(self._spec(into, self._copies_out), source, tag))

    def _spec(self, box: tuple[slice, ...], copies: list[Any]) -> Any:
        """Local. What MPI sends or receives for a box of the array."""
        view = self.array[box]
        if view.flags.c_contiguous:
            return view
        packed = np.empty(view.shape, view.dtype)
        copies.append((packed, view))
        return packed

    def exchange(self) -> None:
        """Collective in the sense of MPI."""
        MPI.Prequest.Startall(self._recvs)
        for packed, view in self._copies_in:
            packed[...] = view
        MPI.Prequest.Startall(self._sends)
        MPI.Request.Waitall(self._recvs)
        for packed, view in self._copies_out:
            view[...] = packed
        MPI.Request.Waitall(self._sends)

    def free(self) -> None:
        for request in (*self._sends, *self._recvs):
            request.Free()


class Typed(Packed):
    """Persistent messages of boxes of the array, which MPI packs."""

    def __init__(self, cart: MPI.Cartcomm, array: NDArray[Any]) -> None:
        self._types: list[MPI.Datatype] = []
        super().__init__(cart, array)

    def _spec(self, box: tuple[slice, ...], copies: list[Any]) -> Any:
        ranges = [part.indices(n) for part, n in zip(box, self.array.shape, strict=True)]
        starts, extents = [start for start, _, _ in ranges], self.array[box].shape
        kind = MPI.DOUBLE.Create_subarray(self.array.shape, extents, starts)
        self._types.append(kind.Commit())
        return [self.array, 1, kind]

    def free(self) -> None:
        super().free()
        for kind in self._types:
            kind.Free()
