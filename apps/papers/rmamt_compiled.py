"""The same loop in C: a small library for this process, built where a compiler is present.

The source comes as ``data/rma_loop.c``. It is built with the compiler of the MPI that this process
has loaded, and used only if it calls that very library.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.foreign import ForeignError, finished
from onesided.apps.bench.team import Work
from onesided.apps.tools.fftw_mpi import compilers

# Where messages lie, the same places at origin and target, and whether they came.

Bytes = NDArray[np.uint8]
#: One message: its rank, and its place, the same here and there.
Step = tuple[int, int]


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


# The same loop in C.

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
        self._call.argtypes = [ctypes.c_uint64, *[ctypes.c_int] * 2, *[ctypes.c_void_p] * 3,
                               *[ctypes.c_int] * 2]  # fmt: skip

    def loop(
        self,
        win: MPI.Win,
        memory: Bytes,
        size: int,
        steps: Sequence[Step],
        *,
        getting: bool,
        flush: bool,
    ) -> Work:
        """Local. One call for all messages; Python's lock is left for as long as it takes."""
        call = self._call
        ranks = np.array([rank for rank, _ in steps], np.int32)
        places = np.array([place for _, place in steps], np.int64)
        addresses = (each.ctypes.data for each in (memory, places, ranks))
        arguments = (MPI._handleof(win), getting, flush, *addresses, size, len(places))

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
