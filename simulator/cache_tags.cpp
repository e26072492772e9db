// Sets of up to 32 ways of packed 32-bit words in order of use: sixteen ways are one vector, so
// that finding a line is one comparison and moving it to the front one rotation.
#include <algorithm>

#include "simulator/cache_sets.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define TILEWRIGHT_AVX512 __attribute__((target("avx512f,bmi")))
#endif

namespace tilewright::cache {

namespace {
constexpr std::size_t kVector = 16;
}  // namespace

Tags::Tags(std::uint64_t sets, std::int64_t ways, int tensors, bool portable)
    : packing_(sets, tensors),
      ways_(static_cast<std::size_t>(ways)),
      stride_((ways_ + kVector - 1) / kVector * kVector),
      words_(sets * stride_, kNobody) {
  choose(portable);
}

void Tags::assign(std::uint64_t set, const Entry* in) {
  for (std::size_t i = 0; i < ways_; ++i)
    words_[set * stride_ + i] =
        in[i] == kEmpty ? kNobody : packing_.word(packing_.place(line_of(in[i])).tag, in[i]);
}

Answer Tags::touch_plain(void* sets, Entry now) {
  Tags& t = *static_cast<Tags*>(sets);
  const auto [set, tag] = t.packing_.place(line_of(now));
  const std::uint32_t wanted = t.packing_.word(tag, now), meta = t.packing_.meta();
  std::uint32_t* const row = &t.words_[set * t.stride_];
  std::uint32_t* const end = row + t.ways_;
  std::uint32_t* const at =
      std::find_if(row, end, [&](std::uint32_t w) { return (w ^ wanted) <= meta; });
  std::uint32_t* const last = at == end ? end - 1 : at;
  const std::uint32_t out = *last;
  std::move_backward(row, last, last + 1);
  if (at != end) {
    row[0] = (now & 1) != 0 ? wanted : out;
    return {};
  }
  row[0] = wanted;
  return {.victim = t.packing_.entry(set, out), .missed = true};
}

std::size_t Tags::run_plain(void* sets, Entry first, std::size_t n, Miss* misses, std::int64_t) {
  std::size_t missed = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const Entry now = first + (i << kMetaBits);
    const Answer a = touch_plain(sets, now);
    if (a.missed) misses[missed++] = {line_of(now), a.victim};
  }
  return missed;
}

#if defined(__x86_64__)

struct Tags::Fast {
  /// Moves `wanted` to the front of a row, whether it was there or not: there are no branches on
  /// it, which nobody could predict. Returns which way held it, as a bit; `last` was the last way.
  template <int kVectors>
  TILEWRIGHT_AVX512 __attribute__((always_inline)) static std::uint32_t move(
      std::uint32_t* row, std::uint32_t wanted, std::uint32_t meta, bool write, std::size_t ways,
      std::uint32_t& last) {
    const __m512i same = _mm512_set1_epi32(static_cast<int>(wanted));
    const __m512i rest = _mm512_set1_epi32(static_cast<int>(meta));
    __m512i held[kVectors];
    std::uint32_t found = 0;
    for (int v = 0; v < kVectors; ++v) {
      held[v] = _mm512_load_si512(row + v * kVector);
      const __mmask16 is = _mm512_cmple_epu32_mask(_mm512_xor_si512(held[v], same), rest);
      found |= static_cast<std::uint32_t>(is) << (16 * v);
    }
    last = row[ways - 1];
    // Ways up to the one found, or all of them: each takes what was before it.
    const std::uint32_t moves = (found ^ (found - 1)) & (~std::uint32_t{0} >> (32 - ways));
    __m512i before = same;
    if (!write) {  // a hit keeps what was known of the line
      const std::uint32_t there = row[__builtin_ctz(found | 1u << (16 * kVectors - 1))];
      before = _mm512_set1_epi32(static_cast<int>(found != 0 ? there : wanted));
    }
    for (int v = 0; v < kVectors; ++v) {
      const auto which = static_cast<__mmask16>(moves >> (16 * v));
      _mm512_store_si512(row + v * kVector,
                         _mm512_mask_alignr_epi32(held[v], which, held[v], before, 15));
      before = held[v];
    }
    return found;
  }

  template <int kVectors>
  TILEWRIGHT_AVX512 static Answer touch(void* sets, Entry now) {
    Tags& t = *static_cast<Tags*>(sets);
    const auto [set, tag] = t.packing_.place(line_of(now));
    std::uint32_t* const row = t.words_.data() + set * (kVectors * kVector);
    std::uint32_t last = 0;
    const std::uint32_t found = move<kVectors>(row, t.packing_.word(tag, now), t.packing_.meta(),
                                               (now & 1) != 0, t.ways_, last);
    const Entry victim = t.packing_.entry(set, last);
    return {.victim = found != 0 ? kEmpty : victim, .missed = found == 0};
  }

  /// Of `n` sets in a row, whose lines have the same tag, and so the same word.
  template <int kVectors, bool kWrite>
  TILEWRIGHT_AVX512 static std::size_t run_row(const Tags& t, std::uint32_t* row, std::size_t n,
                                               std::uint32_t word, std::uint64_t line,
                                               Miss* misses) {
    const std::uint32_t meta = t.packing_.meta();
    const __m512i same = _mm512_set1_epi32(static_cast<int>(word));
    const __m512i rest = _mm512_set1_epi32(static_cast<int>(meta));
    std::uint32_t* const begin = row;
    std::uint32_t* const end = row + n * (kVectors * kVector);
    std::size_t missed = 0;
    for (; row != end; row += kVectors * kVector) {
      if ((row[0] ^ word) <= meta) {
        // Only where it changes: a word stored is slow to load as part of a vector.
        if (kWrite && row[0] != word) row[0] = word;
        continue;
      }
      __m512i held[kVectors];
      std::uint32_t found = 0;
      for (int v = 0; v < kVectors; ++v) {
        held[v] = _mm512_load_si512(row + v * kVector);
        const __mmask16 is = _mm512_cmple_epu32_mask(_mm512_xor_si512(held[v], same), rest);
        found |= static_cast<std::uint32_t>(is) << (16 * v);
      }
      __m512i before = same;
      std::uint32_t moves = found ^ (found - 1);
      if (found == 0) [[unlikely]] {
        const auto i = static_cast<std::uint64_t>(row - begin) / (kVectors * kVector);
        misses[missed++] = {line + i,
                            t.packing_.entry(t.packing_.place(line + i).set, row[t.ways_ - 1])};
        moves = ~std::uint32_t{0} >> (32 - t.ways_);
      } else if (!kWrite) {  // a hit keeps what was known of the line
        before = _mm512_set1_epi32(static_cast<int>(row[__builtin_ctz(found)]));
      }
      for (int v = 0; v < kVectors; ++v) {
        const auto which = static_cast<__mmask16>(moves >> (16 * v));
        _mm512_store_si512(row + v * kVector,
                           _mm512_mask_alignr_epi32(held[v], which, held[v], before, 15));
        before = held[v];
      }
    }
    return missed;
  }

  template <int kVectors>
  TILEWRIGHT_AVX512 static std::size_t run(void* sets, Entry first, std::size_t n, Miss* misses,
                                           std::int64_t) {
    const Tags& t = *static_cast<const Tags*>(sets);
    std::uint32_t* const rows = static_cast<Tags*>(sets)->words_.data();
    const auto part = (first & 1) != 0 ? run_row<kVectors, true> : run_row<kVectors, false>;
    std::uint64_t line = line_of(first);
    auto [set, tag] = t.packing_.place(line);
    std::size_t missed = 0;
    while (n > t.sets() - set) [[unlikely]] {  // up to the last set, and on with the next tag
        const std::uint64_t some = t.sets() - set;
        missed += part(t, rows + set * (kVectors * kVector), some, t.packing_.word(tag, first),
                       line, misses + missed);
        line += some;
        n -= some;
        set = 0;
        ++tag;
      }
    return missed + part(t, rows + set * (kVectors * kVector), n, t.packing_.word(tag, first), line,
                         misses + missed);
  }
};

void Tags::choose(bool portable) {
  run_ = run_plain;
  touch_ = touch_plain;
  if (portable || !__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("bmi")) return;
  run_ = stride_ == kVector ? Fast::run<1> : Fast::run<2>;
  touch_ = stride_ == kVector ? Fast::touch<1> : Fast::touch<2>;
}

#else

void Tags::choose(bool) {
  run_ = run_plain;
  touch_ = touch_plain;
}

#endif

}  // namespace tilewright::cache
