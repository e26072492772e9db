#include "core/lowering/window_transform.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tilewright {

namespace {

constexpr double kFar = 12;  // bytes a cycle, of what does not stay in the second cache
constexpr double kShare = 0.4;

std::int64_t up(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

/// Cycles of a step of blocks that fill rows x vectors, and of beginning and ending them.
double product_cycles(const TransformedWindow& w, const TransformedBlock& m, std::int64_t rows,
                      std::int64_t vectors) {
  constexpr double kLatency = 4, kOthers = 6, kIssued = 4.3;  // as codegen/cpu/emit_lines.cpp
  constexpr double kRun = 36;                                 // a block is begun
  double cycles = 0;
  const std::int64_t panels = up(vectors, m.vectors), wide = vectors % panels;
  const auto add = [&](std::int64_t count, std::int64_t height, std::int64_t width) {
    if (count * height * width == 0) return;
    const auto h = static_cast<double>(height), v = static_cast<double>(width);
    const double issued = w.registers < 32 ? (v * h + v + h + kOthers) / kIssued : 0;
    const double step = std::max({v * h * w.multiply_add, (v + h + 1) / 2, kLatency, issued});
    cycles += static_cast<double>(count) * (step * w.channels + kRun + v * h);
  };
  for (const auto& [count, height] :
       {std::pair(rows / m.rows, m.rows), std::pair(std::int64_t{1}, rows % m.rows)}) {
    add(count * wide, height, vectors / panels + 1);
    add(count * (panels - wide), height, vectors / panels);
  }
  return cycles;
}

/// A vector of tiles, of a channel that is read, and of one that is written.
std::pair<double, double> transform_cycles(std::int64_t down, std::int64_t across) {
  // By taps: elements that a place takes, about.
  constexpr double kTaken[] = {0, 1, 1.7, 2, 3.2, 4.3};
  const auto taken = [&](std::int64_t taps) { return kTaken[static_cast<std::size_t>(taps)]; };
  const auto points_down = static_cast<double>(points_of_taps(down));
  const auto points = points_down * static_cast<double>(points_of_taps(across));
  const auto rows = static_cast<double>(places_of_taps(down));
  const auto columns = static_cast<double>(places_of_taps(across));
  const double in =
      points_down * columns * (taken(across) + 1) + rows * columns * (taken(down) + 1);
  const double out = points_down * columns * (rows - 1) + points * (columns - 1) + 5 * points;
  return {in, out};
}

}  // namespace

TransformedBlock block_of_transformed(const TransformedWindow& w, std::int64_t vectors) {
  constexpr std::int64_t kMostRows = 12, kMostVectors = 4;
  const auto rows = static_cast<std::int64_t>(w.rows);
  TransformedBlock best;
  double least = 0;
  for (std::int64_t v = 1; v <= kMostVectors; ++v)
    for (std::int64_t h = 1; h <= kMostRows && h * v + v + 1 <= w.registers; ++h) {
      if (w.begins % h != 0) continue;
      const double cycles = product_cycles(w, {h, v}, rows, vectors);
      if (least == 0 || cycles < least) best = {h, v}, least = cycles;
    }
  return best;
}

bool can_transform(std::int64_t down, std::int64_t across, double channels) {
  constexpr std::int64_t kMostTaps = 5;
  constexpr double kFewSteps = 64;
  const auto [few, many] = std::minmax(down, across);
  if (few < 1 || many < 2 || many > kMostTaps) return false;
  // Standard deviations of errors over what the bound takes them to be, of uniform numbers, the
  // largest of 24 operands' points: of 2 x 2 taps 1.1 with 4 channels, of 2 x 3 0.52 with 11, of
  // 3 x 3 0.57 with 4; of 1 x 5, 3 x 5 and 5 x 5 0.64, 0.48 and 0.82 with 64, none of whose errors
  // was above 0.78 of its bound. One of 2 x 5 was at 0.87, of 1 x 4 with 38 channels at 1.03; of
  // 4 x 4 with 64 the deviation is 1.25, of 1 x 7 1.04, of 6 x 6 and 7 x 7 1.6.
  if (many <= 3) return static_cast<double>(down * across) * channels >= kFewSteps;
  return many == 5 && few % 2 == 1 && channels >= 64;
}

TransformedBands bands_of_transformed(const TransformedWindow& w) {
  const double places = static_cast<double>(places_of_taps(w.down) * places_of_taps(w.across));
  const std::int64_t points_down = points_of_taps(w.down), points_across = points_of_taps(w.across);
  const auto [in, out] = transform_cycles(w.down, w.across);
  const auto across = up(static_cast<std::int64_t>(w.width), points_across);
  const auto down = up(static_cast<std::int64_t>(w.height), points_down);
  const auto rows = static_cast<std::int64_t>(w.rows);
  TransformedBands best;
  for (std::int64_t bands = 1; bands <= down; ++bands) {
    const std::int64_t tiles = up(down, bands);
    if (up(down, tiles) != bands) continue;
    const std::int64_t vectors = up(tiles * across, w.lanes);
    const TransformedBlock m = block_of_transformed(w, vectors);
    const double of_vector = places * static_cast<double>(w.lanes) * w.element;
    const double right = of_vector * static_cast<double>(vectors) * w.channels;
    const double of_row = of_vector * static_cast<double>(vectors);
    // Sums of the rows that are taken at a time stay in the second cache.
    std::int64_t together =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(kShare * w.near / of_row) / m.rows) *
        m.rows;
    const std::int64_t times = up(rows, together);
    together = std::min(up(up(rows, times), m.rows) * m.rows, up(rows, m.rows) * m.rows);
    const double left = places * w.rows * w.channels * w.element;
    const auto far = [&](double bytes, double again) {
      return bytes > kShare * w.near ? bytes * again / kFar : 0.0;
    };
    const double one = places * product_cycles(w, m, rows, vectors) +
                       static_cast<double>(vectors) * (w.channels * in + w.rows * out) +
                       far(left, 1) / 2 + far(right, static_cast<double>(up(rows, together))) / 2;
    const double cycles = one * static_cast<double>(bands);
    if (best.cycles == 0 || cycles < best.cycles)
      best = {.tiles = tiles, .bands = bands, .rows = together, .cycles = cycles};
  }
  return best;
}

}  // namespace tilewright
