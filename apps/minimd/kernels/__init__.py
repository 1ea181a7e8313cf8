"""Neighbor lists and forces of the atoms of one rank."""
