"""Does the ski slope say what the file says, and is a bad file refused in one line?"""

import pytest

pytest.importorskip("tilewright.plot")
pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'tilewright[plot]'")


def curve(**more):
    """What explain --curve answers, in small."""
    rows = [{"buffer_bytes": 1 << (10 + i),
             "unfused": {"attainable_bytes": (64 << 20) >> i, "proven_bytes": (60 << 20) >> i},
             "fused": {"attainable_bytes": None if i == 0 else (80 << 20) >> (i + i // 3),
                       "proven_bytes": (20 << 20) >> i,
                       "proven_without_recomputation_bytes": (30 << 20) >> i}} for i in range(5)]
    return {"schema": 1, "workload": "gemm-chain:m=512", "machine": "cache:32K/8", "curve": rows,
            "minimum": {"unfused": {"traffic_bytes": 4 << 20, "buffer_bytes": 16 << 10},
                        "fused": {"traffic_bytes": 5 << 20, "buffer_bytes": 8 << 10}},
            "crossover_bytes": 8192, "command": "tilewright explain gemm-chain:m=512 --curve",
            "levels": [{"level": "L1", "buffer_bytes": 4096}], **more}


def test_says_curves_minima_levels_and_source(result, words):
    text = words(result(curve()))
    for part in ("unfused, attainable", "unfused, proven", "fused, attainable", "any plan, proven",
                 "fused, proven, nothing recomputed", "unfused: at least 4 MiB, from a buffer of 16 KiB",
                 "fusion first moves less with 8 KiB", "L1 4 KiB", "machine: cache:32K/8",
                 "command: tilewright explain gemm-chain:m=512 --curve", "buffer size", "bytes moved"):
        assert part in text, (part, text)
    assert "measured" not in text


def test_measurements_and_one_operator(result, words):
    document = curve(measured=[{"name": "A30 simt", "buffer_bytes": 2048, "measured_bytes": 9e7}],
                     measured_source="a notebook", machine=None)
    for row in document["curve"]:
        del row["fused"]
    text = words(result(document))
    assert "A30 simt, measured" in text and "measured (source: paper): a notebook" in text
    assert "fused, attainable" not in text.replace("unfused, attainable", "")


def broken(**more):
    return curve(curve=[{"buffer_bytes": 8, "unfused": {"attainable_bytes": 1, **more}}])


@pytest.mark.parametrize("document, part", [
    (curve(curve=[]), "curve: is empty"), (curve(curve=3), "curve: is not a list"),
    (curve(curve=[{"unfused": {}}]), "curve[0].buffer_bytes"),
    (curve(curve=[{"buffer_bytes": 8}]), "holds no bytes"),
    (curve(curve=[{"buffer_bytes": 8, "unfused": 3}]), "curve[0].unfused: is not an object"),
    (broken(attainable_bytes=-1), "curve[0].unfused.attainable_bytes"),
    (broken(proven_bytes="x\ny"), "curve[0].unfused.proven_bytes"),
    (curve(measured=[{"name": "x", "buffer_bytes": 8}]), "measured[0].measured_bytes"),
    (curve(levels=[3]), "levels[0].buffer_bytes"),
])
def test_bad_files_are_refused_in_one_line(result, refused, document, part):
    assert part in refused(result(document))
