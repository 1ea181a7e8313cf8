"""``onesided fft`` in which something goes wrong: the first argument says what, the rest is it."""

import sys
import threading
import time

from onesided.apps.cli.main import main
from onesided.apps.tools import fft
from onesided.pencilfft import PFFT


def raise_on_one_rank(comm, options):
    if comm.rank == comm.size - 1:
        raise ZeroDivisionError("a mistake of the program")
    comm.Barrier()
    return 0


def raise_in_a_thread(comm, options):
    def work():
        raise ZeroDivisionError("a mistake in a thread")

    if comm.rank == comm.size - 1:
        threading.Thread(target=work).start()
        time.sleep(30)
    comm.Barrier()
    return 0


def fail_alone(comm, options):
    """A mistake that was not agreed on: the job must end all the same."""
    from onesided.apps.cli import failures

    failures.LONGEST_WAIT = 2.0
    if comm.rank == comm.size - 1:
        raise failures.CommandError("only this rank has seen it")
    comm.Barrier()
    return 0


def transform_wrongly(comm, options):
    transform = PFFT.__init__

    def init(self, *args, **kwargs):
        transform(self, *args, **kwargs)
        forward = self.forward

        def wrong(source, target, **how):
            forward(source, target, **how)
            if target.size:
                target.flat[0] += 1e-3

        for name in ("input", "output", "input_pencil", "output_pencil"):
            setattr(wrong, name, getattr(forward, name))
        self.forward = wrong

    PFFT.__init__ = init
    return run(comm, options)


FAULTS = {
    "rank": raise_on_one_rank,
    "thread": raise_in_a_thread,
    "alone": fail_alone,
    "wrong": transform_wrongly,
}

if __name__ == "__main__":
    run = fft.run
    fft.run = FAULTS[sys.argv[1]]
    sys.exit(main(["fft", *sys.argv[2:]]))
