"""The persistent broadcast on the ranks of an MPI job: every method in its registry."""

from __future__ import annotations

from itertools import pairwise

import pytest

from onesided.collectives.broadcast.board import SHORT, TWICE, Segments

SIZES = [0, 1, 7, 1000, SHORT, SHORT + 1, TWICE - 1, TWICE + 1, 10 * TWICE + 3, (1 << 31) + 5]


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("most", [0, 1000, 1 << 19])
@pytest.mark.parametrize("unit", [1, 10_000])
def test_segments_of_rounds_in_a_row_share_a_ring(nbytes, most, unit):
    """They cover the data; one after the other has the next slot, and no two have the same one."""
    nbytes -= nbytes % unit
    segments = Segments.on_node(nbytes, max(most, nbytes // 1024) if most else 0, unit)
    parts = [segments.part(i) for i in range(segments.count)]
    assert parts[0].start == 0
    assert parts[-1].stop == nbytes
    assert all(a.stop == b.start for a, b in pairwise(parts))
    assert all(part.stop - part.start <= segments.size for part in parts)
    step = segments.room // segments.slots
    assert step >= segments.size
    for number in range(2 * segments.turns + 1):
        for i in range(segments.count):
            place = (number * segments.count + i) % segments.slots * step
            assert segments.place(number % segments.turns, i) == place
    assert segments.fit == (segments.slots >= 2 * segments.count)
    most_of_units = segments.slots * (unit - 1 if nbytes else 0)
    room = segments.room - most_of_units
    assert room <= min(max(4 * SHORT, 2 * nbytes + 32 * 128), 8 * TWICE + 4096)
    assert nbytes or room <= 4096
