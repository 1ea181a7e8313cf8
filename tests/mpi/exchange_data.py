"""Methods of exchanges, and an exchange by any table of counts."""

from __future__ import annotations

import numpy as np
from subjects import Exchanged
from table import Cell

from onesided.collectives import methods

MEMORY = ["own", "window", "plain"]


def names():
    """The registered methods."""
    return list(methods())


def any_order():
    """The methods whose requests may be started and completed in any order."""
    return [name for name, method in methods().items() if method.any_order]


def info_of(options):
    """Emulated nodes, where the options of a job ask for them."""
    return {key: options[key] for key in ("ranks_per_node",) if key in options} or None


class Vector(Exchanged):
    """An Alltoallv by a table of counts, ``table[source, target]``."""

    def __init__(self, comm, table, method, memory="own", info=None):
        self.table = np.asarray(table)
        memory = "none" if memory == "own" else memory
        cell = Cell("Alltoallv", method, memory=memory, said=tuple((info or {}).items()))
        super().__init__(comm, cell, {})

    def counts(self, counts, rank):
        sends = counts == self.operation.sends
        return (self.table[rank] if sends else self.table[:, rank]).tolist()


def tables(size):
    """Named tables of counts for ``size`` ranks."""
    grid = np.add.outer(np.arange(size), 2 * np.arange(size))
    ones = np.ones((size, size), int)
    tables = {
        "uneven": grid % 5 + (grid % 3 == 0) * 7,
        "all zero": 0 * ones,
        "self only": 4 * np.eye(size, dtype=int),
        "no self": 3 * (ones - np.eye(size, dtype=int)),
        "to the next": 6 * np.roll(np.eye(size, dtype=int), 1, axis=1),
        "one heavy source": ones + 500 * (np.arange(size)[:, None] == size - 1),
        "one heavy target": ones + 500 * (np.arange(size)[None, :] == 0),
        "only from rank 0": 5 * (np.arange(size)[:, None] == 0) * ones,
        "empty row and column": grid % 4
        * (np.arange(size)[:, None] != size // 2) * (np.arange(size)[None, :] != size - 1),
    }
    return {name: table.astype(int) for name, table in tables.items()}
