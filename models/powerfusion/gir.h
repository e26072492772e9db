// GIR (Ma et al., PowerFusion, 2023, section 4): a kernel as a dataflow graph of gOperators on
// memory slices, wrapped by parallel units. Predictions only: nothing here runs or counts.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/workload/workload.h"

namespace tilewright::powerfusion {

/// Where a slice is: registers of a lane, registers of a warp's lanes, a block's shared memory,
/// DRAM.
enum class Tier : std::uint8_t { lane, warp, shared, dram };
/// Who must have waited before a value is read: nobody, or all units of a warp, a block, the
/// device.
enum class Scope : std::uint8_t { lane, warp, block, device };
/// Who does an iteration: which block, which warp of it, which lane of that; or, one after the
/// other, a trip of the unit, or one of the contiguous elements that a lane takes at once.
enum class Place : std::uint8_t { block, warp, lane, trip, item };
std::string_view name_of(Tier t);
std::string_view name_of(Scope s);
std::string_view name_of(Place p);
/// The tier that is nearest to the lanes among those that units of the scope have in common.
Tier highest_tier(Scope s);

inline constexpr std::int64_t kLanes = 32;  ///< of a warp, the parallel unit on a GPU

/// A part of a loop's value: loop = sum of step * digit over the loop's digits, each from 0 to
/// count - 1; a digit with a larger step is outside, and before it in a unit map. Iterations whose
/// loop would reach its extent, or whose inner digits would reach an outer one's step, do not
/// exist.
struct Digit {
  int loop = -1;  ///< in Gir::loops
  std::int64_t step = 1, count = 1;
  Place place = Place::trip;
  friend bool operator==(const Digit&, const Digit&) = default;
};
/// Which unit does which iteration. A block's number among blocks is the mixed radix of its digits
/// of that place, the first the most significant; likewise a warp's in its block, a lane's in its
/// warp. What has no digit of a place is done by all of that place alike.
using UnitMap = std::vector<Digit>;

/// One dimension of a slice's base: offset + sum of coefficient * digit of its unit map.
struct BaseTerm {
  int digit = -1;
  std::int64_t coefficient = 1;
  friend bool operator==(const BaseTerm&, const BaseTerm&) = default;
};
struct Base {
  std::int64_t offset = 0;
  std::vector<BaseTerm> terms;
  bool looked_up = false;  ///< by another tensor's value: any element
  friend bool operator==(const Base&, const Base&) = default;
};

/// What a unit has of a tensor in one trip. `base` says where each lane's items lie, too; num,
/// width and stride follow from it (pattern_of).
struct Slice {
  int tensor = -1;  ///< in Gir::tensors
  Tier tier = Tier::dram;
  int units = 0;           ///< in Gir::maps
  std::vector<Base> base;  ///< by the tensor's dimension
  friend bool operator==(const Slice&, const Slice&) = default;
};
/// `num` segments of `width` contiguous elements, their beginnings `stride` apart; all that `times`
/// over where lanes and items go along a third dimension. stride is 0 where num is 1.
struct SlicePattern {
  std::int64_t num = 1, width = 1, stride = 0, times = 1;
  friend bool operator==(const SlicePattern&, const SlicePattern&) = default;
};

/// A gOperator. Moves, transposes and syncs have one input.
enum class GKind : std::uint8_t {
  move,         ///< between tiers, the pattern unchanged
  elementwise,  ///< ew
  broadcast,    ///< bcast: a value for each of more points
  reduce,       ///< over the digits that its output lacks
  transpose,    ///< the same values at another index: transposes, slices, concatenations
  sync,         ///< units wait; what comes after reads in another pattern
};
std::string_view name_of(GKind k);
struct GOp {
  GKind kind = GKind::move;
  std::string name = {};      ///< the operator that it is of; empty: a move's or sync's
  Scope scope = Scope::lane;  ///< of sync and reduce
  std::vector<int> in;        ///< in Gir::slices
  int out = -1;
  friend bool operator==(const GOp&, const GOp&) = default;
};

struct Gir {
  std::string name;
  std::int64_t blocks = 1, warps = 1;  ///< parallel units: blocks * warps
  std::vector<Loop> loops;
  std::vector<Tensor> tensors;  ///< and, with a dot in their names, values of operators' points
  std::vector<int> leaving;     ///< tensors that the kernel must leave in DRAM, ascending
  std::vector<UnitMap> maps;
  std::vector<Slice> slices;
  std::vector<GOp> ops;  ///< each after those whose outputs it reads
  friend bool operator==(const Gir&, const Gir&) = default;
};

/// Row-major distance of neighbours along a tensor's dimension, elements.
std::int64_t stride_of(const Tensor& t, std::size_t dimension);
/// Of the lanes and items of a warp.
SlicePattern pattern_of(const Gir& g, const Slice& s);
/// Distinct elements of the tensor that the lanes and items of all units and trips name; of more
/// than 8 far parts along a dimension what lies between them, too. A looked-up dimension counts
/// whole.
double elements_of(const Gir& g, const Slice& s);

/// A line a declaration and a gOperator:
///   gir layernorm1 blocks 3072 warps 8
///   loop r 24576
///   tensor x f32 24576 1024
///   units u0 block r/8:3072 warp r/1:8 trip c/128:8 lane c/4:32 item c/1:4
///   slice s0 x [8*d0+1*d1, 128*d2+4*d3+1*d4] (dram, 1, 128, 0) u0
///   move s0 -> s1
///   reduce sum warp s1 -> s2
/// A slice's parenthesis is the paper's (memory hierarchy, num, width, stride); d0 is the first
/// digit of its units. A tensor that leaves has "out" behind its shape.
std::string to_text(const Gir& g);
/// Reads it back to the same value. Throws InputError naming the line and what was expected, also
/// where a slice's num, width or stride does not follow from its base. Cost: linear in the text.
Gir parse_gir(std::string_view text, std::string_view where = "gir");
/// The same as JSON, with each slice's pattern.
nlohmann::ordered_json to_json(const Gir& g);

}  // namespace tilewright::powerfusion
