"""Run random legal programs in one job: legal.py RESULTS METHODS SEEDS [--file F] [--timeout S].

    mpiexec -n 3 python -m mpi4py tests/programs/legal.py out.jsonl exchange:rma-notify 0:50

SEEDS is ``start:stop``; with ``--file`` the programs are read from a file of JSON instead. METHODS
says which requests are the library's: ``exchange:NAME``, ``broadcast:NAME``, ``partitioned:NAME``,
``reduction:NAME`` (barriers, too), joined by ``+``; the others, all of them with the word
``reference``, are mpi4py's own. ``mixed`` as a name draws one of the any-order methods, or the
default, for every request; one that the program calls strictly ordered gets such a method.
``nodes:N`` emulates nodes of N ranks. Rank 0 appends a line when a program begins and one when it
ends. A program that takes too long ends the job with the stacks of all ranks. Wrong bytes are
collected and the program goes on.

An element tells its program, request, round, source, target and index. Send buffers are scribbled
over as soon as Wait returns, plain receive buffers before every start, and what has been received
is looked at again before the next start, because until then it is the program's. Where the
library can withdraw what it has started, the last round of a request may be given up: broken on
one rank for sure, by an exception after Start or between Open and Ready, and on others by these
or by an interrupted Wait.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
from mpi4py import MPI

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from cases import FAILED_MARK, Deadline, say
from legal_programs import REDUCTIONS, Op, Program, Request, generate

from onesided import collectives as library

EMPTY, SCRIBBLE, GUARD = -1, -2, -3
BASE = 1 << 58


def block(seed: int, number: int, turn: int, source: int, target: int, count: int) -> Any:
    """The elements of one block, which tell where they come from."""
    head = ((((seed % 8192) * 32 + number) * 32 + turn) * 16 + source) * 16 + target
    return BASE + (head << 20) + np.arange(count, dtype=np.int64)


def classify(got: int, want: int) -> str:
    """What kind of wrong the element ``got`` is in the place of ``want``."""
    if got in (EMPTY, SCRIBBLE, GUARD):
        return {EMPTY: "missing", SCRIBBLE: "read too late", GUARD: "missing"}[got]
    if got >> 33 != want >> 33:
        return "foreign"
    mine, theirs = got >> 28 & 31, want >> 28 & 31
    if mine != theirs:
        return "old" if mine < theirs else "newer"
    return "misplaced"


# -- the requests of a program, by mpi4py and by the library ------------------------------------


class Exchange:
    """What a rank knows of a request: its buffers, and what must be in them after a round."""

    def __init__(self, run: Run, number: int) -> None:
        self.run, self.number = run, number
        self.request: Request = run.program.requests[number]
        self.comm = run.comms[self.request.comm]
        self.members = run.program.comms[self.request.comm].members
        self.rank, self.turn = run.rank, -1
        self.method = run.method(self.request, number)
        self.info = run.info(self.request)
        self.sends: list[tuple[Any, int, int]] = []  # part of the send buffer, peer, elements
        self.receives: list[tuple[Any, int, int]] = []  # place in the receive array, peer, elements
        self.memory: Any = None
        self.held: Any = None  # what the last Wait returned
        self.handle: Any = None

    # what differs from kind to kind

    def receive_shape(self) -> Any:
        raise NotImplementedError

    def bind(self, recv: Any) -> Any:
        raise NotImplementedError

    # what is the same

    def alloc(self) -> None:
        if self.method is None:
            self.memory = np.empty(self.receive_shape(), np.int64)
            self.comm.Barrier()
        else:
            self.memory = library.empty(self.comm, self.receive_shape(), np.int64)

    def dealloc(self) -> None:
        memory, self.memory, self.held, self.recv = self.memory, None, None, None
        if self.method is None:
            self.comm.Barrier()
        else:
            library.free(memory)

    def init(self) -> None:
        self.recv = self.memory
        if self.recv is None and (self.request.memory == "plain" or self.method is None):
            self.recv = np.empty(self.receive_shape(), np.int64)
        if self.recv is not None:
            self.recv[...] = GUARD
        self.handle = self.bind(self.recv)

    def value(self, turn: int, source: int, target: int, count: int) -> Any:
        return block(self.run.program.seed, self.number, turn, source, target, count)

    def drawn(self, what: str, share: float) -> bool:
        """A decision of this rank alone."""
        words = f"{what} {self.run.program.seed} {self.number} {self.turn} {self.rank}"
        return self.method is not None and random.Random(words).random() < share

    released = False

    def prepare(self) -> None:
        """Before a start: look at the last round for the last time, fill the send buffer."""
        self.check("changed after Wait")
        self.held = None
        self.turn += 1
        for part, peer, count in self.sends:
            part[...] = self.value(self.turn, self.rank, peer, count).reshape(part.shape)
        if self.recv is not None and self.receives and not self.released:
            for place, _, _ in self.receives:
                self.recv[place] = EMPTY

    def completed(self, got: Any) -> None:
        self.held = self.recv if got is None else got
        self.check("wrong")
        for part, _, _ in self.sends:
            part[...] = SCRIBBLE
        self.released = self.fills and self.drawn("release", 0.3)
        if self.released:  # peers may write the next round
            self.held = None
            self.handle.Release()

    fills = False  # rounds may be opened and filled

    def abandon(self) -> None:
        """Of all ranks one breaks the round for sure; others do, wait in vain, or are not there."""
        method = getattr(self.handle, "method", "mpi")
        if method.startswith("mpi") or method.endswith("pscw"):
            return  # what MPI has started cannot be withdrawn
        self.prepare()
        rng = random.Random(f"break {self.run.program.seed} {self.number}")
        sure = rng.choice(self.members)
        how = {rank: rng.choice(BROKEN if rank == sure else (*BROKEN, "wait", "start", "nothing"))
               for rank in self.members}[self.rank]
        if how == "open" and self.fills and self.handle.Open():
            chunks = list(range(len(self.handle.outlets)))
            for chunk in chunks[: rng.randrange(len(chunks))]:  # the last one never
                self.handle.Ready(chunk)
        elif how in BROKEN:
            self.unlucky("_after_start")
            if self.handle.state != "broken":
                self.run.wrong.append(f"request {self.number} is {self.handle.state}, not broken")
        elif how != "nothing":
            self.handle.Start()
        if how == "wait" and self.alone():  # else a round that it drives may be what is interrupted
            interrupted(self.handle.Wait, rng.choice((0.001, 0.01)))

    def alone(self) -> bool:
        """Whether no other round is under way on this rank."""
        handles = [getattr(item, "handle", None) for item in self.run.items.values()]
        return not any(getattr(handle, "active", False) for handle in handles
                       if handle is not None and handle is not self.handle)

    def unlucky(self, hook: str) -> None:
        """Start, with an exception in one of its hooks."""
        handle, earlier = self.handle, self.handle._hooked

        def raises() -> None:
            raise Unlucky

        handle._hooked = 1
        setattr(handle, hook, raises)
        try:
            handle.Start()
        except Unlucky:
            pass
        else:
            self.run.wrong.append(f"request {self.number}: {hook} was not called")
        delattr(handle, hook)
        handle._hooked = earlier

    def check(self, how: str) -> None:
        if self.held is None:
            return
        for place, peer, count in self.receives:
            got = np.asarray(self.held[place]).reshape(-1)
            want = self.wanted(peer, count)
            if not np.array_equal(got, want):
                at = int(np.argmax(got != want))
                kind = classify(int(got[at]), int(want[at]))
                self.run.wrong.append(
                    f"{how}, {kind}: request {self.number} ({self.request.kind}, {self.method}), "
                    f"round {self.turn}, from rank {peer}, element {at} of {count}")
        if self.recv is not None and self.gaps and not np.all(self.recv[self.gaps] == GUARD):
            self.run.wrong.append(f"outside: request {self.number}, round {self.turn}")

    def wanted(self, peer: int, count: int) -> Any:
        return self.value(self.turn, peer, self.rank, count)

    gaps: list[int] = []  # noqa: RUF012 - never changed

    def start(self) -> None:
        if self.drawn("hook", 0.1) and not self.handle.method.startswith("mpi"):
            self.unlucky("_before_start")  # nothing has happened
        if self.fills and self.drawn("open", 0.4) and self.handle.Open():
            chunks = list(enumerate(self.handle.outlets))
            random.Random(self.turn).shuffle(chunks)
            for chunk, outlets in chunks:
                if self.drawn(f"interrupted {chunk}", 0.1):  # the caller catches it, and goes on
                    interrupted(lambda: time.sleep(0.01), 0.001)
                for _, part, array in outlets:
                    array[...] = self.send[part]
                self.handle.Ready(chunk)
        else:
            self.handle.Start()

    def free(self) -> None:
        self.check("changed before Free")
        self.handle.Free()
        if self.method is None:
            self.comm.Barrier()


class Counts(Exchange):
    """Blocks by counts, with gaps between them in the caller's receive memory."""

    fills = True

    def peers(self) -> tuple[list[int], list[int]]:
        return list(self.members), list(self.members)

    def table(self) -> None:
        request = self.request
        targets, sources = self.peers()
        self.scounts = [request.count(self.rank, peer) for peer in targets]
        self.rcounts = [request.count(peer, self.rank) for peer in sources]
        gap = 0 if request.memory == "own" else 1
        self.sdispls = [sum(self.scounts[:i]) + i for i in range(len(targets))]
        self.rdispls = [sum(self.rcounts[:i]) + gap * i for i in range(len(sources))]
        self.send = np.full(sum(self.scounts) + len(targets) + 1, SCRIBBLE, np.int64)
        self.sends = [(self.send[d : d + n], peer, n) for peer, n, d in
                      zip(targets, self.scounts, self.sdispls, strict=True)]
        self.receives = [(slice(d, d + n), peer, n) for peer, n, d in
                         zip(sources, self.rcounts, self.rdispls, strict=True)]
        if gap:
            self.gaps = [d + n for d, n in zip(self.rdispls, self.rcounts, strict=True)]

    def receive_shape(self) -> int:
        if not self.receives:
            self.table()
        return sum(self.rcounts) + len(self.rcounts) + 1

    def bind(self, recv: Any) -> Any:
        self.receive_shape()
        send = [self.send, self.scounts, self.sdispls]
        if self.method is None:
            send, into = [self.send, (self.scounts, self.sdispls)], (self.rcounts, self.rdispls)
            return self.plain([*send, MPI.INT64_T], [recv, into, MPI.INT64_T])
        spec = None if recv is None else [recv, self.rcounts, self.rdispls]
        return self.ours(send, spec)

    def plain(self, send: Any, recv: Any) -> Any:
        return self.comm.Alltoallv_init(send, recv)

    def ours(self, send: Any, recv: Any) -> Any:
        return library.Alltoallv_init(self.comm, send, recv, method=self.method, info=self.info)


class Graph(Counts):
    """The same on a graph: only some ranks are neighbors."""

    fills = False

    def peers(self) -> tuple[list[int], list[int]]:
        edge = self.request.edge
        return ([peer for peer in self.members if edge(self.rank, peer)],
                [peer for peer in self.members if edge(peer, self.rank)])

    def bind(self, recv: Any) -> Any:
        targets, sources = self.peers()
        index = self.members.index
        self.graph = self.comm.Create_dist_graph_adjacent(
            [index(peer) for peer in sources], [index(peer) for peer in targets])
        return super().bind(recv)

    def plain(self, send: Any, recv: Any) -> Any:
        return self.graph.Neighbor_alltoallv_init(send, recv)

    def ours(self, send: Any, recv: Any) -> Any:
        return library.Neighbor_alltoallv_init(
            self.graph, send, recv, method=self.method, info=self.info)

    def free(self) -> None:
        super().free()
        self.graph.Free()


class Gather(Counts):
    """From every rank to the root; the rows of a send buffer that nobody reads are empty."""

    name, fills = "Gatherv_init", False

    def bind(self, recv: Any) -> Any:
        self.receive_shape()
        root = self.members.index(self.request.root)
        self.at_root = self.rank == self.request.root
        send = [self.send, self.scounts[root], self.sdispls[root], MPI.INT64_T]
        return self.made(send, self.vector(recv) if self.at_root else None, recv, root)

    def vector(self, recv: Any) -> Any:
        return [recv, self.rcounts, self.rdispls, MPI.INT64_T]

    def made(self, send: Any, into: Any, recv: Any, *root: int) -> Any:
        """mpi4py's request, or the library's; memory of its own where ``recv`` is None."""
        if self.method is None:
            return getattr(self.comm, self.name)(send, into, *root)
        return getattr(library, self.name)(self.comm, send, None if recv is None else into, *root,
                                           method=self.method, info=self.info)


class Scatter(Gather):
    """From the root to every rank. The root receives into memory of the caller's: without any
    it would mean that its block stays where it is."""

    name = "Scatterv_init"

    def bind(self, recv: Any) -> Any:
        self.receive_shape()
        root = self.members.index(self.request.root)
        send = None
        if self.rank == self.request.root:
            send = [self.send, self.scounts, self.sdispls, MPI.INT64_T]
            if recv is None:
                self.recv = recv = np.full(self.receive_shape(), GUARD, np.int64)
        into = None
        if recv is not None:
            into = [recv, self.rcounts[root], self.rdispls[root], MPI.INT64_T]
        return self.made(send, into, recv, root)


class Allgather(Gather):
    """The same block to every rank."""

    name = "Allgatherv_init"

    def table(self) -> None:
        super().table()
        self.scounts = self.scounts[:1]
        self.send = np.full(self.scounts[0] + 2, SCRIBBLE, np.int64)
        self.sends = [(self.send[1:-1], self.members[0], self.scounts[0])]

    def bind(self, recv: Any) -> Any:
        self.receive_shape()
        send = [self.send, self.scounts[0], 1, MPI.INT64_T]
        return self.made(send, self.vector(recv), recv)

    def value(self, turn: int, source: int, target: int, count: int) -> Any:
        return super().value(turn, source, 0, count)


class Boxes(Exchange):
    """Rows of a matrix of pairs become columns: a box for every rank, some of them empty, each in
    up to three chunks."""

    fills = True

    def layout(self) -> None:
        size = len(self.members)
        rows, cols = 2 + self.request.salt % 7, 1 + self.request.size // 8
        me = self.members.index(self.rank)
        edges = [[extent * i // size for i in range(size + 1)] for extent in (rows, cols)]
        self.rows, self.cols = ([slice(a, b) for a, b in itertools.pairwise(e)]
                                for e in edges)
        height, width = (parts[me].stop - parts[me].start for parts in (self.rows, self.cols))
        self.shape = (rows, width, 2)
        self.send = np.full((height, cols, 2), SCRIBBLE, np.int64)
        for i, peer in enumerate(self.members):
            part = self.send[:, self.cols[i]]
            self.sends.append((part, peer, part.size))
            count = (self.rows[i].stop - self.rows[i].start) * width * 2
            self.receives.append((self.rows[i], peer, count))

    def receive_shape(self) -> Any:
        if not self.receives:
            self.layout()
        return self.shape

    def bind(self, recv: Any) -> Any:
        self.receive_shape()
        if self.method is None:  # packed, because empty subarray types are no types of MPI
            counts = [part.size for part, _, _ in self.sends]
            expected = [count for _, _, count in self.receives]
            self.packed = np.empty(sum(counts), np.int64)
            into = [recv.reshape(-1), expected, MPI.INT64_T]
            return self.comm.Alltoallv_init([self.packed, counts, MPI.INT64_T], into)
        sends = [(slice(None), part) for part in self.cols]
        recvs = [(part,) for part in self.rows]
        spec = (self.shape, np.int64) if recv is None else recv
        height, cuts = len(self.send), 1 + (self.request.salt + self.rank) % 3
        stops = sorted({height * (i + 1) // cuts for i in range(cuts)} - {0})
        return library.Alltoallw_init(
            self.comm, [self.send, sends], [spec, recvs], method=self.method, info=self.info,
            chunks=(0, stops) if len(stops) > 1 else None)

    def start(self) -> None:
        if self.method is None:
            self.packed[:] = np.concatenate([part.reshape(-1) for part, _, _ in self.sends])
        super().start()


class Broadcast(Exchange):
    """From the root to all; the array is the caller's again after Wait."""

    def receive_shape(self) -> int:
        return self.request.size

    def bind(self, recv: Any) -> Any:
        root, size = self.request.root, self.request.size
        self.target = 0
        if self.rank == root:
            self.sends = [(recv, 0, size)]
        else:
            self.receives = [(slice(None), root, size)]
        where = self.members.index(root)
        if self.method is None:
            return self.comm.Bcast_init([recv, MPI.INT64_T], where)
        return library.Bcast_init(self.comm, recv, where, method=self.method, info=self.info)

    def value(self, turn: int, source: int, target: int, count: int) -> Any:
        return super().value(turn, source, 0, count)


class Reduction(Exchange):
    """Sums modulo 2^64 of what every rank contributes; ``peer`` is the last rank that counts."""

    name, rooted = "Allreduce_init", False

    def layout(self) -> None:
        """The elements that this rank contributes, the place in them of what it receives, and how
        many ranks count there."""
        self.size, self.part, self.over = self.request.size, slice(0, None), len(self.members)

    def receive_shape(self) -> int:
        self.layout()
        self.length = len(range(self.size)[self.part])
        return self.length + 1

    def bind(self, recv: Any) -> Any:
        length = self.receive_shape() - 1
        self.send = np.full(self.size, SCRIBBLE, np.int64)
        self.sends = [(self.send, 0, self.size)]
        self.receives = [(slice(0, length), self.over, length)] if self.over else []
        self.gaps = [length]
        return self.made([self.send, MPI.INT64_T], [recv, length, MPI.INT64_T])

    def made(self, send: Any, into: Any) -> Any:
        how = {"root": self.members.index(self.request.root)} if self.rooted else {}
        if self.method is None:
            return getattr(self.comm, self.name)(send, into, op=MPI.SUM, **how, **self.known())
        return getattr(library, self.name)(
            self.comm, send, into, op=MPI.SUM, **how, method=self.method, info=self.info)

    def known(self) -> dict[str, Any]:
        """What mpi4py would otherwise find out, holding the interpreter lock while it waits for
        the others: no thread of this process runs."""
        return {}

    def value(self, turn: int, source: int, target: int, count: int) -> Any:
        return super().value(turn, source, 0, count)

    def wanted(self, peer: int, count: int) -> Any:
        values = [self.value(self.turn, rank, 0, self.size) for rank in self.members[:peer]]
        return np.sum(values, axis=0)[self.part]


class RootedSum(Reduction):
    """At one of the ranks."""

    name, rooted = "Reduce_init", True

    def layout(self) -> None:
        super().layout()
        if self.rank != self.request.root:
            self.over = 0


class ScatteredSum(Reduction):
    """Divided among the ranks; some have no part."""

    name = "Reduce_scatter_init"

    def known(self) -> dict[str, Any]:
        return {"recvcounts": self.counts}

    def layout(self) -> None:
        self.counts = counts = [self.request.count(rank, rank) for rank in self.members]
        me = self.members.index(self.rank)
        self.size, self.over = sum(counts), len(self.members)
        self.part = slice(sum(counts[:me]), sum(counts[: me + 1]))


class Scan(Reduction):
    """Over this rank and those before it."""

    name, itself = "Scan_init", 1

    def layout(self) -> None:
        super().layout()
        self.over = self.members.index(self.rank) + self.itself


class Exscan(Scan):
    """Over those before it."""

    name, itself = "Exscan_init", 0


class Meeting(Reduction):
    """A barrier: what it must do is in the proof, and in the other requests of the program."""

    def layout(self) -> None:
        self.size, self.part, self.over = 0, slice(0, 0), 0

    def made(self, send: Any, into: Any) -> Any:
        if self.method is None:
            return self.comm.Barrier_init()
        return library.Barrier_init(self.comm, method=self.method, info=self.info)


class Partitioned(Exchange):
    """One side of a partitioned send; mpi4py's own is a message that starts at the last mark."""

    def receive_shape(self) -> int:
        return 8 * self.request.size if self.rank == self.request.target else 0

    def bind(self, recv: Any) -> Any:
        request = self.request
        tag, index = self.number, self.members.index
        self.sender = self.rank == request.root
        self.missing: set[int] = set()
        if self.sender:
            self.recv = None
            self.buffer = np.full(8 * request.size, SCRIBBLE, np.int64)
            self.sends = [(self.buffer, request.target, 8 * request.size)]
            peer = index(request.target)
            if self.method is None:
                return self.comm.Send_init([self.buffer, MPI.INT64_T], peer, 1000 + tag)
            return library.Psend_init(self.comm, self.buffer, request.parts[0], peer, tag,
                                      method=self.method, aggregate=0 if tag % 2 else 65536)
        self.receives = [(slice(None), request.root, 8 * request.size)]
        peer = index(request.root)
        if self.method is None:
            return self.comm.Recv_init([recv, MPI.INT64_T], peer, 1000 + tag)
        return library.Precv_init(self.comm, recv, request.parts[1], peer, tag,
                                  method=self.method, aggregate=0 if tag % 2 else 65536)

    def prepare(self) -> None:
        super().prepare()
        if self.sender:  # a partition is filled when it is marked
            self.buffer[:] = SCRIBBLE
            self.missing = set(range(self.request.parts[0]))

    def start(self) -> None:
        if not (self.sender and self.method is None):
            self.handle.Start()

    def ready(self, parts: tuple[int, ...]) -> None:
        count = self.buffer.size
        size = count // self.request.parts[0]
        whole = self.value(self.turn, self.rank, self.request.target, count)
        for part in parts:
            self.buffer[part * size : (part + 1) * size] = whole[part * size : (part + 1) * size]
        self.missing -= set(parts)
        if self.method is not None:
            for part in parts:
                self.handle.Pready(part)
        elif not self.missing:
            self.handle.Start()

    def free(self) -> None:
        self.check("changed before Free")
        self.handle.Free()


KINDS = {"counts": Counts, "graph": Graph, "boxes": Boxes, "gather": Gather, "scatter": Scatter,
         "allgather": Allgather, "broadcast": Broadcast, "partitioned": Partitioned,
         "sum": Reduction, "rooted sum": RootedSum, "scattered sum": ScatteredSum, "scan": Scan,
         "exscan": Exscan, "meeting": Meeting}


class Unlucky(Exception):
    """What a hook raises."""


#: How a rank breaks a round, for sure.
BROKEN = ("hook", "open")


def interrupted(call: Any, after: float) -> None:
    """Call, with Ctrl-C after so many seconds if it lasts as long."""
    earlier = signal.signal(signal.SIGUSR2, signal.default_int_handler)
    timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGUSR2))
    try:
        timer.start()
        call()
        timer.join()  # late, on a busy machine
        time.sleep(1.0)
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGUSR2, earlier)


# -- a program on this rank -----------------------------------------------------------------------


class Run:
    """One program on this rank."""

    def __init__(self, program: Program, world: Any, methods: dict[str, str]) -> None:
        self.program, self.world, self.methods, self.rank = program, world, methods, world.rank
        self.wrong: list[str] = []
        self.comms: list[Any] = []
        self.pending: dict[tuple[str, int], Any] = {}
        self.items: dict[int, Exchange] = {}

    def method(self, request: Request, number: int) -> str | None:
        """The method of a request of the program, None for mpi4py's own; the same on all ranks."""
        family = request.kind if request.kind in ("broadcast", "partitioned") else (
            "reduction" if request.kind in REDUCTIONS else "exchange")
        name = self.methods.get(family)
        if name is not None and request.strict:
            return random.Random(f"{self.program.seed} {number}").choice(STRICT)
        if name == "mixed":
            known = (library.partitioned_methods() if family == "partitioned"
                     else library.methods(family))
            names = [n for n, m in known.items() if getattr(m, "any_order", True)]
            name = random.Random(f"{self.program.seed} {number}").choice([*names, None])
        if family == "partitioned" and name == "rma" and request.memory != "window":
            return "auto"  # rma needs memory from empty
        return name

    def info(self, request: Request) -> dict[str, str] | None:
        info = {"slots": str(request.slots)} if request.slots else {}
        if "nodes" in self.methods:
            info["ranks_per_node"] = self.methods["nodes"]
        return info or None

    def execute(self) -> None:
        for comm in self.program.comms:
            inside = self.rank in comm.members
            if comm.parent > 0:
                self.comms.append(self.comms[comm.parent].Dup() if inside else MPI.COMM_NULL)
            else:
                key = comm.members.index(self.rank) if inside else 0
                self.comms.append(self.world.Split(0 if inside else MPI.UNDEFINED, key))
        self.items = {number: KINDS[request.kind](self, number)
                      for number, request in enumerate(self.program.requests)
                      if self.rank in self.program.comms[request.comm].members}
        for op in self.program.ranks[self.rank]:
            getattr(self, op.verb)(op)
        for comm in reversed(self.comms):
            if comm != MPI.COMM_NULL:
                comm.Free()

    # operations of requests

    def misuse(self, item: Exchange) -> None:
        """An active request cannot be started again; the program goes on."""
        if item.drawn("misuse", 0.1) and item.handle.active:
            try:
                item.handle.Start()
            except library.RequestError:
                return
            self.wrong.append(f"request {item.number} was started twice")

    def alloc(self, op: Op) -> None:
        self.items[op.requests[0]].alloc()

    def dealloc(self, op: Op) -> None:
        self.items[op.requests[0]].dealloc()

    def init(self, op: Op) -> None:
        self.items[op.requests[0]].init()

    def free(self, op: Op) -> None:
        self.items[op.requests[0]].free()

    def abandon(self, op: Op) -> None:
        self.items[op.requests[0]].abandon()

    def ready(self, op: Op) -> None:
        self.items[op.requests[0]].ready(op.parts)

    def start(self, op: Op) -> None:
        items = [self.items[number] for number in op.requests]
        for item in items:
            item.prepare()
        if len(items) > 1 and all(item.method is not None for item in items):
            library.Startall([item.handle for item in items])
        else:
            for item in items:
                item.start()

    def wait(self, op: Op) -> None:
        items = [self.items[number] for number in op.requests]
        handles = [item.handle for item in items]
        for item in items:
            self.misuse(item)
        ours = [item.method is not None for item in items]
        if op.how == "test" or (any(ours) and not all(ours) and not MIXES):
            left = list(handles)
            while left:
                left = [handle for handle in left if not handle.Test()]
                time.sleep(0)
            answers = [None if item.method is None else item.handle.recvbuf
                       if hasattr(item.handle, "recvbuf") else None for item in items]
        elif len(items) == 1:
            answers = [handles[0].Wait()]
        elif any(ours):
            answers = library.Waitall(handles)
        else:
            MPI.Request.Waitall(handles)
            answers = [None] * len(items)
        for item, answer in zip(items, answers, strict=True):
            array = isinstance(answer, np.ndarray) and isinstance(item, Counts | Boxes)
            item.completed(answer if array else None)

    # plain MPI

    def barrier(self, op: Op) -> None:
        self.comms[op.comm].Barrier()

    def allreduce(self, op: Op) -> None:
        comm = self.comms[op.comm]
        # not mpi4py's allreduce of objects: its first call on a communicator duplicates that, and
        # holds the interpreter lock while it waits for the others: no thread of this process runs
        total = np.zeros(1, np.int64)
        comm.Allreduce(np.array([op.event]), total)
        if total[0] != op.event * comm.size:
            self.wrong.append(f"allreduce {op.event}")

    def ibarrier(self, op: Op) -> None:
        self.pending["ibarrier", op.event] = self.comms[op.comm].Ibarrier()

    def ibarrier_wait(self, op: Op) -> None:
        self.pending.pop(("ibarrier", op.event)).Wait()

    def take(self, op: Op) -> None:
        memory = library.empty(self.comms[op.comm], op.size) if self.methods else None
        if memory is None:
            self.comms[op.comm].Barrier()
        else:
            memory[:] = op.event
        self.pending["memory", op.event] = memory

    def give(self, op: Op) -> None:
        memory = self.pending.pop(("memory", op.event))
        if memory is None:
            self.comms[op.comm].Barrier()
            return
        if not np.all(memory == op.event):
            self.wrong.append(f"memory {op.event} has changed")
        library.free(memory)

    def message(self, op: Op) -> tuple[Any, int, int]:
        """Data, the partner in the communicator, the tag."""
        peer = self.program.comms[op.comm].members.index(op.peer)
        return np.full(op.size, float(op.event)), peer, 100 + op.event

    def send(self, op: Op) -> None:
        data, peer, tag = self.message(op)
        self.comms[op.comm].Send(data, peer, tag)

    def recv(self, op: Op) -> None:
        want, peer, tag = self.message(op)
        got = np.empty_like(want)
        self.comms[op.comm].Recv(got, peer, tag)
        self.same(op, got, want)

    def sendrecv(self, op: Op) -> None:
        data, peer, tag = self.message(op)
        got = np.empty_like(data)
        self.comms[op.comm].Sendrecv(data, peer, tag, got, peer, tag)
        self.same(op, got, data)

    def posted(self, op: Op) -> None:
        want, peer, tag = self.message(op)
        got = np.empty_like(want)
        self.pending["posted", op.event] = (self.comms[op.comm].Irecv(got, peer, tag), got, want)

    def posted_wait(self, op: Op) -> None:
        request, got, want = self.pending.pop(("posted", op.event))
        request.Wait()
        self.same(op, got, want)

    def same(self, op: Op, got: Any, want: Any) -> None:
        if not np.array_equal(got, want):
            self.wrong.append(f"plain message {op.event}")

    def sleep(self, op: Op) -> None:
        time.sleep(op.size / 1000)


#: The methods of strictly ordered requests.
STRICT = ("rma-fence", "rma-fence", "rma-fence-hier", "mpi")

#: Waitall takes mpi4py's requests and ours at once where there is a Waitany.
MIXES = hasattr(library, "Waitany")


def programs(arguments: argparse.Namespace, ranks: int) -> Iterator[Program]:
    if arguments.file:
        with open(arguments.file) as file:
            yield from (Program.from_json(entry) for entry in json.load(file))
        return
    start, stop = (int(word) for word in arguments.seeds.split(":"))
    for seed in range(start, stop):
        yield generate(seed, ranks)


def parsed(text: str) -> dict[str, str]:
    """The families of requests that are the library's, and their methods."""
    if text == "reference":
        return {}
    if text == "mixed":
        text = "exchange:mixed+broadcast:mixed+reduction:mixed+partitioned:mixed"
    return dict(word.split(":", 1) for word in text.split("+"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results")
    parser.add_argument("methods")
    parser.add_argument("seeds", help="start:stop")
    parser.add_argument("--file")
    parser.add_argument("--timeout", type=float, default=20.0)
    arguments = parser.parse_args()
    methods = parsed(arguments.methods)
    world = MPI.COMM_WORLD.Dup()
    deadline = Deadline(arguments.timeout)

    def note(**entry: Any) -> None:
        with open(arguments.results, "a") as file:
            file.write(json.dumps(entry) + "\n")

    source = programs(arguments, world.size) if world.rank == 0 else None
    while True:
        program = world.bcast(next(source, None) if source else None)
        if program is None:
            break
        if world.rank == 0:
            note(begin=program.seed)
        began = time.perf_counter()
        run = Run(program, world, methods)
        deadline.arm()
        try:
            run.execute()
        except Exception as error:
            text = traceback.format_exc()
            note(seed=program.seed, error=f"{type(error).__name__}: {error}"[:300])
            say(f"{FAILED_MARK}rank {world.rank}, seed {program.seed}, {arguments.methods}\n{text}",
                stream=2)
            world.Barrier()  # until the time is over, with the stacks of the others
            sys.exit(1)
        wrong = world.gather(run.wrong)
        deadline.disarm()
        if world.rank == 0:
            words = [f"rank {rank}: {text}" for rank, some in enumerate(wrong) for text in some]
            note(seed=program.seed, wrong=words, seconds=round(time.perf_counter() - began, 4))
    world.Free()


if __name__ == "__main__":
    main()
