"""The examples in the docstrings of every public name, on all ranks: examples.py PACKAGE."""

from __future__ import annotations

import doctest
import inspect
import os
import sys
import tempfile
import types
from importlib import import_module

import numpy as np
from mpi4py import MPI


def main(package: str) -> None:
    folder = MPI.COMM_WORLD.bcast(tempfile.mkdtemp())
    os.environ["ONESIDED_WISDOM"] = os.path.join(folder, "wisdom.json")
    module = import_module(f"onesided.{package}")
    names = {name: getattr(module, name) for name in module.__all__}
    runner = doctest.DocTestRunner()
    for name, found in names.items():
        if isinstance(found, types.ModuleType):
            continue
        known = {**names, "np": np, "MPI": MPI, "comm": MPI.COMM_WORLD}
        text = inspect.getdoc(found) or ""
        test = doctest.DocTestParser().get_doctest(text, known, name, None, 0)
        if not test.examples:
            raise AssertionError(f"{name} has no example")
        if runner.run(test).failed:
            raise AssertionError(f"the example of {name} is wrong")


if __name__ == "__main__":
    main(sys.argv[1])
