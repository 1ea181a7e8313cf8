"""``onesided minimd`` on the ranks of a job: ghosts, refusals, and Mantevo's digits."""

from __future__ import annotations

import numpy as np
import pytest
from cases import parameters, ranks
from command_runs import run_command
from mpi4py import MPI

from onesided.apps.bench.timing import Stopwatch
from onesided.apps.cli.failures import CommandError
from onesided.apps.miniapps.halos import REFERENCE, Persistent, ways
from onesided.apps.miniapps.minimd import PARTS, Simulation
from onesided.apps.miniapps.minimd_atoms import Links, Problem

pytestmark = pytest.mark.one_mpi


def run(comm, words):
    return run_command(comm, f"minimd {words}")


#: Temperature, potential energy and pressure, as Mantevo's known good output has them.
MANTEVO = {
    0: (1.440000, -6.773368, -5.019973),
    100: (0.7208599, -5.701261, 0.5236926),
}


def case_output_of_mantevo(comm):
    """The standard problem with 4,000 atoms: every digit that the reference prints."""
    code, found = run(comm, "--shape 10 10 10 --steps 100 --repeats 1 --comm rma-notify")
    assert code == 0
    lines = {line["step"]: (line["T"], line["U"], line["P"]) for line in found["output"]}
    assert lines.keys() == MANTEVO.keys()
    for step, numbers in MANTEVO.items():
        assert lines[step] == pytest.approx(numbers, rel=1e-6, abs=6e-8), step


@parameters(way=list(ways()))
def case_every_way(comm, way):
    words = "--shape 4 4 6 --steps 40 --print-every 20 --repeats 2 --verify"
    code, found = run(comm, f"{words} --comm {way}")
    assert code == 0, found
    row = next(row for row in found["rows"] if row["labels"]["method"] == way)
    if "reason" in row:
        assert way.endswith("-threads"), row
        return
    assert row["verified"] is True, row
    assert row["iterations"] == 2
    assert [line["step"] for line in found["output"]] == [0, 20, 40]


def case_fewer_runs_than_were_asked_for_are_told(comm):
    code, found = run(comm, "--shape 4 4 6 --steps 60 --repeats 2 --comm fence")
    assert code == 0, found
    assert [row["iterations"] for row in found["rows"]] == [1, 1]
    assert any(remark.startswith("1 of the 2 runs of --repeats") for remark in found["remarks"])
    assert "atoms" not in found["pattern"]  # cells are those of a rank: rows tell
    code, found = run(comm, "--shape 4 4 6 --scaling weak --steps 20 --repeats 1 --comm fence")
    atoms = {row["labels"]["ranks"]: row["metrics"]["atoms"] for row in found["rows"]}
    assert atoms[str(comm.size)] == 4 * 96 * comm.size


def case_rooms_grow(comm):
    """Ghosts for which there is no room: all links are planned again, and the state is right."""
    fit = Links.fit

    def too_small(self, needed):
        self.rooms[:] = 0
        fit(self, needed)

    Links.fit = too_small
    try:
        words = "--shape 6 4 4 --steps 60 --repeats 1 --verify --comm fence,rma-fence,p2p"
        code, found = run(comm, words)
    finally:
        Links.fit = fit
    assert code == 0, found["remarks"]
    plans = {row["labels"]["method"]: row["metrics"]["plans"] for row in found["rows"]}
    assert min(plans.values()) > 1, plans


@ranks(at_least=2)
def case_wrong_ghosts_are_noticed(comm):
    finish = Persistent.finish

    def wrong(self):
        ghosts = finish(self)
        ghosts[0] += 1e-9 * (comm.rank == 0)
        return ghosts

    Persistent.finish = wrong
    try:
        code, found = run(comm, "--shape 6 4 4 --steps 20 --repeats 1 --comm p2p")
    finally:
        Persistent.finish = finish
    assert code == 1
    verified = {row["labels"]["method"]: row["verified"] for row in found["rows"]}
    assert verified == {REFERENCE: True, "p2p": False}


def simulation(comm, cells, **changes):
    return Simulation(comm, Problem(cells=cells, **changes))


def case_too_few_cells_are_refused(comm):
    with pytest.raises(CommandError, match="1 x 4 x 4 lattice cells are too few for"):
        simulation(comm, (1, 4, 4))


def case_atoms_at_no_number_are_told(comm):
    one = simulation(comm, (8, 4, 4))
    one.atoms.x[0, 0] = np.nan if comm.rank == 0 else 0.0
    with pytest.raises(CommandError, match="step 0: there are atoms at no number"):
        one.rebuild()
    one.free()


def case_ghosts_are_all_atoms_within_reach(comm):
    one = simulation(comm, (6, 6, 6))
    atoms, problem = one.atoms, one.problem
    own = comm.allgather(atoms.x[:, : atoms.own])
    every = np.concatenate(own, axis=1)
    steps = np.array([(i, j, k) for i in (-1, 0, 1) for j in (-1, 0, 1) for k in (-1, 0, 1)])
    images = (every[:, :, None] + (steps * problem.lengths).T[:, None, :]).reshape(3, -1)
    low, high = one.block.low[:, None], one.block.high[:, None]
    inside = ((images >= low) & (images < high)).all(axis=0)
    reach = problem.reach
    near = ((images >= low - reach) & (images < high + reach)).all(axis=0) & ~inside
    expected = {tuple(place) for place in np.round(images[:, near], 9).T + 0.0}
    ghosts = np.round(atoms.x[:, atoms.own :], 9).T + 0.0
    assert {tuple(place) for place in ghosts} == expected
    assert len(ghosts) == len(expected)
    one.free()


def case_momentum_is_conserved(comm):
    one = simulation(comm, (6, 6, 6), steps=30)
    made = Links(comm, ways()["rma-notify"], {}, one.border)
    one.resume(one.atoms.state(), 0, made, {part: Stopwatch() for part in PARTS})
    one.advance(30)
    momentum = one.atoms.v[:, : one.atoms.own].sum(axis=1)
    comm.Allreduce(MPI.IN_PLACE, momentum)
    assert np.abs(momentum).max() < 1e-9
    made.free()
    one.free()
