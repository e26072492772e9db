#include "simulator/cache_walk.h"

#include <algorithm>

#if defined(__x86_64__)
#include "simulator/cache_vectors.h"
#endif

namespace tilewright::cache {

void Walk::plain(Walk& w, Entry first, std::size_t n, std::int64_t touches) {
  Tags& t = *w.inner;
  std::size_t missed = 0;
  const auto answer_of = [&w](Entry now) {
    if (w.outer == nullptr) return w.ask(now);
    const Answer a = w.outer->touch(now);
    if ((now & 1) == 0) {
      Tally& tally = w.outer_tally[tensor_of(now)];
      ++(a.missed ? tally.misses : tally.hits);
      if (a.missed) w.ask(now);
    }
    if (is_dirty(a.victim)) w.put_out(a.victim, w.outer_tally);
  };
  for (std::size_t i = 0; i < n; ++i) {
    const Entry now = first + (i << kMetaBits);
    const Answer a = Tags::touch_plain(&t, now);
    const std::uint64_t set = t.packing_.place(line_of(now)).set;
    t.fronts_[set] = {line_of(now) << t.line_shift_, t.words_[set * t.stride_] & t.packing_.meta()};
    if (!a.missed) continue;
    ++missed;
    answer_of(now & ~Entry{1});
    if (!is_dirty(a.victim)) continue;
    ++w.inner_tally[tensor_of(a.victim)].written_bytes;
    answer_of(a.victim);
  }
  w.count(first, touches, missed);
}

#if defined(__x86_64__)

#define TILEWRIGHT_SET Avx2
#define TILEWRIGHT_TARGET __attribute__((target("avx2,bmi")))
#include "simulator/cache_walk_body.h"
#undef TILEWRIGHT_SET
#undef TILEWRIGHT_TARGET
#define TILEWRIGHT_SET Avx512
#define TILEWRIGHT_TARGET __attribute__((target("avx512f,bmi")))
#include "simulator/cache_walk_body.h"
#undef TILEWRIGHT_SET
#undef TILEWRIGHT_TARGET

namespace {

Instructions of_this_processor() {
  if (!__builtin_cpu_supports("bmi")) return Instructions::plain;
  if (__builtin_cpu_supports("avx512f")) return Instructions::avx512;
  return __builtin_cpu_supports("avx2") ? Instructions::avx2 : Instructions::plain;
}

}  // namespace

template <class Set>
void Tags::take() {
  run_ = stride_ == kVector ? Fast<Set>::template run<1> : Fast<Set>::template run<2>;
  touch_ = stride_ == kVector ? Fast<Set>::template touch<1> : Fast<Set>::template touch<2>;
}

void Tags::choose(Instructions most) {
  by_ = std::min(most, of_this_processor());
  run_ = run_plain;
  touch_ = touch_plain;
  if (by_ == Instructions::avx2) take<Avx2>();
  if (by_ == Instructions::avx512) take<Avx512>();
}

template <class Set>
WalkSets Tags::walker_by(const Tags* outer) const {
  using By = Walk::Fast<Set>;
  const bool wide = stride_ != kVector;
  if (outer == nullptr) return wide ? By::template walk<2, 0> : By::template walk<1, 0>;
  if (outer->stride_ == kVector) return wide ? By::template walk<2, 1> : By::template walk<1, 1>;
  return wide ? By::template walk<2, 2> : By::template walk<1, 2>;
}

WalkSets Tags::walker(const Tags* outer) const {
  if (by_ == Instructions::avx512) return walker_by<Avx512>(outer);
  return by_ == Instructions::avx2 ? walker_by<Avx2>(outer) : Walk::plain;
}

#else

void Tags::choose(Instructions) {
  run_ = run_plain;
  touch_ = touch_plain;
}

WalkSets Tags::walker(const Tags*) const { return Walk::plain; }

#endif

}  // namespace tilewright::cache
