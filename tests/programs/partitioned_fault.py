"""``onesided bench partitioned`` with a mistake on one rank: the first argument says where."""

import sys

from mpi4py import MPI

from onesided.apps.cli.main import main
from onesided.apps.papers import partitioned
from onesided.apps.papers.partitioned_sends import ONE_BY_ONE, SINGLE, Contestant, blocking

ROUNDS = 4  # that still go well


def make(lane):
    """Blocking messages, the sender's last partition of a later round fails."""
    runner = blocking(lane)
    send, left = runner.mark, [ROUNDS]

    def mark(index):
        if index == lane.partitions - 1:
            left[0] -= 1
            if left[0] < 0:
                raise ZeroDivisionError("a mistake of the program")
        send(index)

    if lane.is_sender:
        runner.mark = mark
    return runner


if __name__ == "__main__":
    entered = [SINGLE, Contestant("bad", make, [ONE_BY_ONE])]
    partitioned.contestants = lambda text, aggregates, python: entered
    threads = {"main": "1", "thread": "2"}[sys.argv[1]]
    words = ["--buffer", "4K", "--sizes", "1K", "--threads", threads]
    code = main(["bench", "partitioned", *words])
    MPI.COMM_WORLD.Abort(7)  # the mistake did not end it
    sys.exit(code)
