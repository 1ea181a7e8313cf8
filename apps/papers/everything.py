"""``onesided bench all``: the papers' experiments one after the other, into a folder.

Each is a job of its own with a time limit; what fails is said, and the others go on. The folder
gets a JSON file of every experiment, what it printed, its pictures where matplotlib is installed,
``manifest.json`` about all of them, and the report. Where it is killed, the next one goes on: with
the experiments that are not done, and with each where it was.
"""

from __future__ import annotations

import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from mpi4py import MPI
from rich.console import Console

from onesided.apps.bench.job import Ended, run_job, signals_interrupt
from onesided.apps.bench.store import Part, Parts
from onesided.apps.cli.failures import FAILED, CommandError
from onesided.apps.cli.options import Options
from onesided.apps.cli.progress import console
from onesided.apps.cli.report import PLAIN, Report, Row, duration

# The papers' experiments: which command repeats each, with what, and how long it may take, is in
# data/experiments.toml.

QUICK_SECONDS = 105.0  # for all of --quick together, but for the report
BESIDE = 4.0  # seconds that a job needs beside its measurements, about
LEAST_MEASURED = 1.0  # seconds that are measured, at least
PATIENCE = 4.0  # times what it is expected to take that a job may take
LIMIT = 900.0  # seconds for a job that is not told how long to measure


@dataclass(frozen=True)
class Experiment:
    """A command in a job of its own.

    ``words`` are those of a full run, ``quick`` of a quick one; ``{output}``, ``{matrices}``
    among them are replaced. ``least``: ranks that it needs at least, ``most`` at most.
    ``seconds``, of both: what it is told to measure for, 0 where it takes as long as it takes,
    which is ``takes``, about. ``draws``: an image of its name.
    """

    name: str
    command: str
    repeats: str
    words: str = ""
    quick: str = ""
    seconds: Sequence[float] = (0.0, 0.0)
    takes: Sequence[float] = (0.0, 0.0)
    least: int = 1
    most: int | None = None
    draws: bool = False

    def ranks(self, asked: int) -> int:
        """Local. Of its job, where so many were asked for."""
        wanted = max(self.least, asked)
        return wanted if self.most is None else min(self.most, wanted)

    def expected(self, quick: bool) -> float:
        """Local. Seconds that it takes, about."""
        return BESIDE + self.seconds[quick] + self.takes[quick]

    def arguments(
        self, quick: bool, places: Mapping[str, Sequence[str]], share: float = 1.0
    ) -> list[str]:
        """Local. The words of its command but for ranks and JSON; ``places``: what is replaced.

        ``share``: how much of the time that it should have there is.
        """
        words = [*self.command.split(), *(self.quick if quick else self.words).split()]
        if self.seconds[quick]:
            seconds = share * self.expected(quick) - BESIDE - self.takes[quick]
            words += ["--seconds", f"{max(LEAST_MEASURED, seconds):.3g}"]
        return [each for word in words for each in places.get(word, [word])]

    def limit(self, quick: bool) -> float:
        """Local. Seconds after which its job is ended."""
        expected = PATIENCE * self.expected(quick)
        return expected if quick else max(LIMIT, expected)


EXPERIMENTS = [
    Experiment(**given)
    for given in tomllib.loads(
        (files("onesided.apps") / "data" / "experiments.toml").read_text(encoding="utf-8")
    )["experiment"]
]
#: What comes after all others, from their results.
REPORT = Experiment(
    "report", "report", "all of them in one page",
    "{output} -o {output}/report.html", "{output} -o {output}/report.html", most=1,
)  # fmt: skip


DONE, LEFT_OUT = "done", "left out"
MANIFEST = "manifest.json"
REPORTING = 12.0  # seconds for the report of a quick run, at most
LEAST = 3.0  # seconds below which no experiment is begun
NO_PICTURES = "pictures are skipped: matplotlib is not installed (the extra plot)"


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Local. The command; its exit code is 1 where an experiment did not come to its end."""
    series = Series(comm, options, console())
    with signals_interrupt():
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
            series.last(REPORT)
    return FAILED if series.failures else 0


class Series:
    """Local. One experiment after the other, and what is told about each.

    :class:`CommandError` for an unknown experiment, and for a matrix that is not there.
    """

    def __init__(self, comm: MPI.Intracomm, options: Options, out: Console) -> None:
        self.out, self._options, self._output = out, options, Path(options.output).resolve()
        self._begun = time.monotonic()
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
        self._options.json = str(self._output / MANIFEST)
        given = options.settings() | {"matrices": [file.name for file in matrices]}
        pictures = "drawn" if self._draws else NO_PICTURES
        pattern = {"ranks": options.ranks, "pictures": pictures, "files": {}}
        self.report = Report("bench all", given, pattern)
        self.report.remarks = [] if self._draws else [NO_PICTURES]
        self._parts = Parts(comm, self.report, self._options.json, matrices)

    def run(self, experiment: Experiment) -> None:
        """Run one and keep a row about it."""
        share, limit = self._share(), self._limit(experiment)
        target = self._output / f"{experiment.name}.json"
        if experiment.name in self._parts.done and target.exists():
            ended = Ended(DONE, 0.0)
        elif limit < LEAST:
            self.failures += 1
            ended = Ended(LEFT_OUT, 0.0, f"the {QUICK_SECONDS:.0f} s of --quick are over")
        else:
            ranks = experiment.ranks(self._options.ranks)
            ended = run_job(self._arguments(experiment, share), ranks, target, limit)
            self.failures += ended.state != DONE
        self.tell(experiment, ended)

    def last(self, experiment: Experiment) -> None:
        """Run what needs the results of all others."""
        limit = REPORTING if self._options.quick else experiment.limit(False)
        ended = run_job(self._arguments(experiment, 1.0), 1, None, limit)
        self._say(experiment, "last", ended)
        self.failures += ended.state != DONE

    def _arguments(self, experiment: Experiment, share: float) -> list[str]:
        words = experiment.arguments(self._options.quick, self._places, share)
        if experiment.draws and self._draws:
            words += ["--picture", f"{{output}}/{experiment.name}.png"]
        return [word.replace("{output}", str(self._output)) for word in words]

    def _left(self) -> float:
        """Seconds that are left of a quick run."""
        return QUICK_SECONDS - (time.monotonic() - self._begun)

    def _share(self) -> float:
        """How much there is of the time that all who wait should have, in a quick run."""
        if not self._options.quick:
            return 1.0
        wanted = sum(each.expected(True) for each in self.waiting)
        return min(1.0, self._left() / max(wanted, LEAST))

    def _limit(self, experiment: Experiment) -> float:
        """Seconds that it may take; all of them together no more than a quick run may."""
        limit = self._options.limit or experiment.limit(self._options.quick)
        return float(min(limit, self._left()) if self._options.quick else limit)

    def tell(self, experiment: Experiment, ended: Ended) -> None:
        """Keep a row about one, which waits no longer; if it is not done, another run tries it."""
        self.waiting.remove(experiment)
        self._say(experiment, f"{self._count - len(self.waiting)}/{self._count}", ended)
        labels = {
            "experiment": experiment.name,
            "repeats": experiment.repeats,
            "command": experiment.command,
            "ranks": str(experiment.ranks(self._options.ranks)),
            "state": ended.state,
        }
        times = [] if ended.reason else [ended.seconds]
        row = Row(labels, times, reason=ended.reason)

        def add(part: Part) -> None:
            part.rows.append(row)
            target = self._output / f"{experiment.name}.json"
            part.pattern["files"] = {experiment.name: target.name} if target.exists() else {}

        self._parts.add(experiment.name, add, keep=ended.state == DONE)

    def _say(self, experiment: Experiment, number: str, ended: Ended) -> None:
        line = f"[{number}] {experiment.name}: {ended.state}"
        taken = f", {duration(ended.seconds)}" if ended.seconds else ""
        reason = f": {ended.reason}" if ended.reason else ""
        self.out.print(f"{line}{taken}{reason}", **PLAIN)


def _chosen(names: Sequence[str] | None) -> list[Experiment]:
    """Local. The experiments of these names; :class:`CommandError` lists the known ones."""
    known = {each.name: each for each in EXPERIMENTS}
    for name in names or ():
        if name not in known:
            raise CommandError(f"no experiment {name!r}; they are {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names or known)]
