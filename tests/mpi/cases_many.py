"""More ranks than cores by far: small problems of every kind, each compared with its serial result.
"""

import numpy as np
from mpi4py import MPI

from onesided.collectives import Grid
from onesided.pencilfft import PFFT, newDistArray
from onesided.sparse import cg, from_rows, stencil7

ESTIMATE = {"effort": "estimate"}


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
