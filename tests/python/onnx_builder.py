"""What small ONNX models are made with, by rng."""

import numpy
from onnx import TensorProto, helper, numpy_helper


class Case:
    """A model on its way: inputs, weights, nodes."""

    dtype = numpy.float32  # of weights

    def __init__(self, rng, opset=17):
        self.rng, self.opset = rng, opset
        self.nodes, self.inputs, self.weights, self.outputs = [], [], [], []
        self.numbered = 0  # nodes, those of graphs within nodes too

    def integer(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def pick(self, *values):
        return values[self.integer(0, len(values) - 1)]

    def shape(self, rank, low=1, high=5):
        return [self.integer(low, high) for _ in range(rank)]

    def input(self, shape, kind=TensorProto.FLOAT):
        name = f"in_{'abcdefgh'[len(self.inputs)]}"
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def weight(self, shape, low=-1, high=1):
        return self.constant(self.rng.uniform(low, high, shape).astype(self.dtype))

    def constant(self, values):
        letters, n = "abcdefghijklmnopqrstuvwxyz", len(self.weights)
        name = f"w_{letters[n // 26 - 1] if n >= 26 else ''}{letters[n % 26]}"
        self.weights.append(numpy_helper.from_array(numpy.asarray(values), name))
        return name

    def integers(self, values):
        return self.constant(numpy.asarray(values, dtype=numpy.int64))

    def node(self, op, inputs, outputs=1, domain="", **attributes):
        names = [f"v_{self.numbered}_{i}v" for i in range(outputs)]
        self.numbered += 1
        while inputs and inputs[-1] == "":
            inputs = inputs[:-1]
        self.nodes.append(helper.make_node(op, inputs, names, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def graph(self, name, inputs, make):
        """A graph within a node: `make` makes its nodes, of its inputs and of what is around, and returns its outputs."""
        around, self.nodes = self.nodes, []
        outputs = make()
        nodes, self.nodes = self.nodes, around
        return helper.make_graph(nodes, name, inputs, [helper.make_empty_tensor_value_info(o) for o in outputs])

    def positive(self, name, least=0.25):
        return self.node("Add", [self.node("Abs", [name]), self.constant(numpy.float32(least))])

    def output(self, name, kind=TensorProto.FLOAT):
        if kind != TensorProto.FLOAT:
            name = self.node("Cast", [name], to=TensorProto.FLOAT)
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))

    def model(self):
        graph = helper.make_graph(self.nodes, "case", self.inputs, self.outputs, self.weights)
        opsets = [helper.make_opsetid("", self.opset)]
        opsets += [helper.make_opsetid(domain, 1) for domain in sorted({n.domain for n in self.nodes} - {""})]
        model = helper.make_model(graph, opset_imports=opsets)
        model.ir_version = 10 if self.opset > 21 else 9
        return model
