// Rows of packed words in order of use, as vectors: sixteen ways are one, so that finding a line is
// a comparison or two and moving it to the front a rotation. By each set of instructions that has
// them.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#define TILEWRIGHT_AVX512 __attribute__((target("avx512f,bmi"), always_inline)) inline
#define TILEWRIGHT_AVX2 __attribute__((target("avx2,bmi"), always_inline)) inline

namespace tilewright::cache {

inline constexpr std::size_t kVector = 16;

struct Avx512 {
  using Vector = __m512i;
  TILEWRIGHT_AVX512 static Vector all(std::uint32_t word) {
    return _mm512_set1_epi32(static_cast<int>(word));
  }

  /// A row of kVectors vectors in `held`; returns which of its ways hold a line, as bits.
  template <int kVectors>
  TILEWRIGHT_AVX512 static std::uint32_t find(const std::uint32_t* row, Vector wanted, Vector meta,
                                              Vector (&held)[kVectors]) {
    std::uint32_t found = 0;
    for (int v = 0; v < kVectors; ++v) {
      held[v] = _mm512_load_si512(row + v * kVector);
      const __mmask16 is = _mm512_cmple_epu32_mask(_mm512_xor_si512(held[v], wanted), meta);
      found |= static_cast<std::uint32_t>(is) << (16 * v);
    }
    return found;
  }

  /// Ways of `moves`, the first ones, each take what was before it, the first one `word`.
  template <int kVectors>
  TILEWRIGHT_AVX512 static void rotate(std::uint32_t* row, const Vector (&held)[kVectors],
                                       std::uint32_t moves, std::uint32_t word) {
    Vector before = all(word);
    for (int v = 0; v < kVectors; ++v) {
      const auto which = static_cast<__mmask16>(moves >> (16 * v));
      _mm512_store_si512(row + v * kVector,
                         _mm512_mask_alignr_epi32(held[v], which, held[v], before, 15));
      before = held[v];
    }
  }
};

/// The same by two halves.
struct Avx2 {
  struct Vector {
    __m256i half[2];
  };
  TILEWRIGHT_AVX2 static Vector all(std::uint32_t word) {
    const __m256i half = _mm256_set1_epi32(static_cast<int>(word));
    return {{half, half}};
  }

  template <int kVectors>
  TILEWRIGHT_AVX2 static std::uint32_t find(const std::uint32_t* row, Vector wanted, Vector meta,
                                            Vector (&held)[kVectors]) {
    std::uint32_t found = 0;
    for (int v = 0; v < kVectors; ++v)
      for (int h = 0; h < 2; ++h) {
        const std::size_t at = v * kVector + h * (kVector / 2);
        held[v].half[h] = _mm256_load_si256(reinterpret_cast<const __m256i*>(row + at));
        const __m256i differs = _mm256_xor_si256(held[v].half[h], wanted.half[h]);
        // No comparison of numbers without a sign: at most meta where the lesser of both is itself.
        const __m256i is = _mm256_cmpeq_epi32(_mm256_min_epu32(differs, meta.half[h]), differs);
        found |= static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(is))) << at;
      }
    return found;
  }

  template <int kVectors>
  TILEWRIGHT_AVX2 static void rotate(std::uint32_t* row, const Vector (&held)[kVectors],
                                     std::uint32_t moves, std::uint32_t word) {
    const __m256i back = _mm256_setr_epi32(7, 0, 1, 2, 3, 4, 5, 6);
    const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    __m256i before = all(word).half[0];
    for (int i = 0; i < 2 * kVectors; ++i) {
      const std::uint32_t which = moves >> (8 * i) & 255;
      if (which == 0) return;  // nor do ways behind these move
      const __m256i here = held[i / 2].half[i % 2];
      const __m256i turned = _mm256_permutevar8x32_epi32(here, back);
      const __m256i move = _mm256_cmpeq_epi32(_mm256_and_si256(all(which).half[0], bits), bits);
      _mm256_store_si256(reinterpret_cast<__m256i*>(row + i * 8),
                         _mm256_blendv_epi8(here, _mm256_blend_epi32(turned, before, 1), move));
      before = turned;  // its first word is the last one of these ways
    }
  }
};

}  // namespace tilewright::cache
