"""``python -m onesided.pencilfft program.py``: a program of mpi4py-fft, unchanged, on ours."""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

from onesided.collectives import OnesidedError, abort_on_exception
from onesided.pencilfft.install import install, replace


def main() -> None:
    """Collective. Run a program with our names under mpi4py-fft's."""
    parser = argparse.ArgumentParser(
        prog="python -m onesided.pencilfft",
        description="Run a program that was written for mpi4py-fft on Onesided, unchanged. "
        "An exception on one rank ends the job.",
    )
    parser.add_argument("--method", default="auto", help="how data move (default auto)")
    parser.add_argument(
        "--transposes-only", action="store_true",
        help="keep mpi4py-fft's transforms, arrays and files",
    )  # fmt: skip
    parser.add_argument("program", metavar="PROGRAM.py", help="a file")
    parser.add_argument("rest", metavar="...", nargs=argparse.REMAINDER, help="its arguments")
    options = parser.parse_args()
    abort_on_exception()
    try:
        (install if options.transposes_only else replace)(options.method)
    except OnesidedError as error:
        parser.error(str(error))
    sys.argv = [options.program, *options.rest]
    sys.path.insert(0, str(Path(options.program).resolve().parent))
    runpy.run_path(options.program, run_name="__main__")


if __name__ == "__main__":
    main()
