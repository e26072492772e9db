"""Do the functions answer what the command answers, and refuse what it refuses?"""

import inspect
import json
import os
import pickle
import re
import shutil
import subprocess
import sys

import pytest

tilewright = pytest.importorskip("tilewright")

CHAIN = "gemm-chain:m=96,n=64,k=48,l=80"
MACHINE = "scratchpad:16K"
TREE = "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )"
TILES = {"m": 16, "l": 16, "k": 8, "n": 8}

AS_FILE = {
    "name": "my-chain", "dtype": "f32", "loops": {"m": 12, "n": 7, "k": 9, "l": 10},
    "operators": ["C[m,l] += A[m,k] * B[k,l]", {"relu": "R[m,l] = relu(C[m,l])"},
                  {"second": "E[m,n] += R[m,l] * D[l,n]"}],
    "outputs": ["E"],
}


def command():
    path = shutil.which("tilewright", path=os.path.dirname(sys.executable))
    return path or pytest.skip("the command is not installed beside this Python")


def on_command_line(*arguments):
    done = subprocess.run([command(), *arguments, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def without_times(value):
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if "seconds" not in k}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def test_plan_is_the_command_lines():
    ours = tilewright.plan(CHAIN, MACHINE)
    assert ours["schema"] == 1 and ours["volume_bytes"] > 0 and ours["gap"] >= 1
    assert without_times(ours) == without_times(on_command_line("plan", CHAIN, "-m", MACHINE))


def test_a_plan_goes_on_to_the_other_verbs(tmp_path):
    best = tilewright.plan(CHAIN, MACHINE, out=tmp_path / "plan.yaml")
    from_answer = tilewright.simulate(best)
    assert from_answer["source"] == "simulated" and from_answer["traffic"]
    for other in (best["plan"], str(tmp_path / "plan.yaml"), tmp_path / "plan.yaml"):
        assert without_times(tilewright.simulate(other)) == without_times(from_answer)
    exact = tilewright.predict(best, model="exact")
    assert exact["source"] == "predicted"
    assert exact["traffic"] == from_answer["traffic"]  # one software-managed level: to the byte


def test_trees_in_place():
    ours = tilewright.simulate(CHAIN, MACHINE, tree=TREE, tiles=TILES, pins={"C": "dram"})
    theirs = on_command_line("simulate", CHAIN, "-m", MACHINE, "--tree", TREE, "--tiles",
                             "m=16,l=16,k=8,n=8", "--pin", "C=dram")
    assert without_times(ours) == without_times(theirs)
    assert ours["traffic"] == tilewright.simulate(
        CHAIN, MACHINE, tree=TREE, tiles="m=16,l=16,k=8,n=8", pins=["C=dram"])["traffic"]


def test_explain_takes_orders_and_capacities():
    ours = tilewright.explain(CHAIN, MACHINE, order=["m", "l", "k", "n"], capacity=8192)
    theirs = on_command_line("explain", CHAIN, "-m", MACHINE, "--order", "mlkn", "--capacity", "8K")
    assert without_times(ours) == without_times(theirs)
    assert ours["orders"][0]["order"] == "mlkn"


def test_mcfuser_and_compare():
    made = tilewright.plan("mcfuser/G1", "a100", model="mcfuser", hoist="block")
    assert made["options"]["hoist"] == "block" and made["expression"]
    rows = tilewright.compare("mcfuser/G1", "a100", models="chimera,mcfuser")["plans"]
    assert [row["model"] for row in rows] == ["chimera", "mcfuser"]
    assert all(row["simulated_bytes"] == row["exact_bytes"] for row in rows)


def test_validate():
    asked = dict(orders=["mlkn"], samples=8, seed=3)
    ours = tilewright.validate("gemm-chain:m=48,n=48,k=48,l=48", "cache:4K/8", **asked)
    assert ours["asked"] == 8 and len(ours["points"]) == ours["valid"]
    assert ours == tilewright.validate("gemm-chain:m=48,n=48,k=48,l=48", "cache:4K/8", **asked)


def test_workloads_and_machines_as_dicts(tmp_path):
    path = tmp_path / "w.yaml"
    path.write_text(json.dumps(AS_FILE))
    tree = "m l ( k ( C.C ) C.relu n ( C.second ) )"
    tiles = {"m": 4, "l": 5, "k": 4, "n": 3}
    from_file = tilewright.simulate(path, MACHINE, tree=tree, tiles=tiles)
    from_dict = tilewright.simulate(AS_FILE, MACHINE, tree=tree, tiles=tiles)
    assert from_file["traffic"] == from_dict["traffic"]
    assert tilewright.plan(AS_FILE, MACHINE)["schema"] == 1
    # A planned workload that is only a dict goes on by itself.
    two = {**AS_FILE, "operators": [AS_FILE["operators"][0], "E[m,n] += C[m,l] * D[l,n]"]}
    assert tilewright.simulate(tilewright.plan(two, MACHINE))["traffic"]


def test_lists():
    assert {"chimera", "exact"} <= {m["name"] for m in tilewright.models()["models"]}
    assert "host" in {m["name"] for m in tilewright.machines()["machines"]}
    assert "gemm-chain" in {w["name"] for w in tilewright.workloads()["workloads"]}
    for verb in (tilewright.targets, tilewright.meters, tilewright.experiments):
        assert verb()["schema"] == 1


def test_cuda_emitted_and_executed_on_the_cpu(tmp_path):
    chain, machine = "gemm-chain:m=40,n=24,k=24,l=40,dtype=f16", "h200"
    options = {"tree": "m@grid ( l ( k ( C.gemm1 ) C.gemm2 ) )", "tiles": {"m": 32, "l": 32, "k": 16}}
    answer = tilewright.run(chain, machine, target="cuda-emulated", warps=2, stages=2, **options)
    assert answer["verified"] and answer["faults"] == 0
    files = tilewright.emit(chain, machine, target="cuda-emulated", out=tmp_path, **options)["files"]
    assert {"tilewright_device.h", "tilewright_host.h", "build.sh"} <= {f.split("/")[-1] for f in files}
    lines = tmp_path / "batch.jsonl"
    lines.write_text('{"workload": "gemm", "stages": 99}')
    with pytest.raises(tilewright.InputError, match="batch.jsonl:1: stages"):
        tilewright.run(None, machine, target="cuda", batch=lines, build_only=True)


def test_refusals_are_answers_unless_checked():
    answer = tilewright.simulate(CHAIN, "scratchpad:64B", tree=TREE, tiles=TILES)
    assert answer["reason"]
    with pytest.raises(tilewright.Refused) as caught:
        tilewright.simulate(CHAIN, "scratchpad:64B", tree=TREE, tiles=TILES, check=True)
    assert caught.value.answer == answer and answer["reason"] in str(caught.value)
    assert isinstance(caught.value, RuntimeError)


@pytest.mark.parametrize("call, part", [
    (lambda: tilewright.plan("gem-chain", MACHINE), "gem-chain"),
    (lambda: tilewright.plan(CHAIN), "machine"),
    (lambda: tilewright.plan(CHAIN, "scratchpad:0B"), "scratchpad"),
    (lambda: tilewright.plan({"loops": {"m": 4}, "operator": []}, MACHINE), "operator"),
    (lambda: tilewright.plan({"loops": {"m": -4}, "operators": ["B[m] = A[m]"]}, MACHINE), "-4"),
    (lambda: tilewright.plan(3, MACHINE), "3"),
    (lambda: tilewright.plan(CHAIN, MACHINE, min_tile=0), "min_tile"),
    (lambda: tilewright.plan(CHAIN, MACHINE, min_tile="a"), "min_tile"),
    (lambda: tilewright.plan(CHAIN, MACHINE, write_weight=float("nan")), "write_weight"),
    (lambda: tilewright.plan(CHAIN, MACHINE, capacity=-1), "capacity"),
    (lambda: tilewright.simulate(CHAIN, MACHINE, tree=TREE, tiles={"m": 1000}), "1000"),
    (lambda: tilewright.simulate(CHAIN, MACHINE, tree="m ( ("), "tree"),
    (lambda: tilewright.validate(CHAIN, MACHINE, samples=1.5), "samples"),
    (lambda: tilewright.simulate({"kernels": 3, "workload": CHAIN}, MACHINE), "kernels"),
])
def test_bad_input_is_a_value_error_of_one_line(call, part):
    with pytest.raises(ValueError) as caught:
        call()
    assert isinstance(caught.value, tilewright.InputError)
    assert part in str(caught.value) and "\n" not in str(caught.value), str(caught.value)


def test_unknown_options_are_type_errors_with_the_nearest():
    with pytest.raises(TypeError, match="did you mean 'tiles'"):
        tilewright.simulate(CHAIN, MACHINE, tile=3)


def test_a_recorded_trace_walks_as_its_plan_did(tmp_path):
    trace = tmp_path / "a.trace"
    machine = "cache:1K/4"
    plan = tilewright.simulate(CHAIN, machine, tree=TREE, tiles=TILES, save_trace=trace, curve=True)
    again = tilewright.simulate(None, machine, trace=trace)
    total = lambda document: sum(t["read_bytes"] for t in document["traffic"])
    assert total(again) == total(plan) > 0
    assert plan["curve"]


def test_skipping_threads_and_occupancy(tmp_path):
    out = tmp_path / "o.csv"
    machine = "cache:1K/4"
    plan = tilewright.simulate(CHAIN, machine, tree=TREE, tiles=TILES, no_skip=True, threads=2)
    again = tilewright.simulate(CHAIN, machine, tree=TREE, tiles=TILES, occupancy=out, stride=50)
    assert plan["traffic"] == again["traffic"]
    assert plan["threads"] == 2 and plan["skipped"] == {"none": "not asked for"}
    assert again["occupancy"]["stride_accesses"] == 50
    assert len(out.read_text().splitlines()) == again["occupancy"]["samples"] + 1


class Whole:
    """A whole number as other libraries have it."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


def test_whole_numbers_are_what_has_an_index():
    chain = "gemm-chain:m=48,n=48,k=48,l=48"
    asked = dict(orders=["mlkn"], samples=4)
    assert (tilewright.validate(chain, "cache:4K/8", seed=Whole(3), **asked)
            == tilewright.validate(chain, "cache:4K/8", seed=3, **asked))
    tiles = {name: Whole(size) for name, size in TILES.items()}
    assert tilewright.simulate(CHAIN, MACHINE, tree=TREE, tiles=tiles)["traffic"]


@pytest.mark.parametrize("option, value", [
    ("write_weight", float("inf")), ("write_weight", float("nan")), ("tree", "a\ud800b"), ("tiles", {"m": float("nan")}),
    ("tiles", {"\udcff": 4}), ("pins", ["C=\udc80"]), ("seed", 10 ** 30), ("min_tile", 10 ** 400), ("level", object()),
    ("tiles", {3: 4}), ("rewrite", [[1]]), ("seed", -1), ("min_tile", True),
])
def test_what_json_cannot_say_is_bad_input_that_names_the_option(option, value):
    with pytest.raises(tilewright.InputError) as caught:
        tilewright.predict(CHAIN, MACHINE, model="chimera", **{option: value})
    said = str(caught.value)
    assert option in said and "accepted: " in said and "\n" not in said, said


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int8", "uint32", "bool"])
def test_arrays_are_values_whatever_their_strides(dtype):
    numpy = pytest.importorskip("numpy")
    from tilewright.reference import evaluate
    every = numpy.arange(96).astype(dtype)
    for x in (every[:24].reshape(4, 6), every[:24].reshape(6, 4).T, every.reshape(8, 12)[::2, ::-2], numpy.asfortranarray(every[24:48].reshape(4, 6)),
              numpy.broadcast_to(every[5:11], (4, 6)), every.reshape(4, 24)[::-1, 3:9]):
        file = {"name": "w", "dtype": "f32", "loops": {"i": 4, "j": 6}, "values": {"x": x}, "operators": ["y[i,j] = 2 * x[i,j]"]}
        assert (evaluate(file)["y"] == 2 * x.astype("float64")).all()
        as_list = {**file, "values": {"x": [float(v) for v in x.flatten()]}}
        assert tilewright.plan(file, MACHINE)["exact_bytes"] == tilewright.plan(as_list, MACHINE)["exact_bytes"]
    with pytest.raises(tilewright.InputError, match="is not accepted; accepted: "):
        tilewright.plan({**file, "values": {"x": numpy.ones((4, 6), complex)}}, MACHINE)


@pytest.mark.parametrize("of", [tilewright.machine, tilewright.workload])
@pytest.mark.parametrize("name", [None, ""])
def test_no_name_is_bad_input(of, name):
    with pytest.raises(tilewright.InputError, match="is no name; accepted: "):
        of(name)


@pytest.mark.parametrize("of", [tilewright.machine, tilewright.workload])
def test_an_array_is_no_name(of):
    numpy = pytest.importorskip("numpy")
    with pytest.raises(tilewright.InputError, match="subject: "):
        of(numpy.zeros((2, 2)))


def test_errors_are_pickled():
    with pytest.raises(tilewright.InputError) as caught:
        tilewright.plan("gem-chain", MACHINE)
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is tilewright.InputError and str(again) == str(caught.value)
    with pytest.raises(tilewright.Refused) as caught:
        tilewright.simulate(CHAIN, "scratchpad:64B", tree=TREE, tiles=TILES, check=True)
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is tilewright.Refused and str(again) == str(caught.value)
    assert again.answer == caught.value.answer


def test_a_record_makes_a_function():
    record = {"name": "shout", "summary": "says it", "subject": "W", "details": "", "returns": "Returns {'said'}.",
              "options": [{"name": "--loud-ness", "key": "loud_ness", "kind": "integer", "of": "",
                           "text": "how loud (default 3)"},
                          {"name": "--word", "key": "words", "kind": "text", "of": "toy", "text": "of --loud-ness"}]}
    function = tilewright._function(record)
    assert list(inspect.signature(function).parameters) == ["workload", "loud_ness", "words", "check"]
    assert "Says it.\n\nReturns {'said'}." in function.__doc__
    assert "    loud_ness: how loud (default 3)\n" in function.__doc__
    assert "Options of toy:\n    words: of loud_ness\n" in function.__doc__
    with pytest.raises(TypeError, match="did you mean 'loud_ness'"):
        function(CHAIN, loudness=3)


def test_numbers_of_other_libraries():
    numpy = pytest.importorskip("numpy")
    assert tilewright.plan(CHAIN, MACHINE, seed=numpy.int64(1), write_weight=numpy.float32(1))["schema"] == 1
    tiles = {name: numpy.int64(size) for name, size in TILES.items()}
    assert tilewright.simulate(CHAIN, MACHINE, tree=TREE, tiles=tiles)["traffic"]
    assert tilewright.plan(CHAIN, MACHINE, min_tile=numpy.int32(4))["schema"] == 1


VERBS = ["explain", "plan", "predict", "compare", "simulate", "emit", "run", "measure",
         "validate", "reproduce"]


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_of_the_command_is_one_here(verb):
    said = subprocess.run([command(), verb, "--help", "all"], capture_output=True, text=True).stdout
    theirs = set(re.findall(r"--([a-z][a-z0-9-]*)", "\n".join(
        line.split("  ")[1] for line in said.splitlines() if re.match(r"  (-\w, ?)?--?\w", line))))
    theirs = {{"pin": "pins", "flag": "flags"}.get(o, o.replace("-", "_")) for o in theirs}
    ours = set(inspect.signature(getattr(tilewright, verb)).parameters)
    assert theirs - {"json", "help"} == ours - {"check", "subject", "workload", "id"}
    for option in ours - {"subject", "workload", "machine", "id"}:
        assert f"    {option}: " in getattr(tilewright, verb).__doc__
