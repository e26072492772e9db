"""ONNX models as bytes, written without generated code: only what a lowered graph needs. Field numbers are those of
onnx.proto (ONNX 1.18, opset 23)."""

import struct

OPSET = 23
_IR_VERSION = 11
# TensorProto.DataType by the names that PyTorch has for its types.
TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
         "float64": 11, "bfloat16": 16}


def _varint(n):
    n &= (1 << 64) - 1  # negative numbers are ten bytes
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def _integer(field, n):
    return _varint(field << 3) + _varint(n)


def _bytes(field, data):
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _text(field, text):
    return _bytes(field, text.encode())


def _value_info(name, dtype, shape):
    dims = b"".join(_bytes(1, _integer(1, d)) for d in shape)
    return _text(1, name) + _bytes(2, _bytes(1, _integer(1, TYPES[dtype]) + _bytes(2, dims)))


def _attribute(name, value):
    head = _text(1, name)
    if isinstance(value, bool) or isinstance(value, int):
        return head + _integer(3, int(value)) + _integer(20, 2)
    if isinstance(value, float):
        return head + _varint(2 << 3 | 5) + struct.pack("<f", value) + _integer(20, 1)
    if isinstance(value, str):
        return head + _text(4, value) + _integer(20, 3)
    if isinstance(value, bytes):  # a tensor
        return head + _bytes(5, value) + _integer(20, 4)
    return head + b"".join(_integer(8, int(i)) for i in value) + _integer(20, 7)


def tensor(name, dtype, shape, values):
    """A TensorProto. `values` is a list of numbers, or bytes: little-endian elements, row-major."""
    head = b"".join(_integer(1, d) for d in shape) + _integer(2, TYPES[dtype]) + _text(8, name)
    if isinstance(values, (bytes, bytearray, memoryview)):
        return head + _bytes(9, bytes(values))
    # Numbers one by one, not packed: the import keeps these as numbers, and refers to a file for others.
    if dtype == "float32":
        return head + b"".join(b"\x25" + struct.pack("<f", v) for v in values)
    if dtype == "float64":
        return head + b"".join(b"\x51" + struct.pack("<d", v) for v in values)
    field = 7 if dtype == "int64" else 5
    return head + b"".join(_integer(field, int(v)) for v in values)


class Model:
    """A graph on its way: nodes in order of computation, then bytes."""

    def __init__(self, name):
        self.name = name
        self._nodes, self._inputs, self._outputs, self._constants, self._others = [], [], [], [], []

    def input(self, name, dtype, shape):
        self._inputs.append(_value_info(name, dtype, shape))

    def output(self, name, dtype, shape):
        self._outputs.append(_value_info(name, dtype, shape))

    def value(self, name, dtype, shape):
        """What a node makes: where it is not supported, the import takes an input in its place."""
        self._others.append(_value_info(name, dtype, shape))

    def constant(self, name, dtype, shape, values):
        self._constants.append(tensor(name, dtype, shape, values))

    def node(self, op, name, inputs, outputs, attributes=None, domain=""):
        data = b"".join(_text(1, i) for i in inputs) + b"".join(_text(2, o) for o in outputs)
        data += _text(3, name) + _text(4, op)
        data += b"".join(_bytes(5, _attribute(k, v)) for k, v in (attributes or {}).items())
        self._nodes.append(data + (_text(7, domain) if domain else b""))

    def to_bytes(self):
        parts = [_bytes(1, n) for n in self._nodes] + [_text(2, self.name)]
        for field, all_of in ((5, self._constants), (11, self._inputs), (12, self._outputs), (13, self._others)):
            parts += [_bytes(field, one) for one in all_of]
        return (_integer(1, _IR_VERSION) + _text(2, "tilewright") + _bytes(7, b"".join(parts))
                + _bytes(8, _text(1, "") + _integer(2, OPSET)))
