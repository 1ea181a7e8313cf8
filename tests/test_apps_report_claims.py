"""Claims of papers are decided by the results and by nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import envelopes
import pytest

from onesided.apps.cli.report import Row
from onesided.apps.cli.statistics import Verdict
from onesided.apps.report.claim import Outcome
from onesided.apps.report.claims import CLAIMS, Judged, judged
from onesided.apps.report.command import findings
from onesided.apps.report.rules import keeps

FALLS_BEHIND = next(claim for claim in CLAIMS if "lock falls behind" in claim.words)


def verdicts(folder: Path) -> Judged:
    return judged(findings(str(folder)).results)


@pytest.mark.parametrize("right", [True, False], ids=["as the papers say", "otherwise"])
def test_every_claim_holds_in_a_world_of_the_papers_and_in_another_one_none(tmp_path, right):
    envelopes.world(tmp_path, right)
    wanted = Outcome.HOLDS if right else Outcome.FAILS
    others = [
        (claim.words, finding.variant, finding.evidence)
        for claim, found in verdicts(tmp_path).findings
        for finding in found
        if finding.outcome is not wanted and claim.words != FALLS_BEHIND.words
    ]
    assert others == []


@pytest.mark.parametrize(
    ("few", "many", "outcome"),
    [
        (0.9, 1.4, Outcome.HOLDS),
        (1.4, 0.9, Outcome.FAILS),
        (1.4, 1.2, Outcome.FAILS),
        (0.7, 0.9, Outcome.FAILS),
    ],
)
def test_lock_falls_behind_where_it_does(tmp_path, few, many, outcome):
    for ranks, ratio in ((2, few), (4, many)):
        ratios = {"rma-lock": dict.fromkeys(envelopes.SIZES, ratio)}
        rows = list(envelopes.exchanges(ratios, [ranks]))
        envelopes.write(tmp_path / f"{ranks}.json", "bench alltoallv", rows, ranks=ranks)
    (finding,) = FALLS_BEHIND.rule.judge(findings(str(tmp_path)).results)
    assert finding.outcome is outcome
    assert f"{few:.2f} on 2 ranks, {many:.2f} on 4 ranks" in finding.evidence


def test_a_size_that_is_slower_makes_a_claim_fail_and_is_named(tmp_path):
    by_size = dict.fromkeys(envelopes.SIZES, 0.5) | {envelopes.MEBI: 1.01}
    rows = list(envelopes.exchanges({"rma-fence": by_size}))
    envelopes.write(tmp_path / "a.json", "bench alltoallv", rows)
    (finding,) = CLAIMS[0].rule.judge(findings(str(tmp_path)).results)
    assert finding.outcome is Outcome.FAILS
    assert "1.01 at 1 MiB" in finding.evidence
    assert "at 8 KiB" not in finding.evidence


@pytest.mark.parametrize(
    ("app", "way", "most"),
    [
        ("HPCCG", "lock-all-threads", 1.029),
        ("MiniFE", "fence-threads", 1.03),
        ("MiniMD", "fence-threads", 1.024),
    ],
)
def test_one_rank_alone_says_nothing_about_overheads(tmp_path, app, way, most):
    claim = next(claim for claim in CLAIMS if f"In {app}" in claim.words)

    def finding(ratios):
        envelopes.write(tmp_path / "a.json", app.lower(), envelopes.mini_app(ratios, way))
        (found,) = claim.rule.judge(findings(str(tmp_path)).results)
        return found

    assert finding({}).outcome is Outcome.OPEN
    assert finding({2: 1.0}).outcome is Outcome.HOLDS
    assert "+0.0 % on 2 ranks" in finding({2: 1.0}).evidence
    assert finding({2: most - 1e-3}).outcome is Outcome.HOLDS
    assert finding({2: most + 1e-3}).outcome is Outcome.FAILS


SAME = dict.fromkeys(envelopes.SIZES, 1.0)
COUNTS = (8, 96)
#: By the command, rows that are on the bound, and words of claims about them.
ON_THE_BOUND = {
    "bench alltoallv": (envelopes.exchanges({"rma-fence": SAME, "rma-lock": SAME}), [
        "fence exchange is faster", "MPI_Alltoallv is not slower", "Fence is faster than lock",
    ]),
    "bench patterns": (envelopes.patterns({"rma-fence": 1.0, "rma-lock": 1.0}), [
        "sparse matrix, fence is faster than lock",
    ]),
    "hpccg": (envelopes.mini_app({2: 1.029}), ["In HPCCG"]),
    "bench broadcast": (
        envelopes.broadcasts(
            {(n, size): 1.0 for n in COUNTS for size in envelopes.LENGTHS}, COUNTS
        ),
        ["binomial tree is faster", "linear broadcast is the faster one", "The tree gains with",
         "10 MiB: the tree"],
    ),
    "bench partitioned": (
        envelopes.partitions({
            (method, "left-to-right", threads): {64: 0.9, 65536: 0.9, envelopes.MEBI: 1.0}
            for method in ("persistent", "psend") for threads in (1, 16)
        }),
        ["keep the bandwidth of the whole buffer", "are the same (within"],
    ),
    "bench rma-mt": (
        envelopes.threads({
            ("latency", "pscw", "put", 0): 0.2, ("latency", "two-sided", "send", 0): 0.2,
            ("bandwidth", "lock_all", "put", 1): 10.0, ("bandwidth", "lock_all", "put", 16): 10.0,
        }),
        ["the latency of one-sided messages", "lock_all loses bandwidth"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("command", ON_THE_BOUND)
def test_what_noise_hides_is_unclear(tmp_path, command):
    rows, claims = ON_THE_BOUND[command]
    envelopes.write(tmp_path / "a.json", command, list(envelopes.shaken(rows)), ranks=96,
                    all_cores=96 * 16)  # fmt: skip
    results = findings(str(tmp_path)).results
    for words in claims:
        (claim,) = (claim for claim in CLAIMS if words in claim.words)
        found = [finding for finding in claim.rule.judge(results)]
        decided = [each for each in found if each.outcome is not Outcome.OPEN]
        assert decided, words
        assert {each.outcome for each in decided} == {Outcome.UNCLEAR}, (words, decided)


def test_every_memory_has_a_verdict_and_the_papers_own_is_first(tmp_path):
    rows = list(envelopes.exchanges({"rma-fence": dict.fromkeys(envelopes.SIZES, 0.5)}))
    slower = list(envelopes.exchanges({"rma-fence": dict.fromkeys(envelopes.SIZES, 1.5)}))
    for row in slower:
        row.labels = {**row.labels, "memory": "plain"}
    envelopes.write(tmp_path / "a.json", "bench alltoallv", [*rows, *slower])
    found = CLAIMS[0].rule.judge(findings(str(tmp_path)).results)
    assert [(each.variant, each.outcome) for each in found] == [
        ("rma-fence, plain memory", Outcome.FAILS),
        ("rma-fence, empty memory", Outcome.HOLDS),
    ]


def test_of_several_files_the_last_counts_and_not_the_best(tmp_path):
    for name, ratio, date in (("a", 1.5, "2026-02-02"), ("b", 0.5, "2026-01-01")):
        rows = envelopes.exchanges({"rma-fence": dict.fromkeys(envelopes.SIZES, ratio)})
        path = envelopes.write(tmp_path / f"{name}.json", "bench alltoallv", list(rows))
        around = json.loads(path.read_text())["circumstances"]
        envelopes.edit(path, circumstances=around | {"date": date})
    (finding,) = CLAIMS[0].rule.judge(findings(str(tmp_path)).results)
    assert finding.outcome is Outcome.FAILS


def test_wrong_data_decide_nothing(tmp_path):
    rows = list(envelopes.exchanges({"rma-fence": dict.fromkeys(envelopes.SIZES, 0.5)}))
    for row in rows:
        row.verdict = Verdict(1.0, 0.0)
    envelopes.write(tmp_path / "a.json", "bench alltoallv", rows)
    (finding,) = CLAIMS[0].rule.judge(findings(str(tmp_path)).results)
    assert finding.outcome is Outcome.OPEN


def test_nothing_is_decided_without_measurements(tmp_path):
    envelopes.write(tmp_path / "a.json", "bench other", [])
    found = verdicts(tmp_path)
    outcomes = {finding.outcome for _, each in found.findings for finding in each}
    assert outcomes == {Outcome.OPEN}
    told = f"0 hold here, 0 do not, 0 are unclear, {len(CLAIMS)} cannot be tested here"
    assert told in found.counted


def test_more_ranks_than_cores_decide_nothing(tmp_path):
    envelopes.world(tmp_path, True)
    for path in tmp_path.glob("*.json"):
        content = json.loads(path.read_text())
        envelopes.edit(path, machine=content["machine"] | {"all_cores": 1})
    crowded = [
        finding.evidence
        for claim, found in verdicts(tmp_path).findings
        for finding in found
        if finding.outcome is not Outcome.OPEN
    ]
    # between nodes the network may be what counts, and then the evidence says so
    assert crowded
    assert all("8 nodes, more than there are cores" in evidence for evidence in crowded)


def test_what_may_not_decide_is_named(tmp_path):
    ratios = {"rma-fence": dict.fromkeys(envelopes.SIZES, 0.5)}
    for ranks in (2, 4):
        rows = list(envelopes.exchanges(ratios, [ranks]))
        path = tmp_path / f"{ranks}.json"
        envelopes.write(path, "bench alltoallv", rows, ranks=ranks, all_cores=2)
    scaling = next(claim for claim in CLAIMS if "fence stays ahead" in claim.words)
    (finding,) = scaling.rule.judge(findings(str(tmp_path)).results)
    assert finding.outcome is Outcome.OPEN
    assert "on one number of ranks only" in finding.evidence
    assert "4 ranks are more than there are cores" in finding.evidence


def test_more_threads_than_cores_decide_nothing(tmp_path):
    envelopes.world(tmp_path, True)
    content = json.loads((tmp_path / "partitions.json").read_text())
    envelopes.edit(tmp_path / "partitions.json", machine=content["machine"] | {"all_cores": 31})
    told = [
        finding.evidence
        for claim, found in verdicts(tmp_path).findings
        for finding in found
        if "16 threads" in claim.words
    ]
    assert told == ["16 threads of each of 2 ranks are more than 31 cores"] * 2


@pytest.mark.parametrize(("spread", "quiet"), [(1.1, True), (2.0, False)])
def test_a_machine_that_was_not_quiet_is_told(tmp_path, spread, quiet):
    times = [1e-3, 1e-3, spread * 1e-3, spread * 1e-3]
    envelopes.write(tmp_path / "a.json", "other", [Row({"method": "p2p"}, times)])
    told = envelopes.page(tmp_path)
    assert ("was not quiet" not in told) == quiet
    assert ("at least 2.0 times the first" in told) != quiet


@pytest.mark.parametrize(
    ("rates", "kept", "lost"),
    [
        ({64: 1, 65536: 19, envelopes.MEBI: 20}, Outcome.HOLDS, Outcome.HOLDS),
        ({64: 1, 65536: 10, envelopes.MEBI: 20}, Outcome.FAILS, Outcome.HOLDS),
        ({64: 19, 128: 30, envelopes.MEBI: 20}, Outcome.OPEN, Outcome.FAILS),
        ({64: 1, 128: 20}, Outcome.OPEN, Outcome.HOLDS),
        ({2 * envelopes.MEBI: 1, envelopes.MEBI: 20}, Outcome.HOLDS, Outcome.OPEN),
    ],
)
def test_bandwidth_is_kept_or_lost_where_it_is(tmp_path, rates, kept, lost):
    shapes = {("send", "left-to-right", 1): rates}
    envelopes.write(tmp_path / "a.json", "bench partitioned", envelopes.partitions(shapes))
    found = findings(str(tmp_path)).results
    rules = keeps(["send"], 65536, 0.9), keeps(["send"], 128, 0.9, keep=False)
    assert [rule.judge(found)[0].outcome for rule in rules] == [kept, lost]
