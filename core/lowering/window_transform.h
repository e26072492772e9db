// Convolutions of 3 x 3 taps by minimal filtering, as the CPU target emits them
// (`convolve_transformed`): four points at a time of 16 products, not 36. What they take, for
// whoever chooses that form or prices it.
#pragma once

#include <cstdint>

namespace tilewright {

/// A convolution's tile whose rows (output channels) are transformed once for all runs.
struct TransformedWindow {
  double rows = 1;               ///< of the operand whose rows are output channels
  double width = 1, height = 1;  ///< points
  double channels = 1;           ///< that are summed
  std::int64_t begins = 0;       ///< tiles' rows begin at multiples of it; 0: there is one tile
  std::int64_t lanes = 16;       ///< elements of a vector
  std::int64_t registers = 32;   ///< vectors of them
  double multiply_add = 0.5;     ///< cycles a vector
  double element = 4;            ///< bytes
  double near = 512 << 10;       ///< bytes of the second cache
};

/// Places of a transformed tile of 4 x 4 elements: as many products of matrices.
inline constexpr std::int64_t kTransformedPlaces = 16;

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
