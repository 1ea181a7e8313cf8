"""The transports of partitioned sends by name: the only place where one is chosen.

A new transport is one new file in ``transports/``, with a ``Send`` and a ``Receive``, and one line
here; every line runs the same tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from onesided.collectives.errors import MethodError, UnsupportedError
from onesided.collectives.partitioned.letter import Letter
from onesided.collectives.partitioned.link import Inbound, Outbound

AUTO = "auto"


@dataclass(frozen=True)
class PartitionedMethod:
    """A transport: its name and its module. ``candidate``: ``auto`` considers it."""

    name: str
    module: str
    candidate: bool
    summary: str

    def sender(self) -> type[Outbound]:
        """Local. The class of the sending end."""
        found: type[Outbound] = self._find("Send")
        return found

    def receiver(self) -> type[Inbound]:
        """Local. The class of the receiving end."""
        found: type[Inbound] = self._find("Receive")
        return found

    def _find(self, name: str) -> type:
        module = import_module(f"onesided.collectives.partitioned.transports.{self.module}")
        found: type = getattr(module, name)
        return found


# fmt: off
_METHODS = (
    PartitionedMethod("rma", "rma", True, "store into memory from empty() on the node, Put off it, then tell"),
    PartitionedMethod("p2p-gather", "gather", True, "a note, then one message of all groups that gathered meanwhile"),
    PartitionedMethod("p2p", "p2p", False, "one persistent send per group"),
    PartitionedMethod("mpi", "mpi", False, "the MPI's own partitioned send, where it works"),
)
# fmt: on


def partitioned_methods() -> dict[str, PartitionedMethod]:
    """Local. The transports of partitioned sends by name; ``auto`` takes the first that suits."""
    return {method.name: method for method in _METHODS}


def code_of(name: str) -> int:
    """Local. The place of a transport, -1 for ``auto``."""
    known = [AUTO, *partitioned_methods()]
    if name not in known:
        raise MethodError(f"no method {name!r}; the methods are {', '.join(known)}")
    return known.index(name) - 1


def chosen(sender: Letter, receiver: Letter) -> PartitionedMethod:
    """Local, the same on both sides. What the two wishes come to."""
    wishes = sorted({letter.method for letter in (sender, receiver)} - {-1})
    if len(wishes) > 1:
        names = [_METHODS[letter.method].name for letter in (sender, receiver)]
        raise MethodError(f"the sender wants {names[0]}, the receiver {names[1]}")
    if not wishes:
        return next(m for m in _METHODS if m.candidate and _suits(m, sender, receiver))
    method = _METHODS[wishes[0]]
    obstacle = _obstacle(method, sender, receiver)
    if obstacle:
        raise UnsupportedError(f"{method.name}: {obstacle}")
    return method


def _suits(method: PartitionedMethod, sender: Letter, receiver: Letter) -> bool:
    end = method.sender()
    return not end.obstacle(sender, receiver) and end.recommended(sender, receiver)


def _obstacle(method: PartitionedMethod, sender: Letter, receiver: Letter) -> str:
    return method.sender().obstacle(sender, receiver)
