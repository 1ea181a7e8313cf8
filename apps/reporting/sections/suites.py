"""``bench fft --suite``, ``bench spmv --suite``: ours against others, case by case."""

from __future__ import annotations

from onesided.apps.reporting.bars import Bars
from onesided.apps.reporting.figure import Figure
from onesided.apps.reporting.quantities import RATIO
from onesided.apps.reporting.result import METHOD
from onesided.apps.reporting.sections.kind import Kind
from onesided.apps.reporting.sections.sweep import named

#: What a comparison is, by the words of its bound.
WORDS = {
    "at least": "How many times as fast as",
    "at most": "Time over that of",
}
LEFT_OUT = (METHOD, "opponent", "bound", "product")


class Suite(Kind):
    """Comparisons."""

    def figures(self) -> list[Figure]:
        """Local. One for every opponent: how many times as fast, or the time over its time."""
        found: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
        for entry in self.result.timed:
            reached = entry.number("reached")
            if reached is not None:
                labels = [name for name in entry.labels if name not in LEFT_OUT]
                group = found.setdefault((entry.label("bound"), entry.label("opponent")), {})
                group.setdefault(named(entry, labels), {})[entry.method or "ours"] = reached
        figures: list[Figure] = []
        for (bound, opponent), groups in found.items():
            title = f"{WORDS.get(bound, 'Against')} {opponent}"
            words = f"Bars, in groups: {', '.join(groups)}."
            figures.append(Bars(title, words, RATIO.called(title), groups))
        return figures
