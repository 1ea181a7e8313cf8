"""Result files by the code of apps/report.py, with numbers as wanted, and the page about them."""

from __future__ import annotations

import json
import math
import random
import statistics
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from mpi4py import MPI

from onesided.apps.cli.options import Options
from onesided.apps.cli.report import Report, Row, byte_count
from onesided.apps.cli.statistics import Verdict
from onesided.apps.papers.rmamt_cell import THREADS, Cell, Outcome, Run
from onesided.apps.papers.rmamt_rows import row
from onesided.apps.report.command import make

KIBI, MEBI = 1 << 10, 1 << 20
SIZES = (KIBI, 8 * KIBI, 32 * KIBI, 128 * KIBI, MEBI, 2 * MEBI, 16 * MEBI)
PARTS = (64, 4 * KIBI, 64 * KIBI, 256 * KIBI, MEBI)
LENGTHS = (2 * KIBI, 16 * KIBI, 34 * KIBI, 10 * MEBI, 16 * MEBI)


def write(
    path: Path, command: str, rows: Sequence[Row], *, ranks: int = 2, nodes: int = 1,
    pattern: Mapping[str, Any] | None = None, **machine: Any,
) -> Path:
    """Write what a command of so many ranks and nodes would write; there are enough cores."""
    report = Report(command, {"iterations": 3}, pattern or {}, rows=list(rows), remarks=["Said."])
    report.finish(MPI.COMM_SELF, Options(json=str(path)))
    content = json.loads(path.read_text())
    content["machine"] |= {
        "ranks": ranks,
        "nodes": nodes,
        "ranks_per_node": [ranks // nodes] * nodes,
        "all_cores": ranks,
        "processor": "A processor",
        **machine,
    }
    path.write_text(json.dumps(content))
    return path


def edit(path: Path, **changes: Any) -> None:
    """Change parts of an envelope; None takes one out."""
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))


def exchanges(
    ratios: Mapping[str, Mapping[int, float]], counts: Sequence[int] = (2,), setup: float = 1e-9
) -> Iterator[Row]:
    """Rows of ``bench alltoallv``: by method and bytes the time over that of the plain call.

    ``setup``: seconds of a set-up, per byte.
    """
    for ranks in counts:
        for size in SIZES:
            labels = {"ranks": str(ranks), "bytes": byte_count(size)}
            plain = [size * 1e-9] * 3
            yield Row({**labels, "method": "mpi", "memory": "plain"}, plain, None, size,
                      {"mpi": plain})  # fmt: skip
            for method, by_size in ratios.items():
                times = [time * by_size[size] for time in plain]
                yield Row({**labels, "method": method, "memory": "empty"}, times, setup * size,
                          size, {"mpi": plain})  # fmt: skip


def patterns(ratios: Mapping[str, float]) -> Iterator[Row]:
    """Rows of ``bench patterns`` on one matrix."""
    plain = [1e-3] * 3
    labels = {"matrix": "mesh", "pattern": "spmv"}
    yield Row({**labels, "method": "mpi", "memory": "plain"}, plain, None, 800, {"mpi": plain})
    for method, ratio in ratios.items():
        times = [ratio * time for time in plain]
        yield Row({**labels, "method": method, "memory": "empty"}, times, 1e-3, 800, {"mpi": plain})


COUNTS = {"matrices": {"mesh": {"patterns": {"spmv": {"counts": [[5, 2], [0, 900]]}}}}}


def broadcasts(tree: Mapping[tuple[int, int], float], counts: Sequence[int]) -> Iterator[Row]:
    """Rows of ``bench broadcast``: by ranks and bytes the tree's time over the linear one's."""
    for ranks in counts:
        for size in LENGTHS:
            labels = {"ranks": str(ranks), "bytes": byte_count(size)}
            plain = [size * 1e-9] * 3
            for method, order, ratio in (
                ("mpi", "-", 1.0),
                ("rma-linear", "-", 1.0),
                ("one-sided", "-", 1.0),
                ("rma-binomial", "largest-first", tree[ranks, size]),
                ("passive", "low-bit-first", tree[ranks, size]),
            ):
                setup = None if method == "mpi" else 1e-3
                times = [ratio * time for time in plain]
                yield Row({**labels, "method": method, "order": order}, times, setup, size,
                          {"mpi": plain}, {"predicted": [2e-3]})  # fmt: skip


def partitions(rates: Mapping[tuple[str, str, int], Mapping[int, float]]) -> Iterator[Row]:
    """Rows of ``bench partitioned``: by method, order and threads GB/s by bytes of a partition."""
    for (method, order, threads), by_size in rates.items():
        for part, rate in by_size.items():
            labels = {
                "partition": byte_count(part),
                "order": order,
                "threads": str(threads),
                "method": method,
                "aggregate": "64 KiB" if method in ("p2p", "rma") else "-",
                "marked": "one by one",
            }
            values = {
                "partition_bytes": part,
                "mean_gigabytes_per_s": rate,
                "wrong_partitions": 0,
            }
            yield Row(labels, [MEBI / rate / 1e9] * 3, 1e-3, MEBI, values=values,
                      verdict=Verdict(0.0, 0.0))  # fmt: skip


def mini_app(ratios: Mapping[int, float], way: str = "lock-all-threads") -> Iterator[Row]:
    """Rows of a mini-application: by ranks the time of a way over that of messages; 3 on one."""
    for ranks, ratio in {1: 3.0, **ratios}.items():
        plain = [1e-2, 2e-2]
        for method, times in (
            ("two-sided", plain),
            (way, [ratio * each for each in plain]),
        ):
            labels = {"scaling": "weak", "ranks": str(ranks), "method": method}
            yield Row(labels, times, against={"two-sided": plain})


def shaken(rows: Iterable[Row], seed: int = 1) -> Iterator[Row]:
    """The same rows from a machine where times differ by a factor of seven from turn to turn.

    Half of the turns are slower, half are faster, in an order of its own for each row.
    """
    dice = random.Random(seed)
    steps = [math.exp(step / 11 - 1) for step in range(0, 23, 2)]
    for each in rows:
        middle = statistics.median(each.times)
        each.times = [middle * step for step in dice.sample(steps, len(steps))]
        each.against = {
            name: [statistics.median(times)] * len(steps) for name, times in each.against.items()
        }
        yield each


def world(folder: Path, papers_are_right: bool) -> None:
    """Results of a machine where every claim of the papers holds, or where none does.

    But for one, with which paper 000 contradicts another one: lock does not fall behind here.
    """
    right = papers_are_right
    small, large = (1.5, 0.5) if right else (0.9, 1.2)

    def over(low: float, high: float) -> dict[int, float]:
        return {size: low if size < 32 * KIBI else high for size in SIZES}

    fence, lock = over(small, large), over(1.1 * small, 1.1 * large)
    if not right:
        lock = over(0.9 * small, 0.9 * large)
    setup = 1e-12 if right else 1e-3
    for ranks in (28, 448):
        mine = {**lock, 2 * MEBI: lock[2 * MEBI] * (1.1 if ranks == 28 else 1.0)}
        ratios = {"rma-fence": fence, "rma-lock": mine}
        ratios |= {f"{method}-paper": by_size for method, by_size in ratios.items()}
        rows = list(exchanges(ratios, [ranks], setup))
        write(folder / f"exchanges-{ranks}.json", "bench alltoallv", rows, ranks=ranks)
    hier = 0.5 if right else 0.8
    write(folder / "patterns.json", "bench patterns", patterns({
        "rma-fence": 0.5, "rma-fence-hier": hier, "rma-lock": 0.7 if right else 0.4,
        "rma-fence-paper": 0.5, "rma-lock-paper": 0.7 if right else 0.4,
    }), pattern=COUNTS)  # fmt: skip
    counts = (8, 24, 32, 80, 96)
    for nodes, gain in ((1, 1.0), (8, 0.8 if right else 1.3)):
        tree = {
            (ranks, size): gain * _tree(ranks, size, right) for ranks in counts for size in LENGTHS
        }
        write(folder / f"broadcasts-{nodes}.json", "bench broadcast", broadcasts(tree, counts),
              ranks=96, nodes=nodes, pattern={"crossings": [CROSSING]})  # fmt: skip
    write(folder / "hpccg.json", "hpccg", mini_app({2: 1.02 if right else 1.04, 4: 1.01}))
    write(folder / "minife.json", "minife",
          mini_app({2: 1.02 if right else 1.04, 4: 1.01}, "fence-threads"))  # fmt: skip
    write(folder / "minimd.json", "minimd",
          mini_app({2: 1.02 if right else 1.04, 4: 1.01}, "fence-threads"))  # fmt: skip
    write(folder / "partitions.json", "bench partitioned", partitions(_rates(right)),
          all_cores=32)  # fmt: skip
    write(folder / "threads.json", "bench rma-mt", threads(THREADED[right]),
          all_cores=32)  # fmt: skip


def threads(values: Mapping[tuple[str, str, str, int], float]) -> Iterator[Row]:
    """Rows of ``bench rma-mt``: microseconds, GB/s or messages per microsecond of every size."""
    for (pattern, sync, op, count), value in values.items():
        for size in (8, KIBI, MEBI):
            level = "multiple" if count else "single"
            cell = Cell(pattern, sync, op, count, size, level)
            large = (sync, op, size) == ("fence", "put", MEBI)
            shown = LARGE_FENCE[value] if large and pattern == "rate-halo" else value
            mean = {
                "latency": 1e-6 * value, "bandwidth": 1e-9 * size / value,
            }.get(pattern, 1e-6 / shown)  # fmt: skip
            loops = {THREADS: [Run(mean, mean)] * 3}
            yield row(cell, Outcome(1, size, 1, 9, 0, loops))


CROSSING = {
    "method": "rma-binomial", "order": "largest-first", "other": "rma-linear", "over": "bytes",
    "at": 96, "predicted": 2e30, "measured": 2048.0, "modelled": True,
}  # fmt: skip


ONE = {
    ("latency", "two-sided", "send", 0): 0.2,
    ("rate-halo", "two-sided", "send", 0): 10.0,
}
#: The rate of Put under fence at 1 MiB by that at other sizes.
LARGE_FENCE = {4.34: 9.64, 8.0: 5.0}
#: By whether the papers are right.
THREADED = {
    True: ONE | {
        ("latency", "pscw", "put", 0): 0.44,
        **{("latency", s, "put", 1): x for s, x in zip(
            ("fence", "pscw", "lock", "lock_all"), (0.5, 0.44, 0.9, 1.0), strict=True)},
        **{("latency", s, "put", 16): x for s, x in zip(
            ("fence", "pscw", "lock", "lock_all"), (2.5, 2.2, 7.2, 8.0), strict=True)},
        **{("bandwidth", s, "put", 1): 10.0 for s in ("fence", "pscw", "lock", "lock_all")},
        ("bandwidth", "lock_all", "put", 16): 8.1,
        ("bandwidth", "fence", "put", 16): 7.2,
        ("bandwidth", "lock", "put", 16): 9.1,
        ("rate-halo", "lock_all", "get", 1): 4.95,
        ("rate-halo", "fence", "get", 1): 8.6,
        ("rate-halo", "pscw", "get", 1): 8.5,
        ("rate-halo", "fence", "get", 16): 5.9,
        ("rate-halo", "fence", "put", 1): 4.34,
    },
    False: ONE | {
        ("latency", "pscw", "put", 0): 0.1,
        **{("latency", s, "put", 1): 1.0 for s in ("fence", "pscw", "lock", "lock_all")},
        **{("latency", s, "put", 16): 2.0 for s in ("fence", "pscw", "lock", "lock_all")},
        **{("bandwidth", s, "put", 1): x for s, x in zip(
            ("fence", "pscw", "lock", "lock_all"), (10.0, 20.0, 20.0, 10.0), strict=True)},
        **{("bandwidth", s, "put", 16): 10.0 for s in ("fence", "lock", "lock_all")},
        ("rate-halo", "lock_all", "get", 1): 10.0,
        ("rate-halo", "fence", "get", 1): 10.0,
        ("rate-halo", "pscw", "get", 1): 5.0,
        ("rate-halo", "fence", "get", 16): 10.0,
        ("rate-halo", "fence", "put", 1): 8.0,
    },
}  # fmt: skip


def _tree(ranks: int, size: int, right: bool) -> float:
    """The tree gains with both, and is behind at the smallest size; or just the other way round."""
    gain = (ranks / 8) ** 0.4 * (size / (16 * KIBI)) ** 0.12
    smallest = size <= 2 * KIBI
    return (4.0 if smallest else 1.6) / gain if right else 0.5 * gain**0.01 + (not smallest)


def _rates(right: bool) -> dict[tuple[str, str, int], dict[int, float]]:
    def shape(*rates: float) -> dict[int, float]:
        return dict(zip(PARTS, rates, strict=True))

    flat, falling = shape(20, 20, 20, 20, 20), shape(1, 4, 19, 20, 20)
    sends, psend = shape(1, 2, 5, 10, 20), falling
    first, second = "left-to-right", "neighborhood"
    if right:
        return {
            ("send", first, 1): sends, ("persistent", first, 1): falling,
            ("psend", first, 1): psend, ("psend", "randomized", 1): psend,
            ("persistent", first, 16): shape(1, 2, 3, 4, 14), ("psend", first, 16): falling,
            ("rma", first, 1): flat, ("rma", second, 1): flat, ("rma", "randomized", 1): falling,
        }  # fmt: skip
    bad = shape(6, 2, 3, 4, 20)
    return {
        ("send", first, 1): flat, ("persistent", first, 1): bad,
        ("psend", first, 1): shape(2, 5, 5, 5, 20),
        ("psend", "randomized", 1): shape(1, 2, 2, 2, 9),
        ("persistent", first, 16): bad, ("psend", first, 16): shape(1, 1, 1, 1, 5),
        ("rma", first, 1): falling, ("rma", second, 1): falling, ("rma", "randomized", 1): falling,
    }  # fmt: skip


def options(folder: Path, **changes: object) -> Namespace:
    """What the command is given."""
    given = {"folder": str(folder), "output": str(folder / "report.html"), "figures": None}
    return Namespace(**{**given, "mixed": False, **changes})


def page(folder: Path, **changes: object) -> str:
    """The page about a folder."""
    asked = options(folder, **changes)
    make(asked)
    return Path(asked.output).read_text(encoding="utf-8")


def parsed(text: str) -> ElementTree.Element:
    """The page as XML, which is stricter than any browser."""
    assert text.startswith("<!DOCTYPE html>\n")
    return ElementTree.fromstring(text.split("\n", 1)[1])
