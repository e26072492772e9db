// Which micro-kernels there are, and which suits a product (Chimera, section V-B).
#include <algorithm>
#include <array>
#include <bit>

#include "codegen/cpu/cpu.h"
#include "core/lowering/register_blocks.h"

namespace tilewright::cpu {
namespace {

constexpr int kBroadcast = 1;  // MII: registers that elements of A are broadcast into

constexpr MicroKernel outer_product(std::string_view name, std::string_view summary, Isa isa,
                                    int rows, int vectors, int vector_bytes) {
  return {name, summary, isa, rows, vectors, vector_bytes, rows * vectors + vectors + kBroadcast};
}

constexpr std::array kKernels = {
    outer_product("6x4", "Chimera's printed choice: 24 accumulators", Isa::avx512, 6, 4, 64),
    outer_product("5x5", "the most operations a loaded element in 32 registers: 25 accumulators",
                  Isa::avx512, 5, 5, 64),
    outer_product("8x3", "rows of few groups: the right operand is read once for eight of them",
                  Isa::avx512, 8, 3, 64),
    MicroKernel{"scalar", "the naive loop nest, as the compiler vectorises it", Isa::avx512, 1, 1,
                0, 0},
    outer_product("6x2", "6 rows of 2 vectors: 12 accumulators", Isa::avx2, 6, 2, 32),
    outer_product("4x3", "the most operations a loaded element in 16 registers: 12 accumulators",
                  Isa::avx2, 4, 3, 32),
    MicroKernel{"scalar", "the naive loop nest, as the compiler vectorises it", Isa::avx2, 1, 1, 0,
                0},
    MicroKernel{"scalar", "the naive loop nest, as the compiler vectorises it", Isa::generic, 1, 1,
                0, 0},
};

/// Dot products of pairs and quads run on the micro-kernels of their vectors.
Isa vectors_of(Isa isa) {
  const bool together = isa == Isa::avx512_bf16 || isa == Isa::avx512_vnni || isa == Isa::amx_int8;
  return together ? Isa::avx512 : isa;
}

}  // namespace

std::span<const MicroKernel> micro_kernels() { return kKernels; }

std::vector<RankedMicroKernel> rank_micro_kernels(int registers, std::int64_t depth,
                                                  int broadcast_registers, bool powers_of_two) {
  std::vector<RankedMicroKernel> found;
  for (int n = 1; n <= registers; ++n)
    for (int m = 1; m * n + n + broadcast_registers <= registers; ++m) {
      if (powers_of_two && !std::has_single_bit(static_cast<unsigned>(n))) continue;
      const double products = static_cast<double>(m) * n;
      const double k = static_cast<double>(depth);
      const double intensity =
          depth == 0 ? products / (m + n) : products * k / (k * (m + n) + 2 * products);
      found.push_back({m, n, m * n + n + broadcast_registers, intensity});
    }
  std::ranges::stable_sort(found, [](const RankedMicroKernel& a, const RankedMicroKernel& b) {
    return std::pair(-a.intensity, a.registers) < std::pair(-b.intensity, b.registers);
  });
  return found;
}

Result<MicroKernel> micro_kernel_for(Isa isa, std::string_view name) {
  isa = vectors_of(isa);
  std::vector<std::string> known;
  for (const MicroKernel& k : kKernels) {
    if (k.isa != isa) continue;
    if (name.empty() || name == k.name) return k;
    known.emplace_back(k.name);
  }
  return Reason{"micro-kernel '" + std::string(name.substr(0, 40)) + "' is not available for " +
                std::string(name_of(isa)) + "; available: " + join(known)};
}

MicroKernel micro_kernel_fitting(Isa isa, std::int64_t rows, std::int64_t columns,
                                 std::int64_t depth, std::int64_t element_bytes) {
  isa = vectors_of(isa);
  std::vector<const MicroKernel*> kernels;
  std::vector<RegisterBlock> blocks;
  for (const MicroKernel& k : kKernels) {
    if (k.isa != isa || (k.vector_bytes == 0 && !kernels.empty())) continue;
    kernels.push_back(&k), blocks.push_back({k.rows, k.vectors});
  }
  TW_CHECK(!kernels.empty(), "an instruction set without a micro-kernel");
  const std::int64_t lanes =
      std::max<std::int64_t>(1, kernels.front()->vector_bytes / element_bytes);
  return *kernels[block_fitting(blocks, rows, ceil_div(std::max<std::int64_t>(columns, 1), lanes),
                                std::max<std::int64_t>(depth, 1))];
}

}  // namespace tilewright::cpu
