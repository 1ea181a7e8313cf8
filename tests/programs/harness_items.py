"""Cases that show what happens to items, among them some that fail on purpose."""

import os
import random
import sys
import threading

import pytest
from cases import parameters, ranks, skip
from mpi4py import MPI


@parameters(letter=["a", "b"], number=lambda job: range(job.size))
def case_parameters(comm, letter, number, seed):
    same = comm.allgather((letter, number, random.Random(seed).random()))
    if len(set(same)) != 1:
        raise ValueError(f"the ranks see different parameters: {same}")


def case_options(comm, options):
    assert options == {"colour": "red=ish"}


@ranks(at_least=3)
def case_many(comm):
    comm.Barrier()


def case_skip_alone(comm):
    if comm.rank == 0:
        skip("only rank 0 wants to")


def case_fails_on_last(comm):
    if comm.rank == comm.size - 1:
        raise ValueError("only the last rank fails")


def case_after_failure(comm):
    comm.Barrier()


def case_waits_for_failed(comm):
    if comm.rank == 0:
        raise ValueError("rank 0 does not come")
    comm.Barrier()


def case_hangs(comm):
    comm.recv(source=comm.rank, tag=7)


def case_which_job(comm):
    skip(str(comm.bcast(os.getpid())))


def case_leaves(comm):
    os._exit(0)


def case_exits(comm):
    raise SystemExit


@pytest.mark.xfail(strict=True, reason="known")
def case_known_to_fail(comm):
    assert comm.size == 0


@pytest.mark.xfail(strict=True, reason="known")
def case_mended(comm):
    comm.Barrier()


def case_leaks_a_request(comm):
    MPI.COMM_SELF.Send_init(bytearray(1), 0)


class Last:
    """What happens in its finalizer."""

    def __init__(self, does):
        self.does = self, does  # a circle, which the end of a request finds

    def __del__(self):
        self.does[1]()


def case_raises_where_nobody_sees(comm):
    Last(lambda: int("in a finalizer"))


def case_breaks_the_end(comm):
    Last(os.abort)


def case_leaves_a_message(comm):
    comm.isend("nobody asks", (comm.rank + 1) % comm.size)
    comm.Barrier()
    while not comm.Iprobe():
        pass


def case_leaves_a_thread(comm):
    threading.Thread(target=threading.Event().wait, args=(3.0,), name="forgotten").start()


def case_changes_the_process(comm):
    os.environ["ONESIDED_COLOUR"] = "red"
    os.chdir("/")
    sys.path.append("nowhere")
    from onesided.collectives import abort_on_exception

    abort_on_exception()


def case_sees_the_process_as_it_was(comm):
    if "ONESIDED_COLOUR" in os.environ or os.getcwd() == "/" or "nowhere" in sys.path:
        raise ValueError("something is left of an earlier case")
    if "onesided" in sys.excepthook.__module__ or "onesided" in threading.excepthook.__module__:
        raise ValueError("a hook is left of an earlier case")
