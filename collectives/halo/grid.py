"""A global grid in blocks with ghost layers: fields, their halos, boundaries, the way back.

A *field* is an array of this rank's block with its ghost layers; axes before those of the grid are
components. It is the caller's; the grid keeps one persistent request for every list of fields that
has been updated, planned at the first call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike, NDArray

from onesided.collectives import debug
from onesided.collectives.agreement import agree, agreed, largest
from onesided.collectives.context import Attachment, Context, Scoped
from onesided.collectives.errors import PatternError, ResourceError
from onesided.collectives.halo.boundary import (
    ANTIREFLECT,
    Boundary,
    Conditions,
    all_fills,
    kind,
    kinds,
    read_conditions,
)
from onesided.collectives.halo.decomposition import FORMS, MADE, Decomposition
from onesided.collectives.halo.exchange import HaloExchange, Plans, Wanted, complete_round
from onesided.collectives.halo.faces import DIRECT, Face, block_faces, extents
from onesided.collectives.halo.migration import Migration
from onesided.collectives.halo.plan import Combine
from onesided.collectives.halo.redistribution import (
    Part,
    Placed,
    Transfer,
    part_of,
    redistribution,
    refinement,
)
from onesided.collectives.hints import Hints
from onesided.collectives.initialization import Info
from onesided.collectives.memory import Region, empty, find_region, free, warn_of_plain_memory
from onesided.collectives.pattern import check_root, full_box, text
from onesided.collectives.pattern import whole as all_of

#: What ``accumulate`` does with what comes, and what is left in the ghosts.
OPERATIONS: dict[str, tuple[Combine, Any]] = {
    "sum": (np.add, 0), "min": (np.minimum, None), "max": (np.maximum, None),
}  # fmt: skip


class Grid(Decomposition, Scoped):
    """A grid of cells in blocks, one per rank, with ghost layers around them.

    What is where is told by its :class:`~.decomposition.Decomposition`.

    Examples
    --------
    >>> grid = Grid(comm, (8, 6), halo=1, boundary=0.0)
    >>> u = grid.empty()
    >>> u[grid.owned] = 1.0
    >>> u = grid.update(u)  # all ghosts, from the neighbors or the boundary
    >>> grid.Free()
    """

    def __init__(
        self, comm: MPI.Intracomm, shape: Sequence[int], halo: Any = 1, *,
        periodic: bool | Sequence[bool] = False, dims: Sequence[int] | None = None,
        bounds: Sequence[tuple[float, float]] | None = None, boundary: Any = None,
        ghosts: str = "all", corners: str = DIRECT, sizes: Sequence[Sequence[int]] | None = None,
        reorder: bool = True, info: Info = None,
    ) -> None:
        """Collective. All arguments are the same on all ranks.

        Parameters
        ----------
        shape
            Cells per axis, of all ranks together.
        halo
            Ghost layers: a number, or per axis a number or (low, high).
        dims
            Ranks per axis, 0 or None where they are chosen: blocks as thick as their ghost layers,
            if that is possible, and of little surface. Where there are more ranks than cells some
            have none.
        bounds
            Per axis, where the grid begins and ends; (0, cells) by default. For coordinates, and
            for the positions of :meth:`migrate`.
        boundary
            What fills the ghosts at ends that are not periodic, where nothing else is said for a
            field: a number; ``"copy"``, the outermost cell (Neumann); ``"reflect"`` or
            ``"antireflect"``, the mirrored cells or their negatives; a function ``f(ghosts, inside,
            axis, side, coordinates, t)`` that writes to ``ghosts``, where ``inside`` are the
            mirrored cells (``ghosts[...] = 2 * value - inside`` is Dirichlet's condition at the
            boundary) and ``coordinates`` those of the ghosts, by axis; None: they are left alone. A
            dict has conditions by axis, a pair is (low, high). An array without axes is a number
            that is read in every round.
        ghosts
            ``"faces"``, ``"edges"`` (faces and edges) or ``"all"``, corners too.
        corners
            How all ghosts come: ``"direct"`` or ``"axes"``, as for :class:`HaloExchange`.
        sizes
            Per axis, the cells of the blocks along it, 0 too; even blocks by default.
        reorder
            Blocks may be given to ranks in another than C order, so that neighbors share nodes.
        info
            As for :class:`HaloExchange`, for all requests of the grid.

        Raises :class:`PatternError` on every rank for what makes no sense.
        """
        self._context = Context.of(comm)
        self.comm = comm
        self._info = info
        with agreed(self._context.comm):
            hints = Hints.of(info)
        agree(self._context.comm, None, f"Grid {shape} {halo} {periodic} {dims} {bounds} {ghosts} "
              f"{corners} {sizes} {reorder} {hints}")
        nodes = self._context.node(hints.ranks_per_node).firsts.tolist()
        with agreed(self._context.comm):
            Decomposition.__init__(
                self, shape, halo, self._context.comm.rank, nodes, periodic, dims, bounds, sizes,
                reorder,
            )  # fmt: skip
            read_conditions(boundary, len(self.shape))
            self.ghosts, self.corners, self._boundary = ghosts, corners, boundary
            block_faces(self.links(self.layers), (), (), self.place, ghosts, corners)
        self._number = self._context.number, FORMS.setdefault(self._form, len(FORMS))
        self._plans = Plans()
        self._migration: Migration | None = None
        self._regions: list[Region] = []  # of fields
        self._compares = debug.enabled()

    def __repr__(self) -> str:
        return f"<grid of {self.shape} on {self.dims} ranks, here {text(self.box)}>"

    # -- fields -----------------------------------------------------------------------------------

    def empty(
        self, components: int | Sequence[int] = (), dtype: DTypeLike = float,
        staggered: int | Sequence[int] = (),
    ) -> NDArray[Any]:
        """Collective. An uninitialized field, in memory that neighbors on the node write to.

        ``components`` are the extents of axes before those of the grid. A field that is
        ``staggered`` along an axis, or several, has its points at the ends of the cells: one more,
        of the last rank, where the axis is not periodic. In plain memory where there is too little.
        """
        try:
            field = empty(self.comm, self._shape(components, staggered), dtype, links=0)
        except ResourceError as error:  # on all ranks
            return self._plain(components, dtype, staggered, error)
        self._regions = [each for each in self._regions if _in_use(each)]
        region = find_region(field)
        if region is not None:
            self._regions.append(region)
            MADE[region] = self._form, self._axes(staggered)
        return field

    def _plain(
        self, components: int | Sequence[int], dtype: DTypeLike,
        staggered: int | Sequence[int] = (), short: ResourceError | None = None,
    ) -> NDArray[Any]:
        """Collective. A field in memory of this rank's own; ``short``: what warns of that."""
        with agreed(self._context.comm, "memory of a field"):
            if short is not None:
                warn_of_plain_memory(self.comm, short)
            return np.empty(tuple(self._shape(components, staggered)), dtype)

    def _shape(
        self, components: int | Sequence[int], staggered: int | Sequence[int]
    ) -> Iterator[int]:
        """Local. That of a field here; what makes no sense is an error of who goes through it."""
        yield from [components] if isinstance(components, int | np.integer) else components
        yield from self._extents(self._axes(staggered))

    def zeros(
        self, components: int | Sequence[int] = (), dtype: DTypeLike = float,
        staggered: int | Sequence[int] = (),
    ) -> NDArray[Any]:
        """Collective. A field of zeros, as :meth:`empty`."""
        field = self.empty(components, dtype, staggered)
        field[...] = np.zeros((), field.dtype)
        return field

    def from_function(
        self, function: Callable[..., Any], components: int | Sequence[int] = (),
        dtype: DTypeLike = float, staggered: int | Sequence[int] = (),
    ) -> NDArray[Any]:
        """Collective. A field of ``function(*coordinates)``, which gets arrays that broadcast;
        its ghosts are zeros."""
        field = self.zeros(components, dtype, staggered)
        with agreed(self._context.comm, "from_function"):
            field[self.owned] = function(*self.coordinates(staggered))
        return field

    # -- halos ------------------------------------------------------------------------------------

    def update(
        self, *fields: Any, boundary: Any = None, ghosts: str | None = None, t: Any = None
    ) -> Any:
        """Collective in the sense of MPI. Fill the ghosts of all fields, and return the fields.

        A tuple of arrays instead of a field takes turns: the first call fills the first one, of
        every kind of conditions and ghosts; what is returned says which one it was. The first call
        for these arrays is collective and plans; later ones only wait for neighbors. A rank that
        alone gives new arrays waits for ever, unless ``ONESIDED_DEBUG=1``, where it is a
        :class:`MismatchError` on every rank. ``boundary`` is for all fields, or a tuple with an
        entry per field. Numbers and functions may be others in every call; what they are is
        planned, not which. ``t`` is handed to functions; one that raises breaks the request, which
        :meth:`Free` gives back. Raises as :meth:`halo` does.
        """
        return self._updating(fields, boundary, ghosts, t).exchange()

    def overlap(
        self, function: Callable[[tuple[Any, ...]], object], *fields: Any, boundary: Any = None,
        ghosts: str | None = None, t: Any = None,
    ) -> Any:
        """Collective in the sense of MPI. Update fields, and call a function for every cell that
        this rank owns, on the interior while ghosts travel, then on the rim.

        ``function(where)`` gets the index of cells in any field, :attr:`interior` first, then each
        box of :attr:`boundary` that has cells. It must not write to the fields that are updated.
        The rest is as for :meth:`update`. What the function raises in the interior is raised when
        all ghosts have come.
        """
        plan = self._updating(fields, boundary, ghosts, t)

        def apply(where: tuple[Any, ...]) -> None:
            cells = (_first(field)[where].shape[-len(self.shape) :] for field in fields)
            if any(0 not in each for each in cells):
                function(where)

        given = complete_round(plan, partial(apply, self.interior))
        for where in self.boundary:
            apply(where)
        return given

    def _updating(
        self, fields: Sequence[Any], boundary: Any, ghosts: str | None, t: Any
    ) -> HaloExchange:
        """The request that updates these fields, with these conditions."""
        plan: HaloExchange = self._planned(
            ("update", ghosts, kinds(boundary)), fields,
            lambda: self._halo(fields, boundary, ghosts),
        )  # fmt: skip
        if boundary is not None:
            plan.boundary.set(self._conditions(fields, boundary))
        plan.boundary.time = t
        return plan

    def halo(
        self, *fields: Any, boundary: Any = None, ghosts: str | None = None, info: Info = None
    ) -> HaloExchange:
        """Collective. The request that fills the ghosts of these fields.

        The arguments are those of :meth:`update` and of :class:`HaloExchange`.
        ``halo.boundary.time = t`` is handed to the functions of the next round.

        Raises :class:`PatternError` on every rank for an array that is no field of this grid,
        fields whose dtypes or components differ between ranks, and conditions that mirror more
        cells than a block shows, ghosts included.
        """
        return self._halo(fields, boundary, ghosts, info)

    def accumulate(
        self, *fields: Any, op: str = "sum", boundary: Any = None, ghosts: str | None = None
    ) -> Any:
        """Collective in the sense of MPI. Bring what the ghosts have gathered to the owners: the
        adjoint of :meth:`update`.

        ``op`` is ``"sum"``, which leaves zeros in the ghosts that it has brought or that a
        condition shows, or ``"min"`` or ``"max"``, which leave nothing of use there. Ghosts at an
        end of the grid go to the cells that they would show, and nowhere where they show a number
        or what a function says. The order in which one cell gets them is the same in every call.

        Planned and raising as :meth:`update`; :class:`PatternError` also for an unknown operation,
        one that a dtype does not have, and ``"antireflect"`` with a minimum or maximum.
        """
        return self._planned(
            ("accumulate", op, ghosts, kinds(boundary)), fields,
            lambda: self._halo(fields, boundary, ghosts, op=str(op)),
        ).exchange()  # fmt: skip

    # -- the whole field --------------------------------------------------------------------------

    def global_shape(self, field: NDArray[Any]) -> tuple[int, ...]:
        """Collective. The shape of the global array of a field, its components first; raises as
        :meth:`halo`."""
        return self._whole(field)[0]

    def redistribute(
        self, field: NDArray[Any], other: Grid | Placed, out: NDArray[Any] | None = None
    ) -> Any:
        """Collective. Bring a field to another grid of the same shape, however that is cut, and
        with whatever ghosts, which are not filled; or to a distributed array, or from one.

        ``out`` is a field of the other grid, a new one in plain memory by default. A distributed
        array tells where it belongs by ``global_shape`` and ``local_slice()``, as
        :class:`onesided.pencilfft.DistArray` does; it may be ``other``, or take the place of
        ``field``. Returns what is filled. The exchange for two given arrays is planned once and
        kept; later calls only wait for ranks that share cells.

        Raises :class:`PatternError` or :class:`MismatchError` on every rank where these do not fit.

        Example
        -------
        ::

            grid.redistribute(u, array)              # to pencils, without the ghosts
            grid.redistribute(array, grid, u)        # and back
        """
        if out is not None and not isinstance(other, Grid):
            raise PatternError("out is for a field of another grid; the array is filled itself")
        there: Grid = other if isinstance(other, Grid) else self
        into: Any = out if there is other else other
        wanted = ("redistribute", self._name_of(field), there._name_of(into))
        once = out is None and there is other
        found = self._transfer(wanted, field, there, into, once, redistribution).exchange()
        return found if once else into

    def refine(
        self, field: NDArray[Any], fine: Grid, out: NDArray[Any] | None = None, *,
        order: int = 1, boundary: Any = None, t: Any = None,
    ) -> NDArray[Any]:
        """Collective. Bring a field to a grid with twice the cells along every axis.

        With order 0 a fine cell has the value of the cell that it is a part of, with order 1 that
        of linear interpolation between the middles of cells. For this the ghosts of the field, one
        layer at least on every side, are filled first, as by :meth:`update` with ``boundary`` and
        ``t``. ``out`` is a field of the fine grid, a new one in plain memory by default, and
        returned; its ghosts are not filled. The grids may be cut in any way; where fine blocks are
        those of the coarse grid, nothing else moves. Planned as by :meth:`redistribute`.

        Raises :class:`PatternError` on every rank where shapes, components, dtypes or ranks do not
        fit, and for fields that are staggered, or neither real nor complex.

        Example
        -------
        ::

            coarse, fine = Grid(comm, (32, 32), 1), Grid(comm, (64, 64), 1)
            e = coarse.refine(correction, fine, boundary="antireflect")
        """
        if order:  # first: a function may raise, and would leave a plan that is used once
            self._updating((field,), boundary, "all", t).exchange()
        wanted = ("refine", order, self._number, fine._number)
        way = partial(refinement, True, order, self.layers)
        return self._transfer(wanted, field, fine, out, out is None, way).exchange()

    def coarsen(
        self, field: NDArray[Any], coarse: Grid, out: NDArray[Any] | None = None, *,
        order: int = 0, boundary: Any = None,
    ) -> NDArray[Any]:
        """Collective. Bring a field to a grid with half the cells along every axis: the adjoint of
        :meth:`refine` of the same order.

        With order 0 a coarse cell has the mean of its parts; with order 1 fine cells beside it
        count, too, with weights 1, 3, 3, 1 along every axis, and ``boundary`` are the conditions
        of the coarse grid that :meth:`refine` shows. Adjoint it is in the product that counts a
        cell by its volume: of d axes, ``(coarse.refine(u), v) == 2**d * (u, fine.coarsen(v))``.
        ``out`` is a field of the coarse grid, whose ghosts are zeros then with order 1. The rest
        is as for :meth:`refine`.
        """
        wanted = ("coarsen", order, self._number, coarse._number)
        way = partial(refinement, False, order, coarse.layers)
        found = self._transfer(wanted, field, coarse, out, out is None, way).exchange()
        if order and out is None:  # nobody has given this array before, nor will again
            with coarse._halo((found,), boundary, "all", op="sum") as back:
                back.exchange()
        elif order:
            coarse.accumulate(found, boundary=boundary, ghosts="all")
        if order:
            coarse._clear_ghosts(found)  # at ends without a condition
        return found

    def _transfer(
        self, wanted: Wanted, field: Any, there: Grid, out: Any, once: bool,
        way: Callable[..., Transfer],
    ) -> Transfer:
        """Collective. The way of a field to one of another grid: a new one that it takes ``once``,
        or ``out``, and the way is kept."""

        def plan() -> Transfer:
            Attachment.of(self.comm)  # which raises where MPI has ended
            with agreed(self._context.comm, wanted[0]):
                if MPI.Comm.Compare(self.comm, there.comm) not in (MPI.IDENT, MPI.CONGRUENT):
                    raise PatternError("the grids are of other ranks, or of ranks in other orders")
            held, into = self._part(field), out
            if once:
                lead = max(0, len(held.shape) - len(there.shape))
                cells = there.shape if isinstance(field, Placed) else self.shape
                more = [axis for axis, (n, m) in enumerate(zip(held.shape[lead:], cells,
                                                               strict=False)) if n == m + 1]
                into = there._plain(held.shape[:lead], field.dtype, more)
            return way(held, there._part(into), self._info, once)

        made: Transfer = plan() if once else self._planned(wanted, (field, out), plan, there)
        return made

    def _name_of(self, array: Any) -> Any:
        """Local. What tells fields of this grid from those of others, and distributed arrays."""
        if not isinstance(array, Placed):
            return self._number
        try:
            here = array.local_slice()
            return tuple(array.global_shape), tuple([(part.start, part.stop) for part in here])
        except Exception:  # planning tells it everywhere, where the way is not planned already
            return None

    def _whole(self, field: Any) -> tuple[tuple[int, ...], list[int]]:
        """Collective. The global shape of a field, and the axes along which it is staggered."""
        # a tuple is no field here, but several; where all ranks agree it is refused as a list is
        ((more,), _) = self._forms([list(field) if isinstance(field, tuple) else field], None)
        lead = field.shape[: field.ndim - len(self.shape)]
        agree(self._context.comm, None, f"components {lead} of {field.dtype}")
        ends = (n + (axis in more and not around)
                for axis, (n, around) in enumerate(zip(self.shape, self.periodic, strict=True)))
        return (*lead, *ends), more

    def _part(self, array: Any) -> Part:
        """Collective. A field, or a distributed array, as what ranks own of the global array."""
        if isinstance(array, Placed):
            return part_of(self.comm, array)
        shape, staggered = self._whole(array)
        origin = [*[0] * (len(shape) - len(self.shape)), *(low for low, _ in self.layers)]
        boxes = [self.part(rank, shape) for rank in range(self._context.comm.size)]
        return Part(self.comm, array, origin, boxes, shape, staggered)

    def gather(self, field: NDArray[Any], root: int = 0, box: Any = None) -> NDArray[Any] | None:
        """Collective. The global array, without ghosts, on one rank; None on the others.

        Of ``box``, if it is given: a slice for each axis of the global array, components
        included. Raises :class:`PatternError` on every rank for one that reaches beyond it.
        """
        held, comm = self._part(field), self._context.comm
        with agreed(comm, f"gather {box} on rank {root}"):
            here = check_root(root, comm.size) == comm.rank
            wanted = full_box(() if box is None else box, held.shape, "the box")
            found = np.empty(extents(wanted) if here else [0] * len(wanted), field.dtype)
        target = Part.of_one(self.comm, root, found, wanted, held.shape)
        redistribution(held, target, self._info, True).exchange()
        return found if here else None

    def scatter(self, whole: NDArray[Any] | None, field: NDArray[Any], root: int = 0) -> None:
        """Collective. Give every rank its part of a global array on ``root``; not the ghosts.

        Raises :class:`PatternError` on every rank where the array has another shape or dtype.
        """
        wants, comm = self._part(field), self._context.comm
        with agreed(comm, f"scatter from rank {root}"):
            here = check_root(root, comm.size) == comm.rank
            given = np.asarray(whole) if here else np.empty([0] * len(wants.shape), field.dtype)
        shape = given.shape if here else wants.shape
        source = Part.of_one(self.comm, root, given, all_of(wants.shape), shape)
        redistribution(source, wants, self._info, True).exchange()

    # -- items that move --------------------------------------------------------------------------

    def migrate(
        self, arrays: Sequence[NDArray[Any]], positions: NDArray[Any], *, outside: str = "raise"
    ) -> tuple[list[NDArray[Any]], NDArray[Any]]:
        """Collective. Bring items, such as particles, to the ranks in whose blocks they are.

        ``positions`` has a row per item and a column per axis, in the coordinates of ``bounds``;
        along periodic axes it is wrapped. ``arrays`` have items along their first axis. Returns the
        arrays and positions of the items that are here now: first those that have stayed, in their
        order, then by rank those that have come. Items beyond an end of the grid, or at no number,
        are an error, or with ``outside="drop"`` left out. A rank without items may give arrays of
        other dtypes than the others.

        Items go to neighbors by a persistent exchange with some room to spare, which follows what
        is used of it. A call in which an item goes farther exchanges by itself.

        Raises :class:`PatternError` on every rank, before anything moves, for items outside, and
        for arrays that do not fit.
        """
        if self._migration is None:
            self._migration = Migration(self.comm, self, self._info)
        moved = self._migration.move(arrays, positions, outside)
        return moved[:-1], moved[-1]

    def Free(self) -> None:
        """Collective. Give back all requests but those of :meth:`halo`, and the memory of all
        fields, which stays mapped while it is looked at.

        Requests of :meth:`halo` are the caller's to be freed before. A second call does nothing.
        """
        if MPI.Is_finalized():
            self._regions.clear()  # MPI's end has given them back
        self._plans.Free()
        if self._migration is not None:
            self._migration.Free()
            self._migration = None
        while self._regions:
            region = self._regions[-1]
            if _in_use(region):
                free(region.part(region.node.comm.rank)[: region.nbytes])
            self._regions.pop()

    # -- inside -----------------------------------------------------------------------------------

    def _halo(
        self, fields: Sequence[Any], boundary: Any, ghosts: str | None, info: Info = None,
        op: str | None = None,
    ) -> HaloExchange:
        """Collective. The request that updates fields, or by an operation does the reverse."""
        forms, shown = self._forms(fields, boundary, op)
        back = () if op is None else OPERATIONS[op]

        def faces_of(array: NDArray[Any], number: int) -> list[Face]:
            lead = array.ndim - len(self.shape)
            if array.shape[lead:] != self._extents(forms[number]):
                raise PatternError(f"a field that is staggered on other ranks: shape {array.shape}")
            links, before = self.links(self.layers, forms[number]), all_of(array.shape[:lead])
            return block_faces(links, before, (), self.place, ghosts or self.ghosts, self.corners)

        fills = partial(all_fills, self, fields, forms, shown, back) if shown.shown else None
        made = HaloExchange.of(self.comm, list(fields), faces_of,
                               self._info if info is None else info, fills, *back)
        made.boundary = shown
        return made

    def _conditions(self, fields: Sequence[Any], boundary: Any) -> list[Conditions]:
        """Local. The conditions of every field; raises :class:`PatternError`."""
        each = boundary if isinstance(boundary, tuple) else (boundary,) * len(fields)
        if len(each) != len(fields):
            raise PatternError(f"{len(each)} boundary conditions for {len(fields)} fields")
        return [read_conditions(self._boundary if given is None else given, len(self.shape))
                for given in each]

    def _forms(
        self, fields: Sequence[Any], boundary: Any, op: str | None = None
    ) -> tuple[list[list[int]], Boundary]:
        """Collective. By field, along which axes it is staggered; and all conditions. With an
        operation, these and the dtypes have to have it."""
        Attachment.of(self.comm)  # which raises where MPI has ended
        axes = len(self.shape)
        more: list[int] = []
        with agreed(self._context.comm, f"{op or 'update'} of {len(fields)} fields of a grid"):
            if not fields or () in [field for field in fields if isinstance(field, tuple)]:
                raise PatternError("no field is given")
            if op not in (None, *OPERATIONS):
                raise PatternError(f"no operation {op!r}; there are {', '.join(OPERATIONS)}")
            conditions = self._conditions(fields, boundary)
            for field in fields:
                found = np.zeros(axes, np.int64)
                for level in field if isinstance(field, tuple) else (field,):
                    found |= self._staggering(level)
                more += found.tolist()
                if op is not None and _first(field).dtype.kind not in "biufc":
                    raise PatternError(f"{_first(field).dtype} has no {op}")
            shown = Boundary(conditions, [_first(field).dtype for field in fields])
            if op not in (None, "sum") and ANTIREFLECT in map(kind, shown.shown.values()):
                raise PatternError(f"{ANTIREFLECT} has no {op}")
        most = largest(self._context.comm, None, "staggered fields", more)
        return [[axis for axis in range(axes) if most[number * axes + axis]]
                for number in range(len(fields))], shown

    def _planned(
        self, wanted: Wanted, fields: Sequence[Any], plan: Callable[[], Any], *others: Grid
    ) -> Any:
        """Local where it is there already, or in debug mode collective: whether all ranks mean the
        same request.

        The request of these arrays, or of views of the same memory, which ``others`` keep, too:
        whichever of the grids is freed first gives it back.
        """

        def compare(number: int) -> None:
            Attachment.of(self.comm)  # which raises where MPI has ended
            which = f"request {number}" if number else "a new request"
            agree(self._context.comm, None, f"{which}: {wanted[0]} of {self.shape}")

        found = self._plans.find(wanted, fields, compare if self._compares else None)
        for other in others:
            other._plans.find(wanted, fields)
        if found is None:
            found = plan()
            for grid in dict.fromkeys((self, *others)):  # once, where it is one grid
                grid._plans.keep(wanted, fields, found)
        return found

    def _clear_ghosts(self, field: NDArray[Any]) -> None:
        """Local."""
        for axis, (low, high) in enumerate(self.layers, field.ndim - len(self.shape)):
            layers = np.moveaxis(field, axis, 0)
            layers[:low] = layers[len(layers) - high :] = 0


def _in_use(region: Region) -> bool:
    return region.key in region.context.allocations


def _first(field: Any) -> NDArray[Any]:
    """Local. The array of a field, or the first of those that take turns."""
    found: NDArray[Any] = field[0] if isinstance(field, tuple) else field
    return found
