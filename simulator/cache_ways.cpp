// Sets whose lines stay in their ways: every policy that is not an order of use.
#include <algorithm>

#include "simulator/cache_sets.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tilewright::cache {

namespace {
constexpr int kMaxFrontTensor = 127;
}  // namespace

Ways::Ways(std::uint64_t sets, std::int64_t ways, const Replacement& policy, std::uint64_t seed,
           bool portable)
    : set_of_(sets),
      ways_(static_cast<int>(ways)),
      stride_((static_cast<std::size_t>(ways) + 7) / 8),
      all_(~std::uint64_t{0} >> (64 - ways)),
      fifo_(policy.kind == Replacement::Kind::fifo),
      policy_(policy, ways_),
      front_tags_(sets, kNoTag),
      front_meta_(sets, 0) {
  Vector empty;
  for (Entry& e : empty.entries) e = kEmpty;
  vectors_.assign(sets * stride_, empty);
  states_.reserve(sets);
  for (std::uint64_t s = 0; s < sets; ++s) states_.push_back(policy_.start(seed, s));
  run_ = run_of<find_plain>(policy.kind);
#if defined(__x86_64__)
  if (!portable && __builtin_cpu_supports("avx512f")) run_ = run_of<find_avx512>(policy.kind);
#else
  (void)portable;
#endif
}

/// A bit for each way of a row that holds the line of `wanted`, or, of kEmpty, nothing.
std::uint64_t Ways::find_plain(const Vector* row, std::size_t vectors, Entry wanted) {
  std::uint64_t found = 0;
  for (std::size_t v = 0; v < vectors; ++v)
    for (std::size_t i = 0; i < 8; ++i)
      found |= std::uint64_t{same_line(row[v].entries[i], wanted)} << (8 * v + i);
  return found;
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) std::uint64_t Ways::find_avx512(const Vector* row,
                                                                   std::size_t vectors,
                                                                   Entry wanted) {
  const __m512i meta = _mm512_set1_epi64(static_cast<long long>(kMeta));
  const __m512i line = _mm512_set1_epi64(static_cast<long long>(wanted));
  std::uint64_t found = 0;
  for (std::size_t v = 0; v < vectors; ++v) {
    const __m512i differs = _mm512_xor_si512(_mm512_load_si512(&row[v]), line);
    found |= std::uint64_t{_mm512_cmple_epu64_mask(differs, meta)} << (8 * v);
  }
  return found;
}
#else
std::uint64_t Ways::find_avx512(const Vector* row, std::size_t vectors, Entry wanted) {
  return find_plain(row, vectors, wanted);
}
#endif

void Ways::copy(std::uint64_t set, Entry* out, PolicyState* state) const {
  const auto ways = static_cast<std::size_t>(ways_);
  if (fifo_) {
    Entry* const end = out + ways;
    each(set, [&](Entry e) { *out++ = e; });
    std::fill(out, end, kEmpty);
    return;
  }
  for (std::size_t i = 0; i < ways; ++i) out[i] = vectors_[set * stride_ + i / 8].entries[i % 8];
  *state = {.a = states_[set].a, .b = states_[set].b};
}

void Ways::assign(std::uint64_t set, const Entry* in, const PolicyState* state) {
  const auto ways = static_cast<std::size_t>(ways_);
  // Ways of fifo are filled in turn: the oldest lies in way 0, the next one goes after the newest.
  const auto held = static_cast<std::size_t>(std::find(in, in + ways, kEmpty) - in);
  for (std::size_t i = 0; i < ways; ++i) {
    const Entry e = !fifo_ ? in[i] : i < held ? in[held - 1 - i] : kEmpty;
    vectors_[set * stride_ + i / 8].entries[i % 8] = e;
  }
  PolicyState& own = states_[set];
  if (fifo_) {
    own.a = held == ways ? 0 : held;
  } else {
    own.a = state->a;
    own.b = state->b;
  }
  front_tags_[set] = kNoTag;  // a short cut only
}

void Ways::set_front(std::uint64_t set, std::uint64_t tag, Entry e, bool settled) {
  if (!settled || tag > kMaxTag || tensor_of(e) > kMaxFrontTensor) {
    front_tags_[set] = kNoTag;
    return;
  }
  front_tags_[set] = static_cast<std::uint32_t>(tag);
  front_meta_[set] = static_cast<std::uint8_t>(e & kMeta);
}

template <Replacement::Kind K, Ways::Find find>
std::size_t Ways::run_as(Ways& w, Entry first, std::size_t n, Miss* misses, std::int64_t times) {
  using Kind = Replacement::Kind;
  constexpr bool kSettles = K != Kind::ages;  // the first touch is as good as many
  std::size_t missed = 0;
  auto [tag, set] = w.set_of_.split(line_of(first));
  for (std::size_t i = 0; i < n; ++i) {
    const Entry now = first + (i << kMetaBits);
    const std::uint64_t here = set, wanted = tag + 1;
    if (++set == w.sets()) set = 0, ++tag;
    if (w.front_tags_[here] == wanted && ((now & 1) == 0 || w.front_meta_[here] == (now & kMeta)))
      continue;
    Vector* const row = &w.vectors_[here * w.stride_];
    PolicyState& state = w.states_[here];
    const std::uint64_t found = find(row, w.stride_, now) & w.all_;
    int way = std::countr_zero(found);
    std::int64_t hits = times;
    if (found == 0) {
      --hits;
      if constexpr (K == Kind::fifo) {  // ways are filled in turn, so that the oldest is the next
        way = static_cast<int>(state.a);
        state.a = way + 1 == w.ways_ ? 0 : state.a + 1;
      } else {
        way = w.policy_.fill<K>(state, w.all_ & ~find(row, w.stride_, kEmpty));
      }
      misses[missed++] = {line_of(now), row[way / 8].entries[way % 8]};
    }
    Entry& held = row[way / 8].entries[way % 8];
    held = found == 0 ? now : touched(held, now);
    bool settled = kSettles;
    if constexpr (K != Kind::fifo && K != Kind::random) {
      while (hits-- > 0) {
        const PolicyState before = state;
        w.policy_.hit<K>(state, way);
        settled = settled || state == before;
        if (settled) break;
      }
    }
    w.set_front(here, wanted, held, settled);
  }
  return missed;
}

template <Ways::Find find>
Ways::Run Ways::run_of(Replacement::Kind kind) {
  if (kind == Replacement::Kind::fifo) return run_as<Replacement::Kind::fifo, find>;
  return with_kind(kind, []<Replacement::Kind K>() -> Run { return run_as<K, find>; });
}

}  // namespace tilewright::cache
