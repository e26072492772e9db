// Outer-product micro-kernels (Chimera §V-B, Algorithm 2), one record each, behind one interface:
// `multiply`, which covers any box with them.
#include <array>

#include "codegen/cpu/cpu.h"
#include "codegen/cpu/prelude.h"

namespace tilewright::cpu {
namespace {

constexpr std::array kKernels = {
    MicroKernel{"6x4", "Chimera's printed choice: 6 rows of 4 vectors, 24 accumulators", Isa::avx512,
                6, 4, 64, 6 * 4 + 4 + 2},
    MicroKernel{"scalar", "plain loops, one element at a time", Isa::avx512, 1, 1, 0, 0},
    MicroKernel{"6x2", "6 rows of 2 vectors: what 16 registers hold", Isa::avx2, 6, 2, 32,
                6 * 2 + 2 + 1},
    MicroKernel{"scalar", "plain loops, one element at a time", Isa::avx2, 1, 1, 0, 0},
    MicroKernel{"scalar", "plain loops, one element at a time", Isa::generic, 1, 1, 0, 0},
};

constexpr const char* kScalar = R"(
// C[i,j] += A[i,k] * B[k,j], as it is written. `fresh`: C starts from zero.
TILEWRIGHT_TARGET inline void multiply(int64_t rows, int64_t columns, int64_t depth, const Real* a,
                                       int64_t a_row, int64_t a_k, const Real* b, int64_t b_k,
                                       Real* c, int64_t c_row, bool fresh) {
  for (int64_t i = 0; i < rows; ++i) {
    Real* const out = c + i * c_row;
    for (int64_t j = 0; j < columns && fresh; ++j) out[j] = 0;
    for (int64_t k = 0; k < depth; ++k) {
      const Real x = a[i * a_row + k * a_k];
      const Real* const row = b + k * b_k;
      for (int64_t j = 0; j < columns; ++j) out[j] += x * row[j];
    }
  }
}
)";

constexpr const char* kOuterProduct = R"(
// The micro-kernel, Chimera's Algorithm 2: MI rows of NI vectors of C stay in registers while k runs
// (KI is whatever depth the box has); each step loads NI vectors of B, broadcasts MI elements of A
// and starts MI x NI fused multiply-adds. The last vector of a row may have only `last` elements
// that are C's: what B has beyond them is read and thrown away.
typedef Real Vector __attribute__((vector_size(VECTOR_BYTES)));
typedef Real Unaligned __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(Real)), may_alias));
constexpr int kLanes = VECTOR_BYTES / sizeof(Real);

template <int MI, int NI>
TILEWRIGHT_TARGET void outer_product(int64_t depth, const Real* a, int64_t a_row, int64_t a_k,
                                     const Real* b, int64_t b_k, Real* c, int64_t c_row,
                                     int64_t last, bool fresh) {
  Vector acc[MI][NI];
  const bool partial = last < kLanes;
#pragma GCC unroll 8
  for (int m = 0; m < MI; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < NI; ++n) {
      acc[m][n] = Vector{};
      if (fresh) continue;
      const Real* const from = c + m * c_row + n * kLanes;
      if (n == NI - 1 && partial) {
        Real edge[kLanes] = {};
        for (int64_t i = 0; i < last; ++i) edge[i] = from[i];
        acc[m][n] = *reinterpret_cast<const Unaligned*>(edge);
      } else {
        acc[m][n] = *reinterpret_cast<const Unaligned*>(from);
      }
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    Vector row[NI];
#pragma GCC unroll 8
    for (int n = 0; n < NI; ++n)
      row[n] = *reinterpret_cast<const Unaligned*>(b + k * b_k + n * kLanes);
#pragma GCC unroll 8
    for (int m = 0; m < MI; ++m) {
      const Real x = a[m * a_row + k * a_k];
#pragma GCC unroll 8
      for (int n = 0; n < NI; ++n) acc[m][n] += x * row[n];
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < MI; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < NI; ++n) {
      Real* const to = c + m * c_row + n * kLanes;
      if (n == NI - 1 && partial) {
        Real edge[kLanes];
        *reinterpret_cast<Unaligned*>(edge) = acc[m][n];
        for (int64_t i = 0; i < last; ++i) to[i] = edge[i];
      } else {
        *reinterpret_cast<Unaligned*>(to) = acc[m][n];
      }
    }
  }
}

// All rows of NI vectors of columns.
template <int NI>
TILEWRIGHT_TARGET void panel(int64_t rows, int64_t depth, const Real* a, int64_t a_row, int64_t a_k,
                             const Real* b, int64_t b_k, Real* c, int64_t c_row, int64_t last,
                             bool fresh) {
  int64_t i = 0;
  for (; i + ROWS <= rows; i += ROWS)
    outer_product<ROWS, NI>(depth, a + i * a_row, a_row, a_k, b, b_k, c + i * c_row, c_row, last,
                            fresh);
  a += i * a_row;
  c += i * c_row;
  switch (rows - i) {
)";

constexpr const char* kMultiply = R"(
// C[i,j] += A[i,k] * B[k,j] for any sizes. `fresh`: C starts from zero. b is read up to the next
// whole vector.
TILEWRIGHT_TARGET inline void multiply(int64_t rows, int64_t columns, int64_t depth, const Real* a,
                                       int64_t a_row, int64_t a_k, const Real* b, int64_t b_k,
                                       Real* c, int64_t c_row, bool fresh) {
  for (int64_t j = 0; j < columns; j += VECTORS * kLanes) {
    const int64_t width = min(VECTORS * kLanes, columns - j);
    const int64_t vectors = (width + kLanes - 1) / kLanes;
    const int64_t last = width - (vectors - 1) * kLanes;
    switch (vectors) {
)";

constexpr const char* kPack = R"(
// B[k,j] into rows of whole vectors, where its columns are not contiguous as they are.
inline void pack(int64_t columns, int64_t depth, const Real* b, int64_t b_k, int64_t b_column,
                 Real* packed, int64_t packed_k) {
  for (int64_t k = 0; k < depth; ++k)
    for (int64_t j = 0; j < columns; ++j) packed[k * packed_k + j] = b[k * b_k + j * b_column];
}
)";

std::string replaced(std::string text, std::string_view from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at))
    text.replace(at, from.size(), to), at += to.size();
  return text;
}

}  // namespace

std::span<const MicroKernel> micro_kernels() { return kKernels; }

Result<MicroKernel> micro_kernel_for(Isa isa, std::string_view name) {
  std::vector<std::string> known;
  for (const MicroKernel& k : kKernels) {
    if (k.isa != isa) continue;
    if (name.empty() || name == k.name) return k;
    known.emplace_back(k.name);
  }
  return Reason{"micro-kernel '" + std::string(name.substr(0, 40)) + "' is not available for " +
                std::string(name_of(isa)) + "; available: " + join(known)};
}

std::string target_attribute(Isa isa) {
  switch (isa) {
    case Isa::generic: return "";
    case Isa::avx2: return "__attribute__((target(\"avx2,fma\")))";
    case Isa::avx512:
      return "__attribute__((target(\"avx512f,avx512dq,avx512bw,avx512vl,avx2,fma\")))";
  }
  return "";
}

std::string micro_kernel_text(const MicroKernel& kernel, bool f64) {
  (void)f64;
  if (kernel.vector_bytes == 0) return std::string(kScalar) + kPack;
  const std::string rows = std::to_string(kernel.rows);
  const std::string vectors = std::to_string(kernel.vectors);
  std::string text =
      replaced(kOuterProduct, "VECTOR_BYTES", std::to_string(kernel.vector_bytes));
  text = replaced(text, "ROWS", rows);
  for (int r = 1; r < kernel.rows; ++r)
    text += "    case " + std::to_string(r) + ":\n      return outer_product<" + std::to_string(r) +
            ", NI>(depth, a, a_row, a_k, b, b_k, c, c_row, last, fresh);\n";
  text += "    default:\n      return;\n  }\n}\n";
  text += replaced(kMultiply, "VECTORS", vectors);
  for (int v = 1; v <= kernel.vectors; ++v)
    text += std::string(v == kernel.vectors ? "      default:\n" : "      case " +
            std::to_string(v) + ":\n") + "        panel<" + std::to_string(v) +
            ">(rows, depth, a, a_row, a_k, b + j, b_k, c + j, c_row, last, fresh);\n        break;\n";
  text += "    }\n  }\n}\n";
  return text + kPack;
}

}  // namespace tilewright::cpu
