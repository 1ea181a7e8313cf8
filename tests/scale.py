"""What every collective call costs a rank, counted on more and more ranks, and fitted.

    python tests/scale.py [--ranks 2 4 8 16 32 64] [-o docs/results/calls.txt]
    python tests/scale.py --setup --ranks 2 64
    python tests/scale.py --bound --ranks 2

Runs tests/programs/scale_calls.py under the mpiexec of this environment and writes the table of the
documentation. ``--setup`` runs tests/programs/scale_setup.py, and prints what setting up takes on
each number of ranks, and beside the first one. ``--bound`` runs tests/programs/scale_bound.py, and
prints times of rounds over what no round can be faster than.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import sys
from pathlib import Path
from typing import Any

import mpi_harness
import numpy as np

PROGRAM = mpi_harness.TESTS / "programs" / "scale_calls.py"
SETUP = mpi_harness.TESTS / "programs" / "scale_setup.py"
BOUND = mpi_harness.TESTS / "programs" / "scale_bound.py"
PARTS = ["exchanges", "halos", "transforms", "matrices", "solvers"]

#: Calls whose own pattern has something for every rank, or MPI's.
DENSE = ("Alltoall_init", "Gather_init", "Reduce_scatter_block_init",
         "Alltoallv_init mpi-persistent")  # fmt: skip
#: Calls with more neighbors on a larger grid of ranks than on 2 x 2: 8 instead of 3.
GRIDS = ("HaloExchange", "Grid")
#: Calls that go through the ranks of a row and a column of a grid of ranks.
PENCILS = ("PFFT",)

#: Bytes of a rank per rank of the communicator: in arrays that MPI's own arguments have, or the
#: first rank of every node; all ranks are on one node here, so what a node has counts, too.
WORDS = 96.0
#: Bytes of Python's memory of a rank per rank of the communicator, and by which it may vary.
MEMORY, NOISE = 4096.0, 65536.0


def said(mark: str, program: Path, ranks: int, *words: str, **how: Any) -> dict:
    """What a program prints as one line of JSON behind a mark."""
    outcome = mpi_harness.run(program, ranks, *words, **how)
    lines = [text for text in outcome.stdout.splitlines() if text.startswith(mark)]
    if outcome.kind != "pass" or len(lines) != 1:
        raise RuntimeError(outcome.report())
    return json.loads(lines[0].removeprefix(mark))


@functools.cache
def counted(part: str, ranks: int, timeout: float = 600.0, env: tuple = ()) -> dict:
    """By call, the most that a rank has used."""
    return said("@scale ", PROGRAM, ranks, part, timeout=timeout, env=dict(env))["calls"]


def too_much(name: str, few: dict, many: dict, ranks: int) -> list[str]:
    """What has grown from 4 to so many ranks by more than a constant, log P and the pattern."""
    factor, more = math.log2(ranks) / 2, ranks - 4
    dense = name.startswith(DENSE)
    allowed = {
        "messages": factor * few["messages"] + (8 * more if dense else 0),
        "bytes": factor * few["bytes"] + more * (1024.0 if dense else WORDS),
        "memory": factor * few["memory"] + more * MEMORY * (2 if dense else 1) + NOISE,
        "of P objects": 0.0,
    }
    if name.startswith(GRIDS):
        allowed["messages"] += 5 * 6
        allowed["bytes"] += 5 * 2048.0
    if name.startswith(PENCILS):
        allowed["messages"] += 8 * (2 * math.sqrt(ranks) - 4)
        allowed["bytes"] += 4096.0 * (2 * math.sqrt(ranks) - 4)
    return [f"{name}: {what} {few[what]:.0f} on 4 ranks, {many[what]:.0f} on {ranks}, at most "
            f"{bound:.0f} wanted" for what, bound in allowed.items() if many[what] > bound]


def fitted(ranks: list[int], values: list[float]) -> tuple[float, float, float]:
    """a, b and c of a + b log2 P + c P, none of them negative."""
    from scipy.optimize import nnls

    count = np.array(ranks, float)
    columns = np.stack([np.ones_like(count), np.log2(count), count], axis=1)
    scale = 1.0 / np.maximum(np.array(values), 1.0)
    found = nnls(columns * scale[:, None], np.array(values) * scale)[0]
    return tuple(float(each) for each in found)


def formula(ranks: list[int], values: list[float]) -> str:
    """The fit, in words; what is less than a hundredth of the largest value is left out."""
    parts, most = [], max(values)
    for factor, name, largest in zip(fitted(ranks, values), ("", " log P", " P"), (
            1.0, math.log2(ranks[-1]), ranks[-1]), strict=True):  # fmt: skip
        if factor * largest > 0.01 * most:
            parts.append(f"{factor:.3g}{name}")
    return " + ".join(parts) or "0"


def table(ranks: list[int], by_ranks: list[dict]) -> str:
    """Markdown."""
    head = ["call", *(f"messages, P = {n}" for n in (ranks[0], ranks[-1])), "messages",
            f"bytes, P = {ranks[-1]}", "bytes", f"KiB, P = {ranks[-1]}",
            "Python memory, bytes"]  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    fit_from = [i for i, n in enumerate(ranks) if n >= 4]
    for name in by_ranks[0]:
        of = {what: [calls[name][what] for calls in by_ranks] for what in by_ranks[0][name]}
        fits = {what: formula([ranks[i] for i in fit_from], [of[what][i] for i in fit_from])
                for what in ("messages", "bytes", "memory")}
        cells = [name, f"{of['messages'][0]:.0f}", f"{of['messages'][-1]:.0f}", fits["messages"],
                 f"{of['bytes'][-1]:.0f}", fits["bytes"], f"{of['memory'][-1] / 1024:.0f}",
                 fits["memory"]]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def setup_times(ranks: list[int], timeout: float = 180.0) -> str:
    """Markdown: medians of what setting up takes, in ms, and how often that of the first ranks."""
    lines = ["| set-up, ms | " + " | ".join(f"P = {count}" for count in ranks) + " | times |",
             "|" + " --- |" * (2 + len(ranks))]  # fmt: skip
    env = {"ONESIDED_TUNING": "off"}
    found = [said("@setup ", SETUP, count, timeout=timeout, env=env)["seconds"] for count in ranks]
    for name in found[0]:
        three = [np.quantile(each[name], (0.25, 0.5, 0.75)) for each in found]
        cells = [f"{1e3 * half:.3g} ({1e3 * low:.3g} to {1e3 * high:.3g})"
                 for low, half, high in three]  # fmt: skip
        factor = f"{three[-1][1] / three[0][1]:.0f}"
        lines.append("| " + " | ".join([name, *cells, factor]) + " |")
    return "\n".join(lines)


def over_bound(ranks: list[int], turns: int = 200, timeout: float = 180.0) -> str:
    """Markdown: medians of rounds over their bound, by the number of ranks and bytes of a block."""
    lines = []
    for count in ranks:
        rows = said("@bound ", BOUND, count, str(turns), timeout=timeout)["rows"]
        names = list(rows[0]["rounds"])
        if not lines:
            lines = ["| ranks | bytes | bound, us | " + " | ".join(f"`{n}`" for n in names) + " |",
                     "|" + " --- |" * (3 + len(names))]  # fmt: skip
        for row in rows:
            cells = [f"{row['rounds'][name] / row['bound']:.2f}" for name in names]
            head = [str(count), str(row["bytes"]), f"{1e6 * row['bound']:.3g}"]
            lines.append("| " + " | ".join([*head, *cells]) + " |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8, 16, 32, 64])
    parser.add_argument("-o", "--output", type=Path, default=None)
    parser.add_argument("--setup", action="store_true", help="times of setting up instead")
    parser.add_argument("--bound", action="store_true", help="times of rounds over a bound instead")
    options = parser.parse_args(arguments)
    if options.bound:
        print(over_bound(options.ranks))
        return 0
    if options.setup:
        print(setup_times(options.ranks))
        return 0
    by_ranks = []
    for ranks in options.ranks:
        calls: dict = {}
        for part in PARTS:
            calls |= counted(part, ranks)
        by_ranks.append(calls)
    text = table(options.ranks, by_ranks)
    if options.output is None:
        print(text)
    else:
        options.output.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
