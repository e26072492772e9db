// Targets: which there are, and whether they are usable here.
#include <cstdlib>
#include <thread>
#include <vector>

#include "codegen/cpu/cpu.h"
#include "codegen/cpu/options.h"
#include "codegen/cuda/options.h"
#include "codegen/npu/options.h"
#include "core/base/toolchain.h"
#include "harness/registry.h"
#include "harness/run_cuda.h"

namespace tilewright::harness {
namespace {

Availability cpu_here() {
  std::vector<std::string> compilers = {"c++", "g++", "clang++"};
  if (const char* cxx = std::getenv("CXX"); cxx && *cxx) compilers = {cxx};
  for (const std::string& c : compilers)
    if (const auto found = find_program(c); !found.empty())
      return {.usable = true,
              .detail = found.string() + ", " + std::string(cpu::name_of(cpu::host_isa())) + ", " +
                        std::to_string(std::thread::hardware_concurrency()) + " threads"};
  return {.reason = "no C++ compiler on the PATH (looked for " + join(compilers) + ")"};
}

Availability npu_here() {
  return {.usable = true, .detail = "emulated on this CPU: programs run on simulator/npu, on no device"};
}

}  // namespace

std::span<const TargetRecord> targets() {
  static const TargetRecord all[] = {
      {"cpu", "C++ for the host with AVX-512 or AVX2 outer-product micro-kernels", cpu_here,
       cpu::option_specs()},
      {"cuda", "CUDA for NVIDIA GPUs, built with nvcc or NVRTC, run through the driver", cuda_here,
       cuda::option_specs()},
      {"cuda-emulated", "the same CUDA text executed on the CPU, its faults and races found",
       cuda_emulated_here, cuda::emulated_option_specs()},
      {"npu", "assembly for the cores of an emulated Ascend-like NPU", npu_here,
       npu::option_specs()},
  };
  return all;
}

const TargetRecord& find_target(std::string_view name) {
  std::vector<std::string> names;
  for (const TargetRecord& t : targets()) {
    if (t.name == name) return t;
    names.emplace_back(t.name);
  }
  throw InputError({.where = "--target",
                    .value = name.empty() ? "nothing" : std::string(name),
                    .problem = "is no target",
                    .accepted = join(names)});
}

}  // namespace tilewright::harness
