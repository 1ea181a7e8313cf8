"""``onesided model``: what a round takes with every method, on machines that nobody here has.

Nothing is measured: the parameters come from a file that ``onesided bench model`` wrote, or with
the program. The table has a line for every number of ranks and size; the image shows where each
method is the fastest. Where the margin between two is below the error of the model, it is
undecided and marked so, as is what lies far beyond the measurements. ``--paper`` sets the model
beside what paper 000 tells of its figures. ``--program`` follows a product, CG or a transform over
more and more ranks instead, and tells what limits it.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from mpi4py import MPI
from rich.console import Console
from rich.table import Table

from onesided.apps.cli.failures import by_rank_0, user_errors
from onesided.apps.cli.options import Options, edge
from onesided.apps.cli.progress import PLAIN_WIDTH, console
from onesided.apps.cli.report import PLAIN, write_json
from onesided.apps.modelling.bench_model import load, modelled
from onesided.apps.modelling.paper import Comparison, compare, draw
from onesided.apps.modelling.programs import Core, Scaling
from onesided.apps.modelling.sweep import Point, Regions, Sweep
from onesided.apps.report.chart import save
from onesided.apps.report.figure import Regions as Drawing
from onesided.apps.report.quantities import RANKS, SIZE
from onesided.collectives.modelling.parameters import BEYOND, MACHINES, Parameters

DEFAULT = "paper"


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; rank 0 does it all."""
    names = modelled(options.comm)
    parameters = _parameters(comm, options)
    counts = options.ranks_list
    sizes = sorted(set(options.sizes))
    if options.program is not None:
        return _follow(comm, options, names, parameters, counts)
    sweep = Sweep(parameters, names, options.per_node, options.blocks)
    with user_errors():  # the same on every rank: nothing here is the rank's own
        points = sweep.points(counts, sizes)
        regions = sweep.regions(counts, sizes)
        comparison = compare(parameters) if options.paper else None

    def tell() -> None:
        out = console(options.terminal)
        _tell(out, options, parameters, names, points, regions)
        if comparison is not None:
            out.print(comparison.table())
        if options.picture is not None:
            _draw(options.picture, options, parameters, regions, comparison)
        if options.json is not None:
            write_json(
                options.json, _content(options, parameters, points, regions, comparison)
            )

    by_rank_0(comm, tell)
    return 0


def _follow(
    comm: MPI.Intracomm,
    options: Options,
    names: list[str],
    parameters: Parameters,
    counts: list[int],
) -> int:
    """Collective. Strong or weak scaling of a program; rank 0 does it all."""
    core = Core(memory=options.bandwidth, operations=options.flops)
    points, weak = float(edge(options)) ** 3, "weak" in options.scaling
    scaling = Scaling(options.program, parameters, core, options.per_node, points, weak)

    def tell() -> None:
        steps = scaling.steps(counts, names)
        out = console(options.terminal)
        out.print(scaling.table(steps), width=max(out.width, PLAIN_WIDTH), crop=False)
        for sentence in _trust(parameters, any(step.fastest.extrapolated for step in steps)):
            out.print(sentence, **PLAIN)
        if options.picture is not None:
            scaling.draw(options.picture, steps)
        if options.json is not None:
            pattern = {"program": options.program, "core": asdict(core)}
            pattern |= {"points": points, "weak": weak, "parameters": parameters.record()}
            content = {"command": "model", "settings": options.settings(), "pattern": pattern}
            write_json(options.json, {**content, "rows": [step.record() for step in steps]})

    by_rank_0(comm, tell)
    return 0


def _parameters(comm: MPI.Intracomm, options: Options) -> Parameters:
    if options.parameters is not None:
        return load(comm, options.parameters)
    return MACHINES[options.network or DEFAULT]


def _tell(
    out: Console,
    options: Options,
    parameters: Parameters,
    names: list[str],
    points: list[Point],
    regions: Regions,
) -> None:
    title = f"onesided model: {parameters.name}, {options.per_node} ranks per node"
    table = Table(title=title, title_justify="left")
    for name in ("ranks", "bytes", *names):
        table.add_column(name.replace("-", "-\n"), justify="right", no_wrap=True)
    table.add_column("fastest", overflow="fold")  # the marks behind it are not to be cut off
    for point in points:
        table.add_row(*point.cells())
    out.print(table, width=max(out.width, PLAIN_WIDTH), crop=False)
    shares = regions.shares()
    told = ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items())
    out.print(f"Fastest in so much of the range, both axes logarithmic: {told}", **PLAIN)
    undecided = 100 * regions.undecided.mean()
    out.print(
        f"Undecided in {undecided:.0f} % of it (+n: so many others are slower by less than "
        f"{100 * parameters.error:.0f} %, the error of a prediction)",
        **PLAIN,
    )
    for sentence in _trust(parameters, bool(regions.extrapolated.any())):
        out.print(sentence, **PLAIN)


def _trust(parameters: Parameters, extrapolated: bool) -> list[str]:
    """Local. Where the parameters are from, and how far they carry."""
    said = [f"Parameters: {parameters.provenance or 'of unknown origin'}"]
    if parameters.assumed:
        said.append(f"Assumed, not measured: {', '.join(parameters.assumed)}")
    if extrapolated:
        known = f"more than {BEYOND:g} times beyond what was measured: {parameters.measured}"
        said.append(f"* extrapolated: {known if parameters.measured else 'nothing was measured'}")
    return said


def _draw(
    path: str,
    options: Options,
    parameters: Parameters,
    regions: Regions,
    comparison: Comparison | None,
) -> None:
    if comparison is not None:
        draw(path, comparison)
        return
    label = "bytes of a block" if options.blocks else "bytes that a rank sends"
    title = f"Fastest method: {parameters.name}, {options.per_node} ranks per node"
    words = ["others may be as fast where it is pale"] if regions.undecided.any() else []
    words += ["hatched: extrapolated"] if regions.extrapolated.any() else []
    told = f"{title} ({', '.join(words)})" if words else title
    best = [[regions.methods[number] for number in row] for row in regions.winner]
    drawing = Drawing(
        told, SIZE.called(label), RANKS, list(regions.nbytes), list(regions.ranks), best,
        regions.undecided.tolist(), regions.extrapolated.tolist(),
    )  # fmt: skip
    save(path, told, [drawing])


def _row(point: Point) -> dict[str, Any]:
    """Local. A point with what names it."""
    return {"labels": {"ranks": str(point.ranks), "bytes": f"{point.nbytes:g}"}, **point.record()}


def _content(
    options: Options,
    parameters: Parameters,
    points: list[Point],
    regions: Regions,
    comparison: Comparison | None,
) -> dict[str, Any]:
    return {
        "command": "model",
        "settings": options.settings(),
        "pattern": {"blocks": "uniform", "parameters": parameters.record()},
        "rows": [_row(point) for point in points],
        "fastest_share": regions.shares(),
        "undecided_share": float(regions.undecided.mean()),
        "extrapolated_share": float(regions.extrapolated.mean()),
        "paper": None if comparison is None else comparison.records(),
    }
