"""The persistent broadcast: the same data from one rank to all, over and over."""
