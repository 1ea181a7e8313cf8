"""Protocols by exhaustion: every interleaving of a few ranks over a few rounds.

A rank's round is given as the transports themselves lower it, chains of steps (see
``onesided.collectives.steps``), with names in place of addresses (:mod:`lowered`). A rank
executes its chains as the interpreters do: one after the other, each as far as it goes, again and
again. A round that is opened has a first chain that its caller executes, at any time, see
:func:`filled`.
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

    ``filled`` has the plans of the rounds that it opens, for which ``asks`` gives, as AWAIT steps,
    what must have come: where it has not, the round is started. ``opens`` says by turn whether its
    program asks.
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
    filled: Sequence[Sequence[Sequence[Step]]] = ()
    asks: Sequence[Step] = ()
    opens: Sequence[bool] = (True,)


class ProtocolError(Exception):
    """A protocol does something wrong; the text says what, and how it got there."""


def filled(
    rank: int, opening: Sequence[Step], chunks: Sequence[Sequence[Step]],
    plan: Sequence[Sequence[Step]],
) -> list[list[Step]]:
    """The plan of a round that is opened: Open waits in ``opening``, then the caller writes the
    chunks, and says so after each; what the transport does begins after the last."""
    if not opening and not any(chunks):
        return [[], *map(list, plan)]
    cell, count = ("ready", rank), len(chunks)
    caller = list(opening)
    for number, steps in enumerate(chunks):
        caller += [*steps, ("raise", cell, count, number + 1 - count)]
    return [caller, *([("await", cell, count, 0), *chain] for chain in plan)]


# A rank's state: (round, phase, chain, heres, copying). Phases; a round is started, or opened:
START, ASK, STARTED, OPENED, READ, END = range(6)


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
                acted = explorer.act(state, rank)
            except ProtocolError as error:
                raise ProtocolError(f"{error}; ranks acted {_path(before, state)}") from None
            moved |= bool(acted) and explorer.goes_on(state, rank)
            for after in acted:
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
                self._plans(rank.plans),
                [_number(self.cells, cell) for cell in rank.grants],
                self._numbers(list(rank.sends)),
                [{_number(self.places, place): self._numbers(sources)
                  for place, sources in reads.items()} for reads in rank.reads],
                rank.releases,
                self._plans(rank.filled),
                [self._step(step) for step in rank.asks],
                rank.opens,
            )
            for rank in ranks
        ]  # fmt: skip

    def _plans(self, plans: Sequence[Sequence[Sequence[Step]]]) -> list[list[list[Step]]]:
        return [[[self._step(step) for step in chain] for chain in plan] for plan in plans]

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
            f"rank {i} in round {r[0] + 1} at {r[3]} of {[len(c) for c in self._plan(i, *r[:2])]}"
            for i, r in enumerate(state[0]) if r[1] != END
        )  # fmt: skip

    def _plan(self, rank: int, number: int, phase: int) -> Sequence[Sequence[Step]]:
        plans = self.ranks[rank].filled if phase == OPENED else self.ranks[rank].plans
        return plans[number % len(plans)]

    def act(self, state: tuple, rank: int) -> list[tuple]:
        """The states after the next action of a rank; none where it cannot act."""
        number, phase, chain, heres, copying = state[0][rank]
        found = [] if phase == END else [self._next(state, rank)]
        if phase == OPENED and not copying:  # the caller and the rest do not wait for each other
            plan = self._plan(rank, number, phase)
            left = [i for i, steps in enumerate(plan) if heres[i] < len(steps)]
            other = next((i for i in left if (i == 0) != (chain == 0)), None)
            if other is not None:
                mine = (number, phase, other, heres, False)
                found.append(((*state[0][:rank], mine, *state[0][rank + 1 :]), *state[1:]))
        return [each for each in found if each is not None]

    def _next(self, state: tuple, rank: int) -> tuple | None:
        locals_, words, data = state
        number, phase = locals_[rank][:2]
        me = self.ranks[rank]
        if phase in (START, ASK):
            for cell in me.grants:
                words = _with(words, cell, number + 1)
            if phase == START and me.filled and me.opens[number % len(me.opens)]:
                mine = (number, ASK, 0, (), False)
            else:
                may_open = phase == ASK and all(_has_come(words, step, number) for step in me.asks)
                self._check_fills(state, rank)
                for place in me.sends:
                    data = _with(data, place, (self._data(place, number),))
                then = OPENED if may_open else STARTED
                mine = (number, then, 0, (0,) * len(self._plan(rank, number, then)), False)
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
        number, phase, chain, heres, copying = locals_[rank]
        plan, before = self._plan(rank, number, phase), heres
        while plan and heres[chain] < len(plan[chain]):
            step = plan[chain][heres[chain]]
            if step[0] == "await":
                if not _has_come(words, step, number):
                    break
            elif step[0] == "raise":
                words = _with(words, step[1], (number + 1) * step[2] + step[3])
                heres = _with(heres, chain, heres[chain] + 1)
                return (number, phase, chain, heres, False), words, data
            elif not copying:
                self._check_copy(state, rank, step)
                return (number, phase, chain, heres, True), words, data
            else:
                data, copying = self._copied(data, step), False
            heres = _with(heres, chain, heres[chain] + 1)
        if heres != before:  # others may act before this rank looks again
            return (number, phase, chain, heres, False), words, data
        left = [i for i, steps in enumerate(plan) if heres[i] < len(steps)]
        if not left:
            self._check(rank, number, data)
            return (number, READ, 0, heres, False), words, data
        later = next((i for i in left if i > chain), left[0])
        return None if later == chain else ((number, phase, later, heres, False), words, data)

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
        if phase not in (STARTED, OPENED):
            return True
        plan = self._plan(rank, number, phase)
        if all(here == len(c) for here, c in zip(heres, plan, strict=True)):
            return True
        return any(
            chain[here][0] != "await" or _has_come(words, chain[here], number)
            for here, chain in zip(heres, plan, strict=True) if here < len(chain)
        )  # fmt: skip

    def _others(self, state: tuple, rank: int) -> Iterator[tuple[int, set[int], set[int]]]:
        """What every other rank is writing, and what it is reading."""
        for other, (number, phase, chain, heres, copying) in enumerate(state[0]):
            if other == rank:
                continue
            if copying:
                step = self._plan(other, number, phase)[chain][heres[chain]]
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


def _has_come(words: tuple, step: Step, number: int) -> bool:
    """Whether an AWAIT step of a round can be passed."""
    return bool(words[step[1]] >= (number + 1) * step[2] + step[3])


def _with(values: tuple, index: int, value: object) -> tuple:
    return (*values[:index], value, *values[index + 1 :])


# -- wrong protocols -------------------------------------------------------------------------------


def wrong(
    ranks: Sequence[Participant], count: int | None = None
) -> Iterator[tuple[str, list[Participant]]]:
    """What is left when a rank, of the first so many, never waits, or asks, for a counter, waits
    for one less (a segment, a round, a slot, a chunk), or raises a counter before the copies that
    it tells of; and what that is, in words."""
    for rank, me in enumerate(ranks[:count]):
        for kind, change, words in (
            ("await", _left_out, "does not wait for"),
            ("await", _sooner, "waits for one less of"),
            ("raise", _told_first, "tells too early by"),
        ):
            given = [[me.asks], *me.plans, *me.filled]
            cells = {step[1]: None for plan in given for chain in plan for step in chain
                     if step[0] == kind}  # fmt: skip
            for cell in cells:
                [[asks], *plans] = [[change(list(chain), cell) for chain in plan] for plan in given]
                if [[asks], *plans] != [[list(chain) for chain in plan] for plan in given]:
                    started, opened = plans[: len(me.plans)], plans[len(me.plans) :]
                    other = replace(me, plans=started, filled=opened, asks=asks)
                    yield f"rank {rank} {words} {cell}", [*ranks[:rank], other, *ranks[rank + 1 :]]


def spared(ranks: Sequence[Participant], rounds: int, count: int | None = None) -> set[str]:
    """What can be left out, by one of the first so many, without any harm."""
    found, tried = set(), 0
    for words, others in wrong(ranks, count):
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
