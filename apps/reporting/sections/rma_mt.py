"""``bench rma-mt``: Figures 1 to 7 of paper 002, multi-threaded one-sided messages."""

from __future__ import annotations

from onesided.apps.reporting.figure import Figure
from onesided.apps.reporting.lines import Lines
from onesided.apps.reporting.result import known
from onesided.apps.reporting.section import Block
from onesided.apps.reporting.sections.kind import Kind
from onesided.apps.reporting.sections.rows import text
from onesided.apps.reporting.table import Table
from onesided.apps.rmamt.figures import panels

#: What the failures are counted by, in the JSON file and in words.
COUNTS = {
    "by_kind": "kind",
    "by_sync": "synchronization",
    "by_op": "operation",
    "by_threads": "threads",
    "by_bytes": "bytes of a message",
}


class RmaMt(Kind):
    """Cells of the matrix."""

    def figures(self) -> list[Figure]:
        """Local. Those that there are data for; spreads are in the table of rows."""
        timed = self.result.timed
        cores = known(self.result.machine.get("cores")) or 1.0
        return [
            Lines(
                panel.title,
                f"Lines of the {panel.up.name} over {panel.across.name}: {', '.join(panel.lines)}.",
                panel.across,
                panel.up,
                {name: [(x, y) for x, y, _ in line] for name, line in panel.lines.items()},
            )
            for panel in panels(timed, timed, int(cores))
        ]

    def tables(self) -> list[Block]:
        """Local. How many cells failed and in what way, before all cells."""
        failures = self.result.pattern.get("failures")
        if not isinstance(failures, dict):
            return super().tables()
        rows = [["cells", text(failures.get("cells"))], ["failed", text(failures.get("failed"))]]
        rows += [
            [f"failed, by {words}", text(failures[name])]
            for name, words in COUNTS.items()
            if failures.get(name)
        ]
        return [Table("Failures", ["what", "how many"], rows, prose=True), *super().tables()]
