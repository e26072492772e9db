#include "codegen/common/host_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "core/base/toolchain.h"

namespace tilewright::codegen {
namespace {

constexpr std::size_t kLargePage = std::size_t{1} << 21;
constexpr std::size_t kPages = 8;  // taken at once for small pieces

std::size_t whole(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

std::shared_ptr<char> large_pages(std::size_t bytes) {
  const std::size_t size = whole(bytes, kLargePage);
  void* const memory = std::aligned_alloc(kLargePage, size);
  if (memory == nullptr) return nullptr;
  madvise(memory, size, MADV_HUGEPAGE);  // a hint: where it is not taken, pages are small
  return {static_cast<char*>(memory), std::free};
}

/// What lies behind the last byte is not ours: a sanitizer sees who reads it.
std::shared_ptr<void> exact_piece(std::size_t bytes, std::size_t alignment) {
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, std::max<std::size_t>(bytes, 1)) != 0) return nullptr;
  return {memory, std::free};
}

}  // namespace

std::shared_ptr<void> host_memory(std::size_t bytes, std::size_t alignment) {
  if (under_address_sanitizer()) return exact_piece(bytes, alignment);
  if (bytes >= kLargePage) return large_pages(bytes);
  static std::mutex mutex;
  static std::shared_ptr<char> pages;
  static std::size_t used = 0;
  const std::lock_guard lock(mutex);
  used = whole(used, alignment);
  if (pages == nullptr || used + bytes > kPages * kLargePage) {
    pages = large_pages(kPages * kLargePage);
    used = 0;
    if (pages == nullptr) return nullptr;
  }
  std::shared_ptr<void> piece(pages, pages.get() + used);
  used += std::max<std::size_t>(bytes, 1);
  return piece;
}

std::shared_ptr<void> shared_memory(std::span<const std::byte> bytes) {
  static std::mutex mutex;
  static std::map<std::pair<std::size_t, std::size_t>, std::weak_ptr<void>> known;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::pair key(bytes.size(), std::hash<std::string_view>()(text));
  const std::lock_guard lock(mutex);
  if (const auto other = known.find(key); other != known.end())
    if (std::shared_ptr<void> there = other->second.lock();
        there != nullptr && std::memcmp(there.get(), bytes.data(), bytes.size()) == 0)
      return there;
  std::shared_ptr<void> memory = host_memory(bytes.size());
  if (memory == nullptr) return nullptr;
  std::memcpy(memory.get(), bytes.data(), bytes.size());
  std::erase_if(known, [](const auto& k) { return k.second.expired(); });
  known[key] = memory;
  return memory;
}

}  // namespace tilewright::codegen
