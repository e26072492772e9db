// Blocks of a product that stay in vector registers: one rule for whoever emits, prices or measures
// them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tilewright {

/// The most rows and vectors of sums that a micro-kernel keeps in registers.
struct RegisterBlock {
  std::int64_t rows = 1, vectors = 1;
  friend bool operator==(const RegisterBlock&, const RegisterBlock&) = default;
};

/// Rows of a block whose panel is narrow, at most.
inline constexpr std::int64_t kMostBlockRows = 12;

/// Of so many vector registers (32 or more, or fewer), those that micro-kernels are emitted for.
std::span<const RegisterBlock> register_blocks(std::int64_t registers);

/// So many blocks of one size.
struct EqualBlocks {
  std::int64_t count = 0, rows = 0, vectors = 0;
};
/// A box of rows x vectors in blocks. Panels and groups of rows are as even as they can be: at most
/// two widths, and two heights of each. Narrow panels are taller. Some counts may be 0.
std::array<EqualBlocks, 4> equal_blocks(const RegisterBlock& most, std::int64_t rows,
                                        std::int64_t vectors);
/// How many blocks these are.
std::int64_t count_blocks(const RegisterBlock& most, std::int64_t rows, std::int64_t vectors);

/// The position of the block that takes the fewest cycles a step of the depth on a box of rows x
/// vectors (with two multiply-adds and two loads a cycle, four cycles of latency), then loads
/// least; the first of equals. `of` has one at least.
std::size_t block_fitting(std::span<const RegisterBlock> of, std::int64_t rows,
                          std::int64_t vectors, std::int64_t depth);

}  // namespace tilewright
