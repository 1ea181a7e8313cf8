"""Protocols by exhaustion: every interleaving of a few ranks over a few rounds.

A rank's round is given as the transports themselves lower it, chains of steps (see
``onesided.collectives.program``), with names in place of addresses (:mod:`lowered`). A rank
executes its chains as the interpreters do: one after the other, each as far as it goes, again and
again.
What is free is when the ranks act, so that is what is explored, one small action at a time; a copy
has a begin and an end, and a look at a counter in vain is an action as well. Three things are
looked for:

* a copy into memory that another rank is copying from or to, or that its owner is reading;
* a round that ends with other data than those of this round, or in another order;
* a state in which some rank is not at its end and none can go on.

A protocol that is right should need all that it does: :func:`wrong` leaves out one thing at a time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

Name = Hashable

#: ("copy", target, source), ("reduce", target, left, right), where each is a place or a list of
#: places; ("raise" or "await", cell, scale, shift)
Step = tuple
Places = Name | list[Name]


@dataclass
class Participant:
    """What one rank does, by turn: ``plans[round % turns]``.

    ``grants`` are the cells that are raised to the number of the round when it begins, or with
    ``releases`` when what the round before has brought has been read; ``sends`` the places that its
    program fills before every round, ``reads`` by turn the places that it reads after the round,
    with the place that the data come from, or the list of those that have been reduced, in this
    order.
    """

    plans: Sequence[Sequence[Sequence[Step]]]
    grants: Sequence[Name] = ()
    sends: Sequence[Name] = ()
    reads: Sequence[Mapping[Name, Places]] = field(default_factory=lambda: [{}])
    releases: bool = False


class ProtocolError(Exception):
    """A protocol does something wrong; the text says what, and how it got there."""


# A rank's state: (round, phase, chain, heres, copying). Phases:
START, RUN, READ, END = range(4)


def explore(ranks: Sequence[Participant], rounds: int, most: int = 2_000_000) -> int:
    """The number of states that can be reached; raises :class:`ProtocolError` for a wrong one."""
    explorer = _Explorer(ranks, rounds)
    first = explorer.first()
    before: dict[Hashable, tuple[Hashable, int] | None] = {first: None}
    stack = [first]
    while stack:
        state = stack.pop()
        moved = False
        for rank in range(len(ranks)):
            try:
                after = explorer.act(state, rank)
            except ProtocolError as error:
                raise ProtocolError(f"{error}; ranks acted {_path(before, state)}") from None
            if after is None:
                continue
            moved |= explorer.goes_on(state, rank)
            if after not in before:
                if len(before) >= most:
                    raise RuntimeError(f"more than {most} states")
                before[after] = (state, rank)
                stack.append(after)
        if not moved and not explorer.over(state):
            raise ProtocolError(f"no way on: {explorer.text(state)}; {_path(before, state)}")
    return len(before)


def _path(before: Mapping[Hashable, tuple[Hashable, int] | None], state: Hashable) -> str:
    ranks: list[int] = []
    here: Hashable = state
    while (step := before[here]) is not None:
        here, rank = step
        ranks.append(rank)
    return "in the order " + "".join(map(str, reversed(ranks)))[-120:]


class _Explorer:
    """Participants whose cells and places are numbers, in the order in which they are met."""

    def __init__(self, ranks: Sequence[Participant], rounds: int) -> None:
        self.rounds = rounds
        self.cells: dict[Name, int] = {}
        self.places: dict[Name, int] = {}
        self.ranks = [
            Participant(
                [[[self._step(step) for step in chain] for chain in plan] for plan in rank.plans],
                [_number(self.cells, cell) for cell in rank.grants],
                self._numbers(list(rank.sends)),
                [{_number(self.places, place): self._numbers(sources)
                  for place, sources in reads.items()} for reads in rank.reads],
                rank.releases,
            )
            for rank in ranks
        ]  # fmt: skip

    def _numbers(self, places: Places) -> tuple[int, ...]:
        given = places if isinstance(places, list) else [places]
        return tuple(_number(self.places, place) for place in given)

    def _step(self, step: Step) -> Step:
        """A copy, or a reduction, is (what it is, targets, sources by operand, all of these)."""
        if step[0] in ("raise", "await"):
            return (step[0], _number(self.cells, step[1]), *step[2:])
        targets, *sources = (self._numbers(places) for places in step[1:])
        return (step[0], targets, sources, {place for each in sources for place in each})

    def _name(self, place: int) -> Name:
        return list(self.places)[place]

    def first(self) -> tuple:
        state = (0, START, 0, (), False)
        return (tuple(state for _ in self.ranks), (0,) * len(self.cells), ((),) * len(self.places))

    def over(self, state: tuple) -> bool:
        return all(rank[1] == END for rank in state[0])

    def text(self, state: tuple) -> str:
        return "; ".join(
            f"rank {i} in round {r[0] + 1} at {r[3]} of {[len(c) for c in self._plan(i, r[0])]}"
            for i, r in enumerate(state[0]) if r[1] != END
        )  # fmt: skip

    def _plan(self, rank: int, number: int) -> Sequence[Sequence[Step]]:
        plans = self.ranks[rank].plans
        return plans[number % len(plans)]

    def act(self, state: tuple, rank: int) -> tuple | None:
        """The state after the next action of a rank; None where it cannot act."""
        locals_, words, data = state
        number, phase = locals_[rank][:2]
        if phase == END:
            return None
        me = self.ranks[rank]
        if phase == START:
            self._check_fills(state, rank)
            for place in me.sends:
                data = _with(data, place, (self._data(place, number),))
            for cell in me.grants:
                words = _with(words, cell, number + 1)
            mine = (number, RUN, 0, (0,) * len(self._plan(rank, number)), False)
        elif phase == READ:
            over = number + 1 == self.rounds
            for cell in me.grants if me.releases else ():
                words = _with(words, cell, number + 2)
            mine = (number + 1, END if over else START, 0, (), False)
        else:
            found = self._run(state, rank)
            if found is None:
                return None
            mine, words, data = found
        return ((*locals_[:rank], mine, *locals_[rank + 1 :]), words, data)

    def _data(self, place: int, number: int) -> int:
        """What a sender fills a place with before a round."""
        return number * len(self.places) + place

    def _run(self, state: tuple, rank: int) -> tuple | None:
        """To the next RAISE, to the begin of the next copy, or past a chain that has to wait.

        Nobody sees whether a copy ends, or an AWAIT is passed, before that or a little earlier.
        """
        locals_, words, data = state
        number, _, chain, heres, copying = locals_[rank]
        plan, before = self._plan(rank, number), heres
        while plan and heres[chain] < len(plan[chain]):
            step = plan[chain][heres[chain]]
            if step[0] == "await":
                if words[step[1]] < (number + 1) * step[2] + step[3]:
                    break
            elif step[0] == "raise":
                words = _with(words, step[1], (number + 1) * step[2] + step[3])
                heres = _with(heres, chain, heres[chain] + 1)
                return (number, RUN, chain, heres, False), words, data
            elif not copying:
                self._check_copy(state, rank, step)
                return (number, RUN, chain, heres, True), words, data
            else:
                data, copying = self._copied(data, step), False
            heres = _with(heres, chain, heres[chain] + 1)
        if heres != before:  # others may act before this rank looks again
            return (number, RUN, chain, heres, False), words, data
        left = [i for i, steps in enumerate(plan) if heres[i] < len(steps)]
        if not left:
            self._check(rank, number, data)
            return (number, READ, 0, heres, False), words, data
        later = next((i for i in left if i > chain), left[0])
        return None if later == chain else ((number, RUN, later, heres, False), words, data)

    @staticmethod
    def _copied(data: tuple, step: Step) -> tuple:
        values = list(data)
        for i, target in enumerate(step[1]):
            values[target] = sum((data[source[i]] for source in step[2]), ())
        return tuple(values)

    def goes_on(self, state: tuple, rank: int) -> bool:
        """Whether a rank that acts does more than look at counters in vain."""
        locals_, words, _ = state
        number, phase, _, heres, _ = locals_[rank]
        plan = self._plan(rank, number)
        if phase != RUN or all(here == len(c) for here, c in zip(heres, plan, strict=True)):
            return True
        return any(
            chain[here][0] != "await"
            or words[chain[here][1]] >= (number + 1) * chain[here][2] + chain[here][3]
            for here, chain in zip(heres, plan, strict=True) if here < len(chain)
        )  # fmt: skip

    def _others(self, state: tuple, rank: int) -> Iterator[tuple[int, set[int], set[int]]]:
        """What every other rank is writing, and what it is reading."""
        for other, (number, phase, chain, heres, copying) in enumerate(state[0]):
            if other == rank:
                continue
            if copying:
                step = self._plan(other, number)[chain][heres[chain]]
                yield other, set(step[1]), step[3]
            elif phase == READ:
                yield other, set(), set(self._reads(other, number))

    def _check_copy(self, state: tuple, rank: int, step: Step) -> None:
        targets = set(step[1])
        for other, written, read in self._others(state, rank):
            for place in (written & (targets | step[3])) | (read & targets):
                name = self._name(place)
                if read:
                    raise ProtocolError(f"rank {rank} writes {name}, which rank {other} reads")
                raise ProtocolError(f"ranks {rank} and {other} copy at {name} at a time")

    def _check_fills(self, state: tuple, rank: int) -> None:
        for other, written, read in self._others(state, rank):
            for place in (written | read) & set(self.ranks[rank].sends):
                name = self._name(place)
                raise ProtocolError(f"rank {rank} fills {name}, and rank {other} is at it")

    def _reads(self, rank: int, number: int) -> Mapping[int, tuple[int, ...]]:
        reads = self.ranks[rank].reads
        return reads[number % len(reads)]

    def _check(self, rank: int, number: int, data: tuple) -> None:
        for place, sources in self._reads(rank, number).items():
            wanted = tuple(self._data(source, number) for source in sources)
            if data[place] != wanted:
                raise ProtocolError(
                    f"rank {rank} ends round {number + 1} with {self._text(data[place])} at "
                    f"{self._name(place)}, not {self._text(wanted)}"
                )

    def _text(self, data: tuple[int, ...]) -> str:
        found = [divmod(each, len(self.places)) for each in data]
        words = [f"{self._name(place)} of round {number + 1}" for number, place in found]
        return " + ".join(words) or "nothing"


def _number(numbers: dict[Name, int], name: Name) -> int:
    return numbers.setdefault(name, len(numbers))


def _with(values: tuple, index: int, value: object) -> tuple:
    return (*values[:index], value, *values[index + 1 :])


# -- wrong protocols -------------------------------------------------------------------------------


def wrong(ranks: Sequence[Participant]) -> Iterator[tuple[str, list[Participant]]]:
    """What is left when a rank never waits for a counter, waits for one less (a segment, a round, a
    slot), or raises a counter before the copies that it tells of; and what that is, in words."""
    for rank, me in enumerate(ranks):
        for kind, change, words in (
            ("await", _left_out, "does not wait for"),
            ("await", _sooner, "waits for one less of"),
            ("raise", _told_first, "tells too early by"),
        ):
            cells = {step[1]: None for plan in me.plans for chain in plan for step in chain
                     if step[0] == kind}  # fmt: skip
            for cell in cells:
                plans = [[change(list(chain), cell) for chain in plan] for plan in me.plans]
                if plans != [[list(chain) for chain in plan] for plan in me.plans]:
                    others = [*ranks[:rank], replace(me, plans=plans), *ranks[rank + 1 :]]
                    yield f"rank {rank} {words} {cell}", others


def spared(ranks: Sequence[Participant], rounds: int) -> set[str]:
    """What can be left out without any harm."""
    found, tried = set(), 0
    for words, others in wrong(ranks):
        tried += 1
        try:
            explore(others, rounds)
        except ProtocolError:
            continue
        found.add(words)
    assert tried, "nothing can be left out"
    return found


def _left_out(chain: list[Step], cell: Name) -> list[Step]:
    return [step for step in chain if step[:2] != ("await", cell)]


def _sooner(chain: list[Step], cell: Name) -> list[Step]:
    return [(*step[:3], step[3] - 1) if step[:2] == ("await", cell) else step for step in chain]


def _told_first(chain: list[Step], cell: Name) -> list[Step]:
    for i, step in enumerate(chain):
        if step[:2] == ("raise", cell):
            first = i
            while first and chain[first - 1][0] in ("copy", "reduce"):
                first -= 1
            chain.insert(first, chain.pop(i))
    return chain
