"""Does a model written in Python take part like a built-in one, and are its mistakes named?"""

import math
import threading
import time

import pytest

tilewright = pytest.importorskip("tilewright")

CHAIN = "gemm-chain:m=96,n=64,k=48,l=80"
MACHINE = "scratchpad:16K"
TREE = "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )"
TILES = {"m": 16, "l": 16, "k": 8, "n": 8}


class Chimera(tilewright.Model):
    """Chimera's Algorithm 1 with full edges, again in Python: what a student writes."""
    name = "chimera-again"

    def moved(self, workload, order, tiles, operator, access):
        """Walks an operator's own loops from the innermost: once a loop indexes the tensor, that loop
        and all around it bring the tile again."""
        bytes_ = workload.footprint(access, tiles) * workload.tensors[access.tensor].element_bytes
        reached = False
        for loop in reversed([o for o in order if o in operator.loops]):
            reached = reached or loop in access.loops
            if reached:
                bytes_ *= math.ceil(workload.loops[loop] / tiles[loop])
        return bytes_

    def predict(self, question):
        w = question.workload
        loops = {}
        for node, _ in question.kernels[0].nodes.walk():
            if node.kind == "loop":
                loops[node.name] = node.step
        order = list(loops)
        read, written = {}, {}
        for op in w.operators:
            for access in op.reads + op.writes:
                if access.tensor in w.inputs:
                    read[access.tensor] = self.moved(w, order, loops, op, access)
                elif access.tensor in w.outputs:
                    written[access.tensor] = self.moved(w, order, loops, op, access)
        return tilewright.Price(read_bytes=read, written_bytes=written)

    def optimise(self, question):
        assert question.capacity_bytes == 16384 and not question.kernels
        return tilewright.Choice(TREE, TILES)


class Wrong(tilewright.Model):
    name = "wrong"
    price = None

    def predict(self, question):
        if isinstance(self.price, Exception):
            raise self.price
        return self.price


@pytest.fixture
def registered():
    names = []

    def add(model):
        tilewright.register(model)
        names.append(model.name)
        return model
    yield add
    for name in set(names):
        tilewright.unregister(name)


def asked(model, **more):
    return tilewright.predict(CHAIN, MACHINE, model=model, tree=TREE, tiles=TILES, **more)


def test_it_says_what_chimera_says(registered):
    registered(Chimera())
    theirs = tilewright.predict(CHAIN, MACHINE, model="chimera", order="mlkn", tiles=TILES)
    ours = asked("chimera-again")
    assert ours["source"] == "predicted" and ours["by"] == "chimera-again"
    assert ours["volume_bytes"] == theirs["volume_bytes"] > 0
    assert {t["tensor"]: t["read_bytes"] + t["written_bytes"] for t in ours["traffic"]} == \
        {t["tensor"]: t["read_bytes"] + t["written_bytes"] for t in theirs["traffic"]}


def test_it_takes_part_in_plan_and_compare(registered):
    registered(Chimera())
    best = tilewright.plan(CHAIN, MACHINE, model="chimera-again")
    assert best["volume_bytes"] == asked("chimera-again")["volume_bytes"]
    moved = sum(t["read_bytes"] + t["written_bytes"] for t in tilewright.simulate(best)["traffic"])
    assert best["exact_bytes"] == moved > 0
    both = tilewright.compare(CHAIN, MACHINE, models="chimera,chimera-again")
    assert [row["model"] for row in both["plans"]] == ["chimera", "chimera-again"]
    for row in both["plans"]:
        assert [p["by"] for p in row["prices"]] == ["chimera", "chimera-again"]
        assert all(p["difference_bytes"] == sum(c["bytes"] for c in p["causes"])
                   for p in row["prices"])
    assert "chimera-again" in [m["model"] for m in tilewright.compare(CHAIN, MACHINE)["plans"]]
    record = {m["name"]: m for m in tilewright.models()["models"]}["chimera-again"]
    assert record["makes_plans"] and record["summary"].startswith("Chimera's Algorithm 1")


def test_it_is_validated_as_chimera_is(registered):
    registered(Chimera())
    options = dict(orders=["mlkn"], samples=12, seed=3, threads=2)
    ours = tilewright.validate(CHAIN, "cache:4K/8", model="chimera-again", **options)
    theirs = tilewright.validate(CHAIN, "cache:4K/8", **options)
    assert ours["model"] == "chimera-again" and ours["valid"] == 12
    full = theirs["full_edges"]
    assert {k: ours[k] for k in full} == pytest.approx(full)
    for a, b in zip(ours["points"], theirs["points"]):
        assert a["predicted_bytes"] == b["predicted_full_edges_bytes"]
        assert a["true_bytes"] == b["true_bytes"] and a["tiles"] == b["tiles"]
        assert sum(t["predicted_bytes"] for t in a["tensors"].values()) == a["predicted_bytes"]
        assert sum(t["true_bytes"] for t in a["tensors"].values()) == a["true_bytes"]


def test_what_it_is_told(registered):
    seen = []

    class Curious(tilewright.Model):
        name = "curious"

        def predict(self, question):
            seen.append(question)
            return tilewright.Price()
    registered(Curious())
    tilewright.predict("conv-chain:ic=4,h=8,w=8,oc1=4,oc2=4,st1=2,k1=3,k2=1", "a100", model="curious",
                       tree="oc2 ( C.conv1 C.conv2 )", tiles={"oc2": 2}, capacity="8K")
    asked("curious")
    conv, chain = seen
    assert conv.capacity_bytes == 8192 and conv.machine.peak_flops_per_second["f16"] > 0
    image = conv.workload.operators[0].reads[0]
    assert any(c == 2 for form, _ in image.index for c in form.values())  # the stride
    assert chain.workload.loops == {"m": 96, "l": 80, "k": 48, "n": 64}
    assert chain.workload.inputs == ("A", "B", "D") and chain.workload.intermediates == ("C",)
    gemm1 = chain.workload.operators[0]
    assert gemm1.loops == {"m", "l", "k"} and gemm1.reduces == {"k"}
    assert [n.name for n in chain.kernels[0].loops_around("gemm1")] == ["m", "l", "k"]
    assert [n.trips for n in chain.kernels[0].loops_around("gemm1")] == [6, 5, 6]
    assert chain.workload.footprint(gemm1.reads[0], {"m": 4, "k": 5}) == 20
    held = {b.tensor: b.bytes for b in chain.kernels[0].buffers}
    assert held["C"] == 16 * 16 * 4 and held["A"] == 16 * 8 * 4


def test_outcomes_that_say_no(registered):
    model = registered(Wrong())
    model.price = tilewright.Infeasible("no price for this")
    answer = asked("wrong")
    assert answer["reason"] == "wrong: no price for this"
    rows = tilewright.compare(CHAIN, MACHINE)["plans"]
    assert all(row["model"] != "wrong" for row in rows)  # it makes no plans

    class Large(Wrong):
        name = "large"
        price = tilewright.Price()

        def optimise(self, question):
            return tilewright.Choice(TREE, {"m": 96, "l": 80, "k": 48, "n": 64})
    registered(Large())
    assert "16384" in tilewright.plan(CHAIN, MACHINE, model="large")["reason"]


@pytest.mark.parametrize("price, part", [
    (None, "predict"), ({"A": 3}, "predict"),
    (tilewright.Price(read_bytes={"Q": 3}), "'Q'"),
    (tilewright.Price(read_bytes={"A": -3}), "-3"),
    (tilewright.Price(read_bytes={"A": float("nan")}), "nan"),
    (tilewright.Price(read_bytes={"A": True}), "True"),
    (tilewright.Price(memory_bytes="much"), "memory_bytes"),
    (tilewright.Price(seconds=float("inf")), "seconds"),
])
def test_prices_that_are_none(registered, price, part):
    registered(Wrong()).price = price
    with pytest.raises(tilewright.InputError) as caught:
        asked("wrong")
    assert part in str(caught.value) and "wrong" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("tree, tiles, part", [
    ("m ( (", {}, "tree"), (TREE, {"m": 0}, "tiles"), (TREE, {"m": 1.5}, "tiles"),
    (TREE, {"m": 97, "l": 16, "k": 8, "n": 8}, "97"), ("q ( C.gemm1 )", {"q": 4}, "q"),
])
def test_plans_that_are_none(registered, tree, tiles, part):
    class Planner(Wrong):
        name = "planner"
        price = tilewright.Price()

        def optimise(self, question):
            return tilewright.Choice(tree, tiles)
    registered(Planner())
    with pytest.raises(tilewright.InputError) as caught:
        tilewright.plan(CHAIN, MACHINE, model="planner")
    assert part in str(caught.value)


def test_its_own_errors_come_through_every_verb(registered):
    registered(Wrong()).price = ZeroDivisionError("mine")
    with pytest.raises(ZeroDivisionError, match="mine"):
        asked("wrong")
    with pytest.raises(ZeroDivisionError, match="mine"):
        tilewright.validate(CHAIN, "cache:4K/8", model="wrong", orders=["mlkn"], samples=8, threads=2)


@pytest.mark.parametrize("name", ["", "all", "chimera", "a b", "x" * 80, "é"])
def test_names_that_are_none(name):
    model = Wrong()
    model.name = name
    with pytest.raises(tilewright.InputError, match="name"):
        tilewright.register(model)


def test_registering_again_replaces_and_others_are_refused(registered):
    registered(Wrong()).price = tilewright.Price(read_bytes={"A": 1})
    registered(Wrong()).price = tilewright.Price(read_bytes={"A": 2})
    assert asked("wrong")["volume_bytes"] == 2
    with pytest.raises(TypeError, match="tilewright.Model"):
        tilewright.register("chimera")
    with pytest.raises(tilewright.InputError, match="no-such"):
        tilewright.unregister("no-such")


def test_other_threads_run_while_a_verb_does():
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)
    thread = threading.Thread(target=tick)
    thread.start()
    try:
        begin = time.perf_counter()
        tilewright.simulate("gemm-chain:m=1024,n=64,k=64,l=512", "cache:4K/8", tree=TREE,
                            tiles={"m": 4, "l": 4, "k": 4, "n": 4}, no_skip=True)
        end = time.perf_counter()
    finally:
        stop.set()
        thread.join()
    inside = sum(begin < t < end for t in ticks)
    assert end - begin > 0.05, "too short to tell"
    assert inside > 10, f"{inside} ticks in {end - begin} s: the GIL was held"
