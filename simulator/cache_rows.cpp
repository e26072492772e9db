// Sets of up to 32 ways, one 64-bit entry a way in order of use. Finding a line compares a whole
// row and moving it to the front rotates a part of the row, each a few instructions with AVX-512.
#include <algorithm>

#include "simulator/cache_sets.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define TILEWRIGHT_AVX512 __attribute__((target("avx512f")))
#endif

namespace tilewright::cache {

Rows::Rows(std::uint64_t sets, std::int64_t ways, bool portable)
    : set_of_(sets), ways_(static_cast<std::size_t>(ways)), stride_((ways_ + 7) / 8) {
  Vector empty;
  std::fill(std::begin(empty.entries), std::end(empty.entries), kEmpty);
  vectors_.assign(sets * stride_, empty);
  run_ = portable ? run_plain : fastest(stride_);
}

Rows::Rows(const Tags& tags) : Rows(tags.sets(), static_cast<std::int64_t>(tags.ways())) {
  for (std::uint64_t s = 0; s < tags.sets(); ++s) {
    std::size_t i = s * stride_ * 8;
    tags.each(s, [&](Entry e) {
      vectors_[i / 8].entries[i % 8] = e;
      ++i;
    });
  }
}

/// Looking moves every entry it passes one place back, so that a miss has made room at the end.
std::size_t Rows::run_plain(void* of, Entry first, std::size_t n, Miss* misses, std::int64_t) {
  Rows& rows = *static_cast<Rows*>(of);
  std::size_t missed = 0;
  std::uint64_t set = rows.set_of_(line_of(first));
  for (std::size_t i = 0; i < n; ++i, set = set + 1 == rows.sets() ? 0 : set + 1) {
    const Entry now = first + (i << kMetaBits);
    Entry* row = &rows.vectors_[set * rows.stride_].entries[0];
    Entry moving = row[0];
    bool hit = same_line(moving, now);
    row[0] = hit ? touched(moving, now) : now;
    for (std::size_t w = 1; w < rows.ways_ && !hit; ++w) {
      const Entry here = row[w];
      row[w] = moving;
      hit = same_line(here, now);
      if (hit) row[0] = touched(here, now);
      moving = here;
    }
    if (!hit) misses[missed++] = {line_of(now), moving};
  }
  return missed;
}

#if defined(__x86_64__)

template <int kVectors>
TILEWRIGHT_AVX512 std::size_t Rows::run_avx512(void* of, Entry first, std::size_t n, Miss* misses,
                                               std::int64_t) {
  Rows& rows = *static_cast<Rows*>(of);
  const __m512i meta = _mm512_set1_epi64(static_cast<long long>(kMeta));
  const std::uint64_t sets = rows.sets();
  const std::size_t ways = rows.ways_;
  const std::uint32_t all = ~std::uint32_t{0} >> (32 - ways);
  Vector* const base = rows.vectors_.data();
  std::size_t missed = 0;
  std::uint64_t set = rows.set_of_(line_of(first));
  for (std::size_t i = 0; i < n; ++i) {
    const Entry now = first + (i << kMetaBits);
    Vector* const row = base + set * kVectors;
    set = set + 1 == sets ? 0 : set + 1;
    Entry front = row[0].entries[0];
    if (same_line(front, now)) {
      row[0].entries[0] = touched(front, now);
      continue;
    }
    const __m512i wanted = _mm512_set1_epi64(static_cast<long long>(now));
    __m512i held[kVectors];
    std::uint32_t found = 0;
    for (int v = 0; v < kVectors; ++v) {
      held[v] = _mm512_load_si512(&row[v]);
      const __mmask8 same = _mm512_cmple_epu64_mask(_mm512_xor_si512(held[v], wanted), meta);
      found |= static_cast<std::uint32_t>(same) << (8 * v);
    }
    std::uint32_t moves = all;  // ways up to the one found: each takes what was before it
    if (found != 0) {
      moves = found ^ (found - 1);
      front = touched(row[0].entries[__builtin_ctz(found)], now);
    } else {
      misses[missed++] = {line_of(now), row[0].entries[ways - 1]};
      front = now;
    }
    __m512i before = _mm512_set1_epi64(static_cast<long long>(front));
    for (int v = 0; v < kVectors; ++v) {
      const __m512i moved = _mm512_alignr_epi64(held[v], before, 7);
      const auto which = static_cast<__mmask8>(moves >> (8 * v));
      _mm512_store_si512(&row[v], _mm512_mask_mov_epi64(held[v], which, moved));
      before = held[v];
    }
  }
  return missed;
}

RunSets Rows::fastest(std::size_t vectors) {
  if (!__builtin_cpu_supports("avx512f")) return run_plain;
  switch (vectors) {
    case 1:
      return run_avx512<1>;
    case 2:
      return run_avx512<2>;
    case 3:
      return run_avx512<3>;
    default:
      return run_avx512<4>;
  }
}

#else

RunSets Rows::fastest(std::size_t) { return run_plain; }

#endif

}  // namespace tilewright::cache
