// The two innermost levels in order of use, walked together: what a line's miss asks of the second
// level is answered at once, without a call.
#pragma once

#include <cstddef>

#include "simulator/cache_engine.h"
#include "simulator/cache_sets.h"

namespace tilewright::cache {

struct Walk {
  /// What the level beyond is still to be asked, in order: for a line (not dirty), or to take a
  /// dirty one. That it hears of it late changes nothing: it sees only what it is sent.
  static constexpr std::size_t kMany = 32;
  static constexpr std::size_t kAsked = kMany + 3 * Quick::kMost;  ///< a line asks thrice at most

  Engine* engine = nullptr;  ///< settles, once that is much
  Tags* inner = nullptr;
  Tags* outer = nullptr;         ///< none: the inner one is walked alone
  Tally* inner_tally = nullptr;  ///< by tensor
  Tally* outer_tally = nullptr;
  const Tags* beyond = nullptr;  ///< told to come closer, where it lies far out
  /// Lines of a range that were not there: which, and the word of what each pushed out.
  struct Out {
    std::uint32_t line, word;
  };
  Out out[Quick::kMost];
  std::size_t asked = 0;
  Entry asks[kAsked];

  bool many() const { return asked >= kMany; }
  /// Asks the level beyond. The caller leaves room.
  void ask(Entry e) {
    asks[asked++] = e;
    if (beyond != nullptr) beyond->prefetch(line_of(e));
  }
  /// The same of a line that was not there and the one that it pushed out.
  void missed(Entry now, Entry victim, Tally* tally) {
    ask(now & ~Entry{1});
    if (is_dirty(victim)) put_out(victim, tally);
  }
  void put_out(Entry victim, Tally* tally) {
    ++tally[tensor_of(victim)].written_bytes;
    ask(victim);
  }

  void count(Entry first, std::int64_t touches, std::size_t missed) {
    Tally& tally = inner_tally[tensor_of(first)];
    tally.hits += touches - static_cast<std::int64_t>(missed);
    if (missed == 0) return;
    tally.misses += static_cast<std::int64_t>(missed);
    if (many()) engine->settle();
  }

  // How Tags do it.
  static void plain(Walk& w, Entry first, std::size_t n, std::int64_t touches);
  template <class Set>
  struct Fast;
};

}  // namespace tilewright::cache
