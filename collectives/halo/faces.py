"""The faces of a block: what it exchanges with each neighbor, in a Cartesian grid of ranks or by a
list of neighbors with boxes. Pure geometry, no MPI call."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.collectives.buffers import as_number
from onesided.collectives.errors import PatternError
from onesided.collectives.pattern import Block, Box, check_disjoint, full_box, text, whole


@dataclass(frozen=True)
class Face:
    """What this rank exchanges with one neighbor: a face, an edge or a corner of its block.

    ``send`` and ``recv`` are boxes of the array, ghost layers included; one of them may be empty.
    ``offset`` is how many blocks away the neighbor is along each axis of a Cartesian grid, such as
    (-1, 0), and () where the neighbors were listed. The keys tell several boxes of a pair of ranks
    apart: ``send_key`` on this side is the neighbor's ``recv_key``; what travels along the same
    axes is next to each other in their order. What has a later ``stage`` is sent when all of the
    earlier ones has come.

    Examples
    --------
    >>> face = Face(0, (slice(1, 2),), (slice(3, 4),), offset=(-1,))
    >>> face.rank, face.offset
    (0, (-1,))
    """

    rank: int
    send: Box
    recv: Box
    offset: tuple[int, ...] = ()
    send_key: Any = 0
    recv_key: Any = 0
    stage: int = 0

    @property
    def back(self) -> Face:
        """The way back: what was received is sent, to where it came from."""
        return replace(self, send=self.recv, recv=self.send, send_key=self.recv_key,
                       recv_key=self.send_key)


def extents(box: Box) -> tuple[int, ...]:
    """Local. The shape of a box."""
    return tuple(part.stop - part.start for part in box)


def is_empty(box: Box) -> bool:
    """Local. True where a box has no elements."""
    return any(part.stop <= part.start for part in box)


#: Ghost layers of one axis: below and above the block's own layers.
Layers = tuple[int, int]


@dataclass(frozen=True)
class Place:
    """A Cartesian grid of ranks, and one rank's place in it.

    ``order`` are the ranks by place, in C order; without it they are numbered so, as by MPI.
    """

    dims: tuple[int, ...]
    periods: tuple[bool, ...]
    coords: tuple[int, ...]
    order: tuple[int, ...] = ()

    def neighbor(self, offset: tuple[int, ...]) -> int | None:
        """The rank in a direction; None beyond the end of an axis that is not periodic."""
        place = [coord + step for coord, step in zip(self.coords, offset, strict=True)]
        for axis, (extent, periodic) in enumerate(zip(self.dims, self.periods, strict=True)):
            if periodic:
                place[axis] %= extent
            elif not 0 <= place[axis] < extent:
                return None
        number = int(np.ravel_multi_index(place, self.dims)) if place else 0
        return self.order[number] if self.order else number


def read_width(width: Any, shape: tuple[int, ...], gridded: int) -> tuple[Layers, ...]:
    """Ghost layers (low, high) per axis, from a number for the first ``gridded`` axes, or one or a
    pair of them per axis. Raises :class:`PatternError` for anything else, negative numbers, ghost
    layers on other axes, and more ghost layers than the array has."""
    if isinstance(width, int | np.integer):
        width = [width] * gridded + [0] * (len(shape) - gridded)
    if not isinstance(width, Sequence | np.ndarray) or len(width) != len(shape):
        raise PatternError(f"the width is {width!r}, not a number or one per axis of an array of "
                           f"shape {shape}")
    layers = []
    for axis, entry in enumerate(width):
        pair = (entry, entry) if isinstance(entry, int | np.integer) else entry
        if not isinstance(pair, Sequence | np.ndarray) or len(pair) != 2 or not all(
            isinstance(number, int | np.integer) and number >= 0 for number in pair
        ):
            raise PatternError(f"the width of axis {axis} is {entry!r}, not a number of ghost "
                               "layers or (low, high)")
        low, high = map(int, pair)
        if low + high and axis >= gridded:
            raise PatternError(f"ghost layers on axis {axis}; the grid has {gridded} axes only")
        if low + high > shape[axis]:
            raise PatternError(
                f"{low} and {high} ghost layers on axis {axis}, where the array, ghost layers "
                f"included, has an extent of {shape[axis]}"
            )
        layers.append((low, high))
    return tuple(layers)


#: Which ghost layers are filled, and along how many axes at most these lie outside of the block.
GHOSTS = {"faces": 1, "edges": 2, "all": 1 << 30}

#: How edges and corners come: from their owners, or with the faces of one axis after the other.
DIRECT, AXES = CORNERS = ("direct", "axes")


@dataclass(frozen=True)
class Link:
    """What two blocks show of each other along one axis, in the indices of this block's array.

    ``step`` are the places from this block to the other one, around a periodic axis as often as
    need be; with 0 it is this block, and both slices are its own layers.
    """

    step: int
    send: slice
    recv: slice


def links_between(
    starts: Sequence[int], place: int, layers: Layers, periodic: bool, more: int = 0
) -> list[Link]:
    """Local. Along one axis, the link of a block to itself, then to those with which it has ghosts
    in common: the ghosts of thin blocks show several. None at all for a block without layers.

    ``starts``: where blocks begin, and the end. The last one that has layers has ``more`` points
    at the end.
    """
    (low, high), parts, extent = layers, len(starts) - 1, starts[-1]

    def block(number: int) -> tuple[int, int]:
        turns, at = divmod(number, parts)
        ends = starts[at] < starts[at + 1] == extent
        return starts[at] + turns * extent, starts[at + 1] + turns * extent + more * ends

    start, stop = block(place)
    if start == stop:
        return []

    def here(first: int, last: int) -> slice:
        return slice(first - start + low, max(first, last) - start + low)

    found = [Link(0, here(start, stop), here(start, stop))]
    for sign in (-1, 1):
        for number in itertools.count(place + sign, sign):
            first, last = block(number)
            away = max(start - last, first - stop)
            if away >= max(low, high) or not (periodic or 0 <= number < parts):
                break
            send = here(start, min(stop, last + high)), here(max(start, first - low), stop)
            recv = here(max(first, start - low), last), here(first, min(last, stop + high))
            if first < last:
                found.append(Link(number - place, send[sign > 0], recv[sign > 0]))
    return found


def block_faces(
    links: Sequence[Sequence[Link]], before: Box, after: Box, place: Place, ghosts: str = "all",
    corners: str = DIRECT,
) -> list[Face]:
    """Local. The faces of a block, then its edges and corners, in the order of their axes.

    ``links`` are those along each axis of the grid, which are between the axes of ``before`` and
    of ``after``. With ``"axes"`` for all ghosts there are faces only, in a stage per axis, which
    have the ghosts that have come before.
    """
    if ghosts not in GHOSTS:
        raise PatternError(f"ghosts is {ghosts!r}, not one of {', '.join(GHOSTS)}")
    if corners not in CORNERS:
        raise PatternError(f"corners is {corners!r}, not one of {', '.join(CORNERS)}")
    axes, most = len(links), GHOSTS[ghosts]
    staged = corners == AXES and most >= axes
    faces = []
    for chosen in itertools.product(*links):
        offset = tuple(link.step for link in chosen)
        across = tuple(axis for axis, step in enumerate(offset) if step)
        rank = place.neighbor(offset)
        if rank is None or not 0 < len(across) <= (1 if staged else most):
            continue
        send, recv = [link.send for link in chosen], [link.recv for link in chosen]
        stage = across[0] if staged else 0
        for axis in range(stage):
            send[axis] = recv[axis] = _seen(links[axis])
        boxes = (*before, *send, *after), (*before, *recv, *after)
        if not (is_empty(tuple(send)) and is_empty(tuple(recv))):
            key, back = ((len(across), across, tuple(sign * step for step in offset))
                         for sign in (1, -1))
            faces.append(Face(rank, *boxes, offset, key, back, stage))
    return sorted(faces, key=attrgetter("send_key"))


def grid_faces(
    shape: tuple[int, ...], width: Any, place: Place, ghosts: str = "all", corners: str = DIRECT
) -> list[Face]:
    """Local. The faces of a block of which only its own array is known: neighbors have as many
    layers as their ghosts need.

    ``shape`` is the array's with its ghost layers; the grid's axes are its first ones.

    Raises :class:`PatternError` where the array has fewer axes than the grid, for a width as
    :func:`read_width` does, and where the block has fewer layers than a neighbor needs of it.
    """
    gridded = len(place.dims)
    if gridded > len(shape):
        raise PatternError(f"a grid of {gridded} axes, and an array of shape {shape}")
    layers = read_width(width, shape, gridded)
    links = []
    for axis, (low, high) in enumerate(layers[:gridded]):
        at, last, around = place.coords[axis], place.dims[axis] - 1, place.periods[axis]
        own = shape[axis] - high - low
        wanted = max(high if around or at > 0 else 0, low if around or at < last else 0)
        if wanted > own:
            raise PatternError(
                f"the block has {own} layers of its own on axis {axis}, and a neighbor needs "
                f"{wanted} of them: use fewer ranks along this axis, or fewer ghost layers"
            )
        sizes = [own if other == at else max(low, high) for other in range(last + 1)]
        starts = (0, *itertools.accumulate(sizes))
        links.append(links_between(starts, at, (low, high), around))
    return block_faces(links, (), whole(shape[gridded:]), place, ghosts, corners)


def _seen(links: Sequence[Link]) -> slice:
    """What a block has along an axis when its neighbors there have sent."""
    shown = [link.recv for link in links if link.recv.start < link.recv.stop]
    return slice(min(part.start for part in shown), max(part.stop for part in shown))


def listed_faces(neighbors: Any, shape: tuple[int, ...], ranks: int) -> list[Face]:
    """Local. A face for every entry ``(rank, send box, receive box)``, or with a tag as a fourth.

    Without a tag the n-th entry for a rank is matched with that rank's n-th entry for this one.
    ``MPI.PROC_NULL`` as the rank, or None as a box, exchanges nothing.

    Raises :class:`PatternError` for an entry of another form, ranks that do not exist, a tag that
    occurs twice for one rank, boxes that reach beyond the array, and receive boxes that overlap
    another one, or a send box.
    """
    if not isinstance(neighbors, Sequence) or isinstance(neighbors, str):
        raise PatternError(f"the neighbors are {neighbors!r:.60}, not a list of (rank, box, box)")
    none: Box = (slice(0, 0),) * len(shape)
    seen: Counter[int] = Counter()
    taken: set[tuple[int, int]] = set()
    faces = []
    for number, entry in enumerate(neighbors):
        if not isinstance(entry, list | tuple) or not 3 <= len(entry) <= 4:
            raise PatternError(f"neighbor {number} is {entry!r:.60}, not (rank, send box, receive "
                               "box) or that and a tag")
        rank = as_number(entry[0], f"rank of neighbor {number}")
        if not (0 <= rank < ranks or rank == MPI.PROC_NULL):
            raise PatternError(f"neighbor {number} is rank {rank}; there are {ranks} ranks")
        send, recv = (
            none if box is None or rank == MPI.PROC_NULL
            else full_box(box, shape, f"the {role} box for neighbor {number} (rank {rank})")
            for role, box in zip(("send", "receive"), entry[1:3], strict=True)
        )  # fmt: skip
        key = as_number(entry[3], f"tag of neighbor {number}") if len(entry) > 3 else seen[rank]
        seen[rank] += 1
        if rank >= 0 and (rank, key) in taken:
            raise PatternError(f"tag {key} occurs twice for rank {rank}")
        taken.add((rank, key))
        faces.append(Face(rank, send, recv, (), key, key))
    _check_apart(faces)
    return faces


def _check_apart(faces: Sequence[Face]) -> None:
    """Raise :class:`PatternError` where a receive box overlaps another one, or a send box."""
    check_disjoint([Block(face.rank, 0, face.recv, extents(face.recv)) for face in faces
                    if not is_empty(face.recv)])
    sends = [face for face in faces if not is_empty(face.send)]
    starts, stops = (np.array([[getattr(part, end) for part in face.send] for face in sends])
                     for end in ("start", "stop"))
    for face in faces if sends else []:
        low, high = ([getattr(part, end) for part in face.recv] for end in ("start", "stop"))
        clash = np.flatnonzero(np.all((starts < high) & (low < stops), axis=1))
        if clash.size and not is_empty(face.recv):
            other = sends[int(clash[0])]
            raise PatternError(f"the receive box from rank {face.rank} {text(face.recv)} and the "
                               f"send box for rank {other.rank} {text(other.send)} overlap")
