if __name__ == "sparse":  # imported from the source folder, not from the package
    raise ImportError("import onesided.sparse, not sparse", name="sparse")
