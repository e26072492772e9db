#include "core/lowering/register_blocks.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/base/units.h"
#include "core/lowering/product_loads.h"

namespace tilewright {
namespace {

constexpr std::array<RegisterBlock, 3> kOf32 = {{{6, 4}, {5, 5}, {8, 3}}};
constexpr std::array<RegisterBlock, 2> kOf16 = {{{6, 2}, {4, 3}}};

}  // namespace

std::span<const RegisterBlock> register_blocks(std::int64_t registers) {
  if (registers >= 32) return kOf32;
  return kOf16;
}

std::array<EqualBlocks, 4> equal_blocks(const RegisterBlock& most, std::int64_t rows,
                                        std::int64_t vectors) {
  rows = std::max<std::int64_t>(rows, 1), vectors = std::max<std::int64_t>(vectors, 1);
  std::array<EqualBlocks, 4> all;
  std::size_t at = 0;
  const std::int64_t panels = ceil_div(vectors, most.vectors);
  for (std::int64_t wide = 0; wide < 2; ++wide) {
    const std::int64_t wides = vectors % panels, width = vectors / panels + wide;
    const std::int64_t height = std::min(kMostBlockRows, most.rows * most.vectors / width);
    const std::int64_t groups = ceil_div(rows, std::max<std::int64_t>(height, 1));
    for (std::int64_t tall = 0; tall < 2; ++tall) {
      const std::int64_t talls = rows % groups;
      all[at++] = {(wide == 1 ? wides : panels - wides) * (tall == 1 ? talls : groups - talls),
                   rows / groups + tall, width};
    }
  }
  return all;
}

std::int64_t count_blocks(const RegisterBlock& most, std::int64_t rows, std::int64_t vectors) {
  std::int64_t count = 0;
  for (const EqualBlocks& b : equal_blocks(most, rows, vectors)) count += b.count;
  return count;
}

std::size_t block_fitting(std::span<const RegisterBlock> of, std::int64_t rows,
                          std::int64_t vectors, std::int64_t depth) {
  TW_CHECK(!of.empty(), "no block of registers to choose");
  constexpr double kLatency = 4;
  std::size_t best = 0;
  std::optional<std::pair<double, double>> least;
  for (std::size_t i = 0; i < of.size(); ++i) {
    std::pair<double, double> step;  // cycles, and loads
    for (const EqualBlocks& b : equal_blocks(of[i], rows, vectors)) {
      const auto count = static_cast<double>(b.count), m = static_cast<double>(b.rows),
                 n = static_cast<double>(b.vectors);
      step.first += count * std::max({m * n / 2, (m + n) / 2, kLatency});
      step.second += count * product_loads(m, n, static_cast<double>(depth));
    }
    if (!least || step < *least) least = step, best = i;
  }
  return best;
}

}  // namespace tilewright
