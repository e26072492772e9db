#include "simulator/page_walks.h"

#include <bit>
#include <utility>

#include "core/base/error.h"

namespace tilewright {
namespace {

[[noreturn]] void refuse(const char* field, std::int64_t value, const char* accepted) {
  throw InputError({.field = field,
                    .value = std::to_string(value),
                    .problem = "is not accepted",
                    .accepted = accepted});
}

int shift_of(const char* field, Bytes b) {
  if (b.value <= 0 || !std::has_single_bit(static_cast<std::uint64_t>(b.value)))
    refuse(field, b.value, "a power of two");
  return std::countr_zero(static_cast<std::uint64_t>(b.value));
}

}  // namespace

PageWalks::PageWalks(const PageWalkOptions& options)
    : options_(options), page_shift_(shift_of("page", options.page)) {
  shift_of("page-table entry", options.entry);
  if (options.inner_to_outer.empty()) refuse("translation buffers", 0, "one or more");
  for (const TranslationBuffer& b : options.inner_to_outer) {
    if (b.ways < 0) refuse("translation buffer ways", b.ways, "0 (fully associative) or more");
    if (b.entries <= 0 || b.entries > 1 << 20 || (b.ways > 0 && b.entries % b.ways != 0))
      refuse("translation buffer entries", b.entries, "a positive multiple of ways, at most 2^20");
    const std::int64_t ways = b.ways == 0 ? b.entries : b.ways;
    const auto sets = static_cast<std::uint64_t>(b.entries / ways);
    if (!std::has_single_bit(sets))
      refuse("translation buffer entries", b.entries, "a power of two times its ways");
    buffers_.push_back({.mask = sets - 1,
                        .ways = static_cast<std::size_t>(ways),
                        .pages = std::vector<std::uint64_t>(static_cast<std::size_t>(b.entries))});
  }
}

/// Moves the page to the front of its row, in place of the oldest where it was not there.
bool PageWalks::Buffer::search(std::uint64_t* row, std::uint64_t tag) {
  std::uint64_t before = row[0];
  for (std::size_t w = 1; w < ways; ++w) {
    std::swap(before, row[w]);  // each moves one back, up to where the page was
    if (before == tag) {
      row[0] = tag;
      return true;
    }
  }
  row[0] = tag;
  ++misses;
  return false;
}

void PageWalks::beyond_first(CacheHierarchy& caches, std::uint64_t page) {
  for (std::size_t b = 1; b < buffers_.size(); ++b)
    if (buffers_[b].touch(page)) return;
  ++walks_;
  caches.read(options_.table + static_cast<std::int64_t>(page) * options_.entry.value,
              options_.entry.value, options_.tensor);
}

}  // namespace tilewright
