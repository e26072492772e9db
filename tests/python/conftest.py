import json

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
