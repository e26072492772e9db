// The cube: fractals of A and B become panels of floats once an instruction; each fractal of C is
// sixteen vectors of sums. A product of two f16 is exact in f32, so that a fused multiply-add and a
// multiplication followed by an addition round alike: every path below gives the same bits.
#include <algorithm>

#include "simulator/npu/half.h"
#include "simulator/npu/units.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define TILEWRIGHT_AVX512 __attribute__((target("avx512f")))
#define TILEWRIGHT_AVX2 __attribute__((target("avx2,fma")))
#endif

namespace tilewright::npu {
namespace {

constexpr std::size_t kSide = kFractal;
constexpr std::size_t kCells = kSide * kSide;
constexpr std::int64_t kMaxSide = 4096;  ///< more than any L0 holds

/// c[m][n] += sum over k of a[k][m] b[k][n], k ascending; c is a fractal of C.
using Kernel = void (*)(float* c, const float* a, const float* b, std::size_t k, bool accumulate);

void kernel_plain(float* c, const float* a, const float* b, std::size_t k, bool accumulate) {
  float sums[kCells];
  if (accumulate) {
    std::copy_n(c, kCells, sums);
  } else {
    std::fill_n(sums, kCells, 0.0F);
  }
  for (std::size_t i = 0; i < k; ++i) {
    for (std::size_t m = 0; m < kSide; ++m) {
      for (std::size_t n = 0; n < kSide; ++n) {
        sums[m * kSide + n] += a[i * kSide + m] * b[i * kSide + n];
      }
    }
  }
  std::copy_n(sums, kCells, c);
}

#if defined(__x86_64__)
TILEWRIGHT_AVX512 void kernel_avx512(float* c, const float* a, const float* b, std::size_t k,
                                     bool accumulate) {
  __m512 sums[kSide];
#pragma GCC unroll 16
  for (std::size_t m = 0; m < kSide; ++m) {
    sums[m] = accumulate ? _mm512_loadu_ps(c + m * kSide) : _mm512_setzero_ps();
  }
  for (std::size_t i = 0; i < k; ++i, a += kSide, b += kSide) {
    const __m512 row = _mm512_loadu_ps(b);
#pragma GCC unroll 16
    for (std::size_t m = 0; m < kSide; ++m) {
      sums[m] = _mm512_fmadd_ps(_mm512_set1_ps(a[m]), row, sums[m]);
    }
  }
#pragma GCC unroll 16
  for (std::size_t m = 0; m < kSide; ++m) _mm512_storeu_ps(c + m * kSide, sums[m]);
}

/// Four rows at a time: their sums are eight registers.
TILEWRIGHT_AVX2 void kernel_avx2(float* c, const float* a, const float* b, std::size_t k,
                                 bool accumulate) {
  constexpr std::size_t kRows = 4, kHalf = kSide / 2;
  for (std::size_t first = 0; first < kSide; first += kRows) {
    __m256 sums[kRows][2];
#pragma GCC unroll 4
    for (std::size_t m = 0; m < kRows; ++m) {
#pragma GCC unroll 2
      for (std::size_t h = 0; h < 2; ++h) {
        sums[m][h] =
            accumulate ? _mm256_loadu_ps(c + (first + m) * kSide + h * kHalf) : _mm256_setzero_ps();
      }
    }
    for (std::size_t i = 0; i < k; ++i) {
      const __m256 left = _mm256_loadu_ps(b + i * kSide);
      const __m256 right = _mm256_loadu_ps(b + i * kSide + kHalf);
#pragma GCC unroll 4
      for (std::size_t m = 0; m < kRows; ++m) {
        const __m256 x = _mm256_set1_ps(a[i * kSide + first + m]);
        sums[m][0] = _mm256_fmadd_ps(x, left, sums[m][0]);
        sums[m][1] = _mm256_fmadd_ps(x, right, sums[m][1]);
      }
    }
#pragma GCC unroll 4
    for (std::size_t m = 0; m < kRows; ++m) {
#pragma GCC unroll 2
      for (std::size_t h = 0; h < 2; ++h) {
        _mm256_storeu_ps(c + (first + m) * kSide + h * kHalf, sums[m][h]);
      }
    }
  }
}
#endif

Kernel fastest() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return kernel_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return kernel_avx2;
#endif
  return kernel_plain;
}

/// One row or column of fractals, `step` halves apart, as a panel [k][16].
void panel(const std::uint16_t* from, std::size_t step, std::size_t fractals, float* to) {
  std::uint16_t turned[kCells];
  for (std::size_t f = 0; f < fractals; ++f) {
    transpose_fractal(from + f * step, turned);
    floats_of_halves(turned, to + f * kCells, kCells);
  }
}

std::size_t fractals_of(std::int64_t extent) {
  return static_cast<std::size_t>(ceil_div(extent, kFractal));
}

}  // namespace

std::optional<Refusal> plan_mad(const NpuCore& core, const std::vector<Object>& objects,
                                const Instruction& i, Work& work) {
  constexpr const char* kNames[] = {"m", "n", "k"};
  for (std::size_t d = 0; d < 3; ++d) {
    if (i.v[3 + d] < 0 || i.v[3 + d] > kMaxSide) {
      return out_of_range(kNames[d], i.v[3 + d], 0, kMaxSide);
    }
  }
  const std::int64_t m = i.v[3], n = i.v[4], k = i.v[5];
  work.cycles = core.cube_startup;
  if (m == 0 || n == 0 || k == 0) return std::nullopt;
  const auto wide = [](std::int64_t extent) { return ceil_div(extent, kFractal) * kFractal; };
  const std::int64_t elements[] = {wide(m) * wide(n), wide(m) * wide(k), wide(k) * wide(n)};
  for (std::size_t o = 0; o < 3; ++o) {
    const Object& object = objects[static_cast<std::size_t>(i.of->objects[o])];
    if (auto bad = check_offset(objects, i.of->objects[o], i.v[o], alignment_of(object.memory))) {
      return bad;
    }
  }
  const auto touch = [&](std::size_t o, bool write) {
    const int object = i.of->objects[o];
    const std::int64_t size = objects[static_cast<std::size_t>(object)].element();
    work.touches.push_back(
        {.object = object, .start = i.v[o] * size, .bytes = elements[o] * size, .write = write});
  };
  touch(1, false);
  touch(2, false);
  if (i.v[6] != 0) touch(0, false);
  touch(0, true);
  work.macs = wide(m) * wide(n) * wide(k);
  work.useful_macs = m * n * k;
  work.cycles += work.macs / kMacsPerCycle;
  return check_bounds(objects, work);
}

void do_mad(const std::vector<Object>& objects, const Bases& bases, const Instruction& i,
            std::vector<float>& room) {
  static const Kernel kernel = fastest();
  const auto at = [&](std::size_t o) {
    const auto object = static_cast<std::size_t>(i.of->objects[o]);
    return bases[object] + i.v[o] * objects[object].element();
  };
  const std::size_t m = fractals_of(i.v[3]), n = fractals_of(i.v[4]), k = fractals_of(i.v[5]);
  if (m * n * k == 0) return;
  auto* const c = reinterpret_cast<float*>(at(0));
  const auto* const a = reinterpret_cast<const std::uint16_t*>(at(1));
  const auto* const b = reinterpret_cast<const std::uint16_t*>(at(2));
  room.resize((m + 1) * k * kCells);
  float* const b_panel = room.data() + m * k * kCells;
  for (std::size_t row = 0; row < m; ++row) {
    panel(a + row * k * kCells, kCells, k, room.data() + row * k * kCells);
  }
  for (std::size_t column = 0; column < n; ++column) {
    panel(b + column * kCells, n * kCells, k, b_panel);
    for (std::size_t row = 0; row < m; ++row) {
      kernel(c + (column * m + row) * kCells, room.data() + row * k * kCells, b_panel, k * kSide,
             i.v[6] != 0);
    }
  }
}

}  // namespace tilewright::npu
