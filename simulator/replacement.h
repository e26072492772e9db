// Replacement policies that keep lines in their ways: what a touch and a fill leave in a set's
// state, and which way goes. Up to 64 ways; a state is two planes of a bit a way.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "core/machine/cache_behaviour.h"

namespace tilewright::cache {

/// Of one set. tree_plru: a is the tree (node 1 the root, 2n and 2n + 1 below n), a bit set where
/// the victim lies right. bit_plru: a, the ways touched. ages: a and b, low and high bits of each
/// way's age. random and rare fills: c, the generator.
/// Aligned so that none straddles cache lines of the machine that simulates.
struct alignas(32) PolicyState {
  std::uint64_t a = 0, b = 0, c = 0;
  friend bool operator==(const PolicyState&, const PolicyState&) = default;
};

/// Marsaglia's xorshift64*, one a set: what a set draws does not depend on other sets.
inline std::uint32_t draw(std::uint64_t& state) {
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return static_cast<std::uint32_t>((state * 0x2545F4914F6CDD1Du) >> 32);
}
/// 0 to n - 1, each as often as the other to within 2^-32.
inline int draw_below(std::uint64_t& state, int n) {
  return static_cast<int>((std::uint64_t{draw(state)} * static_cast<std::uint64_t>(n)) >> 32);
}

class Policy {
 public:
  using Kind = Replacement::Kind;
  /// lru and fifo keep an order, not a state: not here. 1 to 64 ways.
  Policy(const Replacement& r, int ways)
      : r_(r), ways_(ways), all_(~std::uint64_t{0} >> (64 - ways)) {
    if (r.kind == Kind::tree_plru) make_tree();
  }

  PolicyState start(std::uint64_t seed, std::uint64_t set) const {
    // Sebastiano Vigna's splitmix64, so that neighbours' generators are far apart; never zero.
    std::uint64_t z = seed * 0x9E3779B97F4A7C15u + set + 1;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    const bool ages = r_.kind == Kind::ages;
    return {.a = ages ? all_ : 0, .b = ages ? all_ : 0, .c = z | 1};
  }

  /// A hit of `way`. Inline and with the kind known where K is.
  template <Kind K>
  void hit(PolicyState& s, int way) const {
    const std::uint64_t bit = std::uint64_t{1} << way;
    if constexpr (K == Kind::tree_plru) point_away(s, way);
    if constexpr (K == Kind::bit_plru) mark(s, bit);
    if constexpr (K == Kind::ages) {
      set_age(s, bit, r_.hit[age(s, way)]);
      if (!r_.on_miss_only) grow(s, bit);
    }
  }

  /// Whether another hit of `way` would change nothing. Of ages.
  bool settled(const PolicyState& s, int way) const {
    const unsigned now = age(s, way);
    if (r_.hit[now] != now) return false;
    if (r_.on_miss_only) return true;
    const std::uint64_t bit = std::uint64_t{1} << way;
    const std::uint64_t who = r_.update == 1 ? all_ & ~bit : all_;
    return (s.a & s.b & who) != 0 || who == 0;  // one at 3: none grows
  }

  /// Which way goes, of a set of which `held` are in use, and its state after the fill.
  template <Kind K>
  int fill(PolicyState& s, std::uint64_t held) const {
    if constexpr (K == Kind::ages)
      if (r_.on_miss_only) grow(s, 0);
    const int way = held == all_ ? victim<K>(s) : empty(held);
    const std::uint64_t bit = std::uint64_t{1} << way;
    if constexpr (K == Kind::tree_plru) point_away(s, way);
    if constexpr (K == Kind::bit_plru) mark(s, bit);
    if constexpr (K == Kind::ages) {
      const bool rarely = r_.rare != 0 && draw_below(s.c, r_.rare) == 0;
      set_age(s, bit, rarely ? r_.rare_fill : r_.fill);
      if (!r_.on_miss_only) grow(s, bit);
    }
    return way;
  }

  /// A line is taken out.
  template <Kind K>
  void erase(PolicyState& s, int way) const {
    const std::uint64_t bit = std::uint64_t{1} << way;
    if constexpr (K == Kind::bit_plru) s.a &= ~bit;
    if constexpr (K == Kind::ages) set_age(s, bit, 3);
  }

 private:
  int empty(std::uint64_t held) const {
    const std::uint64_t free = all_ & ~held;
    return r_.highest_empty ? 63 - std::countl_zero(free) : std::countr_zero(free);
  }

  template <Kind K>
  int victim(PolicyState& s) const {
    if constexpr (K == Kind::random) return draw_below(s.c, ways_);
    if constexpr (K == Kind::tree_plru) {
      unsigned node = 1;
      for (int depth = 0; depth < depth_; ++depth) node = 2 * node + ((s.a >> node) & 1);
      return static_cast<int>(node - (1u << depth_));
    }
    if constexpr (K == Kind::bit_plru) {  // one way: its bit is always set
      const std::uint64_t old = ~s.a & all_;
      return old == 0 ? 0 : std::countr_zero(old);
    }
    const std::uint64_t oldest = s.a & s.b & all_;
    return oldest == 0 ? 0 : std::countr_zero(oldest);
  }

  void point_away(PolicyState& s, int way) const {
    const auto w = static_cast<std::size_t>(way);
    s.a = (s.a & ~path_[w]) | away_[w];
  }
  void mark(PolicyState& s, std::uint64_t bit) const {
    s.a |= bit;
    if (s.a == all_) s.a = bit;
  }

  static unsigned age(const PolicyState& s, int way) {
    return static_cast<unsigned>((s.a >> way & 1) | (s.b >> way & 1) << 1);
  }
  static void set_age(PolicyState& s, std::uint64_t bit, unsigned age) {
    s.a = (age & 1) != 0 ? s.a | bit : s.a & ~bit;
    s.b = (age & 2) != 0 ? s.b | bit : s.b & ~bit;
  }
  /// u0 to u3; `bit` is the way touched, none on a miss with umo.
  void grow(PolicyState& s, std::uint64_t bit) const {
    const std::uint64_t who = (r_.update & 1) != 0 ? all_ & ~bit : all_;
    if (r_.update >= 2) {
      if ((s.a & s.b & all_) == 0) older(s, who);
      return;
    }
    // All of `who` by one until one of them is at 3: at once, because how many times that is
    // depends on what no branch predictor foresees.
    const std::uint64_t high = s.b & who;
    const unsigned oldest = high != 0 ? ((s.a & high) != 0 ? 3 : 2) : (s.a & who) != 0 ? 1 : 0;
    const unsigned by = 3 - oldest;
    const std::uint64_t ones = (by & 1) != 0 ? who : 0, twos = (by & 2) != 0 ? who : 0;
    s.b ^= (s.a & ones) ^ twos;
    s.a ^= ones;
  }
  /// All of `who` by one; none of them is at 3.
  static void older(PolicyState& s, std::uint64_t who) {
    s.b ^= s.a & who;
    s.a ^= who;
  }

  void make_tree() {
    const auto leaves = std::bit_ceil(static_cast<unsigned>(ways_));
    depth_ = std::countr_zero(leaves);
    for (unsigned w = 0; w < static_cast<unsigned>(ways_); ++w)
      for (int up = 0; up < depth_; ++up) {
        const unsigned child = (leaves + w) >> up, node = child >> 1;
        path_[w] |= std::uint64_t{1} << node;
        // Ways right of `node` begin here; where there are none it goes on pointing left.
        const unsigned right = ((2 * node + 1) << up) - leaves;
        if ((child & 1) == 0 && right < static_cast<unsigned>(ways_))
          away_[w] |= std::uint64_t{1} << node;
      }
  }

  Replacement r_;
  int ways_;
  std::uint64_t all_;
  int depth_ = 0;
  std::array<std::uint64_t, 64> path_{}, away_{};  // tree_plru, by way
};

/// Calls f.template operator()<K>() for the kind of a policy with a state.
template <class F>
decltype(auto) with_kind(Replacement::Kind kind, F&& f) {
  using Kind = Replacement::Kind;
  switch (kind) {
    case Kind::random:
      return f.template operator()<Kind::random>();
    case Kind::tree_plru:
      return f.template operator()<Kind::tree_plru>();
    case Kind::bit_plru:
      return f.template operator()<Kind::bit_plru>();
    default:
      return f.template operator()<Kind::ages>();
  }
}

}  // namespace tilewright::cache
