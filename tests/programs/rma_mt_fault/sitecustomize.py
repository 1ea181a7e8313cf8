"""In jobs of ``bench rma-mt``: faults by the size of the messages, on the rank with number 1.

2 bytes: it crashes; 3: MPI raises an error; 4: it hangs; 5: it receives other data.
"""

import os

RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")


def install():
    import signal
    import time

    from onesided.apps.papers.rmamt_epochs import OneSided

    whole = OneSided.round

    def round_with_faults(self, name):
        size = self.layout.size
        if self.comm.rank == 1 and size == 2:
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.comm.rank == 1 and size == 3:
            self.comm.Send(b"", dest=1000)
        if self.comm.rank == 1 and size == 4:
            time.sleep(1000)
        taken = whole(self, name)
        if self.comm.rank == 1 and size == 5:
            self.memory._receives[0] ^= 1
        return taken

    OneSided.round = round_with_faults


if any(name in os.environ for name in RANKS):
    install()
