// What a hardware cache does beyond its geometry: whom it replaces, what it holds beside other
// levels, how it takes writes, where a line goes, what it fetches unasked. Defaults are those of a
// plain cache: LRU, non-inclusive, write-back, fetch on write, index by remainder, no prefetcher.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright {

/// A replacement policy, by name:
///
/// lru, fifo; random (uniform over the ways, seeded);
/// tree_plru: a binary tree over the ways, each node pointing away from the last touch. With ways
///   that are no power of two the tree is that of the next one, and nodes without a right side
///   point left;
/// bit_plru: a bit a way, set by a touch; when all are set, the others are cleared; the lowest way
///   without one goes (MRU, NRU's cousin);
/// srrip, brrip: re-reference intervals of two bits, hit priority (Jaleel et al., ISCA 2010, III-A,
///   III-B): a hit makes it 0, a fill 2 (brrip: 3, and 2 once in 32, drawn); the lowest way at 3
///   goes, after all have aged until there is one;
/// qlru_hXY_mI_rR_uU[_umo]: Quad-age LRU as named by Abel and Reineke (nanoBench, ISPASS 2020,
///   VI-B2): a hit turns age 3 into X, 2 into Y, else 0; a fill gives age I, or, as mrJI, I once in
///   16 (drawn) and else J; r: which way goes, r0 and r1 the lowest, r2 the highest one that is
///   empty, else the lowest at age 3, r1 way 0 where there is none; u: how ages grow, u0 all until
///   one is 3, u1 all but the one touched, u2 all by one if none is 3, u3 all but the one touched;
///   umo: only on a miss, before the choice. r0 and r2 need u0 or u1 to always find age 3.
///
/// With all of them but lru and fifo a cache has at most 64 ways. An empty way is taken first, the
/// lowest but for r2.
struct Replacement {
  enum class Kind : std::uint8_t { lru, fifo, random, tree_plru, bit_plru, ages };
  Kind kind = Kind::lru;
  // ages: srrip, brrip and qlru
  std::array<std::uint8_t, 4> hit{};  ///< age after a hit, by age before
  std::uint8_t fill = 2;              ///< age after a fill,
  std::uint8_t rare_fill = 2;         ///< or, once in
  int rare = 0;                       ///< so many, this one; 0: never
  bool highest_empty = false;         ///< r2
  int update = 0;                     ///< u0 to u3
  bool on_miss_only = false;          ///< umo
  friend bool operator==(const Replacement&, const Replacement&) = default;
};
/// Nothing for an unknown name, or a qlru that may find no victim.
std::optional<Replacement> replacement_from_name(std::string_view name);
/// For messages: every name that is accepted.
std::string_view replacement_names();

/// What a level holds beside those inside it.
enum class Inclusion : std::uint8_t {
  non_inclusive,  ///< filled on the way in; an eviction leaves inner levels alone
  inclusive,      ///< filled on the way in; an eviction takes the line out of inner levels too
  exclusive,      ///< filled by what the next inner level evicts; a hit moves the line inwards
  victim,         ///< filled so too; a hit leaves the line (Skylake-X's L3)
};
std::string_view name_of(Inclusion i);

enum class WriteHit : std::uint8_t { back, through };
std::string_view name_of(WriteHit w);

/// In the words of Jouppi, "Cache write policies and performance" (ISCA 1993).
enum class WriteMiss : std::uint8_t {
  fetch,     ///< fetch on write: the line is allocated and filled
  validate,  ///< write validate: allocated; only sectors that are written in part are fetched
  around,    ///< write around: not allocated, the write goes on outwards
};
std::string_view name_of(WriteMiss w);

/// Which set a line goes to.
enum class Index : std::uint8_t {
  modulo,  ///< line number modulo sets, of which there may be any number
  folded,  ///< exclusive or of the line number's digits in base sets, a power of two
  slices,  ///< slices chosen by a hash of the whole line number, modulo within a slice
};
std::string_view name_of(Index i);

enum class PrefetchKind : std::uint8_t {
  next_line,  ///< on a miss and on the first hit of a prefetched line: the next `degree` lines
  adjacent,   ///< on a miss: the other line of an aligned pair
  stride,     ///< by 4 KiB page: when two steps in a row are equal, `degree` further ones
};
std::string_view name_of(PrefetchKind k);

/// Fetches lines into its level; never beyond the 4 KiB page of the access that triggers it.
struct Prefetch {
  PrefetchKind kind = PrefetchKind::next_line;
  std::int64_t degree = 1;
  std::string source = {};  ///< of the degree
  friend bool operator==(const Prefetch&, const Prefetch&) = default;
};

struct CacheBehaviour {
  Inclusion inclusion = Inclusion::non_inclusive;
  /// exclusive, victim: the share of clean lines evicted further in that it takes (dirty ones
  /// always); which, is drawn.
  double clean_victims = 1;
  WriteHit write = WriteHit::back;
  WriteMiss write_miss = WriteMiss::fetch;
  Index index = Index::modulo;
  std::int64_t slices = 1;  ///< Index::slices
  std::vector<Prefetch> prefetch = {};
  /// Where a plan's resolution or a model may rely on each level's misses being its own affair.
  bool plain() const { return *this == CacheBehaviour{}; }
  friend bool operator==(const CacheBehaviour&, const CacheBehaviour&) = default;
};

/// Open rows of a DRAM: bank = address / row modulo banks; an access to the open row of its bank is
/// a row hit.
struct DramRows {
  std::int64_t row_bytes = 0;  ///< 0: rows are not counted
  std::int64_t banks = 1;
  friend bool operator==(const DramRows&, const DramRows&) = default;
};

}  // namespace tilewright
