"""Does a network run as onnxruntime runs it, every kernel and the whole verified?"""

import os
import sys

import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
tilewright = pytest.importorskip("tilewright")

import onnx_networks  # noqa: E402

CASES = int(os.environ.get("TILEWRIGHT_CASES", "1"))
FIRST = int(os.environ.get("TILEWRIGHT_SEED", "1"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + CASES))
@pytest.mark.parametrize("family", onnx_networks.FAMILIES, ids=lambda f: f.__name__)
def test_drawn_networks(family, seed, tmp_path):
    path = str(tmp_path / f"{family.__name__}_{seed}.onnx")
    onnx.save(onnx_networks.make(family, seed), path)
    trace = tmp_path / "trace.json"
    ran = tilewright.run(path, machine="host", isa="generic", seconds=0.01, profile=True, trace=str(trace),
                         beside=sys.executable)
    assert ran["verified"] and ran["kernels_verified"] == ran["compiled"]
    beside = ran["onnxruntime"]
    assert beside["available"], beside
    assert beside["outputs"]
    for output in beside["outputs"]:
        assert output["relative_error"] < 1e-4, f"seed {seed}: {output}"
    assert len(ran["profile"]) == ran["launches"]
    assert ran["drawn"], "no input was drawn"
    assert trace.read_text().count('"ph": "X"') == ran["launches"] - ran["prepared"]


@pytest.mark.parametrize("family", onnx_networks.FAMILIES, ids=lambda f: f.__name__)
def test_drawn_networks_as_cuda(family, tmp_path):
    """The same networks, planned for a GPU and run by the emulation of CUDA."""
    path = str(tmp_path / f"{family.__name__}.onnx")
    onnx.save(onnx_networks.make(family, FIRST), path)
    ran = tilewright.run(path, machine="h200", target="cuda-emulated", seconds=0)
    assert ran["verified"] and ran["kernels_verified"] == ran["compiled"]


def test_what_is_no_onnxruntime_is_said(tmp_path):
    path = str(tmp_path / "mlp.onnx")
    onnx.save(onnx_networks.make(onnx_networks.mlp, 1), path)
    with pytest.raises(tilewright.InputError, match="beside: no-such-python is no program"):
        tilewright.run(path, machine="host", isa="generic", seconds=0.01, beside="no-such-python")
    ran = tilewright.run(path, machine="host", isa="generic", seconds=0.01, beside="false")
    assert ran["verified"]
    assert not ran["onnxruntime"]["available"]
    assert "false" in ran["onnxruntime"]["reason"]


def test_layers_add_up(tmp_path):
    path = str(tmp_path / "transformer.onnx")
    onnx.save(onnx_networks.make(onnx_networks.transformer, 1), path)
    said = tilewright.explain(path, machine="h200")
    assert sum(l["count"] * l["bound_bytes"] for l in said["layers"]) == said["bound_bytes"]
    assert sum(l["count"] * l["unfused"]["bytes"] for l in said["layers"]) == said["unfused"]["bytes"]
    assert said["compulsory_bytes"] <= said["bound_bytes"] <= said["unfused"]["bytes"]
    count = sum(l["count"] for l in said["layers"])
    for model in said["models"]:
        assert model["layers"] + model["refused"] == count
        assert sum(r["layers"] for r in model["reasons"]) == model["refused"]
        if model["refused"] == 0:
            plans = [(l["count"], l["plans"][model["model"]]["bytes"]) for l in said["layers"]]
            assert model["bytes"] == sum(n * b for n, b in plans)
