"""One file per way of broadcasting; they are chosen in :mod:`..registry`."""
