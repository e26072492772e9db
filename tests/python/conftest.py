import json
import re

import pytest


def validation(count=12, **more):
    """What validate answers, in small: every key that the plot reads."""
    points = [{"order": "mlkn", "tiles": {"m": i, "l": 2 * i}, "predicted_bytes": 10_000_000 // i,
               "true_bytes": 10_200_000 // i + 64 * i} for i in range(1, count + 1)]
    return {"schema": 1, "workload": "gemm-chain", "machine": "cache:32K/8", "model": "chimera",
            "truth": "simulator", "boundary": "DRAM/L1", "layout": "tiled", "seed": 1,
            "options": {"edges": "exact"}, "asked": count, "valid": count, "failed": 0,
            "r2_identity": 0.9876, "r2_fit": 0.99, "mape": 0.0123, "worst": 0.0456, "bias": -0.0078,
            "points": points,
            "optimum": {"order": "mlkn", "tiles": {"m": 99, "l": 98}, "predicted_bytes": 400_000,
                        "true_bytes": 410_000}, **more}


@pytest.fixture
def result(tmp_path):
    """Writes a document and returns its path."""
    def write(document, name="result.json"):
        path = tmp_path / name
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return str(path)
    return write


def svg_text(path):
    """The words of a picture whose text is kept as text."""
    with open(path, encoding="utf-8") as file:
        return re.sub(r"\s+", " ", " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", file.read())))


@pytest.fixture
def words(tmp_path, monkeypatch):
    """Draws a document's file and returns the picture's words."""
    import matplotlib
    from tilewright import plot
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")

    def make(path, *more):
        out = str(tmp_path / "picture.svg")
        assert plot.main([path, "-o", out, *more]) == 0
        return svg_text(out)
    return make


@pytest.fixture
def refused(tmp_path, capsys):
    """Asks for the picture of a document's file, which is refused in one line, and returns it."""
    from tilewright import plot

    def ask(path, *more):
        out = tmp_path / "p.png"
        assert plot.main([path, "-o", str(out), *more]) == 2
        assert not out.exists()
        error = capsys.readouterr().err
        assert error.count("\n") == 1, error
        return error
    return ask
