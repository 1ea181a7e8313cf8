"""``onesided hpccg``: the grid, the reference on one rank, stages, overheads, the command."""

from __future__ import annotations

import json

import commands
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from onesided.apps.bench.selection import ways_of
from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.options import Parser, box
from onesided.apps.cli.report import Row
from onesided.apps.miniapps.halos import neighbors, ways
from onesided.apps.miniapps.hpccg import SEEN, TOLERANCE, compared, product, residuals
from onesided.apps.miniapps.hpccg_system import Grid, right_side
from onesided.apps.miniapps.options import hpccg
from onesided.apps.miniapps.overhead import draw, listings
from onesided.apps.miniapps.stages import Stage, stages
from onesided.apps.report.result import REFERENCE
from onesided.collectives import methods
from onesided.sparse import HaloPattern

EXTENTS = st.tuples(*[st.integers(1, 5)] * 3)


def line(count):
    """Every point with itself and its neighbors along one axis."""
    return sparse.diags_array([np.ones(count - 1), np.ones(count), np.ones(count - 1)],
                              offsets=[-1, 0, 1])  # fmt: skip


def whole(shape):
    """The matrix, from its definition as a product of three axes."""
    z, y, x = (line(count) for count in shape)
    box = sparse.kron(sparse.kron(z, y), x)
    return (28 * sparse.eye_array(box.shape[0]) - box).toarray()


@given(EXTENTS, st.integers(1, 5))
def test_rows_of_all_ranks_are_the_matrix(shape, parts):
    grid = Grid(shape)
    if parts > shape[0]:
        with pytest.raises(CommandError, match=f"too few for {parts} ranks"):
            grid.partition(parts)
        return
    partition = grid.partition(parts)
    assert (partition.lengths() % grid.plane == 0).all()
    blocks = [grid.rows(partition.range(part)) for part in range(parts)]
    expected = whole(shape)
    assert (sparse.vstack(blocks).toarray() == expected).all()
    b = np.concatenate([right_side(block) for block in blocks])
    assert (b == expected.sum(axis=1)).all()


@given(EXTENTS, st.integers(0, 2**32 - 1))
def test_the_reference_multiplies_with_the_same_matrix(shape, seed):
    x = np.random.default_rng(seed).standard_normal(shape)
    assert product(x).ravel() == pytest.approx(whole(shape) @ x.ravel(), abs=1e-11)


def test_the_reference_is_conjugate_gradients():
    """Residuals are those of the definition: the least error in a space of so many products."""
    shape = 3, 4, 5
    matrix = whole(shape)
    ones = np.ones(len(matrix))
    b = matrix @ ones
    space, found = [], residuals(Grid(shape), 3)
    assert found[0] == pytest.approx(np.linalg.norm(b))
    for norm in found[1:]:
        space.append(matrix @ space[-1] if space else b)
        basis = np.linalg.qr(np.array(space).T)[0]
        x = basis @ np.linalg.solve(basis.T @ matrix @ basis, basis.T @ b)
        assert norm == pytest.approx(np.linalg.norm(b - matrix @ x), rel=1e-7)


#: What Mantevo's HPCCG prints for 16 x 20 x 24 points, by the number of products before it.
PRINTED = {0: 505.213, 14: 1.0195, 29: 7.98429e-05, 44: 1.11523e-09}
LAST = {148: 5.17268e-41}  # rounding decides its digits, which other orders of sums have not


def test_residuals_are_those_of_the_original():
    found = residuals(Grid.stacked((16, 20, 24), 1), 150)
    assert len(found) == 151
    for number, norm in PRINTED.items():
        assert found[number] == pytest.approx(norm, rel=1e-5), number
    for number, norm in LAST.items():
        assert 0.01 < found[number] / norm < 100.0


def test_no_eigenvalue_is_below_one():
    """So an error is at most the residual, which the verdict on x says."""
    assert np.linalg.eigvalsh(whole((5, 4, 6)))[0] >= 1.0


def test_the_reference_ends_where_nothing_is_left():
    assert residuals(Grid((1, 1, 1)), 150)[-1] < 1e-60
    assert len(residuals(Grid((2, 2, 2)), 400)) <= 401
    assert len(residuals(Grid((4, 4, 4)), 0)) == 1


def test_residuals_that_differ_are_noticed():
    expected = residuals(Grid((6, 5, 4)), 60)
    assert compared(expected, expected).error == 0.0
    seen = sum(norm > SEEN * expected[0] for norm in expected)
    assert 5 < seen < len(expected)
    for index in (0, 3, seen - 1):
        other = list(expected)
        other[index] *= 1 + 3 * TOLERANCE
        assert not compared(other, expected).passed
    other = list(expected)
    other[seen] *= 2  # below, rounding decides
    assert compared(other, expected).passed
    assert not compared(expected[: seen - 1], expected).passed
    assert not compared([float("nan"), *expected[1:]], expected).passed


def test_boxes():
    assert box([7]) == (7, 7, 7)
    assert Grid.stacked(box([4, 3, 2]), 5).shape == (10, 3, 4)
    with pytest.raises(CommandError, match="--shape 1 2: one number for a cube, or three"):
        box([1, 2])


def test_neighbors_of_a_rank_in_the_middle():
    none = np.zeros(0, np.int64)
    counts = np.array([2, 0, 0, 3]), np.array([1, 0, 4, 0])
    pattern = HaloPattern(10, np.arange(5), none.astype(np.intp), *counts)
    found = [(each.rank, each.sent, each.ghosts) for each in neighbors(pattern)]
    assert found == [
        (0, slice(0, 2), slice(0, 1)),
        (2, slice(2, 2), slice(1, 5)),
        (3, slice(2, 5), slice(5, 5)),
    ]


def options(*words):
    parser = Parser()
    hpccg(parser)
    return parser.parse_args(words)


def test_stages():
    assert stages(3, options()) == [Stage(3, 3)]
    assert stages(6, options("--scaling", "weak")) == [
        Stage(ranks, ranks, "weak") for ranks in (1, 2, 4, 6)
    ]
    both = options(*"--scaling strong weak --ranks-list 3 1".split())
    assert stages(4, both) == [
        Stage(1, 3, "strong"),
        Stage(3, 3, "strong"),
        Stage(1, 1, "weak"),
        Stage(3, 3, "weak"),
    ]
    assert [each.ranks for each in stages(1, options("--scaling", "weak"))] == [1]
    with pytest.raises(CommandError, match="--ranks-list 5: the job has 4 ranks"):
        stages(4, options(*"--scaling weak --ranks-list 5".split()))
    with pytest.raises(CommandError, match="--ranks-list is for --scaling"):
        stages(4, options(*"--ranks-list 2".split()))


def row(name, ranks, times, scaling="weak", **more):
    labels = {"scaling": scaling, "ranks": str(ranks), "method": name}
    return Row(labels, times, **more)


def rows():
    return [
        row(REFERENCE, 2, [1.0, 3.0]),
        row("rma-notify", 2, [1.0, 1.0]),
        row("auto", 2, [], reason="it cannot"),
        row(REFERENCE, 4, [4.0, 4.0]),
        row("rma-notify", 4, [3.0, 7.0]),
        row(REFERENCE, 2, [5.0], "strong"),
    ]


def test_overheads_are_means_over_the_mean_of_the_reference():
    found = listings(rows())
    assert list(found) == ["overhead_weak", "overhead_strong"]
    first, second = found["overhead_weak"].records()
    assert first == {
        "ranks": 2,
        REFERENCE: 1.0,
        f"{REFERENCE} deviation": pytest.approx(2**0.5 / 2),
        f"{REFERENCE} s": 2.0,
        "rma-notify": 0.5,
        "rma-notify deviation": 0.0,
        "rma-notify s": 1.0,
    }
    assert second["rma-notify"] == 1.25
    assert second["rma-notify deviation"] == pytest.approx(8**0.5 / 4)
    (strong,) = found["overhead_strong"].records()
    assert (strong["ranks"], strong[REFERENCE], strong[f"{REFERENCE} deviation"]) == (2, 1, 0)


def test_the_table_of_overheads_has_a_line_for_every_way():
    table = listings(rows())["overhead_weak"].table()
    assert [column.header for column in table.columns] == ["method", "2 ranks", "4 ranks"]
    assert list(table.columns[0].cells) == [REFERENCE, "rma-notify"]
    assert list(table.columns[2].cells)[1] == "1.250 +- 0.707"


def test_overheads_are_drawn(tmp_path):
    pytest.importorskip("matplotlib", reason="the picture needs matplotlib")
    draw(options("--picture", str(tmp_path / "out.png")), "a title", rows())
    assert not list(tmp_path.iterdir())  # without --scaling it has one point
    draw(options("--picture", str(tmp_path / "out.png"), "--scaling", "weak"), "a title", rows())
    assert (tmp_path / "out-overhead.png").read_bytes().startswith(b"\x89PNG")


def test_the_reference_is_always_there_and_first():
    names = list(ways_of("rma-notify,lock-all-threads", ways(), REFERENCE))
    assert names == [REFERENCE, "rma-notify", "lock-all-threads"]
    assert len(ways_of("all", ways(), REFERENCE)) == len(methods()) + 5
    with pytest.raises(CommandError, match="no method 'magic'; the methods are two-sided"):
        ways_of("magic", ways(), REFERENCE)


def test_the_help_names_every_way():
    parser = Parser()
    hpccg(parser)
    text = "".join(parser.format_help().split())
    own = [name for name in ways() if name not in methods()]
    assert len(own) == 5
    assert [name for name in own if name not in text] == []


@pytest.mark.parametrize("ranks", [2, pytest.param(1, marks=pytest.mark.full)])
def test_hpccg(run_cases, ranks):
    run_cases("cases_hpccg", ranks, share=2)


@pytest.mark.full
@pytest.mark.parametrize("ranks", [3, 4])
def test_hpccg_on_more_ranks(run_cases, ranks):
    run_cases("cases_hpccg", ranks)


@pytest.mark.full
def test_hpccg_on_two_nodes(run_cases, two_nodes):
    run_cases(
        "cases_hpccg",
        two_nodes.ranks,
        select="case_every_way",
        env=two_nodes.env,
        nodes=two_nodes.nodes,
    )


def test_the_command_draws_and_tells(tmp_path):
    pytest.importorskip("matplotlib", reason="the pictures need matplotlib")
    files = [tmp_path / name for name in ("out.json", "out.png", "out-overhead.png")]
    words = "hpccg --shape 6 5 4 --iterations 12 --repeats 2 --scaling weak strong --verify"
    words += " --comm lock-all-threads,rma-notify --ranks 2"
    words += f" --json {files[0]} --picture {files[1]}"
    finished = commands.onesided(*words.split())
    assert finished.code == 0, finished
    assert "Time over that of two-sided, weak scaling" in finished.out
    found = json.loads(files[0].read_text())
    assert found["verified"] is True
    assert [(row["labels"]["scaling"], row["labels"]["ranks"], row["shape"]) for row in found["rows"][::3]] == [
        ("weak", 1, [4, 5, 6]),
        ("weak", 2, [8, 5, 6]),
        ("strong", 1, [8, 5, 6]),
        ("strong", 2, [8, 5, 6]),
    ]
    assert {row["labels"]["method"] for row in found["rows"]} == {
        REFERENCE,
        "lock-all-threads",
        "rma-notify",
    }
    assert [each["labels"]["ranks"] for each in found["overhead_weak"]] == [1, 2]
    for each in found["rows"]:
        assert each["cg_iterations"] == 12
        assert len(each["run_s"]) == 2
        assert sum(each["parts"].values()) > 0
        assert 0 < each["product share"]
    for path in files[1:]:
        assert path.read_bytes().startswith(b"\x89PNG")


def test_mistakes_are_sentences():
    finished = commands.onesided(*"hpccg --shape 3 4".split())
    assert finished.code == 2, finished
    assert finished.sentences == ["onesided: --shape 3 4: one number for a cube, or three"]
