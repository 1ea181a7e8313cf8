"""The cost of a round, a file per kind of method; named only in the registry above."""
