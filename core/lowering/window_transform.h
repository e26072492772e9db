// Convolutions by minimal filtering, as the CPU target emits them (`convolve_transformed`): of 3 x
// 3 taps four points at a time of 16 products, not 36, of 5 x 5 taps of 36, not 100. What they
// take, for whoever chooses that form or prices it.
#pragma once

#include <cstdint>

namespace tilewright {

/// A convolution's tile whose rows (output channels) are transformed once for all runs.
struct TransformedWindow {
  double rows = 1;                    ///< of the operand whose rows are output channels
  double width = 1, height = 1;       ///< points
  double channels = 1;                ///< that are summed
  std::int64_t down = 3, across = 3;  ///< taps
  std::int64_t begins = 0;      ///< tiles' rows begin at multiples of it; 0: there is one tile
  std::int64_t lanes = 16;      ///< elements of a vector
  std::int64_t registers = 32;  ///< vectors of them
  double multiply_add = 0.5;    ///< cycles a vector
  double element = 4;           ///< bytes
  double near = 512 << 10;      ///< bytes of the second cache
};

/// Of a dimension with so many taps: points of a transformed tile, and places of it. As many
/// products of matrices as places of both dimensions.
constexpr std::int64_t points_of_taps(std::int64_t taps) { return taps > 1 ? 2 : 1; }
constexpr std::int64_t places_of_taps(std::int64_t taps) { return taps > 1 ? taps + 1 : 1; }
/// Whether taps are transformed at all: there are several, and no error grows beyond what rounding
/// of the sums in order is taken to be (core/workload/reference/rounding.h). More places ask for
/// sums of more channels; those of 4, 6 or 7 taps, and of 2 x 5, never are small enough.
bool can_transform(std::int64_t down, std::int64_t across, double channels);

struct TransformedBands {
  std::int64_t tiles = 1;  ///< rows of tiles, of two rows of points each, at a time
  std::int64_t bands = 1;  ///< of so many
  std::int64_t rows = 1;   ///< output channels at a time, a multiple of a group's
  double cycles = 0;       ///< of the whole tile, one thread
};

/// Of a micro-kernel: rows, a number of which tiles begin at multiples of, by vectors of tiles.
struct TransformedBlock {
  std::int64_t rows = 1, vectors = 1;
};
/// That which takes the fewest cycles beside so many vectors of tiles.
TransformedBlock block_of_transformed(const TransformedWindow& w, std::int64_t vectors);
/// Rows of tiles and of output channels that meet at a time, so that they take the fewest cycles:
/// what is read again comes from the second cache, or from further. Cost: a look at each number of
/// bands.
TransformedBands bands_of_transformed(const TransformedWindow& w);

}  // namespace tilewright
