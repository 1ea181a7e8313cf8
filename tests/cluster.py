"""Virtual nodes (being written)."""


def available() -> str:
    return "virtual nodes are not there yet"
