"""Thousands of random legal programs, many in one job; how many went wrong, by method.

    .venv-mpich/bin/python tests/legal_programs_campaign.py --seeds 0:10000 --ranks 2,3,4 \
        --methods exchange:rma-notify,broadcast:p2p,mixed
    ... --nodes emulated | emulated2 | virtual | cliques     (one rank a node, two, real ones)
    ... --seeds 17:18 --ranks 3 --methods mixed --shrink 60  (replay one seed, make it smaller)

The words of METHODS are those of tests/programs/legal.py; ``all`` stands for every any-order method
of every family. Seeds run in chunks, one job each; a hang, a crash or an error costs the job, is
told with its seed, and the next seed goes on in a new one. Exit code 1 where a program failed.

A program that failed is kept, with its methods and nodes, in ``tests/programs/legal_kept``, and is
a test from then on. ``--shrink N`` tries up to N smaller programs for the first failure of every
method, and keeps the smallest.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mpi_harness
from jobs import CLIQUES
from legal_programs import Program, generate, problem, smaller

PROGRAM = mpi_harness.TESTS / "programs" / "legal.py"
KEPT = PROGRAM.parent / "legal_kept"
FAMILIES = {
    "exchange": ("mpi-persistent", "p2p", "rma-lock", "rma-lock-hier", "rma-notify", "rma-p2p",
                 "rma-node", "rma-pscw"),
    "broadcast": ("mpi-persistent", "p2p", "rma-linear", "rma-binomial", "rma-pipelined"),
    "reduction": ("mpi-persistent", "p2p", "rma-p2p"),
    "partitioned": ("p2p", "p2p-gather", "rma"),
}
ALL = [f"{family}:{name}" for family, names in FAMILIES.items() for name in names]
KINDS = ("hang", "wrong", "error", "crash", "leak")


@dataclass(frozen=True)
class Failure:
    """One program that went wrong."""

    seed: int
    ranks: int
    methods: str
    kind: str  # one of KINDS
    reason: str
    alone: bool = True  # False: all programs of the job came to their end, and something was left

    def __str__(self) -> str:
        return (f"{self.kind}: seed {self.seed} on {self.ranks} ranks with {self.methods}\n"
                f"{self.reason}")


@dataclass
class Tally:
    """What became of the programs of one set of methods."""

    passed: int = 0
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True)
class Place:
    """Where programs run."""

    nodes: str = "one"
    timeout: float = 10.0  # seconds for one program
    launch: Callable[..., Any] = mpi_harness.run

    def run(self, ranks: int, methods: str, seeds: str, programs: int, *more: str) -> Any:
        """A job; its outcome and the entries that it noted."""
        emulated = {"emulated": "+nodes:1", "emulated2": "+nodes:2"}.get(self.nodes, "")
        with tempfile.TemporaryDirectory(prefix="onesided-legal-") as folder:
            notes = Path(folder, "notes")
            outcome = self.launch(
                PROGRAM, ranks, str(notes), methods + emulated, seeds,
                "--timeout", f"{self.timeout:g}", *more,
                timeout=60.0 + self.timeout * (1 + programs / 10),
                nodes=2 if self.nodes == "virtual" else 1,
                env=CLIQUES if self.nodes == "cliques" else {},
            )
            entries = notes.read_text().splitlines() if notes.exists() else []
        return outcome, [json.loads(entry) for entry in entries]


def run_seeds(methods: str, ranks: int, start: int, stop: int, place: Place,
              most: int = 1 << 30) -> Tally:
    """The programs of these seeds; after a failure that ends the job the next one goes on."""
    tally = Tally()
    while start < stop and len(tally.failures) < most:
        outcome, entries = place.run(ranks, methods, f"{start}:{stop}", stop - start)
        ended = [entry for entry in entries if "wrong" in entry]
        for entry in ended:
            if entry["wrong"]:
                words = "\n".join(entry["wrong"][:6])
                tally.failures.append(Failure(entry["seed"], ranks, methods, "wrong", words))
            else:
                tally.passed += 1
        begun = [entry["begin"] for entry in entries if "begin" in entry]
        reached = max((entry["seed"] for entry in ended), default=start - 1) + 1
        if outcome.kind == "pass" and reached == stop:
            break
        if reached == stop:  # all programs came to their end, and then something was left
            kind = outcome.kind if outcome.kind in KINDS else "error"
            tally.failures.append(Failure(start, ranks, methods, kind, outcome.report(), False))
            break
        if not begun:
            raise RuntimeError(f"the job ran no program\n{outcome.report()}")
        errors = [entry["error"] for entry in entries if "error" in entry]
        kind = "error" if errors else outcome.kind if outcome.kind in KINDS else "crash"
        reason = "\n".join([*errors, str(generate(begun[-1], ranks)), outcome.report()])
        tally.failures.append(Failure(begun[-1], ranks, methods, kind, reason))
        start = begun[-1] + 1
    return tally


def fails(program: Program, methods: str, place: Place) -> str | None:
    """How a program goes wrong in a job of its own; None if it does not."""
    assert problem(program) is None, problem(program)
    with tempfile.TemporaryDirectory(prefix="onesided-legal-") as folder:
        file = Path(folder, "program.json")
        file.write_text(json.dumps([program.to_json()]))
        outcome, entries = place.run(len(program.ranks), methods, "0:1", 1, "--file", str(file))
    if any(entry.get("wrong") for entry in entries):
        return "wrong"
    return None if outcome.kind == "pass" else outcome.kind


@dataclass(frozen=True)
class Kept:
    """A program that failed, and how it was run."""

    program: Program
    methods: str
    nodes: str

    @classmethod
    def read(cls, path: Path) -> Kept:
        words = json.loads(path.read_text())
        return cls(Program.from_json(words.pop("program")), **words)

    def write(self, folder: Path) -> Path:
        names = "-".join(word.split(":")[-1] for word in self.methods.split("+"))
        path = folder / f"{self.program.seed}-{len(self.program.ranks)}-{names}-{self.nodes}.json"
        words = {"methods": self.methods, "nodes": self.nodes, "program": self.program.to_json()}
        folder.mkdir(exist_ok=True)
        path.write_text(json.dumps(words))
        return path


def shrink(program: Program, attempt: Callable[[Program], str | None], budget: int) -> Program:
    """The smallest program found that still fails in the same way.

    A step that made it pass is not tried again: most would not help in the smaller program either.
    """
    kind = attempt(program)
    rejected: set[Any] = set()
    found = kind is not None
    while found:
        found = False
        for step, candidate in smaller(program):
            if step in rejected:
                continue
            if budget <= 0:
                return program
            budget -= 1
            if attempt(candidate) == kind:
                program, found = candidate, True
                break
            rejected.add(step)
    return program


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:1000", help="start:stop")
    parser.add_argument("--ranks", default="2,3,4")
    parser.add_argument("--methods", default="all")
    parser.add_argument("--nodes", default="one",
                        choices=["one", "emulated", "emulated2", "virtual", "cliques"])
    parser.add_argument("--chunk", type=int, default=200, help="programs in one job")
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds for one program")
    parser.add_argument("--shrink", type=int, default=0, metavar="N")
    options = parser.parse_args(words)
    place = Place(options.nodes, options.timeout)
    methods = [name for word in options.methods.split(",")
               for name in (ALL if word == "all" else [word])]
    first, last = (int(word) for word in options.seeds.split(":"))
    failed = False
    for name in methods:
        whole = Tally()
        for ranks in (int(word) for word in options.ranks.split(",")):
            for start in range(first, last, options.chunk):
                stop = min(start + options.chunk, last)
                tally = run_seeds(name, ranks, start, stop, place)
                whole.passed += tally.passed
                whole.failures += tally.failures
                for failure in tally.failures:
                    print(failure, flush=True)
                    if failure.alone:
                        program = generate(failure.seed, ranks)
                        print("kept as", Kept(program, name, place.nodes).write(KEPT), flush=True)
        if options.shrink and whole.failures:
            worst = whole.failures[0]
            small = shrink(generate(worst.seed, worst.ranks),
                           lambda program, name=name: fails(program, name, place), options.shrink)
            Kept(small, name, place.nodes).write(KEPT)
            print(f"smallest program that fails with {name}:\n{small}", flush=True)
        kinds = Counter(failure.kind for failure in whole.failures)
        print(f"{name}: {whole.passed} passed", *(f"{n} {kind}" for kind, n in kinds.items()))
        failed |= bool(whole.failures)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
