"""The same pattern on other buffers: ``request.like``."""

from __future__ import annotations

import numpy as np
import pytest
from cases import parameters, ranks

from onesided import collectives
from onesided.collectives import PatternError, RequestError, agreement, exchange


@ranks(at_least=2)
@parameters(what=["more", "type", "freed"])
def case_another_pattern_is_refused_on_all_ranks(comm, what):
    last = comm.rank == comm.size - 1
    sent, counts = np.ones(8 * comm.size), [8] * comm.size
    with collectives.Alltoallv_init(comm, [sent, counts], None, method="p2p") as request:
        if what == "more" and last:
            counts = [7, *counts[1:]]
        if what == "type" and last:
            sent = sent.astype(np.int64)
        if what == "freed":
            request.Free()
            with pytest.raises(RequestError, match="freed"):
                request.like([sent, counts], None)
            return
        with pytest.raises(PatternError, match="blocks are others"):
            request.like([sent, counts], None)
        with request.like([np.full(8 * comm.size, 2.0), [8] * comm.size], None) as other:
            other.Start()
            assert np.all(other.Wait() == 2)


@ranks(at_least=2)
def case_neighbors_are_told_of_other_memory_alone(comm):
    """What peers know already is not told again."""
    counts = [4] * comm.size
    heard = []

    def counted(*words):
        heard.append(words)
        return agreement.swapped(*words)

    with pytest.MonkeyPatch.context() as patch:
        sent = np.ones(4 * comm.size)
        with collectives.Alltoallv_init(
            comm, [sent, counts], [np.empty(4 * comm.size), counts], method="p2p"
        ) as request:
            patch.setattr(exchange, "swapped", counted)
            with request.like([sent.copy(), counts], [np.empty(4 * comm.size), counts]):
                assert not heard
            mine = None if comm.rank else [np.empty(4 * comm.size), counts]
            with request.like([sent.copy(), counts], mine):
                assert len(heard) == 1
