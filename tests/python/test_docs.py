"""Does the Python that README.md and docs/ show run? (Their commands are scripts/check-readme's.)"""

import os
import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip("tilewright")
pytest.importorskip("matplotlib")
pytest.importorskip("pandas")

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [p for p in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
         if "```python" in p.read_text(encoding="utf-8")]


def test_there_are_pages():
    assert {"python.md", "tutorial.md"} <= {p.name for p in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_python_of_a_page(page, tmp_path):
    """All blocks of a page, one after the other, as one program in an empty folder."""
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    done = subprocess.run([sys.executable, "-c", "\n".join(blocks)], cwd=tmp_path, capture_output=True,
                          text=True, env={**os.environ, "MPLBACKEND": "agg"})
    assert done.returncode == 0, done.stderr


def test_every_key_of_a_machine_is_documented():
    """The reader's lists of accepted keys against the page that explains them."""
    reader = (ROOT / "core" / "machine" / "machine_yaml.cpp").read_text(encoding="utf-8")
    lists = re.findall(r"\bonly\(\{([^}]*)\}\)", reader)
    assert len(lists) >= 6  # a value, a prefetcher, a level, a unit, a path, a core, a machine
    page = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    text = page[page.index("## Machines"):]
    known = set(re.findall(r"`([a-z_]+)`", text))
    known |= {key for pair in re.findall(r"`\{(\w+), (\w+)\}`", text) for key in pair}
    missing = {key for keys in lists for key in re.findall(r'"(\w+)"', keys)} - known
    assert not missing, f"docs/formats.md says nothing of {sorted(missing)}"
