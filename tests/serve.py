"""A rank of a job that stays up: runs the requests of ``servers.py``, one after the other.

    mpiexec -n 4 python -m mpi4py tests/run_program.py tests/serve.py

A request is a line of JSON in the pipe of this rank: items of a module, or a program as
``__main__``. What belongs to the process and not to one request is put back after each of them.
Every rank closes its part of the output with ``@done TOKEN RANK CODE``.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mpi_items
import numpy as np
from cases import LEFT_MARK, say
from mpi4py import MPI
from run_program import execute

from onesided.collectives import registry
from onesided.collectives.registry import methods


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Put back environment, folder, import path, hooks, warnings, NumPy's error handling, and the
    methods that there are: the cells of the table are those of the run that asks for them."""
    environ, folder, argv, path = dict(os.environ), os.getcwd(), sys.argv, list(sys.path)
    hooks, errors = (sys.excepthook, threading.excepthook), np.geterr()
    filters = warnings.filters[:]
    threads = set(threading.enumerate())
    known = {operation: methods(operation) for operation in registry._METHODS}
    try:
        yield
    finally:
        for name in os.environ.keys() - environ.keys():
            del os.environ[name]
        os.environ.update(environ)
        os.chdir(folder)
        sys.argv, sys.path[:], warnings.filters[:] = argv, path, filters
        if (sys.excepthook, threading.excepthook) != hooks:
            sys.excepthook, threading.excepthook = hooks
            sys.modules["onesided.collectives.errors"].__dict__["_installed"] = False
        np.seterr(**errors)
        for operation, named in known.items():
            registry._METHODS[operation].clear()
            registry._METHODS[operation].update(named)
        gc.collect()
        for thread in set(threading.enumerate()) - threads:
            if not thread.daemon:
                say(f"{LEFT_MARK}a thread: {thread.name}", stream=2)


def run_program(words: list[str]) -> int:
    """The exit code of a Python file, or of a module given as ``-m NAME``, on this rank."""
    try:
        execute(words)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return 0


def perform(request: dict[str, Any]) -> int:
    """Collective. Whether items failed, or the exit code of the program."""
    with restored():
        for name, text in request["env"].items():
            if text is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = text
        os.chdir(request["folder"])
        if request["kind"] == "items":
            return mpi_items.run(request["words"])
        return run_program(request["words"])


def requests(pipe: int) -> Iterator[dict[str, Any]]:
    """What is asked for; asleep in between, after a while in which other ranks may need us."""
    text = b""
    while True:
        for _ in range(50):
            if select.select([pipe], [], [], 0.01)[0]:
                break
            MPI.COMM_WORLD.Iprobe()
        while b"\n" not in text:
            part = os.read(pipe, 1 << 16)
            if not part:
                return  # the tests are gone
            text += part
        line, text = text.split(b"\n", 1)
        yield json.loads(line)


def main() -> None:
    world = MPI.COMM_WORLD
    pipe = os.open(Path(os.environ["ONESIDED_FOLDER"], f"requests{world.rank}"), os.O_RDONLY)
    for request in requests(pipe):
        if request["kind"] == "end":
            return
        try:
            code = perform(request)
        except BaseException:
            traceback.print_exc()  # before the launcher ends the others
            raise
        for stream in (1, 2):
            say(f"@done {request['token']} {world.rank} {code}", stream)


if __name__ == "__main__":
    main()
