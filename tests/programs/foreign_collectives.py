"""mpi4py's own tests of persistent collectives on this library: foreign_collectives.py FOLDER FILE.

    mpiexec -n 3 python tests/programs/foreign_collectives.py mpi4py/test test_cco_pr_vec.py

Its test files run as they are. What they find as MPI's communicators are the classes below, whose
``X_init`` are this library's; where it has no such function the test is skipped and says so. Of
the methods in the environment variable ``ONESIDED_METHODS`` the first that the operation has is
taken. ``ONESIDED_BACKENDS`` names the arrays to try, as ``numpy``; all of them without.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import unittest

from mpi4py import MPI

from onesided import collectives

METHODS = os.environ.get("ONESIDED_METHODS", "rma-notify,rma-binomial,rma-p2p").split(",")


def of_the_host(spec):
    """What mpi4py's tests put behind the interfaces of CUDA and DLPack is an array of the host.

    Nobody can tell that from a CUDA interface, and NumPy cannot read these DLPack capsules, which
    Python code gives back.
    """
    if isinstance(spec, list | tuple) and spec:
        return [of_the_host(spec[0]), *spec[1:]]
    foreign = hasattr(spec, "__cuda_array_interface__") or hasattr(spec, "__dlpack_device__")
    return spec.array if foreign and hasattr(spec, "array") else spec


def ours(name):
    """The method of a communicator that is a function of the library."""

    def init(comm, *arguments, **named):
        function = getattr(collectives, name, None)
        if function is None:
            raise unittest.SkipTest(f"there is no {name}")
        arguments = [of_the_host(argument) for argument in arguments]
        for method in METHODS:
            with contextlib.suppress(collectives.MethodError):
                return function(comm, *arguments, method=method, **named)
        raise ValueError(f"{name} has none of {METHODS}")

    return init


class Mapped:
    """The persistent collectives, and what makes communicators that have them."""

    def Create_cart(self, *arguments, **named):
        return Grid(super().Create_cart(*arguments, **named))

    def Create_graph(self, *arguments, **named):
        return Graph(super().Create_graph(*arguments, **named))

    def Create_dist_graph_adjacent(self, *arguments, **named):
        return Neighbors(super().Create_dist_graph_adjacent(*arguments, **named))


for known in dir(MPI.Intracomm):
    if known.endswith("_init") and not known.startswith(("Send", "Bsend", "Ssend", "Rsend", "Recv",
                                                         "Psend", "Precv")):  # fmt: skip
        setattr(Mapped, known, ours(known))


class Comm(Mapped, MPI.Intracomm):
    pass


class Grid(Mapped, MPI.Cartcomm):
    pass


class Graph(Mapped, MPI.Graphcomm):
    pass


class Neighbors(Mapped, MPI.Distgraphcomm):
    pass


class Asked:
    """The files ask by a Barrier whether there are persistent collectives at all: yes."""

    def Start(self):
        pass

    Wait = Free = Start


def main():
    folder, file = sys.argv[1:]
    sys.path.insert(0, folder)
    sys.modules |= {"cupy": None, "numba": None}  # installed, perhaps, where there is no GPU
    arrays = importlib.import_module("arrayimpl").ArrayBackends
    wanted = os.environ.get("ONESIDED_BACKENDS", "").split()
    arrays[:] = [each for each in arrays if each.backend in wanted or not wanted]
    if not arrays:
        raise ValueError(f"there are no arrays of {wanted}")
    MPI.COMM_WORLD, MPI.COMM_SELF = Comm(MPI.COMM_WORLD), Comm(MPI.COMM_SELF)
    mapped, Mapped.Barrier_init = Mapped.Barrier_init, lambda comm: Asked()
    module = importlib.import_module(os.path.splitext(file)[0])
    Mapped.Barrier_init = mapped
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    result = unittest.TextTestRunner(sys.stderr, verbosity=1).run(suite)
    done = result.testsRun - len(result.skipped)
    words = sorted({reason for _, reason in result.skipped})
    if MPI.COMM_WORLD.rank == 0:
        print(f"{done} tests ran, {len(result.skipped)} were left out: {', '.join(words)}")
    MPI.COMM_WORLD.Barrier()
    sys.exit(not (result.wasSuccessful() and done))


if __name__ == "__main__":
    main()
