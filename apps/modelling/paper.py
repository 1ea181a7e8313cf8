"""The model beside the times that paper 000 tells, and its Figure 1 drawn by the model.

Figure 1 is read as 2 MiB for each pair of ranks: with 2 MiB for each rank alone, 448 ranks would
move 40 MB/s per node in the times it shows.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from onesided.apps.cli.report import byte_count, duration
from onesided.apps.report.chart import save
from onesided.apps.report.figure import Lines, Point
from onesided.apps.report.quantities import RANKS, TIME
from onesided.collectives.modelling.exchanges import predict
from onesided.collectives.modelling.parameters import Parameters
from onesided.collectives.modelling.traffic import uniform

KIBI, MEBI = 1 << 10, 1 << 20
#: Ranks of a node in the paper.
PER_NODE = 28

@dataclass(frozen=True)
class Told:
    """A time that paper 000 tells in its text: for so many ranks and bytes of a block."""

    figure: int
    ranks: int
    block_bytes: int
    method: str
    seconds: float


BASELINE, FENCE, LOCK = "mpi", "rma-fence-paper", "rma-lock-paper"
#: Where the paper tells a range it is the middle, where it tells a saving the difference.
TOLD = (
    Told(1, 28, 2 * MEBI, BASELINE, 0.074),
    Told(1, 28, 2 * MEBI, FENCE, 0.0255),
    Told(1, 224, 2 * MEBI, BASELINE, 0.794),
    Told(1, 224, 2 * MEBI, FENCE, 0.700),
    Told(1, 224, 2 * MEBI, LOCK, 1.53),
    Told(1, 448, 2 * MEBI, BASELINE, 2.49),
    Told(1, 448, 2 * MEBI, FENCE, 1.54),
    Told(1, 448, 2 * MEBI, LOCK, 3.52),
    Told(2, 224, 32 * KIBI, BASELINE, 0.0588),
    Told(2, 224, 32 * KIBI, FENCE, 0.0410),
    Told(2, 224, 32 * KIBI, LOCK, 0.0440),
    Told(2, 224, MEBI, BASELINE, 0.572),
    Told(2, 224, MEBI, FENCE, 0.414),
    Told(2, 224, MEBI, LOCK, 0.472),
    Told(2, 224, 2 * MEBI, BASELINE, 1.438),
    Told(2, 224, 2 * MEBI, FENCE, 0.801),
    Told(2, 224, 2 * MEBI, LOCK, 0.888),
)

#: The numbers of ranks of Figure 1, and the methods that it compares.
FIGURE_1 = (28, 56, 112, 224, 448)
METHODS = (BASELINE, FENCE, LOCK)


@dataclass(frozen=True)
class Comparison:
    """What the paper tells with what the model says, in seconds, and the lines of Figure 1."""

    told: tuple[tuple[Told, float], ...]
    lines: dict[str, tuple[float, ...]]

    def records(self) -> dict[str, Any]:
        """Local. For JSON."""
        return {
            "told": [{**asdict(told), "predicted_s": seconds} for told, seconds in self.told],
            "figure_1": {"ranks": list(FIGURE_1), "seconds": self.lines},
        }

    def table(self) -> Table:
        """Local. For a person."""
        table = Table(title="Paper 000, from its text", title_justify="left")
        for name in ("figure", "ranks", "block", "method", "paper", "model", "model/paper"):
            table.add_column(name, justify="right", no_wrap=True)
        for told, seconds in self.told:
            table.add_row(
                str(told.figure), str(told.ranks), byte_count(told.block_bytes), told.method,
                duration(told.seconds), duration(seconds), f"{seconds / told.seconds:.2f}",
            )  # fmt: skip
        return table


def compare(parameters: Parameters) -> Comparison:
    """Local. The model with these parameters on the paper's machine layout."""

    def time(method: str, ranks: int, block_bytes: int) -> float:
        traffic = uniform(ranks, PER_NODE, block_bytes, slots=1)
        return predict(traffic, parameters, [method])[method]

    told = tuple((each, time(each.method, each.ranks, each.block_bytes)) for each in TOLD)
    lines = {
        method: tuple(time(method, ranks, 2 * MEBI) for ranks in FIGURE_1) for method in METHODS
    }
    return Comparison(told, lines)


def draw(path: str, comparison: Comparison) -> None:
    """Local. Figure 1: the model's lines, and what the paper tells as points."""
    lines: dict[str, list[Point]] = {}
    for method, times in comparison.lines.items():
        lines[f"{method}, model"] = list(zip(FIGURE_1, times, strict=True))
        lines[f"{method}, paper"] = [
            (each.ranks, each.seconds)
            for each, _ in comparison.told
            if (each.figure, each.method) == (1, method)
        ]
    known = {name: line for name, line in lines.items() if line}
    title = "2 MiB for each pair of ranks (as Figure 1)"
    apart = [name for name in known if name.endswith("paper")]
    save(path, title, [Lines(title, RANKS, TIME.called("time"), known, apart=apart)])
