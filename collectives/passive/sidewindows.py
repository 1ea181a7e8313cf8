"""The windows beside the data (paper 003, Figure 5): descriptions, requests, done counters.

All entries are 64-bit integers. Every rank has one description and one request slot for each
root. A slot belongs to a root, not to a sender as in the paper: the sender then follows from the
tree, and as a root has one broadcast under way at a time, a description is never overwritten
while it is needed. Requests and done counters are numbers that only grow, so that nothing is ever
reset: request n of a root means that the data and the description of its n-th broadcast are here.
Behind the requests there is a warning of each root: data are about to come. Where MPI needs the
target to move them, the target then looks more often. Looking for what is new compares numbers in
place and makes nothing, since a rank that waits looks all the time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.context import Resources, refusal
from onesided.collectives.passive.windows import memory_of


class Description(NamedTuple):
    """What a rank must know to pass a broadcast on: window, its epoch there, place, bytes."""

    wid: int
    epoch: int
    displacement: int
    nbytes: int


FIELDS = len(Description._fields)
WORD = 8


class SideWindows:
    """The three windows of a runtime, locked from their creation to their release."""

    def __init__(self, comm: MPI.Intracomm, info: MPI.Info, resources: Resources) -> None:
        """Collective. The windows are freed with ``resources``."""
        self._rank, self._size = comm.rank, comm.size
        self._descriptions = _locked(comm, FIELDS * comm.size, info, resources)
        self._requests = _locked(comm, 2 * comm.size, info, resources)
        self._done = _locked(comm, 1, info, resources)
        resources.on_release(self.forget)
        self._description: NDArray[np.int64] = _words(self._descriptions).reshape(-1, FIELDS)
        slots = _words(self._requests)
        self._request: NDArray[np.int64] = slots[: comm.size]
        self._warnings: NDArray[np.int64] = slots[comm.size :]
        self._accepted = np.zeros(comm.size, np.int64)
        self._differs = np.zeros(comm.size, np.bool_)
        self._words = np.zeros(FIELDS, np.int64)
        self._number = np.zeros(1, np.int64)
        self._warning = np.zeros(1, np.int64)
        self._one = np.ones(1, np.int64)

    def forget(self) -> None:
        """Local. Drop the views of the memory before the windows are freed."""
        self._description = np.zeros((0, FIELDS), np.int64)
        self._request = self._warnings = self._accepted = np.zeros(0, np.int64)
        self._differs = np.zeros(0, np.bool_)

    def warn(self, target: int, root: int, number: int) -> None:
        """Local. Tell the target that the data of broadcast ``number`` of ``root`` will come."""
        self._warning[0] = number
        self._requests.Accumulate(self._warning, target, self._size + root, MPI.REPLACE)

    def announce(self, target: int, root: int, number: int, description: Description) -> None:
        """Local, after ``warn``. Describe broadcast ``number`` of ``root``, whose data are there,
        then request it.

        Complete at the target when it returns; the MPI may need the target for that.
        """
        self._words[:] = description
        self._descriptions.Put(self._words, target, FIELDS * root)
        self._descriptions.Flush(target)  # the request must not overtake it
        self._number[0] = number
        self._requests.Accumulate(self._number, target, root, MPI.REPLACE)
        self._requests.Flush(target)

    def requested(self) -> list[tuple[int, int]]:
        """Local. Root and number of the requests that are new since they were last accepted.

        The slots are looked at in memory, which costs next to nothing; what looks new is then
        read by an atomic operation, because a load that races with an update may see half of it.
        """
        self._requests.Sync()
        np.not_equal(self._request, self._accepted, out=self._differs)
        if not self._differs.any():
            return []
        changed: list[int] = np.flatnonzero(self._differs).tolist()
        new = [(root, _read(self._requests, self._rank, root)) for root in changed]
        return [(root, number) for root, number in new if number > self._accepted[root]]

    def expecting(self) -> bool:
        """Local. True where there is a warning of a broadcast that has not been requested yet."""
        np.not_equal(self._warnings, self._request, out=self._differs)
        return bool(self._differs.any())

    def accept(self, root: int, number: int) -> None:
        """Local. The request has been served; it is not new any more."""
        self._accepted[root] = number

    def describe(self, root: int) -> Description:
        """Local. The description of the request of ``root``."""
        self._descriptions.Sync()
        return Description(*self._description[root].tolist())

    def count_done(self, root: int) -> None:
        """Local. Tell the root that this rank and those it serves directly have the data."""
        self._done.Accumulate(self._one, root, 0, MPI.SUM)
        self._done.Flush(root)

    def done(self) -> int:
        """Local. How many ranks have done their part, over all broadcasts of this rank."""
        return _read(self._done, self._rank, 0)


def _locked(
    comm: MPI.Intracomm, words: int, info: MPI.Info, resources: Resources
) -> MPI.Win:
    """Collective. A window of zeros under ``Lock_all``, for as long as the resources live."""
    try:
        window = MPI.Win.Allocate(WORD * words, WORD, info, comm)
    except MPI.Exception as error:
        raise refusal(error) from error
    resources.on_release(window.Free)
    window.Lock_all(MPI.MODE_NOCHECK)
    resources.on_release(window.Unlock_all)
    memory_of(window)[:] = 0
    window.Sync()
    return window


def _words(window: MPI.Win) -> NDArray[np.int64]:
    return memory_of(window).view(np.int64)


def _read(window: MPI.Win, rank: int, place: int) -> int:
    """Local. An atomic read of a word of this rank's own part."""
    nothing, word = np.zeros(1, np.int64), np.zeros(1, np.int64)
    window.Fetch_and_op(nothing, word, rank, place, MPI.NO_OP)
    window.Flush(rank)
    return int(word[0])
