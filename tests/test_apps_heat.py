"""``onesided heat``: blocks, tiles, threads, the scheme, and the command on several ranks."""

from __future__ import annotations

import json
from itertools import product

import commands
import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onesided.apps.bench.team import Team
from onesided.apps.cli.options import Parser
from onesided.apps.solvers.heat import serial
from onesided.apps.solvers.heat_halos import ways
from onesided.apps.solvers.heat_stencil import (
    POINTS,
    Problem,
    Queue,
    Tile,
    after,
    beside,
    meet,
    settings,
    tiling,
    update,
)
from onesided.apps.solvers.options import heat
from onesided.collectives import methods
from onesided.collectives.halo.faces import Blocks, Place, grid_faces
from onesided.pencilfft import block as owned

DOUBLE, SINGLE = np.dtype(np.float64), np.dtype(np.float32)


@st.composite
def blocks(draw):
    """A block somewhere in a grid, with the faces that have a neighbor."""
    axes = draw(st.integers(2, 3))
    shape = draw(st.lists(st.integers(1, 90), min_size=axes, max_size=axes))
    grid = [draw(st.integers(1, min(3, length))) for length in shape]
    place = [draw(st.integers(0, parts - 1)) for parts in grid]
    around = draw(st.lists(st.booleans(), min_size=axes, max_size=axes))
    return cut(shape, grid, place, around)


def cut(shape, grid, place, around):
    """The own points of a block in its array, and its faces."""
    rank = np.ravel_multi_index(place, grid)
    box = Blocks(tuple(shape), tuple(grid)).box(rank)
    inner = tuple(slice(1, 1 + part.stop - part.start) for part in box)
    place = Place(tuple(grid), tuple(around), tuple(place))
    return inner, grid_faces(tuple(part.stop + 1 for part in inner), 1, place, "faces")


@given(blocks(), st.integers(1, 5))
def test_tiles_cover_every_point_once(pair, threads):
    inner, faces = pair
    found = tiling(inner, faces, threads)
    points = np.zeros([part.stop + 1 for part in inner], int)
    for box in found.boxes:
        assert points[box].size
        points[box] += 1
    assert (points[inner] == 1).all()
    assert points.sum() == points[inner].size
    for box in found.inner:
        assert not any(meet(box, face.send) or beside(box, face.recv) for face in faces)


def test_every_thread_has_a_tile_of_each_face():
    inner, faces = cut((400, 500), (2, 2), (0, 1), (True, True))
    assert len(faces) == 4
    found = tiling(inner, faces, 4)
    assert found.parts == 4
    for face in faces:
        assert sum(meet(box, face.send) for box in found.outer) >= 4
    assert sum(points(box) for box in found.outer) < 0.5 * points(inner)
    inner, faces = cut((2000, 700), (1, 1), (0, 0), (False, False))
    whole = tiling(inner, faces, 1)
    assert not whole.outer
    assert max(map(points, whole.inner)) < 1.05 * POINTS


def points(box):
    return np.prod([part.stop - part.start for part in box])


@pytest.mark.parametrize("shape", [(13, 9), (6, 11, 7)])
@pytest.mark.parametrize("around", [True, False])
def test_blocks_start_with_their_part_of_the_whole(shape, around):
    problem = Problem(shape, (around,) * len(shape), SINGLE)
    whole = problem.initial([slice(0, length) for length in shape])
    assert whole.max() > 0.3
    grid = (2,) * len(shape)
    for place in product(range(2), repeat=len(shape)):
        box = Blocks(shape, grid).box(np.ravel_multi_index(place, grid))
        part = whole[tuple(slice(one.start, one.stop + 2) for one in box)]
        assert problem.initial(box).tobytes() == part.tobytes()
    edge = whole[0]
    assert (edge == whole[-2]).all() if around else not edge.any()


@pytest.mark.parametrize("periodic", list(product([True, False], repeat=2)))
@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE])
def test_tiles_give_the_bytes_of_the_whole(periodic, dtype):
    problem = Problem((37, 50), periodic, dtype)
    boxes = [
        (slice(1 + rows.start, 1 + rows.stop), slice(1 + columns.start, 1 + columns.stop))
        for rows in (slice(*owned(37, 3, number)) for number in range(3))
        for columns in (slice(*owned(50, 2, number)) for number in range(2))
    ]
    inner = slice(1, -1), slice(1, -1)
    start = problem.initial((slice(0, 37), slice(0, 50)))
    old = start.copy()
    new = old.copy()
    with settings():
        for _ in range(6):
            for box in boxes:
                for function, arguments in update(problem, old, new, box):
                    function(*arguments)
            for axis in np.flatnonzero(periodic):
                layers = np.moveaxis(new, axis, 0)
                layers[0], layers[-1] = layers[-2], layers[1]
            old, new = new, old
    assert old[inner].tobytes() == serial(problem, 6).tobytes()
    assert not (old[inner] == start[inner]).all()


def test_a_sine_decays_as_the_scheme_says():
    """The lowest mode between walls loses 4 r sin(pi h / 2)**2 per axis and step."""
    count = 30
    problem = Problem((count, count), (False, False), DOUBLE, alpha=0.7)
    inner = slice(1, count + 1), slice(1, count + 1)
    x = np.sin(np.pi * np.arange(count + 2) / (count + 1))
    old = np.outer(x, x)
    new = np.zeros_like(old)
    for function, arguments in update(problem, old, new, inner):
        function(*arguments)
    r = problem.alpha * problem.step * (count + 1) ** 2
    factor = 1 - 8 * r * np.sin(np.pi / (2 * (count + 1))) ** 2
    np.testing.assert_allclose(new[inner], factor * old[inner], rtol=1e-12)


def test_heat_stays_in_a_periodic_box_and_leaves_between_walls():
    for around, kept in ((True, 1.0), (False, 0.99)):
        problem = Problem((24, 20, 22), (around,) * 3, DOUBLE)
        start = serial(problem, 0).sum()
        end = serial(problem, 50).sum() / start
        assert abs(end - 1) < 1e-12 if kept == 1.0 else end < kept


@pytest.mark.parametrize("threads", [1, 4])
def test_a_queue_gives_every_tile_once_a_round(threads):
    done = []
    waiting = {number: 2 for number in (0, 3)}

    def there(number):
        waiting[number] -= 1
        return waiting[number] < 0

    def tile(number):
        calls = [(done.append, (number,))]
        if number not in waiting:
            return Tile(calls)
        return Tile(calls, [lambda: there(number)], [lambda: done.append("marked")])

    with Team(threads) as team:
        queue = Queue([tile(number) for number in range(20)], team)
        for _ in range(5):
            done.clear()
            waiting |= dict.fromkeys(waiting, 2)
            team.together(queue)
            assert sorted(n for n in done if n != "marked") == list(range(20))
            assert done.count("marked") == 2
            if threads == 1:
                assert done[0] == 1, "a tile whose ghosts are not there is put back"
    assert queue.communication() > 0
    assert queue.communication() == 0


def test_an_error_ends_the_wait_for_what_does_not_come():
    def fail():
        raise ZeroDivisionError("in a tile")

    never = Tile([], [lambda: False])
    with Team(2) as team:
        with pytest.raises(ZeroDivisionError, match="in a tile"):
            team.together(Queue([never, Tile([(fail, ())]), never], team))
        assert team.broken


def test_the_last_of_several_tiles_makes_the_call():
    made = []
    mark = after(3, lambda: made.append(1))
    counts = []
    for _ in range(7):
        mark()
        counts.append(len(made))
    assert counts == [0, 0, 1, 1, 1, 2, 2]


def test_the_command_draws_and_tells(tmp_path):
    pytest.importorskip("matplotlib", reason="the picture needs matplotlib")
    files = tmp_path / "out.json", tmp_path / "out.png"
    words = "heat --shape 12 20 16 --steps 20 --repeats 4 --verify --comm blocking,halo"
    words += f" --json {files[0]} --picture {files[1]} --ranks 2"
    finished = commands.onesided(*words.split())
    assert finished.code == 0, finished
    assert "Verified: every byte is that of one rank alone." in finished.out
    assert "After 20 steps" in finished.out
    found = json.loads(files[0].read_text())
    assert found["verified"] is True
    assert [row["method"].split()[0] for row in found["rows"]] == [
        "persistent",
        "blocking",
        "halo",
    ]
    assert all(row["iterations"] == 4 for row in found["rows"])
    pattern = found["pattern"]
    assert (pattern["grid"], pattern["halo_bytes"]) == ([1, 2, 1], 12 * 16 * 8)
    assert pattern["dt"] == pytest.approx(0.9 * pattern["stable_dt"])
    assert files[1].read_bytes().startswith(b"\x89PNG")


def test_a_restart_on_other_numbers_of_ranks(tmp_path):
    """Written on three ranks, continued on two and on one: every byte is that of one run."""
    names = {name: tmp_path / f"{name}.h5" for name in ("whole", "half", "rest", "last")}
    words = "heat --shape 13 11 9 --boundary periodic fixed periodic --dtype float32 --alpha 2"
    many, few = ["--comm", "rma-notify", "--checkpoint"], ["--verify", "--checkpoint"]
    for name, steps in (("whole", "9"), ("half", "4")):
        more = ["--steps", steps, "--save-every", "3", *many, str(names[name])]
        finished = commands.onesided(*words.split(), *more, ranks=3)
        assert finished.code == 0, finished
    for name, before, steps, ranks in (("rest", "half", "3", 2), ("last", "rest", "2", 1)):
        more = ["--restart", str(names[before]), "--steps", steps, *few, str(names[name])]
        finished = commands.onesided("heat", *more, ranks=ranks)
        assert finished.code == 0, finished
        assert "Verified: every byte is that of one rank alone." in finished.out
    states = []
    for name in ("whole", "last"):
        with h5py.File(names[name]) as file:
            assert list(file["temperature/3D"]) == ["9"]
            states.append(file["temperature/3D/9"][...])
    assert states[0].max() > 0.1
    assert states[0].dtype == np.float32
    assert states[0].tobytes() == states[1].tobytes()
    finished = commands.onesided(
        "heat", "--restart", str(names["half"]), "--dtype", "float64", "--steps", "1"
    )
    assert finished.code == 2, finished
    assert "half.h5: dtype is float32, not float64" in finished.sentences[0]


def test_the_help_names_every_way():
    text = heat_help()
    own = [name for name in ways() if name not in methods()]
    assert len(own) == 3
    assert [name for name in own if name not in text] == []


def heat_help():
    parser = Parser()
    heat(parser)
    return parser.format_help().replace("\n", " ")


def test_mistakes_are_sentences():
    finished = commands.onesided("heat", "--threads", "0")
    assert finished.code == 2, finished
    assert "argument --threads: '0' is not a whole number" in finished.sentences[0]
    finished = commands.onesided(*"heat --shape 9 9 --dt 0.01".split())
    assert finished.code == 2, finished
    assert finished.sentences == [
        "onesided: --dt 0.01 is unstable: on this grid the largest stable time step is "
        "h**2 / (2 d alpha) = 0.0025"
    ]
