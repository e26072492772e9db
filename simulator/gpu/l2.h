// A GPU's last-level cache: sectored, hashed, in one or two partitions, fast enough for the
// billions of touches that a large product makes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/units.h"
#include "simulator/cache.h"
#include "simulator/cache_sets.h"

namespace tilewright::gpu {

/// Where a line goes. `hashed` turns the sets by a drawn amount for every so many lines as there
/// are sets: what is contiguous fills sets evenly, as slices do, and no stride meets the same few
/// sets again and again. `modulo` is for comparisons with other simulators.
enum class SetIndex : std::uint8_t { hashed, modulo };

struct L2Geometry {
  Bytes capacity;  ///< of all partitions together
  std::int64_t ways = 16;
  Bytes line{128};
  Bytes sector{32};            ///< at most 8 a line
  std::string policy = "lru";  ///< lru, fifo or random
  /// 1: one cache for all SMs. 2: each SM looks into the partition on its side. An address has its
  /// home in one of them (4 KiB in turn, assumed); an SM on the other side keeps a second copy of
  /// what it reads on its own side, so that data which all SMs read take twice their size.
  int partitions = 1;
  SetIndex index = SetIndex::hashed;
};
/// Throws InputError for what this cache cannot be: names what is accepted.
void check(const L2Geometry& g);

/// Which sets are touched here: one of so many equal shares of them. Sets never meet, so shares can
/// be simulated side by side and added up.
struct L2Share {
  int index = 0, count = 1;
};

/// Write-back. A read that misses fetches the sectors it touches. A write allocates its line and
/// fetches only sectors that it covers in part (write validate); with two partitions it goes to the
/// home and takes copies on the other side away. Nothing is written back at the end.
///
/// Hits and misses are counted in lines of each range touched; a hit finds all of its sectors. The
/// answer for one partition and SetIndex::modulo is that of CacheHierarchy with
/// WriteMiss::validate. Cost: about ten nanoseconds a line.
class L2 {
 public:
  enum class Touch : std::uint8_t { read, write, update };  ///< update: read, then written

  L2(const L2Geometry& g, int tensors, std::uint64_t seed, L2Share share = {});

  /// `rows` times [address, address + bytes), `pitch` bytes apart, by an SM on `side` (0, or 1 of
  /// two partitions). Addresses lie below 2^32 lines.
  void rows(Touch how, std::int64_t address, std::int64_t bytes, std::int64_t pitch,
            std::int64_t rows, int tensor, int side);
  void range(Touch how, std::int64_t address, std::int64_t bytes, int tensor, int side = 0) {
    rows(how, address, bytes, 0, 1, tensor, side);
  }
  /// By tensor. Cost: linear in the lines (for resident_dirty).
  std::vector<CacheCount> counts() const;
  /// Bytes that have crossed to and from DRAM, by tensor: what counts() says, at no cost.
  struct Moved {
    std::int64_t hits = 0, misses = 0, read = 0, written = 0;
  };
  const std::vector<Moved>& moved() const { return moved_; }

  static constexpr std::int64_t kMostLines = (std::int64_t{1} << 32) - 2;

 private:
  /// A way beside its tag.
  struct Way {
    std::uint8_t valid = 0, dirty = 0;  ///< sectors
    std::uint16_t tensor = 0;           ///< who brought it in, or wrote it last
  };
  struct Found {
    std::uint32_t* tags;
    Way* ways;
    int at;  ///< -1: not there
  };
  enum class Policy : std::uint8_t { lru, fifo, random };

  void touch(Touch how, std::uint32_t line, std::uint8_t need, std::uint8_t covered, int tensor,
             int side);
  void read(std::uint32_t line, std::uint32_t set, std::uint8_t need, int tensor, int side);
  void write(std::uint32_t line, std::uint32_t set, std::uint8_t need, std::uint8_t covered,
             int tensor);
  void fetch(int sectors, int tensor) {
    moved_[static_cast<std::size_t>(tensor)].read += sectors * sector_;
  }
  std::uint32_t set_of(std::uint32_t line) const;
  int home_of(std::uint32_t line) const {
    return partitions_ == 1 ? 0 : static_cast<int>(line >> home_shift_ & 1);
  }
  Found find(int partition, std::uint32_t set, std::uint32_t line);
  Way& use(const Found& f);  ///< a hit: what the policy makes of it; where the way is then
  Way& insert(const Found& f, std::uint32_t set, std::uint32_t line, int tensor);
  std::size_t victim(const Found& f, std::uint32_t set);

  int line_shift_, sector_shift_, home_shift_;
  int partitions_;
  std::int64_t sector_;
  std::size_t ways_;
  Policy policy_;
  cache::Modulus sets_;                       ///< of one partition
  std::uint32_t low_ = 0, high_ = 0;          ///< sets touched here
  std::vector<std::uint32_t> turn_;           ///< by line / sets: how far the sets are turned
  cache::AlignedVector<std::uint32_t> tags_;  ///< line + 1, newest first; 0: empty
  std::vector<Way> held_;
  std::vector<std::uint64_t> draws_;  ///< by set, of policy random
  std::vector<Moved> moved_;
};

}  // namespace tilewright::gpu
