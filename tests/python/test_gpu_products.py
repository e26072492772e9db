"""Are products' tiles and shares what they say, and do the model's prices choose well among recorded tiles?"""
import importlib.machinery
import importlib.util
import json
import math
import os
import pathlib
import re
import types

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "experiments" / "results"


def products():
    loader = importlib.machinery.SourceFileLoader("gpu_products", str(ROOT / "experiments" / "gpu" / "products"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def test_blocks_share_a_sum_in_multiples_of_64_and_none_is_without_work():
    module = products()
    rows = module.rows_of(types.SimpleNamespace(types="16-bit", largest=4096, draw=60, seed=9, shapes=None))
    shared = 0
    for size in rows.values():
        names = module.tiles_of(size)
        assert len(names) == len(set(names))
        for name in names:
            m, n, share = module.sized(name)
            if share == 1:
                continue
            shared += 1
            part = int(re.search(r"k/(\d+)@cluster", module.plan_of(name, size)["tree"])[1])
            assert part % 64 == 0 and math.ceil(size["k"] / part) == share
    assert shared > 60


@pytest.mark.parametrize("recording, own, least", [
    ("h100-products", True, 0.8), ("h100-products-again", True, 0.8), ("h200-products", True, 0.8),
    ("h100-products-f32-again", False, 0.8), ("h100-products-f32-tiles", True, 0.65)])
def test_prices_choose_within_5_percent_of_the_best_recorded_tile(recording, own, least, tmp_path):
    """`own`: among the planner's own plans and those with warps, too."""
    module = products()
    document = json.loads((RESULTS / f"{recording}.json").read_text())
    for row in document["rows"].values():
        row["tiles"] = {name: t for name, t in row.get("tiles", {}).items()
                        if own or (name != module.PLANNED and "warps" not in module.plan_of(name, row["size"]))}
    command = os.environ.get("TILEWRIGHT", str(ROOT / "build" / "tilewright"))
    said = []
    module.prices(types.SimpleNamespace(tilewright=command, machine="h200", model="tilewright", folder=str(tmp_path)),
                  document, said.append)
    rows, within = map(int, re.search(r"over (\d+), most .* within 1.05 on (\d+)", "\n".join(said)).groups())
    assert rows >= 22 and within >= least * rows
