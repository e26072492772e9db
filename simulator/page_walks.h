// Translation buffers in front of a hierarchy: what they miss is looked up in page tables, which
// lie in memory like all else, so that the walker's loads fill caches too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/units.h"
#include "simulator/cache.h"

namespace tilewright {

/// One translation buffer: entries / ways sets, a power of two; a page's set is its number modulo
/// the sets; LRU.
struct TranslationBuffer {
  std::int64_t entries = 64;
  std::int64_t ways = 4;  ///< 0: fully associative
  friend bool operator==(const TranslationBuffer&, const TranslationBuffer&) = default;
};

struct PageWalkOptions {
  Bytes page{4096};
  std::vector<TranslationBuffer> inner_to_outer = {{64, 4}, {1536, 12}};
  Bytes entry{8};  ///< of the page table
  /// The entry of page p is at table + p * entry: the last level of the tables, laid out flat.
  /// Upper levels are taken to be found in the processor's paging-structure caches.
  std::int64_t table = 0x0800'0000;
  int tensor = 0;  ///< whose loads the walker's are
};

/// Asks the buffers, innermost first; what all of them miss is one load of the page's entry, which
/// touches the caches from the innermost on as any load does, before the access itself. A buffer
/// that misses is filled. Cost: one comparison for the page that its set was asked for last, else a
/// search of the set.
class PageWalks {
 public:
  /// Throws InputError unless page and entry are powers of two, and each buffer's entries a
  /// positive multiple of its ways.
  explicit PageWalks(const PageWalkOptions& options);

  int page_shift() const { return page_shift_; }
  /// Before an access, which is taken to lie on the page of its first byte. Returns whether the
  /// first buffer had it.
  bool touch(CacheHierarchy& caches, std::int64_t address) {
    const auto page = static_cast<std::uint64_t>(address) >> page_shift_;
    if (buffers_.front().touch(page)) return true;
    beyond_first(caches, page);
    return false;
  }
  std::int64_t walks() const { return walks_; }
  /// Accesses that a buffer was asked for and did not have.
  std::int64_t misses(std::size_t buffer) const { return buffers_[buffer].misses; }

 private:
  struct Buffer {
    std::uint64_t mask = 0;  ///< of sets
    std::size_t ways = 1;
    std::vector<std::uint64_t> pages;  ///< by set, newest first; page + 1, 0: empty
    std::int64_t misses = 0;
    bool touch(std::uint64_t page) {
      std::uint64_t* const row = pages.data() + (page & mask) * ways;
      if (row[0] == page + 1) return true;
      return search(row, page + 1);
    }
    bool search(std::uint64_t* row, std::uint64_t tag);
  };
  void beyond_first(CacheHierarchy& caches, std::uint64_t page);

  PageWalkOptions options_;
  int page_shift_;
  std::vector<Buffer> buffers_;
  std::int64_t walks_ = 0;
};

}  // namespace tilewright
