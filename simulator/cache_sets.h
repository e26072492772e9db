// The sets of one cache level: who is in, in which order. Five containers with one interface, which
// speaks of a line as one 64-bit entry.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "simulator/cache.h"
#include "simulator/cache_entry.h"
#include "simulator/replacement.h"

namespace tilewright::cache {

/// Touches `n` lines from that of `first` on, in order, all with its tensor and as reads or writes
/// as it says, each so many times before the next one. Lists those whose first touch missed, in
/// order, at `misses` (room for n) and returns how many. What outer levels are asked for meanwhile
/// cannot change that: a level sees only what it is sent.
using RunSets = std::size_t (*)(void* sets, Entry first, std::size_t n, Miss* misses,
                                std::int64_t times);
/// The same of one line, once.
using TouchSets = Answer (*)(void* sets, Entry now);
/// See cache_walk.h.
using WalkSets = void (*)(Walk& through, Entry first, std::size_t n, std::int64_t touches);

/// Of what sets are touched by; each has what those before it have.
enum class Instructions { plain, avx2, avx512 };

/// Up to 32 ways, least recently used first out, and lines below limit(): a row of packed 32-bit
/// words a set, most recently used first, padded to whole vectors of sixteen.
class Tags {
 public:
  static constexpr std::size_t kMaxWays = 32;
  static constexpr int kMaxTensors = 127;
  /// Uses of this processor's instructions at most those.
  Tags(std::uint64_t sets, std::int64_t ways, int tensors,
       Instructions most = Instructions::avx512);

  RunSets runner() const { return run_; }
  TouchSets toucher() const { return touch_; }
  /// Lines must be below limit().
  std::size_t run(Entry first, std::size_t n, Miss* misses) {
    return run_(this, first, n, misses, 1);
  }
  Answer touch(Entry now) { return touch_(this, now); }
  /// Hints that the set of a line is about to be asked for.
  void prefetch(std::uint64_t line) const {
    __builtin_prefetch(&words_[packing_.place(line).set * stride_], 1);
  }
  std::uint64_t limit() const { return packing_.limit(); }
  std::uint64_t sets() const { return packing_.sets(); }
  std::size_t ways() const { return ways_; }
  template <class F>
  void each(std::uint64_t set, F&& f) const {  ///< as Rows::each
    for (std::size_t i = set * stride_; i < set * stride_ + ways_; ++i)
      if (words_[i] != kNobody) f(packing_.entry(set, words_[i]));
  }

  /// A set holds the entries at `in` from now on, as many as there are ways, in the order of
  /// each(), the rest kEmpty. Lines are below limit().
  void assign(std::uint64_t set, const Entry* in);

  /// From now on walk() is to be used in place of run(), and keeps fronts.
  void keep_fronts(int line_shift);
  Front* fronts() { return fronts_.data(); }  ///< none without keep_fronts()
  void add_words(Quick& q, int line_shift);
  WalkSets walker(const Tags* outer) const;  ///< see cache_walk.h

 private:
  friend struct Walk;
  static constexpr std::uint32_t kNobody = Packing<std::uint32_t>::kNobody;
  template <class Set>
  struct Fast;  // how it is done with vectors of a set of instructions
  static std::size_t run_plain(void* sets, Entry first, std::size_t n, Miss* misses, std::int64_t);
  static Answer touch_plain(void* sets, Entry now);
  void choose(Instructions most);
  template <class Set>
  void take();
  template <class Set>
  WalkSets walker_by(const Tags* outer) const;

  Packing<std::uint32_t> packing_;
  std::size_t ways_;
  std::size_t stride_;  // words a row
  AlignedVector<std::uint32_t> words_;
  AlignedVector<Front> fronts_;
  int line_shift_ = 0;
  Instructions by_ = Instructions::plain;
  RunSets run_;
  TouchSets touch_;
};

/// Up to kMaxWays ways, least recently used first out: a row of entries a set, most recently used
/// first, padded to whole vectors of eight with kEmpty.
class Rows {
 public:
  static constexpr std::size_t kMaxWays = 32;
  /// `portable` keeps to instructions that every processor has.
  Rows(std::uint64_t sets, std::int64_t ways, bool portable = false);
  /// The same contents in the same order.
  explicit Rows(const Tags& tags);

  RunSets runner() const { return run_; }
  std::size_t run(Entry first, std::size_t n, Miss* misses) {
    return run_(this, first, n, misses, 1);
  }

  std::uint64_t sets() const { return set_of_.divisor(); }
  std::size_t ways() const { return ways_; }
  /// Calls f(entry) for what a set holds, most recently used first.
  template <class F>
  void each(std::uint64_t set, F&& f) const {
    const Entry* row = &vectors_[set * stride_].entries[0];
    for (std::size_t i = 0; i < ways_; ++i)
      if (row[i] != kEmpty) f(row[i]);
  }
  void assign(std::uint64_t set, const Entry* in) {  ///< as Tags::assign
    std::copy_n(in, ways_, &vectors_[set * stride_].entries[0]);
  }

 private:
  struct alignas(64) Vector {
    Entry entries[8];
  };
  static std::size_t run_plain(void* sets, Entry first, std::size_t n, Miss* misses, std::int64_t);
  template <int kVectors>
  static std::size_t run_avx512(void* sets, Entry first, std::size_t n, Miss* misses, std::int64_t);
  static RunSets fastest(std::size_t vectors);  ///< that this processor has

  Modulus set_of_;
  std::size_t ways_;
  std::size_t stride_;  // vectors a row
  std::vector<Vector> vectors_;
  RunSets run_;
};

template <class Word, bool kVectors>
struct WaysBody;  // how ways are touched

/// Up to 64 ways, any policy but least recently used, and lines below limit(): a row of packed
/// words a set, each in its way for as long as it is in, padded to whole vectors, and the policy's
/// state.
template <class Word>
class WaysOf {
 public:
  static constexpr std::int64_t kMaxWays = 64;
  struct Options {
    int tensors = 1;
    std::uint64_t seed = 1;
    bool portable = false;  ///< keeps to instructions that every processor has
  };
  WaysOf(std::uint64_t sets, std::int64_t ways, const Replacement& policy, const Options& options);
  RunSets runner() const { return run_; }
  TouchSets toucher() const { return touch_; }
  std::size_t run(Entry first, std::size_t n, Miss* misses, std::int64_t times = 1) {
    return run_(this, first, n, misses, times);
  }
  Answer touch(Entry now) { return touch_(this, now); }
  void prefetch(std::uint64_t line) const {
    const std::uint64_t set = packing_.place(line).set;
    __builtin_prefetch(&words_[set * stride_], 1);
    __builtin_prefetch(&states_[set], 1);
  }
  std::uint64_t limit() const { return packing_.limit(); }
  std::uint64_t sets() const { return packing_.sets(); }
  std::size_t ways() const { return static_cast<std::size_t>(ways_); }
  /// fifo: newest first; else by way.
  template <class F>
  void each(std::uint64_t set, F&& f) const {
    const auto ways = static_cast<std::size_t>(ways_);
    const std::size_t first = ordered() ? states_[set].a : 0;
    for (std::size_t i = 0; i < ways; ++i) {
      const std::size_t way = ordered() ? (first + ways - 1 - i) % ways : i;
      const Word word = words_[set * stride_ + way];
      if (word != kNobody) f(packing_.entry(set, word));
    }
  }

  /// A set as it can be put back by assign(): with fifo in the order of each(), the rest kEmpty;
  /// else by way, with the policy's state.
  void copy(std::uint64_t set, Entry* out, PolicyState* state) const;
  void assign(std::uint64_t set, const Entry* in, const PolicyState* state);
  bool ordered() const { return replacement_.kind == Replacement::Kind::fifo; }

  /// Whether another touch like `now`, of the line touched last in its set, changes nothing.
  bool settled(Entry now) const {
    return line_of(now) < limit() && is_front(fronts_[packing_.place(line_of(now)).set], now);
  }

  /// From now on a set's line touched last is found without looking for it, and touch() is not to
  /// be called.
  void keep_fronts(int line_shift);
  Front* fronts() { return fronts_.data(); }  ///< none without keep_fronts()

 private:
  friend WaysOf<std::uint64_t> widened(const WaysOf<std::uint32_t>& narrow);
  static constexpr Word kNobody = Packing<Word>::kNobody;
  static constexpr std::size_t kVector = 64 / sizeof(Word);
  template <class, bool>
  friend struct WaysBody;
  template <bool kVectors>
  void choose();
  bool is_front(const Front& front, Entry now) const {
    return front.address == line_of(now) << line_shift_ &&
           ((now & 1) == 0 || front.meta == (now & kMeta));
  }

  Packing<Word> packing_;
  int ways_;
  std::size_t stride_;  // words a row
  std::uint64_t all_;
  Replacement replacement_;
  bool portable_;
  Policy policy_;
  AlignedVector<Word> words_;
  AlignedVector<PolicyState> states_;
  std::vector<Front> fronts_;
  int line_shift_ = 0;
  RunSets run_ = nullptr;
  TouchSets touch_ = nullptr;
};
using Ways = WaysOf<std::uint32_t>;      ///< up to Tags::kMaxTensors tensors
using WideWays = WaysOf<std::uint64_t>;  ///< any line of any tensor
WideWays widened(const Ways& narrow);    ///< the same contents and state

/// Any number of ways, least recently used or first in first out: a linked list a set, a hash table
/// over all lines.
class Lists {
 public:
  Lists(std::uint64_t sets, std::int64_t ways, bool fifo = false);
  RunSets runner() const { return run_all; }
  std::size_t run(Entry first, std::size_t n, Miss* misses) {
    return run_all(this, first, n, misses, 1);
  }
  std::uint64_t sets() const { return set_of_.divisor(); }
  std::size_t ways() const { return ways_; }
  template <class F>
  void each(std::uint64_t set, F&& f) const {
    const std::uint32_t end = head(set);
    for (std::uint32_t i = nodes_[end].next; i != end; i = nodes_[i].next) f(nodes_[i].entry);
  }
  void clear();
  void assign(std::uint64_t, const Entry* in);  ///< as Tags::assign; of a set that is empty

 private:
  /// Lists are rings through a head node; heads come after all lines.
  struct Node {
    Entry entry = kEmpty;
    std::uint32_t prev = 0, next = 0;
  };
  static std::size_t run_all(void* sets, Entry first, std::size_t n, Miss* misses, std::int64_t);
  bool touch(Entry now, Entry& victim);  ///< whether it was there
  std::uint32_t head(std::uint64_t set) const { return static_cast<std::uint32_t>(lines_ + set); }
  void unlink(std::uint32_t i);
  void push_front(std::uint64_t set, std::uint32_t i);

  // Open addressing over node numbers; deletion closes the gap (Knuth 6.4, Algorithm R).
  std::size_t slot_of(std::uint64_t line) const;
  std::size_t find(std::uint64_t line) const;  ///< its slot, or the free one where it would go
  void erase(std::size_t slot);

  Modulus set_of_;
  std::size_t ways_;
  bool fifo_;
  std::uint64_t lines_;
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> used_;   // by set: how many ways are filled
  std::vector<std::uint32_t> table_;  // node numbers
  int shift_;
};

}  // namespace tilewright::cache
