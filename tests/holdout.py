"""How far the model's predictions are off where nothing was fitted: more ranks, sizes and patterns.

    python tests/holdout.py [-o docs/results/model-mpich.json]

The parameters are found between two ranks of a virtual node, and two of different ones; the link of
a node has a delay and a rate. Then exchanges on more nodes and ranks are predicted and timed, of
sizes between those that were fitted: uniform, irregular, and pairs of ranks that share the links.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import cluster
import mpi_harness

LINK = ["--delay", "1ms", "--rate", "200mbit"]
METHODS = "mpi,p2p,rma-notify,rma-fence,rma-lock"
PATTERNS = ["uniform", "irregular", "pairs"]
SIZES = ["3K", "48K", "192K"]
#: Nodes, and ranks of each: of the fit, and of what is predicted.
FITTED, PREDICTED = (2, 2), [(2, 2), (4, 2), (4, 4)]


class Unavailable(Exception):
    """There are no virtual nodes with slow links here; the text says why."""


def bench(nodes: tuple[int, int], folder: Path, words: list[str]) -> dict:
    """What ``bench model`` finds on so many nodes and ranks of each."""
    out = folder / "out.json"
    count, each = map(str, nodes)
    line = [sys.executable, str(mpi_harness.TESTS / "cluster.py"), "run", "--nodes", count]
    line += ["--ppn", each, *LINK, "--timeout", "300", "--", sys.executable, "-m"]
    line += ["onesided.apps", "bench", "model", "--json", str(out), *words]
    env = mpi_harness.environment({}, str(folder))
    done = subprocess.run(line, capture_output=True, text=True, timeout=330, check=False, env=env)
    if "cannot be shaped here" in done.stderr:
        raise Unavailable(done.stderr.strip())
    if done.returncode:
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
    return json.loads(out.read_text())


def held_out(seconds: float, iterations: int) -> list[dict]:
    """A row of results for every number of ranks and method: errors of predictions."""
    from onesided.apps.cli.statistics import Interval

    reason = cluster.available()
    if reason:
        raise Unavailable(reason)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        times = ["--seconds", str(seconds), "--iterations", str(iterations)]
        fitted = bench(FITTED, folder, times)
        (folder / "fit.json").write_text(json.dumps(fitted))
        for nodes in PREDICTED:
            words = ["--parameters", str(folder / "fit.json"), "--verify", "--comm", METHODS]
            words += ["--patterns", *PATTERNS, "--sizes", *SIZES, *times]
            found = bench(nodes, folder, words)["pattern"]
            known = {"nodes": nodes[0], "ranks": nodes[0] * nodes[1]}
            for method, errors in found["check_errors"].items():
                error = Interval.of(errors)
                rows.append({**known, "method": method, "exchanges": len(errors),
                             "error": error.median, "low": error.low, "high": error.high,
                             "worst": max(errors)})  # fmt: skip
            single = [(names[0], seen) for names, seen in found["check_choices"] if len(names) == 1]
            right = sum(one == seen for one, seen in single)
            among = sum(seen in names for names, seen in found["check_choices"])
            rows.append({**known, "method": "choice", "exchanges": len(found["check_choices"]),
                         "decided": len(single), "right": right, "among": among})  # fmt: skip
    return rows


def cell(row: dict) -> str:
    """Of a table: the median of the errors in %, where it lies with 95 %, and the worst."""
    if row["method"] != "choice":
        words = ("low", "error", "high", "worst")
        low, middle, high, worst = (f"{100 * row[name]:.0f}" for name in words)
        return f"{middle} ({low} to {high}), worst {worst}"
    return (
        f"{row['right']} of {row['decided']} decided, {row['among']} of {row['exchanges']} "
        "among the named"
    )


def results(rows: list[dict]) -> dict:
    """As the documentation has results: a row for every method, a column for every number."""
    from onesided.apps.cli.machine import library

    counts = sorted({row["ranks"] for row in rows})
    by_method: dict[str, list[str]] = {}
    for row in rows:
        by_method.setdefault(row["method"], []).append(cell(row))
    names = {"choice": "the fastest method, told rightly"}
    rounds = rows[0]["exchanges"]
    return {
        "title": f"Median error of a predicted round over {rounds} exchanges, % (95 %: from, to)",
        "command": "python tests/holdout.py",
        "measured_on": f"{library()}; virtual nodes on a 2-core virtual machine, links of "
        f"{LINK[1]} and {LINK[3]}; parameters from {FITTED[0]} nodes of {FITTED[1]}",
        "contestants": ["method"],
        "better": "lower",
        "columns": [f"{count} ranks" for count in counts],
        "rows": [
            {"name": names.get(method, f"`{method}`"), "measured": cells}
            for method, cells in by_method.items()
        ],
    }


def tell(found: dict, output: Path | None) -> None:
    """Print results, and write them where that is wanted."""
    text = json.dumps(found, indent=1)
    print(text)
    if output is not None:
        output.write_text(text + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=None)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each of four jobs")
    parser.add_argument("--iterations", type=int, default=9)
    options = parser.parse_args(arguments)
    tell(results(held_out(options.seconds, options.iterations)), options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
