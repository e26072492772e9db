#!/usr/bin/env python3
"""Drawn networks as onnxruntime's quantisation leaves them: activations of 8 bits by ranges of drawn inputs, weights of
8 bits by tensor or by channel, every other seed with unsigned activations.

    experiments/cpu/quantised_networks.py --seed 112901 mlp transformer recurrent

says for three drawn inputs how many elements onnxruntime computes otherwise than the file's operators one by one, as the onnx
package evaluates them: by default, with exact sums of products (session.x64quantprecision), and without fusing operators.
The families are those of drawn_networks.py, quantised as networks.py --networks 1 --quantised --seed does. Needs onnx and
onnxruntime."""

import argparse
import logging
import os
import tempfile

import numpy
import onnx
from onnx import TensorProto
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static


class Drawn(CalibrationDataReader):
    """Three drawn inputs."""

    def __init__(self, model, seed):
        rng = numpy.random.default_rng(seed)
        kinds = {TensorProto.FLOAT: "f4", TensorProto.INT64: "i8", TensorProto.INT32: "i4"}
        known = {w.name for w in model.graph.initializer}
        self.feeds = []
        for _ in range(3):
            feed = {}
            for x in model.graph.input:
                if x.name in known:
                    continue
                shape = [d.dim_value for d in x.type.tensor_type.shape.dim]
                feed[x.name] = rng.uniform(-1, 1, shape).astype(kinds[x.type.tensor_type.elem_type])
            self.feeds.append(feed)

    def get_next(self):
        return self.feeds.pop() if self.feeds else None


def quantise(path, seed):
    """The file, quantised in its place."""
    model = onnx.load(path)
    whole = path + ".whole.onnx"
    os.replace(path, whole)
    quantize_static(whole, path, Drawn(model, seed), quant_format=QuantFormat.QDQ, per_channel=seed % 3 != 0,
                    activation_type=QuantType.QUInt8 if seed % 2 else QuantType.QInt8, weight_type=QuantType.QInt8)


def sessions(path):
    """onnxruntime's ways to compute a file, by name."""
    import onnxruntime

    def session(level, exact):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        options.intra_op_num_threads = 1
        if exact:
            options.add_session_config_entry("session.x64quantprecision", "1")
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    level = onnxruntime.GraphOptimizationLevel
    return {"by default": session(level.ORT_ENABLE_ALL, False), "with exact sums": session(level.ORT_ENABLE_ALL, True),
            "without fusing": session(level.ORT_DISABLE_ALL, False)}


def differences(path, seed):
    """For each way and drawn input: elements of the first result that differ, all of them, and the largest difference."""
    from onnx.reference import ReferenceEvaluator

    model = onnx.load(path)
    for opset in model.opset_import:  # the package evaluates these operators from version 19 on
        opset.version = max(opset.version, 19) if opset.domain == "" else opset.version
    by_node = ReferenceEvaluator(model)
    feeds = Drawn(model, seed).feeds
    wanted = [by_node.run(None, feed)[0] for feed in feeds]
    found = {}
    for name, session in sessions(path).items():
        off = [numpy.abs(session.run(None, feed)[0] - want) for feed, want in zip(feeds, wanted)]
        found[name] = [(int((x > 1e-6).sum()), x.size, float(x.max())) for x in off]
    return found


def main():
    import drawn_networks

    families = {f.__name__: i for i, f in enumerate(drawn_networks.FAMILIES)}
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("families", nargs="+", choices=families)
    p.add_argument("--seed", type=int, required=True)
    a = p.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        for name in a.families:
            path = os.path.join(folder, name + ".onnx")
            onnx.save(drawn_networks.make(drawn_networks.FAMILIES[families[name]], a.seed), path)
            quantise(path, a.seed + families[name])
            for way, inputs in differences(path, a.seed).items():
                print(f"{name:12} onnxruntime {way:16}", ", ".join(f"{n} of {all_of} differ, by {most:.2g} at most"
                                                               for n, all_of, most in inputs), flush=True)


if __name__ == "__main__":
    main()
