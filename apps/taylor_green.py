"""What is known about the Taylor-Green vortex: its start, its first instants, published values.

On a cube of side 2 pi, with velocity and length 1, the Reynolds number is one over the viscosity:

    u = (sin x cos y cos z, -cos x sin y cos z, 0)

Sources: G. I. Taylor and A. E. Green (1937), Proc. R. Soc. A 158, 499; M. E. Brachet et al. (1983),
J. Fluid Mech. 130, 411 (the series of the enstrophy without viscosity); W. M. van Rees et al.
(2011), J. Comput. Phys. 230, 2794, whose spectral solution with 512^3 points is the reference of
case C3.5 of the International Workshops on High-Order CFD Methods; M. Mortensen and
H. P. Langtangen (2016), Comput. Phys. Commun. 203, 53 (energy at t = 0.1).
"""

from __future__ import annotations

from fractions import Fraction

#: Powers of time and viscosity -> coefficient of the enstrophy, complete up to t^6.
ENSTROPHY_SERIES = {
    (0, 0): Fraction(3, 8),
    (1, 1): Fraction(-9, 4),
    (2, 0): Fraction(5, 128),
    (2, 2): Fraction(27, 4),
    (3, 1): Fraction(-5, 8),
    (3, 3): Fraction(-27, 2),
    (4, 0): Fraction(25, 8448),
    (4, 2): Fraction(1835, 384),
    (4, 4): Fraction(81, 4),
    (5, 1): Fraction(-1083, 11264),
    (5, 3): Fraction(-761, 32),
    (5, 5): Fraction(-243, 10),
    (6, 0): Fraction(-52439, 376668160),
    (6, 2): Fraction(24139, 16896),
    (6, 4): Fraction(50449, 576),
    (6, 6): Fraction(243, 10),
}
HIGHEST = 6  # power of time
ENERGY = 1 / 8  # at the start
EARLY = 0.5  # until when the series is used

REYNOLDS = 1600.0  # of the published values that follow
PUBLISHED_TIME, PUBLISHED_ENERGY = 0.1, 0.124953117517
PUBLISHED_SOURCE = "Mortensen and Langtangen 2016, 32^3"
PEAK_TIME, PEAK_DISSIPATION = 8.97, 0.0128575
PEAK_SOURCE = "van Rees et al. 2011, 512^3"


def series_enstrophy(time: float, nu: float) -> float:
    """Local. Half the mean square of the vorticity, by its power series in time."""
    return float(sum(c * time**n * nu**m for (n, m), c in _series()))


def series_energy(time: float, nu: float) -> float:
    """Local. Half the mean square of the velocity; its rate is -2 nu times the enstrophy."""
    lost = sum(c * time ** (n + 1) * nu**m / (n + 1) for (n, m), c in _series())
    return float(ENERGY - 2.0 * nu * lost)


def series_error(time: float, nu: float) -> float:
    """Local. What the series may lack of the enstrophy: twice its last two orders."""
    last = [abs(c) * time**n * nu**m for (n, m), c in _series() if n >= HIGHEST - 1]
    return float(2.0 * sum(last))


def _series() -> list[tuple[tuple[int, int], float]]:
    return [(powers, float(value)) for powers, value in ENSTROPHY_SERIES.items()]
