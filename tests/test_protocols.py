"""Protocols by exhaustion, by hand: right ones and wrong ones, and the board of a partitioned send,
which is no list of steps. What transports really do has its cases, in jobs that have the steps."""

from __future__ import annotations

import pytest
from exploration import Participant, ProtocolError, explore


def slots(turns: int, back: bool = True) -> list[Participant]:
    """Rank 0 sends to rank 1 through so many slots; rank 1 notifies rank 0, or does not."""
    sender, receiver = [], []
    for turn in range(turns):
        out = [("copy", ("slot", turn), "source"), ("raise", "data", 1, 0)]
        sender.append([out, [("await", "back", 1, 0)]] if back else [out])
        come = [("await", "data", 1, 0)]
        receiver.append([[("raise", "back", 1, 0)], come] if back else [come])
    reads = [{("slot", turn): "source"} for turn in range(turns)]
    return [Participant(sender, sends=["source"]), Participant(receiver, reads=reads)]


def partitioned(
    credit: bool = True, spare: int = 0, told_first: bool = False, tail: int = 0
) -> list[Participant]:
    """The board of a partitioned send of four groups a round, with two entries: not a list of
    steps in the library, but written down here from ``partitioned/rma.py``.

    The sender leaves when it has the credit and the board has room, group by group: data, entry,
    HEAD, TOLD. The receiver reads the entries up to HEAD, gives them back by TAIL, and is at its
    end when all have been TOLD. ``tail``: it gives back so many more than it has read; ``spare``:
    the sender believes in so many more entries."""
    groups, entries = 4, 2
    leave = [("await", "credit", 1, 0)] if credit else []
    read = []
    for group in range(groups):
        entry, far = ("entry", group % entries), group + 1 - groups
        tells = [("raise", "head", groups, far), ("raise", "told", groups, far)]
        stores = [("copy", ("memory", group), ("source", group)),
                  ("copy", entry, ("number", group))]
        leave += [("await", "tail", groups, far - entries - spare)]
        leave += tells + stores if told_first else stores + tells
        read += [("await", "head", groups, far), ("copy", ("seen", group), entry),
                 ("raise", "tail", groups, min(far + tail, 0))]
    read += [("await", "told", groups, 0)]
    kinds = {"source": "memory", "number": "seen"}
    sends = [(kind, group) for kind in kinds for group in range(groups)]
    reads = {(kinds[kind], group): (kind, group) for kind, group in sends}
    return [Participant([[leave]], sends=sends),
            Participant([[read]], grants=["credit"], reads=[reads])]


RIGHT = {"two slots": slots(2), "partitioned send": partitioned()}
WRONG = {
    "two slots, nobody answers": (slots(2, back=False), "reads|not"),
    "one slot": (slots(1), "reads|at a time|not"),
    "partitioned send without credit": (partitioned(credit=False), "reads|at a time"),
    "board with one entry too few": (partitioned(spare=1), "reads|at a time|not"),
    "board told of too early": (partitioned(told_first=True), "reads|at a time|not"),
    "board given back too early": (partitioned(tail=1), "reads|at a time|not"),
    "nobody begins": (
        [Participant([[[("await", "a", 1, 0), ("raise", "b", 1, 0)]]]),
         Participant([[[("await", "b", 1, 0), ("raise", "a", 1, 0)]]])],
        "no way on",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_right_protocols(name):
    assert explore(RIGHT[name], rounds=4) > 50


@pytest.mark.parametrize("name", WRONG)
def test_wrong_protocols_are_found(name):
    ranks, words = WRONG[name]
    with pytest.raises(ProtocolError, match=words):
        explore(ranks, rounds=4)
