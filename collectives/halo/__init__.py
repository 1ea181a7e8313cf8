"""Halos of n-dimensional blocks: ghost layers filled by partitioned sends, piece by piece."""
