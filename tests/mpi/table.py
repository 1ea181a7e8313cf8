"""The conformance table: its rows, its axes, and the cells of which it is made.

A row is a collective, or a form of one, a halo, or partitioned sends. A :class:`Cell` is a row with
a value of every axis: the method, the length of a block, the type, who receives into which memory,
the layout, and the nodes. Lengths come from the code: :func:`thresholds` reads every number of
bytes that a module of the package names, and each of them is crossed. Cells are chosen so that
every pair of values occurs, from seeds that never change. What a cell names is made by
:mod:`subjects`.
"""

from __future__ import annotations

import ast
import functools
import importlib
import itertools
import pkgutil
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kinds import ELEMENTS, KINDS

from onesided import collectives
from onesided.collectives import methods, partitioned_methods
from onesided.collectives.testing import OPERATIONS, Operation

# -- the axes -------------------------------------------------------------------------------------

LEAST, MOST = 512, 1 << 22  # bytes of a block of a usual cell
SHORT = 1 << 17  # of one in a short run
CORE = Path(__file__).resolve().parent.parent.parent / "collectives" / "core"
#: Numbers of this size that the code names and that are no number of bytes of a collective.
NOT_LENGTHS = {
    "broadcast.one_sided.MOST_SEGMENTS": "a number of segments",
    "passive.notices.LENGTH": "of a notice of its own",
    "partitioned.messages.EAGER": "of partitioned sends",
    "memory.BOARD": "of marks",
    "halo.plan.SHORT": "of a halo",
    "partitioned.request.AGGREGATE": "of partitioned sends",
    "testing.LONG": "of the rows that the package brings",
    "scripts.ALONE": "of a computation",
}


@functools.cache
def thresholds() -> dict[str, int]:
    """The numbers of bytes that modules of the package name, in Python and in C, by name."""
    found: dict[str, int] = {}
    for module in pkgutil.walk_packages(collectives.__path__, f"{collectives.__name__}."):
        loaded = importlib.import_module(module.name)
        path = Path(loaded.__file__ or "")
        if path.suffix != ".py":
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for goal in _goals(node):
                value = vars(loaded).get(goal)
                if type(value) is int:
                    found[f"{module.name.removeprefix(collectives.__name__ + '.')}.{goal}"] = value
    for path in sorted(CORE.glob("*.[ch]")):
        for words in re.findall(r"enum \{([^}]*)\}", path.read_text(encoding="utf-8")):
            for name, one, shift in re.findall(r"([A-Z_]+) = (\d+)(?: << (\d+))?", words):
                found[f"{path.stem}.{name}"] = int(one) << int(shift or 0)
    return {name: at for name, at in found.items()
            if LEAST <= at <= MOST and name not in NOT_LENGTHS}  # fmt: skip


def _goals(node: ast.stmt) -> Iterator[str]:
    """The public constants that a statement defines."""
    goals = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    for goal in goals:
        for name in goal.elts if isinstance(goal, ast.Tuple) else [goal]:
            if isinstance(name, ast.Name) and name.id.isupper() and name.id[0] != "_":
                yield name.id


#: Into what ranks receive: "slot" is the request's own with one slot, "odd" lies at an address that
#: suits no type, "mixed" differs by rank, "root" is significant on one rank only.
MEMORY = ["none", "slot", "plain", "odd", "window", "mixed", "root"]
#: "some": on every other rank only.
#: "in pieces": no call of MPI takes the data of a block at once, as beyond a gibibyte.
LAYOUTS = ["usual", "holes", "in place", "holes in place", "holes on some", "in place on some",
           "in pieces", "holes in pieces", "holes on some in pieces"]  # fmt: skip
#: Emulated nodes of so many ranks, and two nodes whose ranks do not follow each other.
IN_TURN = "in turn"
NODES = ["", "1", "2", IN_TURN]
ROOTED = ("Gather", "Gatherv", "Scatter", "Scatterv", "Bcast", "Reduce")
REDUCTIONS = ["Reduce", "Allreduce", "Reduce_scatter", "Reduce_scatter_block", "Scan", "Exscan"]
BOXES = ["boxes", "boxes of 9 axes"]


#: An Alltoallv of blocks of so many thirds by source, target and size.
PATTERNS = {name: Operation("Alltoallv", count) for name, count in {
    "Alltoallv, uneven": lambda a, b, size: (a + 2 * b) % 4,
    "Alltoallv of nothing": lambda a, b, size: 0,
    "Alltoallv, alone": lambda a, b, size: 3 * (a == b),
    "Alltoallv to the next": lambda a, b, size: 3 * (b == (a + 1) % size),
    "Alltoallv from the first": lambda a, b, size: 3 * (a == 0),
    "Alltoallv to the last": lambda a, b, size: 3 * (b == size - 1),
}.items()}  # fmt: skip
EXCHANGES = OPERATIONS | PATTERNS
ROWS = [*EXCHANGES, *REDUCTIONS, "Barrier", *BOXES]
#: What is no collective.
OTHERS = ["halo", "grid", "partitioned"]


def family(row: str) -> str:
    """What methods it has."""
    if row in REDUCTIONS or row == "Barrier":
        return "reduction"
    if row in OTHERS:
        return "halo" if row == "grid" else row
    return "broadcast" if row == "Bcast" else "exchange"


@functools.cache
def known(row: str) -> dict[str, bool]:
    """Its methods, and whether ranks may start and complete their requests in any order."""
    kind = family(row)
    if kind == "halo":
        return dict.fromkeys(("staged", "store", "message"), True)
    if kind == "partitioned":
        return dict.fromkeys(("auto", *partitioned_methods()), True)
    return {name: method.any_order for name, method in methods(kind).items()}


@dataclass(frozen=True)
class Length:
    """So many elements more than fill a threshold, by a block or by those of all ranks."""

    nbytes: int
    more: int
    whole: bool = False

    def __str__(self) -> str:
        return f"{self.nbytes}{self.more:+d}{'all' if self.whole else ''}"

    def elements(self, itemsize: int, size: int) -> int:
        per = itemsize * (size if self.whole else 1)
        return max(0, self.nbytes // per + self.more)


def lengths() -> list[Length]:
    """Nothing, one, odd, around every threshold, and over a mebibyte in odd lengths."""
    crossed = sorted(set(thresholds().values()))
    return [
        *(Length(0, more) for more in (0, 1, 3, 7)),
        *(Length(at, more, whole=more == 0) for at in crossed for more in (-1, 0, 1)),
        *(Length(8 * count, 0) for count in (131_073, 262_144, 375_001)),
    ]  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """A row with a value of each axis."""

    row: str
    method: str
    length: Length = Length(0, 3)
    kind: str = "i8"
    memory: str = "none"
    layout: str = "usual"
    root: int = 0
    nodes: str = ""
    way: str = ""  # of the column
    said: tuple[tuple[str, str], ...] = ()  # by info

    def __str__(self) -> str:
        words = [self.row, self.method, self.length, self.kind, self.memory, self.layout]
        words += [f"to {self.root}"] if self.row in ROOTED else []
        words += [f"nodes {self.nodes}"] if self.nodes else []
        words += [f"{key} {value}" for key, value in self.said]
        return ", ".join(map(str, [*words, *([self.way] if self.way else [])]))

    @property
    def any_order(self) -> bool:
        return known(self.row)[self.method]

    @property
    def refused(self) -> bool:
        """Whether it may be refused: the order of the ranks is kept only where those of a node
        follow each other."""
        ordered = self.row in ("Scan", "Exscan") or (
            self.row in REDUCTIONS and not KINDS[self.kind].commutes)
        return self.method == "rma-p2p" and ordered and self.nodes == IN_TURN


def allowed(part: Mapping[str, Any]) -> bool:
    """Whether the values that have been chosen fit together."""
    row = part.get("row")
    if row is None:
        return True
    kind, method, element = family(row), part.get("method"), part.get("kind")
    memory, layout = part.get("memory", "plain"), part.get("layout", "usual")
    if method is not None and method not in known(row):
        return False
    if part.get("root") and row not in ROOTED:
        return False
    if part.get("nodes") == IN_TURN and row not in REDUCTIONS:
        return False
    if element is not None and element not in (KINDS if row in REDUCTIONS else ELEMENTS):
        return False
    if row in OTHERS:
        return _other(row, method, memory, layout, part)
    if row == "Barrier":
        return (part.get("length") in (None, Length(0, 1)) and layout == "usual"
                and memory == "plain" and element in (None, "i8"))  # fmt: skip
    if "some" in layout and not _on_some(row, method, layout, element):
        return False
    if row == "Bcast":
        return memory in ("plain", "window", "root", "mixed", "odd") and "place" not in layout
    if kind == "reduction":
        if element is not None and KINDS[element].ours and str(method).startswith(("mpi", "auto")):
            return False  # the MPI's own answer
        return memory in ("plain", "window", "odd") and "holes" not in layout
    if row in BOXES:
        return layout == "usual" and memory != "odd"
    if "place" in layout and EXCHANGES[row].in_place(0, 2, 0) is None:
        return False
    if layout != "usual" and memory not in ("plain", "window"):
        return False
    if "holes" in layout and element == ">i4":
        return False  # a type with holes says how its bytes lie
    if not EXCHANGES[row].learns(0, 0) and not EXCHANGES[row].learns(1, 0):
        return memory in ("plain", "window", "odd")
    return True


def _other(row: str, method: Any, memory: str, layout: str, part: Mapping[str, Any]) -> bool:
    """Of what is no collective."""
    if memory not in ("plain", "window") or (row == "partitioned" and method == "rma"
                                             and memory != "window"):  # fmt: skip
        return False
    if layout not in (("usual", "holes") if row == "halo" else ("usual",)) or part.get("nodes"):
        return False
    if row == "halo" and layout == "holes" and memory == "window":
        return False
    numbers = ("i8", "f4", "f8", "c8", "c16")
    return part.get("kind") in (None, *numbers) if row == "grid" else part.get("kind") != "nan"


def _on_some(row: str, method: Any, layout: str, element: Any) -> bool:
    """MPI's own collectives want MPI.IN_PLACE on all ranks or on none."""
    if "place" in layout and str(method).startswith("mpi"):
        return False
    whole = ("Allgather", "Allgatherv", "Alltoall", "Alltoallv", "Bcast")
    return row in whole and element in (None, "i8", "f4", "f8", "c8", "c16", "?")


def covering(
    axes: Mapping[str, list[Any]], strength: int, seed: int,
    fits: Callable[[Mapping[str, Any]], bool] = allowed,
    main: frozenset[str] | set[str] = frozenset(),
) -> list[dict[str, Any]]:  # fmt: skip
    """Combinations in which each allowed tuple of values occurs that ``strength`` axes have.

    Where there are ``main`` axes, of the tuples with one of them.
    """
    rng, names = random.Random(seed), list(axes)
    missing = dict.fromkeys(
        combination
        for some in itertools.combinations(names, strength)
        if not main or main & set(some)
        for combination in itertools.product(*([(name, value) for value in axes[name]]
                                               for name in some))
        if fits(dict(combination))
    )  # fmt: skip
    rows = []
    while missing:
        wanted = next(iter(missing))
        chosen = dict(wanted)
        tries = 50 if any(fits({**chosen, "row": row}) for row in axes.get("row", [""])) else 0
        row = next(filter(None, (_filled(dict(chosen), axes, missing, strength, rng, fits)
                                 for _ in range(tries))), None)  # fmt: skip
        if row is None:
            del missing[wanted]  # nothing else fits with these
            continue
        rows.append({name: row[name] for name in names})
        for some in itertools.combinations(names, strength):
            missing.pop(tuple((name, row[name]) for name in some), None)
    return rows


def _filled(
    row: dict[str, Any], axes: Mapping[str, list[Any]], missing: Mapping[Any, None], strength: int,
    rng: random.Random, fits: Callable[[Mapping[str, Any]], bool],
) -> dict[str, Any] | None:  # fmt: skip
    """With a value for every axis, each the one of some that brings most of what is missing."""
    place = {name: i for i, name in enumerate(axes)}
    for name in sorted(axes, key=lambda name: (name != "row", rng.random())):
        if name in row:
            continue
        some = rng.sample(axes[name], min(8, len(axes[name])))
        some += rng.sample(axes[name], len(axes[name]))
        known = sorted(row, key=place.__getitem__)
        best, most = None, -1
        for tried, value in enumerate(some):
            if tried >= 8 and most >= 0:
                break
            if not fits({**row, name: value}):
                continue
            gain = sum(
                tuple(sorted([(name, value), *((other, row[other]) for other in others)],
                             key=lambda pair: place[pair[0]])) in missing
                for others in itertools.combinations(known, strength - 1)
            )  # fmt: skip
            if gain > most:
                best, most = value, gain
        if most < 0:
            return None
        row[name] = best
    return row


@functools.cache
def all_methods(*rows: str) -> list[str]:
    """Those of these rows, ``auto`` first, but not those that repeat a paper."""
    names = dict.fromkeys(name for row in rows for name in known(row))
    first = ["auto"] if "auto" in names else []
    return first + [name for name in names if name != "auto"
                    and not name.endswith(("-paper", "-pscw"))]  # fmt: skip


def is_whole(job: Any) -> bool:
    """Whether all pairs are due on a job, or each value once."""
    return job.name == "full"


def emulates(job: Any) -> bool:
    return any(key == "ranks_per_node" for key, _ in getattr(job, "options", ()))


@functools.cache
def data_cells(job: Any) -> list[Cell]:
    """Cells of the column that looks at data in every regime."""
    found = []
    for number, rows in enumerate((ROWS, OTHERS)):
        axes = {
            "row": rows,
            "method": all_methods(*rows),
            "length": lengths(),
            "kind": [*ELEMENTS, *(KINDS if rows is ROWS else ())],
            "memory": MEMORY,
            "layout": LAYOUTS,
            "nodes": [""] if emulates(job) else NODES,
            "root": [0, job.ranks - 1] if job.ranks > 1 else [0],
        }
        axes["kind"] = list(dict.fromkeys(axes["kind"]))
        strength = 2 if is_whole(job) or (str(job) == "2" and rows is ROWS) else 1
        if not is_whole(job):
            axes["length"] = [length for length in lengths() if length.nbytes <= SHORT]
        main = {"method", "memory"} if strength == 2 else frozenset()
        found += covering(axes, strength, 1000 + number + job.ranks, main=main)
    return [Cell(**row) for row in found]


def cells(
    *ways: str,
    rows: list[str] | None = None,
    keep: Callable[[Cell], bool] = lambda cell: True,
    lengths: tuple[Length, ...] = (Length(0, 3), Length(12_000, 1), Length(1 << 20, 1)),
    memory: tuple[str, ...] = ("none", "slot", "plain", "odd", "window", "mixed"),
) -> Callable[[Any], list[Cell]]:
    """Cells of another column, which it does in some ways."""

    @functools.cache
    def chosen(job: Any) -> list[Cell]:
        wanted, found = rows or [*ROWS, *OTHERS], []
        for some in ([row for row in wanted if row not in OTHERS],
                     [row for row in wanted if row in OTHERS]):  # fmt: skip
            if some:
                found += combined(job, some)
        return found

    def combined(job: Any, some: list[str]) -> list[Cell]:
        axes = {"method": all_methods(*some), "way": list(ways), "row": some,
                "length": [*lengths, *lengths[:-1]],  # the longest one is not due as often
                "memory": list(memory),
                "root": [job.ranks - 1, 0][: job.ranks],
                "kind": ["i8", "f8", "24 bytes in order", "c16"]}  # fmt: skip

        def fits(part: Mapping[str, Any]) -> bool:
            if part.get("row") == "Barrier" and part.get("length") is not None:
                part = {**part, "length": Length(0, 1)}
            if not allowed({**part, "layout": "usual"}):
                return False
            return not {"row", "method"} <= part.keys() or keep(Cell(part["row"], part["method"]))

        seed = sum(map(ord, "".join(ways)))
        if not is_whole(job):
            return [Cell(**row) for row in covering(axes, 1, seed, fits)]
        main = {"method", "way"}  # pairs with one of these
        return [Cell(**row) for row in covering(axes, 2, seed, fits, main)]

    return chosen


def any_order(cell: Cell) -> bool:
    return cell.any_order


def strict(cell: Cell) -> bool:
    return not cell.any_order
