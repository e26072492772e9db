#include "core/lowering/gpu/box_bytes.h"

#include <algorithm>
#include <bit>

#include "core/base/format.h"

namespace tilewright::lowering {
namespace {

constexpr std::int64_t kSector = 32, kLine = 128;

/// Sectors of a row whose bytes from `begin` on exist, so many of a box's `wide`.
std::int64_t sectors(std::int64_t begin, std::int64_t there, std::int64_t wide, bool several) {
  const std::int64_t first = begin / kSector, end = ceil_div(begin + there, kSector);
  std::int64_t past = ceil_div(wide - there, kSector);
  if (there == 0) return past;
  if (!several) return end - first + past;
  // To several blocks a line's sectors go in packets of one, two or four, and what lies past an end
  // takes one more (seen on an H100: h100-hopper-bytes.json).
  std::int64_t all = past + (there < wide ? 1 : 0);
  for (std::int64_t s = first; s < end;) {
    const std::int64_t next = std::min(end, (s / (kLine / kSector) + 1) * (kLine / kSector));
    all += static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(next - s)));
    s = next;
  }
  return all;
}

/// An operand's boxes of all tiles that lie along one of its dimensions, for all of the depth.
struct Boxes {
  const BoxMap& map;
  bool across;  ///< rows of the box run along the tiles, else along the depth
  bool several;

  /// The tile from `begin` on with `tile` elements, `deep` of the depth from `depth` on in `rows`.
  /// `group`: of the map's fourth dimension.
  std::int64_t of(std::int64_t begin, std::int64_t tile, std::int64_t depth, std::int64_t deep,
                  std::int64_t product, std::int64_t group = 0) const {
    std::int64_t bytes = 0;
    const std::int64_t wide = across ? tile : deep, from = across ? begin : depth;
    for (std::int64_t c = 0; c < wide; c += map.box[0])
      bytes += box_bytes(map, from + c, across ? depth : begin, product, across ? deep : tile,
                         several, group);
    return bytes;
  }
};

}  // namespace

std::int64_t box_bytes(const BoxMap& map, std::int64_t column, std::int64_t row,
                       std::int64_t product, std::int64_t rows, bool several, std::int64_t group) {
  const std::int64_t size = map.stride[0], wide = map.box[0] * size;
  const std::int64_t there = std::clamp<std::int64_t>(map.extent[0] - column, 0, map.box[0]) * size;
  std::int64_t all = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const bool in = row + r < map.extent[1] && product < map.extent[2];
    all += sectors(
        group * map.stride[3] + product * map.stride[2] + (row + r) * map.stride[1] + column * size,
        in ? there : 0, wide, several);
  }
  return all * kSector;
}

/// Of the images' boxes of all tiles, for one of the tiles of rows.
std::int64_t image_bytes(const WarpgroupProduct& p) {
  const ImagePoints& images = *p.images;
  const BoxMap& map = p.maps[1];
  const std::int64_t wide = map.box[0] * map.stride[0];
  std::int64_t all = 0;
  for (std::int64_t product = 0; product < p.count; ++product)
    for (std::int64_t column = 0; column < p.columns; column += p.columns_apart)
      for (std::int64_t tap = 0; tap < images.taps(); ++tap)
        for (std::int64_t i = 0; i < images.points(); ++i) {
          std::int64_t point = product * p.columns + column, rest = tap, row = i, at = 0;
          bool inside = true;
          for (std::size_t d = 0; d < images.along.size(); ++d) {
            const ImagePoints::Along& a = images.along[d];
            const std::int64_t line =
                (point % a.extent + row % a.tile) * a.stride + rest % a.taps * a.dilate - a.pad;
            inside = inside && line >= 0 && line < map.extent[d + 1];
            at += line * map.stride[d + 1];
            point /= a.extent, rest /= a.taps, row /= a.tile;
          }
          for (std::int64_t c = 0; c < images.channels; c += map.box[0])
            all += sectors(at + c * map.stride[0],
                           inside ? std::min(images.channels - c, map.box[0]) * map.stride[0] : 0,
                           wide, false);
        }
  return all * kSector;
}

std::int64_t box_bytes(const WarpgroupProduct& p) {
  // Of clusters, those of tiles past an end, too.
  const std::int64_t down = round_up(ceil_div(p.rows, std::int64_t{p.tile_rows()}), p.down),
                     across = round_up(p.tiles_across(), p.across);
  const Boxes left{p.maps[0], p.left_across, p.across > 1},
      right{p.maps[1], p.right_across, p.down > 1};
  std::int64_t bytes = p.images ? down * image_bytes(p) : 0;
  for (std::int64_t product = 0; product < p.count; ++product)
    for (std::int64_t part = 0; part < p.depth; part += p.part)
      for (std::int64_t k = part; k < std::min(p.depth, part + p.part); k += 64 * p.steps)
        for (int step = 0; step < p.steps; ++step) {
          const auto of_left = p.box_place(true, k + step * 64, product),
                     of_right = p.box_place(false, k + step * 64, product);
          for (std::int64_t i = 0; i < down; ++i)
            bytes += across * left.of(i * p.tile_rows(), p.tile_rows(), of_left.depth, 64,
                                      of_left.matrix, product / (p.count / p.groups_of_rows()));
          for (std::int64_t i = 0; i < across && !p.images; ++i)
            bytes +=
                p.products() * down *
                right.of(i * p.columns_apart, p.tile_columns, of_right.depth, 64, of_right.matrix);
        }
  return bytes;
}

std::int64_t box_bytes(const WarpgroupPair& p) {
  const Boxes left{p.maps[0], p.left_across, false}, right{p.maps[1], p.right_across, false},
      second{p.maps[2], p.second_across, false};
  const auto at = [](const MatrixAccess& m, std::int64_t product) {
    return product / m.divide % m.modulo;
  };
  const std::int64_t deep = ceil_div(p.depth, std::int64_t{16}) * 16;
  std::int64_t bytes = 0;
  for (std::int64_t product = 0; product < p.count; ++product)
    for (std::int64_t d = 0; d < p.tiles_down(); ++d) {
      bytes += p.tiles_across() *
               left.of(d * p.tile_rows(), p.tile_rows(), 0, deep, at(p.of_left, product));
      const auto [from, to] = p.turns(d);
      for (std::int64_t turn = from; turn < to; ++turn) {
        const std::int64_t l = p.middle_begin(product) + turn * p.tile_middle;
        bytes += p.tiles_across() * right.of(l, p.tile_middle, 0, deep, at(p.of_right, product));
        for (std::int64_t c = 0; c < p.tiles_across(); ++c)
          bytes += second.of(c * p.tile_columns, p.tile_columns, l, p.tile_middle,
                             at(p.of_second, product));
      }
    }
  return bytes;
}

Result<std::int64_t> box_bytes(const Schedule& s) {
  std::int64_t bytes = 0;
  for (std::size_t k = 0; k < s.kernels.size(); ++k) {
    const int kernel = static_cast<int>(k);
    if (const auto product = warpgroup_product(s, kernel))
      bytes += box_bytes(*product);
    else if (const auto pair = warpgroup_pair(s, kernel))
      bytes += box_bytes(*pair);
    else
      return Reason{s.kernels[k].name + ": " + product.reason() + "; " + pair.reason()};
  }
  return bytes;
}

}  // namespace tilewright::lowering
