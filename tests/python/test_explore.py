"""The explorer in headless Chromium: what its page shows is what the command says, to the digit."""
import html
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import urllib.parse

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "out" / "site" / "explore" / "index.html"
COMMAND = ROOT / "build" / "tilewright"
CHROMIUM = shutil.which("chromium")

pytestmark = [pytest.mark.skipif(not PAGE.exists(), reason="the explorer is not built: make explore"),
              pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium"),
              pytest.mark.skipif(not COMMAND.exists(), reason="no build/tilewright to compare with: make")]


def page(**fields):
    """The document of the page, opened from its file, once it has answered."""
    done = subprocess.run([CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000",
                           "--dump-dom", f"file://{PAGE}#{urllib.parse.urlencode(fields)}"],
                          text=True, capture_output=True, timeout=60)
    assert 'data-ready="yes"' in done.stdout, done.stderr[-2000:]
    return done.stdout


def inside(document, name):
    text = re.search(rf'id="{name}"[^>]*>(.*?)</(?:pre|table|p|code|span)>', document, re.S).group(1)
    return text if "<t" in text else html.unescape(text)


def rows(document, name):
    body = inside(document, name).split("<tbody>")[1]
    return [[html.unescape(re.sub("<[^>]*>", "", cell)) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
            for row in re.findall(r"<tr>(.*?)</tr>", body)]


def command(line):
    """What the command line that the page shows prints."""
    words = shlex.split(line)
    assert words[0] == "tilewright"
    done = subprocess.run([COMMAND, *words[1:], "--json"], text=True, capture_output=True, timeout=60)
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


def as_bytes(number):
    return f"{number:,} B"


STORIES = [
    dict(workload="gemm-chain:m=64,n=16,k=16,l=64", machine="scratchpad:16K", model="chimera"),
    dict(workload="gemm-chain:m=70,n=18,k=22,l=66", machine="scratchpad:64K", capacity="3K", model="chimera"),
    dict(workload="gemm-chain:m=64,n=16,k=16,l=64", machine="cache:4K/8,16K/8", order="mlkn", tiles="m=16,l=16,k=16,n=16"),
    dict(workload="gemm:m=60,n=44,k=52", machine="scratchpad:8K", model="chimera"),
]


@pytest.mark.parametrize("fields", STORIES, ids=lambda f: f["workload"] + "@" + f["machine"])
def test_numbers_are_the_commands(fields):
    document = page(**fields)
    assert inside(document, "simulated-error") == ""
    status, said = command(inside(document, "simulated-command"))
    assert status == 0
    assert [r[:4] for r in rows(document, "traffic")] == [
        [t["tensor"], t["boundary"], as_bytes(t["read_bytes"]), as_bytes(t["written_bytes"])] for t in said["traffic"]]
    status, said = command(inside(document, "tree-command"))
    assert inside(document, "tree").split("\n") == said["trees"]
    status, said = command(inside(document, "orders-command"))
    ranked = {o["order"]: as_bytes(o["volume_bytes"]) for o in said["orders"]}
    assert {r[0]: r[1] for r in rows(document, "orders")} == ranked and ranked


def test_a_refusal_is_the_commands():
    document = page(workload="gemm-chain:m=64,n=16,k=16,l=64", machine="scratchpad:4K", model="chimera")
    status, said = command(inside(document, "simulated-command"))
    assert status == 3
    assert inside(document, "simulated-error") == said["reason"]


def test_an_error_is_the_commands():
    document = page(workload="gemm-chian:m=64", machine="scratchpad:4K", model="chimera")
    status, said = command(inside(document, "orders-command"))
    assert status == 2
    assert said == "tilewright: " + inside(document, "orders-error") + "\n"
