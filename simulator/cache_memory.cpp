// Where sets lie.
#include <new>

#include "simulator/cache_entry.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace tilewright::cache {

namespace {
constexpr std::size_t kHostLine = 64, kHugePage = std::size_t{2} << 20;
std::align_val_t border(std::size_t bytes) {
  return std::align_val_t{bytes < kHugePage ? kHostLine : kHugePage};
}
}  // namespace

void* allocate_sets(std::size_t bytes) {
  void* const p = ::operator new(bytes, border(bytes));
#if defined(__linux__)
  // A hint: where it is refused, pages are small and counts the same.
  if (bytes >= kHugePage) (void)madvise(p, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
  return p;
}

void free_sets(void* p, std::size_t bytes) noexcept { ::operator delete(p, border(bytes)); }

}  // namespace tilewright::cache
