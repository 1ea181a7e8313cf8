"""Partitioned sends: programs that are right with MPI's own must end with every transport.

What the peer waits for happens while the program is in a call of plain MPI.
"""

from __future__ import annotations

import threading
import time

import numpy as np
from cases import parameters, ranks, skip
from mpi4py import MPI
from partitioned import METHODS, able, expected

from onesided.collectives import Precv_init, Psend_init, empty, free, progress

COUNT = 1536  # 12 KB
PATTERNS = {"all at once": 65536, "group by group": 0}


def multiple():
    if MPI.Query_thread() != MPI.THREAD_MULTIPLE:
        skip("the progress thread may not call MPI below MPI_THREAD_MULTIPLE")


def memory(comm, own, count=COUNT):
    return empty(comm, count, np.int64) if own else np.zeros(count, np.int64)


def given_back(array, own):
    if own:
        free(array)


def tag_of(method):
    """The private communicator, made with the memory, is not disturbed by ``ANY_TAG``."""
    return MPI.ANY_TAG if owns(method) else 0


def owns(method):
    return method in ("auto", "rma")


@parameters(method=METHODS, aggregate=PATTERNS.values())
@ranks(at_least=2)
def case_a_late_receiver(comm, method, aggregate):
    """What is marked leaves while the sender is in a blocking receive."""
    able(method)
    multiple()
    array, word = memory(comm, owns(method)), np.zeros(1)
    tag = tag_of(method)
    if comm.rank == 0:
        source = np.zeros(COUNT, np.int64)
        send = Psend_init(comm, source, 96, 1, method=method, aggregate=aggregate)
        for turn in range(3):
            source[:] = expected(COUNT, 0, turn)
            send.Start()
            for index in range(0, 96, 2):
                send.Pready(index)
            for index in range(1, 96, 2):
                send.Pready(index)
            comm.Recv(word, 1, tag)
            send.Wait()
        assert not progress.unfinished()
        send.Free()
    elif comm.rank == 1:
        receive = None
        for turn in range(3):
            time.sleep(0.1)
            if receive is None:
                receive = Precv_init(comm, array, 12, 0, method=method)
            receive.Start()
            receive.Wait()
            assert np.array_equal(array, expected(COUNT, 0, turn)), turn
            comm.Send(word, 0)
        assert not progress.unfinished()
        receive.Free()
    comm.Barrier()
    given_back(array, owns(method))


@parameters(method=METHODS, count=[COUNT, 1 << 17])
@ranks(at_least=2)
def case_a_receive_that_nobody_advances(comm, method, count):
    """A receive that was started finds its sender, and lets it send, from within a barrier."""
    able(method)
    multiple()
    array, word = memory(comm, owns(method), count), np.zeros(1)
    tag = tag_of(method)
    if comm.rank == 0:
        with Precv_init(comm, array, 1, 1, method=method) as receive:
            for turn in range(3):
                receive.Start()
                comm.Send(word, 1)
                comm.Recv(word, 1, tag)
                receive.Wait()
                assert np.array_equal(array, expected(count, 1, turn))
    elif comm.rank == 1:
        source = np.zeros(count, np.int64)
        send = None
        for turn in range(3):
            comm.Recv(word, 0, tag)
            if send is None:
                send = Psend_init(comm, source, 1, 0, method=method)
            source[:] = expected(count, 1, turn)
            send.Start()
            send.Pready(0)
            send.Wait()
            comm.Send(word, 0)
        send.Free()
    comm.Barrier()
    given_back(array, owns(method))


@parameters(method=METHODS)
@ranks(at_least=2)
def case_more_groups_than_a_board_holds(comm, method):
    """None beside another at first, and the receiver is elsewhere."""
    able(method)
    multiple()
    array, word = memory(comm, owns(method)), np.zeros(1)
    tag = tag_of(method)
    if comm.rank == 0:
        source = np.zeros(COUNT, np.int64)
        with Psend_init(comm, source, 768, 1, method=method, aggregate=0) as send:
            for turn in range(2):
                comm.Recv(word, 1, tag)  # it has started
                send.Start()
                source[:] = expected(COUNT, 0, turn)
                for index in (*range(0, 768, 2), *range(767, 0, -2)):
                    send.Pready(index)
                send.Wait()
                comm.Send(word, 1)
    elif comm.rank == 1:
        with Precv_init(comm, array, 4, 0, method=method) as receive:
            for turn in range(2):
                receive.Start()
                comm.Send(word, 0)
                comm.Recv(word, 0, tag)
                receive.Wait()
                assert np.array_equal(array, expected(COUNT, 0, turn))
    comm.Barrier()
    given_back(array, owns(method))


@parameters(method=[m for m in METHODS if m != "mpi"])
@ranks(at_least=2)
def case_the_last_mark_is_another_thread_s(comm, method):
    """The main thread of the sender is in a blocking receive from the start."""
    multiple()
    array, word = memory(comm, owns(method)), np.zeros(1)
    tag = tag_of(method)
    if comm.rank == 0:
        source = expected(COUNT, 0, 0)
        with Psend_init(comm, source, 32, 1, method=method, aggregate=0) as send:
            for _ in range(2):
                send.Start()

                def mark(send=send):
                    time.sleep(0.02)
                    for index in range(32):
                        send.Pready(index)

                worker = threading.Thread(target=mark)
                worker.start()
                comm.Recv(word, 1, tag)
                worker.join()
                send.Wait()
    elif comm.rank == 1:
        with Precv_init(comm, array, 4, 0, method=method) as receive:
            for _ in range(2):
                time.sleep(0.05)
                array[:] = 0
                receive.Start()
                receive.Wait()
                assert np.array_equal(array, expected(COUNT, 0, 0))
                comm.Send(word, 0)
    comm.Barrier()
    given_back(array, owns(method))


@ranks(at_least=2)
def case_a_program_that_keeps_up_has_no_thread(comm):
    """Once the sides know each other, a receive that is waited for leaves nothing to be done."""
    array = empty(comm, 64)
    if comm.rank == 0:
        with Psend_init(comm, np.zeros(64), 4, 1) as send:
            for _ in range(20):
                comm.Barrier()
                send.Start()
                send.Pready_range(0, 3)
                send.Wait()
                assert not progress.unfinished()
    elif comm.rank == 1:
        with Precv_init(comm, array, 4, 0) as receive:
            for turn in range(20):
                receive.Start()
                assert turn == 0 or not progress.unfinished()
                comm.Barrier()
                receive.Wait()
                assert not progress.unfinished()
    else:
        for _ in range(20):
            comm.Barrier()
    free(array)
