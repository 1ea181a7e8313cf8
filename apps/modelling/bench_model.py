"""``onesided bench model``: the parameters of the model, found by measuring, and checked.

Two ranks of a node, and two of different nodes, where the job has both, exchange messages, Puts,
fences and the rest at the same time; lines through the times give LogGP. With ``--verify`` the
methods themselves run on all ranks, and their times stand beside those that the model predicts.
"""

from __future__ import annotations

from dataclasses import replace

from mpi4py import MPI

from onesided.apps.bench.selection import chosen, hints
from onesided.apps.cli.failures import CommandError, user_errors
from onesided.apps.cli.machine import library
from onesided.apps.cli.options import ALL, Options
from onesided.apps.cli.progress import console
from onesided.apps.cli.report import Report
from onesided.apps.modelling.check import Outcome, check
from onesided.apps.modelling.files import load
from onesided.apps.modelling.listings import listings
from onesided.apps.modelling.measuring import Findings, find
from onesided.apps.modelling.nodes import node_of_ranks
from onesided.collectives import agreed
from onesided.collectives.hardware import Layout
from onesided.collectives.hints import Hints
from onesided.collectives.modelling.exchanges import formulas
from onesided.collectives.modelling.parameters import VARIABLE, Parameters, keep_parameters

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
    out = console(options.terminal) if comm.rank == 0 else None
    nodes = node_of_ranks(comm, ranks_per_node)
    words = f"measured: {library()}, {Layout.of(comm)}"
    findings = _findings(comm, options, nodes, words)
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
        },
        rows=outcome.rows,
        remarks=[REMARK, *_sentences(findings, outcome)],
        listings=listings(findings.parameters),
    )
    if options.keep:
        report.remarks.append(_kept(comm, findings.parameters))
    report.finish(comm, out, options.json)
    return 0


def _checked(comm: MPI.Intracomm, parameters: Parameters, outcome: Outcome) -> Parameters:
    """Local. The parameters with what the check tells: their error, on so many ranks."""
    medians = outcome.medians()
    if not medians or parameters.measured is None:
        return parameters
    measured = replace(parameters.measured, most_ranks=comm.size)
    return replace(parameters, error=max(medians.values()), measured=measured)


def _kept(comm: MPI.Intracomm, parameters: Parameters) -> str:
    """Collective. A sentence about the file of rank 0; :class:`CommandError` on all ranks."""
    with agreed(comm, "keep"):
        path = keep_parameters(parameters) if comm.rank == 0 else None
        if comm.rank == 0 and path is None:
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


def _findings(
    comm: MPI.Intracomm, options: Options, nodes: list[int], words: str
) -> Findings:
    """Collective. Measured now, or read from a file."""
    if options.parameters is not None:
        return Findings(load(comm, options.parameters))
    with user_errors():
        share = FOUND if options.verify else 1.0
        findings = find(comm, options.but(seconds=share * options.seconds), nodes)
    parameters: Parameters = replace(findings.parameters, name="measured", provenance=words)
    return replace(findings, parameters=parameters)


def _sentences(findings: Findings, outcome: Outcome) -> list[str]:
    sentences = [
        f"Typical error of the lines through {name}: {100 * error:.1f} %"
        for name, error in findings.errors.items()
    ]
    checked = outcome.medians()
    for method, error in checked.items():
        sentences.append(f"Median error of the prediction of {method}: {100 * error:.1f} %")
    if findings.parameters.assumed:
        sentences.append(f"Assumed, not measured: {', '.join(findings.parameters.assumed)}")
    return sentences
