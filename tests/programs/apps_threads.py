"""A command in a job whose user says nothing about threads, or asks for three."""

import os
import sys

from onesided.apps.cli.main import main

del os.environ["OMP_NUM_THREADS"]
os.environ.update(pair.split("=") for pair in sys.argv[1:])
code = main(["fft", "--shape", "8", "8", "--iterations", "1", "--comm", "p2p"])
print(f"threads {os.environ['OMP_NUM_THREADS']}", flush=True)
sys.exit(code)
