"""Random programs that MPI's rules allow, as data: a generator, the proof of legality, shrinking.

A program has communicators (the world, parts of it, duplicates, some with one member), requests on
them (rows of the conformance table, and partitioned sends), and for every rank a list of
operations: start, wait, mark, initialization and free of requests, a round that is broken, plain
messages and collectives, allocation, sleep. It is drawn in two steps: a schedule that all ranks
follow in step, then for each rank random moves of operations (a wait goes behind a barrier or
before a message, starts change places, waits join to a Waitall). A move stays only if
:func:`problem` finds none in the program.

:func:`problem` executes a program under the most pessimistic blocking that MPI allows:

* Start, Pready, posting a receive or an Ibarrier, and initialization and Free of one side of a
  partitioned send are local; so is to break a round, after which the request can only be freed;
* Wait of a collective blocks until every rank of its communicator has started that round;
* strictly ordered requests of a communicator are started in one order by all ranks; Start blocks
  until all ranks have started the round, Wait until all wait for it, or for a later one;
* Wait of a partitioned receive blocks until the sender has marked every partition of the round,
  that of the send until the receiver has started the round, too;
* a send blocks until its receive is posted, a receive until its send is entered;
* plain collectives, initialization, Free, allocation and its end block until all ranks of the
  communicator are in, and have the same order on all of them.

Every condition waits for something that, once it has happened, stays so. Therefore the order in
which the ranks are executed does not matter: if one execution comes to the end, all do, and the
program is free of deadlocks under every MPI.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from onesided.collectives.testing import OPERATIONS

PARTITIONED = "partitioned"  # a send from one rank to another, not the row of that name
EXCHANGES = (*(name for name in OPERATIONS if name != "Bcast"), "boxes")
REDUCTIONS = ("Reduce", "Allreduce", "Reduce_scatter", "Reduce_scatter_block", "Scan", "Exscan",
              "Barrier")  # fmt: skip
ROWS = (*EXCHANGES, "Bcast", *REDUCTIONS, PARTITIONED)
#: Rows that may receive into memory of the request's own.
LEARN = (*(name for name, row in OPERATIONS.items() if row.learns(0, 0) or row.learns(1, 0)),
         "boxes")  # fmt: skip
# elements of 8 bytes of a request's blocks, to beyond all thresholds of blocks
SIZES = (3, 3, 3, 40, 40, 400, 400, 9_000, 20_000, 140_001)
PLAIN = ("barrier", "allreduce", "ibarrier", "message", "posted", "sendrecv", "memory", "sleep")
TOGETHER = ("barrier", "allreduce", "ibarrier", "take", "give", "alloc", "dealloc")


class Op(NamedTuple):
    """One operation of a rank. ``event`` is the same on all ranks that take part in it."""

    verb: str
    event: int = -1
    comm: int = -1
    requests: tuple[int, ...] = ()
    peer: int = -1  # of a message, as a rank of the world
    size: int = 0  # elements of a message or of memory, milliseconds of a sleep
    parts: tuple[int, ...] = ()  # partitions that are marked
    how: str = "wait"  # or "test": a loop of Test


@dataclass(frozen=True)
class Comm:
    """Members as ranks of the world; ``parent`` is the communicator of which it is a duplicate."""

    members: tuple[int, ...]
    parent: int = -1


@dataclass(frozen=True)
class Request:
    """What a request moves. Ranks are those of the world."""

    row: str
    comm: int
    memory: str  # that of a cell of the table
    rounds: int
    size: int
    root: int = 0  # where the row has one; the sender of a partitioned send
    target: int = -1  # the receiver of a partitioned send
    parts: tuple[int, int] = (1, 1)  # partitions of the sender, of the receiver
    strict: bool = False  # by a method that is strictly ordered

    @property
    def apart(self) -> bool:
        """Whether its memory is allocated, and given back, by operations of its own."""
        return self.row == PARTITIONED and self.memory == "window"

    def members(self, program: Program) -> tuple[int, ...]:
        """The ranks that have the request."""
        if self.row == PARTITIONED:
            return (self.root, self.target)
        return program.comms[self.comm].members


@dataclass(frozen=True)
class Program:
    """Communicators, requests, and what each rank does."""

    seed: int
    comms: tuple[Comm, ...]
    requests: tuple[Request, ...]
    ranks: tuple[tuple[Op, ...], ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Program:
        def frozen(value: Any) -> Any:
            return tuple(frozen(entry) for entry in value) if isinstance(value, list) else value

        def entries(kind: Any, values: list[dict[str, Any]]) -> tuple[Any, ...]:
            return tuple(kind(**{key: frozen(v) for key, v in entry.items()}) for entry in values)

        ranks = tuple(tuple(Op(*frozen(op)) for op in ops) for ops in data["ranks"])
        return cls(data["seed"], entries(Comm, data["comms"]),
                   entries(Request, data["requests"]), ranks)

    def __str__(self) -> str:
        lines = [f"seed {self.seed}"]
        lines += [f"comm {i}: {c.members} of {c.parent}" for i, c in enumerate(self.comms)]
        lines += [f"request {i}: {r}" for i, r in enumerate(self.requests)]
        for rank, ops in enumerate(self.ranks):
            lines.append(f"rank {rank}: " + "; ".join(_told(op) for op in ops))
        return "\n".join(lines)


def _told(op: Op) -> str:
    words = [op.verb + ("*" if op.how == "test" else "")]
    words += [f"r{i}" for i in op.requests]
    words += [f"c{op.comm}"] if op.comm >= 0 else []
    words += [f"#{op.event}"] if op.event >= 0 else []
    words += [f"with {op.peer}"] if op.peer >= 0 else []
    words += [f"size {op.size}"] if op.size else []
    words += [f"parts {op.parts}"] if op.parts else []
    return " ".join(words)


# -- the proof --------------------------------------------------------------------------------


class _Execution:
    """A program under the most pessimistic blocking; see the head of the file."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.order: dict[int, list[Any]] = defaultdict(list)  # collectives of a communicator
        self.calls: Counter[tuple[int, int]] = Counter()  # how many of them a rank has entered
        self.entered: dict[Any, set[Any]] = defaultdict(set)
        self.state: dict[tuple[int, int], str] = {}  # by rank and request
        self.memory: dict[tuple[int, int], str] = {}
        self.pending: set[tuple[int, str, int]] = set()  # posted receives and so on
        self.started: Counter[tuple[int, int]] = Counter()
        self.marked: dict[int, set[int]] = defaultdict(set)  # partitions of the round
        self.complete: Counter[int] = Counter()  # rounds that are marked as a whole
        # of strictly ordered requests, by communicator: their starts, and by rank those that have
        # not been waited for, and how many there were
        self.starts: dict[int, list[int]] = defaultdict(list)
        self.behind: dict[tuple[int, int], list[int]] = defaultdict(list)
        self.places: Counter[tuple[int, int]] = Counter()
        self.waited: Counter[tuple[int, int]] = Counter()  # rounds that a rank has waited for

    def enter(self, rank: int, op: Op) -> str | None:
        """What happens when the call is entered; what is wrong with it, if anything."""
        requests = self.program.requests
        together = op.verb in TOGETHER or (
            op.verb in ("init", "free") and requests[op.requests[0]].row != PARTITIONED)
        if together:
            call = (op.verb, op.event, op.requests)
            index = self.calls[rank, op.comm]
            self.calls[rank, op.comm] += 1
            if index == len(self.order[op.comm]):
                self.order[op.comm].append(call)
            elif self.order[op.comm][index] != call:
                return f"collectives of communicator {op.comm} in different orders"
        if op.event >= 0:
            self.entered[op.event].add((rank, op.verb))
        if together:
            self.entered[op.verb, op.event, op.requests].add(rank)
        if op.verb in ("posted", "ibarrier", "take"):
            self.pending.add((rank, op.verb, op.event))
        ends = {"posted_wait": "posted", "ibarrier_wait": "ibarrier", "give": "take"}
        if op.verb in ends:
            key = (rank, ends[op.verb], op.event)
            if key not in self.pending:
                return f"{op.verb} of what has not begun"
            self.pending.remove(key)
        strict = [number for number in op.requests if requests[number].strict]
        if strict and op.verb in ("start", "wait"):
            if len(op.requests) > 1:
                return "a strictly ordered request among others"
            comm = requests[strict[0]].comm
            if not self.in_order(rank, op.verb, strict[0], comm):
                return f"strictly ordered requests of communicator {comm} in different orders"
        for number in op.requests:
            wrong = self.life(rank, op, number)
            if wrong:
                return f"{wrong}: {op.verb} of request {number}"
        return None

    def in_order(self, rank: int, verb: str, number: int, comm: int) -> bool:
        """Note a start or a wait of a strictly ordered request."""
        queue, order = self.behind[rank, comm], self.starts[comm]
        if verb == "wait":  # earlier rounds are completed by it
            while queue:
                first = queue.pop(0)
                self.waited[rank, first] += 1
                if first == number:
                    break
            return True
        queue.append(number)
        place = self.places[rank, comm]
        self.places[rank, comm] += 1
        if place == len(order):
            order.append(number)
        return order[place] == number

    def life(self, rank: int, op: Op, number: int) -> str | None:
        """The states that a request and its memory pass through on one rank."""
        request, key = self.program.requests[number], (rank, number)
        state, memory = self.state.get(key, "none"), self.memory.get(key, "none")
        if op.verb == "alloc":
            self.memory[key] = "there"
            return None if (state, memory) == ("none", "none") else "not at the beginning"
        if op.verb == "dealloc":
            self.memory[key] = "given back"
            users = request.members(self.program)  # the others allocate with them, no more
            ended = state == ("freed" if rank in users else "none")
            return None if ended and memory == "there" else "not at the end"
        if op.verb == "init":
            self.state[key] = "inactive"
            if request.apart and memory != "there":
                return "no memory"
            return None if state == "none" else "twice"
        if op.verb == "free":
            self.state[key] = "freed"
        elif op.verb == "start":
            self.state[key] = "active"
            self.started[key] += 1
            if request.row == PARTITIONED and rank == request.root:
                self.marked[number] = set()
        elif op.verb == "ready":
            twice = self.marked[number] & set(op.parts)
            if request.row != PARTITIONED or rank != request.root or twice or not op.parts:
                return "no such mark"
            self.marked[number] |= set(op.parts)
            self.complete[number] += len(self.marked[number]) == request.parts[0]
        elif op.verb == "abandon":
            self.state[key] = "broken"
        if op.verb == "free" and state == "broken":
            return None
        wanted = "active" if op.verb in ("ready", "wait") else "inactive"
        return None if state == wanted else f"{state}, not {wanted}"

    def done(self, rank: int, op: Op) -> bool:
        """Whether the call may return."""
        members = self.program.comms[op.comm].members if op.comm >= 0 else ()
        if op.verb in ("posted", "ibarrier"):
            return True
        if op.verb == "ibarrier_wait":
            return len(self.entered["ibarrier", op.event, ()]) == len(members)
        if op.verb in ("send", "recv", "sendrecv", "posted_wait"):
            partners = {"send": ("recv", "posted"), "sendrecv": ("sendrecv",)}
            return any((op.peer, verb) in self.entered[op.event]
                       for verb in partners.get(op.verb, ("send",)))
        if op.verb == "start" and self.program.requests[op.requests[0]].strict:
            return self.arrived(rank, op.requests[0])
        if op.verb == "wait":
            return all(self.arrived(rank, number) for number in op.requests)
        key = (op.verb, op.event, op.requests)
        return key not in self.entered or len(self.entered[key]) == len(members)

    def arrived(self, rank: int, number: int) -> bool:
        request, turn = self.program.requests[number], self.started[rank, number]
        if request.row != PARTITIONED:
            members = self.program.comms[request.comm].members
            reached = self.waited if request.strict and self.waited[rank, number] >= turn else (
                self.started)
            return all(reached[other, number] >= turn for other in members)
        if rank == request.root and self.started[request.target, number] < turn:
            return False
        return self.complete[number] >= turn

    def run(self) -> str | None:
        ranks = self.program.ranks
        at, inside = [0] * len(ranks), [False] * len(ranks)
        moved = True
        while moved:
            moved = False
            for rank, ops in enumerate(ranks):
                while at[rank] < len(ops):
                    op = ops[at[rank]]
                    if not inside[rank]:
                        wrong = self.enter(rank, op)
                        if wrong:
                            return f"rank {rank}: {wrong}"
                        inside[rank] = moved = True
                    if not self.done(rank, op):
                        break
                    if op.verb == "wait":
                        for number in op.requests:
                            self.state[rank, number] = "inactive"
                    at[rank] += 1
                    inside[rank], moved = False, True
        stuck = [(rank, _told(ops[at[rank]])) for rank, ops in enumerate(ranks)
                 if at[rank] < len(ops)]
        if stuck:
            return f"deadlock: {stuck}"
        left = [key for key, state in self.state.items() if state != "freed"]
        left += [key for key, state in self.memory.items() if state != "given back"]
        return f"left over: {left or self.pending}" if left or self.pending else None


def problem(program: Program) -> str | None:
    """Why the program is not legal, None where it is."""
    return _Execution(program).run()


# -- the generator ----------------------------------------------------------------------------


def generate(seed: int, ranks: int, moves: int | None = None) -> Program:
    """A legal program for so many ranks; ``moves`` random moves are tried (0: all in step)."""
    rng = random.Random(f"{seed} {ranks}")
    comms = _communicators(rng, ranks)
    requests = _requests(rng, comms, ranks)
    program = Program(seed, comms, requests, _in_step(rng, comms, requests, ranks))
    for _ in range(80 * ranks if moves is None else moves):
        candidate = _moved(rng, program)
        if candidate is not None and problem(candidate) is None:
            program = candidate
    return program


def _communicators(rng: random.Random, ranks: int) -> tuple[Comm, ...]:
    world = tuple(range(ranks))
    comms = [Comm(world), Comm(world, 0)]
    half = (ranks + 1) // 2
    choices = [world[:half], world[half:], tuple(sorted(rng.sample(world, min(2, ranks)))),
               tuple(reversed(world))]
    comms += [Comm(m) for m in rng.sample(choices, rng.randint(1, 3)) if m]
    if rng.random() < 0.3:
        parent = rng.randrange(2, len(comms)) if len(comms) > 2 else 0
        comms.append(Comm(comms[parent].members, parent))
    return tuple(comms)


def _requests(rng: random.Random, comms: tuple[Comm, ...], ranks: int) -> tuple[Request, ...]:
    rows = [rng.choice(EXCHANGES), rng.choice(EXCHANGES), "Alltoallv", "Bcast", PARTITIONED,
            rng.choice(REDUCTIONS), *rng.choices(ROWS, k=rng.randint(0, 3))]  # fmt: skip
    rng.shuffle(rows)
    requests = []
    for row in rows:
        able = [i for i, comm in enumerate(comms)
                if len(comm.members) >= 1 + (row == PARTITIONED)]  # fmt: skip
        if not able:
            continue
        comm = rng.choice(able)
        members = comms[comm].members
        memory = rng.choice(("none", "none", "slot", "window", "plain") if row in LEARN
                            else ("window", "plain"))
        root, target = rng.choice(members), -1
        if row == PARTITIONED:
            root, target = rng.sample(members, 2)
        size = rng.choice(SIZES)
        if row == PARTITIONED or "lltoall" in row:  # many times as much
            size = min(size, 20_000)
        strict = row in EXCHANGES and not row.startswith("Neighbor") and rng.random() < 0.2
        requests.append(Request(row, comm, memory if row != "Barrier" else "plain",
                                rng.randint(1, 4), size, root, target,
                                (rng.choice((1, 2, 4, 8)), rng.choice((1, 2, 4))), strict))
    return tuple(requests)


class _Writer:
    """The schedule that all ranks follow in step; what it writes is legal as it stands."""

    def __init__(self, rng: random.Random, comms: tuple[Comm, ...],
                 requests: tuple[Request, ...], ranks: int) -> None:
        self.rng, self.comms, self.requests = rng, comms, requests
        self.lists: list[list[Op]] = [[] for _ in range(ranks)]
        self.events = 0
        self.open: list[tuple[tuple[int, ...], Op]] = []  # ends that are still to be written

    def all(self, members: tuple[int, ...], op: Op) -> None:
        for rank in members:
            self.lists[rank].append(op)

    def next(self) -> int:
        self.events += 1
        return self.events

    def life(self, number: int) -> Iterator[None]:
        """The steps of one request, one by one."""
        request = self.requests[number]
        everyone = self.comms[request.comm].members
        members = everyone
        if request.row == PARTITIONED:
            members = (request.root, request.target)
        op = Op("", -1, request.comm, (number,))
        if request.apart:
            self.all(everyone, op._replace(verb="alloc"))
            yield
        self.all(members, op._replace(verb="init"))
        yield
        for _ in range(request.rounds):
            self.all(members, op._replace(verb="start", comm=-1))
            yield
            if request.row == PARTITIONED:
                order = self.rng.sample(range(request.parts[0]), request.parts[0])
                while order:
                    some = self.rng.randint(1, len(order))
                    mark = op._replace(verb="ready", comm=-1, parts=tuple(order[:some]))
                    self.all((request.root,), mark)
                    order = order[some:]
                    yield
            for rank in members:
                how = self.rng.choice(("wait", "wait", "test"))
                self.lists[rank].append(op._replace(verb="wait", comm=-1, how=how))
            yield
        if request.row != PARTITIONED and not request.strict and self.rng.random() < 0.25:
            self.all(members, op._replace(verb="abandon", comm=-1))
            yield
        self.all(members, op._replace(verb="free"))
        yield
        if request.apart:
            self.all(everyone, op._replace(verb="dealloc"))
            yield

    def plain(self) -> None:
        """One event that has nothing to do with the requests."""
        rng, kind = self.rng, self.rng.choice(PLAIN)
        comm = rng.randrange(len(self.comms))
        members = self.comms[comm].members
        event = self.next()
        if kind == "sleep":
            rank = rng.randrange(len(self.lists))
            self.lists[rank].append(Op("sleep", size=rng.choice((1, 2, 5, 15))))
        elif kind in ("barrier", "allreduce"):
            self.all(members, Op(kind, event, comm))
        elif kind == "ibarrier":
            self.all(members, Op(kind, event, comm))
            self.open.append((members, Op("ibarrier_wait", event, comm)))
        elif kind == "memory":
            self.all(members, Op("take", event, comm, size=rng.choice((1, 100, 5000))))
            self.open.append((members, Op("give", event, comm)))
        elif len(members) > 1:
            source, target = rng.sample(members, 2)
            size = rng.choice((1, 1, 100, 30_000, 30_000, 600_000))
            op = Op(kind, event, comm, size=size)
            if kind == "sendrecv":
                self.lists[source].append(op._replace(peer=target))
                self.lists[target].append(op._replace(peer=source))
                return
            verb = "recv" if kind == "message" else "posted"
            self.lists[target].append(op._replace(verb=verb, peer=source))
            self.lists[source].append(op._replace(verb="send", peer=target))
            if kind == "posted":
                self.open.append(((target,), op._replace(verb="posted_wait", peer=source)))

    def end_one(self) -> None:
        if self.open:
            self.all(*self.open.pop(self.rng.randrange(len(self.open))))


def _in_step(rng: random.Random, comms: tuple[Comm, ...], requests: tuple[Request, ...],
             ranks: int) -> tuple[tuple[Op, ...], ...]:
    writer = _Writer(rng, comms, requests, ranks)
    lives = [writer.life(number) for number in range(len(requests))]
    waiting, under_way = lives, []
    while waiting or under_way:
        if waiting and (not under_way or rng.random() < 0.35):
            under_way.append(waiting.pop())
        life = rng.choice(under_way)
        try:
            next(life)
        except StopIteration:
            under_way.remove(life)
        if rng.random() < 0.3:
            writer.plain()
        if rng.random() < 0.1:
            writer.end_one()
    while writer.open:
        writer.end_one()
    return tuple(tuple(ops) for ops in writer.lists)


def _moved(rng: random.Random, program: Program) -> Program | None:
    """The program after one random move on one rank; it may be illegal."""
    rank = rng.randrange(len(program.ranks))
    ops = list(program.ranks[rank])
    if len(ops) < 2:
        return None
    at = rng.randrange(len(ops))
    op = ops.pop(at)
    if rng.random() < 0.2 and op.verb in ("start", "wait"):  # join with the next one
        if at == len(ops) or ops[at].verb != op.verb:
            return None
        after = ops[at]
        joined = list(op.requests + after.requests)
        rng.shuffle(joined)
        ops[at] = op._replace(requests=tuple(joined))
    else:
        ops.insert(max(0, at + rng.choice((-16, -10, -6, -3, -1, 1, 3, 6, 10, 16))), op)
    return _with(program, rank, ops)


def _with(program: Program, rank: int, ops: list[Op]) -> Program:
    ranks = list(program.ranks)
    ranks[rank] = tuple(ops)
    return replace(program, ranks=tuple(ranks))


# -- shrinking --------------------------------------------------------------------------------


def smaller(program: Program) -> Iterator[tuple[Any, Program]]:
    """Legal programs that have less, the large steps first, with a name for each step."""
    for name, candidate in _less(program):
        if any(candidate.ranks) and problem(candidate) is None:
            yield name, candidate


def _less(program: Program) -> Iterator[tuple[Any, Program]]:
    used = sorted({number for ops in program.ranks for op in ops for number in op.requests})
    if len(program.ranks) > 2:
        yield ("rank", len(program.ranks)), _without_last_rank(program)
    for number in used:
        yield ("request", number), _without_requests(program, {number})
    for number in used:
        yield ("round", number), _without_last_round(program, number)
    for number in sorted({op.requests[0] for ops in program.ranks for op in ops
                          if op.verb == "abandon"}):
        yield ("abandon", number), _kept(program, lambda op, number=number: (
            op.verb, op.requests) != ("abandon", (number,)))
    for event in sorted({op.event for ops in program.ranks for op in ops if op.event >= 0}):
        yield ("event", event), _kept(program, lambda op, event=event: op.event != event)
    for rank, ops in enumerate(program.ranks):
        for at, op in enumerate(ops):
            if op.verb == "sleep":
                yield ("sleep", rank, at), _with(program, rank, [*ops[:at], *ops[at + 1 :]])
            elif len(op.requests) > 1:
                split = [op._replace(requests=(number,)) for number in op.requests]
                apart = [*ops[:at], *split, *ops[at + 1 :]]
                yield ("split", rank, op), _with(program, rank, apart)
    for number in used:
        request = program.requests[number]
        if request.size > 3:
            requests = list(program.requests)
            requests[number] = replace(request, size=3)
            yield ("size", number), replace(program, requests=tuple(requests))


def _kept(program: Program, wanted: Any) -> Program:
    return replace(program, ranks=tuple(
        tuple(op for op in ops if wanted(op)) for ops in program.ranks))


def _without_requests(program: Program, gone: set[int]) -> Program:
    def left(op: Op) -> list[Op]:
        requests = tuple(number for number in op.requests if number not in gone)
        return [op._replace(requests=requests)] if requests or not op.requests else []

    return replace(program, ranks=tuple(
        tuple(new for op in ops for new in left(op)) for ops in program.ranks))


def _without_last_round(program: Program, number: int) -> Program:
    """Without the last start of the request, its marks and its wait; as it is if it has one."""
    ranks = []
    for ops in program.ranks:
        starts = [i for i, op in enumerate(ops) if op.verb == "start" and number in op.requests]
        if len(starts) == 1:
            return _without_requests(program, {number})
        new = []
        for at, op in enumerate(ops):
            inside = starts and at >= starts[-1] and number in op.requests
            if inside and op.verb in ("start", "ready", "wait"):
                rest = tuple(other for other in op.requests if other != number)
                if rest:
                    new.append(op._replace(requests=rest))
            else:
                new.append(op)
        ranks.append(tuple(new))
    return replace(program, ranks=tuple(ranks))


def _without_last_rank(program: Program) -> Program:
    last = len(program.ranks) - 1
    comms = tuple(replace(comm, members=tuple(m for m in comm.members if m != last))
                  for comm in program.comms)
    gone = {number for number, request in enumerate(program.requests)
            if last in (request.root, request.target) or not comms[request.comm].members}
    shorter = replace(program, comms=comms, ranks=program.ranks[:last])
    events = {op.event for op in program.ranks[last]
              if op.verb in ("send", "recv", "sendrecv", "posted")}
    shorter = _kept(shorter, lambda op: op.event not in events)
    return _without_requests(shorter, gone)
