"""Run the cases of a module on the ranks of this job.

    mpiexec -n 4 python -m mpi4py tests/run_cases.py tests/mpi/cases_x.py [--select TEXT]...
        [--option KEY=VALUE]...

Rank 0 prints one line of JSON per case; the exit code is 1 when a case failed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from cases import run_module


def main() -> None:
    parser = argparse.ArgumentParser(description="run the cases of a module on all ranks")
    parser.add_argument("module", help="file with functions case_*(comm, ...)")
    parser.add_argument("--select", action="append", default=[], metavar="TEXT")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    name = os.path.splitext(os.path.basename(arguments.module))[0]
    sys.path.insert(0, os.path.dirname(os.path.abspath(arguments.module)))
    spec = importlib.util.spec_from_file_location(name, arguments.module)
    if spec is None or spec.loader is None:
        parser.error(f"{arguments.module} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    options = dict(text.split("=", 1) for text in arguments.option)
    failures = run_module(module, arguments.select, options)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
