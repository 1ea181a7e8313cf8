"""The Taylor-Green vortex in its first instants, by power series in time and viscosity.

The enstrophy without viscosity is that of M. E. Brachet et al. (1983), J. Fluid Mech. 130, 411.
"""

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


def series_enstrophy(time: float, nu: float) -> float:
    """Local. Half the mean square of the vorticity, by its power series in time."""
    return sum(float(c) * time**n * nu**m for (n, m), c in ENSTROPHY_SERIES.items())


def series_energy(time: float, nu: float) -> float:
    """Local. Half the mean square of the velocity; its rate is -2 nu times the enstrophy."""
    terms = ENSTROPHY_SERIES.items()
    lost = sum(float(c) * time ** (n + 1) * nu**m / (n + 1) for (n, m), c in terms)
    return ENERGY - 2.0 * nu * lost
