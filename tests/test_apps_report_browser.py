"""The report in a browser, where there is one: no complaints, and nothing wider than a phone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from argparse import Namespace
from pathlib import Path

import envelopes
import pytest

from onesided.apps.report.command import make

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next((found for name in NAMES if (found := shutil.which(name))), None)
PHONE = 390  # pixels
#: Tells how wide the page in a frame as wide as a phone is, and whether it is dark there.
FRAME = """<!DOCTYPE html><html><body><iframe src="report.html" width="%d" height="800"
style="border: 0"></iframe><script>
window.onload = () => {
  const page = document.querySelector("iframe").contentDocument;
  const root = page.documentElement;
  const shown = page.defaultView.getComputedStyle(page.body);
  const drawn = [...page.querySelectorAll("figure > svg")];
  const empty = drawn.filter((each) => each.getBoundingClientRect().height < 20).length;
  document.title = `wide ${root.scrollWidth} of ${root.clientWidth}, figures ${drawn.length}, `
    + `empty ${empty}, back ${shown.backgroundColor}`;
};
</script></body></html>"""

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(BROWSER is None, reason=f"none of {', '.join(NAMES)} is installed"),
]


def shown(page: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What the browser makes of a page, and what it complains about."""
    line = [str(BROWSER), "--headless", "--disable-gpu", "--enable-logging=stderr",
            "--allow-file-access-from-files", f"--user-data-dir={page.parent / 'profile'}",
            "--virtual-time-budget=5000", *words, "--dump-dom", page.as_uri()]  # fmt: skip
    if os.geteuid() == 0:
        line.insert(1, "--no-sandbox")
    done = subprocess.run(line, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return done


def complaints(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [text for text in done.stderr.splitlines() if "CONSOLE" in text]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report")
    envelopes.world(path, True)
    output = str(path / "report.html")
    make(Namespace(folder=str(path), output=output, figures=None, mixed=False))
    (path / "frame.html").write_text(FRAME % PHONE)
    return path


def test_complaints_are_seen(tmp_path):
    page = tmp_path / "wrong.html"
    page.write_text("<!DOCTYPE html><script>console.error('something'); missing()</script>")
    assert len(complaints(shown(page))) == 2


def test_the_browser_does_not_complain(folder):
    done = shown(folder / "report.html")
    assert complaints(done) == []
    assert "What papers claim" in done.stdout


@pytest.mark.parametrize(
    ("words", "back"), [([], "255, 255, 255"), (["--force-dark-mode"], "15, 19, 24")]
)
def test_nothing_is_wider_than_a_phone_light_and_dark(folder, words, back):
    done = shown(folder / "frame.html", *words)
    assert complaints(done) == []
    told = re.search(r"wide (\d+) of (\d+), figures (\d+), empty 0, back rgb\((.*?)\)", done.stdout)
    assert told, re.search("<title>.*", done.stdout)
    assert int(told[1]) <= int(told[2]) <= PHONE
    assert int(told[3]) > 10
    assert told[4] == back
