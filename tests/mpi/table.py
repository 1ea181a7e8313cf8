"""The conformance table: its rows, its axes, and the cells of which it is made.

A row is a collective, or a form of one. A :class:`Cell` is a row with a value of every axis: the
method, the length of a block, the type, who receives into which memory, and the layout. Lengths
come from the code: :func:`thresholds` reads every number of bytes that a module of the package
names, and each of them is crossed. Cells are chosen so that every pair of values occurs, from
seeds that never change. :func:`make` makes what a cell names: a request, its data, and what must
come of them, which nothing of the package computes.
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

import numpy as np
from mpi4py import MPI

from onesided import collectives
from onesided.collectives import empty, free, methods
from onesided.collectives.testing import OPERATIONS, sources, targets

# -- the axes -------------------------------------------------------------------------------------

LEAST, MOST = 512, 1 << 22  # bytes of a block of a usual cell
SHORT = 1 << 17  # of one in a short run
CORE = Path(__file__).resolve().parent.parent.parent / "collectives" / "core"
#: Numbers of this size that the code names and that are no number of bytes of a collective.
NOT_LENGTHS = {
    "memory.PAGE": "what memory is rounded to",
    "broadcast.one_sided.MOST_SEGMENTS": "a number of segments",
    "passive.notices.LENGTH": "of a notice of its own",
    "partitioned.messages.EAGER": "of partitioned sends",
    "memory.BOARD": "of marks",
    "halo.plan.SHORT": "of a halo",
    "partitioned.request.AGGREGATE": "of partitioned sends",
    "testing.LONG": "of the rows that the package brings",
    "scripts.ALONE": "of a computation",
    "tuning.race.ROUNDS": "a number of rounds",
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


#: Types of elements; "nan" has one among its doubles, "unaligned" lies at an odd address.
KINDS = ["i8", "f4", "f8", "c8", "c16", "?", "V12", "V24", "V40", ">i4", "unaligned", "nan"]
REDUCED = ["i8", "f4", "f8", "c16", "?", "V12", "V24", "V40", "unaligned", "nan"]
#: Into what ranks receive: "slot" is the request's own with one slot, "mixed" differs by rank,
#: "root" is significant on one rank only.
MEMORY = ["none", "slot", "plain", "window", "mixed", "root"]
LAYOUTS = ["usual", "holes", "in place", "holes in place"]
ROOTED = ("Gather", "Gatherv", "Scatter", "Scatterv", "Bcast", "Reduce")
REDUCTIONS = ["Reduce", "Allreduce", "Reduce_scatter", "Reduce_scatter_block", "Scan", "Exscan"]
BOXES = ["boxes", "boxes of 9 axes"]
ROWS = [*OPERATIONS, *REDUCTIONS, "Barrier", *BOXES]


def family(row: str) -> str:
    """What methods it has."""
    if row in REDUCTIONS or row == "Barrier":
        return "reduction"
    return "broadcast" if row == "Bcast" else "exchange"


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
    way: str = ""  # of the column

    def __str__(self) -> str:
        words = [self.row, self.method, self.length, self.kind, self.memory, self.layout]
        root = f" to {self.root}" if self.row in ROOTED else ""
        return ", ".join(map(str, words)) + root + (f", {self.way}" if self.way else "")

    @property
    def any_order(self) -> bool:
        return methods(family(self.row))[self.method].any_order


def allowed(part: Mapping[str, Any]) -> bool:
    """Whether the values that have been chosen fit together."""
    row = part.get("row")
    if row is None:
        return True
    kind, method = family(row), part.get("method")
    memory, layout = part.get("memory", "plain"), part.get("layout", "usual")
    if method is not None and method not in methods(kind):
        return False
    if part.get("root") and row not in ROOTED:
        return False
    if row == "Barrier":
        return (part.get("length") in (None, Length(0, 1)) and layout == "usual"
                and memory == "plain" and part.get("kind") in (None, "i8"))  # fmt: skip
    if row == "Bcast":
        return memory in ("plain", "window", "root", "mixed") and "place" not in layout
    if kind == "reduction":
        if part.get("kind") == "nan" and str(method).startswith(("mpi", "auto")):
            return False  # the MPI's own answer
        return (part.get("kind") in (None, *REDUCED) and memory in ("plain", "window")
                and "holes" not in layout)  # fmt: skip
    if row in BOXES:
        return layout == "usual" and part.get("kind") not in ("unaligned",)
    if "place" in layout and OPERATIONS[row].in_place(0, 2, 0) is None:
        return False
    if layout != "usual" and memory not in ("plain", "window"):
        return False
    if "holes" in layout and part.get("kind") == ">i4":
        return False  # a type with holes says how its bytes lie
    if not OPERATIONS[row].learns(0, 0) and not OPERATIONS[row].learns(1, 0):
        return memory in ("plain", "window")
    return True


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
        row = next(filter(None, (_filled(dict(wanted), axes, missing, strength, rng, fits)
                                 for _ in range(50))), None)  # fmt: skip
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
def all_methods() -> tuple[str, ...]:
    """Those of all collectives, ``auto`` first, but not those that repeat a paper."""
    names = dict.fromkeys(["auto"])
    for kind in ("exchange", "broadcast", "reduction"):
        names |= dict.fromkeys(methods(kind))
    return tuple(name for name in names if not name.endswith(("-paper", "-pscw")))


def is_whole(job: Any) -> bool:
    """Whether all pairs are due on a job, or each value once."""
    return job.name == "full"


@functools.cache
def data_cells(job: Any) -> list[Cell]:
    """Cells of the column that looks at data in every regime."""
    axes = {
        "row": ROWS,
        "method": list(all_methods()),
        "length": lengths(),
        "kind": KINDS,
        "memory": MEMORY,
        "layout": LAYOUTS,
        "root": [0, job.ranks - 1] if job.ranks > 1 else [0],
    }
    seed = 1000 + job.ranks
    if not is_whole(job):
        axes["length"] = [length for length in lengths() if length.nbytes <= SHORT]
        if str(job) != "2":
            return [Cell(**row) for row in covering(axes, 1, seed)]
    return [Cell(**row) for row in covering(axes, 2, seed, main={"method", "memory"})]


def cells(
    *ways: str,
    rows: list[str] | None = None,
    keep: Callable[[Cell], bool] = lambda cell: True,
    lengths: tuple[Length, ...] = (Length(0, 3), Length(12_000, 1), Length(1 << 20, 1)),
    memory: tuple[str, ...] = ("none", "slot", "plain", "window", "mixed"),
) -> Callable[[Any], list[Cell]]:
    """Cells of another column, which it does in some ways."""

    @functools.cache
    def chosen(job: Any) -> list[Cell]:
        axes = {"method": list(all_methods()), "way": list(ways), "row": rows or ROWS,
                "length": list(lengths), "memory": list(memory),
                "root": [job.ranks - 1, 0][: job.ranks],
                "kind": ["i8", "f8", "unaligned"]}  # fmt: skip

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


# -- data -----------------------------------------------------------------------------------------


def element(kind: str) -> np.dtype:
    return np.dtype({"unaligned": "f8", "nan": "f8"}.get(kind, kind))


def values(kind: str, numbers: Any) -> np.ndarray:
    """An element for each number; equal ones for equal numbers."""
    numbers = np.asarray(numbers, np.int64)
    dtype = element(kind)
    if dtype.kind == "V":
        return _bytes(dtype.itemsize)[numbers % 251]
    if dtype.kind == "b":
        few = np.arange(30)
        return ((few * 7 // 3 + few // 5) % 2 == 0)[numbers % 30]
    found = (numbers % (1 << 22)).astype(dtype)
    if dtype.kind == "c":
        found += 1j * (numbers % 13).astype(dtype)
    if kind == "nan":
        found[numbers % 5 == 2] = np.nan
    return found


@functools.cache
def _bytes(itemsize: int) -> np.ndarray:
    """An element of so many bytes for each number below 251."""
    columns = np.arange(251)[:, None] * 31 + np.arange(itemsize)
    return (columns % 251).astype(np.uint8).view(f"V{itemsize}").reshape(-1)


def array(kind: str, count: int) -> np.ndarray:
    dtype = element(kind)
    if kind == "unaligned":
        return np.frombuffer(bytearray(dtype.itemsize * count + 4), dtype, count, 4)
    return np.empty(count, dtype)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and (a.tobytes() == b.tobytes())


def datatype(kind: str) -> tuple[MPI.Datatype, bool]:
    """The MPI's type of an element, and whether it has to be freed."""
    dtype = element(kind)
    if dtype.kind == "V":
        return MPI.BYTE.Create_contiguous(dtype.itemsize).Commit(), True
    return MPI.Datatype.fromcode(dtype.newbyteorder("=").char), False


class Buffer:
    """Blocks with a gap before each that has a displacement of its own."""

    def __init__(self, counts: list[int], form: str, kind: str, holes: bool,
                 make: Callable[[int], np.ndarray]) -> None:  # fmt: skip
        gap = 1 if form in ("vector", "types") else 0
        self.counts, self.form, self.step = counts, form, 2 if holes else 1
        self.displs, at = [], 0
        for count in counts:
            self.displs.append(at + gap)
            at += count + gap
        self.array = make(self.step * (at + 1))
        self.guard = values(kind, np.full(1, 77))
        self.array[:] = self.guard
        self.type, self.owned = (None, False)
        if holes or form == "types":
            basic, owned = datatype(kind)
            self.type, self.owned = basic, owned
            if holes:
                self.type = basic.Create_resized(0, 2 * self.array.itemsize).Commit()
                self.owned = True
                if owned:
                    basic.Free()

    def part(self, place: int) -> np.ndarray:
        start, stop = self.displs[place], self.displs[place] + self.counts[place]
        return self.array[self.step * start : self.step * stop : self.step]

    def spec(self) -> list[Any]:
        kind = [] if self.type is None else [self.type]
        if self.form == "vector":
            return [self.array, self.counts, self.displs, *kind]
        if self.form == "types":
            places = [self.array.itemsize * self.step * displ for displ in self.displs]
            return [self.array, self.counts, places, kind * len(self.counts)]
        count = self.counts[0] if self.counts else 0
        return [self.array[: self.step * count * len(self.counts)] if not kind else self.array,
                count, *kind] if kind else [self.array[: count * len(self.counts)]]  # fmt: skip

    def untouched(self) -> bool:
        """Whether what belongs to no block is as it was."""
        inside = np.zeros(len(self.array), bool)
        for start, count in zip(self.displs, self.counts, strict=True):
            inside[self.step * start : self.step * (start + count) : self.step] = True
        rest = self.array[~inside]
        return same(rest, np.repeat(self.guard, len(rest)))

    def free(self) -> None:
        if self.owned:
            self.type.Free()


# -- requests -------------------------------------------------------------------------------------


class Subject:
    """A request with its data. ``window``: memory from empty, given back at the end."""

    request: Any
    window: np.ndarray | None = None
    graph: MPI.Distgraphcomm | None = None

    def __init__(self, comm: MPI.Intracomm, cell: Cell, options: Mapping[str, str],
                 beside: Subject | None = None) -> None:  # fmt: skip
        self.comm, self.cell, self.beside = comm, cell, beside
        self.rank, self.size = comm.rank, comm.size
        self.info = {key: options[key] for key in ("ranks_per_node", "progress") if key in options}
        if cell.memory == "slot":
            self.info["slots"] = "1"
        self.count = cell.length.elements(element(cell.kind).itemsize, comm.size)

    def memory(self, rank: int) -> str:
        """Into what a rank receives: own, plain or window."""
        named = self.cell.memory
        if named == "mixed":
            return ("plain", "own", "window")[rank % 3]
        if named == "root":
            return "plain" if rank == self.cell.root else "own"
        return {"none": "own", "slot": "own"}.get(named, named)

    def room(self, length: int) -> np.ndarray:
        """Collective. Memory of this rank's kind."""
        kinds = [self.memory(rank) for rank in range(self.size)]
        mine = kinds[self.rank] == "window"
        if "window" in kinds:
            self.window = empty(self.comm, length if mine else 0, element(self.cell.kind))
        return self.window if mine else array(self.cell.kind, length)

    def fill(self, turn: int) -> None: ...

    def check(self, turn: int, got: Any) -> None: ...

    def scribble(self) -> None: ...

    def round(self, turn: int) -> None:
        self.fill(turn)
        self.request.Start()
        self.check(turn, self.request.Wait())
        self.scribble()

    def free(self) -> None:
        """Collective."""
        self.request.Free()
        self.give_back()

    def give_back(self) -> None:
        if self.window is not None:
            window, self.window = self.window, None
            for name, value in list(vars(self).items()):
                if isinstance(value, np.ndarray):
                    setattr(self, name, None)
            del value
            free(window)


class Exchanged(Subject):
    """One of the exchanges, or the broadcast."""

    def __init__(self, comm: MPI.Intracomm, cell: Cell, options: Mapping[str, str],
                 beside: Subject | None = None) -> None:  # fmt: skip
        super().__init__(comm, cell, options, beside)
        row, rank, size, root = OPERATIONS[cell.row], self.rank, self.size, cell.root
        self.operation = row
        holes, in_place = "holes" in cell.layout, "place" in cell.layout
        self.held = row.in_place(rank, size, root) if in_place else None
        sends = self.counts(row.sends, rank)
        receives = self.counts(row.receives, rank)
        self.send = self.recv = None
        if sends is not None:
            self.send = Buffer(sends, row.forms[0], cell.kind, holes,
                               lambda length: array(cell.kind, length))  # fmt: skip
        if cell.row == "Bcast" and sends is not None:
            self.room(0)
        self.owns = self.memory(rank) == "own" and row.learns(rank, root) and not in_place
        if receives is not None:
            self.recv = Buffer(receives, row.forms[1], cell.kind, holes, self.room)
        elif cell.row != "Bcast":
            self.room(0)
        send = None if self.send is None else self.send.spec()
        recv = None if self.recv is None or self.owns else self.recv.spec()
        if self.held is not None:
            send, recv = (MPI.IN_PLACE, recv) if row.kept == "send" else (send, MPI.IN_PLACE)
        if row.on_graph and beside is not None:
            self.graph = beside.graph
        elif row.on_graph:
            self.graph = comm.Create_dist_graph_adjacent(sources(rank, size), targets(rank, size))
        self.request = row.init(
            self.graph or comm, send, recv, root, method=cell.method, info=self.info or None
        )

    def counts(self, counts: Callable[..., list[int] | None], rank: int) -> list[int] | None:
        found = counts(rank, self.size, self.cell.root)
        n = self.count
        longer = {0: 0, 1: (n + 2) // 3, 2: max(n - 1, 0), 3: n}
        return None if found is None else [longer[count] for count in found]

    def numbers(self, turn: int, rank: int) -> list[np.ndarray] | None:
        counts = self.counts(self.operation.sends, rank)
        return None if counts is None else [
            values(self.cell.kind, (turn * self.size + rank) * 131 + place * 17 + np.arange(count))
            for place, count in enumerate(counts)
        ]  # fmt: skip

    def fill(self, turn: int) -> None:
        mine = self.numbers(turn, self.rank)
        if self.recv is not None:
            for place in range(len(self.recv.counts)):
                self.recv.part(place)[:] = values(self.cell.kind, np.full(1, 88))
        if mine is None:
            return
        if self.held is not None and self.operation.kept == "send":
            for place, which in self.held.items():
                self.recv.part(place)[:] = mine[which]
        else:
            for place, block in enumerate(mine):
                self.send.part(place)[:] = block

    def check(self, turn: int, got: Any) -> None:
        assert self.send is None or self.send.untouched(), "the send buffer was written"
        kept = self.held is not None and self.operation.kept == "recv"
        if self.recv is None or kept:
            assert got is None or self.cell.row == "Bcast", f"Wait returned {got!r}"
            return
        sent = [self.numbers(turn, rank) for rank in range(self.size)]
        want = self.operation.result(sent, self.rank, self.size, self.cell.root)
        if self.owns:
            whole = np.concatenate([*want, want[0][:0]]).astype(element(self.cell.kind))
            assert same(np.asarray(got).reshape(-1), whole), f"round {turn}"
            return
        for place, block in enumerate(want):
            found = np.ascontiguousarray(self.recv.part(place))
            if not same(found, block):
                wrong = np.flatnonzero(found.view(f"V{found.itemsize}") !=
                                       block.view(f"V{found.itemsize}"))  # fmt: skip
                raise AssertionError(f"round {turn}, block {place}, wrong from {wrong[:3]}: "
                                     f"{found[wrong[:3]]}, not {block[wrong[:3]]}")  # fmt: skip
        assert self.recv.untouched(), "bytes outside of the blocks were written"

    def scribble(self) -> None:
        if self.send is not None and self.cell.row != "Bcast":
            for place in range(len(self.send.counts)):
                self.send.part(place)[:] = values(self.cell.kind, np.full(1, 99))

    def give_back(self) -> None:
        for buffer in (self.send, self.recv):
            if buffer is not None:
                buffer.free()
        self.send = self.recv = None
        super().give_back()
        if self.graph is not None and self.beside is None:
            self.graph.Free()


def _ordered(a: Any, b: Any, datatype: MPI.Datatype) -> None:
    """Of tuples, not commuting: the sum, the right one's, the left one's, the most."""
    width, char = _columns(datatype.Get_size())
    left = np.frombuffer(a, char).reshape(-1, width)
    right = np.frombuffer(b, char).reshape(-1, width)
    right[:, 0] += left[:, 0]
    right[:, 2] = left[:, 2]
    right[:, 3:] = np.maximum(left[:, 3:], right[:, 3:])


def _columns(nbytes: int) -> tuple[int, str]:
    return {12: (3, "i4"), 24: (3, "i8"), 40: (5, "i8")}[nbytes]


class Reduced(Subject):
    """One of the reductions."""

    def __init__(self, comm: MPI.Intracomm, cell: Cell, options: Mapping[str, str],
                 beside: Subject | None = None) -> None:  # fmt: skip
        super().__init__(comm, cell, options, beside)
        rank, size, root = self.rank, self.size, cell.root
        self.in_place = "place" in cell.layout and (cell.row != "Reduce" or rank == root)
        self.width, self.char = 1, element(cell.kind).str
        self.owned: list[Any] = []
        self.op = {"?": MPI.LOR, "nan": MPI.MAX, "f4": MPI.MIN}.get(cell.kind, MPI.SUM)
        basic = None
        if element(cell.kind).kind == "V":
            self.width, self.char = _columns(element(cell.kind).itemsize)
            self.op = MPI.Op.Create(_ordered, commute=False)
            basic = MPI.BYTE.Create_contiguous(element(cell.kind).itemsize).Commit()
            self.owned = [self.op, basic]
        if cell.row == "Reduce_scatter_block":
            self.count = self.count // size * size
        n, each = self.count, self.count // size
        edges = [each * r for r in range(size)] + [n]
        if size > 2 and cell.row == "Reduce_scatter":
            edges[2] = edges[1]  # one rank has nothing
        self.shares = [b - a for a, b in itertools.pairwise(edges)]
        scattered = cell.row.startswith("Reduce_scatter")
        self.part = slice(edges[rank], edges[rank + 1]) if scattered else slice(0, n)
        self.gets = cell.row != "Reduce" or rank == root
        self.send = array(cell.kind, n)
        length = n if self.in_place or not scattered else self.shares[rank]
        self.recv = self.room(length if self.gets else 0)

        def spec(data: np.ndarray) -> Any:
            return data if basic is None else [data, basic]

        given = [MPI.IN_PLACE if self.in_place else spec(self.send),
                 spec(self.recv) if self.gets else None]  # fmt: skip
        if cell.row == "Reduce_scatter":
            given.append(self.shares)
        given.append(self.op)
        if cell.row == "Reduce":
            given.append(root)
        init = getattr(collectives, f"{cell.row}_init")
        self.request = init(comm, *given, method=cell.method, info=self.info or None)

    def contribution(self, turn: int, rank: int) -> np.ndarray:
        """Small whole numbers, exact in every type and sum; by columns."""
        index = np.arange(self.count * self.width, dtype=np.int64)
        found = ((index * 7 + rank * 5 + turn * 3) % 11 + 1).astype(self.char)
        if self.cell.kind == "?":
            found = (index + rank + turn) % 3 == 0
        if self.cell.kind == "nan" and rank == turn % self.size:
            found[turn % 3 :: 3] = np.nan
        return found.reshape(-1, self.width)

    def fill(self, turn: int) -> None:
        mine = self.contribution(turn, self.rank)
        into = self.recv if self.in_place else self.send
        into[:] = np.ascontiguousarray(mine).view(into.dtype).reshape(-1)
        if not self.in_place:
            self.recv[:] = values(self.cell.kind, np.full(1, 77))

    def check(self, turn: int, got: Any) -> None:
        over = {"Scan": self.rank + 1, "Exscan": self.rank}.get(self.cell.row, self.size)
        if not self.gets:
            return
        if not over:
            if not self.in_place:
                assert same(self.recv, np.repeat(values(self.cell.kind, [77]), len(self.recv)))
            return
        parts = [self.contribution(turn, rank)[self.part] for rank in range(over)]
        whole = parts[0].copy()
        for part in parts[1:]:
            if self.cell.kind == "?":
                whole |= part
            elif self.cell.kind == "nan":
                whole = np.maximum(whole, part)
            elif self.cell.kind == "f4":
                whole = np.minimum(whole, part)
            else:
                whole[:, 0] += part[:, 0]
                whole[:, 1:2] = part[:, 1:2]
                whole[:, 3:] = np.maximum(whole[:, 3:], part[:, 3:])
        want = np.ascontiguousarray(whole).reshape(-1)
        found = self.recv[: self.part.stop - self.part.start]
        found = np.ascontiguousarray(found).view(want.dtype).reshape(-1)
        if not np.array_equal(found, want, equal_nan=want.dtype.kind in "fc"):
            wrong = np.flatnonzero(~((found == want) | ((found != found) & (want != want))))
            raise AssertionError(f"round {turn}, wrong from {wrong[:3]} of {len(want)}: "
                                 f"{found[wrong[:3]]}, not {want[wrong[:3]]}")  # fmt: skip

    def give_back(self) -> None:
        for each in self.owned:
            each.Free()
        super().give_back()


class Met(Subject):
    """The barrier."""

    def __init__(self, comm: MPI.Intracomm, cell: Cell, options: Mapping[str, str],
                 beside: Subject | None = None) -> None:  # fmt: skip
        super().__init__(comm, cell, options, beside)
        self.request = collectives.Barrier_init(comm, method=cell.method, info=self.info or None)


class Boxed(Subject):
    """Rows to columns of an array of three axes, or of nine: no two ranks have as much."""

    def __init__(self, comm: MPI.Intracomm, cell: Cell, options: Mapping[str, str],
                 beside: Subject | None = None) -> None:  # fmt: skip
        super().__init__(comm, cell, options, beside)
        size, rank = self.size, self.rank
        self.rows = [slice(i * (i + 1) // 2, (i + 1) * (i + 2) // 2) for i in range(size)]
        self.cols = [slice(2 * i, 2 * i + 2) for i in range(size)]
        if size > 2:
            self.cols[1] = slice(2, 2)  # a rank without columns
        rest = (2,) * 6 if "9" in cell.row else ()
        deep = max(1, self.count // (2 * 2 ** len(rest)))
        self.shape = (self.rows[-1].stop, 2 * size, *rest, deep)
        mine = self.shape[1:]
        self.send = np.empty((self.rows[rank].stop - self.rows[rank].start, *mine),
                             element(cell.kind))  # fmt: skip
        inside = (self.shape[0], self.cols[rank].stop - self.cols[rank].start, *self.shape[2:])
        out = [(slice(None), col) if col.stop > col.start else None for col in self.cols]
        empties = inside[1] == 0
        into = [None if empties else (row,) for row in self.rows]
        kind = self.memory(rank)
        room = self.room(int(np.prod(inside)))
        self.recv = room.reshape(inside) if kind != "own" else None
        given = (inside, element(cell.kind)) if self.recv is None else self.recv
        del room
        self.request = collectives.Alltoallw_init(
            comm, [self.send, out], [given, into], method=cell.method, info=self.info or None
        )

    def whole(self, turn: int, *part: slice) -> np.ndarray:
        """A part of the whole array, as it is in this round."""
        count = int(np.prod(self.shape))
        numbers = np.arange(turn * 1001, turn * 1001 + count).reshape(self.shape)[part]
        return values(self.cell.kind, numbers.reshape(-1)).reshape(numbers.shape)

    def fill(self, turn: int) -> None:
        self.send[...] = self.whole(turn, self.rows[self.rank])

    def check(self, turn: int, got: Any) -> None:
        got = self.request.recvbuf if got is None else got
        want = self.whole(turn, slice(None), self.cols[self.rank])
        assert same(np.ascontiguousarray(got), want), f"round {turn}"


def make(
    comm: MPI.Intracomm, cell: Cell, options: Mapping[str, str] | None = None,
    beside: Subject | None = None,
) -> Subject:  # fmt: skip
    """Collective. What a cell names; on the communicator of another one that is freed later."""
    form: Any = Exchanged
    if cell.row in REDUCTIONS:
        form = Reduced
    elif cell.row == "Barrier":
        form = Met
    elif cell.row in BOXES:
        form = Boxed
    return form(comm, cell, options or {}, beside)
