"""Emitted kernels in a process of PyTorch: the cubin that `tilewright run --build-only --cache DIR` has
left, loaded through the CUDA driver and launched on PyTorch's stream, so that they are captured, timed
and checked as every other contestant is.
"""
import ctypes

import torch

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


def _driver():
    return ctypes.CDLL("libcuda.so.1")


def _check(driver, code, what):
    if code != 0:
        text = ctypes.c_char_p()
        driver.cuGetErrorString(code, ctypes.byref(text))
        raise RuntimeError(f"{what}: {(text.value or b'an unknown error').decode()}")


class Kernels:
    """The launches of one plan, in order. `answer` is the command's: "cubin", "launches" (kernel, blocks,
    threads, shared_bytes, cooperative, tensors, workspace) and "workspace_bytes"."""

    def __init__(self, answer):
        torch.cuda.init()
        torch.cuda.current_stream().synchronize()  # makes the primary context current here
        self.driver = _driver()
        self.module = ctypes.c_void_p()
        image = open(answer["cubin"], "rb").read()
        _check(self.driver, self.driver.cuModuleLoadData(ctypes.byref(self.module), image),
               "loading the cubin")
        self.launches, self.functions = answer["launches"], []
        for launch in self.launches:
            function = ctypes.c_void_p()
            _check(self.driver, self.driver.cuModuleGetFunction(
                ctypes.byref(function), self.module, launch["kernel"].encode()), launch["kernel"])
            _check(self.driver, self.driver.cuFuncSetAttribute(
                function, _MAX_DYNAMIC_SHARED, int(launch["shared_bytes"])), launch["kernel"])
            self.functions.append(function)
        bytes_ = int(answer.get("workspace_bytes", 0))
        self.workspace = torch.zeros(bytes_, dtype=torch.uint8, device="cuda") if bytes_ else None

    def tensors(self):
        """Names of all that the launches read or write at home."""
        return sorted({t for launch in self.launches for t in launch["tensors"]})

    def run(self, tensors):
        """Enqueues all launches on the current stream. tensors: {name: torch.Tensor}."""
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        if self.workspace is not None:
            self.workspace.zero_()
        for launch, function in zip(self.launches, self.functions):
            pointers = [tensors[t].data_ptr() for t in launch["tensors"]]
            if launch["workspace"]:
                pointers.append(self.workspace.data_ptr())
            values = [ctypes.c_void_p(p) for p in pointers]
            arguments = (ctypes.c_void_p * len(values))(
                *[ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in values])
            shape = [ctypes.c_uint(n) for n in
                     (int(launch["blocks"]), 1, 1, int(launch["threads"]), 1, 1, int(launch["shared_bytes"]))]
            if launch["cooperative"]:
                code = self.driver.cuLaunchCooperativeKernel(function, *shape, stream, arguments)
            else:
                code = self.driver.cuLaunchKernel(function, *shape, stream, arguments, None)
            _check(self.driver, code, launch["kernel"])
