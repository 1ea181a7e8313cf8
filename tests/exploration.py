"""Protocols by exhaustion: every interleaving of a few ranks over a few rounds.

A rank's round is given as the transports themselves lower it, chains of steps (see
``onesided.collectives.program``), with names in place of addresses. A rank executes its chains as
the interpreters do: one after the other, each as far as it goes, again and again. What is free is
when the ranks act, so that is what is explored, one small action at a time; a copy is two actions,
its begin and its end. Three things are looked for:

* a copy into memory that another rank is copying from or to, or that its owner is reading;
* a round that ends with other data than those of this round;
* a state in which some rank is not at its end and none can go on.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

Name = Hashable

#: ("copy", target, source), ("raise" or "await", cell, scale, shift)
Step = tuple[Name, ...]


@dataclass
class Participant:
    """What one rank does, by turn: ``plans[round % turns]``.

    ``grants`` are the cells that are raised to the number of the round when it begins, ``sends``
    the places that its program fills before every round, ``reads`` by turn the places that it reads
    after the round, with the place in a sender's memory that they come from.
    """

    plans: Sequence[Sequence[Sequence[Step]]]
    grants: Sequence[Name] = ()
    sends: Sequence[Name] = ()
    reads: Sequence[Mapping[Name, Name]] = field(default_factory=lambda: [{}])


class ProtocolError(Exception):
    """A protocol does something wrong; the text says what, and how it got there."""


# A rank's state: (round, phase, chain, heres, copying, moved). Phases:
START, RUN, READ, END = range(4)


def explore(ranks: Sequence[Participant], rounds: int, most: int = 2_000_000) -> int:
    """The number of states that can be reached; raises :class:`ProtocolError` for a wrong one."""
    explorer = _Explorer(ranks, rounds)
    first = explorer.first()
    seen = {first}
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
            moved = True
            if after not in seen:
                if len(seen) >= most:
                    raise ProtocolError(f"more than {most} states")
                seen.add(after)
                before[after] = (state, rank)
                stack.append(after)
        if not moved and not explorer.over(state):
            raise ProtocolError(f"no way on: {explorer.text(state)}; {_path(before, state)}")
    return len(seen)


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
                [_number(self.places, place) for place in rank.sends],
                [
                    {_number(self.places, a): _number(self.places, b) for a, b in reads.items()}
                    for reads in rank.reads
                ],
            )
            for rank in ranks
        ]

    def _step(self, step: Step) -> Step:
        if step[0] == "copy":
            return (step[0], *(_number(self.places, place) for place in step[1:]))
        return (step[0], _number(self.cells, step[1]), *step[2:])

    def _name(self, place: int) -> Name:
        return list(self.places)[place]

    def first(self) -> tuple:
        state = (0, START, 0, (), None, 0)
        return (tuple(state for _ in self.ranks), (0,) * len(self.cells), (-1,) * len(self.places))

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
            for place in me.sends:
                data = _with(data, place, self._data(place, number))
            for cell in me.grants:
                words = _with(words, cell, number + 1)
            mine = (number, RUN, 0, (0,) * len(self._plan(rank, number)), None, 0)
        elif phase == READ:
            over = number + 1 == self.rounds
            mine = (number + 1, END if over else START, 0, (), None, 0)
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
        locals_, words, data = state
        number, _, chain, heres, copying, moved = locals_[rank]
        plan = self._plan(rank, number)
        value = number + 1
        while True:
            if chain == len(plan):  # a pass is over
                if all(here == len(steps) for here, steps in zip(heres, plan, strict=True)):
                    self._check(rank, number, data)
                    return (number, READ, 0, heres, None, 0), words, data
                if not moved:
                    if not self._can_go_on(plan, heres, words, value):
                        return None
                chain, moved = 0, 0
                continue
            here = heres[chain]
            if here == len(plan[chain]):
                chain += 1
                continue
            step = plan[chain][here]
            if step[0] == "await" and words[step[1]] < value * step[2] + step[3]:
                chain += 1
                continue
            if step[0] == "raise":
                words = _with(words, step[1], value * step[2] + step[3])
            elif step[0] == "copy" and copying is None:
                self._check_copy(state, rank, step)
                return (number, RUN, chain, heres, (step[1], step[2]), 1), words, data
            elif step[0] == "copy":
                data = _with(data, step[1], data[step[2]])
            return (number, RUN, chain, _with(heres, chain, here + 1), None, 1), words, data

    @staticmethod
    def _can_go_on(plan: Sequence, heres: tuple, words: tuple, value: int) -> bool:
        for here, steps in zip(heres, plan, strict=True):
            if here < len(steps):
                step = steps[here]
                if step[0] != "await" or words[step[1]] >= value * step[2] + step[3]:
                    return True
        return False

    def _check_copy(self, state: tuple, rank: int, step: Step) -> None:
        target, source = step[1], step[2]
        for other, (number, phase, _, _, copying, _) in enumerate(state[0]):
            if other == rank:
                continue
            if copying is not None and (target in copying or source == copying[0]):
                name = self._name(target)
                raise ProtocolError(f"ranks {rank} and {other} copy at {name} at a time")
            if phase == READ and target in self._reads(other, number):
                name = self._name(target)
                raise ProtocolError(f"rank {rank} writes {name}, which rank {other} reads")

    def _reads(self, rank: int, number: int) -> Mapping[Name, Name]:
        reads = self.ranks[rank].reads
        return reads[number % len(reads)]

    def _check(self, rank: int, number: int, data: tuple) -> None:
        for place, source in self._reads(rank, number).items():
            if data[place] != self._data(source, number):
                raise ProtocolError(
                    f"rank {rank} ends round {number + 1} with {self._text(data[place])} at "
                    f"{self._name(place)}, not {self._text(self._data(source, number))}"
                )

    def _text(self, data: int) -> str:
        if data < 0:
            return "nothing"
        number, place = divmod(data, len(self.places))
        return f"{self._name(place)} of round {number + 1}"


def _number(numbers: dict[Name, int], name: Name) -> int:
    return numbers.setdefault(name, len(numbers))


def _with(values: tuple, index: int, value: int) -> tuple:
    return (*values[:index], value, *values[index + 1 :])
