"""Does every notebook run as a student finds it, do its exercises refuse wrong answers and accept the
key's?

Each notebook is executed once. After each exercise cell, which must say "not answered yet", two cells are
added: the key's answer, which must be right, and one that must not be."""

import json
import math
import pathlib
import queue
import re
import runpy
import sys
import time

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("tilewright")

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "notebooks"
SEALS = json.loads((FOLDER / "seals.json").read_text(encoding="utf-8"))
NOTEBOOKS = sorted(p.stem for p in FOLDER.glob("*.ipynb"))
SECONDS = 240  # of one cell, on a machine that is busy with other tests


class Client(nbclient.NotebookClient):
    """Asks for a reply again each second: a message that the client sends for a widget meanwhile can take the event by which
    it learns of the reply, and it would wait until the cell's time is over."""

    async def async_start_new_kernel_client(self):
        client = await super().async_start_new_kernel_client()
        get = client.shell_channel.get_msg

        async def ask(timeout=None):
            end = time.monotonic() + (math.inf if timeout is None else timeout)
            while True:
                try:
                    return await get(timeout=max(0, min(1, end - time.monotonic())))
                except queue.Empty:
                    if time.monotonic() >= end:
                        raise

        client.shell_channel.get_msg = ask
        return client


def execute(notebook, **options):
    Client(notebook, timeout=SECONDS, **options).execute()


WRONG = """
_right = {answer}
_wrong = _right * 1.5 + 1 if isinstance(_right, (int, float)) else \\
    "0x0" if isinstance(_right, str) else Compulsory()
assert not check("{exercise}", _wrong), "a wrong answer was accepted"
"""


def key_of(name):
    """{exercise: code}."""
    text = (FOLDER / "key" / f"{name}.py").read_text(encoding="utf-8")
    parts = re.split(r"^# exercise ([\d.]+)\n", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def with_key(notebook, key):
    """The cells that are executed, and the indices of the students' exercise cells."""
    cells, students = [], []
    for cell in notebook.cells:
        cells.append(cell)
        exercise = cell.metadata.get("exercise")
        if exercise is None:
            continue
        students.append(len(cells) - 1)
        answer = f"answer_{exercise.replace('.', '_')}"
        cells.append(nbformat.v4.new_code_cell(
            key.pop(exercise) + f'\nassert check("{exercise}", {answer}), "the key is refused"'))
        cells.append(nbformat.v4.new_code_cell(WRONG.format(answer=answer, exercise=exercise)))
    return cells, students


def test_each_says_what_it_takes_as_the_overview_does():
    overview = dict(re.findall(r"^\| `(\d\d-[\w-]+)` \|.*\| (\d+) \|$", (FOLDER / "README.md").read_text(encoding="utf-8"), re.M))
    assert sorted(overview) == NOTEBOOKS
    for name in NOTEBOOKS:
        first = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4).cells[0].source
        assert all(part in first for part in ("**You learn**", "**You need**")), name
        assert re.search(r"\*\*It takes\*\* (\d+) minutes", first).group(1) == overview[name], name


def printed(cell):
    return "".join(o.get("text", "") for o in cell.outputs if o.output_type == "stream")


def test_there_is_a_course():
    assert [n[:2] for n in NOTEBOOKS] == [f"{i:02}" for i in range(17)]
    assert sorted(p.stem for p in (FOLDER / "key").glob("[0-9]*.py")) == NOTEBOOKS


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_are_kept_without_outputs(name):
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert cell.cell_type == "markdown" or (not cell.outputs and cell.execution_count is None)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook(name, capsys):
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    key = key_of(name)
    notebook.cells, students = with_key(notebook, key)
    assert students and not key, f"exercises without a cell: {sorted(key)}"
    begin = time.monotonic()
    execute(notebook, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}})
    for i in students:
        assert "not answered yet" in printed(notebook.cells[i])
    pictures = sum("image/png" in o.get("data", {}) for c in notebook.cells if c.cell_type == "code"
                   for o in c.outputs)
    assert pictures or name in ("09-kernels", "11-what-is-wrong"), "it shows no picture"
    with capsys.disabled():
        print(f"\n{name}: {time.monotonic() - begin:.1f} s", end="")


def test_every_exercise_of_the_checks_is_in_a_notebook():
    known = set(SEALS) | {"9.1", "9.2", "10.1"}
    used = {cell.metadata["exercise"] for name in NOTEBOOKS
            for cell in nbformat.read(FOLDER / f"{name}.ipynb", as_version=4).cells
            if "exercise" in cell.metadata}
    assert used == known


def test_seals_are_what_the_tool_answers():
    """Digests of answers, right and wrong, are those of today's answers; no wrong one is taken for the right one."""
    sys.path.insert(0, str(FOLDER))
    key = runpy.run_path(str(FOLDER / "key" / "seal.py"))
    assert key["sealed"]() == SEALS
    for exercise, seal in SEALS.items():
        assert seal["wrong"], f"{exercise}: no common wrong answer has a hint of its own"
        wrong = [theirs for theirs, _ in seal["wrong"]]
        assert seal["digest"] not in wrong, exercise


def test_common_wrong_answers_get_their_own_hint(capsys):
    sys.path.insert(0, str(FOLDER))
    checks = runpy.run_path(str(FOLDER / "checks.py"))
    assert not checks["check"]("14.1", 450) and "not powers of two" in capsys.readouterr().out
    assert not checks["check"]("0.1", 48 * 64) and "bytes are asked for" in capsys.readouterr().out
    assert checks["check"]("14.2", 2.69) and not checks["check"]("14.2", 2.8)
    for answer in ("2.69", True, float("inf"), float("nan"), -2.69, 0):
        assert not checks["check"]("14.2", answer)


def test_answers_are_held_back():
    """What students get has no answer in it, and nothing in it gives one."""
    checks = (FOLDER / "checks.py").read_text(encoding="utf-8")
    assert "key" not in re.findall(r"\w+", checks.replace("keys", "")) and "CHECKS" not in checks
    assert all(set(seal) == {"tolerance", "hint", "digest", "wrong"} for seal in SEALS.values())
    assert all(re.fullmatch("[0-9a-f]{32}", d) for s in SEALS.values() for d in [s["digest"], *(w[0] for w in s["wrong"])])


def test_slides_show_texts_code_and_results_and_no_answer():
    slides = runpy.run_path(str(FOLDER.parent / "scripts" / "slides"))
    new = nbformat.v4
    code = new.new_code_cell("%matplotlib inline\nprint(1 < 2)")
    code.outputs = [new.new_output("stream", text="a < b\n"), new.new_output("stream", text="in two pieces\n"),
                    new.new_output("display_data", data={"image/png": "AAAA"})]
    asked = new.new_code_cell("answer_1_1 = 42", metadata={"exercise": "1.1"})
    notebook = new.new_notebook(cells=[
        new.new_markdown_cell("# A title\n\nwith $T^2 + 2\\alpha T$"), new.new_code_cell("import tilewright as tw"), code,
        new.new_markdown_cell("### Exercise 1.1\nHow many?"), asked])
    first, second = slides["slides_of"](notebook)
    assert "data:image/svg+xml" in first and 'alt="T^2 + 2\\alpha T"' in first
    assert "print(1 &lt; 2)" in first and "a &lt; b\nin two pieces" in first and "data:image/png;base64,AAAA" in first
    assert "matplotlib inline" not in first and "import tilewright" not in first
    assert "How many?" in second and "42" not in second
    page = slides["page"](slides["title_of"](notebook), [first, second])
    assert page.count("<section>") == 2 and "columns" in first and "columns" not in second and "<title>A title</title>" in page and "http" not in page.replace("http://www.w3", "")


def test_a_slider_of_a_slide_has_every_value():
    """Executed as scripts/slides does it: the code's answer at each value is in the page, the first value's is shown."""
    slides = runpy.run_path(str(FOLDER.parent / "scripts" / "slides"))
    new = nbformat.v4
    code = new.new_code_cell("from ipywidgets import IntSlider, interact\ninteract(lambda n: print(n * n), n=IntSlider(min=2, max=5, value=3));")
    notebook = new.new_notebook(cells=[new.new_code_cell(slides["EVERY_VALUE"]), new.new_markdown_cell("Drag"), code])
    execute(notebook)
    del notebook.cells[0]
    (slide,) = slides["slides_of"](notebook)
    shown = re.findall(r'<div data-at="(\d)"( hidden)?><pre class="result">(\d+)\n</pre></div>', slide)
    assert shown == [("0", " hidden", "4"), ("1", "", "9"), ("2", " hidden", "16"), ("3", " hidden", "25")]
    assert 'max="3" value="1" data-values="[2, 3, 4, 5]"' in slide and "<output>3</output>" in slide
