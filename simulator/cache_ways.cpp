// Sets whose lines stay in their ways: every policy that is not an order of use.
#include <algorithm>

#include "simulator/cache_sets.h"

#if defined(__x86_64__) && !defined(__clang__)
#include <immintrin.h>
#endif

namespace tilewright::cache {

#define TILEWRIGHT_VECTORS 0
#include "simulator/cache_ways_body.h"
#undef TILEWRIGHT_VECTORS
// Clang does not read these pragmas: its builds (make fuzz) take the portable one.
#if defined(__x86_64__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC target("avx512f,bmi")
#define TILEWRIGHT_VECTORS 1
#include "simulator/cache_ways_body.h"
#undef TILEWRIGHT_VECTORS
#pragma GCC pop_options
#endif

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
      words_(sets * stride_, kNobody) {
  states_.reserve(sets);
  for (std::uint64_t s = 0; s < sets; ++s) states_.push_back(policy_.start(options.seed, s));
  choose<false>();
#if defined(__x86_64__) && !defined(__clang__)
  if (!portable_ && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("bmi"))
    choose<true>();
#endif
}

template <class Word>
void WaysOf<Word>::keep_fronts(int line_shift) {
  fronts_.assign(sets(), Front{});
  line_shift_ = line_shift;
}

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
  if (!fronts_.empty()) fronts_[set] = {};  // a short cut only
}

template <class Word>
template <bool kVectors>
void WaysOf<Word>::choose() {
  const auto take = [this]<Replacement::Kind K>() {
    run_ = WaysBody<Word, kVectors>::template run<K>;
    touch_ = WaysBody<Word, kVectors>::template touch<K>;
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
                {.tensors = static_cast<int>(kMeta >> 1), .portable = narrow.portable_});
  if (!narrow.fronts_.empty()) wide.keep_fronts(narrow.line_shift_);
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
