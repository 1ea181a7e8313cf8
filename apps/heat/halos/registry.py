"""The halos by name: the only place where one is chosen. A new one is a file and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from onesided.apps.failures import CommandError
from onesided.apps.heat.halos.halo import Halo, Sides
from onesided.apps.selection import EVERY
from onesided.collectives import methods

REFERENCE = "persistent"


@dataclass(frozen=True)
class Way:
    """A way of exchanging faces: its name, where its class is, and what else that is given."""

    name: str
    where: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def make(self, sides: Sides) -> Halo:
        """Collective."""
        module, _, name = self.where.partition(":")
        kind = getattr(import_module(f"onesided.apps.heat.halos.{module}"), name)
        halo: Halo = kind(sides, **self.arguments)
        return halo


_WAYS = (
    Way("blocking", "blocking:Blocking"),
    Way("persistent", "persistent:Persistent"),
    Way("halo", "partitioned:Whole"),
    Way("partitioned", "partitioned:Partitioned"),
)


def ways() -> dict[str, Way]:
    """Local. By name; the methods of exchanges, each in one collective request, at the end."""
    exchanges = (Way(name, "exchange:Exchange", {"method": name}) for name in methods())
    return {way.name: way for way in (*_WAYS, *exchanges)}


def chosen(text: str) -> list[Way]:
    """Local. Those that ``--comm`` means, and the reference in any case.

    :class:`CommandError` where a name is unknown; it lists the known ones.
    """
    known = ways()
    names = list(known) if text == EVERY else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise CommandError(
                f"no method {name!r}; the methods are {', '.join(known)}, or {EVERY}"
            )
    if REFERENCE not in names:
        names = [REFERENCE, *names]
    return [known[name] for name in dict.fromkeys(names)]
