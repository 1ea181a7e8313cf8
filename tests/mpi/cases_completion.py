"""Completing several requests, mpi4py's and ours in one list; status; what an interrupt leaves.

The functions answer as those of ``mpi4py.MPI.Request`` do: Waitany an index, Waitsome and Testsome
a list of indices or None where nothing is active, Testany an index and a flag, Testall a flag.
"""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
from cases import parameters, ranks
from exchange_data import Vector, any_order, tables
from mpi4py import MPI

from onesided import collectives as library
from onesided.collectives import RequestError, Startall, Waitall

ROUNDS = 3
TAG = 77


def verb(name):
    """A function of the library; its absence is a failure of the case that needs it."""
    found = getattr(library, name, None)
    assert found is not None, f"onesided.collectives has no {name}"
    return found


class Mixed:
    """On every rank two exchanges of ours and a plain receive from the partner of its pair."""

    def __init__(self, comm, method, memory="plain"):
        self.comm = comm
        table = tables(comm.size)["uneven"] + 1
        self.moved = [Vector(comm, table + i, method, memory) for i in range(2)]
        other = comm.rank ^ 1
        self.other = other if other < comm.size else MPI.PROC_NULL
        self.into = np.empty(500)

    def start(self, turn):
        """Our rounds are under way and the plain receive is posted; nothing has been sent."""
        for moved in self.moved:
            moved.fill(turn)
        Startall([moved.request for moved in self.moved])
        self.into[:] = -1
        return [self.moved[0].request, self.comm.Irecv(self.into, self.other, TAG),
                self.moved[1].request]

    def send(self, turn):
        self.comm.Send(np.full(500, float(turn)), self.other, TAG)

    def check(self, turn, index):
        if index == 1:
            assert self.other == MPI.PROC_NULL or np.all(self.into == turn), self.into
        else:
            moved = self.moved[index // 2]
            assert moved.request.state == "inactive"
            moved.check(turn, moved.request.recvbuf)

    def free(self):
        for moved in self.moved:
            moved.free()

    def late(self, turn):
        """Odd ranks complete ours first and send their message then; True there."""
        if self.comm.rank % 2 == 0:
            return False
        time.sleep(0.02)
        requests = self.start(turn)
        for index in (0, 2):
            requests[index].Wait()
            self.check(turn, index)
        self.send(turn)
        requests[1].Wait()
        self.check(turn, 1)
        return True


def mixed_rounds(comm, method, complete):
    """Rounds in which even ranks call ``complete(mixed, turn, requests)``."""
    mixed = Mixed(comm, method)
    for turn in range(ROUNDS):
        if not mixed.late(turn):
            requests = mixed.start(turn)
            mixed.send(turn)
            complete(mixed, turn, requests)
            for index in range(3):
                mixed.check(turn, index)
    mixed.free()


# -- (f) several requests at once -----------------------------------------------------------------


@ranks(at_least=2)
@parameters(method=any_order)
def case_testany_mixed(comm, method):
    def complete(mixed, turn, requests):
        seen = []
        while True:
            index, flag = verb("Testany")(requests)
            if not flag:
                assert index == MPI.UNDEFINED
                time.sleep(0)
            elif index == MPI.UNDEFINED:
                break
            else:
                seen.append(index)
                mixed.check(turn, index)
        assert sorted(seen) == [0, 1, 2], seen

    mixed_rounds(comm, method, complete)


@ranks(at_least=2)
@parameters(method=any_order)
def case_testsome_mixed(comm, method):
    def complete(mixed, turn, requests):
        seen = []
        while (some := verb("Testsome")(requests)) is not None:
            for index in some:
                mixed.check(turn, index)
            seen += some
            time.sleep(0)
        assert sorted(seen) == [0, 1, 2], seen

    mixed_rounds(comm, method, complete)


@ranks(at_least=2)
@parameters(method=any_order)
def case_testall_mixed(comm, method):
    def complete(mixed, turn, requests):
        while not (flag := verb("Testall")(requests)):
            assert flag is False
            time.sleep(0)
        assert flag is True
        assert verb("Testall")(requests) is True

    mixed_rounds(comm, method, complete)


@ranks(at_least=2)
@parameters(method=any_order)
def case_nothing_is_complete_while_a_rank_is_away(comm, method):
    """The last rank starts when the others have seen that every test says no."""
    mixed, last = Mixed(comm, method), comm.size - 1
    for turn in range(ROUNDS):
        if comm.rank < last:
            all_three = mixed.start(turn)
            requests = all_three[::2]
            assert verb("Testall")(requests) is False
            assert verb("Testany")(requests) == (MPI.UNDEFINED, False)
            assert verb("Testsome")(requests) == []
            assert [request.Get_status() for request in requests] == [False, False]
            assert [request.state for request in requests] == ["active", "active"]
            comm.send(turn, last)
        else:
            assert [comm.recv(source=rank) for rank in range(last)] == [turn] * last
            all_three = mixed.start(turn)
        Waitall(all_three[::2])
        mixed.send(turn)
        all_three[1].Wait()
        for index in range(3):
            mixed.check(turn, index)
    mixed.free()


@parameters(method=any_order)
def case_lists_without_an_active_request(comm, method):
    moved = Vector(comm, tables(comm.size)["uneven"], method)
    moved.round(0)
    idle = comm.Send_init(np.zeros(1), MPI.PROC_NULL)
    for requests in ([], [moved.request], [idle], [MPI.REQUEST_NULL, moved.request, idle]):
        assert verb("Waitany")(requests) == MPI.UNDEFINED
        assert verb("Waitsome")(requests) is None
        assert verb("Testany")(requests) == (MPI.UNDEFINED, True)
        assert verb("Testsome")(requests) is None
        assert verb("Testall")(requests) is True
        assert len(Waitall(requests)) == len(requests)
    moved.round(1)
    idle.Free()
    moved.free()


@parameters(method=any_order)
def case_inactive_requests_are_skipped(comm, method):
    one, idle = (Vector(comm, tables(comm.size)["uneven"], method) for _ in range(2))
    for name in ("Waitany", "Waitsome"):
        one.fill(1)
        one.request.Start()
        found = verb(name)([idle.request, MPI.REQUEST_NULL, one.request])
        assert found == (2 if name == "Waitany" else [2]), found
        one.check(1, one.request.recvbuf)
    one.free()
    idle.free()


@parameters(method=any_order)
def case_startall_mixed(comm, method):
    moved = Vector(comm, tables(comm.size)["uneven"], method)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    data, into = np.zeros(10), np.zeros(10)
    plain = [comm.Send_init(data, right, TAG), comm.Recv_init(into, left, TAG)]
    for turn in range(ROUNDS):
        moved.fill(turn)
        data[:] = 100 * turn + comm.rank
        requests = [plain[0], moved.request, plain[1]]
        Startall(requests)
        assert moved.request.state == "active"
        moved.check(turn, Waitall(requests)[1])
        assert np.all(into == 100 * turn + left)
    for request in plain:
        request.Free()
    moved.free()


# -- status ---------------------------------------------------------------------------------------


@parameters(method=any_order)
def case_status_arguments(comm, method):
    """Wait, Test and Get_status take a status as mpi4py's do; Get_status completes nothing."""
    moved = Vector(comm, tables(comm.size)["uneven"], method, "plain")
    request = moved.request
    assert request.Get_status() is True
    for turn in range(ROUNDS):
        moved.fill(turn)
        request.Start()
        status = MPI.Status()
        if turn == 0:
            moved.check(turn, request.Wait(status=status))
        elif turn == 1:
            while not request.Test(status):
                time.sleep(0)
            moved.check(turn, request.recvbuf)
        else:
            while not request.Get_status(status):
                time.sleep(0)
            assert request.state == "active", "Get_status has completed the round"
            assert request.Get_status() is True
            moved.check(turn, request.Wait(None))
        assert request.state == "inactive"
        assert request.Get_status(status=None) is True
    moved.free()


# -- (g) an interrupt in the middle of a round ----------------------------------------------------


class Interrupted:
    """SIGINT to this process after a while, as Ctrl-C would send it."""

    def __init__(self, seconds):
        self.earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))

    def __enter__(self):
        self.timer.start()

    def __exit__(self, *exception):
        self.timer.cancel()
        self.timer.join()
        signal.signal(signal.SIGINT, self.earlier)


def interrupt_a_wait(request):
    """Wait until SIGINT comes; it must reach the caller as KeyboardInterrupt."""
    try:
        with Interrupted(0.3):
            request.Wait()
            time.sleep(0.5)
    except KeyboardInterrupt:
        return
    raise AssertionError("Wait has come back although a rank was away")


def refused(request):
    """Every verb but Free says that the request is broken, and why."""
    assert request.state == "broken", request.state
    for call in (request.Start, request.Wait, request.Test, request.Get_status):
        try:
            call()
        except RequestError as error:
            assert "KeyboardInterrupt" in str(error), error
        else:
            raise AssertionError(f"{call.__name__} of a broken request was not refused")
    assert request.state == "broken"


def own_transport(known):
    """A started collective of MPI itself cannot be withdrawn, so it is not interrupted here; nor is
    rma-pscw, whose window MPI cannot free when an exposure epoch is left open."""
    return [name for name in known() if name not in ("mpi-persistent", "auto", "rma-pscw")]


def interrupted(comm, make):
    """Rank 0 is interrupted while the others are away; then all free and begin anew."""
    moved = make()
    moved.round(0)
    if comm.rank == 0:
        moved.fill(1)
        moved.request.Start()
        interrupt_a_wait(moved.request)
        refused(moved.request)
    comm.Barrier()
    moved.request.Free()
    assert moved.request.state == "freed"
    again = make()
    for turn in range(ROUNDS):
        again.round(turn)
    again.free()


@ranks(at_least=2)
@parameters(method=lambda: own_transport(any_order), kind=["own, 1 slot", "own, 2 slots", "plain"])
def case_interrupted_wait(comm, method, kind):
    info = {"slots": kind.split()[1]} if "slot" in kind else None
    table = tables(comm.size)["uneven"] + 1
    interrupted(comm, lambda: Vector(comm, table, method, kind.split(",")[0], info))


@ranks(at_least=2)
@parameters(method=any_order)
def case_other_requests_go_on_after_an_interrupt(comm, method):
    """The neighbor of a broken request on the same communicator is as it was."""
    good, bad = (Vector(comm, tables(comm.size)["uneven"] + 1, name)
                 for name in (method, "rma-notify"))
    good.fill(0)
    good.request.Start()
    if comm.rank == 0:
        bad.fill(0)
        bad.request.Start()
        interrupt_a_wait(bad.request)
        refused(bad.request)
    comm.Barrier()
    good.check(0, good.request.Wait())
    good.round(1)
    bad.free()
    good.round(2)
    good.free()
