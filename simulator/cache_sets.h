// The sets of one cache level: who is in, in which order. Two containers with one interface; a line
// is kept as one 64-bit entry: line number << 16 | tensor << 1 | dirty.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

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

/// A line that was not there, and what it pushed out (kEmpty: nothing). Left uninitialised: buffers
/// of these are on the hottest path.
struct Miss {
  std::uint64_t line;
  Entry victim;
};

/// x mod d for x < 2^48 without a division.
class Modulus {
 public:
  explicit Modulus(std::uint64_t d)
      : d_(d), mask_((d & (d - 1)) == 0 ? d - 1 : 0), magic_(~std::uint64_t{0} / d) {}
  std::uint64_t divisor() const { return d_; }
  std::uint64_t operator()(std::uint64_t x) const {
    if (mask_ != 0 || d_ == 1) return x & mask_;
    // magic is less than 2^64 / d by under one, so the quotient is at most one too small.
    const auto q = static_cast<std::uint64_t>((static_cast<Wide>(x) * magic_) >> 64);
    const std::uint64_t r = x - q * d_;
    return r >= d_ ? r - d_ : r;
  }

 private:
  __extension__ using Wide = unsigned __int128;
  std::uint64_t d_, mask_, magic_;
};

/// Up to kMaxWays ways: a row of entries a set, most recently used first, padded to whole vectors
/// of eight with kEmpty.
class Rows {
 public:
  static constexpr std::size_t kMaxWays = 32;
  /// `portable` keeps to instructions that every processor has.
  Rows(std::uint64_t sets, std::int64_t ways, bool portable = false);

  /// Touches `n` lines from that of `first` on, in order, all with its tensor and as reads or
  /// writes as it says. Lists those that missed, in order, at `misses` (room for n) and returns how
  /// many. What outer levels are asked for meanwhile cannot change that: a level sees only what it
  /// is sent.
  std::size_t run(Entry first, std::size_t n, Miss* misses) {
    return run_(*this, first, n, misses);
  }

  std::uint64_t sets() const { return set_of_.divisor(); }
  /// Calls f(entry) for what a set holds, most recently used first.
  template <class F>
  void each(std::uint64_t set, F&& f) const {
    const Entry* row = &vectors_[set * stride_].entries[0];
    for (std::size_t i = 0; i < ways_; ++i)
      if (row[i] != kEmpty) f(row[i]);
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

/// Any number of ways: a linked list a set, a hash table over all lines.
class Lists {
 public:
  Lists(std::uint64_t sets, std::int64_t ways);
  std::size_t run(Entry first, std::size_t n, Miss* misses);  ///< as Rows::run
  std::uint64_t sets() const { return set_of_.divisor(); }
  template <class F>
  void each(std::uint64_t set, F&& f) const {
    const std::uint32_t end = head(set);
    for (std::uint32_t i = nodes_[end].next; i != end; i = nodes_[i].next) f(nodes_[i].entry);
  }

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
  std::uint64_t lines_;
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> used_;   // by set: how many ways are filled
  std::vector<std::uint32_t> table_;  // node numbers
  int shift_;
};

}  // namespace tilewright::cache
