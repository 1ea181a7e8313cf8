"""Run a program, or `-m MODULE`, on this rank and print the completion token when it is done.

The token is printed after the exit functions that the program registered: what they do at the
end, and whether they come back, is part of the run. SIGUSR1 writes the stacks of all threads to a
file of this rank's own: in a stream that the ranks share their letters would mix.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import runpy
import signal
import sys

done = False


rank = os.environ.get("PMI_RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or "0"


def print_token() -> None:
    if done:
        token = os.environ.get("ONESIDED_TOKEN", "")
        os.write(1, f"\n@done {token} {rank}\n".encode())


def execute(words: list[str]) -> None:
    """Run a Python file, or a module given as ``-m NAME``, with its arguments."""
    as_module = words[0] == "-m"
    sys.argv = words[1:] if as_module else words
    if as_module:
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
        runpy.run_path(words[0], run_name="__main__")


def main() -> None:
    global done
    atexit.register(print_token)
    if folder := os.environ.get("ONESIDED_FOLDER"):
        stacks = os.open(os.path.join(folder, f"stacks-{rank}"), os.O_WRONLY | os.O_CREAT)
        faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    try:
        execute(sys.argv[1:])
    except SystemExit as exit_:
        done = exit_.code in (None, 0)
        raise
    done = True


if __name__ == "__main__":
    main()
