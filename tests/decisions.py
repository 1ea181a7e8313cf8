"""Whether ``method="auto"`` takes the best method: fresh decisions beside long interleaved runs.

    make decisions                                (on a machine that does nothing else)
    make decisions BENCH_RANKS=4 DECISIONS="--ranks-per-node 2 --sizes 64 4096"

For every size of a block (bytes from each rank to each) and every kind of receive memory
``Alltoall_init`` decides anew, with nothing remembered, 30 times and more. After each decision all
methods of any order that can be made run in turn, those that are no candidates, too. The time of a
method is the median over all of these runs, each that of the slowest rank; the ratio of a decision
is the time of what was chosen over that of the best. A row is what is wanted where the mean ratio
is at most 1.10.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections import Counter

import numpy as np
from mpi4py import MPI

from onesided.collectives import Alltoall_init, UnsupportedError, empty, free, methods
from onesided.collectives.context import Context
from onesided.collectives.tuning.decisions import VARIABLE, open_tuning
from onesided.collectives.tuning.situations import BY_NODE, FAR_ONLY

SIZES = [8 << (3 * k) for k in range(7)]  # 8 bytes to 2 MiB
MEMORIES = ["own", "plain", "window"]
WANTED = 1.10
FAR = (FAR_ONLY, BY_NODE)  # on one node the same as another one

#: Seconds for which a method runs in one turn, and the fewest rounds of it.
SLICE, FEWEST = 2e-3, 3


def times(comm, requests, rounds):
    """By request, seconds of a round on the slowest rank; ``rounds`` of each in a row."""
    taken = np.zeros(len(requests))
    for at, (request, count) in enumerate(zip(requests, rounds, strict=True)):
        for _ in range(2):  # the caches are another request's
            request.Start()
            request.Wait()
        comm.Barrier()
        began = time.perf_counter()
        for _ in range(count):
            request.Start()
            request.Wait()
        taken[at] = (time.perf_counter() - began) / count
    comm.Allreduce(MPI.IN_PLACE, taken, MPI.MAX)
    return taken


class Situation:
    """One size and one kind of receive memory, its candidates, and what was measured and decided.

    All requests receive into one array where that is the caller's, as decisions do.
    """

    def __init__(self, comm, nbytes, memory, info):
        self.comm, self.info = comm, info
        count = nbytes * comm.size
        self.send = np.full(count, comm.rank, np.uint8)
        self.recv = {"own": lambda: None, "plain": lambda: np.zeros(count, np.uint8),
                     "window": lambda: empty(comm, count, np.uint8)}[memory]()  # fmt: skip
        self.shared = memory == "window"
        self.requests = {}
        alone = Context.of(comm).node(info and int(info["ranks_per_node"])).alone
        for method in methods().values():
            if method.name != "auto" and method.any_order and (
                not alone or method.name not in FAR
            ):
                with contextlib.suppress(UnsupportedError):
                    self.requests[method.name] = self.made(method.name)
        first = times(comm, self.requests.values(), [FEWEST] * len(self.requests))
        self.rounds = [max(FEWEST, int(SLICE / each)) for each in first]
        self.turns = []
        self.chosen = Counter()
        self.setups = []

    def made(self, method):
        return Alltoall_init(self.comm, self.send, self.recv, method=method, info=self.info)

    def decide(self):
        """Collective. A decision of which nothing is known."""
        if self.comm.rank == 0:
            open_tuning().forget()
        Context.of(self.comm).decided.clear()
        with self.made("auto") as request:
            self.chosen[request.method] += 1
            self.setups.append(self.comm.allreduce(request.setup_time, MPI.MAX))

    def measure(self):
        """Collective. A turn of every method, in another order each time."""
        count = len(self.requests)
        order = [(at + len(self.turns)) % count for at in range(count)]
        requests, taken = list(self.requests.values()), np.empty(count)
        taken[order] = times(self.comm, [requests[i] for i in order],
                             [self.rounds[i] for i in order])  # fmt: skip
        self.turns.append(taken)

    def told(self):
        """Local. The mean ratio, and words for the table."""
        seconds = dict(zip(self.requests, np.median(self.turns, axis=0), strict=True))
        best = min(seconds, key=seconds.__getitem__)
        ratio = np.mean([seconds[name] / seconds[best] for name in self.chosen.elements()])
        every = ", ".join(f"{name} {1e6 * each:.1f}" for name, each in
                          sorted(seconds.items(), key=lambda item: item[1]))  # fmt: skip
        chosen = ", ".join(f"{count} {name}" for name, count in self.chosen.most_common())
        return ratio, f"{ratio:5.2f}  {np.median(self.setups):5.2f} s  {chosen}  |  {every} us"

    def free(self):
        for request in self.requests.values():
            request.Free()
        if self.shared:
            free(self.recv)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes of a block")
    parser.add_argument("--memories", nargs="+", choices=MEMORIES, default=MEMORIES)
    parser.add_argument("--decisions", type=int, default=30, help="fresh ones in each row")
    parser.add_argument("--ranks-per-node", help="emulate nodes of so many ranks")
    given = parser.parse_args()
    os.environ[VARIABLE] = "off"
    comm = MPI.COMM_WORLD
    info = {"ranks_per_node": given.ranks_per_node} if given.ranks_per_node else None
    ratios = []
    if comm.rank == 0:
        print(f"{'bytes':>8} {'memory':7} ratio  set-up   decisions  |  microseconds of a round")
    for nbytes in given.sizes:
        for memory in given.memories:
            situation = Situation(comm, nbytes, memory, info)
            for _ in range(given.decisions):
                situation.decide()
                situation.measure()
            ratio, words = situation.told()
            ratios.append(ratio)
            if comm.rank == 0:
                print(f"{nbytes:8} {memory:7} {words}", flush=True)
            situation.free()
    if comm.rank == 0:
        good = sum(ratio <= WANTED for ratio in ratios)
        print(f"{good} of {len(ratios)} rows have a mean ratio of at most {WANTED:.2f}")


if __name__ == "__main__":
    main()
