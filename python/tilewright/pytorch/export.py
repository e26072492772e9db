"""from_torch: a module by torch.export as a workload."""

import ctypes
import json
import os
import re
import shutil
import tempfile
import typing as _typing
import weakref

from .._tilewright import InputError, import_onnx as _import
from .lower import Lowering

_MOST_NAMED = 100


class TorchWorkload(dict):
    """A workload as a dict, which every verb takes.

    path: the ONNX file that it was made by way of, which every verb takes, too; its parameters are there.
    inputs, outputs: what the module takes and returns, in order, as tensors of the workload; None for what the
    workload has not (nothing reads it, or it is no tensor).
    not_covered: nodes that are left out, "name: operator: why"; what they make is an input.
    notes: what differs from the module.
    """

    def __init__(self, workload, path, inputs, outputs, not_covered, notes):
        super().__init__(workload)
        self.path, self.inputs, self.outputs = path, inputs, outputs
        self.not_covered, self.notes = not_covered, notes


def import_bytes(data, path, skip):
    return json.loads(_import(data, path, skip))


def reasons(skipped, problems, targets):
    """What the import says of ONNX nodes, in PyTorch's words: each node once."""
    said = {}
    for line in skipped:
        name, op, why = line.split(": ", 2)
        name = name.split("/")[0]
        if name in problems:
            said[name] = f"{name}: {problems[name]}"
        else:
            said.setdefault(name, f"{name}: {targets.get(name, op)}: {why} (as {op})")
    return list(said.values())


def lowered(graph, path, skip, constants=None):
    """(Lowering, the import's answer, what is not covered). Throws InputError for that unless `skip`."""
    lowering = Lowering(graph)
    problems = lowering.run(constants)
    data = lowering.model.to_bytes()
    targets = {n.name: n.target for n in graph.nodes}
    with open(path, "wb") as file:
        file.write(data)
    made = import_bytes(data, path, True)
    lines = reasons(made["skipped"], problems, targets)
    if lines and not skip:
        shown = lines[:_MOST_NAMED] + ([f"and {len(lines) - _MOST_NAMED} more"] if len(lines) > _MOST_NAMED else [])
        raise InputError(f"{graph.name}: {len(lines)} node{'s' if len(lines) > 1 else ''} of the graph cannot be lowered; "
                         "accepted: the operators of docs/pytorch.md; skip=True takes the rest\n  " + "\n  ".join(shown))
    return lowering, made, lines


def _bytes_of(tensor):
    tensor = tensor.detach().cpu().contiguous()
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def _exported(module, args, kwargs):
    """The module's graph of Core ATen operators, attention and interpolation kept whole."""
    import torch

    from .record import KEPT

    program = torch.export.export(module, tuple(args), dict(kwargs or {}), strict=False)
    table = torch.export.default_decompositions()
    for op in ("scaled_dot_product_attention", *KEPT):
        table.pop(getattr(torch.ops.aten, op).default, None)
    return program.run_decompositions(table)


def _constants(program):
    """Parameters, buffers and constants of the program, by placeholder."""
    signature, out = program.graph_signature, {}
    for names, values in ((signature.inputs_to_parameters, program.state_dict),
                          (signature.inputs_to_buffers, {**program.constants, **program.state_dict}),
                          (signature.inputs_to_lifted_tensor_constants, program.constants)):
        out.update({placeholder: _bytes_of(values[key]) for placeholder, key in names.items()})
    return out


def from_torch(module: "_typing.Any", args: "_typing.Sequence[_typing.Any]",
               kwargs: "_typing.Optional[_typing.Mapping[str, _typing.Any]]" = None, *,
               name: "_typing.Optional[str]" = None, save: "_typing.Union[None, str, os.PathLike[str]]" = None,
               skip: bool = False) -> TorchWorkload:
    """A PyTorch module as a workload, for planning it without running it.

    module: a torch.nn.Module, exported as it is (call its eval() first unless training is meant).
    args, kwargs: inputs of the shapes and types that are planned for; their values are not looked at.
    name: of the workload; by default the module's class.
    save: where the ONNX file that it is made by way of is kept, with the parameters; by default in a temporary
    folder that lasts as long as what is returned.
    skip: what is not covered is left out, what it makes becomes an input, and `not_covered` names it.

    Returns a :class:`TorchWorkload`. Raises InputError that names every node that is not covered, with its operator;
    what torch.export raises comes through. Cost: exporting, and writing the parameters.
    """
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", name or type(module).__name__)
    program = _exported(module, args, kwargs)
    from .record import graph_of

    graph = graph_of(program.graph_module.graph, name)
    folder = None
    if save is None:
        folder = tempfile.mkdtemp(prefix="tilewright-")
        path = os.path.join(folder, name + ".onnx")
    else:
        path = os.fspath(save)
    try:
        lowering, made, not_covered = lowered(graph, path, skip, _constants(program))
    except BaseException:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    of = made["names"]
    user = set(program.graph_signature.user_inputs)
    inputs = [of.get(n.name) for n in graph.nodes if n.op == "placeholder" and n.name in user]
    outputs = [of.get(v.name) if v else None for v in lowering.outputs]
    workload = TorchWorkload(made["workload"], path, inputs, outputs, not_covered, made["notes"])
    if folder:
        weakref.finalize(workload, shutil.rmtree, folder, True)
    return workload
