"""The ways of moving data, one file each; named only in :mod:`onesided.collectives.registry`."""
