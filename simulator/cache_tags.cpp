// Sets of up to 32 ways of 32-bit tags in order of use: sixteen ways are one vector, so that
// finding a line is one comparison and moving it to the front one rotation.
#include <algorithm>

#include "simulator/cache_sets.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define TILEWRIGHT_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))
#endif

namespace tilewright::cache {

namespace {
constexpr std::size_t kVector = 16;
constexpr std::uint8_t kNobody = 0;
}  // namespace

Tags::Tags(std::uint64_t sets, std::int64_t ways, bool portable)
    : set_of_(sets),
      ways_(static_cast<std::size_t>(ways)),
      stride_((ways_ + kVector - 1) / kVector * kVector),
      limit_(std::min(sets * kMaxTag, std::uint64_t{1} << 48)),
      tags_(sets * stride_, kNoTag),
      meta_(sets * stride_, kNobody),
      run_(portable ? run_plain : fastest(stride_ / kVector)) {}

void Tags::assign(std::uint64_t set, const Entry* in) {
  for (std::size_t i = 0; i < ways_; ++i) {
    const bool held = in[i] != kEmpty;
    const std::size_t at = set * stride_ + i;
    tags_[at] =
        held ? static_cast<std::uint32_t>(set_of_.split(line_of(in[i])).quotient + 1) : kNoTag;
    meta_[at] = held ? static_cast<std::uint8_t>(in[i] & kMeta) : kNobody;
  }
}

std::size_t Tags::run_plain(Tags& t, Entry first, std::size_t n, Miss* misses) {
  const bool write = (first & 1) != 0;
  const auto now = static_cast<std::uint8_t>(first & kMeta);
  std::size_t missed = 0;
  auto [tag, set] = t.set_of_.split(line_of(first));
  for (std::size_t i = 0; i < n; ++i) {
    std::uint32_t* const tags = &t.tags_[set * t.stride_];
    std::uint8_t* const meta = &t.meta_[set * t.stride_];
    const auto wanted = static_cast<std::uint32_t>(tag + 1);
    const auto at = static_cast<std::size_t>(std::find(tags, tags + t.ways_, wanted) - tags);
    const std::size_t last = at == t.ways_ ? at - 1 : at;
    const std::uint8_t front = at == t.ways_ || write ? now : meta[at];
    if (at == t.ways_)
      misses[missed++] = {line_of(first) + i, t.victim(set, tags[last], meta[last])};
    std::move_backward(tags, tags + last, tags + last + 1);
    std::move_backward(meta, meta + last, meta + last + 1);
    tags[0] = wanted;
    meta[0] = front;
    if (++set == t.sets()) set = 0, ++tag;
  }
  return missed;
}

#if defined(__x86_64__)

template <int kVectors>
TILEWRIGHT_AVX512 std::size_t Tags::run_avx512(Tags& t, Entry first, std::size_t n, Miss* misses) {
  const std::uint64_t sets = t.sets();
  const std::size_t ways = t.ways_;
  const bool write = (first & 1) != 0;
  const auto now = static_cast<std::uint8_t>(first & kMeta);
  const std::uint32_t all = ~std::uint32_t{0} >> (32 - ways);
  std::uint32_t* const all_tags = t.tags_.data();
  std::uint8_t* const all_meta = t.meta_.data();
  std::size_t missed = 0;
  auto [tag, set] = t.set_of_.split(line_of(first));
  for (std::size_t i = 0; i < n; ++i) {
    std::uint32_t* const tags = all_tags + set * (kVectors * kVector);
    std::uint8_t* const meta = all_meta + set * (kVectors * kVector);
    const auto wanted = static_cast<std::uint32_t>(tag + 1);
    const std::uint64_t here = set;
    if (++set == sets) set = 0, ++tag;
    if (tags[0] == wanted) {
      // Only where it changes: a byte stored is slow to load as part of a vector.
      if (write && meta[0] != now) meta[0] = now;
      continue;
    }
    if (tags[1] == wanted) {  // two lines that take turns: cheaper than a rotation
      const std::uint8_t front = write ? now : meta[1];
      tags[1] = tags[0];
      meta[1] = meta[0];
      tags[0] = wanted;
      meta[0] = front;
      continue;
    }
    const __m512i same = _mm512_set1_epi32(static_cast<int>(wanted));
    __m512i held[kVectors];
    std::uint32_t found = 0;
    for (int v = 0; v < kVectors; ++v) {
      held[v] = _mm512_load_si512(tags + v * kVector);
      found |= static_cast<std::uint32_t>(_mm512_cmpeq_epi32_mask(held[v], same)) << (16 * v);
    }
    std::uint32_t moves = all;  // ways up to the one found: each takes what was before it
    std::uint8_t front = now;
    if (found != 0) {
      moves = found ^ (found - 1);
      if (!write) front = meta[__builtin_ctz(found)];
    } else {
      misses[missed++] = {line_of(first) + i, t.victim(here, tags[ways - 1], meta[ways - 1])};
    }
    __m512i before = same;
    __m128i before_meta = _mm_set1_epi8(static_cast<char>(front));
    for (int v = 0; v < kVectors; ++v) {
      const auto which = static_cast<__mmask16>(moves >> (16 * v));
      auto* const bytes = reinterpret_cast<__m128i*>(meta + v * kVector);
      const __m128i held_meta = _mm_load_si128(bytes);
      _mm512_store_si512(tags + v * kVector,
                         _mm512_mask_alignr_epi32(held[v], which, held[v], before, 15));
      _mm_store_si128(bytes, _mm_mask_alignr_epi8(held_meta, which, held_meta, before_meta, 15));
      before = held[v];
      before_meta = held_meta;
    }
  }
  return missed;
}

Tags::Run Tags::fastest(std::size_t vectors) {
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl"))
    return run_plain;
  return vectors == 1 ? run_avx512<1> : run_avx512<2>;
}

#else

Tags::Run Tags::fastest(std::size_t) { return run_plain; }

#endif

}  // namespace tilewright::cache
