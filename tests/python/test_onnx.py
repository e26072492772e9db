"""Does each ONNX operator, imported and evaluated, give what onnxruntime gives?"""

import pytest

numpy = pytest.importorskip("numpy")
onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
reference = pytest.importorskip("tilewright.reference")
tilewright = pytest.importorskip("tilewright")

import onnx_cases  # noqa: E402

KINDS = {"tensor(float)": numpy.float32, "tensor(int64)": numpy.int64}


@pytest.mark.parametrize("family", onnx_cases.FAMILIES, ids=lambda f: f.__name__)
def test_operators(family, tmp_path):
    compared = 0
    for seed in range(6):
        path = str(tmp_path / f"{family.__name__}_{seed}.onnx")
        onnx.save(onnx_cases.make(family, seed), path)
        try:
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
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
