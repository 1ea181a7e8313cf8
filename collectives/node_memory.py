"""Memory that the ranks of a node share without MPI: a file without a name, mapped by all of them.

MPI shares memory through files in ``/dev/shm``, which containers make small and clusters half of
the memory. A file of the kernel's own (``memfd_create``) has no such limit. The first rank of a
node makes one, as long as what all want together, and the others get its descriptor: from
``/proc``, or in a message of a Unix socket where that is not allowed, in a container of their own
say. Where neither works, or there are no such files, one in ``/dev/shm`` is opened by its name,
which is taken away at once. Each rank claims the pages of its own part, so that too little memory
is an error here, and not a bus error in the middle of a round. Nothing is left behind: the
descriptors are closed before this returns, and the memory lives as long as something shows it,
however long ago a communicator was freed or MPI has ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

#: Bytes that are claimed at a time: a call that a signal interrupts begins again.
STEP = 1 << 23

#: Bytes of a large page, and the advice that makes one (Linux 6.1), whatever the settings are.
LARGE, _COLLAPSE = 1 << 21, 25

#: Bytes that a node has, or its programs end as they do where any array is too much: nobody asks.
UNASKED = 1 << 22

#: Ways to a file that another process has made.
PROC, SOCKET, NAMED, WAYS = range(4)

#: Where files with names lie: MPIs share memory there.
FOLDER = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()

#: What came of it, in order of what stops all: the worst of a node is everybody's.
FINE, CLOSED, UNABLE, SHORT = range(4)

#: Flags of ``memfd_create``: no execution (Linux 6.3, and wanted by some), or what is older.
_CLOEXEC, _SEALABLE, _NOEXEC = 1, 2, 8

#: What comes is closed in a program that this one becomes; macOS has no such flag.
_CLOSED_BY_EXEC: int = getattr(socket, "MSG_CMSG_CLOEXEC", 0)

#: The file neither shrinks nor grows any more, and that is final.
_ADD_SEALS, _SEALS = 1033, 1 | 2 | 4


@dataclass
class Outcome:
    """The same on all ranks of a node but for the ``memory``: the segment of each rank in order.

    ``state`` is :data:`FINE`; :data:`CLOSED` where a rank does not get the file in this way,
    :data:`UNABLE` where there is no such memory here, and :data:`SHORT` where there is too little
    of it: ``free`` bytes.
    """

    state: int
    free: int
    memory: list[memoryview]


_libc: Any = ctypes.CDLL(None, use_errno=True)
_WORDS = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
_NO_RIGHTS = 0
_HERE = mmap.MAP_SHARED | 0x10  # MAP_FIXED
_NOWHERE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_libc.mmap.restype, _libc.mmap.argtypes = ctypes.c_void_p, _WORDS
_libc.munmap.argtypes = _WORDS[:2]
_libc.madvise.argtypes = _WORDS[:3]


def _map(address: int | None, nbytes: int, rights: int, flags: int, file: int) -> int:
    """Local. Where the mapping begins."""
    found = _libc.mmap(address, nbytes, rights, flags, file, 0)
    if found is None or found == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(found)


def _unmap(address: int, nbytes: int) -> None:
    if nbytes:
        _libc.munmap(address, nbytes)


class Mapping:
    """A file, or for None memory of its own, mapped into this process, as long as this lives: an
    array of it holds it. It begins where a large page may begin, which ``mmap`` of Python's library
    cannot promise, keeps no descriptor, which that one does, and outlives Python."""

    def __init__(self, file: int | None, nbytes: int) -> None:
        self._size = 0
        room = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self._start = _map(None, room + LARGE, _NO_RIGHTS, _NOWHERE, -1)
        first = -(-self._start // LARGE) * LARGE
        try:
            flags, number = (_HERE | mmap.MAP_ANONYMOUS, -1) if file is None else (_HERE, file)
            _map(first, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, number)
        except OSError:
            _unmap(self._start, room + LARGE)  # a part of it may be free, and somebody else's soon
            raise
        _unmap(self._start, first - self._start)
        _unmap(first + room, self._start + LARGE - first)
        self._start, self._size = first, room
        self.__array_interface__ = {
            "version": 3, "data": (first, False), "shape": (nbytes,), "typestr": "|u1",
        }  # fmt: skip

    def claim(self, file: int, start: int, size: int) -> None:
        """Local. Take the pages of a part, large ones where they fit in; OSError where there are
        none left."""
        large = True
        for place in range(start, start + size, STEP):
            step = min(STEP, start + size - place)
            for page in range(place, place + step - LARGE + 1, LARGE) if large else ():
                _take(file, page, mmap.PAGESIZE)  # of nothing none can be made
                large = _libc.madvise(self._start + page, LARGE, _COLLAPSE) == 0
                if not large:
                    break
            _take(file, place, step)

    def __del__(self, unmap: Any = _libc.munmap, ending: Any = sys.is_finalizing) -> None:
        # where Python ends MPI may not have: data may still come, and the system unmaps
        if self._size and not ending():
            unmap(self._start, self._size)


def shared(comm: MPI.Intracomm, sizes: Sequence[int], way: int) -> Outcome:
    """Collective over a node. Memory of these bytes by rank, this rank's own claimed."""
    page = LARGE if max(sizes) >= LARGE else mmap.PAGESIZE  # of none of them two ranks have parts
    starts = [0, *accumulate(-(-size // page) * page for size in sizes)]
    start, size, total = starts[comm.rank], sizes[comm.rank], sum(sizes)
    state, memory = FINE, None
    with contextlib.ExitStack() as closing:
        file, word, free = -1, None, sys.maxsize
        if comm.rank == 0 and total > UNASKED:
            free = available() if way != NAMED else min(available(), _room())
        if comm.rank == 0 and total <= free:
            with contextlib.suppress(OSError, OverflowError, AttributeError):
                make = _named if way == NAMED else _made
                file, path = make(starts[-1], closing)
                status = os.fstat(file)
                word = path, status.st_dev, status.st_ino
        if way == SOCKET:
            inbox = _handed(comm, file, closing)
        word, free = comm.bcast((word, free))
        if total > free:
            state = SHORT
        elif word is None:
            state = UNABLE
        elif comm.rank:
            file = _of_socket(inbox, word[1:]) if way == SOCKET else _of_path(*word)
            if file < 0:
                state = CLOSED
            else:
                closing.callback(os.close, file)
        if state == FINE:
            state, memory = _mapped(file, starts[-1], start, size)
        state = _worst(comm, state)  # by now all have opened it
    if state != FINE or memory is None:
        return Outcome(state, free, [])
    whole = np.asarray(memory).data
    return Outcome(state, free, [whole[start : start + size]
                                 for start, size in zip(starts, sizes, strict=False)])


def _worst(comm: MPI.Intracomm, state: int) -> int:
    """Collective. The largest of all ranks."""
    states = np.array([state, 0], np.int64)
    comm.Allreduce(states[:1], states[1:], MPI.MAX)
    return int(states[1])


def _nameless() -> int:
    """Local. A file of the kernel's own; OSError where the system has none."""
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, "no files without a name")
    try:
        return os.memfd_create("onesided", _CLOEXEC | _NOEXEC)
    except OSError:
        return os.memfd_create("onesided", _CLOEXEC | _SEALABLE)


def _take(file: int, place: int, size: int) -> None:
    """Local. Take the pages of a part of a file; OSError where there are none left."""
    if sys.platform == "linux":
        os.posix_fallocate(file, place, size)
    else:
        os.pwrite(file, bytes(size), place)


def _made(nbytes: int, closing: contextlib.ExitStack) -> tuple[int, str]:
    """Local. A file of this length, which keeps it, and where other processes find it."""
    file = _nameless()
    closing.callback(os.close, file)
    os.ftruncate(file, nbytes)
    with contextlib.suppress(OSError):
        fcntl.fcntl(file, _ADD_SEALS, _SEALS)
    return file, f"/proc/{os.getpid()}/fd/{file}"


def _named(nbytes: int, closing: contextlib.ExitStack) -> tuple[int, str]:
    """Local. The same as a file with a name, until ``closing`` ends."""
    file, path = tempfile.mkstemp(prefix="onesided-", dir=FOLDER)
    closing.callback(os.unlink, path)
    closing.callback(os.close, file)
    os.ftruncate(file, nbytes)
    return file, path


def _mapped(file: int, nbytes: int, start: int, size: int) -> tuple[int, Mapping | None]:
    """Local. The whole file, with the pages of a part of it claimed."""
    try:
        memory = Mapping(file, nbytes)
    except (OSError, OverflowError, ctypes.ArgumentError):  # addresses are limited, say
        return UNABLE, None
    try:
        memory.claim(file, start, size)
    except OSError as error:  # without a number: of a signal handler, say, and of this rank alone
        return SHORT if error.errno in (None, errno.ENOSPC, errno.ENOMEM) else UNABLE, None
    return FINE, memory


# -- descriptors ----------------------------------------------------------------------------------


def _of_path(path: str, device: int, inode: int) -> int:
    """Local. A descriptor of the file; negative where this process may not have it, or another one
    is there, as in a container of its own."""
    try:
        status = os.stat(path)
        same = (status.st_dev, status.st_ino) == (device, inode)
        return os.open(path, os.O_RDWR | os.O_CLOEXEC) if same else -1
    except OSError:
        return -1


def _handed(comm: MPI.Intracomm, file: int, closing: contextlib.ExitStack) -> Any:
    """Collective. Rank 0 sends the descriptor, if there is one, to a socket of every other rank,
    which is returned; None where there are no sockets. A message is there as soon as it is sent,
    and nobody waits for one."""
    inbox, name = None, b""
    with contextlib.suppress(OSError):
        inbox = closing.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        inbox.setblocking(False)
        inbox.bind("")  # a name that the system chooses
        name = inbox.getsockname()
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, np.int32(file).tobytes())]
    for peer in filter(None, (comm.gather(name) or [])[1:]):
        if inbox is not None and file >= 0:
            with contextlib.suppress(OSError):
                inbox.sendmsg([b"onesided"], rights, 0, peer)
    return inbox


def _of_socket(inbox: Any, known: Sequence[int]) -> int:
    """Local. The descriptor that has come, of the file with this device and number; negative where
    none has. Anybody may send to a socket: what is something else is closed."""
    found = -1
    with contextlib.suppress(OSError):
        while inbox is not None:
            for file in socket.recv_fds(inbox, 64, 16, _CLOSED_BY_EXEC)[1]:
                status = os.fstat(file)
                if found < 0 and (status.st_dev, status.st_ino) == tuple(known):
                    found = file
                else:
                    os.close(file)
    return found


# -- how much there is ----------------------------------------------------------------------------


def _room() -> int:
    """Local. Bytes that are free where files with names lie."""
    status = os.statvfs(FOLDER)
    return status.f_bavail * status.f_frsize


def available() -> int:
    """Local. Bytes that this node, and the groups that limit this process, have left; as many as
    there can be where that is not known."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        words = _table("/proc/meminfo")
        free = 1024 * (words["MemAvailable:"] + words.get("SwapFree:", 0))
        groups = []
        with contextlib.suppress(OSError, ValueError):  # a system that has none
            groups = list(_left_to_groups(free))
        return max(0, min([free, *groups]))
    return sys.maxsize


def _left_to_groups(most: int) -> Iterator[int]:
    """Local. What each control group has left that this process is in, and that allows it less
    than ``most`` bytes."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, place = line.split(":", 2)
        if not controllers:  # of the second version
            top, limit_of, used_of = Path("/sys/fs/cgroup"), "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            top = Path("/sys/fs/cgroup/memory")
            limit_of, used_of = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        group = top / place.lstrip("/")
        for folder in (group, *group.parents):
            with contextlib.suppress(OSError, ValueError):
                limit = int((folder / limit_of).read_text())  # "max": there is none
                left = limit - int((folder / used_of).read_text())
                if left < most:  # what is kept of files can be dropped
                    of = _table(folder / "memory.stat")
                    left += of.get("inactive_file", 0) + of.get("active_file", 0)
                yield left
            if folder == top:
                break


def _table(path: str | Path) -> dict[str, int]:
    """Local. The numbers of a file of the system, by the words before them."""
    rows = (line.split() for line in Path(path).read_text().splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1}
