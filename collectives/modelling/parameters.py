"""The parameters of a machine: LogGP on the node and between nodes, and what synchronizing costs.

All times are seconds of one operation that all ranks of a pair do at the same time, as they do in
an exchange. They come from measurements (``onesided bench model``), or from what others have
published; ``provenance`` says which, in words, ``assumed`` names those that nobody measured, and
``measured`` tells on how many ranks and with which messages the others were. :data:`MACHINES` come
with the program. Those of this machine are kept in a file, for programs that estimate.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from onesided.collectives.errors import PatternError
from onesided.collectives.hardware import kept_file, replace_file
from onesided.collectives.modelling.loggp import LogGP, Numbers, PiecewiseLogGP, Segment
from onesided.collectives.modelling.traffic import Traffic

FORMAT = "onesided model parameters"
VERSION = 2

#: Environment variable with the file to use in place of the default one, or "off".
VARIABLE = "ONESIDED_MODEL"

#: Within so many times of what was measured, in ranks and in bytes, a prediction counts as one;
#: beyond it is called extrapolated. The number is a choice, nobody measured it.
BEYOND = 4.0

#: Seconds of making and freeing a request with windows of its own, where they were not measured.
ASSUMED_SETUP = 5e-3

#: Relative error of a prediction where nobody checked one: that of the formulas themselves, which
#: lie within a fifth of the simulation.
ASSUMED_ERROR = 0.2


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

    messages: PiecewiseLogGP
    puts: PiecewiseLogGP
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
    collective: PiecewiseLogGP | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, PiecewiseLogGP | None):
                _check_number(name, value)


@dataclass(frozen=True)
class Validity:
    """What the parameters were measured with: most ranks, and bytes of a message."""

    most_ranks: int
    least_bytes: float
    most_bytes: float

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            _check_number(name, value)
        if self.most_ranks < 1 or self.least_bytes > self.most_bytes:
            raise PatternError(
                f"measured on {self.most_ranks} ranks, from {self.least_bytes} to "
                f"{self.most_bytes} bytes"
            )

    def left_by(self, traffic: Traffic) -> Any:
        """Local. Where the traffic lies over :data:`BEYOND` times beyond; bools or arrays."""
        many = np.asarray(traffic.ranks, float) > BEYOND * self.most_ranks
        for count, nbytes in (
            (traffic.near_messages, traffic.near_bytes),
            (traffic.far_messages, traffic.far_bytes),
        ):
            there = np.asarray(count, float) > 0
            mean = np.asarray(nbytes, float) / np.maximum(count, 1.0)
            outside = (mean > BEYOND * self.most_bytes) | (BEYOND * mean < self.least_bytes)
            many = many | (there & outside)
        return many

    def __str__(self) -> str:
        return (
            f"{self.most_ranks:,} ranks, messages of {self.least_bytes:,.0f} to "
            f"{self.most_bytes:,.0f} bytes"
        )


@dataclass(frozen=True)
class Parameters:
    """A machine. ``network`` is None where there is one node, ``node`` where no ranks share one.

    ``stores`` is the copy into memory that ranks of a node share; ``software``, by method, a round
    on one rank alone, which sends to itself: the method's own code, MPI's, and that copy.

    ``setup``, by method, are seconds of making and freeing a request, as far as they were
    measured. ``assumed`` names what is assumed, not measured, as ``network.link_byte_gap`` (the
    name of a level alone: all of it). ``measured`` is the range of the measurements, None where
    there were none. ``error`` is the relative error of a prediction.
    """

    stores: PiecewiseLogGP
    node: Level | None = None
    network: Level | None = None
    software: Mapping[str, PiecewiseLogGP] = field(default_factory=dict)
    setup: Mapping[str, float] = field(default_factory=dict)
    name: str = ""
    provenance: str = ""
    assumed: tuple[str, ...] = ()
    measured: Validity | None = None
    error: float = ASSUMED_ERROR

    def __post_init__(self) -> None:
        _check_number("error", self.error)
        for method, seconds in self.setup.items():
            _check_number(f"setup of {method}", seconds)

    def extrapolated(self, traffic: Traffic) -> Any:
        """Local. Where a prediction is a guess, far beyond what was measured; bools or arrays."""
        if self.measured is None:
            return np.add(traffic.ranks, traffic.own_bytes) > 0  # everywhere
        return self.measured.left_by(traffic)

    def setup_seconds(self, method: str) -> float:
        """Local. Seconds of making and freeing a request: measured, or :data:`ASSUMED_SETUP`."""
        return self.setup.get(method, ASSUMED_SETUP)

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
        values["stores"] = _piecewise(values["stores"])
        for name in ("node", "network"):
            values[name] = None if values.get(name) is None else _level(values[name])
        software = values.get("software", {})
        values["software"] = {method: _piecewise(each) for method, each in software.items()}
        values["setup"] = {
            method: _number("setup", each) for method, each in values.get("setup", {}).items()
        }
        values["assumed"] = tuple(str(name) for name in values.get("assumed", ()))
        if values.get("measured") is not None:
            values["measured"] = Validity(**values["measured"])
        return Parameters(**values)
    except (KeyError, TypeError, AttributeError) as error:
        words = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise PatternError(f"broken {FORMAT}: {words}") from error


def _level(content: dict[str, Any]) -> Level:
    names = {each.name for each in fields(Level)}
    unknown = set(content) - names
    if unknown:
        raise PatternError(f"broken {FORMAT}: a level with {', '.join(sorted(unknown))}")
    transfers = {name: _piecewise(content[name]) for name in ("messages", "puts")}
    if content.get("collective") is not None:
        transfers["collective"] = _piecewise(content["collective"])
    return Level(**{**content, **transfers})


def _piecewise(content: dict[str, Any]) -> PiecewiseLogGP:
    segments = [
        Segment(_number("start", each["start"]), _loggp(each["loggp"]))
        for each in content["segments"]
    ]
    return PiecewiseLogGP(tuple(segments), content["ends"])


def _loggp(content: dict[str, Any]) -> LogGP:
    return LogGP(**{name: _number(name, value) for name, value in content.items()})


def _number(name: str, value: Any) -> float:
    _check_number(name, value)
    return float(value)


def _check_number(name: str, value: Any) -> None:
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if not (real and 0 <= value < math.inf):
        raise PatternError(f"{name} is {value!r}, not a number of zero or above")


# -- parameters that come with the program ---------------------------------------------------------

US, NS = 1e-6, 1e-9
KIBI = 1 << 10


def _transfer(ends: int, *segments: tuple[float, float, float, float, float]) -> PiecewiseLogGP:
    """Segments as (from bytes, L in us, o in us, g in us, G in ns)."""
    return PiecewiseLogGP(
        tuple(
            Segment(start, LogGP(latency * US, overhead * US, gap * US, byte_gap * NS))
            for start, latency, overhead, gap, byte_gap in segments
        ),
        ends,
    )


#: Rounds on one rank alone, in us: measured with MPICH 5.0.2, medians.
_ALONE = {
    "mpi": 2.7,
    "mpi-persistent": 1.7,
    "p2p": 2.4,
    "rma-fence": 2.7,
    "rma-lock": 3.6,
    "rma-notify": 2.1,
    "rma-p2p": 2.1,
    "rma-pscw": 2.8,
    "rma-fence-hier": 2.7,
    "rma-lock-hier": 3.6,
    "rma-fence-paper": 3.4,
    "rma-lock-paper": 7.9,
}
_SOFTWARE = {method: _transfer(1, (0, time, 0.0, 0.0, 0.05)) for method, time in _ALONE.items()}

_ASSUMED_OF_PAPER = (
    "latency", "overhead", "signal", "barrier", "done", "fence", "opening", "relock"
)  # fmt: skip
# Fitted to the times that paper 000 tells in its text (``onesided model --paper`` shows them beside
# the model); those of its two figures differ by 1.8 where they overlap, in the baseline with 2 MiB
# on 224 ranks, and the fit lies between.
_PAPER = Parameters(
    stores=_transfer(1, (0, 0.0, 0.1, 0.1, 0.434)),
    node=Level(
        messages=_transfer(2, (0, 1.0, 0.3, 0.6, 1.26)),
        puts=_transfer(1, (0, 1.0, 0.3, 0.3, 0.434)),
        signal=1e-6,
        barrier=1e-6,
        done=1e-6,
        fence=1e-6,
        opening=1e-6,
        relock=10e-6,
    ),
    network=Level(
        messages=_transfer(2, (0, 2.0, 0.5, 20.0, 0.06), (16 * KIBI + 1, 4.0, 0.5, 255.0, 0.06)),
        puts=_transfer(1, (0, 4.0, 0.5, 175.0, 0.06)),
        signal=2e-6,
        barrier=2e-6,
        done=2e-6,
        fence=2e-6,
        opening=2e-6,
        relock=10e-6,
        link_byte_gap=0.06 * NS,
        congestion=0.15,
        contention=0.5,
    ),
    name="paper",
    provenance=(
        "fitted by hand to the times in the text of paper 000 (Dane, MVAPICH2, 28 ranks per node): "
        "G on the node and of the link, g of Puts and long messages, congestion, contention; eight "
        "numbers for seventeen times. Assumed: L, o, signals, barriers, locks, the change of "
        "protocol at 16 KiB"
    ),
    assumed=(
        *(f"{level}.{name}" for level in ("node", "network") for name in _ASSUMED_OF_PAPER),
        "software",
        "setup",
    ),
    measured=Validity(448, 32 * KIBI, 2048 * KIBI),
    error=0.25,
)

_GIGABIT = Parameters(
    stores=_transfer(1, (0, 0.03, 0.06, 0.06, 0.01), (32 * KIBI, 0.0, 0.06, 0.06, 0.05)),
    node=Level(
        messages=_transfer(2, (0, 0.85, 0.48, 0.96, 0.26), (8 * KIBI, 3.0, 0.48, 0.96, 0.12)),
        puts=_transfer(1, (0, 1.8, 0.9, 1.7, 0.28)),
        signal=1.6e-6,
        barrier=2.2e-6,
        done=1.6e-6,
        fence=1.7e-6,
        empty_fence=2.6e-6,
        opening=2.7e-6,
        notice=0.4e-6,
        epoch=2.2e-6,
        relock=12.6e-6,
    ),
    network=Level(
        messages=_transfer(2, (0, 225.0, 30.0, 60.0, 10.9), (6 * KIBI, 270.0, 30.0, 60.0, 9.4)),
        puts=_transfer(1, (0, 400.0, 65.0, 135.0, 9.3)),
        signal=240e-6,
        barrier=225e-6,
        done=250e-6,
        fence=210e-6,
        empty_fence=240e-6,
        opening=245e-6,
        notice=430e-6,
        epoch=175e-6,
        relock=1160e-6,
        link_byte_gap=9.3 * NS,
    ),
    software=_SOFTWARE,
    name="gigabit",
    provenance=(
        "measured by onesided bench model, and rounded: MPICH 5.0.2 over TCP, virtual nodes of one "
        "2-core machine with links of 1 gbit/s and 100 us. Assumed: that a node's ranks share the "
        "link"
    ),
    assumed=("network.link_byte_gap", "network.link_gap", "network.congestion", "setup"),
    measured=Validity(2, 8, 4096 * KIBI),
)

_INFINIBAND = Parameters(
    stores=_transfer(1, (0, 0.03, 0.06, 0.06, 0.05), (512 * KIBI, 0.0, 0.06, 0.06, 0.15)),
    node=Level(
        messages=_transfer(2, (0, 0.4, 0.2, 0.4, 0.2)),
        puts=_transfer(1, (0, 0.8, 0.4, 0.4, 0.2)),
        signal=0.6e-6,
        barrier=0.6e-6,
        done=0.6e-6,
        fence=0.8e-6,
        empty_fence=0.9e-6,
        opening=0.9e-6,
        notice=0.3e-6,
        epoch=1.0e-6,
        relock=5.2e-6,
    ),
    network=Level(
        messages=_transfer(2, (0, 1.0, 0.25, 0.5, 0.042), (16 * KIBI, 3.0, 0.25, 0.5, 0.042)),
        puts=_transfer(1, (0, 2.0, 0.3, 0.3, 0.042)),
        signal=1.3e-6,
        barrier=1.5e-6,
        done=1.3e-6,
        fence=2.0e-6,
        empty_fence=2.0e-6,
        opening=2.0e-6,
        notice=2.5e-6,
        epoch=2.0e-6,
        relock=11.0e-6,
        link_byte_gap=0.042 * NS,
        link_gap=10 * NS,
    ),
    software=_SOFTWARE,
    name="infiniband",
    provenance=(
        "assumed: a link of 200 gbit/s for each node, 1 us from memory to memory, hardware that "
        "Puts without the target's processor. Measured: the methods' own code (MPICH 5.0.2)"
    ),
    assumed=("stores", "node", "network", "setup"),
)

#: By the name that ``--network`` takes.
MACHINES = {each.name: each for each in (_PAPER, _GIGABIT, _INFINIBAND)}


# -- the file of this machine ----------------------------------------------------------------------

#: What is assumed of a machine that nobody has measured.
ASSUMED = MACHINES["infiniband"]


def parameters_file() -> Path | None:
    """Local. The file that ``ONESIDED_MODEL`` names, None if that is "off" or there is no home.

    Without the variable: ``onesided/model.json`` in the user's cache directory.
    """
    return kept_file(VARIABLE, "model.json")


def known_parameters() -> Parameters:
    """Local. What was measured on this machine, :data:`ASSUMED` where nothing was.

    A file that is something else is ignored with a warning.
    """
    path = parameters_file()
    if path is None:
        return ASSUMED
    try:
        return of_record(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return ASSUMED
    except (OSError, ValueError, PatternError) as error:
        warnings.warn(f"{path} is ignored: {error}", RuntimeWarning, stacklevel=2)
        return ASSUMED


def keep_parameters(parameters: Parameters) -> Path | None:
    """Local. Keep what was measured for later programs; returns the file, None if that is off.

    Raises :class:`OSError` where it cannot be written.
    """
    path = parameters_file()
    if path is not None:
        replace_file(path, parameters.record())
    return path
