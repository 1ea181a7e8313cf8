"""``onesided bench all``: the papers' experiments one after the other, into a folder.

Each is a job of its own with a time limit; what fails is said, and the others go on. The folder
gets a JSON file of every experiment, what it printed, its pictures where matplotlib is installed,
``manifest.json`` about all of them, and the report. Where it is killed, the next one goes on: with
the experiments that are not done, and with each where it was.
"""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from mpi4py import MPI

from onesided.apps.bench.store import Part, Parts
from onesided.apps.cli.failures import FAILED, CommandError, words
from onesided.apps.cli.launch import LEAVING, handling
from onesided.apps.cli.options import Options
from onesided.apps.cli.progress import console
from onesided.apps.cli.report import PLAIN, Report, Row, duration

PATIENCE = 4.0  # times what a job is told to measure for that it may take
LIMIT, QUICK_LIMIT = 900.0, 90.0  # seconds that it may take in any case
DONE, LEFT_OUT = "done", "left out"
MANIFEST = "manifest.json"
NO_PICTURES = "pictures are skipped: matplotlib is not installed (the extra plot)"


@dataclass(frozen=True)
class Experiment:
    """A command in a job of its own.

    ``words`` are those of a full run, ``quick`` of a quick one; ``{ranks}``, ``{matrices}``
    among them are replaced. ``least``: ranks that it needs at least, ``most`` at most.
    ``seconds``, of both: what it is told to measure for, 0 where it takes as long as it takes.
    ``draws``: an image of its name.
    """

    name: str
    command: str
    repeats: str
    words: str = ""
    quick: str = ""
    seconds: Sequence[float] = (0.0, 0.0)
    least: int = 1
    most: float = math.inf
    draws: bool = False

    def ranks(self, asked: int) -> int:
        """Local. Of its job, where so many were asked for."""
        return int(min(self.most, max(self.least, asked)))


_TABLE = (files("onesided.apps") / "data" / "experiments.toml").read_text(encoding="utf-8")
EXPERIMENTS = [Experiment(**given) for given in tomllib.loads(_TABLE)["experiment"]]


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Local. The command; its exit code is 1 where an experiment did not come to its end."""
    series = Series(comm, options)
    with handling(_interrupt):
        interrupted = True
        try:
            while series.waiting:
                series.run(series.waiting[0])
            interrupted = False
        finally:
            while series.waiting:
                series.tell(series.waiting[0], Ended(LEFT_OUT, 0.0, "interrupted"))
            series.report.finish(comm, options, interrupted=interrupted or series.failures > 0)
        if not options.only:
            series.make_page()
    return FAILED if series.failures else 0


class Series:
    """Local. One experiment after the other, and what is told about each. :class:`CommandError` for
    an unknown experiment, and for a matrix that is not there."""

    def __init__(self, comm: MPI.Intracomm, options: Options) -> None:
        self._options, self._output = options, Path(options.output).resolve()
        self._out = console()
        matrices = [Path(file) for file in options.matrices or ()]
        for file in matrices:
            if not file.is_file():
                raise CommandError(f"{file}: No such file")
        self._places = {
            "{matrices}": [str(file.resolve()) for file in matrices],
            "{ranks}": [str(options.ranks)],
        }
        #: Those that are to come, and how many did not come to their end.
        self.waiting, self.failures = _chosen(options.only), 0
        self._count = len(self.waiting)
        self._draws = find_spec("matplotlib") is not None
        options.json = str(self._output / MANIFEST)
        said = options.settings() | {"ranks": options.ranks, "matrices": [f.name for f in matrices]}
        self.report = Report("bench all", said, {"ranks": options.ranks},
                             remarks=[] if self._draws else [NO_PICTURES])  # fmt: skip
        self._parts = Parts(comm, self.report, options.json, matrices)

    def run(self, experiment: Experiment) -> None:
        """Run one and keep a row about it."""
        target = self._target(experiment)
        if experiment.name in self._parts.done and target.exists():
            ended = Ended(DONE, 0.0)
        else:
            self._remove(experiment)
            quick = self._options.quick
            usual = max(QUICK_LIMIT if quick else LIMIT, PATIENCE * experiment.seconds[quick])
            log, limit = target.with_suffix(".log"), self._options.limit or usual
            ended = run_job(self._arguments(experiment), log, limit)
        self.failures += ended.state != DONE
        self.tell(experiment, ended)

    def make_page(self) -> None:
        """Have the report of all results made."""
        words = ["report", str(self._output), "-o", f"{self._output}/report.html"]
        ended = run_job(words, self._output / "report.log", LIMIT)
        self._say("report", "last", ended)
        self.failures += ended.state != DONE

    def _target(self, experiment: Experiment) -> Path:
        return self._output / f"{experiment.name}.json"

    def _remove(self, experiment: Experiment) -> None:
        """The result and the pictures of an earlier run."""
        for file in self._output.iterdir():
            if re.fullmatch(rf"{experiment.name}(\.json|(-\d+)?\.png)", file.name):
                file.unlink()

    def _arguments(self, experiment: Experiment) -> list[str]:
        """The words of its command."""
        quick, ranks = self._options.quick, experiment.ranks(self._options.ranks)
        words = experiment.command.split()
        words += (experiment.quick if quick else experiment.words).split()
        words += ["--ranks", str(ranks), "--json", str(self._target(experiment))]
        if experiment.seconds[quick]:
            words += ["--seconds", str(experiment.seconds[quick])]
        if experiment.draws and self._draws:
            words += ["--picture", f"{self._output}/{experiment.name}.png"]
        return [each for word in words for each in self._places.get(word, [word])]

    def tell(self, experiment: Experiment, ended: Ended) -> None:
        """Keep a row about one, which waits no longer; if it is not done, another run tries it."""
        self.waiting.remove(experiment)
        self._say(experiment.name, f"{self._count - len(self.waiting)}/{self._count}", ended)
        labels = {
            "experiment": experiment.name, "repeats": experiment.repeats,
            "command": experiment.command, "ranks": str(experiment.ranks(self._options.ranks)),
            "state": ended.state,
        }  # fmt: skip
        times = [] if ended.reason else [ended.seconds]

        def add(part: Part) -> None:
            part.rows.append(Row(labels, times, reason=ended.reason))

        self._parts.add(experiment.name, add, keep=ended.state == DONE)

    def _say(self, name: str, number: str, ended: Ended) -> None:
        line = f"[{number}] {name}: {ended.state}"
        taken = f", {duration(ended.seconds)}" if ended.seconds else ""
        reason = f": {ended.reason}" if ended.reason else ""
        self._out.print(f"{line}{taken}{reason}", **PLAIN)


def _chosen(names: Sequence[str] | None) -> list[Experiment]:
    """Local. The experiments of these names; :class:`CommandError` lists the known ones."""
    known = {each.name: each for each in EXPERIMENTS}
    for name in names or ():
        if name not in known:
            raise CommandError(f"no experiment {name!r}; they are {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names or known)]


# -- a command of ours in a job of its own ---------------------------------------------------------


@dataclass(frozen=True)
class Ended:
    """How a job ended: ``state`` in a word, ``reason`` in more where it did not do its work."""

    state: str
    seconds: float
    reason: str = ""


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Local. Asked to end, it ends as by Ctrl-C: no job stays behind."""
    raise KeyboardInterrupt


def run_job(arguments: Sequence[str], log: Path, limit: float) -> Ended:
    """Local. ``onesided`` with these arguments, at most ``limit`` seconds; it prints to ``log``."""
    line, began = [sys.executable, "-m", "onesided.apps", *arguments], time.monotonic()
    with open(log, "wb") as out:
        process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=out,
                                   stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
    seconds = time.monotonic() - began
    if code is None:
        return Ended("ended", seconds, f"not done after {limit:.0f} s")
    if code != 0:
        return Ended("failed", seconds, f"exit code {code}: {_last_words(log)}")
    return Ended(DONE, seconds)


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
