// Pieces of memory do not overlap, begin where asked, and the same bytes are held once.
#include "codegen/common/host_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace tilewright::codegen {
namespace {

TEST(HostMemory, PiecesAreApartAndAligned) {
  std::vector<std::pair<std::shared_ptr<void>, std::size_t>> pieces;
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{100}, std::size_t{5 << 20},
        std::size_t{2 << 20}, std::size_t{(2 << 20) - 1}})
    for (const std::size_t alignment : {std::size_t{64}, std::size_t{4096}})
      for (int i = 0; i < 10; ++i) {
        const auto piece = host_memory(bytes, alignment);
        ASSERT_NE(piece, nullptr);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(piece.get()) % alignment, 0U);
        std::memset(piece.get(), static_cast<int>(pieces.size()), bytes);
        pieces.emplace_back(piece, bytes);
      }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto* const at = static_cast<const unsigned char*>(pieces[i].first.get());
    for (std::size_t b = 0; b < pieces[i].second; b += 61) ASSERT_EQ(at[b], i % 256) << i;
    if (pieces[i].second > 0) {
      ASSERT_EQ(at[pieces[i].second - 1], i % 256) << i;
    }
  }
}

TEST(HostMemory, TheSameBytesAreHeldOnce) {
  std::vector<std::byte> bytes(1000, std::byte{7});
  const auto first = shared_memory(bytes), again = shared_memory(bytes);
  EXPECT_EQ(first, again);
  EXPECT_EQ(std::memcmp(first.get(), bytes.data(), bytes.size()), 0);
  EXPECT_NE(shared_memory(std::span(bytes).first(999)), first);
  bytes[500] = std::byte{8};
  const auto other = shared_memory(bytes);
  EXPECT_NE(other, first);
  EXPECT_EQ(std::memcmp(other.get(), bytes.data(), bytes.size()), 0);
  EXPECT_EQ(static_cast<const std::byte*>(first.get())[500], std::byte{7});
}

}  // namespace
}  // namespace tilewright::codegen
