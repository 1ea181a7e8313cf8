"""Molecular dynamics: the mini-application MiniMD, its ghost atoms exchanged in several ways."""
