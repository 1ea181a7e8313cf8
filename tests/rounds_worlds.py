"""Random rounds, as data, and two worlds that execute them: one compiled, one in Python; no MPI.

A *world* has some ranks in one process: typed memory, counters, and for every rank a request or two
by one of the two interpreters. A *script* is a list of actions on its requests (start, wait, test,
advance, fill, ...), in an order that is drawn from a seed. :func:`compare` gives the same programs
and the same script to one world of each kind, and after every action compares all that can be seen:
the memory, the counters, the states, where the chains stand, what was returned or raised, and the
log of the hooks and calls with the memory as they found it.

The programs need not make sense as collectives: chains may wait for ever, ranks may race. Both
worlds do the same actions one after the other, so both must come to the same bytes.
"""

from __future__ import annotations

import random
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onesided.collectives import steps
from onesided.collectives.errors import RequestError
from onesided.collectives.program import ACTIVE, INACTIVE, PythonCredit, PythonRounds
from onesided.collectives.steps import _core

#: Operations by number, with what NumPy calls them; the two on pairs are below.
UFUNCS = (np.add, np.multiply, np.maximum, np.minimum, np.logical_and, np.logical_or,
          np.logical_xor, np.bitwise_and, np.bitwise_or, np.bitwise_xor)  # fmt: skip
LONG = np.dtype(np.longdouble)
NUMBERS = [np.dtype(code) for code in (
    "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", LONG, "c8", "c16", "?")]
PAIRS = [np.dtype([("value", value), ("index", "i4")], align=True)
         for value in ("f4", "f8", "i8", "i4", "i2")]
TYPES = [*NUMBERS, *PAIRS]

#: Bytes of an arena, counters of a world, polls of a Wait after which it is taken to be stuck.
SIZE, CELLS, PATIENCE = 1 << 11, 24, 6


class StuckError(Exception):
    """A Wait that nobody will end."""


class ArmedError(Exception):
    """What a call or a hook raises when it was told to."""


def located(largest: bool) -> Callable[..., None]:
    """MAXLOC or MINLOC of pairs (MPI-4.1 section 6.9.4)."""

    def reduce(left: Any, right: Any, out: Any) -> None:
        a, b = left["value"], right["value"]
        better = a > b if largest else a < b
        first = better | ((a == b) & (left["index"] < right["index"]))
        result = np.where(first, left, right)
        for name in ("value", "index"):
            out[name] = result[name]

    return reduce


OPERATIONS = [*UFUNCS, located(True), located(False)]


@dataclass(frozen=True)
class View:
    """Part of the arena of a type (or of plain bytes): an array of any strides."""

    arena: int  # of TYPES; -1: the plain bytes
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def bound(self, world: World) -> Any:
        dtype = TYPES[self.arena] if self.arena >= 0 else np.dtype(self.dtype)
        memory = world.arenas[self.arena]
        return np.ndarray(self.shape, dtype, memory, self.offset, self.strides)


@dataclass(frozen=True)
class Case:
    """The requests of a world: by request its rank, slots, credit and plans; and the script."""

    seed: int
    ranks: int
    requests: list[dict[str, Any]]
    script: list[tuple[Any, ...]]


def stand_in(kind: type) -> Any:
    """The class of a request by an interpreter, without an operation."""

    class StandIn(kind):  # type: ignore[misc]
        def _refuse(self, verb: str) -> None:
            raise RequestError(f"{self._state} cannot be {verb}")

        def _inactive(self, verb: str) -> Any:
            if self._state != INACTIVE:
                self._refuse(verb)
            return self._answers[self._slot]

        def _drive(self) -> None:
            time.sleep(0)

        def _breaks(self, error: BaseException | None) -> None: ...

        def _enlist(self) -> None: ...

        def _delist(self) -> None: ...

        def _fill(self, status: Any) -> None: ...

    return StandIn


def load(request: Any, plans: Any, answers: tuple[Any, ...], credit: Any = None) -> None:
    """As the interpreter of the request wants its plans."""
    given = plans
    if not isinstance(request, PythonRounds):
        given = [[[s for step in chain for s in steps.lowered(step)] for chain in plan]
                 for plan in plans]
    request._load(given, answers, credit, plans)


# -- drawing ------------------------------------------------------------------------------------


class Drawing:
    """Random programs and scripts of one seed."""

    def __init__(self, seed: int) -> None:
        self.rng, self.seed = random.Random(f"rounds {seed}"), seed
        self.calls = 0

    def case(self) -> Case:
        rng = self.rng
        ranks = rng.choice((2, 2, 3))
        self.lags = [rng.choice((1, 1, 2, 5)) for _ in range(CELLS)]  # scale of each counter
        requests = []
        for rank in range(ranks):
            joined = rng.random() < 0.3  # two requests that share one credit
            for _ in range(2 if joined else 1):
                slots = rng.choice((1, 2, 2, 3))
                filled = rng.random() < 0.5
                requests.append({
                    "rank": rank, "slots": slots, "filled": filled, "hooked": rng.random() < 0.5,
                    "credit": joined or rng.random() < 0.4,
                    "cells": rng.sample(range(CELLS), rng.randint(0, 3)),
                    "plans": [self.plan() for _ in range(slots * (1 + filled))],
                })  # fmt: skip
        return Case(self.seed, ranks, requests, self.script(requests))

    def script(self, requests: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        rng, script = self.rng, []
        verbs = ["go"] * 25 + ["start", "wait", "test", "advance", "open", "fill", "grant",
                              "gate", "gate", "poke", "poke", "arm"]  # fmt: skip
        for _ in range(rng.randint(20, 60)):
            verb, which = rng.choice(verbs), rng.randrange(len(requests))
            word: Any = rng.randrange(4)
            if verb == "advance":
                word = word > 1
            elif verb == "gate":
                word = rng.random() < 0.7
            elif verb == "poke":
                word = (rng.randrange(CELLS), rng.randint(1, 6))
            elif verb == "arm":
                if rng.random() < 0.6:
                    continue  # most scripts end without an error
                word = rng.choice(("call", "_drive", "_enlist", "_delist", "_before_start",
                                   "_after_start", "_before_wait", "_after_wait", "_fill"))
            script.append((verb, which, word))
        return script

    def plan(self) -> list[list[tuple[Any, ...]]]:
        rng = self.rng
        return [[self.step() for _ in range(rng.randint(0, 6))] for _ in range(rng.randint(0, 4))]

    def step(self) -> tuple[Any, ...]:
        rng = self.rng
        kind = rng.choice(("copy", "copy", "box", "gather", "reduce", "reduce", "raise", "raise",
                           "await", "await", "call"))
        if kind == "copy":
            return self.copy(rng.choice((0, 1, 1, 1)), strided=False)
        if kind == "box":
            return self.copy(rng.randint(1, 8), strided=True)
        if kind == "gather":
            return self.gather()
        if kind == "reduce":
            return self.reduce()
        if kind == "call":
            self.calls += 1
            what = rng.choice(("note", "note", "gate", "armed", "write", "advance"))
            return ("call", self.calls, what, rng.random() < 0.5)
        cell = rng.randrange(CELLS)
        scale = self.lags[cell]
        shift = -rng.randint(0, scale)
        if kind == "await":
            shift -= rng.choice((0, 0, 1, 1, 2)) * scale
        return (kind, cell, scale, shift)

    def halves(self) -> tuple[int, int]:
        """Where target and source begin: copies do not overlap."""
        return self.rng.choice(((0, SIZE // 2), (SIZE // 2, 0)))

    def copy(self, axes: int, strided: bool) -> tuple[Any, ...]:
        """Between two halves of the plain bytes, of any alignment; the two types may be of other
        kinds, of one size."""
        rng = self.rng
        item = rng.choice((1, 2, 3, 4, 5, 8, 12, 16, 24))
        kinds = {1: ["i1", "u1", "?", "V1"], 2: ["i2", "u2", "f2", ">i2"],
                 4: ["i4", "u4", "f4", ">f4"], 8: ["i8", "u8", "f8", "c8", ">f8", "<m8[s]"],
                 16: ["c16", "V16"]}.get(item, [f"V{item}"])  # fmt: skip
        shape = [rng.choice((0, 1, 1, 2, 2, 3, 5)) if strided else rng.choice((0, 1, 7, 24))
                 for _ in range(axes)]
        while item * int(np.prod([max(n, 1) for n in shape])) > SIZE // 8:
            shape[shape.index(max(shape))] = 1
        views = []
        for start in self.halves():
            order, gaps = list(range(axes)), [0] * axes
            if strided:
                rng.shuffle(order)
                gaps = [rng.choice((0, 0, 0, 1, item)) for _ in range(axes)]
            strides, step, first = [0] * axes, item, 0
            for axis in order:
                strides[axis] = step + gaps[axis]
                step = strides[axis] * max(shape[axis], 1)
                if step > SIZE // 2 - 64:
                    return self.copy(axes, strided)
            for axis in range(axes):
                if strided and shape[axis] > 0 and rng.random() < 0.2:  # from its end
                    first += strides[axis] * (shape[axis] - 1)
                    strides[axis] = -strides[axis]
            offset = start + first + rng.randint(0, max(0, SIZE // 2 - 1 - step))
            views.append(View(-1, rng.choice(kinds), offset, tuple(shape), tuple(strides)))
        return ("copy", *views)

    def gather(self) -> tuple[Any, ...]:
        """Rows of any size and alignment, each as often as it comes."""
        rng, starts = self.rng, self.halves()
        row, count, rows = rng.choice((1, 3, 4, 8, 16, 24)), rng.choice((0, 1, 5, 20)), 17
        index = tuple(rng.randrange(rows) for _ in range(count))
        views = [View(-1, "u1", start + rng.randint(0, 64), (n, row), (row, 1))
                 for start, n in zip(starts, (count, rows), strict=True)]
        return ("gather", *views, index)

    def reduce(self) -> tuple[Any, ...]:
        rng = self.rng
        while True:
            operation, kind = rng.randrange(len(OPERATIONS)), rng.randrange(len(TYPES))
            if steps._core is None or _core.fold_exists(operation, kind):
                break
        item, align = TYPES[kind].itemsize, TYPES[kind].alignment
        count = rng.choice((0, 1, 2, 3, 7, 16, 17, SIZE // 4 // item))
        room = SIZE // 4
        places = [k * room + align * rng.randint(0, max(0, (room - count * item) // align))
                  for k in rng.sample(range(4), 3)]
        same = rng.choice((None, None, 1, 2))  # the target is one of the two
        if same is not None:
            places[0] = places[same]
        views = [View(kind, "", place, (count,), (item,)) for place in places]
        return ("reduce", *views, operation, kind)


# -- worlds ---------------------------------------------------------------------------------------


def values(rng: np.random.Generator, dtype: np.dtype[Any], count: int) -> Any:
    """Numbers of a type, the awkward ones among them."""
    if dtype.names:
        array = np.zeros(count, dtype)
        array["value"] = rng.integers(-3, 4, count)
        array["index"] = rng.integers(-5, 5, count)
        return array
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        array = rng.integers(info.min, info.max, count, dtype, endpoint=True)
        special: list[Any] = [info.min, info.max, 0, 1, 1, 2]
    elif dtype.kind == "b":
        return rng.random(count) < 0.5
    else:
        array = rng.standard_normal(count).astype(dtype)
        if dtype.kind == "c":  # whose products are exact: NumPy may fuse multiplication and sum
            array = (rng.integers(-1, 2, count) + 1j * rng.integers(-1, 2, count)).astype(dtype)
        tiny = np.finfo(dtype)
        special = [np.nan, np.inf, -np.inf, 0.0, -0.0, tiny.max, tiny.min, tiny.tiny]
        if dtype.kind == "c":
            special = [np.nan, np.inf, complex(0, -np.inf), complex(np.inf, np.nan), -0.0]
    for place in np.flatnonzero(rng.random(count) < 0.3):
        array[place] = special[rng.integers(len(special))]
    return array


@dataclass
class World:
    """The memory and the requests of a case, by one interpreter."""

    case: Case
    compiled: bool
    arenas: dict[int, Any] = field(default_factory=dict)
    log: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.case.seed)
        for kind, dtype in enumerate(TYPES):
            arena = np.zeros(SIZE + 64, np.uint8)
            skip = -arena.ctypes.data % 64
            arena = arena[skip : skip + SIZE]
            count = SIZE // dtype.itemsize
            arena[: count * dtype.itemsize].view(dtype)[:] = values(rng, dtype, count)
            self.arenas[kind] = arena
        self.arenas[-1] = rng.integers(0, 256, SIZE, np.uint8)
        self.cells = np.zeros((CELLS, 8), np.int64)
        self.gate, self.armed, self.drives, self.turns = False, "", 0, 0
        self.requests: list[Any] = []
        credits: dict[int, Any] = {}
        for spec in self.case.requests:
            credit = None
            if spec["credit"]:
                credit = credits.get(spec["rank"])
                if credit is None:
                    credit = credits[spec["rank"]] = self.credit(spec["cells"])
            self.requests.append(self.request(spec, credit))

    def credit(self, cells: list[int]) -> Any:
        credit = _core.Credit() if self.compiled else PythonCredit()
        views = [self.cells[i, :1] for i in cells]
        credit._connect(views)
        return credit

    def request(self, spec: dict[str, Any], credit: Any) -> Any:
        request = _class(_core.Rounds if self.compiled else PythonRounds)()
        request.prepare(self, len(self.requests), spec, credit)
        plans = [[[self.step(step, request) for step in chain] for chain in plan]
                 for plan in spec["plans"]]
        answers = tuple(f"slot {i}" for i in range(spec["slots"]))
        request.bound = plans
        load(request, plans, answers, credit)
        request._hooked = int(spec["hooked"])
        return request

    def step(self, step: tuple[Any, ...], request: Any) -> tuple[Any, ...]:
        kind = step[0]
        if kind == "copy":
            return steps.copy(step[1].bound(self), step[2].bound(self))
        if kind == "gather":
            index = np.array(step[3], np.int64)
            return steps.gather(step[1].bound(self), step[2].bound(self), index)
        if kind == "reduce":
            arrays = [view.bound(self) for view in step[1:4]]
            return steps.reduce(*arrays, (step[4], step[5]), OPERATIONS[step[4]])
        if kind == "call":
            return steps.call(self.call(step, request), serves=step[3])
        cell = self.cells[step[1], :1]
        return (steps.tell if kind == "raise" else steps.wait_for)(cell, step[2], step[3])

    def call(self, step: tuple[Any, ...], request: Any) -> Callable[[], Any]:
        _, number, what, _ = step

        def called() -> Any:
            if what == "gate" and not self.gate:
                return False  # how often a call is repeated is no matter of the interpreters
            if what == "armed" and self.armed == "call":
                self.armed = ""
                raise ArmedError(f"call {number}")
            if what == "write":
                self.arenas[-1][number % SIZE :: 97] ^= 85
            said = request.advance(True) if what == "advance" else None  # busy: nothing happens
            self.log.append((number, said, self.sum()))
            return {0: None, 1: True, 2: 0}[number % 3]

        return called

    def sum(self) -> int:
        """A number for the plain bytes and the counters."""
        return zlib.crc32(self.arenas[-1], zlib.crc32(self.cells))

    # the script

    def act(self, action: tuple[Any, ...]) -> Any:
        """What the action returns, or raises, in words."""
        verb, which, word = action
        request = self.requests[which]
        if verb == "go":
            verb, word = self.next_verb(request, word)
        try:
            return ("returned", verb, self.acted(verb, request, word))
        except (RequestError, StuckError, ArmedError, ValueError) as error:
            return ("raised", verb, type(error).__name__, str(error))

    def next_verb(self, request: Any, word: int) -> tuple[str, Any]:
        """What a sensible program might do now."""
        if request._unready:
            return "fill", None
        if request._state == ACTIVE:
            return ("advance", "advance", "test", "wait")[word], word > 0
        return ("open" if word == 0 and request.spec["filled"] else "start"), 2

    def acted(self, verb: str, request: Any, word: Any) -> Any:
        if verb == "start":
            return request.Start()
        if verb == "wait":
            self.drives = 0
            return request.Wait() if request.number % 2 else request.Wait(status={})
        if verb == "test":
            return request.Test() if request.number % 2 else request.Test(status={})
        if verb == "advance":
            return request.advance(word)
        if verb == "open":
            busy = request.credit is not None and request.credit.busy
            if request._state != INACTIVE or busy or not request.spec["filled"]:
                return "not opened"
            request._open(max(word, 1))
            return request._fill_chunk() if word == 0 else None
        if verb == "fill":
            return request._fill_chunk() if request._unready else "nothing to fill"
        if verb == "grant":
            inactive = request.credit is not None and not request.credit.busy
            return request.credit.grant() if inactive else "nothing to grant"
        if verb == "gate":
            self.gate = word
        elif verb == "poke":
            self.cells[word[0], 0] += word[1]
        elif verb == "arm":
            self.armed = word
        return None

    def hooked(self, request: Any, name: str) -> None:
        self.log.append((name, request.number, request._state, self.sum()))
        if self.armed == name:
            self.armed = ""
            raise ArmedError(name)

    def drive(self, request: Any) -> None:
        """What a Wait does while it waits: the others go on a little."""
        self.hooked(request, "_drive")
        self.drives += 1
        if self.drives > PATIENCE:
            raise StuckError
        self.gate = self.gate or self.drives > 2
        for other in self.requests:
            if other is not request and other._state == ACTIVE:
                self.turns += 1
                other.advance(self.turns % 3 > 0)

    def seen(self) -> dict[str, Any]:
        """All that two worlds are compared by, apart from the memory."""
        return {
            "requests": [request.seen() for request in self.requests],
            "counters": self.cells[:, 0].tolist(),
            "log": self.log,
            "armed": self.armed,
        }


_classes: dict[type, type] = {}


def _class(base: type) -> type:
    """A request whose hooks are logged, and raise when they were told to."""
    if base in _classes:
        return _classes[base]

    class Logged(stand_in(base)):  # type: ignore[misc]
        def prepare(self, world: World, number: int, spec: dict[str, Any], credit: Any) -> None:
            self.world, self.number, self.spec, self.credit = world, number, spec, credit

        def seen(self) -> Any:
            credit = self.credit
            counts = None if credit is None else (credit.number, credit.granted, credit.busy)
            return (self._state, self._done, self._unready, self._slot, self._number, self.rounds,
                    self.late(), self.stood(), counts)

        def stood(self) -> list[int]:
            """Where the chains stand, in steps that a copy of nothing is none of."""
            slots, stands = self.spec["slots"], self.stands()
            if not stands:
                return []
            if base is not PythonRounds:
                return [here for here, _ in stands]
            plan = self.bound[self._variant * slots + self._slot]
            return [sum(len(steps.lowered(step)) for step in chain[:here])
                    for chain, (here, _) in zip(plan, stands, strict=True)]

        def _breaks(self, error: BaseException | None) -> None:
            self.world.log.append(("breaks", self.number, repr(error)))

        def _drive(self) -> None:
            self.world.drive(self)

        def _before_test(self) -> bool:
            self.world.hooked(self, "_before_test")
            return self.rounds % 3 > 0  # false: without calls that wait for other ranks

        def _fill(self, status: Any) -> None:
            if status is not None:
                self.world.hooked(self, "_fill")

    def hook(name: str) -> Callable[[Any], None]:
        return lambda self: self.world.hooked(self, name)

    for name in ("_before_start", "_after_start", "_before_wait", "_after_wait", "_enlist",
                 "_delist"):
        setattr(Logged, name, hook(name))
    _classes[base] = Logged
    return Logged


# -- comparing ------------------------------------------------------------------------------------


def same_values(first: Any, second: Any, kind: int) -> bool:
    """Equal numbers; the bits of NaNs, the sign of zero and padding may differ."""
    dtype = TYPES[kind]
    count = SIZE // dtype.itemsize * dtype.itemsize
    a, b = (arena[:count].view(dtype) for arena in (first, second))
    if dtype.names:
        parts = [(a[name], b[name]) for name in dtype.names]
    elif dtype.kind == "c":
        parts = [(a.real, b.real), (a.imag, b.imag)]
    else:
        parts = [(a, b)]
    return all(np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in parts)


def difference(ours: World, theirs: World) -> str | None:
    """What differs between the compiled world and the one in Python."""
    mine, other = ours.seen(), theirs.seen()
    for key, value in mine.items():
        if value != other[key]:
            return f"{key}: compiled {value}, Python {other[key]}"
    if not np.array_equal(ours.arenas[-1], theirs.arenas[-1]):
        at = np.flatnonzero(ours.arenas[-1] != theirs.arenas[-1])
        return f"bytes {at[:8]} and so on, {at.size} in all"
    for kind, dtype in enumerate(TYPES):
        if not same_values(ours.arenas[kind], theirs.arenas[kind], kind):
            return f"numbers of type {dtype}"
    return None


def drawn(seed: int) -> Case:
    """The case of a seed."""
    return Drawing(seed).case()


def compare(seed: int) -> Counter[str]:
    """Run a case in both worlds; how often a verb came to what, and what there was. Raises where
    the worlds differ."""
    case = drawn(seed)
    worlds = [World(case, compiled) for compiled in (True, False)]
    counts = Counter(step[0] for spec in case.requests for plan in spec["plans"]
                     for chain in plan for step in chain)  # fmt: skip
    with np.errstate(all="ignore"):
        for number, action in enumerate(case.script):
            before = [request.stood() for request in worlds[0].requests]
            ours, theirs = (world.act(action) for world in worlds)
            what = f"returned {ours}, not {theirs}" if ours != theirs else difference(*worlds)
            if what:
                spec = case.requests[action[1]]
                raise AssertionError(
                    f"seed {seed}, action {number}, {action}: {what}\nstood at {before}\n{spec}"
                )
            counts[" ".join([ours[1], *map(str, ours[2:3])])] += 1
    counts.update(name if isinstance(name, str) else "call" for name, *_ in worlds[0].log)
    return counts
