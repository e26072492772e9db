"""The explorer in headless Chromium, driven as a user does: what its page shows is what the command says, to the digit.

With TILEWRIGHT_PICTURES=FOLDER each story leaves its picture there; docs/explore.md shows them."""
import json
import os
import pathlib
import shlex
import subprocess
import urllib.parse
import xml.etree.ElementTree

import pytest

import browser

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "out" / "site" / "explore" / "index.html"
COMMAND = ROOT / "build" / "tilewright"
CHAIN = "gemm-chain:m=64,n=16,k=16,l=64"

pytestmark = [pytest.mark.skipif(not PAGE.exists(), reason="the explorer is not built: make explore"),
              pytest.mark.skipif(None in (browser.CHROMIUM, browser.DRIVER), reason="no chromium: apt-get install chromium-driver"),
              pytest.mark.skipif(not COMMAND.exists(), reason="no build/tilewright to compare with: make")]


class Explorer(browser.Browser):
    def show(self, **fields):
        self.open(f"file://{PAGE}#{urllib.parse.urlencode(fields)}")
        self.answered()

    def answered(self):
        self.until("return document.body.dataset.ready === 'yes'")

    def text(self, name):
        return self.js("return document.getElementById(arguments[0]).textContent", name)

    def rows(self, name):
        return self.js("return [...document.getElementById(arguments[0]).tBodies[0].rows].map(r => [...r.cells].map(c => c.textContent))", name)

    def type(self, name, text):
        """As a user changes a field: the old text goes, the new one comes key by key."""
        self.js("const e = document.getElementById(arguments[0]); e.closest('details')?.setAttribute('open', ''); e.focus(); e.select(); document.execCommand('delete')", name)
        self.press(*text)
        self.answered()

    def click(self, name):
        self.js("document.getElementById(arguments[0]).click()", name)
        self.answered()

    def saved(self, name):
        """What a link's file would have."""
        return urllib.parse.unquote(self.js("return document.getElementById(arguments[0]).href", name).split(",", 1)[1])


@pytest.fixture(scope="module")
def page():
    with Explorer() as b:
        yield b


@pytest.fixture
def picture(page):
    def take(name, selector):
        if folder := os.environ.get("TILEWRIGHT_PICTURES"):
            page.picture(pathlib.Path(folder) / f"explore-{name}.png", selector)
    return take


def command(line, folder=ROOT):
    """What the command line that the page shows prints."""
    words = shlex.split(line)
    assert words[0] == "tilewright"
    done = subprocess.run([COMMAND, *words[1:], "--json"], text=True, capture_output=True, timeout=60, cwd=folder)
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


def as_bytes(number):
    return f"{number:,} B"


def traffic_of(said):
    return [[t["tensor"], t["boundary"], as_bytes(t["read_bytes"]), as_bytes(t["written_bytes"]),
             f"{t['hits']:,}" if "hits" in t else "", f"{t['misses']:,}" if "misses" in t else ""] for t in said["traffic"]]


def same_numbers(page, folder=ROOT):
    assert page.text("simulated-error") == ""
    status, said = command(page.text("simulated-command"), folder)
    assert status == 0
    assert [r[:6] for r in page.rows("traffic")] == traffic_of(said)
    _, resolved = command(page.text("tree-command"), folder)
    assert page.text("trees").split("\n") == resolved["trees"]
    return said


MACHINES = [
    dict(workload="gemm-chain:m=70,n=18,k=22,l=66", machine="scratchpad:64K", capacity="3K"),
    dict(workload=CHAIN, machine="cache:4K/8,16K/8", order="mlkn", tiles="m=16,l=16,k=16,n=16"),
    dict(workload="gemm:m=60,n=44,k=52", machine="scratchpad:8K"),
    dict(workload="attention:m=64,l=64", machine="scratchpad:32K"),
    dict(workload="gemm-chain3:m=40,n=24,k=16,l=56,p=12", machine="scratchpad:8K"),
    dict(workload=CHAIN, machine="scratchpad:16K", tree="m l ( k ( C.gemm1 ) n ( C.gemm2 ) )", tiles="m=16,l=16,k=16,n=16"),
]


@pytest.mark.parametrize("fields", MACHINES, ids=lambda f: f["workload"] + "@" + f["machine"])
def test_numbers_are_the_commands(page, fields):
    page.show(**fields)
    said = same_numbers(page)
    for row, t in zip(page.rows("traffic"), said["traffic"]):
        if "cache" not in fields["machine"]:
            assert row[6] == as_bytes(t["read_bytes"] + t["written_bytes"]), "exact"
    if "tree" not in fields:
        _, row = command(f"{page.text('orders-command')} --order {fields.get('order', 'best')}")
        assert f"--order {row['orders'][0]['order']} " in page.text("simulated-command")
        decided = {tensor: t["decided_by"] for tensor, t in row["orders"][0]["tensors"].items()}
        assert [r[8] for r in page.rows("traffic")] == [decided[r[0]] for r in page.rows("traffic")]


def test_story_1_an_order_is_chosen_from_the_ranking(page, picture):
    page.show(workload=CHAIN)
    _, said = command(page.text("orders-command"))
    ranked = {o["order"]: as_bytes(o["volume_bytes"]) for o in said["orders"]}
    rows = page.rows("orders")
    assert {r[0]: r[1] for r in rows} == ranked and ranked
    sizes = [int(r[1][:-2].replace(",", "")) for r in rows if r[4] == "feasible"]
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1]
    worst = [r[0] for r in rows if r[4] == "feasible"][-1]
    page.js("[...document.querySelectorAll('#orders button')].find(b => b.textContent === arguments[0]).click()", worst)
    page.answered()
    assert page.js("return order.value") == worst
    assert f"--order {worst} " in page.text("simulated-command")
    same_numbers(page)
    picture("1-orders", "section:last-of-type")


def test_story_2_the_capacity_is_dragged_by_keyboard(page, picture):
    page.show(workload=CHAIN, machine="scratchpad:16K")
    before = page.text("status")
    page.js("slider.focus()")
    page.press(*["left"] * 40)
    page.answered()
    assert page.js("return capacity.value") != "" and page.text("status") != before
    same_numbers(page)
    _, said = command(page.text("curve-command"))
    size = int(page.js("return capacity.value")[:-1])
    at = [p for p in said["curve"] if p["buffer_bytes"] <= size][-1]
    shown = page.text("curve-says")
    assert f"attainable fused {as_bytes(at['fused']['attainable_bytes'])}" in shown
    assert f"proven bound fused {as_bytes(at['fused']['proven_bytes'])}" in shown
    assert page.js("return document.querySelectorAll('#curve svg path').length") == 3
    assert page.js("return document.querySelectorAll('#curve svg circle').length") == 1
    # The mark is the plan at this capacity, not one that was asked for on the way.
    mark, line = page.js("return [Number(document.querySelector('#curve svg circle').getAttribute('cx')),"
                         " Number([...document.querySelectorAll('#curve svg line')].find(l => l.getAttribute('stroke-dasharray') === '2 3').getAttribute('x1'))]")
    assert mark <= line
    picture("2-capacity", "#curve")


def test_story_3_a_workload_is_written_and_its_errors_are_the_commands(page, picture, tmp_path):
    page.show(workload="gemm:m=16,n=16,k=16", machine="scratchpad:8K")
    page.click("start")
    assert "C[m,n] +=" in page.js("return notation.value")
    wrong = "loops: {m: 24, n: 8, k: 16}\noperators:\n  - C[m,n] += A[m,k] * B[k,n\n"
    page.type("notation", wrong)
    (tmp_path / "workload.yaml").write_text(wrong)
    status, said = command(page.text("tree-command"), tmp_path)
    assert status == 2 and said == "tilewright: " + page.text("notation-error") + "\n"
    picture("3-notation", "#writing")
    page.press("left", "]")
    page.answered()
    assert page.text("notation-error") == ""
    assert page.saved("workload-file") == wrong[:-1] + "]\n"
    (tmp_path / "workload.yaml").write_text(page.saved("workload-file"))
    same_numbers(page, tmp_path)


def test_story_4_tiles_come_and_go_in_a_cache(page, picture):
    page.show(workload=CHAIN, machine="cache:1K/4,4K/8", order="mlkn", tiles="m=16,l=16,k=16,n=16")
    page.js("step.focus()")
    page.press("right", "right", "right", "right")
    status, said = command(page.text("step-command"))
    assert status == 0 and "--computes 5" in page.text("step-command")
    rows = {r[0]: r[1:] for r in page.rows("steps")}
    for tensor in {t["tensor"] for t in said["traffic"]}:
        mine = [t for t in said["traffic"] if t["tensor"] == tensor]
        assert rows[tensor][:4] == [f"{sum(t['hits'] for t in mine):,}", f"{sum(t['misses'] for t in mine):,}",
                                    as_bytes(sum(t["read_bytes"] for t in mine)), as_bytes(sum(t["written_bytes"] for t in mine))]
    held = said["stop"]["held"][0]
    lines = sum(len(s) for s in held["sets"])
    coloured = page.js("return [...document.querySelectorAll('#held svg')][0].querySelectorAll('rect:not([fill=\"#f3f3f3\"])').length")
    assert coloured == lines + 1, "a rectangle a line, and the ground"
    assert said["stop"]["operator"] in page.js("return document.querySelector('#nest [aria-current]').textContent")
    picture("4-step", "section[aria-labelledby=h-step]")
    page.press("end")
    rows = {r[0]: r[1:] for r in page.rows("steps")}
    _, whole = command(page.text("simulated-command"))
    for t in whole["traffic"]:
        mine = [u for u in whole["traffic"] if u["tensor"] == t["tensor"]]
        assert rows[t["tensor"]][1] == f"{sum(u['misses'] for u in mine):,}"


def test_story_5_two_plans_side_by_side(page, picture):
    page.show(workload=CHAIN, machine="scratchpad:16K", order="mlkn")
    page.click("keep")
    page.type("order", "mnkl")
    lines = [l.rstrip(".") for l in page.text("beside-note").removeprefix("Kept: ").split(". This: ")]
    answers = [command(l)[1] for l in lines]
    rows = {r[0]: r[1:] for r in page.rows("beside")}
    sums = [sum(t["read_bytes"] + t["written_bytes"] for t in a["traffic"]) for a in answers]
    assert rows["All"] == [*map(as_bytes, sums), f"{sums[1] / sums[0]:.3f}"] and sums[0] != sums[1]
    for side, a in enumerate(answers):
        for t in a["traffic"]:
            assert rows[f"{t['tensor']} {t['boundary']}"][side] == as_bytes(t["read_bytes"] + t["written_bytes"])
    picture("5-side-by-side", "section[aria-labelledby=h-beside]")
    page.click("swap")
    assert page.js("return order.value") == "mlkn"
    assert [r[:] for r in page.rows("beside")][-2][1:3] == [as_bytes(sums[1]), as_bytes(sums[0])]


def test_story_6_exports_and_the_link_say_the_same(page, picture, tmp_path):
    page.show(workload=CHAIN, machine="cache:1K/4,4K/8", order="mlkn", tiles="m=16,l=16", step="3")
    (tmp_path / "plan.yaml").write_text(page.saved("plan-file"))
    status, said = command("tilewright simulate plan.yaml", tmp_path)
    assert status == 0 and traffic_of(said) == [r[:6] for r in page.rows("traffic")]
    for place in ("bars", "curve", "held", "time"):
        text = page.js("return new XMLSerializer().serializeToString(document.querySelector('#' + arguments[0] + ' svg'))", place)
        assert xml.etree.ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    shown, link = page.text("at"), page.js("return document.getElementById('link').href || location.href")
    page.open(f"file://{PAGE}")
    page.answered()
    page.open(link)
    page.answered()
    assert page.text("at") == shown
    picture("6-bytes", "section[aria-labelledby=h-traffic]")


def test_a_refusal_is_the_commands(page):
    page.show(workload=CHAIN, machine="scratchpad:16K", capacity="64B", tiles="m=64,l=64,k=16,n=16")
    status, said = command(page.text("simulated-command"))
    assert status == 0 or page.text("simulated-error") == said["reason"]
    page.show(workload="gemm-chian:m=64")
    status, said = command(page.text("orders-command"))
    assert status == 2 and said == "tilewright: " + page.text("orders-error") + "\n"


def test_a_long_walk_is_waited_for_by_nobody(page):
    """The prediction stands there while the walk goes on; a change gives the walk up, and its answer is never shown."""
    page.open(f"file://{PAGE}#{urllib.parse.urlencode(dict(workload='chimera/G2', machine='scratchpad:64K', order='mlkn', capacity='100B'))}")
    page.until("return document.body.dataset.answered === 'yes'")
    _, said = command("tilewright predict chimera/G2 --machine scratchpad:64K --capacity 100B --order mlkn --model exact")
    assert page.text("status") == f"Predicted by exact: {as_bytes(sum(t['read_bytes'] + t['written_bytes'] for t in said['traffic']))} cross all boundaries."
    assert [r[6] for r in page.rows("traffic")] == [as_bytes(t["read_bytes"] + t["written_bytes"]) for t in said["traffic"]]
    page.until("return document.getElementById('progress').textContent.startsWith('Simulating')")
    assert page.js("return document.body.dataset.ready") == "no"
    page.js("capacity.value = '32K'; capacity.dispatchEvent(new Event('input'))")
    page.answered()
    same_numbers(page)
    assert page.text("progress") == "" and page.text("status").startswith("Simulated: ")


def test_every_control_has_a_name_and_can_be_reached_by_keyboard(page):
    page.show(workload=CHAIN, machine="cache:1K/4", order="mlkn", tiles="m=16,l=16,k=16,n=16")
    page.devtools("Accessibility.enable")
    nodes = page.devtools("Accessibility.getFullAXTree")["nodes"]
    roles = {"textbox", "combobox", "slider", "button", "link", "table", "image", "region", "status", "form"}
    named = [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes
             if not n.get("ignored") and n.get("role", {}).get("value") in roles]
    assert [n for n in named if not n[1] and n[0] != "status"] == []
    assert {"slider", "button", "image", "region", "table"} <= {n[0] for n in named}
    parts = [n.get("role", {}).get("value") for n in nodes if not n.get("ignored")]
    assert {"row", "columnheader", "rowheader", "cell"} <= set(parts), "tables are read out as tables"
    page.js("document.querySelector('.skip').focus()")
    reached = []
    for _ in range(40):
        page.press("tab")
        reached.append(page.focused())
    for name in ("workload", "machine", "order", "slider", "plan-file", "keep", "next", "step"):
        assert name in reached, reached
