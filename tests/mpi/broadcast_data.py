"""Broadcasts into every kind of memory, and what must arrive: other bytes in every round."""

from __future__ import annotations

import functools

import numpy as np

from onesided.collectives import Bcast_init, empty, free, methods

MEMORY = ["window", "plain", "mixed"]
GARBAGE = 0xAA


def names():
    """The registered methods."""
    return list(methods("broadcast"))


def any_order():
    """The methods whose requests may be started and completed in any order."""
    return [name for name in names() if methods("broadcast")[name].any_order]


def one_sided():
    """The methods that store and Put."""
    return [name for name in names() if name.startswith("rma")]


def info_of(options, **more):
    """The info of a case: emulated nodes, where the options ask for them."""
    known = {key: options[key] for key in ("ranks_per_node",) if key in options}
    return {**known, **more} or None


@functools.cache
def pattern(count):
    """Bytes that tell their place: neighbors differ, and so do blocks of 256."""
    return (np.arange(count) * 131 + np.arange(count) // 256).astype(np.uint8)


class Cast:
    """A broadcast of ``count`` bytes whose values tell the round and the place."""

    def __init__(self, comm, count, root, method, memory="plain", info=None):
        self.comm, self.root = comm, root
        inside = memory == "window" or (memory == "mixed" and comm.rank % 2 == 0)
        whole = empty(comm, count + 2 if inside else 0, np.uint8) if memory != "plain" else None
        self.whole = whole
        self.guarded = whole if inside else np.empty(count + 2, np.uint8)
        self.guarded[:] = GARBAGE
        self.buffer = self.guarded[1:-1]
        self.pattern = pattern(count)
        self.request = Bcast_init(comm, self.buffer, root, method=method, info=info)

    def data(self, turn):
        return self.pattern + np.uint8((7 * turn + self.root) % 256)

    def fill(self, turn):
        """What the caller does between two rounds: new data on the root, garbage elsewhere."""
        self.buffer[:] = self.data(turn) if self.comm.rank == self.root else GARBAGE

    def check(self, turn, got=None):
        got = self.buffer if got is None else got
        want = self.data(turn)
        if not np.array_equal(got, want):
            where = int(np.argmax(got != want))
            raise AssertionError(f"round {turn}: {got[where]} at {where}, not {want[where]}")
        if self.guarded[0] != GARBAGE or self.guarded[-1] != GARBAGE:
            raise AssertionError("bytes outside the buffer were written")

    def round(self, turn):
        self.fill(turn)
        self.request.Start()
        self.check(turn, self.request.Wait())

    def free(self):
        self.request.Free()
        if self.whole is not None:
            free(self.whole)
