"""Emitted kernels in a process of PyTorch: the cubin that `tilewright run --build-only --cache DIR` has
left, loaded through the CUDA driver and launched on PyTorch's stream, so that they are captured, timed
and checked as every other contestant is.
"""
import ctypes

import torch

_TYPES = {"f16": 6, "f32": 7, "bf16": 9}  # CU_TENSOR_MAP_DATA_TYPE_*
_SWIZZLE_128, _L2_256 = 3, 3  # CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute."""
    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int * 16)]


class _Config(ctypes.Structure):
    """CUlaunchConfig."""
    _fields_ = [*((name, ctypes.c_uint) for name in ("x", "y", "z", "threads", "threads_y", "threads_z", "shared")),
                ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(_Attribute)), ("count", ctypes.c_uint)]


def _driver():
    return ctypes.CDLL("libcuda.so.1")


def _check(driver, code, what):
    if code != 0:
        text = ctypes.c_char_p()
        driver.cuGetErrorString(code, ctypes.byref(text))
        raise RuntimeError(f"{what}: {(text.value or b'an unknown error').decode()}")


def _tensor_map(driver, told, tensor):
    """A CUtensorMap of one of a launch's "maps", in memory from a multiple of 64 bytes."""
    memory = ctypes.create_string_buffer(128 + 64)
    address = (ctypes.addressof(memory) + 63) // 64 * 64
    rank = len(told["extents"])
    extents, strides = (ctypes.c_uint64 * rank)(*told["extents"]), (ctypes.c_uint64 * (rank - 1))(*told["stride_bytes"])
    box, steps = (ctypes.c_uint32 * rank)(*told["box"]), (ctypes.c_uint32 * rank)(*told["steps"])
    _check(driver, driver.cuTensorMapEncodeTiled(
        ctypes.c_void_p(address), _TYPES[told["type"]], rank, ctypes.c_void_p(tensor.data_ptr()), extents, strides, box,
        steps, 0, _SWIZZLE_128, _L2_256, 0), f"boxes of {told['tensor']}")
    return memory, ctypes.c_void_p(address)


class Kernels:
    """The launches of one plan, in order. `answer` is the command's: "cubin", "launches" (kernel, blocks,
    threads, shared_bytes, cooperative, early, tensors, workspace, workspace_offset, maps) and "workspace_bytes"."""

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
        return sorted({t for launch in self.launches
                       for t in (*launch["tensors"], *(m["tensor"] for m in launch.get("maps", [])))})

    def run(self, tensors):
        """Enqueues all launches on the current stream. tensors: {name: torch.Tensor}."""
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        if self.workspace is not None:
            self.workspace.zero_()
        for launch, function in zip(self.launches, self.functions):
            pointers = [tensors[t].data_ptr() for t in launch["tensors"]]
            if launch["workspace"]:
                pointers.append(self.workspace.data_ptr() + launch["workspace_offset"])
            values = [ctypes.c_void_p(p) for p in pointers]
            maps = [_tensor_map(self.driver, m, tensors[m["tensor"]]) for m in launch.get("maps", [])]
            arguments = (ctypes.c_void_p * (len(values) + len(maps)))(
                *[ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in values], *[m[1] for m in maps])
            shape = [ctypes.c_uint(n) for n in
                     (int(launch["blocks"]), 1, 1, int(launch["threads"]), 1, 1, int(launch["shared_bytes"]))]
            if launch["cooperative"]:
                code = self.driver.cuLaunchCooperativeKernel(function, *shape, stream, arguments)
            elif launch.get("early"):
                attribute = _Attribute(_SERIALIZATION, 0, (1,))
                config = _Config(*shape, stream, ctypes.pointer(attribute), 1)
                code = self.driver.cuLaunchKernelEx(ctypes.byref(config), function, arguments, None)
            else:
                code = self.driver.cuLaunchKernel(function, *shape, stream, arguments, None)
            _check(self.driver, code, launch["kernel"])
