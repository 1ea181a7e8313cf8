"""``bench apps``: applications end to end, communication and compute apart."""

from __future__ import annotations

from onesided.apps.reporting.bars import Bars
from onesided.apps.reporting.figure import Figure
from onesided.apps.reporting.quantities import TIME
from onesided.apps.reporting.sections.kind import Kind
from onesided.apps.reporting.sections.rows import numbers
from onesided.apps.reporting.sections.sweep import split

APPLICATION = "application"


class Applications(Kind):
    """A Fourier transform, conjugate gradients, by every method and by others."""

    def figures(self) -> list[Figure]:
        """Local. For every application the time of a run by method, and its parts."""
        found: list[Figure] = []
        for words, entries in split(self.result.timed, [APPLICATION]).items():
            groups = {
                entry.method: {"whole run": entry.median or 0.0, **numbers(entry, "parts")}
                for entry in entries
            }
            told = f"Bars of the time of a run and of its parts: {', '.join(groups)}."
            title = f"Time of a run: {words or self.result.command}"
            found.append(Bars(title, told, TIME.called("median time of a run"), groups, "method"))
        return found
