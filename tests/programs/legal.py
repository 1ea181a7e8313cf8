"""Run random legal programs in one job: legal.py RESULTS METHODS SEEDS [--file F] [--timeout S].

    mpiexec -n 3 python -m mpi4py tests/programs/legal.py out.jsonl exchange:rma-notify 0:50

SEEDS is ``start:stop``; with ``--file`` the programs are read from a file of JSON instead. METHODS
are words like ``exchange:NAME``, ``broadcast:NAME``, ``partitioned:NAME``, ``reduction:NAME``
(barriers, too), joined by ``+``; what is not named, all of it with the word ``reference``, is MPI's
own. ``mixed`` as a name, or as the only word, draws one of the any-order methods, or the default,
for every request; one that the program calls strictly ordered gets such a method. ``nodes:N``
emulates nodes of N ranks. Rank 0 appends a line when a program begins and one when it ends. A
program that takes too long ends the job with the stacks of all ranks. Wrong bytes are collected
and the program goes on.

Requests and their data are those of the conformance table, every request with data of its own. What
has been received is looked at again before the next start, because until then it is the program's.
Where the library can withdraw what it has started, the last round of a request may be given up:
broken on one rank for sure, by an exception after Start or between Open and Ready, and on others by
these or by an interrupted Wait.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "mpi"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cases import FAILED_MARK, Deadline, say
from kinds import same, values
from legal_programs import PARTITIONED, Op, Program, Request, generate
from subjects import EMPTY, SCRIBBLE, Boxed, make
from table import REDUCTIONS, ROOTED, Cell, Length, family, known

from onesided import collectives as library


class InChunks(Boxed):
    """Boxes that each rank fills in so many chunks of its own, if it opens the round."""

    def begin(self, name: str, buffers: tuple[Any, ...], *rest: Any, **more: Any) -> Any:
        deep, cuts = self.shape[-1], 1 + (self.count + self.rank) % 3
        stops = sorted({deep * (i + 1) // cuts for i in range(cuts)} - {0})
        return super().begin(name, buffers, *rest, **more, chunks=(2, stops))


class OneWay:
    """One side of a partitioned send."""

    def __init__(self, item: Item, memory: Any) -> None:
        request, index, number = item.request, item.members.index, item.number
        self.sends, self.size = item.rank == request.root, 8 * request.size
        self.parts = request.parts[0]
        self.data = memory if memory is not None else np.empty(self.size, np.int64)
        peer = index(request.target if self.sends else request.root)
        init = library.Psend_init if self.sends else library.Precv_init
        self.request = init(item.comm, self.data, request.parts[not self.sends], peer, number,
                            method=item.method, aggregate=0 if number % 2 else 65536)  # fmt: skip

    def numbers(self, turn: int) -> Any:
        return values("i8", turn * 131 + np.arange(self.size))

    def fill(self, turn: int) -> None:
        """A partition is filled when it is marked."""
        self.data[:] = SCRIBBLE if self.sends else EMPTY

    def ready(self, turn: int, parts: tuple[int, ...]) -> None:
        each = self.size // self.parts
        for part in parts:
            here = slice(part * each, (part + 1) * each)
            self.data[here] = self.numbers(turn)[here]
            self.request.Pready(part)

    def check(self, turn: int, got: Any) -> None:
        assert self.sends or same(self.data, self.numbers(turn)), "wrong data"

    def scribble(self) -> None:
        if self.sends:
            self.data[:] = SCRIBBLE

    def free(self) -> None:
        self.request.Free()


#: The methods of strictly ordered requests, and where none is wanted and MPI has none of its own.
STRICT = ("rma-fence", "rma-fence", "rma-fence-hier", "mpi")
OTHERWISE = {"partitioned": "p2p"}


class Item:
    """A request of a program on this rank."""

    def __init__(self, run: Run, number: int) -> None:
        self.run, self.number = run, number
        self.request: Request = run.program.requests[number]
        self.comm = run.comms[self.request.comm]
        self.members = run.program.comms[self.request.comm].members
        self.rank, self.turn = run.rank, -1
        self.method = self.chosen()
        self.memory: Any = None
        self.held: tuple[Any, ...] = ()  # what the last Wait returned
        self.subject: Any = None

    def chosen(self) -> str:
        """Its method; the same on all ranks."""
        row, kind = self.request.row, family(self.request.row)
        words = f"{self.run.program.seed} {self.number}"
        name = self.run.methods.get(kind, OTHERWISE.get(kind, "mpi-persistent"))
        if self.request.strict:
            name = random.Random(words).choice(STRICT)
        elif name == "mixed":
            name = random.Random(words).choice([each for each, free in known(row).items() if free])
        if row == PARTITIONED and name == "rma" and self.request.memory != "window":
            return "auto"  # rma needs memory from empty
        return name

    @property
    def handle(self) -> Any:
        return None if self.subject is None else self.subject.request

    @property
    def fills(self) -> bool:
        """Whether its rounds may be opened and filled."""
        return self.request.row in ("Alltoallv", "boxes")

    def alloc(self) -> None:
        mine = self.rank == self.request.target
        self.memory = library.empty(self.comm, 8 * self.request.size * mine, np.int64)

    def dealloc(self) -> None:
        self.subject, memory, self.memory = None, self.memory, None
        library.free(memory)

    def init(self) -> None:
        request = self.request
        if request.row == PARTITIONED:
            mine = self.rank == request.target
            self.subject = OneWay(self, self.memory if mine else None)
            return
        cell = Cell(
            request.row, self.method, Length(8 * request.size, 0),
            "u8 SUM wraps" if request.row in REDUCTIONS else "i8", request.memory,
            root=self.members.index(request.root) if request.row in ROOTED else 0,
            nodes=self.run.methods.get("nodes", ""))  # fmt: skip
        form = InChunks if request.row == "boxes" else make
        self.subject = form(self.comm, cell, {})

    def drawn(self, what: str, share: float) -> bool:
        """A decision of this rank alone."""
        words = f"{what} {self.run.program.seed} {self.number} {self.turn} {self.rank}"
        return random.Random(words).random() < share

    @property
    def data(self) -> int:
        """Other data for every round of every request."""
        return self.turn + 50 * self.number

    def prepare(self) -> None:
        """Before a start: look at the last round for the last time, fill the send buffer."""
        self.check("changed after Wait")
        self.held = ()
        self.turn += 1
        self.subject.fill(self.data)

    def completed(self, got: Any) -> None:
        self.held = (got,)
        self.check("wrong")
        self.subject.scribble()
        self.subject.released = self.fills and self.drawn("release", 0.3)
        if self.subject.released:  # peers may write the next round
            self.held = ()
            self.handle.Release()

    def abandon(self) -> None:
        """Of all ranks one breaks the round for sure; others do, wait in vain, or are not there."""
        method = self.handle.method
        if method.startswith("mpi") or method.endswith("pscw"):
            return  # what MPI has started cannot be withdrawn
        self.prepare()
        rng = random.Random(f"break {self.run.program.seed} {self.number}")
        sure = rng.choice(self.members)
        how = {rank: rng.choice(BROKEN if rank == sure else (*BROKEN, "wait", "start", "nothing"))
               for rank in self.members}[self.rank]
        if how == "open" and self.fills and self.left_open(rng):
            pass
        elif how in BROKEN:
            self.unlucky(self.handle.Start, self.handle, "_after_start")
        elif how != "nothing":
            self.handle.Start()
        if how == "wait" and self.alone():  # else a round that it drives may be what is interrupted
            interrupted(self.handle.Wait, rng.choice((0.001, 0.01)))

    def left_open(self, rng: random.Random) -> bool:
        """Whether a round has been opened, in which chunks are missing, or something raises."""
        handle, where = self.handle, rng.choice(("may_open", "send_chunk", "nowhere"))
        if where == "may_open":
            return self.unlucky(handle.Open, handle.transport, where)
        if not handle.Open():
            return False
        chunks = len(handle.outlets)
        told = rng.randrange(chunks) if chunks else 0  # the last one never
        for chunk in range(told):
            handle.Ready(chunk)
        if where == "send_chunk" and chunks:
            sends = handle.transport.sends_chunks()
            at = (handle.transport, where) if sends else (handle, "_fill_chunk")
            self.unlucky(lambda: handle.Ready(told), *at)
        return True

    def alone(self) -> bool:
        """Whether no other round is under way on this rank."""
        return not any(item.handle.active for item in self.run.items.values()
                       if item is not self and item.handle is not None)  # fmt: skip

    def unlucky(self, call: Callable[[], Any], of: Any, hook: str) -> bool:
        """Call, with an exception in a hook, or where others are known to be there, too."""
        handle, earlier, own = self.handle, self.handle._hooked, getattr(of, hook)
        raised, handle._hooked = False, 1
        setattr(of, hook, lambda *given: (hook != "may_open" or own(*given)) and raises())
        try:
            call()
        except Unlucky:
            raised = True
        delattr(of, hook)
        handle._hooked = earlier
        state = "inactive" if hook == "_before_start" else "broken"
        if handle.state != state if raised else hook != "may_open":
            self.run.wrong.append(f"request {self.number} is {handle.state} after {hook}")
        return raised

    def check(self, how: str) -> None:
        for got in self.held:
            try:
                self.subject.check(self.data, got)
            except AssertionError as error:
                self.run.wrong.append(f"{how}: request {self.number} ({self.request.row}, "
                                      f"{self.method}), round {self.turn}: {error}")  # fmt: skip

    def start(self) -> None:
        if self.drawn("hook", 0.1) and not self.handle.method.startswith("mpi"):
            self.unlucky(self.handle.Start, self.handle, "_before_start")  # nothing has happened
        if self.fills and self.drawn("open", 0.4) and self.handle.Open():
            send = getattr(self.subject.send, "array", self.subject.send)
            chunks = list(enumerate(self.handle.outlets))
            random.Random(self.turn).shuffle(chunks)
            for chunk, outlets in chunks:
                if self.drawn(f"interrupted {chunk}", 0.1):  # the caller catches it, and goes on
                    interrupted(lambda: time.sleep(0.01), 0.001)
                for _, part, array in outlets:
                    array[...] = send[part]
                self.handle.Ready(chunk)
        else:
            self.handle.Start()

    def misuse(self) -> None:
        """An active request cannot be started again; the program goes on."""
        if self.drawn("misuse", 0.1) and self.handle.active:
            try:
                self.handle.Start()
            except library.RequestError:
                return
            self.run.wrong.append(f"request {self.number} was started twice")

    def free(self) -> None:
        self.check("changed before Free")
        self.held = ()
        self.subject.free()


class Unlucky(Exception):
    """What a hook raises."""


def raises() -> bool:
    raise Unlucky


#: How a rank breaks a round, for sure.
BROKEN = ("hook", "open")


def interrupted(call: Any, after: float) -> None:
    """Call, with Ctrl-C after so many seconds if it lasts as long."""
    earlier = signal.signal(signal.SIGUSR2, signal.default_int_handler)
    timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGUSR2))
    try:
        timer.start()
        call()
        timer.join()  # late, on a busy machine
        time.sleep(1.0)
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGUSR2, earlier)


# -- a program on this rank -----------------------------------------------------------------------


class Run:
    """One program on this rank."""

    def __init__(self, program: Program, world: Any, methods: dict[str, str]) -> None:
        self.program, self.world, self.methods, self.rank = program, world, methods, world.rank
        self.wrong: list[str] = []
        self.comms: list[Any] = []
        self.pending: dict[tuple[str, int], Any] = {}
        self.items: dict[int, Item] = {}

    def execute(self) -> None:
        for comm in self.program.comms:
            inside = self.rank in comm.members
            if comm.parent > 0:
                self.comms.append(self.comms[comm.parent].Dup() if inside else MPI.COMM_NULL)
            else:
                key = comm.members.index(self.rank) if inside else 0
                self.comms.append(self.world.Split(0 if inside else MPI.UNDEFINED, key))
        self.items = {number: Item(self, number)
                      for number, request in enumerate(self.program.requests)
                      if self.rank in self.program.comms[request.comm].members}
        for op in self.program.ranks[self.rank]:
            getattr(self, op.verb)(op)
        for comm in reversed(self.comms):
            if comm != MPI.COMM_NULL:
                comm.Free()

    # operations of requests

    def one(self, op: Op) -> None:
        """What a request does by itself."""
        getattr(self.items[op.requests[0]], op.verb)()

    alloc = dealloc = init = free = abandon = one

    def ready(self, op: Op) -> None:
        item = self.items[op.requests[0]]
        item.subject.ready(item.data, op.parts)

    def start(self, op: Op) -> None:
        items = [self.items[number] for number in op.requests]
        for item in items:
            item.prepare()
        if len(items) > 1:
            library.Startall([item.handle for item in items])
        else:
            items[0].start()

    def wait(self, op: Op) -> None:
        items = [self.items[number] for number in op.requests]
        handles = [item.handle for item in items]
        for item in items:
            item.misuse()
        if op.how == "test":
            left = list(handles)
            while left:
                left = [handle for handle in left if not handle.Test()]
                time.sleep(0)
            answers = [getattr(handle, "recvbuf", None) for handle in handles]
        elif len(items) == 1:
            answers = [handles[0].Wait()]
        else:
            answers = library.Waitall(handles)
        for item, answer in zip(items, answers, strict=True):
            item.completed(answer)

    # plain MPI

    def barrier(self, op: Op) -> None:
        self.comms[op.comm].Barrier()

    def allreduce(self, op: Op) -> None:
        comm = self.comms[op.comm]
        # not mpi4py's allreduce of objects: its first call on a communicator duplicates that, and
        # holds the interpreter lock while it waits for the others: no thread of this process runs
        total = np.zeros(1, np.int64)
        comm.Allreduce(np.array([op.event]), total)
        if total[0] != op.event * comm.size:
            self.wrong.append(f"allreduce {op.event}")

    def ibarrier(self, op: Op) -> None:
        self.pending["ibarrier", op.event] = self.comms[op.comm].Ibarrier()

    def ibarrier_wait(self, op: Op) -> None:
        self.pending.pop(("ibarrier", op.event)).Wait()

    def take(self, op: Op) -> None:
        memory = self.pending["memory", op.event] = library.empty(self.comms[op.comm], op.size)
        memory[:] = op.event

    def give(self, op: Op) -> None:
        memory = self.pending.pop(("memory", op.event))
        if not np.all(memory == op.event):
            self.wrong.append(f"memory {op.event} has changed")
        library.free(memory)

    def message(self, op: Op) -> tuple[Any, int, int]:
        """Data, the partner in the communicator, the tag."""
        peer = self.program.comms[op.comm].members.index(op.peer)
        return np.full(op.size, float(op.event)), peer, 100 + op.event

    def send(self, op: Op) -> None:
        data, peer, tag = self.message(op)
        self.comms[op.comm].Send(data, peer, tag)

    def recv(self, op: Op) -> None:
        want, peer, tag = self.message(op)
        got = np.empty_like(want)
        self.comms[op.comm].Recv(got, peer, tag)
        self.same(op, got, want)

    def sendrecv(self, op: Op) -> None:
        data, peer, tag = self.message(op)
        got = np.empty_like(data)
        self.comms[op.comm].Sendrecv(data, peer, tag, got, peer, tag)
        self.same(op, got, data)

    def posted(self, op: Op) -> None:
        want, peer, tag = self.message(op)
        got = np.empty_like(want)
        self.pending["posted", op.event] = (self.comms[op.comm].Irecv(got, peer, tag), got, want)

    def posted_wait(self, op: Op) -> None:
        request, got, want = self.pending.pop(("posted", op.event))
        request.Wait()
        self.same(op, got, want)

    def same(self, op: Op, got: Any, want: Any) -> None:
        if not np.array_equal(got, want):
            self.wrong.append(f"plain message {op.event}")

    def sleep(self, op: Op) -> None:
        time.sleep(op.size / 1000)


def programs(arguments: argparse.Namespace, ranks: int) -> Iterator[Program]:
    if arguments.file:
        with open(arguments.file) as file:
            yield from (Program.from_json(entry) for entry in json.load(file))
        return
    start, stop = (int(word) for word in arguments.seeds.split(":"))
    for seed in range(start, stop):
        yield generate(seed, ranks)


def parsed(text: str) -> dict[str, str]:
    """By family of requests, the method that is wanted."""
    mixed = "+".join(f"{kind}:mixed" for kind in ("exchange", "broadcast", "reduction",
                                                  PARTITIONED))  # fmt: skip
    words = text.replace("reference", "").split("+")
    words = "+".join(mixed if word == "mixed" else word for word in words).split("+")
    return dict(word.split(":", 1) for word in words if word)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results")
    parser.add_argument("methods")
    parser.add_argument("seeds", help="start:stop")
    parser.add_argument("--file")
    parser.add_argument("--timeout", type=float, default=20.0)
    arguments = parser.parse_args()
    methods = parsed(arguments.methods)
    world = MPI.COMM_WORLD.Dup()
    deadline = Deadline(arguments.timeout)

    def note(**entry: Any) -> None:
        with open(arguments.results, "a") as file:
            file.write(json.dumps(entry) + "\n")

    source = programs(arguments, world.size) if world.rank == 0 else None
    while True:
        program = world.bcast(next(source, None) if source else None)
        if program is None:
            break
        if world.rank == 0:
            note(begin=program.seed)
        began = time.perf_counter()
        run = Run(program, world, methods)
        deadline.arm()
        try:
            run.execute()
        except Exception as error:
            text = traceback.format_exc()
            note(seed=program.seed, error=f"{type(error).__name__}: {error}"[:300])
            say(f"{FAILED_MARK}rank {world.rank}, seed {program.seed}, {arguments.methods}\n{text}",
                stream=2)
            world.Barrier()  # until the time is over, with the stacks of the others
            sys.exit(1)
        wrong = world.gather(run.wrong)
        deadline.disarm()
        if world.rank == 0:
            words = [f"rank {rank}: {text}" for rank, some in enumerate(wrong) for text in some]
            note(seed=program.seed, wrong=words, seconds=round(time.perf_counter() - began, 4))
    world.Free()


if __name__ == "__main__":
    main()
