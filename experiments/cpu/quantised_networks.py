"""Drawn networks as onnxruntime's quantisation leaves them: activations of 8 bits by ranges of drawn inputs, weights of
8 bits by tensor or by channel, every other seed with unsigned activations."""

import os

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
