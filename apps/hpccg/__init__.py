"""HPCCG: conjugate gradients with the 27-point matrix of a stack of boxes."""
