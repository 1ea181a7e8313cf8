"""In a container as Docker makes it, by every method: container.py transforms N METHOD..., or
products.

Everything is compared with what is known of it.
"""

import sys
from pathlib import Path

import numpy as np
import scipy.io
from mpi4py import MPI

from onesided.collectives import methods
from onesided.pencilfft import PFFT, newDistArray
from onesided.sparse import read

comm = MPI.COMM_WORLD
MATRIX = Path(__file__).resolve().parents[2] / "apps" / "data" / "bcsstk13.mtx.gz"


def transform(n, method):
    """A plane wave: one coefficient is 1, all others are 0."""
    plan = PFFT(comm, (n, n, n), dtype=complex, method=method, backend="scipy", wisdom=False,
                effort="estimate" if method == "auto" else None)  # fmt: skip
    u = newDistArray(plan, False)
    x, y, z = (2j * np.pi * np.arange(n)[part] / n for part in u.local_slice())
    u[:] = np.exp(3 * x)[:, None, None] * np.exp(5 * y)[:, None] * np.exp(7 * z)
    wave = np.array(u)
    spectrum = plan.forward(u)
    found = comm.allreduce(float(np.abs(spectrum).sum()))
    assert abs(found - 1) < 1e-8 * n, (method, found)
    here = [part.start <= k < part.stop
            for part, k in zip(spectrum.local_slice(), (3, 5, 7), strict=True)]
    if all(here):
        at = tuple(k - part.start for part, k in zip(spectrum.local_slice(), (3, 5, 7),
                                                     strict=True))  # fmt: skip
        assert abs(spectrum[at] - 1) < 1e-10, method
    back = plan.backward(spectrum)
    assert np.allclose(back, wave, atol=1e-10), method
    plan.destroy()


def product(method):
    whole = scipy.io.mmread(MATRIX).tocsr()
    with read(comm, MATRIX, method=method) as a:
        x = np.sin(np.arange(whole.shape[1], dtype=float))
        mine = np.ascontiguousarray(x[slice(*a.col_range)])
        wanted = (whole @ x)[slice(*a.row_range)]
        for _ in range(3):
            np.testing.assert_allclose(a @ mine, wanted, rtol=1e-9, atol=1e-3)


what, *words = sys.argv[1:]
if what == "transforms":
    for method in words[1:] or methods():
        transform(int(words[0]), method)
        if comm.rank == 0:
            print(f"@method {method}", flush=True)
else:
    for method in methods():
        product(method)
        if comm.rank == 0:
            print(f"@method {method}", flush=True)
