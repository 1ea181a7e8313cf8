"""The heat equation on a grid, with halos that leave piece by piece."""
