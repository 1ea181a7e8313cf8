if __name__ == "collectives":  # imported from the source folder, not from the package
    raise ImportError("import onesided.collectives, not collectives", name="collectives")
