"""Does each ONNX operator, imported and evaluated, give what onnxruntime gives?"""

import os
import sys
import types

import pytest

numpy = pytest.importorskip("numpy")
onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
reference = pytest.importorskip("tilewright.reference")
tilewright = pytest.importorskip("tilewright")

import onnx_cases  # noqa: E402
import onnx_version_cases  # noqa: E402
import onnx_versions  # noqa: E402

KINDS = {"tensor(float)": numpy.float32, "tensor(int64)": numpy.int64, "tensor(int32)": numpy.int32, "tensor(int8)": numpy.int8,
         "tensor(uint8)": numpy.uint8, "tensor(bool)": numpy.bool_}


@pytest.mark.parametrize("family", onnx_cases.FAMILIES, ids=lambda f: f.__name__)
def test_operators(family, tmp_path):
    compared = 0
    for seed in range(6):
        path = str(tmp_path / f"{family.__name__}_{seed}.onnx")
        onnx.save(onnx_cases.make(family, seed), path)
        options = onnxruntime.SessionOptions()  # what weights of 4 bits multiply is not rounded to 8
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
        options.add_session_config_entry("session.x64quantprecision", "1")  # sums of bytes that do not saturate
        try:
            session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception:  # an attribute that it does not take
            continue
        made = tilewright.import_(path)
        names = {e["name"]: e["tensor"] for e in made["inputs"] + made["outputs"]}
        values = reference.evaluate(path)
        feed = {i.name: (values[names[i.name]] if i.name in names else numpy.zeros(i.shape))
                .astype(KINDS[i.type]).reshape(i.shape) for i in session.get_inputs()}
        for output, want in zip(session.get_outputs(), session.run(None, feed)):
            got = values[names[output.name]].reshape(want.shape)
            scale = max(1e-6, float(numpy.abs(want[numpy.isfinite(want)]).max(initial=0)))
            assert numpy.allclose(got, want, rtol=1e-3, atol=1e-3 * scale, equal_nan=True), f"seed {seed}"
            compared += 1
    assert compared > 0


def test_products_of_bytes_are_exact(tmp_path):
    """Of the whole range, where onnxruntime's are not on every processor: against the whole numbers' own sums."""
    rng = numpy.random.default_rng(7)
    w = rng.integers(-128, 128, [40, 9]).astype(numpy.int8)
    node, value, types = onnx.helper.make_node, onnx.helper.make_tensor_value_info, onnx.TensorProto
    constants = {"w": w, "scale": numpy.float32(1 / 127), "zero": numpy.uint8(128)}
    graph = onnx.helper.make_graph(
        [node("QuantizeLinear", ["x", "scale", "zero"], ["q"]), node("MatMulInteger", ["q", "w"], ["y"])], "bytes",
        [value("x", types.FLOAT, [6, 40])], [value("q", types.UINT8, [6, 40]), value("y", types.INT32, [6, 9])],
        [onnx.numpy_helper.from_array(numpy.asarray(v), k) for k, v in constants.items()])
    path = str(tmp_path / "bytes.onnx")
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9), path)
    made, values = tilewright.import_(path), reference.evaluate(path)
    names = {e["name"]: e["tensor"] for e in made["inputs"] + made["outputs"]}
    q = values[names["q"]].reshape(6, 40).astype(numpy.int64)
    assert q.min() < 20 and q.max() > 235
    assert numpy.array_equal(values[names["y"]].reshape(6, 9), q @ w)


@pytest.mark.skipif(not os.environ.get("TILEWRIGHT_LONG"), reason="TILEWRIGHT_LONG=1 runs the onnx package's tests of nodes")
def test_the_nodes_of_onnx():
    """What is taken is right."""
    import onnx_node_tests as nodes

    taken, differ = 0, {}
    for name, _, model, inputs, outputs in nodes.cases():
        what, why = nodes.answer(model, inputs, outputs)
        taken += what == "taken"
        if what == "differs" and not nodes.by_design(name):
            differ[name] = why
    assert taken > 1500
    assert not differ


def test_rows_without_keys_are_zero(tmp_path):
    """Attention of opset 23 by a mask that is computed, and by one that is known."""
    from onnx import TensorProto, helper, numpy_helper

    value, path = helper.make_tensor_value_info, str(tmp_path / "masked.onnx")
    mask = numpy.array([[True, True, False], [False, False, False]])
    for known in (True, False):
        weights = [numpy_helper.from_array(mask, "m")] if known else [numpy_helper.from_array(mask.astype("f4"), "f")]
        nodes = [] if known else [helper.make_node("Abs", ["z"], ["a"]), helper.make_node("Less", ["a", "f"], ["m"])]
        nodes.append(helper.make_node("Attention", ["q", "k", "v", "m"], ["y"]))
        inputs = [value(n, TensorProto.FLOAT, [1, 1, r, 4]) for n, r in (("q", 2), ("k", 3), ("v", 3))]
        inputs += [] if known else [value("z", TensorProto.FLOAT, [2, 3])]
        graph = helper.make_graph(nodes, "masked", inputs, [value("y", TensorProto.FLOAT, [1, 1, 2, 4])], weights)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)
        values = reference.evaluate(path)
        q, k, v = (values[n].reshape(-1, 4) for n in "qkv")
        scores = numpy.exp(q[0] @ k[:2].T / 2)
        assert numpy.allclose(values["y"].reshape(2, 4)[0], scores / scores.sum() @ v[:2])
        assert (values["y"].reshape(2, 4)[1] == 0).all()


def test_computed_indices_run(tmp_path):
    """As programs: a running sum indexes a table, an order's places are an output."""
    from onnx import TensorProto, helper, numpy_helper

    value, path = helper.make_tensor_value_info, str(tmp_path / "indices.onnx")
    constants = [numpy_helper.from_array(numpy.int64(1), "axis"), numpy_helper.from_array(numpy.array([2]), "two")]
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Ceil", ["r"], ["c"]),
             helper.make_node("Cast", ["c"], ["ones"], to=TensorProto.INT64), helper.make_node("CumSum", ["ones", "axis"], ["at"]),
             helper.make_node("Gather", ["table", "at"], ["y"]), helper.make_node("TopK", ["x", "two"], ["best", "places"])]
    graph = helper.make_graph(nodes, "indices", [value("x", TensorProto.FLOAT, [3, 5]), value("table", TensorProto.FLOAT, [6, 4])],
                              [value("y", TensorProto.FLOAT, [3, 5, 4]), value("best", TensorProto.FLOAT, [3, 2]),
                               value("places", TensorProto.INT64, [3, 2])], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    ran = tilewright.run(path, machine="host", isa="generic", seconds=0, beside=sys.executable)
    assert ran["verified"]
    assert {o["name"]: o["relative_error"] < 1e-6 for o in ran["onnxruntime"]["outputs"]} == {
        "y": True, "best": True, "places": True}
    assert tilewright.run(path, machine="h200", target="cuda-emulated", seconds=0)["verified"]


def test_whole_numbers_divided_by_zero_are_zero(tmp_path):
    """As numpy has it, for the reference, known values, the CPU's kernels and those of a GPU."""
    from onnx import TensorProto, helper, numpy_helper

    value, path = helper.make_tensor_value_info, str(tmp_path / "zero.onnx")
    nodes = [helper.make_node("Mul", ["x", "three"], ["m"]), helper.make_node("Cast", ["m"], ["n"], to=TensorProto.INT32),
             helper.make_node("Div", ["seven", "n"], ["d"]), helper.make_node("Mod", ["seven", "n"], ["r"]),
             helper.make_node("Mod", ["n", "zeros"], ["z"]), helper.make_node("Div", ["seven", "zeros"], ["known"]),
             helper.make_node("Add", ["n", "known"], ["k"])]
    constants = [numpy_helper.from_array(numpy.array(v, t), n) for n, v, t in (
        ("three", 3, "f4"), ("seven", [7, -7] * 10, "i4"), ("zeros", [0] * 20, "i4"))]
    graph = helper.make_graph(nodes, "zero", [value("x", TensorProto.FLOAT, [20])],
                              [value(n, TensorProto.INT32, [20]) for n in "drzkn"], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    made = {k: v.astype(int) for k, v in reference.evaluate(path).items()}
    n, seven = made["n"], numpy.array([7, -7] * 10)
    assert (n == 0).any() and (n != 0).any()
    by = numpy.where(n == 0, 1, n)
    assert (made["d"] == numpy.where(n == 0, 0, numpy.trunc(seven / by))).all()
    assert (made["r"] == numpy.where(n == 0, 0, seven % by)).all()
    assert (made["z"] == 0).all() and (made["k"] == n).all()
    assert tilewright.run(path, machine="host", isa="generic", seconds=0, beside="none")["verified"]
    assert tilewright.run(path, machine="h200", target="cuda-emulated", seconds=0)["verified"]


def test_no_number_is_quantised_to_the_low_end(tmp_path):
    """As onnxruntime has it, on every target: roots of negative numbers, one by one and in vectors, with a known scale and without."""
    from onnx import numpy_helper

    nodes = [("Sqrt", ["x"], ["r"], {}), ("Mul", ["r", "far"], ["f"], {})]
    constants = {"far": numpy.array([1, 1e30] * 20, "f4"), "one": numpy.float32(0.01), "each": numpy.array([0.01, 0.02] * 20, "f4")}
    for t in ("int8", "uint8"):
        constants |= {f"{t}_one_zero": numpy.array(3, t), f"{t}_each_zero": numpy.array([3, 5] * 20, t)}
        for name in ("one", "each"):
            by = [name, f"{t}_{name}_zero"]
            nodes += [("QuantizeLinear", ["f", *by], [f"{t}_{name}_q"], {}),
                      ("DequantizeLinear", [f"{t}_{name}_q", *by], [f"{t}_{name}"], {})]
    outputs = {f"{t}_{name}": [6, 40] for t in ("int8", "uint8") for name in ("one", "each")}
    model = build([(op, i, o, a | ({"axis": 1} if "Linear" in op and "each" in o[0] else {})) for op, i, o, a in nodes],
                  {"x": [6, 40]}, outputs)
    model.graph.initializer.extend(numpy_helper.from_array(numpy.asarray(v), n) for n, v in constants.items())
    path = str(tmp_path / "roots.onnx")
    onnx.save(model, path)
    made, values = tilewright.import_(path), reference.evaluate(path)
    names = {e["name"]: e["tensor"] for e in made["inputs"] + made["outputs"]}
    x = values[names["x"]].reshape(6, 40)
    assert 0 < (x < 0).sum() < x.size
    for name in outputs:
        low, high = (-128, 127) if name.startswith("int8") else (0, 255)
        scale, zero = constants[name.split("_")[1]], constants[f"{name}_zero"].astype(float)
        with numpy.errstate(invalid="ignore"):
            whole = numpy.clip(numpy.round(numpy.sqrt(x) * constants["far"] / scale) + zero, low, high)
        want = (numpy.where(x < 0, low, whole) - zero) * scale
        got = values[names[name]].reshape(6, 40)
        assert (numpy.abs(got - want) < 1.01 * scale).all(), name  # a step of rounding
        assert numpy.allclose(got[x < 0], want[x < 0], rtol=1e-6), name
    for options in ({"machine": "host"}, {"machine": "host", "isa": "generic"}):
        assert tilewright.run(path, **options, seconds=0, beside=sys.executable)["verified"], options
    assert tilewright.run(path, machine="h200", target="cuda-emulated", seconds=0)["verified"]


def test_a_rewrite_that_takes_an_operator_of_another_part(tmp_path):
    """The parts are planned without rewrites then: the network was refused."""
    import onnx_graph_cases

    path = str(tmp_path / "both_ways.onnx")
    onnx.save(onnx_graph_cases.drawn(703, 8)[0], path)
    assert tilewright.run(path, machine="host", isa="generic", seconds=0, beside=sys.executable)["verified"]


@pytest.mark.parametrize("nodes", [5, 12])
def test_drawn_graphs(nodes, tmp_path):
    """Graphs of random operators are what onnxruntime makes of them."""
    import onnx_graph_cases
    import onnx_graphs

    counts = {"right": 0, "refused": 0}
    for seed in range(60):
        model, case = onnx_graph_cases.drawn(seed, nodes)
        if model.graph.output:
            what, why = onnx_graphs.compared(model, case, str(tmp_path / "graph.onnx"))
            assert what in counts, f"seed {seed}: {why}"
            counts[what] += 1
    assert counts["right"] > 40 and counts["refused"] < 3


def test_another_result_of_onnxruntime_is_a_failure(tmp_path):
    """Where an index that is computed counts from the end there, and from 0 here."""
    from onnx import TensorProto, helper

    value, path = helper.make_tensor_value_info, str(tmp_path / "ends.onnx")
    nodes = [helper.make_node("Floor", ["x"], ["f"]), helper.make_node("Cast", ["f"], ["at"], to=TensorProto.INT64),
             helper.make_node("Gather", ["table", "at"], ["y"])]
    graph = helper.make_graph(nodes, "ends", [value("x", TensorProto.FLOAT, [9]), value("table", TensorProto.FLOAT, [3, 2])],
                              [value("y", TensorProto.FLOAT, [9, 2])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    ran = tilewright.run(path, machine="host", isa="generic", seconds=0, beside=sys.executable)
    assert not ran["verified"] and not ran["onnxruntime"]["agrees"]
    assert "onnxruntime has another result: y[" in ran["reason"]
    assert tilewright.run(path, machine="host", isa="generic", seconds=0, beside="none")["verified"]


def test_small_sigmoids_of_onnxruntime_are_right(tmp_path):
    """Its one polynomial for all arguments leaves a last bit of 1, which is most of what is left of exp(-13)."""
    path = str(tmp_path / "small.onnx")
    model = build([("Sub", ["x", "c"], ["z"], {}), ("Sigmoid", ["z"], ["y"], {})], {"x": [64]}, {"y": [64]})
    model.graph.initializer.append(onnx.numpy_helper.from_array(numpy.float32(15), "c"))
    onnx.save(model, path)
    ran = tilewright.run(path, machine="host", isa="generic", seconds=0, beside=sys.executable)
    assert ran["verified"] and ran["onnxruntime"]["agrees"], ran.get("reason")


def test_heads_that_come_together(tmp_path):
    """Queries, keys and values of one tensor, and keys with values, as onnxruntime has them on a GPU alone."""
    from onnx import TensorProto, helper

    value, path = helper.make_tensor_value_info, str(tmp_path / "packed.onnx")
    for shapes in ([[2, 3, 2, 3, 4]], [[2, 3, 8], [2, 5, 2, 2, 4]]):
        names = ["q", "k"][:len(shapes)]
        graph = helper.make_graph([helper.make_node("MultiHeadAttention", names, ["y"], domain="com.microsoft", num_heads=2)],
                                  "packed", [value(n, TensorProto.FLOAT, s) for n, s in zip(names, shapes)],
                                  [value("y", TensorProto.FLOAT, [2, 3, 8])])
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
        values = reference.evaluate(path)
        if len(shapes) == 1:
            q, k, v = values["q"].reshape(shapes[0]).transpose(3, 0, 2, 1, 4)
        else:
            q = values["q"].reshape(2, 3, 2, 4).transpose(0, 2, 1, 3)
            k, v = values["k"].reshape(shapes[1]).transpose(3, 0, 2, 1, 4)
        p = numpy.exp(q @ k.transpose(0, 1, 3, 2) / 2)
        y = (p / p.sum(-1, keepdims=True)) @ v
        assert numpy.allclose(values["y"].reshape(2, 3, 8), y.transpose(0, 2, 1, 3).reshape(2, 3, 8))


def build(nodes, inputs, outputs, opset=17):
    from onnx import TensorProto, helper

    def values(of):
        return [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in of.items()]

    graph = helper.make_graph([helper.make_node(op, i, o, **a) for op, i, o, a in nodes], "net", values(inputs), values(outputs))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def test_attributes_that_nobody_reads_are_refused(tmp_path):
    """Operators get attributes in later versions; to leave one out would be wrong in silence."""
    path = str(tmp_path / "later.onnx")
    onnx.save(build([("Relu", ["x"], ["y"], {"slope_of_next_version": 2.0})], {"x": [3]}, {"y": [3]}), path)
    with pytest.raises(tilewright.InputError, match="its attribute slope_of_next_version is not supported"):
        tilewright.import_(path)


@pytest.mark.parametrize(
    ("image", "kernel", "how"),
    [
        ([2, 4, 1, 9], [1, 4, 1, 1], {"pads": [1, 2, 0, 0], "strides": [3, 3]}),
        ([1, 4, 1, 1, 1], [8, 1, 3, 3, 1], {"group": 4, "pads": [0, 1, 1, 2, 1, 0], "strides": [2, 1, 2]}),
        ([1, 3, 1, 1], [3, 1, 3, 3], {"group": 3, "pads": [2, 1, 2, 1], "strides": [1, 2]}),
    ],
)
def test_windows_that_meet_the_padding_alone(image, kernel, how, tmp_path):
    """Convolutions of images of one row, some of whose windows lie beside it: their results are zero."""
    random = numpy.random.default_rng(7)
    values = {"x": random.uniform(-1, 1, image).astype("f4"), "w": random.uniform(-1, 1, kernel).astype("f4")}
    assert_as_onnxruntime([onnx.helper.make_node("Conv", ["x", "w"], ["y"], **how)], [], values, tmp_path)


@pytest.mark.parametrize(
    "equation, shapes",
    [("ab->b", [[4, 6]]), ("abc,ba->ab", [[5, 3, 4], [3, 5]]), ("ab,ab->a", [[4, 6], [4, 6]]), ("abc->", [[2, 3, 4]]),
     ("ab,bc->c", [[4, 6], [6, 5]])],
)
def test_sums_over_what_operands_repeat(equation, shapes, tmp_path):
    """A sum over a dimension along which nothing is stored counts as often as it is long."""
    random = numpy.random.default_rng(3)
    values, nodes, constants = {}, [], []
    for i, shape in enumerate(shapes):
        few = [1] * len(shape) if i == 0 else [1, *shape[1:]]
        values[f"in_{i}"] = random.uniform(-1, 1, few).astype("f4")
        constants.append(onnx.numpy_helper.from_array(numpy.asarray(shape, "i8"), f"shape_{i}"))
        nodes.append(onnx.helper.make_node("Expand", [f"in_{i}", f"shape_{i}"], [f"x_{i}"]))
    nodes.append(onnx.helper.make_node("Einsum", [f"x_{i}" for i in range(len(shapes))], ["y"], equation=equation))
    assert_as_onnxruntime(nodes, constants, values, tmp_path)


@pytest.mark.parametrize("op", ["ScatterElements", "ScatterND"])
@pytest.mark.parametrize("updates", ["different", "alike", "one"])
@pytest.mark.parametrize("rows", [1, 3])
def test_the_last_of_several_updates_stays(op, updates, rows, tmp_path):
    """Places that are computed, some of them twice."""
    places = [[1.0, 4.0, 1.0, -1.0, 4.0]] * rows if op == "ScatterElements" else [[1.0], [4.0], [1.0], [-1.0], [4.0]]
    values = {"x": numpy.arange(6 * rows, dtype="f4").reshape((rows, 6) if op == "ScatterElements" else (6, rows)),
              "at": numpy.float32(places)}
    shape = (rows, 5) if op == "ScatterElements" else (5, rows)
    if updates == "one":
        if op == "ScatterND":
            values["at"], shape = values["at"][:1], (1, rows)
        else:
            values["at"], shape = values["at"][:, :1], (rows, 1)
    constants = [onnx.numpy_helper.from_array(numpy.full(shape, 7, "f4"), "u")] if updates == "alike" else []
    if updates != "alike":
        values["u"] = numpy.random.default_rng(3).uniform(-1, 1, shape).astype("f4")
    nodes = [onnx.helper.make_node("Cast", ["at"], ["places"], to=onnx.TensorProto.INT64),
             onnx.helper.make_node(op, ["x", "places", "u"], ["y"], **({"axis": 1} if op == "ScatterElements" else {}))]
    assert_as_onnxruntime(nodes, constants, values, tmp_path)


@pytest.mark.parametrize("op", ["Equal", "LessOrEqual", "GreaterOrEqual", "Less", "Greater"])
@pytest.mark.parametrize("other", ["itself", "another", 2.0, -3.0, 0.0, float("inf"), -float("inf"), float("nan"), 3e38])
def test_nothing_is_nan(op, other, tmp_path):
    """Comparisons with NaN are false, whichever operand it is; infinities are equal to themselves."""
    values = {"x": numpy.float32([0, 1, -1, 2, -3, 0]), "z": numpy.float32([0, 0, 0, 1, 1, 1]), "w": numpy.float32([1, 1, 0, 0, 0, 1])}
    constants = [] if isinstance(other, str) else [onnx.numpy_helper.from_array(numpy.float32(other), "c")]
    nodes = [onnx.helper.make_node("Div", ["x", "z"], ["v"])]  # NaN, infinities and numbers
    if other == "another":
        nodes.append(onnx.helper.make_node("Div", ["v", "w"], ["c"]))
    right = "v" if other == "itself" else "c"
    nodes += [onnx.helper.make_node(op, ["v", right], ["first"]), onnx.helper.make_node(op, [right, "v"], ["second"]),
              onnx.helper.make_node("Cast", ["first"], ["a"], to=onnx.TensorProto.FLOAT),
              onnx.helper.make_node("Cast", ["second"], ["b"], to=onnx.TensorProto.FLOAT),
              onnx.helper.make_node("Concat", ["a", "b"], ["y"], axis=0)]
    if other != "another":
        del values["w"]
    assert_as_onnxruntime(nodes, constants, values, tmp_path)


@pytest.mark.parametrize("size, scale", [(5, 2.6), (10, 1.1), (3, 1 / 3), (7, 0.7), (30, 0.1)])
def test_sizes_by_scales_are_of_f32(size, scale, tmp_path):
    """In f64 5 times 2.6, which a file has as 2.59999990, are fewer than 13."""
    constants = [onnx.numpy_helper.from_array(numpy.asarray([1, 1, scale], "f4"), "scales")]
    nodes = [onnx.helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear")]
    values = {"x": numpy.random.default_rng(3).uniform(-1, 1, [1, 2, size]).astype("f4")}
    assert_as_onnxruntime(nodes, constants, values, tmp_path)


def assert_as_onnxruntime(nodes, constants, values, tmp_path):
    """What the nodes make of these values is y."""
    import onnx_graphs

    inputs = [onnx.helper.make_tensor_value_info(k, onnx.TensorProto.FLOAT, v.shape) for k, v in values.items()]
    outputs = [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)]
    graph = onnx.helper.make_graph(nodes, "g", inputs, outputs, constants)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)
    made = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, values)[0]
    case = types.SimpleNamespace(values={**values, "y": made})
    assert onnx_graphs.compared(model, case, str(tmp_path / "file.onnx")) == ("right", "")


def test_layouts_of_later_versions(tmp_path):
    """What onnxruntime does not have: batches first, blocks to channels by columns."""
    path = str(tmp_path / "layout.onnx")
    onnx.save(build([("SpaceToDepth", ["x"], ["y"], {"blocksize": 2, "mode": "CRD"})], {"x": [1, 2, 4, 6]}, {"y": [1, 8, 2, 3]}), path)
    values = reference.evaluate(path)
    x = values["x"].reshape(2, 2, 2, 3, 2)
    assert numpy.array_equal(values["y"].reshape(8, 2, 3), x.transpose(0, 2, 4, 1, 3).reshape(8, 2, 3))


def test_values_by_index_are_known(tmp_path):
    """GatherElements of constants, with an index from the end."""
    from onnx import TensorProto, helper

    path = str(tmp_path / "known.onnx")
    nodes = [helper.make_node("Constant", [], ["a"], value_ints=[5, 6, 7]),
             helper.make_node("Constant", [], ["i"], value_ints=[2, 0, -1, 1]),
             helper.make_node("GatherElements", ["a", "i"], ["g"], axis=0),
             helper.make_node("Cast", ["g"], ["f"], to=TensorProto.FLOAT), helper.make_node("Add", ["x", "f"], ["y"])]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "known", [value("x", TensorProto.FLOAT, [4])], [value("y", TensorProto.FLOAT, [4])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    values = reference.evaluate(path)
    assert numpy.allclose(values["y"] - values["x"], [7, 5, 7, 6])


@pytest.mark.parametrize("axis", [0, 1, 2, -2])
def test_hardmax_before_opset_13_is_of_all_from_the_axis_on(axis, tmp_path):
    path = str(tmp_path / "hardmax.onnx")
    onnx.save(onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 11]>
    hardmax (float[2, 3, 4] x) => (float[2, 3, 4] y) {{ y = Hardmax <axis = {axis}> (x) }}"""), path)
    values = reference.evaluate(path)
    x = values["x"].reshape(2, 3, 4)
    want, = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x.astype("f4")})
    assert numpy.array_equal(values["y"].reshape(2, 3, 4), want)
    assert want.sum() == numpy.prod(x.shape[:axis])


@pytest.mark.parametrize("seed", range(24))
def test_graphs_within_nodes(seed, tmp_path):
    """Loops, scans and branches within one another; names of their graphs may be those of other graphs, too."""
    n, model, want = onnx_versions.drawn(seed, families=[onnx_version_cases.turns])
    try:
        got = onnx_versions.asked_of(model, None, str(tmp_path), n.values)
    except tilewright.InputError as error:  # each problem is named once, and what reads its result is not
        assert str(error).count("\n") == 1 and "a number of turns that is found while running" in str(error)
        return
    for output, w in zip(n.outputs, want):
        assert not onnx_versions.off(got[output.name], w, onnx_versions.TOLERANCE[n.kind])


@pytest.mark.parametrize("node", ["Conv (x, none)", "ConvTranspose (x, none)", "Mul (x, none)", "Einsum <equation = \"abcd,efgh->abcd\"> (x, none)"])
def test_operands_without_elements(node, tmp_path):
    """Refused, or a result without elements: a convolution with such a kernel was an internal error."""
    path = str(tmp_path / "none.onnx")
    onnx.save(onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    none (float[2, 4, 5, 5] x, float[4, 4, 3, 3] w) => (float[?, ?, ?, ?] y) <int64[1] zero = {0}> {
      none = Slice (w, zero, zero)
      y = %s
    }""" % node), path)
    with pytest.raises(tilewright.InputError, match="without elements|no elements|broadcast"):
        tilewright.import_(path)


@pytest.mark.parametrize("parts, node, why", [
    ("1, 2", "Relu (part)", "parts that are not the whole"),
    ("0, 4", "Conv (part, w)", "without elements"),
    ("0, 4", "ConvTranspose (part, w)", "without elements"),
    ("0, 4", "GridSample (part, w)", "without elements")])
def test_parts_of_a_split(parts, node, why, tmp_path):
    """Sizes that leave elements over, and nodes whose operands are all constants and one has no elements."""
    path = str(tmp_path / "parts.onnx")
    values = ", ".join(["1"] * 36)
    onnx.save(onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    parts () => (float[?, ?, ?, ?] y) <float[4, 1, 3, 3] x = {%s}, float[1, 1, 3, 3] w = {%s}, int64[2] sizes = {%s}> {
      part, rest = Split (x, sizes)
      y = %s
    }""" % (values, ", ".join(["1"] * 9), parts, node)), path)
    with pytest.raises(tilewright.InputError, match=why):
        tilewright.import_(path)


def test_loops_that_values_end(tmp_path):
    """Of at most so many turns, all of which are computed; what each turn leaves has as many rows as there are turns."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    loop (float[3] x, float limit) => (float[3] y) <int64 most = {%d}, bool yes = {1}> {
      y%s = Loop (most, yes, x) <body = turn (int64 i, bool go, float[3] s) => (bool on, float[3] t%s) {
        t = Add (s, x)
        total = ReduceSum <keepdims = 0> (t)
        on = Less (total, limit)
        %s
      }>
    }"""
    path = str(tmp_path / "loop.onnx")
    onnx.save(onnx.parser.parse_model(text % (9, "", "", "")), path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    ends = set()
    for limit in (-1, 2, 5, 9, 40):
        x = numpy.asarray([0.5, 0.75, 0.5], "f4")
        got = onnx_versions.asked_of(onnx.load(path), None, str(tmp_path), {"x": x, "limit": numpy.asarray(limit, "f4")})["y"]
        want, = session.run(None, {"x": x, "limit": numpy.asarray(limit, "f4")})
        assert numpy.allclose(got.reshape(-1), want)
        ends.add(float(want[0]))
    assert len(ends) > 3
    for wrong in (text % (900, "", "", ""), text % (9, ", rows", ", float[3] row", "row = Identity (t)")):
        onnx.save(onnx.parser.parse_model(wrong), path)
        with pytest.raises(tilewright.InputError, match="a number of turns that is found while running"):
            tilewright.import_(path)


def test_names_of_graphs_within_nodes_are_their_own(tmp_path):
    """The inner loop's turn and state have the names of the outer one's."""
    path = str(tmp_path / "names.onnx")
    onnx.save(onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    names (float[1] x) => (float[1] y) <int64 three = {3}, int64 one = {1}, bool yes = {1}> {
      y = Loop ("", yes, x) <body = outer (int64 i, bool go, float[1] s) => (bool on, float[1] t) {
        u = Loop (three, "", s) <body = inner (int64 i, bool go, float[1] s) => (bool on2, float[1] v) {
          v = Add (s, x)
          on2 = Identity (go)
        }>
        t = Add (u, s)
        on = Less (i, one)
      }>
    }"""), path)
    values = reference.evaluate(path)
    x = float(values["x"].reshape(()))
    assert float(values["y"].reshape(())) == pytest.approx(13 * x)  # (x + 3x) + x, then (5x + 3x) + 5x


@pytest.mark.parametrize("unsigned", [False, True])
def test_data_that_is_not_beside_the_model_is_drawn(tmp_path, monkeypatch, unsigned):
    """From its own folder, too. They are weights nevertheless: the same in every run."""
    from onnx import TensorProto, helper

    value = helper.make_tensor_value_info
    kind, element = (TensorProto.UINT8, "u1") if unsigned else (TensorProto.FLOAT, "f4")
    w = helper.make_tensor("w", kind, [4, 3], numpy.zeros(12, element).tobytes(), raw=True)
    onnx.external_data_helper.set_external_data(w, "gone.bin")
    w.ClearField("raw_data")
    nodes = [helper.make_node("Cast", ["w"], ["f"], to=TensorProto.FLOAT), helper.make_node("MatMul", ["x", "f"], ["y"])]
    graph = helper.make_graph(nodes, "net", [value("x", TensorProto.FLOAT, [2, 4])], [value("y", TensorProto.FLOAT, [2, 3])], [w])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    monkeypatch.chdir(tmp_path)
    for name in ("net.onnx", str(tmp_path / "net.onnx")):
        made = tilewright.import_(name)
        assert [i["tensor"] for i in made["inputs"]] == ["x"]
        assert made["drawn"] == ["x", "w"] and made["weight_bytes"] == 48, made
        values = reference.evaluate(name)
        assert (values["w"].min() < 0) != unsigned
        assert numpy.allclose(values["y"].reshape(2, 3), values["x"].reshape(2, 4) @ values["w"].reshape(4, 3))


@pytest.mark.parametrize("auto_pad", ["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("points", [4, 5, 6, 7, 8])
def test_a_transposed_convolution_is_cut_to_a_shape(tmp_path, auto_pad, points):
    """Of an odd number of points that are left out, one more is in front, but for SAME_UPPER."""
    path = str(tmp_path / "cut.onnx")
    onnx.save(onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 13]> t (float[1, 1, 3] x, float[1, 1, 4] w) => (float[1, 1, n] y) '
        f'{{ y = ConvTranspose<auto_pad = "{auto_pad}", strides = [2], output_shape = [{points}]>(x, w) }}'), path)
    made, values = tilewright.import_(path), reference.evaluate(path)
    names = {e["name"]: e["tensor"] for e in made["inputs"] + made["outputs"]}
    x, w, y = (values[names[name]].ravel() for name in "xwy")
    whole = numpy.zeros(8)
    for i in range(3):
        whole[2 * i:2 * i + 4] += x[i] * w
    left = len(whole) - points
    front = left // 2 if auto_pad == "SAME_UPPER" else left - left // 2
    assert numpy.allclose(y, whole[front:front + points], atol=1e-6)


def test_values_of_activations_are_of_those_that_take_one(tmp_path):
    """Of HardSigmoid, Tanh, HardSigmoid, Tanh two take a value: the second one is of the other direction."""
    path, rng = str(tmp_path / "gru.onnx"), numpy.random.default_rng(5)
    node, value = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    weights = [onnx.numpy_helper.from_array(rng.uniform(-1, 1, shape).astype("f"), name)
               for name, shape in (("w", (2, 12, 3)), ("r", (2, 12, 4)))]
    gru = node("GRU", ["x", "w", "r"], ["y"], direction="bidirectional", hidden_size=4, activations=["HardSigmoid", "Tanh"] * 2,
               activation_alpha=[0.3, 0.1], activation_beta=[0.4, 0.7])
    graph = onnx.helper.make_graph([gru], "gru", [value("x", onnx.TensorProto.FLOAT, [5, 2, 3])],
                                   [value("y", onnx.TensorProto.FLOAT, [5, 2, 2, 4])], weights)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 14)], ir_version=8), path)
    made, values = tilewright.import_(path), reference.evaluate(path)
    names = {e["name"]: e["tensor"] for e in made["inputs"] + made["outputs"]}
    want = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(
        None, {"x": values[names["x"]].reshape(5, 2, 3).astype("f")})[0]
    assert numpy.allclose(values[names["y"]].reshape(want.shape), want, atol=1e-5)
