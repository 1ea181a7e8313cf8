"""How docstrings become pages: which members a class shows, and how their first words are read."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from sphinx.ext.autosummary import Autosummary

#: Begins the docstring of a member by which modules of the package know each other.
INTERNAL = re.compile(r"(Collective|Local), internal\b")


def listed(module: str, name: str, members: Iterable[str]) -> list[str]:
    """Those members of a class that the package, not Python or NumPy, defines for its users."""
    cls = getattr(import_module(module), name)
    owners = {member: base for base in reversed(cls.__mro__) for member in vars(base)}
    return [
        member for member in members
        if not member.startswith("_")
        and owners.get(member, cls).__module__.startswith("onesided")
        and not INTERNAL.match(inspect.getdoc(getattr(cls, member, None)) or "")
    ]  # fmt: skip


class Summary(Autosummary):
    """A table of members, without those that have no docstring: autodoc leaves them out, too."""

    def get_table(self, items: list[tuple[str, str | None, str, str]]) -> list[Any]:
        told = [item for item in items if item[2]]
        return super().get_table(told) if told else []


def first_words(app: Any, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    """Who calls it, and what it does, are one sentence: summaries take the first.

    Napoleon takes what stands before a colon in an attribute's first line for its type.
    """
    if lines:
        lines[0] = re.sub(r"^(Collective|Local)((?:[ ,][^.]*)?)\. ", r"*\1*\2: ", lines[0])
        if what in ("attribute", "property"):
            lines[0] = f": {lines[0]}"


def named_aliases(
    app: Any, what: str, name: str, found: Any, options: Any, signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:  # fmt: skip
    """Sphinx writes an alias within a union as what it is, not by its name."""
    return signature and re.sub(r"TypeAliasForwardRef\('(.+?)'\)", r"~\1", signature), returns


def setup(app: Any) -> dict[str, bool]:
    """Sphinx calls it."""
    app.add_directive("summary", Summary)
    app.connect("autodoc-process-docstring", first_words, priority=400)  # before Napoleon
    app.connect("autodoc-process-signature", named_aliases)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
