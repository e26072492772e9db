"""Recorded graphs of PyTorch, lowered, against what PyTorch made of the same inputs. Needs no PyTorch:
scripts/record-torch has recorded them."""

import ctypes
import json
import pathlib

import pytest

numpy = pytest.importorskip("numpy")
tilewright = pytest.importorskip("tilewright")
reference = pytest.importorskip("tilewright.reference")

import torch_drawn  # noqa: E402
from tilewright import _tilewright  # noqa: E402
from tilewright.pytorch import covered, export, graph as graphs, lower  # noqa: E402

RECORDED = sorted((pathlib.Path(__file__).parent / "torch_graphs").glob("*.json"))


class Recording:
    def __init__(self, path):
        data = json.loads(path.read_text())
        self.graph = graphs.from_json(data["graph"])
        self.inputs = torch_drawn.inputs(self.graph, data["inputs"])
        self.outputs = data["outputs"]

    def compare(self, results, most):
        """`results`: by position of the output."""
        compared = 0
        for i, recorded in enumerate(self.outputs):
            if recorded is None or results.get(i) is None:
                continue
            largest, want = torch_drawn.unpacked(recorded)
            got = torch_drawn.sampled(results[i])
            assert numpy.abs(got - want).max() <= most * max(largest, 1e-6), f"output {i}"
            compared += want.size
        assert compared > 0


@pytest.fixture(params=RECORDED, ids=lambda p: p.stem)
def recording(request):
    return Recording(request.param)


def test_there_are_recordings():
    assert len({p.name.split(".")[0] for p in RECORDED}) >= 10
    assert {p.name.split(".")[1] for p in RECORDED} == {"export", "forward", "backward"}


def test_recorded_graphs(recording, tmp_path):
    """What is covered of each, by the reference evaluator, in float64 where PyTorch had float32."""
    lowering, made, not_covered = export.lowered(recording.graph, str(tmp_path / "graph.onnx"), True)
    # A table's gradient is scattered: PyTorch does that.
    assert {line.split(": ")[1] for line in not_covered} <= {"aten.embedding_dense_backward.default"}
    workload, names = made["workload"], made["names"]
    for tensor in workload["tensors"]:
        for name, values in recording.inputs.items():
            if names.get(name) == tensor["name"]:
                tensor["values"] = values.astype(float).reshape(-1).tolist()
    values = reference.evaluate(workload)
    left_out = {line.split(": ")[0] for line in not_covered}
    returned = recording.graph.nodes[-1].args[0]
    recording.compare({i: values[names[v.name]] for i, v in enumerate(lowering.outputs)
                       if v and v.name in names and returned[i].name not in left_out}, 2e-4)


def test_the_files_are_onnx(recording, tmp_path):
    """onnx accepts what is written, and onnxruntime makes the same of it."""
    onnx = pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    lowering = lower.Lowering(recording.graph)
    if lowering.run():
        pytest.skip("not all of it is covered")
    path = tmp_path / "graph.onnx"
    path.write_bytes(lowering.model.to_bytes())
    onnx.checker.check_model(str(path), full_check=True)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    feed = {i.name: recording.inputs[i.name] for i in session.get_inputs()}
    made = dict(zip((o.name for o in session.get_outputs()), session.run(None, feed)))
    recording.compare({i: made[v.name] for i, v in enumerate(lowering.outputs) if v}, 2e-4)


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("name", ["lstm.forward", "mlp.backward"])
def test_networks_are_called(name, keeps):
    """Planned, built and called on arrays of the caller's. `keeps`: every second input is copied before."""
    recording = Recording(pathlib.Path(__file__).parent / "torch_graphs" / f"{name}.json")
    lowering = lower.Lowering(recording.graph)
    assert lowering.run() == {}
    names = [n.name for n in recording.graph.nodes if n.op == "placeholder"]
    kept = {n: numpy.ascontiguousarray(recording.inputs[n], numpy.float32) for n in names[::2] if keeps}
    network = _tilewright.Network(lowering.model.to_bytes(), json.dumps({"machine": "host", "threads": 1}), False,
                                  {n: (address(x), x.nbytes) for n, x in kept.items()})
    for x in kept.values():
        x.fill(numpy.nan)
    said = json.loads(network.describe())
    assert said["launches"] > 0
    assert not kept.keys() & {e.name for e in network.inputs} and (len(network.inputs) < len(names) or not keeps)
    kinds = {"f32": numpy.float32, "i32": numpy.int32, "i8": numpy.int8}
    inputs = [numpy.ascontiguousarray(recording.inputs[e.name].astype(kinds[e.dtype])) for e in network.inputs]
    outputs = [numpy.full(math_size(e.shape), numpy.nan, kinds[e.dtype]) for e in network.outputs]
    network.run([address(x) for x in inputs], [address(x) for x in outputs])
    recording.compare({int(e.name.split("/")[1]): y for e, y in zip(network.outputs, outputs)}, 2e-4)
    with pytest.raises(ValueError):
        network.run([], [])
    with pytest.raises(ValueError, match="as many bytes as the input has"):
        _tilewright.Network(lowering.model.to_bytes(), "{}", False, {network.inputs[0].name: (0, 1)})


def math_size(shape):
    return int(numpy.prod(shape, dtype=int))


def address(array):
    return array.ctypes.data_as(ctypes.c_void_p).value


def node(name, target, args, dtype="float32", shape=(4, 4)):
    return graphs.Node(name, "call", target, args, {}, graphs.Meta(dtype, shape))


def graph_of(*nodes):
    """x of 4 by 4, the nodes, the last of them returned."""
    x = graphs.Node("x", "placeholder", "", [], {}, graphs.Meta("float32", (4, 4)))
    out = graphs.Node("output", "output", "", [[graphs.Ref(nodes[-1].name)]], {}, None)
    return graphs.Graph("small", [x, *nodes, out])


def test_everything_not_covered_is_named(tmp_path):
    x = graphs.Ref("x")
    graph = graph_of(node("a", "aten.cumprod.default", [x, 0]), node("b", "aten.relu.default", [graphs.Ref("a")]),
                     node("c", "aten.lgamma.default", [x]), node("d", "aten.clone.default", [x, "two"]),
                     node("e", "aten.add.Tensor", [graphs.Ref("b"), graphs.Ref("c")]),
                     node("f", "aten.add.Tensor", [graphs.Ref("e"), graphs.Ref("d")]))
    path = str(tmp_path / "small.onnx")
    with pytest.raises(tilewright.InputError) as error:
        export.lowered(graph, path, False)
    lines = str(error.value).splitlines()
    assert lines[0].startswith("small: 3 nodes of the graph cannot be lowered; accepted: ")
    assert [line.split(": ")[:2] for line in lines[1:]] == [
        ["  a", "aten.cumprod.default"], ["  c", "aten.lgamma.default"], ["  d", "aten.clone.default"]]
    _, made, left_out = export.lowered(graph, path, True)
    assert len(left_out) == 3
    # What the three make is given; x is read by nothing that is left.
    assert sorted(name.split("/")[0] for name in made["names"]) == ["a", "c", "d", "output"]


def test_whole_numbers_of_constants_are_known(tmp_path):
    """x by the running sum of a range, gathered with repeats: what transformers makes of positions and masks."""
    def whole(name, target, args, shape):
        return node(name, target, args, "int64", shape)

    graph = graph_of(whole("r", "aten.arange.start_step", [1, 5], (4,)),          # 1 2 3 4
                     whole("s", "aten.cumsum.default", [graphs.Ref("r"), -1], (4,)),  # 1 3 6 10
                     whole("m", "aten.remainder.Scalar", [graphs.Ref("s"), 4], (4,)),  # 1 3 2 2
                     whole("g", "aten.gather.default", [graphs.Ref("s"), 0, graphs.Ref("m")], (4,)),  # 3 10 6 6
                     node("a", "aten.add.Tensor", [graphs.Ref("x"), graphs.Ref("g")]))
    _, made, left_out = export.lowered(graph, str(tmp_path / "whole.onnx"), False)
    assert left_out == []
    workload, names = made["workload"], made["names"]
    x = numpy.arange(16.0).reshape(4, 4)
    for tensor in workload["tensors"]:
        if tensor["name"] == names["x"]:
            tensor["values"] = x.reshape(-1).tolist()
    got = reference.evaluate(workload)[names["output/0"]]
    assert numpy.array_equal(got, x + [3, 10, 6, 6])


def test_tensors_without_elements(tmp_path):
    """What a rotation of a part of the features makes where the part is all of them: slices and halves of nothing."""
    def of(name, target, args, shape):
        return node(name, target, args, "float32", shape)

    halves = graphs.Node("h", "call", "aten.split_with_sizes.default", [graphs.Ref("x"), [4, 0], 1], {},
                         [graphs.Meta("float32", (4, 4)), graphs.Meta("float32", (4, 0))])
    graph = graph_of(of("s", "aten.slice.Tensor", [graphs.Ref("x"), 1, 4, 9], (4, 0)),
                     of("n", "aten.neg.default", [graphs.Ref("s")], (4, 0)), halves,
                     of("a", "getitem", [graphs.Ref("h"), 0], (4, 4)), of("b", "getitem", [graphs.Ref("h"), 1], (4, 0)),
                     of("c", "aten.cat.default", [[graphs.Ref("a"), graphs.Ref("n"), graphs.Ref("b")], 1], (4, 4)),
                     of("r", "aten.relu.default", [graphs.Ref("c")], (4, 4)))
    _, made, left_out = export.lowered(graph, str(tmp_path / "empty.onnx"), False)
    assert left_out == []
    workload, names = made["workload"], made["names"]
    x = numpy.arange(16.0).reshape(4, 4) - 8
    for tensor in workload["tensors"]:
        if tensor["name"] == names["x"]:
            tensor["values"] = x.reshape(-1).tolist()
    assert numpy.array_equal(reference.evaluate(workload)[names["output/0"]], numpy.maximum(x, 0))
    # A sum of nothing is zero, not nothing: it is named.
    graph = graph_of(of("s", "aten.slice.Tensor", [graphs.Ref("x"), 1, 4, 9], (4, 0)),
                     of("t", "aten.sum.dim_IntList", [graphs.Ref("s"), [1]], (4,)))
    with pytest.raises(tilewright.InputError, match="t: aten.sum.dim_IntList: a tensor without elements"):
        export.lowered(graph, str(tmp_path / "sum.onnx"), False)


def test_recordings_read_back(recording):
    assert graphs.from_json(json.loads(json.dumps(graphs.to_json(recording.graph)))) == recording.graph


def test_the_page_lists_what_is_covered():
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "pytorch.md").read_text(encoding="utf-8")
    missing = [name for name in covered() if name.split(".", 1)[1] not in page.replace("`", " ").replace(",", " ").split()]
    assert not missing


def lowered_of(*nodes, **how):
    """Of nodes (name, operator, arguments, type, shape) on x, f32 of 5 x 7, and i, five whole numbers: arguments that are names are nodes."""
    given = {"x": graphs.Meta("float32", (5, 7)), "i": graphs.Meta("int64", (5,))}
    names = [*given, *(n[0] for n in nodes)]
    calls = [graphs.Node(name, "call", target, [graphs.Ref(a) if a in names else a for a in args], {}, graphs.Meta(dtype, shape))
             for name, target, args, dtype, shape in nodes]
    inputs = [graphs.Node(name, "placeholder", "", [], {}, meta) for name, meta in given.items()]
    out = graphs.Node("output", "output", "output", [[graphs.Ref(calls[-1].name)]], {}, None)
    lowering = lower.Lowering(graphs.Graph("g", [*inputs, *calls, out]), **how)
    assert lowering.run() == {}
    return lowering


PADDED = (("n", "aten.ne.Scalar", ["i", -100], "bool", (5,)), ("z", "aten.full.default", [[], 0], "int64", ()),
          ("w", "aten.where.self", ["n", "i", "z"], "int64", (5,)))


@pytest.mark.parametrize(("nodes", "bounds", "doubts"), [
    # What a loss leaves out is no class; other classes index the rows.
    ((*PADDED, ("u", "aten.unsqueeze.default", ["w", 1], "int64", (5, 1)), ("g", "aten.gather.default", ["x", 1, "u"], "float32", (5, 1))),
     {"i": (0, 6, {-100})}, []),
    ((("m", "aten.argmax.default", ["x", 0], "int64", (7,)), ("g", "aten.index_select.default", ["x", 0, "m"], "float32", (7, 7))), {}, []),
    ((("r", "aten.remainder.Scalar", ["i", 5], "int64", (5,)), ("g", "aten.index_select.default", ["x", 0, "r"], "float32", (5, 7))), {}, []),
    ((("a", "aten.add.Tensor", ["i", 1], "int64", (5,)), ("g", "aten.index_select.default", ["x", 0, "a"], "float32", (5, 7))),
     {"i": (0, 4, set())}, ["a"]),
    ((("s", "aten.mul.Tensor", ["i", "i"], "int64", (5,)),), {}, ["s"]),
    ((("s", "aten.mul.Tensor", ["i", 3], "int64", (5,)),), {}, []),
    ((("c", "aten.gt.Scalar", ["x", 0.0], "bool", (5, 7)), ("s", "aten.sum.dim_IntList", ["c", [1]], "int64", (5,)),
      ("t", "aten.mul.Tensor", ["s", "s"], "int64", (5,))), {}, []),
    ((("k", "aten._to_copy.default", ["x", graphs.Dtype("int64")], "int64", (5, 7)),), {}, ["k"]),
    ((("n", "aten.neg.default", ["i"], "int64", (5,)), ("d", "aten.sub.Tensor", ["n", "i"], "int64", (5,)),
      ("e", "aten.sub.Tensor", ["d", "i"], "int64", (5,)), ("f", "aten.sub.Tensor", ["e", "d"], "int64", (5,))), {}, ["f"]),
])
def test_whole_numbers_that_programs_may_have(nodes, bounds, doubts):
    lowering = lowered_of(*nodes)
    assert lowering.bounds == bounds and sorted(lowering.doubts) == doubts


@pytest.mark.parametrize("looks_up", [False, True])
def test_one_element_of_a_row_is_looked_up(looks_up):
    """The backend's programs are for processors, where a sum of what is kept of a row takes a pass over the row."""
    onnxruntime = pytest.importorskip("onnxruntime")
    lowering = lowered_of(("u", "aten.unsqueeze.default", ["i", 1], "int64", (5, 1)),
                          ("g", "aten.gather.default", ["x", 1, "u"], "float32", (5, 1)), looks_up=looks_up)
    assert lowering.bounds == {"i": (0, 6, set())}
    data = lowering.model.to_bytes()
    assert (b"GatherElements" in data) == looks_up and (b"ReduceSum" in data) != looks_up
    x, i = numpy.arange(35, dtype=numpy.float32).reshape(5, 7), numpy.array([3, 0, 6, 6, 1])
    made, = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": x, "i": i})
    numpy.testing.assert_array_equal(made[:, 0], x[numpy.arange(5), i])
