"""The papers' experiments: which command repeats each, with what, and how long it may take.

An experiment whose command this version has not is left out and named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

QUICK_SECONDS = 165.0  # for all of --quick together, but for the report
BESIDE = 4.0  # seconds that a job needs beside its measurements, about
LEAST = 1.0  # seconds that are measured, at least
PATIENCE = 4.0  # times what it is expected to take that a job may take
LIMIT = 900.0  # seconds for a job that is not told how long to measure


@dataclass(frozen=True)
class Experiment:
    """A command in a job of its own.

    ``words`` are those of a full run, ``quick`` of a quick one; ``{output}``, ``{matrices}``
    among them are replaced. ``least``: ranks that it needs at least, ``most`` at most.
    ``seconds``, of both: what it is told to measure for, 0 where it takes as long as it takes,
    which is ``takes``, about. ``draws``: an image, the value of its option ``picture``.
    """

    name: str
    command: str
    repeats: str
    words: Sequence[str] = ()
    quick: Sequence[str] = ()
    seconds: tuple[float, float] = (0.0, 0.0)
    takes: tuple[float, float] = (0.0, 0.0)
    least: int = 1
    most: int | None = None
    draws: str = ""
    picture: str = "--picture"

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
        words = [*self.command.split(), *(self.quick if quick else self.words)]
        if self.seconds[quick]:
            seconds = share * self.expected(quick) - BESIDE - self.takes[quick]
            words += ["--seconds", f"{max(LEAST, seconds):.3g}"]
        given: list[str] = []
        for word in words:
            given += places.get(word, [word])
        return given

    def limit(self, quick: bool) -> float:
        """Local. Seconds after which its job is ended."""
        expected = PATIENCE * self.expected(quick)
        return expected if quick else max(LIMIT, expected)


FEW = "rma-fence,rma-lock,rma-notify,rma-fence-paper,rma-lock-paper"
SAMPLE = "--patterns latency rate-halo --sizes 8 16K 1M"
PERSISTENT = "rma-fence,rma-lock,rma-notify,mpi-persistent"
EXPERIMENTS = (
    Experiment(
        "alltoallv",
        "bench alltoallv",
        "paper 000, Figure 2 and break-even",
        "--ranks-list {ranks} --memory slots empty plain".split(),
        "--ranks-list {ranks} --sizes 1K 8K 32K 128K 1M 2M --memory slots empty plain --inits 2 "
        "--iterations 200".split(),
        (360.0, 14.0),
        draws="{output}/alltoallv",
    ),
    Experiment(
        "collectives",
        "bench collectives",
        "all collectives, as OSU's micro-benchmarks",
        quick="--quick --operations Barrier Bcast Allgatherv Allreduce Reduce_scatter".split(),
        seconds=(240.0, 5.0),
        least=2,
        draws="{output}/collectives.png",
    ),
    Experiment(
        "scaling",
        "bench alltoallv",
        "paper 000, Figure 1: weak and strong scaling",
        "--sizes 32K 2M --memory slots empty plain".split(),
        f"--sizes 2M --comm {FEW} --memory empty plain --inits 2 --iterations 50".split(),
        (240.0, 8.0),
        least=4,
        draws="{output}/scaling",
    ),
    Experiment(
        "patterns",
        "bench patterns",
        "paper 000, Figure 3: exchanges of sparse matrices",
        ["{matrices}", "--mesh", "1000000"],
        "{matrices} --mesh 50000 --inits 3 --iterations 100".split(),
        (240.0, 8.0),
        draws="{output}/patterns",
    ),
    Experiment(
        "patterns-8",
        "bench patterns",
        "paper 000, Figure 4: counts on 8 ranks",
        f"--mesh 1000000 --comm {FEW} --memory slots".split(),
        "--mesh 50000 --comm rma-fence,rma-lock --memory slots --inits 1 --iterations 3".split(),
        (60.0, 3.0),
        least=8,
        most=8,
        draws="{output}/patterns-8",
    ),
    Experiment(
        "apps",
        "bench apps",
        "paper 000, applications",
        quick=f"--shape 64 64 64 --points 24 --iterations 10 --comm {FEW}".split(),
        seconds=(240.0, 8.0),
    ),
    Experiment(
        "broadcast",
        "bench broadcast",
        "paper 003, Figures 13 to 16",
        quick="--sizes 2K 40K 1M 4M --iterations 10".split(),
        seconds=(240.0, 10.0),
        least=4,
        draws="{output}/broadcast",
    ),
    Experiment(
        "partitioned",
        "bench partitioned",
        "paper 004, Figures 3 to 6",
        quick="--partition-sizes 256 4K 64K 1M --threads 1 4 --iterations 10".split(),
        seconds=(240.0, 12.0),
        least=2,
        most=2,
        draws="{output}/partitioned",
    ),
    Experiment(
        "rma-mt",
        "bench rma-mt",
        "paper 002, Figures 1 to 7",
        "-o {output}/rma-mt".split(),
        f"--quick --afresh {SAMPLE} -o {{output}}/rma-mt-quick".split(),
        takes=(7200.0, 20.0),
        least=2,
    ),
    Experiment(
        "hpccg",
        "hpccg",
        "paper 002, Figure 8: HPCCG",
        f"--size 64 --scaling weak --comm lock-all-threads,{PERSISTENT}".split(),
        f"--size 24 --iterations 50 --scaling weak --comm lock-all-threads,{PERSISTENT}".split(),
        takes=(120.0, 3.0),
        least=2,
        draws="{output}/hpccg.png",
        picture="--overhead",
    ),
    Experiment(
        "minife",
        "minife",
        "paper 002, Figure 8: MiniFE",
        f"--size 64 --scaling weak --comm fence-threads,{PERSISTENT}".split(),
        f"--size 16 --iterations 50 --scaling weak --comm fence-threads,{PERSISTENT}".split(),
        takes=(120.0, 3.0),
        least=2,
        draws="{output}/minife.png",
        picture="--overhead",
    ),
    Experiment(
        "minimd",
        "minimd",
        "paper 002, Figure 8: MiniMD",
        f"--scaling weak --comm fence-threads,{PERSISTENT}".split(),
        f"--cells 6 6 6 --scaling weak --comm fence-threads,{PERSISTENT}".split(),
        takes=(120.0, 5.0),
        least=2,
        draws="{output}/minimd.png",
        picture="--overhead",
    ),
    Experiment(
        "model",
        "bench model",
        "paper 000, parameters of the model",
        seconds=(60.0, 8.0),
        least=2,
    ),
    Experiment(
        "model-figure-1",
        "model",
        "paper 000, Figure 1 by the model",
        ["--paper"],
        ["--paper"],
        most=1,
    ),
)
#: What comes after all others, from their results.
REPORT = Experiment(
    "report",
    "report",
    "all of them in one page",
    "{output} -o {output}/report.html".split(),
    "{output} -o {output}/report.html".split(),
    most=1,
)
