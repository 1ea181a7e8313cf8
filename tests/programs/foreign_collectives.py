"""mpi4py's own tests of persistent collectives on this library: foreign_collectives.py FOLDER FILE.

    mpiexec -n 3 python tests/programs/foreign_collectives.py mpi4py/test test_cco_pr_vec.py

Its test files run as they are. What they find as MPI's communicators are the classes below, whose
``X_init`` are this library's; where it has no such function the test is skipped and says so. The
method is that of the environment variable ``ONESIDED_METHOD``.
"""

from __future__ import annotations

import importlib
import os
import sys
import unittest

import numpy as np
from mpi4py import MPI

from onesided import collectives

METHOD = os.environ.get("ONESIDED_METHOD", "auto")


def of_the_host(spec):
    """mpi4py tests its CUDA interface with memory of the host, which nobody can tell; say so."""
    if isinstance(spec, list | tuple) and spec:
        return [of_the_host(spec[0]), *spec[1:]]
    interface = getattr(spec, "__cuda_array_interface__", None)
    if interface is None:
        return spec
    (address, _), dtype = interface["data"], np.dtype(interface["typestr"])
    nbytes = int(np.prod(interface["shape"])) * dtype.itemsize
    memory = MPI.memory.fromaddress(address, nbytes) if nbytes else b""
    return np.frombuffer(memory, dtype)


def ours(name):
    """The method of a communicator that is a function of the library."""

    def init(comm, *arguments, **named):
        function = getattr(collectives, name, None)
        if function is None:
            raise unittest.SkipTest(f"there is no {name}")
        arguments = [of_the_host(argument) for argument in arguments]
        return function(comm, *arguments, method=METHOD, **named)

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


def barrier_init(comm):
    """The files ask by a Barrier whether there are persistent collectives at all."""
    if not hasattr(collectives, "Barrier_init"):
        raise unittest.SkipTest("there is no Barrier_init")
    return collectives.Barrier_init(comm, method=METHOD)


class Asked:
    """The answer to that question: a request that has nothing to do."""

    def Start(self):
        pass

    Wait = Free = Start


def main():
    folder, file = sys.argv[1:]
    sys.path.insert(0, folder)
    MPI.COMM_WORLD, MPI.COMM_SELF = Comm(MPI.COMM_WORLD), Comm(MPI.COMM_SELF)
    Mapped.Barrier_init = lambda comm: Asked()
    module = importlib.import_module(os.path.splitext(file)[0])
    Mapped.Barrier_init = barrier_init
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
