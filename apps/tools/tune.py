"""``onesided tune``: what ``method="auto"`` knows, and measuring it ahead of time.

Without ``--show`` the candidates are measured on uniform exchanges, into memory of the requests
and into memory from ``empty``, and on broadcasts, on the ranks of this job; what is known already
is not measured again. The file is that of rank 0 (``ONESIDED_TUNING``).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from rich.console import Console
from rich.table import Table

from onesided.apps.cli.failures import CommandError, by_rank_0, user_errors
from onesided.apps.cli.machine import facts
from onesided.apps.cli.options import Options
from onesided.apps.cli.progress import console, progress
from onesided.apps.cli.report import duration, write_json
from onesided.collectives import Alltoallv_init, Bcast_init, empty, free
from onesided.collectives.tuning import race
from onesided.collectives.tuning.decisions import VARIABLE, Record, Tuning, machine, open_tuning


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command."""
    tuning: Any = by_rank_0(comm, partial(_file, afresh=options.afresh))
    if not options.show:
        _measure(comm, options)
    place = facts(comm)

    def tell() -> None:
        show(console(), tuning)
        if options.json is not None:
            known = tuning.records().get(machine(), {})
            write_json(options.json, {
                "command": "tune", "settings": options.settings(), "machine": place,
                "measured_on": machine(),
                "records": {situation: each.as_json() for situation, each in known.items()},
            })

    by_rank_0(comm, tell)
    return 0


def _file(*, afresh: bool) -> Tuning:
    tuning = open_tuning()
    if tuning.path is None:
        raise CommandError(f"there is no file for what is measured: {VARIABLE} is off, or no home")
    if afresh:
        with user_errors():
            tuning.forget()
    return tuning


def _measure(comm: MPI.Intracomm, options: Options) -> None:
    """Collective. Let ``auto`` decide in every situation; requests are freed at once."""
    how: dict[str, Any] = {"method": "auto", "info": dict(options.info)}
    race.SECONDS = race.SECONDS_FAR = race.AHEAD_OF_TIME
    with progress(comm, options, "measuring", 3 * len(options.sizes)) as tick, user_errors():
        for nbytes in options.sizes:
            sent = np.zeros(max(1, round(nbytes / comm.size)) * comm.size, np.uint8)
            Alltoallv_init(comm, sent, None, **how).Free()
            tick()
            received = empty(comm, sent.size, np.uint8)
            Alltoallv_init(comm, sent, received, **how).Free()
            free(received)
            tick()
            Bcast_init(comm, np.zeros(nbytes, np.uint8), **how).Free()
            tick()


def show(out: Console, tuning: Tuning) -> None:
    """Local. What is known of this machine: a table for every situation, the best first."""
    known = tuning.records().get(machine(), {})
    others = len(tuning.records()) - bool(known)
    out.print(f"{tuning.path}: {len(known)} situations of this machine and MPI, "
              f"and those of {others} others", soft_wrap=True, highlight=False)  # fmt: skip
    for situation, record in sorted(known.items()):
        out.print(_table(situation, record))


def _table(situation: str, record: Record) -> Table:
    table = Table(title=situation, title_justify="left", title_style="")
    for name in ("method", "round", "set-up", "why not"):
        table.add_column(name, justify="left" if name in ("method", "why not") else "right")
    for name in record.ranking(record.costs):
        cost = record.costs[name]
        table.add_row(name, duration(cost.round), duration(cost.setup), "")
    for name, reason in record.refused.items():
        table.add_row(name, "", "", reason)
    return table
