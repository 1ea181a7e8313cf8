"""The protocols of notified stores by exhaustion: first by hand, right ones and wrong ones, then
what the transports really do (in an MPI job, which has the step lists)."""

from __future__ import annotations

import pytest
from exploration import Participant, ProtocolError, explore, filled, spared


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


def opened(
    asks: int | None = 0, ready: int = 2, opens: tuple[bool, ...] = (True,),
    releases: bool = False,
) -> list[Participant]:
    """Rank 0 opens rounds where it has the credit, and writes two chunks into rank 1's own memory;
    else it stores them. ``asks``: how much more of the credit it wants, ``ready``: the chunk after
    which it believes to be at the end."""
    memory, source = [("memory", 0), ("memory", 1)], [("source", 0), ("source", 1)]
    store = [("copy", m, s) for m, s in zip(memory, source, strict=True)]
    tell = ("raise", "data", 1, 0)
    plan = filled(0, [], [[store[0]], [store[1]]], [[tell]])
    plan[1][0] = ("await", ("ready", 0), 2, ready - 2)
    sender = Participant(
        [[[("await", "credit", 1, 0), *store, tell]]], sends=source,
        filled=[plan], opens=opens,
        asks=[] if asks is None else [("await", "credit", 1, asks)],
    )
    reads = [dict(zip(memory, source, strict=True))]
    come = [("await", "data", 1, 0)]
    return [sender, Participant([[come]], grants=["credit"], reads=reads, releases=releases)]


def fenced(waits: bool = True) -> list[Participant]:
    """Both ranks open every second round, or start it: a fence, stores, a fence. ``waits``: Open is
    that first fence."""
    ranks = []
    for me, other in ((0, 1), (1, 0)):
        store = ("copy", ("memory", other), ("source", me))
        opening, closing = ([("raise", ("fence", me), 2, shift),
                             ("await", ("fence", other), 2, shift)] for shift in (-1, 0))
        ranks.append(Participant(
            [[[*opening, store, *closing]]], sends=[("source", me)],
            filled=[filled(me, opening if waits else [], [[store]], [closing])],
            opens=(me == 0, True, me == 1), reads=[{("memory", me): ("source", other)}],
        ))
    return ranks


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


RIGHT = {
    "two slots": slots(2),
    "opened": opened(),
    "opened now and then": opened(opens=(True, False)),
    "opened after a release": opened(releases=True),
    "opened by a fence": fenced(),
    "partitioned send": partitioned(),
}
WRONG = {
    "two slots, nobody answers": (slots(2, back=False), "reads|not"),
    "one slot": (slots(1), "reads|at a time|not"),
    "opened without credit": (opened(asks=None), "reads|not"),
    "opened with the credit of the round before": (opened(asks=-1), "reads|not"),
    "opened, and told of a chunk too early": (opened(ready=1), "reads|not"),
    "opened by no fence": (fenced(waits=False), "reads|at a time|not"),
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


def test_open_asks_for_nothing_in_vain():
    """An opened round needs its credit, and to know that the last chunk is ready."""
    assert spared(opened(), 4) == set()
