"""The command line: which commands there are, how they are started, fail and report."""
