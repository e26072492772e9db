// Sets whose lines stay in their ways: every policy that is not an order of use.
#include <algorithm>

#include "simulator/cache_sets.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tilewright::cache {

template <class Word>
WaysOf<Word>::WaysOf(std::uint64_t sets, std::int64_t ways, const Replacement& policy,
                     const Options& options)
    : packing_(sets, options.tensors),
      ways_(static_cast<int>(ways)),
      stride_((static_cast<std::size_t>(ways) + kVector - 1) / kVector * kVector),
      all_(~std::uint64_t{0} >> (64 - ways)),
      replacement_(policy),
      portable_(options.portable),
      policy_(policy, ways_),
      words_(sets * stride_, kNobody),
      fronts_(options.fronts ? sets : 0, kNobody) {
  states_.reserve(sets);
  for (std::uint64_t s = 0; s < sets; ++s) states_.push_back(policy_.start(options.seed, s));
  choose<find_plain>();
#if defined(__x86_64__)
  if (!portable_ && __builtin_cpu_supports("avx512f")) choose<find_avx512>();
#endif
}

template <class Word>
typename WaysOf<Word>::Found WaysOf<Word>::find_plain(const Word* row, std::size_t words,
                                                      Word wanted, Word meta) {
  Found found;
  for (std::size_t i = 0; i < words; ++i) {
    found.line |= std::uint64_t{static_cast<Word>(row[i] ^ wanted) <= meta} << i;
    found.nothing |= std::uint64_t{row[i] == kNobody} << i;
  }
  return found;
}

#if defined(__x86_64__)
template <class Word>
__attribute__((target("avx512f"))) typename WaysOf<Word>::Found WaysOf<Word>::find_avx512(
    const Word* row, std::size_t words, Word wanted, Word meta) {
  const __m512i nobody = _mm512_setzero_si512();
  Found found;
  for (std::size_t at = 0; at < words; at += kVector) {
    const __m512i held = _mm512_load_si512(row + at);
    std::uint64_t line = 0, nothing = 0;
    if constexpr (sizeof(Word) == 4) {
      const __m512i differs = _mm512_xor_si512(held, _mm512_set1_epi32(static_cast<int>(wanted)));
      line = _mm512_cmple_epu32_mask(differs, _mm512_set1_epi32(static_cast<int>(meta)));
      nothing = _mm512_cmpeq_epi32_mask(held, nobody);
    } else {
      const __m512i differs =
          _mm512_xor_si512(held, _mm512_set1_epi64(static_cast<long long>(wanted)));
      line = _mm512_cmple_epu64_mask(differs, _mm512_set1_epi64(static_cast<long long>(meta)));
      nothing = _mm512_cmpeq_epi64_mask(held, nobody);
    }
    found.line |= line << at;
    found.nothing |= nothing << at;
  }
  return found;
}
#endif

template <class Word>
void WaysOf<Word>::copy(std::uint64_t set, Entry* out, PolicyState* state) const {
  Entry* const end = out + ways();
  if (ordered()) {
    each(set, [&](Entry e) { *out++ = e; });
    std::fill(out, end, kEmpty);
    return;
  }
  const Word* word = &words_[set * stride_];
  while (out != end) *out++ = packing_.entry(set, *word++);
  *state = {.a = states_[set].a, .b = states_[set].b};
}

template <class Word>
void WaysOf<Word>::assign(std::uint64_t set, const Entry* in, const PolicyState* state) {
  // Ways of fifo are filled in turn: the oldest lies in way 0, the next one goes after the newest.
  const auto held = static_cast<std::size_t>(std::find(in, in + ways(), kEmpty) - in);
  for (std::size_t i = 0; i < ways(); ++i) {
    const Entry e = !ordered() ? in[i] : i < held ? in[held - 1 - i] : kEmpty;
    words_[set * stride_ + i] =
        e == kEmpty ? kNobody : packing_.word(packing_.place(line_of(e)).tag, e);
  }
  PolicyState& own = states_[set];
  if (ordered()) {
    own.a = held == ways() ? 0 : held;
  } else {
    own.a = state->a;
    own.b = state->b;
  }
  if (!fronts_.empty()) fronts_[set] = kNobody;  // a short cut only
}

/// A first touch: `way` is where the line lies from now on.
template <class Word>
template <Replacement::Kind K, typename WaysOf<Word>::Find find>
Answer WaysOf<Word>::look(std::uint64_t set, Word word, int& way) {
  Word* const row = words_.data() + set * stride_;
  const Found found = find(row, stride_, word, packing_.meta());
  if (found.line != 0) {
    way = std::countr_zero(found.line);
    if ((word & 1) != 0) row[way] = word;
    return {};
  }
  PolicyState& state = states_[set];
  if constexpr (K == Replacement::Kind::fifo) {  // ways are filled in turn: the oldest is the next
    way = static_cast<int>(state.a);
    state.a = way + 1 == ways_ ? 0 : state.a + 1;
  } else {
    way = policy_.fill<K>(state, all_ & ~found.nothing);
  }
  const Entry victim = packing_.entry(set, row[way]);
  row[way] = word;
  return {.victim = victim, .missed = true};
}

/// So many hits of a way, one after the other. Returns whether one more would change nothing.
template <class Word>
template <Replacement::Kind K>
bool WaysOf<Word>::hits(PolicyState& state, int way, std::int64_t times) const {
  bool settled = K != Replacement::Kind::ages;  // elsewhere the first is as good as many
  if constexpr (K != Replacement::Kind::fifo && K != Replacement::Kind::random) {
    PolicyState now{.a = state.a, .b = state.b};  // in registers; hits draw nothing
    while (times-- > 0) {
      const std::uint64_t a = now.a, b = now.b;
      policy_.hit<K>(now, way);
      settled = settled || (now.a == a && now.b == b);
      if (settled) break;
    }
    state.a = now.a;
    state.b = now.b;
  }
  return settled;
}

template <class Word>
template <Replacement::Kind K, typename WaysOf<Word>::Find find>
Answer WaysOf<Word>::touch_as(void* sets, Entry now) {
  WaysOf& w = *static_cast<WaysOf*>(sets);
  const auto [set, tag] = w.packing_.place(line_of(now));
  int way = 0;
  const Answer answer = w.look<K, find>(set, w.packing_.word(tag, now), way);
  if (!answer.missed) w.hits<K>(w.states_[set], way, 1);
  return answer;
}

template <class Word>
template <Replacement::Kind K, typename WaysOf<Word>::Find find>
std::size_t WaysOf<Word>::run_as(void* of, Entry first, std::size_t n, Miss* misses,
                                 std::int64_t times) {
  WaysOf& w = *static_cast<WaysOf*>(of);
  const bool fronts = !w.fronts_.empty();
  const std::uint64_t sets = w.sets();
  std::size_t missed = 0;
  auto [set, tag] = w.packing_.place(line_of(first));
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t here = set;
    const Word word = w.packing_.word(tag, first);
    if (++set == sets) set = 0, ++tag;
    if (fronts && w.is_front(w.fronts_[here], word, first)) continue;
    int way = 0;
    const Answer answer = w.look<K, find>(here, word, way);
    if (answer.missed) misses[missed++] = {line_of(first) + i, answer.victim};
    const bool settled = w.hits<K>(w.states_[here], way, answer.missed ? times - 1 : times);
    if (fronts)
      w.fronts_[here] =
          settled ? w.words_[here * w.stride_ + static_cast<std::size_t>(way)] : kNobody;
  }
  return missed;
}

template <class Word>
template <typename WaysOf<Word>::Find find>
void WaysOf<Word>::choose() {
  const auto take = [this]<Replacement::Kind K>() {
    run_ = run_as<K, find>;
    touch_ = touch_as<K, find>;
  };
  if (ordered())
    take.template operator()<Replacement::Kind::fifo>();
  else
    with_kind(replacement_.kind, take);
}

template class WaysOf<std::uint32_t>;
template class WaysOf<std::uint64_t>;

WideWays widened(const Ways& narrow) {
  WideWays wide(narrow.sets(), narrow.ways_, narrow.replacement_,
                {.tensors = static_cast<int>(kMeta >> 1),
                 .fronts = !narrow.fronts_.empty(),
                 .portable = narrow.portable_});
  wide.states_ = narrow.states_;
  for (std::uint64_t s = 0; s < narrow.sets(); ++s)
    for (std::size_t i = 0; i < narrow.ways(); ++i) {
      const Entry e = narrow.packing_.entry(s, narrow.words_[s * narrow.stride_ + i]);
      if (e == kEmpty) continue;
      const std::uint64_t tag = wide.packing_.place(line_of(e)).tag;
      wide.words_[s * wide.stride_ + i] = wide.packing_.word(tag, e);
    }
  return wide;
}

}  // namespace tilewright::cache
