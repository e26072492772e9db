#include "codegen/micro_kernels.h"

#include <algorithm>

#include "codegen/cpu/cpu.h"
#include "codegen/cuda/cuda.h"
#include "codegen/npu/npu.h"
#include "core/base/error.h"

namespace tilewright::codegen {
namespace {

MicroKernelRecord record_of(const cpu::MicroKernel& m) {
  const bool vectors = m.vector_bytes > 0;
  return {
      .target = "cpu",
      .variant = cpu::name_of(m.isa),
      .name = m.name,
      .summary = m.summary,
      .types = {DType::f32, DType::f64, DType::bf16},
      .block = vectors ? std::to_string(m.rows) + " rows of " + std::to_string(m.vectors) +
                             " vectors of " + std::to_string(m.vector_bytes) + " bytes"
                       : "one element",
      .operands =
          std::string("in the cache, packed or in place: A and C by rows of any stride, B by "
                      "rows of contiguous columns; bf16 as f32"),
      .needs = m.isa == cpu::Isa::generic
                   ? ""
                   : std::string(cpu::name_of(m.isa)) +
                         (vectors ? ", " + std::to_string(m.registers) + " vector registers" : ""),
      .runs_here = cpu::host_runs(m.isa)};
}

MicroKernelRecord record_of(const cuda::MicroKernel& m) {
  MicroKernelRecord r{.target = "cuda",
                      .variant = "",
                      .name = m.name,
                      .summary = m.summary,
                      .block = m.fragments ? "blocks of 16 x 8 a warp" : "blocks of 32 x 32 a warp",
                      .operands = std::string("in shared memory, either way round, rows ") +
                                  (m.plain_rows ? "padded" : "swizzled") + "; sums in " +
                                  (m.fragments ? "registers" : "shared memory"),
                      .needs = m.matrix ? "tensor cores" : ""};
  for (DType t : {DType::f16, DType::bf16, DType::f32})
    if (m.takes(t)) r.types.push_back(t);
  return r;
}

MicroKernelRecord record_of(const npu::MicroKernel& m) {
  const std::string lanes = std::to_string(m.lanes);
  return {.target = "npu",
          .variant = "",
          .name = m.name,
          .summary = m.summary,
          .types = {DType::f16},
          .block = "fractals of " + lanes + " x " + lanes,
          .operands = "A in L0A, B in L0B, sums in L0C, all in fractals; sums are f32",
          .needs = "a cube unit"};
}

}  // namespace

std::vector<MicroKernelRecord> micro_kernel_records() {
  std::vector<MicroKernelRecord> all;
  for (const auto& m : cpu::micro_kernels()) all.push_back(record_of(m));
  for (const auto& m : cuda::micro_kernels()) all.push_back(record_of(m));
  for (const auto& m : npu::micro_kernels()) all.push_back(record_of(m));
  return all;
}

OptionSpec micro_kernel_option(std::string_view target) {
  std::vector<std::string> names;
  for (const MicroKernelRecord& r : micro_kernel_records()) {
    std::string name(r.name);
    if (r.target == target && std::ranges::find(names, name) == names.end())
      names.push_back(std::move(name));
  }
  return {.name = "micro-kernel",
          .accepted = join(names),
          .fallback = "the one that fits each product",
          .value = "NAME",
          .help = "the kernel of matrix products: " + join(names)};
}

void check_micro_kernel(std::string_view target, std::string_view variant,
                        const std::optional<std::string>& name) {
  if (!name) return;
  std::vector<std::string> names;
  for (const MicroKernelRecord& r : micro_kernel_records())
    if (r.target == target && r.variant == variant) names.emplace_back(r.name);
  if (std::ranges::find(names, *name) != names.end()) return;
  throw InputError(
      {.where = "--micro-kernel",
       .value = name->empty() ? "an empty text" : *name,
       .problem = "is not a micro-kernel for " + std::string(variant.empty() ? target : variant),
       .accepted = join(names)});
}

}  // namespace tilewright::codegen
