// The numbers that calibrate measures: what each runs, and the sizes that with_measured takes them
// apart by.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "core/lowering/product_loads.h"
#include "core/lowering/register_blocks.h"
#include "core/machine/machine.h"
#include "harness/calibrate.h"

namespace tilewright::harness {

/// All numbers of this machine. `threads`: of its cores; `lanes`: f32 elements of a vector.
std::vector<Gauge> gauges_of(const Machine& m, int threads, double lanes);

/// A product whose steps are measured, in two depths. Rows of the right operand are a panel wide:
/// those of several panels would share some of the first cache's sets (on a Zen 5, 128 columns take
/// 1.06 times as long a column as 64).
inline constexpr int kProductRows = 96, kProductColumns = 64, kShortProduct = 32;
/// Rows, columns and depth of a product whose right operand is turned before it is read.
inline constexpr int kTurnedRows = 12, kTurnedSide = 64;
static_assert(!reads_along_depth(kTurnedRows, kTurnedSide), "or it is not turned");
/// The micro-kernel's block that such a product is emitted with, and how many there are of it.
std::pair<RegisterBlock, double> blocks_of_product(const ComputeUnit& u, int depth);
/// The deeper one's panels of the right operand stay in half of the first cache: from the second
/// one, steps would wait for them.
int deep_product(const Machine& m);
inline constexpr const char* kDeepProduct = "product, deep panels in the first cache";

/// Rows and depths of products whose operands are taken in pairs of steps.
inline constexpr int kTallPairs = 96, kFlatPairs = 24, kDeepPairs = 256, kShortPairs = 32;
/// The same of quads. Tiles multiply thirty times as fast as vectors: the difference between two
/// products must be far more than what each of them begins with.
inline constexpr int kTallQuads = 384, kFlatQuads = 128, kDeepQuads = 1024, kShortQuads = 256;

/// So few that what is read and written stays in the first cache.
inline constexpr int kNearRows = 3;
/// Operations that a row's points have more than those of "points light".
inline constexpr const char* kMoreOperations = "points light, six operations more";
inline constexpr int kOperationsMore = 6;
inline constexpr int kPointsOfRow = 1024;
/// Rows whose elements have another type at home than the points are computed in.
inline constexpr int kConvertedRows = 2;
/// Rows of four vectors whose sums are read together, as vectors, right after they are stored.
inline constexpr int kSumRows = 512, kFewRows = 2, kManyRows = 16;

/// How names of what the last cache gives again end: bytes stand before.
inline constexpr std::string_view kReadAgain = " bytes read again";

}  // namespace tilewright::harness
