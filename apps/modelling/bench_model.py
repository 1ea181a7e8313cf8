"""``onesided bench model``: the parameters of the model, found by measuring, and checked.

Two ranks of a node, and two of different nodes, where the job has both, exchange messages, Puts,
fences and the rest at the same time; lines through the times give LogGP. With ``--verify`` the
methods themselves run on all ranks, and their times stand beside those that the model predicts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from mpi4py import MPI

from onesided.apps.bench.selection import chosen, hints
from onesided.apps.cli.failures import CommandError, from_rank_0, user_errors, words
from onesided.apps.cli.machine import library
from onesided.apps.cli.options import ALL, Options
from onesided.apps.cli.report import Listing, Report
from onesided.apps.modelling.check import Outcome, check
from onesided.apps.modelling.measuring import Findings, find
from onesided.apps.modelling.nodes import node_of_ranks
from onesided.collectives import OnesidedError
from onesided.collectives.hardware import Layout
from onesided.collectives.hints import Hints
from onesided.collectives.modelling.exchanges import formulas
from onesided.collectives.modelling.loggp import PiecewiseLogGP
from onesided.collectives.modelling.parameters import (
    VARIABLE,
    Level,
    Parameters,
    keep_parameters,
    of_record,
)

#: The share of the time for the parameters, where the methods are timed as well.
FOUND = 0.5
REMARK = (
    "L, o, g, G: LogGP of what goes both ways at once, from that many bytes on; a Put is flushed, "
    "so its L holds the way back. Times are first quartiles; predicted is compared with those."
)


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command."""
    if comm.size < 2:
        raise CommandError("bench model needs two ranks or more: onesided bench model --ranks 2")
    names = modelled(options.comm) if options.verify else []
    with user_errors():
        ranks_per_node = Hints.of(hints(options)).ranks_per_node
    nodes = node_of_ranks(comm, ranks_per_node)
    findings = _findings(comm, options, nodes)
    outcome = Outcome([], {})
    if names:
        with user_errors():
            share = 1.0 if options.parameters is not None else 1.0 - FOUND
            shorter = options.but(seconds=share * options.seconds)
            outcome = check(comm, shorter, names, nodes, findings.parameters)
        if options.parameters is None:
            findings = replace(findings, parameters=_checked(comm, findings.parameters, outcome))
    report = Report(
        "bench model",
        options.settings(),
        {
            "ranks": comm.size,
            "parameters": findings.parameters.record(),
            "fit_errors": findings.errors,
            "probes_s": findings.times,
            "check_errors": outcome.errors,
            "check_choices": outcome.choices,
        },
        rows=outcome.rows,
        remarks=[REMARK, *_sentences(findings, outcome)],
        listings=listings(findings.parameters),
    )
    if options.keep:
        report.remarks.append(from_rank_0(comm, partial(_kept, findings.parameters)))
    return report.end(comm, options)


def _checked(comm: MPI.Intracomm, parameters: Parameters, outcome: Outcome) -> Parameters:
    """Local. The parameters with what the check tells: their error, on so many ranks."""
    medians = outcome.medians()
    if not medians or parameters.measured is None:
        return parameters
    measured = replace(parameters.measured, most_ranks=comm.size)
    most = max(each.median for each in medians.values())
    return replace(parameters, error=most, measured=measured)


def _kept(parameters: Parameters) -> str:
    """Local. A sentence about the file; :class:`CommandError` where there is none."""
    with user_errors():
        path = keep_parameters(parameters)
    if path is None:
        raise CommandError(f"no file for the parameters: {VARIABLE} is off, or no home")
    return f"The parameters are kept in {path}"


def modelled(text: str) -> list[str]:
    """Local. The methods that ``--comm`` means and that have a formula; an error where none has."""
    known = formulas()
    names = [name for name in chosen(text, baseline=False) if text != ALL or name in known]
    without = [name for name in names if name not in known]
    if without:
        raise CommandError(f"no model of {', '.join(without)}; there are {', '.join(known)}")
    return names


def _findings(comm: MPI.Intracomm, options: Options, nodes: list[int]) -> Findings:
    """Collective. Measured now, or read from a file."""
    if options.parameters is not None:
        return Findings(load(comm, options.parameters))
    with user_errors():
        share = FOUND if options.verify else 1.0
        findings = find(comm, options.but(seconds=share * options.seconds), nodes)
    origin = f"measured: {library()}, {Layout.of(comm)}"
    parameters: Parameters = replace(findings.parameters, name="measured", provenance=origin)
    return replace(findings, parameters=parameters)


def _sentences(findings: Findings, outcome: Outcome) -> list[str]:
    sentences = [
        f"Typical error of the lines through {name}: {100 * error:.1f} %"
        for name, error in findings.errors.items()
    ]
    checked = outcome.medians()
    for method, error in checked.items():
        span = f"95 %: {100 * error.low:.1f} to {100 * error.high:.1f} %"
        found = f"{100 * error.median:.1f} % ({span})"
        sentences.append(f"Median error of the prediction of {method}: {found}")
    if outcome.choices:
        decided, right = outcome.decided()
        sentences.append(
            f"The model tells one fastest method of {decided} of {len(outcome.choices)} exchanges, "
            f"the right one of {right}; the others are closer than its error"
        )
    if findings.parameters.assumed:
        sentences.append(f"Assumed, not measured: {', '.join(findings.parameters.assumed)}")
    return sentences


# The parameters as tables for a person.

SEGMENTS = {"from bytes": ".0f", "L (us)": ".4g", "o (us)": ".4g", "g (us)": ".4g", "G (ns)": ".4g"}
SYNCHRONIZATION = (
    "signal", "barrier", "done", "fence", "empty_fence", "opening", "notice", "epoch", "relock"
)  # fmt: skip


def listings(parameters: Parameters) -> dict[str, Listing]:
    """Local. A table for every kind of transfer, and for the synchronization of every level."""
    found = {"stores": Listing("Stores on the node", SEGMENTS, _rows(parameters.stores))}
    for which in ("node", "network"):
        level: Level | None = getattr(parameters, which)
        if level is None:
            continue
        for kind in ("messages", "collective", "puts"):
            transfer: PiecewiseLogGP | None = getattr(level, kind)
            if transfer is not None:
                title = f"{kind.capitalize()}, {which}"
                found[f"{kind} {which}"] = Listing(title, SEGMENTS, _rows(transfer))
        seconds = {name.replace("_", " "): getattr(level, name) for name in SYNCHRONIZATION}
        found[f"synchronization {which}"] = _of_one_row(f"Synchronization, {which}", seconds)
    if parameters.setup:
        found["setup"] = _of_one_row("Making and freeing a request", parameters.setup)
    return found


def _of_one_row(title: str, seconds: Mapping[str, float]) -> Listing:
    columns = {f"{name} (us)": ".4g" for name in seconds}
    return Listing(title, columns, [[each * 1e6 for each in seconds.values()]])


def _rows(transfer: PiecewiseLogGP) -> list[Sequence[float | None]]:
    return [
        [each.start, loggp.latency * 1e6, loggp.overhead * 1e6, loggp.gap * 1e6,
         loggp.byte_gap * 1e9]
        for each in transfer.segments for loggp in [each.loggp]
    ]  # fmt: skip


# The parameters in a file, as ``onesided bench model --json`` writes them.


def load(comm: MPI.Intracomm, path: str) -> Parameters:
    """Collective. Read by rank 0; :class:`CommandError` on all ranks for what is no such file."""
    return from_rank_0(comm, partial(_read, path))


def _read(path: str) -> Parameters:
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        if isinstance(content, dict) and isinstance(content.get("pattern"), dict):
            content = content["pattern"].get("parameters")  # the report of the benchmark
        return of_record(content)
    except OSError as error:
        raise CommandError(words(error)) from error
    except (OnesidedError, ValueError) as error:  # JSON's errors and Unicode's are ValueErrors
        raise CommandError(f"{path}: {words(error)}") from error
