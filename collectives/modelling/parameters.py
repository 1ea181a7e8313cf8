"""The parameters of a machine: LogGP on the node and between nodes, and what synchronizing costs.

All times are seconds of one operation that all ranks of a pair do at the same time, as they do in
an exchange. They come from measurements (``onesided bench model``), or from what others have
published; ``provenance`` says which, in words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from onesided.collectives.errors import PatternError
from onesided.collectives.modelling.way import Line, Numbers, Way
from onesided.collectives.models import Network

FORMAT = "onesided model parameters"
VERSION = 1


@dataclass(frozen=True)
class Level:
    """One level: the ranks of a node, or ranks of different nodes.

    ``messages`` are two-sided, and ``collective`` those of ``MPI_Alltoallv`` beyond its software,
    which may be slower, and on the node are one more, to the rank itself (None: as ``messages``).
    ``puts`` are Put into a window and flushed, so their latency holds the way back. ``signal`` is
    an empty message, ``barrier`` one step of a barrier, ``empty_fence`` a fence with nothing to
    complete, and ``opening`` one that is asserted to follow on nothing (NOPRECEDE). Beside these,
    what a round costs more than its Puts flushed: ``done`` an empty message after the flush,
    ``notice`` a counter accumulated and flushed, ``fence`` the fence that ends it, ``epoch`` post,
    start, complete and wait (without the signal before), ``relock`` the locks and both barriers of
    the printed Algorithm 3. A fence is that of two ranks, and so holds one step of a barrier,
    ``relock`` two.

    ``link_byte_gap`` and ``link_gap`` are the times that a byte, and a message, keep the link that
    all ranks of a node share. The last two are fits to what others measured, and 0 elsewhere: the
    share by which a byte takes longer for every doubling of the nodes beyond two, ``congestion``
    that of a two-sided message, ``contention`` that of a Put under the printed locks.
    """

    messages: Way
    puts: Way
    signal: float
    barrier: float
    done: float = 0.0
    fence: float = 0.0
    empty_fence: float = 0.0
    opening: float = 0.0
    notice: float = 0.0
    epoch: float = 0.0
    relock: float = 0.0
    link_byte_gap: float = 0.0
    link_gap: float = 0.0
    congestion: float = 0.0
    contention: float = 0.0
    collective: Way | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, Way | None):
                _check_number(name, value)


@dataclass(frozen=True)
class Parameters:
    """A machine. ``network`` is None where there is one node, ``node`` where no ranks share one.

    ``stores`` is the copy into memory that ranks of a node share; ``software``, by method, a round
    on one rank alone, which sends to itself: the method's own code, MPI's, and that copy.
    """

    stores: Way
    node: Level | None = None
    network: Level | None = None
    software: Mapping[str, Way] = field(default_factory=dict)
    name: str = ""
    provenance: str = ""

    def alone(self, method: str, own_bytes: Any, all_bytes: Any = 0.0) -> Numbers:
        """Local. Seconds of a round in which a rank sends only to itself; a copy at least.

        It is as slow as in a round in which the rank copies ``all_bytes``.
        """
        copied = np.asarray(own_bytes, float)
        size = np.maximum(copied, all_bytes)
        if method in self.software:
            return self.software[method].time(1.0, copied, size=size)
        return self.stores.time(copied > 0, copied, size=size)

    def level(self, which: str) -> Level:
        """Local. ``"node"`` or ``"network"``; :class:`PatternError` where it is not known."""
        found: Level | None = getattr(self, which)
        if found is None:
            raise PatternError(
                f"the parameters {self.name!r} have no level {which!r}, where this pattern "
                "has messages"
            )
        return found

    def record(self) -> dict[str, Any]:
        """Local. For JSON; :func:`of_record` reads it."""
        return {"format": FORMAT, "version": VERSION, **asdict(self)}


def of_record(content: Any) -> Parameters:
    """Local. What :meth:`Parameters.record` wrote; :class:`PatternError` for anything else."""
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise PatternError(f"these are no {FORMAT}")
    if content.get("version") != VERSION:
        raise PatternError(f"{FORMAT} of version {content.get('version')!r}, not {VERSION}")
    values = {name: value for name, value in content.items() if name not in ("format", "version")}
    try:
        values["stores"] = _way(values["stores"])
        for name in ("node", "network"):
            values[name] = None if values.get(name) is None else _level(values[name])
        software = values.get("software", {})
        values["software"] = {method: _way(each) for method, each in software.items()}
        return Parameters(**values)
    except (KeyError, TypeError, AttributeError) as error:
        words = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise PatternError(f"broken {FORMAT}: {words}") from error


def _level(content: dict[str, Any]) -> Level:
    names = {each.name for each in fields(Level)}
    unknown = set(content) - names
    if unknown:
        raise PatternError(f"broken {FORMAT}: a level with {', '.join(sorted(unknown))}")
    ways = {name: _way(content[name]) for name in ("messages", "puts")}
    if content.get("collective") is not None:
        ways["collective"] = _way(content["collective"])
    return Level(**{**content, **ways})


def _way(content: dict[str, Any]) -> Way:
    lines = [Line(_number("start", e["start"]), _network(e["network"])) for e in content["lines"]]
    return Way(tuple(lines), content["ends"])


def _network(content: dict[str, Any]) -> Network:
    return Network(**{name: _number(name, value) for name, value in content.items()})


def _number(name: str, value: Any) -> float:
    _check_number(name, value)
    return float(value)


def _check_number(name: str, value: Any) -> None:
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if not (real and 0 <= value < math.inf):
        raise PatternError(f"{name} is {value!r}, not a number of zero or above")
