// The matrix instructions of a warp. Operands are f16, bf16 or TF32; their products are exact in
// f32, and sums are f32, rounded to nearest at every addition, in the order of k, starting from the
// accumulator. A tensor core adds several products at once with truncation of its own: results
// agree to rounding, not to the bit.
#include <cstring>
#include <utility>

#include "core/base/format.h"
#include "simulator/cuda_host/device/tilewright_half.h"
#include "simulator/cuda_host/engine.h"

namespace tilewright::cuda_host {

namespace {

/// float_of_f16 of every bit pattern.
const std::array<float, 65536>& f16_table() {
  static const std::array<float, 65536> table = [] {
    std::array<float, 65536> t{};
    for (unsigned i = 0; i < t.size(); ++i)
      t[i] = tw_half::float_of_f16(static_cast<std::uint16_t>(i));
    return t;
  }();
  return table;
}

struct Pair {
  float low, high;
};
Pair unpack(std::uint32_t bits, bool bfloat) {
  if (bfloat)
    return {tw_half::float_of_bits(bits << 16), tw_half::float_of_bits(bits & 0xffff0000u)};
  const std::array<float, 65536>& table = f16_table();
  return {table[bits & 0xffffu], table[bits >> 16]};
}

/// d[rows x columns] += a[rows x depth] * b[depth x columns].
template <int kRows, int kColumns, int kDepth>
void multiply_add(float (&d)[kRows][kColumns], const float (&a)[kRows][kDepth],
                  const float (&b)[kDepth][kColumns]) {
  for (int i = 0; i < kRows; ++i)
    for (int k = 0; k < kDepth; ++k)
      for (int j = 0; j < kColumns; ++j) d[i][j] += a[i][k] * b[k][j];
}

/// The sums of 16 x 8 that a warp's lanes have in four registers each, as mma.sync has them.
template <int kDepth>
void add_products(const Warp& w, const float (&left)[16][kDepth], const float (&right)[kDepth][8]) {
  float sums[16][8];
  const auto rows = [&](std::size_t lane) {
    const std::size_t g = lane / 4, t = lane % 4 * 2;
    return std::pair(&sums[g][t], &sums[g + 8][t]);
  };
  for (std::size_t lane = 0; lane < kWarp; ++lane) {
    const auto* const s = static_cast<const float*>(w.operands[lane].out);
    std::memcpy(rows(lane).first, s, 8);
    std::memcpy(rows(lane).second, s + 2, 8);
  }
  multiply_add(sums, left, right);
  for (std::size_t lane = 0; lane < kWarp; ++lane) {
    auto* const s = static_cast<float*>(w.operands[lane].out);
    std::memcpy(s, rows(lane).first, 8);
    std::memcpy(s + 2, rows(lane).second, 8);
  }
}

// Fragments of wmma have a layout of our own: element e = row * 16 + column lies in lane e / 8,
// slot e % 8; operands keep two slots a register in r[0..3], and in r[7] how they were loaded.
constexpr std::uint32_t kLoaded = 0x57410000u;
std::uint32_t tag(bool is_b, bool transposed) {
  return kLoaded | static_cast<std::uint32_t>(is_b) << 1 | static_cast<std::uint32_t>(transposed);
}

}  // namespace

void Engine::ldmatrix4(Fiber& f, std::uint32_t* r, const void* row, bool transposed,
                       std::uint32_t place) {
  // A lane's row is checked as the lane comes, so that the finding names it.
  const std::int64_t offset = shared_offset(f, row, 16, 16, false, place, "ldmatrix reads");
  if (offset >= 0) read_shared(f, offset, 16, place);
  if (!meet(f, Collective::ldmatrix, transposed,
            {.out = r, .in = offset >= 0 ? row : nullptr, .place = place}))
    return;
  const Warp& w = f.owner->warps[static_cast<std::size_t>(f.warp())];
  std::uint16_t matrix[4][8][8] = {};
  for (std::size_t lane = 0; lane < kWarp; ++lane)
    if (w.operands[lane].in != nullptr)
      std::memcpy(matrix[lane / 8][lane % 8], w.operands[lane].in, 16);
  for (std::size_t lane = 0; lane < kWarp; ++lane) {
    if (w.operands[lane].out == nullptr) continue;
    auto* const out = static_cast<std::uint32_t*>(w.operands[lane].out);
    const std::size_t g = lane / 4, t = lane % 4 * 2;
    for (std::size_t j = 0; j < 4; ++j) {
      const std::uint32_t low = transposed ? matrix[j][t][g] : matrix[j][g][t];
      const std::uint32_t high = transposed ? matrix[j][t + 1][g] : matrix[j][g][t + 1];
      out[j] = low | high << 16;
    }
  }
  ++counts_->ldmatrix;
  release(f);
}

void Engine::stmatrix4_transposed(Fiber& f, void* row, const std::uint32_t* r,
                                  std::uint32_t place) {
  const std::int64_t offset = shared_offset(f, row, 16, 16, true, place, "stmatrix writes");
  if (offset >= 0) write_shared(f, offset, 16, place);
  if (!meet(f, Collective::stmatrix, 0,
            {.out = offset >= 0 ? row : nullptr, .in = r, .place = place}))
    return;
  const Warp& w = f.owner->warps[static_cast<std::size_t>(f.warp())];
  std::uint16_t matrix[4][8][8];
  for (std::size_t lane = 0; lane < kWarp; ++lane) {
    const auto* const in = static_cast<const std::uint32_t*>(w.operands[lane].in);
    const std::size_t g = lane / 4, t = lane % 4 * 2;
    for (std::size_t j = 0; j < 4; ++j) {
      matrix[j][t][g] = static_cast<std::uint16_t>(in[j]);
      matrix[j][t + 1][g] = static_cast<std::uint16_t>(in[j] >> 16);
    }
  }
  for (std::size_t lane = 0; lane < kWarp; ++lane)
    if (w.operands[lane].out != nullptr)
      std::memcpy(w.operands[lane].out, matrix[lane / 8][lane % 8], 16);
  release(f);
}

void Engine::mma(Fiber& f, float* d, const std::uint32_t* a, std::uint32_t b0, std::uint32_t b1,
                 bool bfloat, std::uint32_t place) {
  if (!meet(f, Collective::mma, bfloat,
            {.out = d, .in = a, .value = b0, .value2 = b1, .place = place}))
    return;
  const Warp& w = f.owner->warps[static_cast<std::size_t>(f.warp())];
  float left[16][16], right[16][8];
  const auto part = [&](std::size_t row, std::size_t column, std::uint32_t bits) {
    const Pair p = unpack(bits, bfloat);
    left[row][column] = p.low;
    left[row][column + 1] = p.high;
  };
  for (std::size_t lane = 0; lane < kWarp; ++lane) {
    const std::size_t g = lane / 4, t = lane % 4 * 2;
    const Operand& o = w.operands[lane];
    const auto* const l = static_cast<const std::uint32_t*>(o.in);
    part(g, t, l[0]);
    part(g + 8, t, l[1]);
    part(g, t + 8, l[2]);
    part(g + 8, t + 8, l[3]);
    const Pair low = unpack(o.value, bfloat), high = unpack(o.value2, bfloat);
    right[t][g] = low.low;
    right[t + 1][g] = low.high;
    right[t + 8][g] = high.low;
    right[t + 9][g] = high.high;
  }
  add_products(w, left, right);
  ++counts_->mma;
  release(f);
}

void Engine::mma_tf32(Fiber& f, float* d, const std::uint32_t* a, std::uint32_t b0,
                      std::uint32_t b1, std::uint32_t place) {
  constexpr int kTf32 = 2;
  if (!meet(f, Collective::mma, kTf32,
            {.out = d, .in = a, .value = b0, .value2 = b1, .place = place}))
    return;
  const auto number = [](std::uint32_t bits) { return tw_half::float_of_bits(bits & 0xffffe000u); };
  const Warp& w = f.owner->warps[static_cast<std::size_t>(f.warp())];
  float left[16][8], right[8][8];
  for (std::size_t lane = 0; lane < kWarp; ++lane) {
    const std::size_t g = lane / 4, t = lane % 4;
    const Operand& o = w.operands[lane];
    const auto* const l = static_cast<const std::uint32_t*>(o.in);
    left[g][t] = number(l[0]);
    left[g + 8][t] = number(l[1]);
    left[g][t + 4] = number(l[2]);
    left[g + 8][t + 4] = number(l[3]);
    right[t][g] = number(o.value);
    right[t + 4][g] = number(o.value2);
  }
  add_products(w, left, right);
  ++counts_->mma;
  release(f);
}

namespace {

/// What wmma asks of an address and of a stride, in bytes (PTX, wmma.load). Empty where all is
/// well.
std::string wmma_fault(std::int64_t offset, int stride, int element_bytes) {
  if (stride <= 0 || stride * element_bytes % 16 != 0)
    return formatted("has a wmma stride of {} elements, which is not a multiple of {}", stride,
                     16 / element_bytes);
  if (offset % 32 != 0)
    return formatted("gives wmma byte {} of shared memory, which is not a multiple of 32", offset);
  return {};
}

}  // namespace

void Engine::wmma_load(Fiber& f, std::uint32_t* r, const void* p, int stride, bool is_b,
                       bool transposed, std::uint32_t place) {
  const int variant = (is_b ? 2 : 0) | (transposed ? 1 : 0);
  const std::int64_t bytes = 2 * (15 * static_cast<std::int64_t>(stride) + 16);
  const std::int64_t offset = shared_offset(f, p, bytes, 2, false, place, "a wmma load reads");
  std::memset(r, 0, 32);
  if (offset >= 0) {
    if (const std::string fault = wmma_fault(offset, stride, 2); !fault.empty())
      report(f, Fault::misaligned, place, fault);
    std::uint16_t element[8];
    const std::int64_t row = f.lane() / 2, column = f.lane() % 2 * 8;
    for (int i = 0; i < 8; ++i) {
      const std::int64_t at = transposed ? (column + i) * stride + row : row * stride + column + i;
      if (transposed || i == 0) read_shared(f, offset + 2 * at, transposed ? 2 : 16, place);
      std::memcpy(&element[i], f.owner->shared + offset + 2 * at, 2);
    }
    std::memcpy(r, element, 16);
  }
  r[7] = tag(is_b, transposed);
  if (!meet(f, Collective::wmma_load, variant, {.place = place})) return;
  ++counts_->wmma;
  release(f);
}

void Engine::wmma_sums(Fiber& f, float* r, float* p, int stride, bool store, std::uint32_t place) {
  const std::int64_t bytes = 4 * (15 * static_cast<std::int64_t>(stride) + 16);
  const std::int64_t offset = shared_offset(
      f, p, bytes, 4, store, place, store ? "wmma_store_sums writes" : "wmma_load_sums reads");
  if (offset >= 0) {
    if (const std::string fault = wmma_fault(offset, stride, 4); !fault.empty())
      report(f, Fault::misaligned, place, fault);
    const std::int64_t at =
        offset + 4 * (f.lane() / 2 * static_cast<std::int64_t>(stride) + f.lane() % 2 * 8);
    store ? write_shared(f, at, 32, place) : read_shared(f, at, 32, place);
    unsigned char* const memory = f.owner->shared + at;
    store ? std::memcpy(memory, r, 32) : std::memcpy(r, memory, 32);
  }
  const Collective kind = store ? Collective::wmma_store_sums : Collective::wmma_load_sums;
  if (!meet(f, kind, 0, {.place = place})) return;
  ++counts_->wmma;
  release(f);
}

void Engine::wmma_multiply(Fiber& f, float* s, const std::uint32_t* a, const std::uint32_t* b,
                           bool a_transposed, bool b_transposed, std::uint32_t place) {
  if (a[7] != tag(false, a_transposed) || b[7] != tag(true, b_transposed))
    report(f, Fault::bad_argument, place,
           "multiplies operands that were not loaded, or loaded as the other side or layout");
  const int variant = (a_transposed ? 2 : 0) | (b_transposed ? 1 : 0);
  if (!meet(f, Collective::wmma_multiply, variant, {.out = s, .in = a, .in2 = b, .place = place}))
    return;
  const Warp& w = f.owner->warps[static_cast<std::size_t>(f.warp())];
  float left[16][16], right[16][16], sums[16][16];
  for (std::size_t lane = 0; lane < kWarp; ++lane) {
    const Operand& o = w.operands[lane];
    const std::size_t row = lane / 2, column = lane % 2 * 8;
    for (std::size_t i = 0; i < 4; ++i) {
      const Pair l = unpack(static_cast<const std::uint32_t*>(o.in)[i], false);
      const Pair q = unpack(static_cast<const std::uint32_t*>(o.in2)[i], false);
      left[row][column + 2 * i] = l.low;
      left[row][column + 2 * i + 1] = l.high;
      right[row][column + 2 * i] = q.low;
      right[row][column + 2 * i + 1] = q.high;
    }
    std::memcpy(&sums[row][column], o.out, 32);
  }
  multiply_add(sums, left, right);
  for (std::size_t lane = 0; lane < kWarp; ++lane)
    std::memcpy(w.operands[lane].out, &sums[lane / 2][lane % 2 * 8], 32);
  ++counts_->wmma;
  release(f);
}

}  // namespace tilewright::cuda_host
