"""What a person runs: the command ``onesided``, its reports and benchmarks."""

if __name__ == "apps":  # imported from the source folder, not from the package
    raise ImportError("import onesided.apps, not apps", name="apps")
