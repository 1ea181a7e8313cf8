"""Prints constraints for pip: of everything that pyproject.toml names, the lowest version allowed.

    python tests/lowest.py > constraints.txt
"""

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
optional = project["optional-dependencies"]
for requirement in [*project["dependencies"], *(one for each in optional.values() for one in each)]:
    if found := re.fullmatch(r"([\w-]+)>=(\d+)(\.\d+)?[\d.]*(,.*)?", requirement):
        print(f"{found[1]}=={found[2]}{found[3] or '.0'}.*")
