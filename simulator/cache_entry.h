// A line as one word: 64 bits between levels (line number << 16 | tensor << 1 | dirty), fewer
// within a set.
#pragma once

#include <bit>
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

/// What touching one line came to.
struct Answer {
  Entry victim = kEmpty;  ///< what a miss pushed out
  bool missed = false;
};

/// A line in one word of a set: its number divided by the sets (the tag) plus one, above as many
/// bits as tell tensors and dirty lines apart. Narrow words put sixteen ways into one cache line of
/// the machine that simulates, tensors and all.
template <class Word>
class Packing {
 public:
  static constexpr Word kNobody = 0;  ///< no line is packed to this, however far out it lies

  Packing(std::uint64_t sets, int tensors)
      : set_of_(sets),
        bits_(std::bit_width(static_cast<unsigned>(tensors - 1)) + 1),
        meta_(static_cast<Word>((Word{1} << bits_) - 1)),
        limit_(lines(sets, static_cast<Word>(~Word{0} >> bits_))) {}

  struct Place {
    std::uint64_t set, tag;
  };
  Place place(std::uint64_t line) const {
    const auto [tag, set] = set_of_.split(line);
    return {set, tag};
  }
  /// Of a line below limit().
  Word word(std::uint64_t tag, Entry meta) const {
    return static_cast<Word>((tag + 1) << bits_ | (meta & kMeta));
  }
  Entry entry(std::uint64_t set, Word word) const {
    const std::uint64_t line = (static_cast<std::uint64_t>(word >> bits_) - 1) * sets() + set;
    const Entry e = line << kMetaBits | (word & meta_);
    return word == kNobody ? kEmpty : e;
  }
  std::uint64_t sets() const { return set_of_.divisor(); }
  std::uint64_t limit() const { return limit_; }
  Word meta() const { return meta_; }  ///< which bits of a word are no tag
  int bits() const { return bits_; }
  const Modulus& set_of() const { return set_of_; }

 private:
  static constexpr std::uint64_t kMostLines = std::uint64_t{1} << 48;
  static std::uint64_t lines(std::uint64_t sets, std::uint64_t tags) {
    return tags >= kMostLines / sets ? kMostLines : tags * sets;
  }

  Modulus set_of_;
  int bits_;
  Word meta_;
  std::uint64_t limit_;
};

/// On 64-byte borders; a lot of it in huge pages, where the system has them, because sets are asked
/// for in no order. Throws std::bad_alloc.
void* allocate_sets(std::size_t bytes);
void free_sets(void* p, std::size_t bytes) noexcept;

/// A set's words are whole cache lines of the machine that simulates.
template <class T>
struct SetAllocator {
  using value_type = T;
  SetAllocator() = default;
  template <class U>
  SetAllocator(const SetAllocator<U>&) {}  // NOLINT: converts between element types
  T* allocate(std::size_t n) { return static_cast<T*>(allocate_sets(n * sizeof(T))); }
  void deallocate(T* p, std::size_t n) { free_sets(p, n * sizeof(T)); }
  friend bool operator==(const SetAllocator&, const SetAllocator&) { return true; }
};
template <class T>
using AlignedVector = std::vector<T, SetAllocator<T>>;

}  // namespace tilewright::cache
