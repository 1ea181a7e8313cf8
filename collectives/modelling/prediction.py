"""What a round takes with every method, by the model; no MPI calls.

The same numbers come out on every rank that is given the same ones, so nobody has to agree on
which method is the fastest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from onesided.collectives.errors import MethodError
from onesided.collectives.modelling.formulas.costs import Costs
from onesided.collectives.modelling.parameters import Parameters
from onesided.collectives.modelling.registry import formulas
from onesided.collectives.modelling.traffic import Traffic
from onesided.collectives.modelling.way import Numbers


def predict(
    traffic: Traffic, parameters: Parameters, methods: Iterable[str] | None = None
) -> dict[str, float]:
    """Local. Seconds of a round by method, in the order of ``methods`` (None: all that have one).

    ``traffic`` holds numbers. Raises :class:`MethodError` for a method without a formula, and
    :class:`~onesided.collectives.errors.PatternError` where the parameters lack a level of the
    machine that the traffic uses.
    """
    swept = predict_all(traffic, parameters, methods)
    return {method: float(seconds) for method, seconds in swept.items()}


def predict_all(
    traffic: Traffic, parameters: Parameters, methods: Iterable[str] | None = None
) -> Mapping[str, Numbers]:
    """Local. The same for traffic that holds arrays: an array of seconds by method."""
    known = formulas()
    names = list(known) if methods is None else list(methods)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise MethodError(f"no model of {', '.join(unknown)}; there are {', '.join(known)}")
    costs = Costs(traffic, parameters)

    def seconds(name: str) -> Numbers:
        own = np.asarray(traffic.own_bytes, float) * known[name].copies_own
        alone = parameters.alone(name, own, traffic.copied_bytes)
        return np.asarray(known[name].seconds(costs) + alone)

    return {name: seconds(name) for name in names}


def fastest(times: Mapping[str, float]) -> str:
    """Local. The method of the least time, the first one of equals."""
    return min(times, key=times.__getitem__)
