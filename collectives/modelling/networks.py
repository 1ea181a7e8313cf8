"""Parameters that come with the program; each says where it is from, and what is assumed.

``paper`` is fitted to the times that paper 000 tells in its text (``onesided model --paper`` shows
them beside the model); those of its two figures differ by 1.8 where they overlap, in the baseline
with 2 MiB on 224 ranks, and the fit lies between.
"""

from __future__ import annotations

from onesided.collectives.modelling.parameters import Level, Parameters
from onesided.collectives.modelling.way import Line, Way
from onesided.collectives.models import Network

US, NS = 1e-6, 1e-9
KIBI = 1 << 10


def _way(ends: int, *lines: tuple[float, float, float, float, float]) -> Way:
    """Lines as (from bytes, L in us, o in us, g in us, G in ns)."""
    return Way(
        tuple(
            Line(start, Network(latency * US, overhead * US, gap * US, byte_gap * NS))
            for start, latency, overhead, gap, byte_gap in lines
        ),
        ends,
    )


#: Rounds on one rank alone, in us: measured with MPICH 5.0.2, medians.
_ALONE = {
    "mpi": 2.7,
    "mpi-persistent": 1.7,
    "p2p": 2.4,
    "rma-fence": 2.7,
    "rma-lock": 3.6,
    "rma-notify": 2.1,
    "rma-pscw": 2.8,
    "rma-fence-hier": 2.7,
    "rma-lock-hier": 3.6,
    "rma-fence-paper": 3.4,
    "rma-lock-paper": 7.9,
}
_SOFTWARE = {method: _way(1, (0, time, 0.0, 0.0, 0.05)) for method, time in _ALONE.items()}

_PAPER = Parameters(
    stores=_way(1, (0, 0.0, 0.1, 0.1, 0.434)),
    node=Level(
        messages=_way(2, (0, 1.0, 0.3, 0.6, 1.26)),
        puts=_way(1, (0, 1.0, 0.3, 0.3, 0.434)),
        signal=1e-6,
        barrier=1e-6,
        done=1e-6,
        fence=1e-6,
        opening=1e-6,
        relock=10e-6,
    ),
    network=Level(
        messages=_way(2, (0, 2.0, 0.5, 20.0, 0.06), (16 * KIBI + 1, 4.0, 0.5, 255.0, 0.06)),
        puts=_way(1, (0, 4.0, 0.5, 175.0, 0.06)),
        signal=2e-6,
        barrier=2e-6,
        done=2e-6,
        fence=2e-6,
        opening=2e-6,
        relock=10e-6,
        link_byte_gap=0.06 * NS,
        congestion=0.15,
        contention=0.5,
    ),
    name="paper",
    provenance=(
        "fitted by hand to the times in the text of paper 000 (Dane, MVAPICH2, 28 ranks per node): "
        "G on the node and of the link, g of Puts and long messages, congestion, contention. "
        "Assumed: L, o, signals, barriers, locks, the change of protocol at 16 KiB. Beyond 448 "
        "ranks it is a guess"
    ),
)

_GIGABIT = Parameters(
    stores=_way(1, (0, 0.03, 0.06, 0.06, 0.01), (32 * KIBI, 0.0, 0.06, 0.06, 0.05)),
    node=Level(
        messages=_way(2, (0, 0.85, 0.48, 0.96, 0.26), (8 * KIBI, 3.0, 0.48, 0.96, 0.12)),
        puts=_way(1, (0, 1.8, 0.9, 1.7, 0.28)),
        signal=1.6e-6,
        barrier=2.2e-6,
        done=1.6e-6,
        fence=1.7e-6,
        empty_fence=2.6e-6,
        opening=2.7e-6,
        notice=0.4e-6,
        epoch=2.2e-6,
        relock=12.6e-6,
    ),
    network=Level(
        messages=_way(2, (0, 225.0, 30.0, 60.0, 10.9), (6 * KIBI, 270.0, 30.0, 60.0, 9.4)),
        puts=_way(1, (0, 400.0, 65.0, 135.0, 9.3)),
        signal=240e-6,
        barrier=225e-6,
        done=250e-6,
        fence=210e-6,
        empty_fence=240e-6,
        opening=245e-6,
        notice=430e-6,
        epoch=175e-6,
        relock=1160e-6,
        link_byte_gap=9.3 * NS,
    ),
    software=_SOFTWARE,
    name="gigabit",
    provenance=(
        "measured by onesided bench model, and rounded: MPICH 5.0.2 over TCP, virtual nodes of one "
        "2-core machine with links of 1 gbit/s and 100 us. Assumed: that a node's ranks share the "
        "link"
    ),
)

_INFINIBAND = Parameters(
    stores=_way(1, (0, 0.03, 0.06, 0.06, 0.05), (512 * KIBI, 0.0, 0.06, 0.06, 0.15)),
    node=Level(
        messages=_way(2, (0, 0.4, 0.2, 0.4, 0.2)),
        puts=_way(1, (0, 0.8, 0.4, 0.4, 0.2)),
        signal=0.6e-6,
        barrier=0.6e-6,
        done=0.6e-6,
        fence=0.8e-6,
        empty_fence=0.9e-6,
        opening=0.9e-6,
        notice=0.3e-6,
        epoch=1.0e-6,
        relock=5.2e-6,
    ),
    network=Level(
        messages=_way(2, (0, 1.0, 0.25, 0.5, 0.042), (16 * KIBI, 3.0, 0.25, 0.5, 0.042)),
        puts=_way(1, (0, 2.0, 0.3, 0.3, 0.042)),
        signal=1.3e-6,
        barrier=1.5e-6,
        done=1.3e-6,
        fence=2.0e-6,
        empty_fence=2.0e-6,
        opening=2.0e-6,
        notice=2.5e-6,
        epoch=2.0e-6,
        relock=11.0e-6,
        link_byte_gap=0.042 * NS,
        link_gap=10 * NS,
    ),
    software=_SOFTWARE,
    name="infiniband",
    provenance=(
        "assumed: a link of 200 gbit/s for each node, 1 us from memory to memory, hardware that "
        "Puts without the target's processor. Measured: the methods' own code (MPICH 5.0.2)"
    ),
)

#: By the name that ``--network`` takes.
NETWORKS = {each.name: each for each in (_PAPER, _GIGABIT, _INFINIBAND)}
