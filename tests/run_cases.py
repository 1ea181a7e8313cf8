"""Run the cases of a module on the ranks of this job.

    mpiexec -n 4 python -m mpi4py tests/run_cases.py tests/mpi/cases_x.py [--select TEXT]...
        [--option KEY=VALUE]... [--among RANKS]... [--share NUMBER] [--turn NUMBER]

Rank 0 prints one line of JSON per case; the exit code is 1 when a case failed. With
``--among 2 --among 4`` a job of 2 ranks runs some of the cases, and one of 4 ranks the others, with
``--share 3`` a third of those of each function; with another ``--turn`` they change places.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Sequence

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from cases import Choice, run_module


def run(words: Sequence[str]) -> int:
    """Collective. Run what a command line asks for; the number of cases that failed."""
    parser = argparse.ArgumentParser(description="run the cases of a module on all ranks")
    parser.add_argument("module", help="file with functions case_*(comm, ...)")
    parser.add_argument("--select", action="append", default=[], metavar="TEXT")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--among", action="append", default=[], type=int, metavar="RANKS")
    parser.add_argument("--share", default=1, type=int, metavar="NUMBER")
    parser.add_argument("--turn", default=0, type=int, metavar="NUMBER")
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
    chosen = Choice(arguments.select, arguments.among, arguments.share, arguments.turn)
    return run_module(module, chosen, options)


if __name__ == "__main__":
    sys.exit(1 if run(sys.argv[1:]) else 0)
