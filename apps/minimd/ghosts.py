"""Forward and reverse communication: positions to the ghosts, and the forces on them back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.apps.minimd.axis import HIGH, LOW, SIDES, Counts, Pair
from onesided.apps.minimd.borders import Border
from onesided.apps.minimd.links import Link
from onesided.apps.minimd.problem import AXES


def forward(x: NDArray[Any], borders: Sequence[Border], links: Sequence[Link | None]) -> None:
    """Collective. Bring the positions of all ghosts up to date, along one axis after the other."""
    for border, link in zip(borders, links, strict=True):
        axis = border.axis
        if link is None:
            for side in SIDES:
                start, stop = border.ghosts[side].start, border.ghosts[side].stop
                for row in range(AXES):
                    np.take(x[row], border.leaving[1 - side], out=x[row, start:stop], mode="clip")
                x[axis.number, start:stop] += axis.shifts[1 - side]
            continue
        for side in SIDES:
            part = columns(link.out[side], border.sent[side])
            np.take(x, border.leaving[side], axis=1, out=part, mode="clip")
            if axis.shifts[side]:
                part[axis.number] += axis.shifts[side]
        coming = _swap(link, border.sent, border.received)
        for side in SIDES:
            x[:, border.ghosts[side]] = coming[side]


def reverse(f: NDArray[Any], borders: Sequence[Border], links: Sequence[Link | None]) -> None:
    """Collective. Add the forces on ghosts to those on the atoms, along the last axis first."""
    for border, link in zip(reversed(borders), reversed(links), strict=True):
        if link is None:
            coming = f[:, border.ghosts[HIGH]], f[:, border.ghosts[LOW]]
        else:
            for side in SIDES:
                part = columns(link.out[side], border.received[side])
                np.copyto(part, f[:, border.ghosts[side]])
            coming = _swap(link, border.received, border.sent)
        for side in SIDES:
            for row, part in zip(f, coming[side], strict=True):  # rows: four times as fast
                row[border.leaving[side]] += part


def columns(array: NDArray[Any], count: int) -> NDArray[Any]:
    """Local. The first numbers of an array as a vector for each of so many atoms."""
    return array[: AXES * count].reshape(AXES, count)


def _swap(link: Link, sent: Counts, received: Counts) -> Pair:
    """Collective over the line."""
    low, high = link.exchange(
        (AXES * sent[LOW], AXES * sent[HIGH]), (AXES * received[LOW], AXES * received[HIGH])
    )
    return columns(low, received[LOW]), columns(high, received[HIGH])
