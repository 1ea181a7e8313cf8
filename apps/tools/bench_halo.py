"""``onesided bench halo``: what programs do with grids, and the same written with mpi4py alone.

Ghosts: periodic grids of float64 with one layer, corners too. The opponents have a persistent
message to and from every neighbor, of packed faces or of MPI's subarray types, or faces along one
axis after the other. Three fields in one update are compared with one field, and with three
updates. Items that migrate, and V-cycles: :mod:`.grid_programs`. ``onesided heat`` has the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.by_hand import ByHand, Typed, along_axes, at_once, cart_of
from onesided.apps.bench.sweep import Case, Labels, Make, sweep
from onesided.apps.bench.timing import STEADY, WARM, Call, Variant, nothing
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import METHOD, Report
from onesided.apps.cli.statistics import Verdict
from onesided.apps.tools.grid_programs import BY_HAND, OURS, ROOM, migration, multigrid
from onesided.apps.tools.options import GHOSTS, MIGRATE, MULTIGRID
from onesided.collectives import Grid

FIELDS = 3
ONE, JOINT, APART = "one field", f"{FIELDS} fields", f"{FIELDS} updates"
PACKED, TYPED, ALONG = "packed messages", "messages of types", "packed along axes"
REMARK = (
    "vs: the median over the rounds of the time over the other's in that round. Every ghost is "
    "verified, in three rounds with other numbers; no item is lost; defects of cycles are equal."
)

#: By pattern: the grids, the methods, against which of them, and what makes the variants.
PATTERNS: dict[str, Any] = {
    GHOSTS: (((256, 256), (2048, 2048), (128, 128, 128), (64, 64, 64)),
             (ONE, JOINT, APART, PACKED, ALONG, TYPED), (PACKED, ALONG, TYPED, ONE, APART), None),
    MIGRATE: (((128, 128, 64),), (OURS, BY_HAND, ROOM), (BY_HAND, ROOM), migration),
    MULTIGRID: (((1024, 1024),), (OURS, BY_HAND), (BY_HAND,), multigrid),
}


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where ghosts are wrong."""
    report = Report("bench halo", options.settings(), {"ranks": comm.size}, remarks=[REMARK],
                    by="pattern")  # fmt: skip
    cases = []
    for pattern in options.patterns:
        shapes, names, against, opened = PATTERNS[pattern]
        for shape in map(tuple, options.shape or shapes):
            labels = {"pattern": pattern, "grid": "x".join(map(str, shape))}
            cases.append(Case(labels, [{METHOD: name} for name in names],
                              partial(opened or _opened, shape), against=against,
                              region=STEADY if pattern == GHOSTS else 0.0))  # fmt: skip
    sweep(comm, options, report, cases, "exchanging")
    return report.end(comm, options)


def _opened(shape: tuple[int, ...], comm: MPI.Intracomm, stack: ExitStack) -> Make:
    """Collective. The grid, and what makes fields on it with what fills their ghosts."""
    grid = Grid(comm, shape, periodic=True)
    stack.callback(grid.Free)
    cart = cart_of(grid)
    stack.callback(cart.Free)

    def make(labels: Labels) -> Variant:
        name = labels[METHOD]
        if name in (PACKED, ALONG, TYPED):
            kind, axes = Typed if name == TYPED else ByHand, len(shape)
            phases = along_axes(axes) if name == ALONG else at_once(axes, axes)
            hand = kind(cart, np.zeros_like(grid.zeros()), phases)
            return ready([hand.array], hand.exchange, hand.Free)
        groups = [
            [grid.zeros() for _ in range(count)]
            for count in {ONE: [1], JOINT: [FIELDS], APART: [1] * FIELDS}[name]
        ]

        def exchange() -> None:
            for group in groups:
                grid.update(*group)

        return ready([field for group in groups for field in group], exchange, nothing)

    def ready(fields: list[NDArray[Any]], exchange: Call, free: Call) -> Variant:
        check = partial(_verdict, grid, fields, exchange)
        return Variant(exchange, check, warm_up=WARM, free=free, set_up=False)

    return make


def _verdict(grid: Grid, fields: Sequence[NDArray[Any]], exchange: Call) -> Verdict:
    """Collective. The largest share of a block, ghosts and all else, that is wrong on a rank."""
    found = 0.0
    for turn in range(3):
        for number, field in enumerate(fields):
            field[...] = -1.0
            field[grid.owned] = _numbers(grid, turn + number)[grid.owned]
        grid.comm.Barrier()
        exchange()
        for number, field in enumerate(fields):
            found = max(found, float(np.mean(field != _numbers(grid, turn + number))))
    return Verdict(grid.comm.allreduce(found, op=MPI.MAX), 0.0)


def _numbers(grid: Grid, more: int) -> NDArray[np.float64]:
    """Local. What a field has at every point, ghosts included: its place in the grid."""
    total = np.full((1,) * len(grid.shape), float(more))
    for axis, (part, extent) in enumerate(zip(grid.box, grid.shape, strict=True)):
        low, high = grid.layers[axis]
        places = np.arange(part.start - low, part.stop + high) % extent
        total = total * extent + places.reshape([-1 if a == axis else 1 for a in range(total.ndim)])
    return total
