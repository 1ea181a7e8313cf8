"""Every collective call of the public interface, counted: scale_calls.py [PART]...

Rank 0 prints one line of JSON: by call the most that any rank has used. The size on a rank is
fixed, whatever the number of ranks.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import counting

counting.start()  # before the package is imported

import numpy as np  # noqa: E402
import scipy.io  # noqa: E402
from mpi4py import MPI  # noqa: E402

from onesided import collectives, pencilfft, sparse  # noqa: E402
from onesided.collectives import Grid, HaloExchange  # noqa: E402
from onesided.collectives.transports.node import PAIR  # noqa: E402

LENGTH = 64
INFO = {"effort": "estimate"}
SHIPPED = Path(__file__).resolve().parents[1] / "matrices" / "wiki-Vote.mtx.gz"


class Table:
    """The calls in their order, and what they have used on this rank."""

    def __init__(self, comm):
        self.comm, self.found = comm, {}

    def call(self, name, function, *args, **kwargs):
        self.comm.Barrier()
        with counting.Budget() as used:
            made = function(*args, **kwargs)
        self.found[name] = used.found
        return made


def ring(comm):
    """The two neighbors of a rank, once each."""
    return sorted({(comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size} - {comm.rank})


def rounds(table, name, request):
    def one():
        request.Start()
        request.Wait()

    table.call(f"{name}, first round", one)
    table.call(f"{name}, later round", one)
    table.call(f"{name}, Free", request.Free)


def exchanges(comm, table):
    methods = ("rma-notify", "p2p", "mpi-persistent", "auto")
    counts = np.zeros(comm.size, np.int64)
    counts[ring(comm)] = LENGTH
    for method in methods:
        sent = np.ones(counts.sum())
        name = f"Alltoallv_init {method}, ring"
        rounds(table, name, table.call(
            name, collectives.Alltoallv_init, comm, [sent, counts], [np.zeros_like(sent), counts],
            method=method, info=INFO))  # fmt: skip
    graph = comm.Create_dist_graph_adjacent(ring(comm), ring(comm))
    sent = np.ones(LENGTH * len(ring(comm)))
    for method in methods:
        name = f"Neighbor_alltoallv_init {method}"
        each = [LENGTH] * len(ring(comm))
        rounds(table, name, table.call(
            name, collectives.Neighbor_alltoallv_init, graph, [sent, each],
            [np.zeros_like(sent), each], method=method, info=INFO))  # fmt: skip
    graph.Free()
    sent = np.ones(LENGTH)
    share = np.ones(comm.size)
    name = "Alltoall_init auto, all to all"
    rounds(table, name, table.call(name, collectives.Alltoall_init, comm, share, None, info=INFO))
    into = collectives.empty(comm, LENGTH)
    name = "Gather_init"
    rounds(table, name, table.call(name, collectives.Gather_init, comm, np.ones(1), np.zeros(
        comm.size) if comm.rank == 0 else None, info=INFO))  # fmt: skip
    for name, make in (
        ("Bcast_init", lambda: collectives.Bcast_init(comm, sent, info=INFO)),
        ("Allreduce_init", lambda: collectives.Allreduce_init(comm, sent, into, info=INFO)),
        ("Reduce_init", lambda: collectives.Reduce_init(
            comm, sent, into if comm.rank == 0 else None, info=INFO)),
        ("Scan_init", lambda: collectives.Scan_init(comm, sent, into, info=INFO)),
        ("Reduce_scatter_block_init", lambda: collectives.Reduce_scatter_block_init(
            comm, np.ones(comm.size), np.zeros(1), info=INFO)),
        ("Barrier_init", lambda: collectives.Barrier_init(comm, info=INFO)),
    ):  # fmt: skip
        rounds(table, name, table.call(name, make))
    table.call("empty", collectives.empty, comm, LENGTH)
    table.call("free", collectives.free, into)


def halos(comm, table):
    dims = MPI.Compute_dims(comm.size, 2)
    cart = comm.Create_cart(dims, periods=[True, True])
    field = np.zeros((10, 10))
    halo = table.call("HaloExchange", HaloExchange, cart, field, 1)
    rounds(table, "HaloExchange", halo)
    shape = tuple(8 * extent for extent in dims)
    grid = table.call("Grid", Grid, comm, shape)
    values = table.call("Grid.zeros", grid.zeros)
    table.call("Grid.update, first", grid.update, values)
    table.call("Grid.update, later", grid.update, values)
    del values
    table.call("Grid.Free", grid.Free)
    cart.Free()


def transforms(comm, table):
    dims = MPI.Compute_dims(comm.size, 2)
    shape = (4 * dims[0], 4 * dims[1], 8 * max(dims))
    plan = table.call("PFFT", pencilfft.PFFT, comm, shape, dtype=complex, effort="estimate",
                      grid=tuple(dims), backend="scipy", wisdom=False)  # fmt: skip
    values = pencilfft.newDistArray(plan, False)
    values[:] = 1.0
    table.call("PFFT.forward, first", plan.forward, values)
    table.call("PFFT.forward, later", plan.forward, values)
    table.call("PFFT.destroy", plan.destroy)


def stencil(comm):
    """The rows of this rank of a matrix, and which they are."""
    rows = (comm.rank * 128, (comm.rank + 1) * 128)
    return sparse.stencil7((8 * comm.size, 4, 4), rows), rows


def matrices(comm, table):
    block, rows = stencil(comm)
    a = table.call("from_rows", sparse.from_rows, comm, block, info=INFO, kernel="csr")
    x, y = np.ones(128), np.empty(128)
    table.call("A @ x, first", a.multiply, x, y)
    table.call("A @ x, later", a.multiply, x, y)
    entries = block.tocoo()
    b = table.call("from_triplets", sparse.from_triplets, comm, entries.row + rows[0],
                   entries.col, entries.data, (128 * comm.size,) * 2, info=INFO,
                   kernel="csr")  # fmt: skip
    b.Free()
    folder = comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None)
    path = os.path.join(folder, "a.mtx")
    table.call("write_matrixmarket", sparse.write_matrixmarket, comm, path, block)
    b = table.call("read, Matrix Market", sparse.read, comm, path, info=INFO, kernel="csr")
    b.Free()
    own = os.path.join(folder, "a.h5")
    table.call("write", sparse.write, a, own)
    b = table.call("read, HDF5", sparse.read, comm, own, info=INFO, kernel="csr")
    b.Free()
    table.call("DistMatrix.Free", a.Free)


def solvers(comm, table):
    a = sparse.from_rows(comm, stencil(comm)[0], info=INFO, kernel="csr")
    rhs = np.ones(128)  # no iteration ends early: the residual never is 0
    for name, solver in (("cg", sparse.cg), ("pipelined_cg", sparse.pipelined_cg),
                         ("gmres", sparse.gmres), ("bicgstab", sparse.bicgstab),
                         ("minres", sparse.minres)):  # fmt: skip
        table.call(f"{name}, first", solver, a, rhs, maxiter=4, rtol=1e-30)
        table.call(f"{name}, 4 iterations", solver, a, rhs, maxiter=4, rtol=1e-30)
        table.call(f"{name}, 8 iterations", solver, a, rhs, maxiter=8, rtol=1e-30)
    a.Free()


def nodes(comm, table):
    """On nodes of four ranks, and on four nodes; nothing but messages leaves one."""
    shared = np.ones(comm.size)
    for each in (4, comm.size // 4):
        for method in ("rma-p2p", "rma-node"):
            name = f"Alltoall_init {method}, {each} ranks a node"
            rounds(table, name, table.call(
                name, collectives.Alltoall_init, comm, shared, None, method=method,
                info={"ranks_per_node": str(each)}))  # fmt: skip


def entries(comm, table):
    """The same of products, beside what the matrix wants: (entry, rank) and (entry, node)."""
    given = os.environ.get("SCALE_MATRICES", "")
    for path in map(Path, given.split(os.pathsep) if given else [SHIPPED]):
        whole = scipy.io.mmread(path, spmatrix=False).tocoo() if comm.rank == 0 else None
        for each in sorted({4, comm.size // 4}):
            for method in ("rma-p2p", "rma-node"):
                info = {"ranks_per_node": str(each)}
                a = sparse.read(comm, path, method=method, info=info, kernel="csr")
                x, y = np.ones(len(range(*a.col_range))), np.empty(len(range(*a.row_range)))
                name = f"{path.name[:-7]}, {method}, {each} ranks a node"
                a.multiply(x, y)
                table.call(name, a.multiply, x, y)
                starts = comm.gather((a.row_range[0], a.col_range[0]))
                told = None if whole is None else leaving(
                    whole, starts, each, 1 if method == "rma-p2p" else each)
                table.found[f"{name}, wanted"] = comm.scatter(told)
                a.Free()


def leaving(whole, starts, each, together):
    """By rank, the messages and bytes that leave its node where an entry goes once to so many
    ranks ``together``, and the owners' first rows and columns are these. What is short between two
    nodes one of the owners sends."""
    by_row, by_column = (
        np.searchsorted([start[i] for start in starts], place, side="right") - 1
        for i, place in enumerate((whole.row, whole.col)))
    away = by_row // each != by_column // each
    target, column = (by_row[away] // together).astype(np.int64), whole.col[away].astype(np.int64)
    keys = np.unique(target * whole.shape[1] + column)
    owner = np.searchsorted([start[1] for start in starts], keys % whole.shape[1], side="right") - 1
    count = len(starts)
    pairs, entries = np.unique(owner * count + keys // whole.shape[1], return_counts=True)
    owner, target = np.divmod(pairs, count)
    sender = owner.copy()
    for a, b in set(zip((owner // each).tolist(), target.tolist(), strict=True)):
        among = np.flatnonzero((owner // each == a) & (target == b))
        if together > 1 and len(among) > 1 and 8 * entries[among].sum() <= PAIR:
            sender[among] = owner[among[(a + b) % len(among)]]
    messages = np.unique(sender * count + target) // count
    return [{"messages": int(m), "bytes": 8 * int(n)} for m, n in zip(
        np.bincount(messages, minlength=count), np.bincount(sender, entries, minlength=count),
        strict=True)]  # fmt: skip


PARTS = {"nodes": nodes, "entries": entries, "exchanges": exchanges, "halos": halos,
         "transforms": transforms, "matrices": matrices, "solvers": solvers}


def main():
    world = counting.counted(MPI.COMM_WORLD)
    table = Table(world)
    for part in sys.argv[1:] or PARTS:
        for _ in range(2):  # once for what Python loads and keeps, on a communicator of its own
            comm = world.Dup()
            PARTS[part](comm, table)
            comm.Free()
    everyone = MPI.COMM_WORLD.gather(table.found)
    if world.rank == 0:
        most = {name: {what: max(found[name][what] for found in everyone) for what in used}
                for name, used in table.found.items()}  # fmt: skip
        for name, used in most.items():
            used["all messages"], used["all bytes"] = (
                sum(found[name][what] for found in everyone) for what in ("messages", "bytes"))
        print("@scale " + json.dumps({"ranks": world.size, "calls": most}), flush=True)


main()
