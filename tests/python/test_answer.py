"""Do answers become frames, arrays and files, do the docstrings' examples hold, and are the types right?"""

import doctest
import inspect
import json
import os
import subprocess
import sys
import threading

import pytest

tilewright = pytest.importorskip("tilewright")
numpy = pytest.importorskip("numpy")
pandas = pytest.importorskip("pandas")

CHAIN = "gemm-chain:m=96,n=64,k=48,l=80"
IN_PLACE = dict(tree="m l ( k ( C.gemm1 ) n ( C.gemm2 ) )", tiles={"m": 16, "l": 16, "k": 8, "n": 8})


def test_traffic():
    answer = tilewright.simulate(CHAIN, "cache:1K/4,16K/8", **IN_PLACE)
    frame = answer.frame()
    assert len(frame) == len(answer["traffic"])
    by_level = frame.groupby("boundary")["read_bytes"].sum()
    assert set(by_level.index) == {"DRAM/L2", "L2/L1"} and (by_level > 0).all()
    arrays = answer.arrays()
    assert arrays["read_bytes"].dtype == numpy.int64
    assert arrays["read_bytes"].sum() == sum(t["read_bytes"] for t in answer["traffic"])


def test_points_orders_plans_and_curves():
    said = tilewright.validate(CHAIN, "cache:4K/8", orders=["mlkn"], samples=8)
    points = said.frame()
    assert (points["tile_m"] <= 96).all() and "A_true_bytes" in points
    x, y = said.arrays()["predicted_bytes"], said.arrays()["true_bytes"]
    assert 1 - ((y - x) ** 2).sum() / ((y - y.mean()) ** 2).sum() == pytest.approx(said["r2_identity"])
    orders = tilewright.explain(CHAIN, "scratchpad:8K", model="chimera").frame()
    assert len(orders) == 24 and orders["volume_elements"].is_monotonic_increasing
    plans = tilewright.compare(CHAIN, "scratchpad:8K", models="chimera,bounds").frame()
    assert list(plans["model"]) == ["chimera", "chimera", "bounds", "bounds"]
    assert list(plans["priced_by"]) == ["chimera", "bounds"] * 2
    curve = tilewright.explain(CHAIN, curve=True).frame()
    assert (curve["fused_attainable_bytes"].dropna() > 0).all()


def test_lists_and_single_documents():
    assert "chimera" in set(tilewright.models().frame()["name"])
    assert tilewright.plan(CHAIN, "scratchpad:8K").frame()["exact_bytes"].notna().all()


def test_missing_numbers_are_nan_and_other_things_objects():
    answer = tilewright.Answer(traffic=[{"tensor": "A", "hits": 3}, {"tensor": "B", "hits": None}])
    arrays = answer.arrays()
    assert arrays["hits"][0] == 3 and numpy.isnan(arrays["hits"][1])
    assert list(arrays["tensor"]) == ["A", "B"]


def test_an_answer_is_a_dict_and_a_file(tmp_path):
    answer = tilewright.simulate(CHAIN, "scratchpad:16K", **IN_PLACE)
    assert isinstance(answer, dict) and answer == json.loads(json.dumps(answer))
    answer.save(tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text()) == answer
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_files_keep_links_pipes_and_permissions(tmp_path):
    answer = tilewright.Answer(schema=1)
    (tmp_path / "a.json").write_text("before")
    (tmp_path / "a.json").chmod(0o640)
    (tmp_path / "link").symlink_to("a.json")
    answer.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and json.loads((tmp_path / "a.json").read_text()) == answer
    assert (tmp_path / "a.json").stat().st_mode & 0o777 == 0o640
    os.link(tmp_path / "a.json", tmp_path / "other")
    answer.save(tmp_path / "other")
    assert (tmp_path / "other").samefile(tmp_path / "a.json")
    os.mkfifo(tmp_path / "pipe")
    got = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_text()))
    reader.start()
    answer.save(tmp_path / "pipe")
    reader.join()
    assert json.loads(got[0]) == answer and (tmp_path / "pipe").is_fifo()
    assert sorted(os.listdir(tmp_path)) == ["a.json", "link", "other", "pipe"]


def test_pictures(tmp_path):
    pytest.importorskip("matplotlib")
    answer = tilewright.plan(CHAIN, "xeon-gold-6240")
    assert answer.plot(tmp_path / "a.png").axes and (tmp_path / "a.png").stat().st_size > 1000
    with pytest.raises(tilewright.InputError, match="roofline"):
        answer.plot(kind="orders")
    with pytest.raises(tilewright.InputError, match="a.doc"):
        answer.plot(tmp_path / "a.doc")


@pytest.mark.parametrize("name", ["tilewright", "tilewright.model", "tilewright.answer", "tilewright.sweeps"])
def test_examples_in_docstrings(name):
    module = sys.modules.get(name) or __import__(name, fromlist=["_"])
    done = doctest.testmod(module)
    assert done.failed == 0 and done.attempted > 0


def test_everything_public_is_documented():
    for name in tilewright.__all__:
        assert inspect.getdoc(getattr(tilewright, name)), name


def test_types(tmp_path):
    """The package is typed: mypy --strict accepts a program that uses it and refuses one that does not."""
    pytest.importorskip("mypy")
    good = tmp_path / "good.py"
    good.write_text("""
import tilewright

class Mine(tilewright.Model):
    name = "mine"
    def predict(self, question: tilewright.Question) -> tilewright.Price:
        w = question.workload
        return tilewright.Price(read_bytes={t: w.tensors[t].bytes for t in w.inputs})

tilewright.register(Mine())
best = tilewright.plan("gemm-chain", "scratchpad:32K", capacity=8192)
total: int = sum(t["read_bytes"] for t in tilewright.simulate(best, tiles={"m": 3})["traffic"])
columns = best.arrays()
""")
    bad = tmp_path / "bad.py"
    bad.write_text("import tilewright\n\ntilewright.plan('gemm-chain', min_tile='a')\n"
                   "tilewright.simulate('x', tile=3)\ntilewright.Price(3)\n")
    def checked(path):
        return subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir",
                               str(tmp_path / "cache"), str(path)], capture_output=True, text=True)
    done = checked(good)
    assert done.returncode == 0, done.stdout + done.stderr
    done = checked(bad)
    assert done.stdout.count(": error:") == 3, done.stdout


def test_stub_has_what_the_package_has():
    """Names and parameters of the stub are those at run time."""
    import ast
    import os
    path = os.path.join(os.path.dirname(tilewright.__file__), "__init__.pyi")
    assert os.path.exists(os.path.join(os.path.dirname(path), "py.typed"))
    tree = ast.parse(open(path, encoding="utf-8").read())
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    for name, node in functions.items():
        arguments = node.args
        said = [a.arg for a in arguments.args + arguments.kwonlyargs + [*filter(None, [arguments.kwarg])]]
        assert said == list(inspect.signature(getattr(tilewright, name)).parameters), name
    imported = {a.asname for n in tree.body if isinstance(n, ast.ImportFrom) for a in n.names if a.asname}
    classes = {n.name for n in tree.body if isinstance(n, ast.ClassDef)}
    assert set(functions) | imported | classes == set(tilewright.__all__)


def test_a_notebook_shows_the_main_table():
    shown = tilewright.simulate(CHAIN, "cache:1K/4,16K/8", **IN_PLACE)._repr_html_()
    rows = len(tilewright.simulate(CHAIN, "cache:1K/4,16K/8", **IN_PLACE).frame())
    assert shown.count("<tr>") == rows + 1 and "<th>read_bytes</th>" in shown
    assert "&lt;" in tilewright.Answer(reason="1 < 2")._repr_html_()
    assert "1 more rows" in tilewright.Answer(rows=[{"n": i} for i in range(61)])._repr_html_()


def test_a_workload_as_a_file(tmp_path):
    assert any(w["name"] == "gemm" for w in tilewright.workloads()["workloads"])
    path = tmp_path / "chain.yaml"
    said = tilewright.workloads(CHAIN, out=path)
    assert path.read_text() == said["file"]
    by_name, by_file = (tilewright.simulate(w, "cache:1K/4,16K/8", **IN_PLACE) for w in (CHAIN, path))
    assert by_name["traffic"] == by_file["traffic"]
    with pytest.raises(tilewright.InputError, match="scale-late"):
        tilewright.workloads(CHAIN, rewrite=["scale-late"])
