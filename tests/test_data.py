"""The matrices that the repository ships: unchanged, of known origin, and of every kind."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = [ROOT / "tests" / "matrices", ROOT / "apps" / "data"]
FILES = sorted(path for folder in FOLDERS for path in folder.glob("*.mtx.gz"))


def listed(folder: Path) -> dict[str, str]:
    """Name and sha256 of each matrix that the folder's README tells of."""
    text = (folder / "README.md").read_text()
    return dict(re.findall(r"^\| (\S+) \| .*\| `([0-9a-f]{64})` \|$", text, re.MULTILINE))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_the_readme_lists_every_matrix_as_it_is(folder):
    found = {path.name.removesuffix(".mtx.gz"): hashlib.sha256(path.read_bytes()).hexdigest()
             for path in folder.glob("*.mtx.gz")}  # fmt: skip
    assert found
    assert listed(folder) == found
    assert "CC BY 4.0" in (folder / "README.md").read_text()


def test_every_field_and_symmetry_of_the_format_is_there():
    heads = {gzip.open(path, "rt").readline().lower().split("coordinate ")[1] for path in FILES}
    kinds = {tuple(head.split()) for head in heads}
    assert {field for field, _ in kinds} == {"real", "integer", "complex", "pattern"}
    symmetries = {symmetry for _, symmetry in kinds}
    assert symmetries == {"general", "symmetric", "skew-symmetric", "hermitian"}


def test_the_tests_matrices_stay_small():
    assert sum(path.stat().st_size for path in (ROOT / "tests" / "matrices").iterdir()) < 600_000
