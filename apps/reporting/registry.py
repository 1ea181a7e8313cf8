"""Which section a command has: one line each; other commands have that of any command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onesided.apps.reporting.result import Result
from onesided.apps.reporting.section import Section
from onesided.apps.reporting.sections.applications import Applications
from onesided.apps.reporting.sections.broadcasts import Broadcasts
from onesided.apps.reporting.sections.exchanges import Collectives, Exchanges
from onesided.apps.reporting.sections.experiments import Experiments
from onesided.apps.reporting.sections.kind import Kind
from onesided.apps.reporting.sections.miniapps import MiniApps
from onesided.apps.reporting.sections.minife import MiniFe
from onesided.apps.reporting.sections.model import Check, Model
from onesided.apps.reporting.sections.partitions import Partitions
from onesided.apps.reporting.sections.patterns import Patterns
from onesided.apps.reporting.sections.products import Products
from onesided.apps.reporting.sections.rma_mt import RmaMt
from onesided.apps.reporting.sections.suites import Suite

#: In the order of the page.
KINDS: Mapping[str, type[Kind]] = {
    "bench alltoallv": Exchanges,
    "bench collectives": Collectives,
    "bench patterns": Patterns,
    "bench apps": Applications,
    "bench broadcast": Broadcasts,
    "bench partitioned": Partitions,
    "bench partitioned --targets": Suite,
    "bench rma-mt": RmaMt,
    "hpccg": MiniApps,
    "minife": MiniFe,
    "minimd": MiniApps,
    "bench fft": Kind,
    "bench fft --suite": Suite,
    "bench spmv": Products,
    "bench spmv --suite": Suite,
    "bench model": Check,
    "model": Model,
    "bench all": Experiments,
}


def sections(results: Sequence[Result]) -> list[Section]:
    """Local. What the report says of each; other commands come last, by the names of the files."""
    places = {command: place for place, command in enumerate(KINDS)}
    ordered = sorted(results, key=lambda result: places.get(result.command, len(places)))
    return [KINDS.get(result.command, Kind)(result).section() for result in ordered]
