// The sets of one cache level: who is in, in which order. Four containers with one interface, which
// speaks of a line as one 64-bit entry: line number << 16 | tensor << 1 | dirty.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "simulator/cache.h"
#include "simulator/replacement.h"

namespace tilewright::cache {

using Entry = std::uint64_t;
inline constexpr int kMetaBits = 16;
inline constexpr Entry kMeta = (Entry{1} << kMetaBits) - 1;
inline constexpr Entry kEmpty = ~Entry{0};  ///< no line, not dirty

constexpr Entry entry_of(std::uint64_t line, int tensor, bool dirty) {
  return line << kMetaBits | static_cast<Entry>(tensor) << 1 | static_cast<Entry>(dirty);
}
constexpr std::uint64_t line_of(Entry e) { return e >> kMetaBits; }
constexpr int tensor_of(Entry e) { return static_cast<int>((e & kMeta) >> 1); }
constexpr bool is_dirty(Entry e) { return (e & 1) != 0 && e != kEmpty; }
constexpr bool same_line(Entry a, Entry b) { return (a ^ b) <= kMeta; }

/// What a hit leaves behind: a write takes the line over, a read changes nothing.
constexpr Entry touched(Entry held, Entry now) { return (now & 1) != 0 ? now : held; }

/// x mod d for x < 2^48 without a division.
class Modulus {
 public:
  explicit Modulus(std::uint64_t d)
      : d_(d),
        mask_((d & (d - 1)) == 0 ? d - 1 : 0),
        magic_(~std::uint64_t{0} / d),
        shift_(std::countr_zero(d)) {}
  std::uint64_t divisor() const { return d_; }
  std::uint64_t operator()(std::uint64_t x) const { return split(x).remainder; }
  struct Split {
    std::uint64_t quotient, remainder;
  };
  Split split(std::uint64_t x) const {
    if (mask_ != 0 || d_ == 1) return {x >> shift_, x & mask_};
    // magic is less than 2^64 / d by under one, so the quotient is at most one too small.
    const auto q = static_cast<std::uint64_t>((static_cast<Wide>(x) * magic_) >> 64);
    const std::uint64_t r = x - q * d_;
    return r >= d_ ? Split{q + 1, r - d_} : Split{q, r};
  }
  bool power_of_two() const { return mask_ != 0 || d_ == 1; }
  int shift() const { return shift_; }  ///< of a power of two

 private:
  __extension__ using Wide = unsigned __int128;
  std::uint64_t d_, mask_, magic_;
  int shift_;
};

/// Allocates on 64-byte borders: a set's tags are one cache line of the machine that simulates.
template <class T>
struct Aligned64 {
  using value_type = T;
  Aligned64() = default;
  template <class U>
  Aligned64(const Aligned64<U>&) {}  // NOLINT: converts between element types
  T* allocate(std::size_t n) {
    return static_cast<T*>(::operator new (n * sizeof(T), std::align_val_t{64}));
  }
  void deallocate(T* p, std::size_t) { ::operator delete (p, std::align_val_t{64}); }
  friend bool operator==(const Aligned64&, const Aligned64&) { return true; }
};
template <class T>
using AlignedVector = std::vector<T, Aligned64<T>>;

/// A line's tag is the quotient of its number by the sets, plus one: no line has this one, however
/// far out it lies.
inline constexpr std::uint32_t kNoTag = 0;
inline constexpr std::uint64_t kMaxTag = ~std::uint32_t{0};

/// Up to 32 ways, least recently used first out, 127 tensors, and lines whose number divided by the
/// sets is below 2^32 - 1: a row of 32-bit tags a set, most recently used first, padded to whole
/// vectors of sixteen, and beside it a byte a way: tensor << 1 | dirty.
class Tags {
 public:
  static constexpr std::size_t kMaxWays = 32;
  static constexpr int kMaxTensors = 127;
  /// `portable` keeps to instructions that every processor has.
  Tags(std::uint64_t sets, std::int64_t ways, bool portable = false);

  /// As Rows::run; the last line must be below limit().
  std::size_t run(Entry first, std::size_t n, Miss* misses) {
    return run_(*this, first, n, misses);
  }
  /// Hints that the set of a line is about to be asked for.
  void prefetch(std::uint64_t line) const {
    const std::size_t at = set_of_(line) * stride_;
    __builtin_prefetch(&tags_[at], 1);
    __builtin_prefetch(&meta_[at], 1);
  }
  std::uint64_t limit() const { return limit_; }
  std::uint64_t sets() const { return set_of_.divisor(); }
  std::size_t ways() const { return ways_; }
  template <class F>
  void each(std::uint64_t set, F&& f) const {  ///< as Rows::each
    for (std::size_t i = set * stride_; i < set * stride_ + ways_; ++i)
      if (tags_[i] != kNoTag) f(entry(set, tags_[i], meta_[i]));
  }

  /// A set holds the entries at `in` from now on, as many as there are ways, in the order of
  /// each(), the rest kEmpty. Lines are below limit().
  void assign(std::uint64_t set, const Entry* in);

  // For whoever looks at the front of a row without a call.
  std::uint32_t* tags() { return tags_.data(); }
  std::uint8_t* meta() { return meta_.data(); }
  std::size_t stride() const { return stride_; }
  const Modulus& set_of() const { return set_of_; }

 private:
  using Run = std::size_t (*)(Tags&, Entry, std::size_t, Miss*);
  static std::size_t run_plain(Tags& t, Entry first, std::size_t n, Miss* misses);
  template <int kVectors>
  static std::size_t run_avx512(Tags& t, Entry first, std::size_t n, Miss* misses);
  static Run fastest(std::size_t vectors);
  Entry entry(std::uint64_t set, std::uint32_t tag, std::uint8_t meta) const {
    return ((std::uint64_t{tag} - 1) * sets() + set) << kMetaBits | meta;
  }
  Entry victim(std::uint64_t set, std::uint32_t tag, std::uint8_t meta) const {
    return tag == kNoTag ? kEmpty : entry(set, tag, meta);
  }

  Modulus set_of_;
  std::size_t ways_;
  std::size_t stride_;  // tags a row
  std::uint64_t limit_;
  AlignedVector<std::uint32_t> tags_;
  AlignedVector<std::uint8_t> meta_;
  Run run_;
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

  /// Touches `n` lines from that of `first` on, in order, all with its tensor and as reads or
  /// writes as it says. Lists those that missed, in order, at `misses` (room for n) and returns how
  /// many. What outer levels are asked for meanwhile cannot change that: a level sees only what it
  /// is sent.
  std::size_t run(Entry first, std::size_t n, Miss* misses) {
    return run_(*this, first, n, misses);
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
  using Run = std::size_t (*)(Rows&, Entry, std::size_t, Miss*);
  static std::size_t run_plain(Rows& rows, Entry first, std::size_t n, Miss* misses);
  template <int kVectors>
  static std::size_t run_avx512(Rows& rows, Entry first, std::size_t n, Miss* misses);
  static Run fastest(std::size_t vectors);  ///< that this processor has

  Modulus set_of_;
  std::size_t ways_;
  std::size_t stride_;  // vectors a row
  std::vector<Vector> vectors_;
  Run run_;
};

/// Up to 64 ways, any policy but least recently used: a row of entries a set, each in its way for
/// as long as it is in, padded to whole vectors of eight with kEmpty, and the policy's state.
class Ways {
 public:
  static constexpr std::int64_t kMaxWays = 64;
  Ways(std::uint64_t sets, std::int64_t ways, const Replacement& policy, std::uint64_t seed,
       bool portable = false);
  /// As Rows::run, touching each line so many times before the next one; misses are first touches'.
  std::size_t run(Entry first, std::size_t n, Miss* misses, std::int64_t times = 1) {
    return run_(*this, first, n, misses, times);
  }
  std::uint64_t sets() const { return set_of_.divisor(); }
  std::size_t ways() const { return static_cast<std::size_t>(ways_); }
  /// fifo: newest first; else by way.
  template <class F>
  void each(std::uint64_t set, F&& f) const {
    const auto ways = static_cast<std::size_t>(ways_);
    const std::size_t first = fifo_ ? states_[set].a : 0;
    for (std::size_t i = 0; i < ways; ++i) {
      const std::size_t way = fifo_ ? (first + ways - 1 - i) % ways : i;
      const Entry e = vectors_[set * stride_ + way / 8].entries[way % 8];
      if (e != kEmpty) f(e);
    }
  }

  /// A set as it can be put back by assign(): with fifo in the order of each(), the rest kEmpty;
  /// else by way, with the policy's state.
  void copy(std::uint64_t set, Entry* out, PolicyState* state) const;
  void assign(std::uint64_t set, const Entry* in, const PolicyState* state);
  bool ordered() const { return fifo_; }

  /// Whether another touch like `now`, of the line touched last in its set, changes nothing.
  bool settled(Entry now) const {
    const auto [tag, set] = set_of_.split(line_of(now));
    return front_tags_[set] == tag + 1 && ((now & 1) == 0 || front_meta_[set] == (now & kMeta));
  }

  // Fronts, one a set: the line touched last, as tag and meta byte (see Tags), if touching it again
  // would change nothing; else kNoTag.
  std::uint32_t* tags() { return front_tags_.data(); }
  std::uint8_t* meta() { return front_meta_.data(); }
  const Modulus& set_of() const { return set_of_; }

 private:
  struct alignas(64) Vector {
    Entry entries[8];
  };
  using Run = std::size_t (*)(Ways&, Entry, std::size_t, Miss*, std::int64_t);
  using Find = std::uint64_t (*)(const Vector*, std::size_t, Entry);
  template <Replacement::Kind K, Find find>
  static std::size_t run_as(Ways& ways, Entry first, std::size_t n, Miss* misses,
                            std::int64_t times);
  static std::uint64_t find_plain(const Vector* row, std::size_t vectors, Entry wanted);
  static std::uint64_t find_avx512(const Vector* row, std::size_t vectors, Entry wanted);
  template <Find find>
  static Run run_of(Replacement::Kind kind);
  void set_front(std::uint64_t set, std::uint64_t tag, Entry e, bool settled);

  Modulus set_of_;
  int ways_;
  std::size_t stride_;  // vectors a row
  std::uint64_t all_;
  bool fifo_;
  Policy policy_;
  std::vector<Vector> vectors_;
  std::vector<PolicyState> states_;
  std::vector<std::uint32_t> front_tags_;
  std::vector<std::uint8_t> front_meta_;
  Run run_;
};

/// Any number of ways, least recently used or first in first out: a linked list a set, a hash table
/// over all lines.
class Lists {
 public:
  Lists(std::uint64_t sets, std::int64_t ways, bool fifo = false);
  std::size_t run(Entry first, std::size_t n, Miss* misses);  ///< as Rows::run
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
