// Rows of packed words in order of use, as vectors: sixteen ways are one, so that finding a line is
// one comparison and moving it to the front one rotation.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#define TILEWRIGHT_AVX512 __attribute__((target("avx512f,bmi")))

namespace tilewright::cache {

inline constexpr std::size_t kVector = 16;

/// A row of kVectors vectors in `held`; returns which of its ways hold a line, as bits.
template <int kVectors>
TILEWRIGHT_AVX512 __attribute__((always_inline)) inline std::uint32_t find(
    const std::uint32_t* row, __m512i wanted, __m512i meta, __m512i (&held)[kVectors]) {
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
TILEWRIGHT_AVX512 __attribute__((always_inline)) inline void rotate(std::uint32_t* row,
                                                                    const __m512i (&held)[kVectors],
                                                                    std::uint32_t moves,
                                                                    std::uint32_t word) {
  __m512i before = _mm512_set1_epi32(static_cast<int>(word));
  for (int v = 0; v < kVectors; ++v) {
    const auto which = static_cast<__mmask16>(moves >> (16 * v));
    _mm512_store_si512(row + v * kVector,
                       _mm512_mask_alignr_epi32(held[v], which, held[v], before, 15));
    before = held[v];
  }
}

/// Moves `wanted` to the front of a row, whether it was there or not: there are no branches on
/// it, which nobody could predict. Returns which way held it, as a bit; `last` was the last way.
template <int kVectors>
TILEWRIGHT_AVX512 __attribute__((always_inline)) inline std::uint32_t to_the_front(
    std::uint32_t* row, std::uint32_t wanted, std::uint32_t meta, bool write, std::size_t ways,
    std::uint32_t& last) {
  __m512i held[kVectors];
  const std::uint32_t found = find<kVectors>(row, _mm512_set1_epi32(static_cast<int>(wanted)),
                                             _mm512_set1_epi32(static_cast<int>(meta)), held);
  last = row[ways - 1];
  // Ways up to the one found, or all of them.
  const std::uint32_t moves = (found ^ (found - 1)) & (~std::uint32_t{0} >> (32 - ways));
  std::uint32_t now = wanted;
  if (!write) {  // a hit keeps what was known of the line
    const std::uint32_t there = row[__builtin_ctz(found | 1u << (16 * kVectors - 1))];
    now = found != 0 ? there : wanted;
  }
  rotate<kVectors>(row, held, moves, now);
  return found;
}

}  // namespace tilewright::cache
