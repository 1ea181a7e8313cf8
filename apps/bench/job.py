"""A command of ours in a job of its own, ended where it takes too long."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from onesided.apps.cli.failures import words
from onesided.apps.cli.launch import LEAVING


@dataclass(frozen=True)
class Ended:
    """How a job ended: ``state`` in a word, ``reason`` in more where it did not do its work."""

    state: str
    seconds: float
    reason: str = ""


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """Local. Asked to end, it ends as by Ctrl-C: no job stays behind."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {each: signal.signal(each, interrupt) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_job(arguments: Sequence[str], ranks: int, target: Path | None, limit: float) -> Ended:
    """Local. ``onesided`` with these arguments on so many ranks; at most ``limit`` seconds.

    What it writes with ``--json`` is at ``target`` if it came to that; None where the command
    writes none, but what ``-o`` names. What it prints is beside it, in a file that ends with .log.
    """
    line = [sys.executable, "-m", "onesided.apps", *arguments]
    if target is None:
        log = Path(arguments[list(arguments).index("-o") + 1]).with_suffix(".log")
    else:
        log = target.with_suffix(".log")
        target.unlink(missing_ok=True)
        line += ["--ranks", str(ranks), "--json", str(target)]
    began = time.monotonic()
    code = _exit_code(line, log, limit)
    seconds = time.monotonic() - began
    if code is None:
        return Ended("ended", seconds, f"not done after {limit:.0f} s")
    if code != 0:
        return Ended("failed", seconds, f"exit code {code}: {_last_words(log)}")
    if target is not None and not target.exists():
        return Ended("failed", seconds, f"it wrote no result: {_last_words(log)}")
    return Ended("done", seconds)


def _exit_code(line: Sequence[str], log: Path, limit: float) -> int | None:
    """Local. Of a program that prints to ``log``; None where it had to be ended."""
    with open(log, "wb") as out:
        process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=out,
                                   stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(process)


def _last_words(log: Path) -> str:
    """Local. What the command said about its failure, or the last that was printed."""
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    except OSError as error:
        return words(error)
    spoken = [line for line in lines if line]
    ours = [line for line in spoken if line.startswith("onesided: ")]
    return (ours or spoken or ["it said nothing"])[-1]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Local. Let the job leave if it is still there, then make it."""
    if process.poll() is None:
        try:
            process.terminate()
            process.wait(LEAVING)
        except BaseException as error:  # another Ctrl-C, too: nothing may stay behind
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
