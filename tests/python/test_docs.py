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
