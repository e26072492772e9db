"""Does the reference evaluator answer in Python, and refuse bad input?"""

import doctest

import pytest

numpy = pytest.importorskip("numpy")
tilewright = pytest.importorskip("tilewright")
reference = pytest.importorskip("tilewright.reference")


def test_its_example_runs():
    found = doctest.testmod(reference)
    assert found.attempted >= 2 and found.failed == 0


def test_a_product_is_the_product():
    values = reference.evaluate("gemm-chain:m=5,n=3,k=4,l=6", seed=7)
    assert set(values) == {"A", "B", "D", "E"}
    assert numpy.allclose(values["A"] @ values["B"] @ values["D"], values["E"], rtol=1e-12, atol=1e-14)
    assert not numpy.array_equal(values["A"], reference.evaluate("gemm-chain:m=5,n=3,k=4,l=6")["A"])


def test_a_workload_as_a_dict():
    values = reference.evaluate({"dtype": "f32", "loops": {"i": 3}, "tensors": {"x": ["i"]},
                                 "operators": ["y[i] = 2 * x[i]"], "outputs": ["y"]})
    assert numpy.array_equal(values["y"], 2 * values["x"])


@pytest.mark.parametrize("workload, part", [("no-such", "no-such"), ("softmax:rows=0", "rows")])
def test_bad_input_is_a_value_error(workload, part):
    with pytest.raises(tilewright.InputError, match=part):
        reference.evaluate(workload)
