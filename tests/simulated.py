"""Programs that the model simulates, beside the same programs: how far off is a whole iteration?

    python tests/simulated.py [--sizes 32 64 128] [-o docs/results/simulated-mpich.json]

Two ranks measure the parameters of the model; one rank alone gives the speed of its core, for each
size by a transform and a product. Then what two ranks take is simulated, as ``onesided model
--program`` does, and timed.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from pathlib import Path

import holdout
import mpi_harness
from mpi4py import MPI

from onesided.apps.cli.machine import library
from onesided.apps.modelling.bench_model import load
from onesided.apps.modelling.programs import PROGRAMS, ROW_BYTES, Core, Machine
from onesided.collectives.modelling.parameters import Parameters

METHODS = ["mpi", "p2p", "rma-notify", "rma-fence"]
TIMES = mpi_harness.TESTS / "programs" / "simulated_times.py"


def timed(ranks: int, method: str, sizes: list[int]) -> dict[str, dict[str, float]]:
    """Seconds by program and size."""
    outcome = mpi_harness.run(TIMES, ranks, method, *map(str, sizes), timeout=300)
    lines = [line for line in outcome.stdout.splitlines() if line.startswith("@simulated ")]
    if outcome.kind != "pass" or len(lines) != 1:
        raise RuntimeError(outcome.report())
    return json.loads(lines[0].removeprefix("@simulated "))


def parameters(seconds: float) -> Parameters:
    """What two ranks on this machine measure."""
    with tempfile.TemporaryDirectory() as name:
        path = str(Path(name) / "model.json")
        words = ["bench", "model", "--json", path, "--seconds", str(seconds)]
        outcome = mpi_harness.run("-m onesided.apps", 2, *words, timeout=300)
        if outcome.kind != "pass":
            raise RuntimeError(outcome.report())
        return load(MPI.COMM_SELF, path)


def machines(found: Parameters, sizes: list[int]) -> dict[int, Machine]:
    """By size one of two ranks, which compute as fast as one alone."""
    alone = timed(1, "p2p", sizes)
    made = {}
    for size in sizes:
        points = float(size**3)
        core = Core(
            memory=points * ROW_BYTES / alone["spmv"][str(size)],
            operations=3 * 5.0 * points * math.log2(size) / alone["fft"][str(size)],
        )
        made[size] = Machine(found, core, ranks=2, per_node=2)
    return made


def compared(sizes: list[int], seconds: float) -> dict[tuple[str, str, int], tuple[float, float]]:
    """By program, method and size, the seconds that were simulated, and those measured."""
    simulated = machines(parameters(seconds), sizes)
    found = {}
    for method in METHODS:
        for program, measured in timed(2, method, sizes).items():
            for size in sizes:
                forecast = PROGRAMS[program](simulated[size], float(size**3), method)
                found[program, method, size] = forecast.seconds, measured[str(size)]
    return found


def results(found: dict[tuple[str, str, int], tuple[float, float]]) -> dict:
    """As the documentation has results: a row for every program and method, a column for a size."""
    sizes = sorted({size for _, _, size in found})
    rows = []
    for program, method in dict.fromkeys((program, method) for program, method, _ in found):
        times = [found[program, method, size] for size in sizes]
        cells = [f"{one / two:.2f} of {1e3 * two:.3g} ms" for one, two in times]
        rows.append({"name": f"{program}, `{method}`", "measured": cells})
    return {
        "title": "Simulated over measured",
        "command": "python tests/simulated.py",
        "measured_on": f"{library()}; 2 ranks on a 2-core virtual machine, medians of 15",
        "contestants": ["program and method"],
        "better": "lower",
        "columns": [f"{size}³" for size in sizes],
        "rows": rows,
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 64, 128])
    parser.add_argument("--seconds", type=float, default=20.0, help="for the parameters")
    parser.add_argument("-o", "--output", type=Path, default=None)
    options = parser.parse_args(arguments)
    holdout.tell(results(compared(options.sizes, options.seconds)), options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
