"""What one side of a halo sends against what the other expects, agreed on by all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onesided.collectives.agreement import agree, agreed
from onesided.collectives.context import Context
from onesided.collectives.errors import PatternError
from onesided.collectives.halo.face import Face, extents, is_empty
from onesided.collectives.halo.pieces import Pieces

#: What a rank sends to another one, by key.
Offers = dict[int, tuple[Pieces, np.dtype[Any], str]]


@dataclass(frozen=True)
class Route:
    """A face with the pieces that leave and those that come; None where there is nothing.

    The tags tell the messages of one sender and receiver apart.
    """

    face: Face
    send: Pieces | None
    recv: Pieces | None
    send_tag: int
    recv_tag: int


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
    tags = context.take_tags(max(agree(comm, None, "tags of a halo", most)))
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
