"""The same loop in C: a small library for this process, built where a compiler is present.

The source comes as ``data/rma_loop.c``. It is built with the compiler of the MPI that this process
has loaded, and used only if it calls that very library.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.foreign import ForeignError, finished
from onesided.apps.papers.rmamt_cell import Route
from onesided.apps.tools.fftw_mpi import compilers

# Where messages lie, the same places at origin and target, and whether they came.

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Layout:
    """Slots of neighbors, in them the parts of threads, in these one place for every message.

    No two messages of an epoch share a byte, as MPI demands of concurrent operations.
    """

    slots: int
    threads: int
    messages: int
    size: int

    @property
    def count(self) -> int:
        """Local. Messages in an epoch, of all threads to all neighbors."""
        return self.slots * self.threads * self.messages

    @property
    def nbytes(self) -> int:
        """Local. Of a window, or of the memory at an origin."""
        return self.count * self.size

    @property
    def slot_bytes(self) -> int:
        """Local. What belongs to one neighbor."""
        return self.nbytes // self.slots

    def slot(self, number: int) -> slice:
        """Local. The bytes of one neighbor."""
        return slice(number * self.slot_bytes, (number + 1) * self.slot_bytes)

    def places(self, thread: int) -> list[tuple[int, int]]:
        """Local. The slot and first byte of every message of a thread: neighbors take turns."""
        return [
            (slot, ((slot * self.threads + thread) * self.messages + number) * self.size)
            for number in range(self.messages)
            for slot in range(self.slots)
        ]


def messages_of(wanted: int, slots: int, threads: int, size: int, most: int) -> int:
    """Local. Messages of a thread to a neighbor in an epoch, so that a window has ``most`` bytes.

    One at least.
    """
    return max(1, min(wanted, most // (slots * threads * size)))


PERIOD = 65521  # a prime: no two places of messages have the same bytes


class Content:
    """What the ranks of a cell send: other bytes in every turn, from every rank, at every place."""

    def __init__(self) -> None:
        place = np.arange(PERIOD, dtype=np.uint32)
        mixed = place * np.uint32(2654435761)
        self._pattern: Bytes = (mixed >> np.uint32(24)).astype(np.uint8)

    def of(self, rank: int, turn: int, part: slice) -> Bytes:
        """Local. A new array, for these places."""
        own = self._pattern + np.uint8((37 * rank + 101 * turn + 1) % 256)
        return np.resize(np.roll(own, -(part.start % PERIOD)), part.stop - part.start)


class Memory:
    """The two buffers of a rank, and who writes which slot of the one that receives.

    ``sends`` is what others get or are sent, ``receives`` where data come; ``givers``: by slot, the
    rank whose data come there.
    """

    def __init__(
        self, layout: Layout, sends: Bytes, receives: Bytes, rank: int, givers: Sequence[int]
    ) -> None:
        self._layout, self._rank, self._givers = layout, rank, givers
        self._sends, self._receives = sends, receives
        self._content = Content()

    def fill(self, turn: int) -> None:
        """Local. New data to send, and in the places where data come the opposite of them."""
        for number in range(self._layout.slots):
            part = self._layout.slot(number)
            self._sends[part] = self._content.of(self._rank, turn, part)
        for number, giver in enumerate(self._givers):
            part = self._layout.slot(number)
            np.invert(self._content.of(giver, turn, part), out=self._receives[part])

    def wrong(self, turn: int) -> int:
        """Local. How many messages are not as they should be."""
        found = 0
        for number, giver in enumerate(self._givers):
            part = self._layout.slot(number)
            differs = self._receives[part] != self._content.of(giver, turn, part)
            found += int(differs.reshape(-1, self._layout.size).any(axis=1).sum())
        return found


def givers_of(route: Route, *, getting: bool) -> Sequence[int]:
    """Local. Whose data come to a rank, by slot."""
    return route.outgoing if getting else route.incoming


# The thread protocol of paper 002.
#
# Every thread raises a counter when it is there and waits for a broadcast of the main thread. That
# one starts its clock, opens the epoch, sends the broadcast, waits until all threads have
# transferred, closes the epoch, stops its clock, and sends the second broadcast, after which the
# threads go back to the beginning. Threads never synchronize windows, and neither their making nor
# their end is timed.

#: The operations of one thread in one epoch.
Work = Callable[[], object]


class Gang:
    """So many threads, of which each does its own work in every round.

    Without threads the caller does all works itself, one after the other.
    """

    def __init__(self, threads: int) -> None:
        self._works: Sequence[Work] = ()
        self._closing = False
        self._error: BaseException | None = None
        self._counter, self._arrived = threading.Lock(), 0
        self._complete = _locked()
        self._first = [_locked() for _ in range(threads)]
        self._second = [_locked() for _ in range(threads)]
        # daemons: where the job ends by an error, nobody waits for them
        self._threads = [
            threading.Thread(target=self._live, args=(n,), name=f"transfers {n}", daemon=True)
            for n in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def ready(self, works: Sequence[Work]) -> None:
        """Local. Wait until every thread is there, and give each its work of the next round."""
        if self._threads:
            if len(works) != len(self._threads):
                raise ValueError(f"{len(works)} works for {len(self._threads)} threads")
            self._complete.acquire()
        self._works = works

    def begin(self) -> None:
        """Local. The first broadcast: the epoch is open."""
        for gate in self._first:
            gate.release()

    def transferred(self) -> None:
        """Local. Wait until all have transferred; an error of any thread is raised here."""
        if self._threads:
            self._complete.acquire()
        else:
            for work in self._works:
                work()
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """Local. The second broadcast: the epoch is closed."""
        for gate in self._second:
            gate.release()

    def close(self) -> None:
        """Local, between two rounds. The threads end."""
        if self._threads:
            self._complete.acquire()
        self._closing = True
        self.begin()
        for thread in self._threads:
            thread.join()
        self._threads, self._first, self._second = [], [], []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()

    def _count(self) -> None:
        """One more is there; the last one wakes the main thread."""
        with self._counter:
            self._arrived += 1
            if self._arrived < len(self._first):
                return
            self._arrived = 0
        self._complete.release()

    def _live(self, number: int) -> None:
        first, second = self._first[number], self._second[number]
        while True:
            self._count()
            first.acquire()
            if self._closing:
                return
            try:
                self._works[number]()
            except BaseException as error:
                self._error = error
            self._count()
            second.acquire()


def _locked() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


SOURCE = Path(__file__).parents[1] / "data" / "rma_loop.c"
FLAGS = ("-O2", "-shared", "-fPIC")


class Compiled:
    """The library of a file. :class:`ForeignError` where it cannot be loaded or is of another MPI.

    Local, as its methods are.
    """

    def __init__(self, path: Path) -> None:
        try:
            library = ctypes.CDLL(str(path))
            length = int(library.rma_library_length())
            text = ctypes.create_string_buffer(length)
            library.rma_library(text)
        except (OSError, AttributeError) as error:
            raise ForeignError(f"the loop in C cannot be loaded: {error}") from error
        theirs, ours = text.value.decode(errors="replace"), MPI.Get_library_version()
        if theirs.rstrip("\0\n ") != ours.rstrip("\0\n "):
            raise ForeignError(
                f"the loop in C calls another MPI: {_first(theirs)}, this is {_first(ours)}"
            )
        self._call = library.rma_loop
        self._call.restype = ctypes.c_int
        self._call.argtypes = [
            ctypes.c_uint64,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_int,
            ctypes.c_int,
        ]

    def loop(
        self,
        win: MPI.Win,
        memory: Bytes,
        places: NDArray[np.int64],
        ranks: NDArray[np.int32],
        size: int,
        *,
        getting: bool,
        flush: bool,
    ) -> Work:
        """Local. One call for all messages; Python's lock is left for as long as it takes."""
        call = self._call
        arguments = (
            ctypes.c_uint64(MPI._handleof(win)),
            ctypes.c_int(getting),
            ctypes.c_int(flush),
            ctypes.c_void_p(memory.ctypes.data),
            ctypes.c_void_p(places.ctypes.data),
            ctypes.c_void_p(ranks.ctypes.data),
            ctypes.c_int(size),
            ctypes.c_int(len(places)),
        )

        def transfer(kept: object = (memory, places, ranks)) -> None:
            code = call(*arguments)
            if code != MPI.SUCCESS:
                raise MPI.Exception(code)

        return transfer


def build(path: Path) -> None:
    """Local. Write the library; :class:`ForeignError` tells what every compiler lacked."""
    failures = []
    for compiler in _compilers():
        try:
            done = finished([str(compiler), *FLAGS, str(SOURCE), "-o", str(path)])
            if done.returncode == 0:
                Compiled(path)
                return
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            failures.append(f"{compiler.name}: {lines[0] if lines else 'no reason given'}")
        except ForeignError as error:
            failures.append(str(error))
    raise ForeignError("; ".join(failures) or "no mpicc on PATH, nor beside this Python")


def _compilers() -> Iterator[Path]:
    """That beside this Python first: it belongs to the MPI of a package."""
    own = Path(sys.executable).parent / "mpicc"
    if os.access(own, os.X_OK):
        yield own
    for compiler, _ in compilers():
        yield compiler


def _first(text: str) -> str:
    return " ".join(text.split("\n", 1)[0].split())
