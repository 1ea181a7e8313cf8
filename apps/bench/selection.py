"""Which methods a command runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.options import ALL, Options
from onesided.apps.cli.report import BASELINE as BASELINE
from onesided.collectives import methods

Made = TypeVar("Made")


def named(text: str, known: Iterable[str], of: str = "") -> list[str]:
    """Local. The names that ``--comm`` means, each once; ``of`` says what the known ones do.

    :class:`CommandError` where a name is unknown; it lists the known ones.
    """
    known = list(dict.fromkeys(known))
    names = known if text == ALL else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise CommandError(
                f"no method {name!r}{of}; the methods are {', '.join(known)}, or {ALL}"
            )
    return list(dict.fromkeys(names))


def chosen(text: str, *, baseline: bool = True) -> list[str]:
    """Local. Methods of an exchange, as :func:`named`; the baseline first if it is wanted."""
    return list(dict.fromkeys([*([BASELINE] if baseline else []), *named(text, methods())]))


def ways_of(text: str, known: Mapping[str, Made], reference: str) -> dict[str, Made]:
    """Local. Of the ways that ``known`` has by name those that ``--comm`` means, as :func:`named`;
    the reference in any case, and first."""
    return {name: known[name] for name in dict.fromkeys([reference, *named(text, known)])}


def hints(options: Options) -> dict[str, str]:
    """Local. The info that ``--info`` gives; ``auto`` is told how often it will be started."""
    return {"expected_iterations": str(options.iterations), **dict(options.info)}
