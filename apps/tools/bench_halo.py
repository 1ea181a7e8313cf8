"""``onesided bench halo``: the ghosts of a grid, and the same by persistent messages.

Periodic grids of float64 with one layer of ghosts, corners too. The opponents are written with
mpi4py alone: a persistent message to and from every neighbor, of packed faces or of MPI's subarray
types. Three fields in one update are compared with one field, and with three updates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.race import race, steady
from onesided.apps.bench.store import Part, Parts
from onesided.apps.cli.failures import closing
from onesided.apps.cli.options import Options
from onesided.apps.cli.progress import progress
from onesided.apps.cli.report import Report, compared, conclusions
from onesided.apps.cli.statistics import Target, Verdict
from onesided.collectives import Grid
from onesided.collectives.hardware import Layout

FIELDS = 3
OURS, JOINT, APART = "one field", f"{FIELDS} fields", f"{FIELDS} updates"
PACKED, TYPED = "packed messages", "messages of types"
#: Time over that of persistent messages, for these grids on two ranks of a node.
AGAINST_MESSAGES = 0.8
WITH_TARGET = ((256, 256), (2048, 2048), (128, 128, 128))
#: Time of three fields in one update over that of one, for this grid, on a node and between nodes;
#: and over that of three updates, for all.
AGAINST_ONE = 1.5, 1.15
SEVERAL = (64, 64, 64)
AGAINST_APART = 1.05
REMARK = (
    "reached: the median over the rounds of the time of ours over the opponent's in that round. "
    "Every ghost of every contestant is verified, in three rounds with other numbers."
)


@dataclass(frozen=True)
class Entrant:
    """Fields with one layer of ghosts, and what fills these."""

    name: str
    fields: list[NDArray[Any]]
    exchange: Callable[[], object]


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; 1 where ghosts are wrong, or, if that is asked, a target missed."""
    report = Report("bench halo", options.settings(), {"ranks": comm.size}, remarks=[REMARK])
    shapes = [tuple(shape) for shape in options.shape] or [*WITH_TARGET, SEVERAL]
    parts = Parts(comm, report, options.json)
    with progress(comm, options, "exchanging", len(shapes)) as tick:
        for shape in shapes:
            parts.add("x".join(map(str, shape)), partial(_contest, comm, shape, options))
            tick()
    report.remarks += conclusions(report.rows, "no targets are set for these grids")
    return report.end(comm, options)


def _contest(
    comm: MPI.Intracomm, shape: tuple[int, ...], options: Options, part: Part
) -> None:
    """Collective. All contestants on one grid, in turns."""
    name, near = "x".join(map(str, shape)), len(Layout.of(comm).ranks_per_node) == 1
    with closing() as stack:
        grid = Grid(comm, shape, periodic=True)
        stack.callback(grid.Free)
        cart = comm.Create_cart(grid.dims, [True] * len(shape), reorder=False)
        stack.callback(cart.Free)
        entrants = [
            _entrant(grid, OURS, [1]),
            _entrant(grid, JOINT, [FIELDS]),
            _entrant(grid, APART, [1] * FIELDS),
        ]
        for title, kind in ((PACKED, Packed), (TYPED, Typed)):
            hand = kind(cart, np.zeros_like(entrants[0].fields[0]))
            stack.callback(hand.free)
            entrants.append(Entrant(title, [hand.array], hand.exchange))
        contestants = [
            steady(comm, each.name, each.exchange, partial(_verdict, comm, grid, each))
            for each in entrants
        ]
        found = race(comm, contestants, iterations=options.iterations, seconds=options.seconds)
        times = found.times
        for what, verdict in found.verdicts.items():
            part.verdicts[f"{name}, {what}: ghosts that are wrong"] = verdict
    goals = [
        *((OURS, messages, AGAINST_MESSAGES, shape in WITH_TARGET and near)
          for messages in (PACKED, TYPED)),
        (JOINT, OURS, AGAINST_ONE[not near], shape == SEVERAL),
        (JOINT, APART, AGAINST_APART, True),
    ]  # fmt: skip
    for ours, opponent, bound, wanted in goals:
        part.rows.append(compared(
            {"grid": name, "update": ours}, times[ours], times[opponent],
            Target(opponent, bound, least=False), wanted=wanted and comm.size == 2,
        ))  # fmt: skip


def _entrant(grid: Grid, name: str, together: Sequence[int]) -> Entrant:
    """Collective. Fields that are updated so many at a time."""
    groups = [[grid.zeros() for _ in range(count)] for count in together]

    def exchange() -> None:
        for group in groups:
            grid.update(*group)

    return Entrant(name, [field for group in groups for field in group], exchange)


def _verdict(comm: MPI.Intracomm, grid: Grid, entrant: Entrant) -> Verdict:
    """Collective. The largest share of ghosts that are wrong on a rank."""
    return Verdict(comm.allreduce(_wrong(comm, grid, entrant), op=MPI.MAX), 0.0)


def _wrong(comm: MPI.Intracomm, grid: Grid, entrant: Entrant) -> float:
    """Collective in the sense of MPI. The share of ghosts, and of all else, that is wrong."""
    found = 0.0
    for turn in range(3):
        for number, field in enumerate(entrant.fields):
            field[...] = -1.0
            field[grid.owned] = _numbers(grid, turn + number)[grid.owned]
        comm.Barrier()
        entrant.exchange()
        for number, field in enumerate(entrant.fields):
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
        """Local."""
        for request in (*self._sends, *self._recvs):
            request.Free()


class Typed(Packed):
    """Persistent messages of boxes of the array, which MPI packs."""

    def __init__(self, cart: MPI.Cartcomm, array: NDArray[Any]) -> None:
        self._types: list[MPI.Datatype] = []
        super().__init__(cart, array)

    def _spec(self, box: tuple[slice, ...], copies: list[Any]) -> Any:
        """Local."""
        ranges = [part.indices(n) for part, n in zip(box, self.array.shape, strict=True)]
        starts, extents = [start for start, _, _ in ranges], self.array[box].shape
        kind = MPI.DOUBLE.Create_subarray(self.array.shape, extents, starts)
        self._types.append(kind.Commit())
        return [self.array, 1, kind]

    def free(self) -> None:
        """Local."""
        super().free()
        for kind in self._types:
            kind.Free()
