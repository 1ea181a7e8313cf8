"""Matrices that are made, each rank its own rows: grids and meshes."""
