"""More ranks than cores by far: small problems of every kind, each compared with its serial
result."""

import numpy as np
from cases import parameters
from mpi4py import MPI

from onesided.collectives import (
    Allreduce_init,
    Alltoallv_init,
    Bcast_init,
    Grid,
    Neighbor_alltoallv_init,
    Scan_init,
)
from onesided.pencilfft import PFFT, newDistArray
from onesided.sparse import cg, from_rows, stencil7

METHODS = ["rma-notify", "p2p", "mpi-persistent"]
ESTIMATE = {"effort": "estimate"}


def rounds(request, check, fill=lambda turn: None, turns=3):
    """Start, wait and look, some times."""
    for turn in range(turns):
        fill(turn)
        request.Start()
        check(turn, request.Wait())
    request.Free()


@parameters(method=METHODS)
def case_all_to_all(comm, method):
    sent = np.zeros(comm.size, np.int64)

    def fill(turn):
        sent[:] = turn * 10**6 + comm.rank * 1000 + np.arange(comm.size)

    def check(turn, got):
        wanted = turn * 10**6 + np.arange(comm.size) * 1000 + comm.rank
        assert np.array_equal(got, wanted), f"round {turn}: {got}"

    request = Alltoallv_init(comm, [sent, [1] * comm.size], None, method=method)
    rounds(request, check, fill)


@parameters(method=METHODS)
def case_ring(comm, method):
    near = sorted({(comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size})
    graph = comm.Create_dist_graph_adjacent(near, near)
    sent, each = np.zeros(5 * len(near)), [5] * len(near)

    def fill(turn):
        sent[:] = turn * 1000 + comm.rank

    def check(turn, got):
        assert np.array_equal(got, np.repeat([turn * 1000.0 + r for r in near], 5)), got

    rounds(Neighbor_alltoallv_init(graph, [sent, each], None, method=method), check, fill)
    graph.Free()


@parameters(method=[*METHODS, "rma-lock", "rma-pscw"])
def case_all_start_before_their_source(comm, method):
    """Start is local, however many ranks expect data from one that is late."""
    each = [5 if comm.rank == 0 else 0] * comm.size
    wanted = [5, *[0] * (comm.size - 1)]
    sent = np.zeros(sum(each))
    request = Alltoallv_init(comm, [sent, each], [np.empty(5), wanted], method=method)
    for turn in range(2):
        sent[:] = turn + 1.0
        if comm.rank:
            request.Start()
        comm.Barrier()
        if comm.rank == 0:
            request.Start()
        np.testing.assert_array_equal(request.Wait(), turn + 1.0)
        comm.Barrier()
    request.Free()


@parameters(root=[0, -1])
def case_broadcast(comm, root):
    root %= comm.size
    array = np.zeros(1000)

    def fill(turn):
        array[:] = turn + 1.0 if comm.rank == root else -1.0

    rounds(Bcast_init(comm, array, root, info=ESTIMATE),
           lambda turn, _: np.testing.assert_array_equal(array, turn + 1.0), fill)


def case_reductions(comm):
    mine, into = np.full(9, comm.rank + 1.0), np.empty(9)
    total = comm.size * (comm.size + 1) / 2
    rounds(Allreduce_init(comm, mine, into, info=ESTIMATE),
           lambda turn, _: np.testing.assert_array_equal(into, total))
    below = (comm.rank + 1) * (comm.rank + 2) / 2
    rounds(Scan_init(comm, mine, into, info=ESTIMATE),
           lambda turn, _: np.testing.assert_array_equal(into, below))


def case_halo(comm):
    dims = MPI.Compute_dims(comm.size, 2)
    shape = tuple(3 * n for n in dims)
    grid = Grid(comm, shape, periodic=True, dims=dims)
    whole = np.arange(np.prod(shape), dtype=float).reshape(shape)
    field = grid.zeros()
    for turn in range(2):
        field[grid.owned] = (whole + turn)[grid.box]
        grid.update(field)
        around = [np.arange(box.start - 1, box.stop + 1) % n
                  for box, n in zip(grid.box, shape, strict=True)]
        np.testing.assert_array_equal(field, (whole + turn)[np.ix_(*around)])
    del field
    grid.Free()


def case_fft(comm):
    """On 8 x 16 of 128 ranks, 8 x 8 of 64."""
    dims = sorted(MPI.Compute_dims(comm.size, 2))
    shape = (2 * dims[1], 2 * dims[1], 2 * dims[1])
    plan = PFFT(comm, shape, dtype=complex, grid=dims, effort="estimate", backend="scipy")
    whole = np.random.default_rng(3).standard_normal((2, *shape)).view()
    values = newDistArray(plan, False)
    values[:] = (whole[0] + 1j * whole[1])[values.local_slice()]
    spectrum = plan.forward(values)
    wanted = np.fft.fftn(whole[0] + 1j * whole[1], norm="forward")
    np.testing.assert_allclose(spectrum, wanted[spectrum.local_slice()], atol=1e-13)
    back = plan.backward(spectrum)
    np.testing.assert_allclose(back, values, atol=1e-12)
    plan.destroy()


def case_products_and_cg(comm):
    n = (2 * comm.size, 3, 3)
    whole = stencil7(n)
    share = 18
    first = share * comm.rank
    a = from_rows(comm, whole[first : first + share], kernel="csr", info=ESTIMATE)
    x = np.sin(np.arange(share * comm.size, dtype=float))
    mine = x[first : first + share]
    for _ in range(3):
        np.testing.assert_allclose(a @ mine, (whole @ x)[first : first + share], atol=1e-13)
    solved = cg(a, (whole @ x)[first : first + share], rtol=1e-10)
    np.testing.assert_allclose(solved.x, mine, atol=1e-7)
    a.Free()
