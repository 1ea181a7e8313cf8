"""A profiling layer: what a rank gives to MPI, counted at the calls of mpi4py.

Communicators of the classes below count their own calls, and so do those made from them. A
collective call is counted as a good algorithm has it on P ranks: log2 P messages with what its
arguments hold, of an all-to-all one message to every other rank. Lowercase calls, which pickle
objects, are counted apart.
"""

from __future__ import annotations

import pickle
import tracemalloc
from collections import Counter
from math import ceil, log2

from mpi4py import MPI

counts: Counter[str] = Counter()

#: One value travels along a tree; the sum, or the like, comes back to all.
REDUCED = ("Allreduce", "Iallreduce", "Reduce", "Scan", "Exscan", "Bcast", "Ibcast", "Barrier",
           "Ibarrier")  # fmt: skip
#: What all ranks have given arrives.
GATHERED = ("Allgather", "Allgatherv", "Gather", "Gatherv", "Scatter", "Scatterv")
#: Something for every rank.
DENSE = ("Alltoall", "Alltoallv", "Alltoallw", "Ialltoallv", "Ialltoallw")
#: The same with the neighbors of a topology.
NEAR = ("Neighbor_alltoall", "Neighbor_alltoallv", "Neighbor_alltoallw", "Neighbor_allgather",
        "Neighbor_allgatherv", "Ineighbor_alltoallv", "Ineighbor_alltoallw")  # fmt: skip
PICKLED_TREES = ("bcast", "allreduce", "reduce", "scan", "exscan", "barrier")
PICKLED_GATHERS = ("allgather", "gather", "scatter", "alltoall")
SENDS = ("Send", "Isend", "Ssend", "Issend", "Rsend", "Irsend", "Bsend", "Sendrecv")
PICKLED_SENDS = ("send", "isend", "ssend", "issend")
PERSISTENT = ("Send_init", "Ssend_init", "Psend_init")
PERSISTENT_COLLECTIVES = tuple(f"{name}_init" for name in (
    *(n for n in (*REDUCED, *GATHERED, *DENSE) if not n.startswith("I")),
    *(n for n in NEAR if not n.startswith("I"))))  # fmt: skip
MADE = ("Split", "Split_type", "Create_group", "Create", "Create_cart", "Create_graph",
        "Create_dist_graph", "Create_dist_graph_adjacent", "Sub", "Dup_with_info",
        "Clone")  # fmt: skip


def steps(size: int) -> int:
    """Messages of a rank in a tree, or in recursive doubling."""
    return ceil(log2(size)) if size > 1 else 0


def nbytes(spec: object) -> int:
    """Bytes of a buffer specification: those of the counts that it has, else of its memory."""
    if spec is None or spec is MPI.IN_PLACE:
        return 0
    if isinstance(spec, list | tuple):
        if not spec or spec[0] is None or spec[0] is MPI.BOTTOM or spec[0] is MPI.IN_PLACE:
            return 0
        kind = spec[-1] if isinstance(spec[-1], MPI.Datatype) else None
        if len(spec) > 1 and isinstance(spec[1], int):
            return spec[1] * (kind.Get_size() if kind else 1)
        if isinstance(spec[-1], list | tuple) and spec[-1] and isinstance(
                spec[-1][0], MPI.Datatype):  # fmt: skip
            each = spec[1][0] if isinstance(spec[1], tuple) else spec[1]
            return sum(n * t.Get_size() for n, t in zip(each, spec[-1], strict=True))
        if len(spec) > 1 and not isinstance(spec[1], MPI.Datatype | str):
            each = spec[1][0] if isinstance(spec[1], tuple) else spec[1]
            size = kind.Get_size() if kind else memoryview(spec[0]).itemsize
            return int(sum(each)) * size
        return nbytes(spec[0])
    return memoryview(spec).nbytes


def words(spec: object) -> int:
    """Entries of the counts of an argument, which MPI wants for every rank."""
    if not isinstance(spec, list | tuple) or len(spec) < 2:
        return 0
    each = spec[1][0] if isinstance(spec[1], tuple) and spec[1] else spec[1]
    return len(each) if hasattr(each, "__len__") and not isinstance(each, str) else 0


def _tree(comm, name, *specs):
    counts["messages"] += steps(comm.size)
    counts["bytes"] += steps(comm.size) * max((nbytes(spec) for spec in specs[:2]), default=0)


def _gathered(comm, name, *specs):
    counts["messages"] += steps(comm.size)
    counts["bytes"] += sum(nbytes(spec) for spec in specs[:2])


def _dense(comm, name, *specs):
    counts["messages"] += comm.size - 1
    counts["bytes"] += sum(nbytes(spec) for spec in specs[:2])


def _near(comm, name, *specs):
    if isinstance(comm, MPI.Distgraphcomm):
        counts["messages"] += comm.Get_dist_neighbors_count()[1]
    else:
        counts["messages"] += 2 * comm.Get_dim()
    counts["bytes"] += sum(nbytes(spec) for spec in specs[:2])


def _pickled_tree(comm, name, value=None, *rest):
    counts["objects"] += 1
    counts["messages"] += steps(comm.size)
    size = len(pickle.dumps(value)) if name != "barrier" else 0
    counts["bytes"] += steps(comm.size) * size


def _pickled_gather(comm, name, value=None, *rest):
    counts["objects"] += 1
    counts["of P objects"] += 1
    share = 1 if name in ("alltoall", "scatter") else comm.size
    counts["messages"] += comm.size - 1 if name == "alltoall" else steps(comm.size)
    counts["bytes"] += share * len(pickle.dumps(value))


def _send(comm, name, spec, *rest):
    counts["messages"] += 1
    counts["bytes"] += nbytes(spec)


def _pickled_send(comm, name, value, *rest):
    counts["messages"] += 1
    counts["bytes"] += len(pickle.dumps(value))


class Persistent(MPI.Prequest):
    """A persistent request whose starts are counted."""

    messages = 1
    volume = 0

    def Start(self):
        self.count()
        super().Start()

    def count(self):
        counts["messages"] += self.messages
        counts["bytes"] += self.volume

    @classmethod
    def Startall(cls, requests):
        for request in requests:
            if isinstance(request, Persistent):
                request.count()
        MPI_PREQUEST.Startall(requests)


MPI_PREQUEST = MPI.Prequest


def _wrapped(base, name, count):
    inner = getattr(base, name)

    def call(self, *args, **kwargs):
        count(self, name, *args, *kwargs.values())
        return inner(self, *args, **kwargs)

    return call


def _persistent(base, name, count):
    inner = getattr(base, name)

    def call(self, *args, **kwargs):
        request = inner(self, *args, **kwargs)
        if type(request) is not MPI_PREQUEST:
            return request
        before = Counter(counts)
        count(self, name, *args, *kwargs.values())
        found = Persistent(request)
        found.messages = counts["messages"] - before["messages"]
        found.volume = counts["bytes"] - before["bytes"]
        counts["messages"], counts["bytes"] = before["messages"], before["bytes"]
        counts["words"] += sum(words(spec) for spec in args[:2])
        return found

    return call


def _made(base, name):
    inner = getattr(base, name)

    def call(self, *args, **kwargs):
        counts["messages"] += steps(self.size)
        counts["communicators"] += 1
        return counted(inner(self, *args, **kwargs))

    return call


def _counting(base):
    """The class of communicators that count."""
    methods = {}
    for names, count in ((REDUCED, _tree), (GATHERED, _gathered), (DENSE, _dense), (NEAR, _near),
                         (PICKLED_TREES, _pickled_tree), (PICKLED_GATHERS, _pickled_gather),
                         (SENDS, _send), (PICKLED_SENDS, _pickled_send)):  # fmt: skip
        for name in names:
            if hasattr(base, name):
                methods[name] = _wrapped(base, name, count)
    for name in (*PERSISTENT, *PERSISTENT_COLLECTIVES):
        if hasattr(base, name):
            kind = name.removesuffix("_init")
            rule = _send if name in PERSISTENT else (
                _tree if kind in REDUCED else _gathered if kind in GATHERED
                else _dense if kind in DENSE else _near)  # fmt: skip
            methods[name] = _persistent(base, name, rule)
    for name in (*MADE, "Dup"):
        if hasattr(base, name):
            methods[name] = _made(base, name)
    return type(f"Counting{base.__name__}", (base,), methods)


CLASSES = {base: _counting(base) for base in (
    MPI.Intracomm, MPI.Cartcomm, MPI.Graphcomm, MPI.Distgraphcomm)}  # fmt: skip


def counted(comm):
    """The same communicator, of a class that counts."""
    if comm == MPI.COMM_NULL or type(comm) in CLASSES.values():
        return comm
    return CLASSES[type(comm)](comm)


class CountingWin(MPI.Win):
    """A window that counts what is Put, and its collective calls."""


def _on_window(name, messages, spec=True):
    inner = getattr(MPI.Win, name)

    def call(self, *args, **kwargs):
        counts["messages"] += messages
        if spec and args:
            counts["bytes"] += nbytes(args[0])
        return inner(self, *args, **kwargs)

    setattr(CountingWin, name, call)


def _of_all(name):
    inner = getattr(MPI.Win, name)

    def call(self, *args, **kwargs):
        counts["messages"] += steps(self.group.size)
        return inner(self, *args, **kwargs)

    setattr(CountingWin, name, call)


def _making(name):
    inner = getattr(MPI.Win, name)

    def call(*args, **kwargs):
        comm = next(a for a in (*args, *kwargs.values()) if isinstance(a, MPI.Comm))
        counts["messages"] += steps(comm.size)
        counts["windows"] += 1
        return CountingWin(inner(*args, **kwargs))

    setattr(CountingWin, name, staticmethod(call))


def start() -> None:
    """Local. From now on, before the package is imported, windows and starts are counted."""
    for name in ("Put", "Rput", "Get", "Rget", "Accumulate", "Raccumulate", "Fetch_and_op"):
        _on_window(name, 1)
    for name in ("Fence", "Free"):
        _of_all(name)
    for name in ("Create", "Allocate", "Allocate_shared", "Create_dynamic"):
        _making(name)
    MPI.Win = CountingWin
    MPI.Prequest = Persistent
    tracemalloc.start()


class Budget:
    """What a block of code has used on this rank: ``with Budget() as used: ...; used.found``."""

    found: dict[str, float]

    def __enter__(self):
        counts.clear()
        tracemalloc.reset_peak()
        self._before = tracemalloc.get_traced_memory()[0]
        return self

    def __exit__(self, *_):
        peak = tracemalloc.get_traced_memory()[1] - self._before
        self.found = {name: float(counts[name]) for name in (
            "messages", "bytes", "objects", "of P objects", "words")}  # fmt: skip
        self.found["memory"] = float(max(peak, 0))
