if __name__ == "pencilfft":  # imported from the source folder, not from the package
    raise ImportError("import onesided.pencilfft, not pencilfft", name="pencilfft")
