"""Ways to communicate, by name: what a mini-application can be run with, and compared to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from onesided.apps.failures import CommandError
from onesided.apps.selection import EVERY

REFERENCE = "two-sided"


@dataclass(frozen=True)
class Way:
    """A way to communicate: its name, where its class is, and what else that is given.

    ``where`` is ``module:Class`` with the whole name of the module, which is imported when the
    way is made.
    """

    name: str
    where: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def make(self, *given: Any) -> Any:
        """Collective where the class says so. An object of the class."""
        module, _, name = self.where.partition(":")
        kind = getattr(import_module(module), name)
        return kind(*given, **self.arguments)


def by_name(ways: Sequence[Way]) -> dict[str, Way]:
    """Local. In this order."""
    return {way.name: way for way in ways}


def chosen(text: str, known: Mapping[str, Way], reference: str = REFERENCE) -> list[Way]:
    """Local. Those that ``--comm`` means, and the reference in any case, which is the first.

    :class:`CommandError` where a name is unknown; it lists the known ones.
    """
    names = list(known) if text == EVERY else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise CommandError(
                f"no method {name!r}; the methods are {', '.join(known)}, or {EVERY}"
            )
    return [known[name] for name in dict.fromkeys([reference, *names])]
