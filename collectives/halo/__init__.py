"""Grids in blocks with ghost layers: their halos, the way back, items that move between blocks."""
