"""``method="auto"``: the best method for a situation: recalled, measured, or what usually wins.

The candidates are the methods that allow any order; those of strict order as well where the caller
promises it (info key ``mpi_assert_strict_persistent_collective_ordering``). What is known of the
situation is recalled; what is not is measured on memory of the same kind, the caller's is not
touched. With the info key ``expected_iterations`` = N the cost T_init + N T of each candidate
decides (the break-even rule of paper 000, equations 1 to 3), and measuring takes no more than a
twentieth of the expected time; where that is too little to measure anything, with
``effort=estimate``, and where rounds are watched for debugging, what usually wins is taken.

The choice is the same on all ranks by construction: what it depends on is agreed, and so is the
order of the candidates. Rank 0 reads the file and tells the others, measured numbers are those of
the slowest rank, and what is decided from the same numbers is the same. Once made, a decision
stays for the process, and a communicator asks for it once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from onesided.collectives.broadcast.operation import Broadcast
from onesided.collectives.errors import MPIError, UnsupportedError
from onesided.collectives.exchange import Exchange
from onesided.collectives.hints import ESTIMATE
from onesided.collectives.initialization import build
from onesided.collectives.reduction.operation import Reduction
from onesided.collectives.registry import BROADCAST, EXCHANGE, REDUCTION, Method, methods
from onesided.collectives.request import Request
from onesided.collectives.transport import Operation
from onesided.collectives.tuning.decisions import Record, learn, recall
from onesided.collectives.tuning.defects import corrupting
from onesided.collectives.tuning.race import Race
from onesided.collectives.tuning.situations import (
    Situation,
    of_broadcast,
    of_exchange,
    of_reduction,
)

#: By what a request may have been chosen.
MEASURED, RECALLED, USUAL = "measuring now", "what was measured before", "what usually wins"

#: What methods an operation has, and what it depends on which of them is the best.
_KINDS: dict[type[Operation], tuple[str, Callable[..., Situation]]] = {
    Exchange: (EXCHANGE, of_exchange), Broadcast: (BROADCAST, of_broadcast),
    Reduction: (REDUCTION, of_reduction),
}  # fmt: skip


def choose(wanted: Operation) -> Request:
    """Collective. The request of the best candidate; raises :class:`UnsupportedError` where none of
    them works here."""
    context, hints = wanted.context, wanted.hints
    kind, found = _KINDS[type(wanted)]
    able, without, error = [], corrupting(), None
    for method in methods(kind).values():
        if method.candidate and (method.any_order or hints.strict) and method.name not in without:
            able.append(method)
    names = ", ".join(method.name for method in able)
    loaded = f"{kind}: {names}"
    try:
        for method in able if loaded not in context.loaded else ():
            method.load()  # where it cannot be loaded on some rank, no rank makes it
    except Exception as problem:
        error = problem
    situation = found(wanted, f"auto among {names}", error)
    context.loaded.add(loaded)
    place = {name: i for i, name in enumerate(situation.order)}
    able = [method for method in able if method.name not in situation.without]
    able.sort(key=lambda method: place.get(method.name, len(place)))
    by_name = {method.name: method for method in able}
    record, by = Record({}, {}), USUAL
    try:
        if hints.effort != ESTIMATE:
            known = recall(context, situation.key)
            if known is not None and known.covers(by_name):
                record, by = known, RECALLED
            elif situation.elsewhere is not None:
                record, by = _measured(wanted, situation, able), MEASURED
    except Exception:  # on all ranks, where an interrupt may be one rank's: it ends the job
        situation.release()
        raise
    situation.release()
    reasons = dict(record.refused)
    for name in record.ranking(by_name, hints.expected_iterations):
        try:
            request = _made(wanted, by_name[name])
        except (UnsupportedError, MemoryError, MPIError) as error:
            reasons[name] = str(error)
            continue
        request.chosen_by = by if name in record.costs else USUAL
        return request
    words = "; ".join(f"{name}: {why}" for name, why in reasons.items())
    raise UnsupportedError(f"no method works here: {words}")


def _made(wanted: Operation, method: Method) -> Request:
    made = replace(wanted, method=method.name, any_order=method.any_order)
    return build(made, method.load())


def _measured(wanted: Operation, situation: Situation, candidates: list[Method]) -> Record:
    """Collective. What a race tells; kept where every candidate has been tried. What has not been
    tried ranks last, in the usual order."""
    context, elsewhere = wanted.context, situation.elsewhere

    def trial(method: Method) -> Request:
        if elsewhere is None:
            raise UnsupportedError("nothing can be tried")
        return _made(elsewhere(context.next_tag()), method)

    race = Race(context.comm, situation.far, wanted.hints.expected_iterations)
    record = race.run(candidates, trial)
    if race.complete:
        learn(context, situation.key, record)
    return record
