"""What mini-applications share: ways to communicate, scaling runs, overheads, bounds."""
