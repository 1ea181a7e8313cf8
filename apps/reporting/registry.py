"""Which section a command has: one line each; other commands have that of any command."""

from __future__ import annotations

from collections.abc import Mapping

from onesided.apps.reporting.result import Result
from onesided.apps.reporting.section import Section
from onesided.apps.reporting.sections.applications import Applications
from onesided.apps.reporting.sections.broadcasts import Broadcasts
from onesided.apps.reporting.sections.exchanges import Exchanges
from onesided.apps.reporting.sections.kind import Kind
from onesided.apps.reporting.sections.model import Check, Model
from onesided.apps.reporting.sections.partitions import Partitions
from onesided.apps.reporting.sections.patterns import Patterns
from onesided.apps.reporting.sections.products import Products
from onesided.apps.reporting.sections.suites import Suite

KINDS: Mapping[str, type[Kind]] = {
    "bench alltoallv": Exchanges,
    "bench apps": Applications,
    "bench broadcast": Broadcasts,
    "bench fft --suite": Suite,
    "bench model": Check,
    "bench partitioned": Partitions,
    "bench patterns": Patterns,
    "bench spmv": Products,
    "bench spmv --suite": Suite,
    "model": Model,
}


def section(result: Result) -> Section:
    """Local. What the report says of a result."""
    return KINDS.get(result.command, Kind)(result).section()
