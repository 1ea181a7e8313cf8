"""Run the cases of a module on the ranks of this job.

    mpiexec -n 4 python -m mpi4py tests/run_cases.py tests/mpi/cases_x.py [--select TEXT]...
        [--option KEY=VALUE]... [--among RANKS]...

Rank 0 prints one line of JSON per case; the exit code is 1 when a case failed. With
``--among 2 --among 4`` a job of 2 ranks runs some of the cases, and one of 4 ranks the others. With
``--requests`` the modules are those that mpi_harness asks for, one after the other, by files.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import itertools
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from cases import run_module, say


def run(words: Sequence[str]) -> int:
    """Collective. Run what a command line asks for; the number of cases that failed."""
    parser = argparse.ArgumentParser(description="run the cases of a module on all ranks")
    parser.add_argument("module", help="file with functions case_*(comm, ...)")
    parser.add_argument("--select", action="append", default=[], metavar="TEXT")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--among", action="append", default=[], type=int, metavar="RANKS")
    arguments = parser.parse_args(words)
    name = os.path.splitext(os.path.basename(arguments.module))[0]
    folder = os.path.dirname(os.path.abspath(arguments.module))
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(name, arguments.module)
    if spec is None or spec.loader is None:
        parser.error(f"{arguments.module} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    options = dict(text.split("=", 1) for text in arguments.option)
    return run_module(module, arguments.select, options, arguments.among)


def serve(folder: Path) -> None:
    """Collective. Run what the files request0, request1, ... ask for, until one asks for nothing.

    They hold the words of a command line, after a token that every rank prints when it is done.
    """
    from mpi4py import MPI

    for number in itertools.count():
        request = folder / f"request{number}"
        looks = 0
        while not request.exists():
            if looks < 50:  # what other ranks still need of this one gets on
                MPI.COMM_WORLD.Iprobe()
            looks += 1
            time.sleep(0.01)
        token, *words = json.loads(request.read_text())
        if not words:
            return
        run(words)
        gc.collect()
        for stream in (1, 2):
            say(f"@done {token} {MPI.COMM_WORLD.rank}", stream)


if __name__ == "__main__":
    if sys.argv[1] == "--requests":
        serve(Path(os.environ["ONESIDED_FOLDER"]))
    else:
        sys.exit(1 if run(sys.argv[1:]) else 0)
