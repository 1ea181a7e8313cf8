"""What a halo is on one rank, and what all ranks agree on: checked once, at initialization.

The boxes that one side sends are compared with those that the other expects, and the tags of the
messages are chosen; then the messages are made and rehearsed (:mod:`.traffic`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import agree, agreed, largest
from onesided.collectives.context import Context, Resources
from onesided.collectives.errors import PatternError
from onesided.collectives.halo.faces import (
    Face,
    Grid,
    check_apart,
    extents,
    grid_faces,
    is_empty,
    listed_faces,
)
from onesided.collectives.halo.pieces import Pieces, memory_order, read_partitions
from onesided.collectives.halo.traffic import Route, Traffic, Transport
from onesided.collectives.partitioned.channel import check_name

#: What a rank sends to another one, by key.
Offers = dict[int, tuple[Pieces, np.dtype[Any], str]]



@dataclass(frozen=True)
class Plan:
    """An exchange as all ranks have agreed on it.

    ``number`` and ``tags`` are the same on all ranks. The tags of an exchange that was not
    completed are not used again: some ranks may have written letters under them.
    """

    faces: tuple[Face, ...]
    traffic: Traffic
    resources: Resources
    method: str
    number: int
    tags: list[int]


def initialize(
    comm: MPI.Comm, array: Any, width: Any, neighbors: Any, partitions: Any, corners: bool,
    transport: Transport,
) -> Plan:
    """Collective. See :class:`~.exchange.HaloExchange`."""
    context = Context.of(comm)
    with agreed(context.comm):
        _check(array, transport)
        if neighbors is None:
            faces = grid_faces(array.shape, width, _grid(context.comm), corners)
        else:
            faces = listed_faces(neighbors, array.shape, context.comm.size, width)
        check_apart(faces)
        block = np.asarray(array)  # subclasses cut in their own ways
        sends = _cut(block, faces, read_partitions(partitions, array.ndim))
    agree(context.comm, None, ("HaloExchange", transport.method))
    context.node()  # collective where it is the first
    routes, tags = match(context, faces, sends, block.dtype)
    number = context.next_tag()
    traffic = Traffic(context, block, routes, transport)
    traffic.allocate(comm)
    resources = Resources(context)
    resources.keep.append(array)
    resources.on_release(traffic.close)
    try:
        with agreed(context.comm, ("connected", number)):
            traffic.connect()
        with agreed(context.comm, ("rehearsed", number)):
            traffic.rehearse()
    except Exception:
        resources.release()
        traffic.give_back()
        raise
    return Plan(_counted(routes), traffic, resources, _method(traffic, transport), number,
                tags)


def _check(array: Any, transport: Transport) -> None:
    check_name(transport.method)
    if not isinstance(array, np.ndarray):
        raise PatternError(f"a halo needs a NumPy array, not {type(array).__name__}")
    if not array.ndim:
        raise PatternError("a halo needs an array of one axis at least")
    if array.dtype.hasobject or not array.dtype.itemsize:
        raise PatternError(f"dtype {array.dtype} has no fixed size that could be sent")
    if not array.flags.writeable:
        raise PatternError("the array cannot be written")
    aggregate = transport.aggregate
    if not isinstance(aggregate, int | np.integer) or aggregate < 0:
        raise PatternError(f"aggregate is {aggregate!r}, not a number of bytes")


def _grid(comm: MPI.Intracomm) -> Grid:
    if comm.Get_topology() != MPI.CART:
        raise PatternError("the communicator has no Cartesian topology: list the neighbors")
    dims, periods, coords = MPI.Cartcomm(comm).Get_topo()
    return Grid(tuple(dims), tuple(map(bool, periods)), tuple(coords))


def _cut(
    array: NDArray[Any], faces: Sequence[Face], partitions: int | tuple[int, ...]
) -> list[Pieces | None]:
    order = memory_order(array)
    return [
        None if is_empty(face.send)
        else Pieces.of(extents(face.send), face.offset, partitions, order)
        for face in faces
    ]  # fmt: skip


def _counted(routes: Sequence[Route]) -> tuple[Face, ...]:
    """The faces, which know the number of their pieces now."""
    return tuple(
        replace(
            route.face,
            partitions=0 if route.send is None else route.send.count,
            arrivals=0 if route.recv is None else route.recv.count,
        )
        for route in routes
    )


def _method(traffic: Traffic, transport: Transport) -> str:
    """The methods in use: there may be several where the choice was left open."""
    used = {request.method for request in (*traffic.receives, *traffic.sends)}
    return ", ".join(sorted(used)) or transport.method


# -- matching -------------------------------------------------------------------------------------


def match(
    context: Context, faces: Sequence[Face], sends: Sequence[Pieces | None], dtype: np.dtype[Any]
) -> tuple[list[Route], list[int]]:
    """Collective. The routes of the faces, and the tags that they use, the same on all ranks.

    ``sends`` are the pieces of their send boxes.

    Raises :class:`PatternError` on every rank, naming the pair of ranks, where a rank expects
    another shape or dtype than comes, something that nobody sends, or nothing where something
    comes.
    """
    comm = context.comm
    offers: list[Offers] = [{} for _ in range(comm.size)]
    for face, pieces in zip(faces, sends, strict=True):
        if pieces is not None:
            offers[face.rank][face.send_key] = (pieces, dtype, face.name)
    come: list[Offers] = comm.alltoall(offers)
    with agreed(comm, "boxes of a halo"):
        _compare(comm.rank, faces, come, dtype)
    most = max(map(len, [*offers, *come]))
    tags = context.take_tags(largest(comm, None, "tags of a halo", [most])[0])
    leaving = [_numbered(offer, tags) for offer in offers]
    coming = [_numbered(offer, tags) for offer in come]
    routes = []
    for face, pieces in zip(faces, sends, strict=True):
        expected = None if is_empty(face.recv) else come[face.rank][face.recv_key][0]
        routes.append(Route(
            face, pieces, expected,
            -1 if pieces is None else leaving[face.rank][face.send_key],
            -1 if expected is None else coming[face.rank][face.recv_key],
        ))  # fmt: skip
    return routes, tags


def _numbered(offers: Offers, tags: Sequence[int]) -> dict[int, int]:
    """The same on both sides: a tag for every key."""
    return dict(zip(sorted(offers), tags, strict=False))


def _compare(
    me: int, faces: Sequence[Face], come: Sequence[Offers], dtype: np.dtype[Any]
) -> None:
    left = {(rank, key) for rank, offers in enumerate(come) for key in offers}
    for face in faces:
        if is_empty(face.recv):
            continue
        shape, sender = extents(face.recv), face.rank
        if face.recv_key not in come[sender]:
            raise PatternError(
                f"rank {me} expects a box of shape {shape} from rank {sender} ({face.name}), "
                "which sends nothing"
            )
        left.discard((sender, face.recv_key))
        pieces, kind, name = come[sender][face.recv_key]
        if pieces.shape != shape:
            raise PatternError(
                f"rank {sender} sends a box of shape {pieces.shape} to rank {me} ({name}), which "
                f"expects {shape} ({face.name})"
            )
        if kind != dtype:
            raise PatternError(f"rank {sender} sends {kind} to rank {me}, which expects {dtype}")
    for sender, key in sorted(left):
        pieces, _, name = come[sender][key]
        raise PatternError(
            f"rank {sender} sends a box of shape {pieces.shape} to rank {me} ({name}), which "
            "expects nothing"
        )
