#include "harness/gauges.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/base/format.h"
#include "harness/gauge_samples.h"
#include "harness/memory_passes.h"
#include "harness/turns.h"

namespace tilewright::harness {
namespace {

constexpr std::size_t kLongRow = 16;  // lines, 1 KiB

std::string product_text(int m, int n, int k, const std::string& dtype = "f32",
                         bool turned = false) {
  return formatted(
      "name: product\ndtype: {}\nloops: {{m: {}, \"n\": {}, k: {}}}\noperators: [\"C[m,n] += "
      "A[m,k] * B[{}]\"]\n",
      dtype, m, n, k, turned ? "n,k" : "k,n");
}
constexpr int kRows = 8;
/// X + 1, where X or Y has another type at home than the points are computed in.
std::string converted_text(const std::string& tensor, const std::string& type, int rows) {
  return formatted(
      "name: points\ndtypes: {{{}: {}}}\nloops: {{i: {}, j: {}}}\noperators: [\"Y[i,j] "
      "= X[i,j] + 1\"]\n",
      tensor, type, rows, kPointsOfRow);
}

std::string points_text(const std::string& value, int rows) {
  return formatted("name: points\nloops: {{i: {}, j: {}}}\noperators: [\"Y[i,j] = {}\"]\n", rows,
                   kPointsOfRow, value);
}

constexpr std::string_view kSums =
    "name: sums\nloops: {i: 512, j: 64}\noperators: [\"S[i] += X[i,j]\", \"R[i] = rsqrt(S[i] * "
    "0.01 + 1)\", \"Y[i,j] = X[i,j] * R[i]\"]\n";
/// Two operators, tile by tile, a whole vector each: a store of a part of one may take so long
/// that all else passes beside it.
constexpr int kVisitRows = 512, kVisitColumns = 64;
constexpr std::string_view kVisits =
    "name: visits\nloops: {i: 512, j: 64}\noperators: [\"T[i,j] = X[i,j] + 1\", \"Y[i,j] = "
    "relu(T[i,j] * X[i,j])\"]\n";
/// Points in tiles of so few columns that each is computed alone (1), or that vectors are parts.
constexpr int kTileRows = 64, kTileColumns = 40, kPartColumns = 4, kJoinRows = 256;
constexpr int kTilePoints = kTileRows * kTileColumns, kParts = kTilePoints / kPartColumns;
Prepared tiles(const std::string& value, int columns, double units) {
  return running(formatted("name: tiles\nloops: {{i: {}, j: {}}}\noperators: [\"Y[i,j] = {}\"]\n",
                           kTileRows, kTileColumns, value),
                 formatted("j/{} ( C.Y )", columns), 1, units);
}
/// A depthwise convolution of rows of `kTapRow` points, neighbours or every other one.
constexpr int kTapRow = 32, kTapRows = 16 * 16 * 9;
std::string taps_text(int step) {
  return formatted(
      "name: taps\nloops: {{c: 16, h: 16, w: {}, r: 3, s: 3}}\noperators: [\"Y[c,h,w] += "
      "X[c,h+r,{}*w+s] * K[c,r,s]\"]\n",
      kTapRow, step);
}

std::string read_again(std::size_t bytes) { return formatted("{}{}", bytes, kReadAgain); }

}  // namespace

std::pair<RegisterBlock, double> blocks_of_product(const ComputeUnit& u, int depth) {
  const auto of = register_blocks(u.registers);
  const std::int64_t lanes = std::max<std::int64_t>(1, u.vector_width.value / 4),
                     vectors = ceil_div(kProductColumns, lanes);
  const RegisterBlock& b = of[block_fitting(of, kProductRows, vectors, depth)];
  return {b, static_cast<double>(count_blocks(b, kProductRows, vectors))};
}

int deep_product(const Machine& m) {
  constexpr int kLeast = 2 * kShortProduct, kMost = 512;
  std::int64_t first = 0;
  for (const Level& l : m.levels)
    if (l.kind == LevelKind::cache) first = l.capacity.value;
  if (first == 0 || m.units.empty()) return kMost;
  const ComputeUnit& u = m.units.front();
  const std::int64_t step =
      blocks_of_product(u, kMost).first.vectors * std::max<std::int64_t>(u.vector_width.value, 4);
  const auto steps = static_cast<int>(std::min<std::int64_t>(first / 2 / step, kMost));
  return std::max(steps / kShortProduct * kShortProduct, kLeast);
}

std::vector<Gauge> gauges_of(const Machine& m, int threads, double lanes) {
  std::vector<Gauge> all;
  // Those from `begin` on are taken from one another.
  const auto group = [&](std::size_t begin) {
    for (std::size_t i = begin; i < all.size(); ++i) all[i].group = all[begin].name;
  };
  all.push_back({"cycle", [] {
                   return Prepared(Sample([] {
                     constexpr std::size_t kSteps = 4'000'000;
                     return seconds_of([] { add_chain(1, kSteps); }) / kSteps;
                   }));
                 }});
  constexpr std::size_t kTimesInner = 8;
  std::size_t largest = std::size_t{16} << 20, inner = 0, near = 0;
  std::string last_cache;
  for (std::size_t i = m.levels.size(); i-- > 1;) {
    const Level& l = m.levels[i];
    if (l.kind != LevelKind::cache) continue;
    const auto capacity = static_cast<std::size_t>(l.capacity.value);
    const bool shared = l.private_to < Unit::grid;
    largest = std::max(largest, capacity);
    // What a level holds is read into the next one further in: half of it, a thread's share. Of a
    // last cache that many processors share, as much as kernels have in it: of more, pages' tables
    // are.
    const bool innermost = last_cache.empty();
    const std::size_t bytes =
        std::min(capacity / 2 / static_cast<std::size_t>(shared ? threads : 1),
                 innermost ? capacity : kTimesInner * inner);
    if (!innermost) {
      all.push_back({"bandwidth " + l.name, [=] { return reading(bytes, 1); }});
      all.push_back({"writing " + l.name, [=] { return writing(bytes); }});
    }
    all.push_back({"latency " + l.name, [=] { return chasing(innermost ? capacity / 2 : bytes); }});
    last_cache = l.name, inner = capacity, near = bytes;
  }
  // How much of it comes from the last cache when it is read over and over: others may use the
  // same.
  for (std::size_t bytes = 2 * near; near > 0 && bytes <= inner; bytes *= 2)
    all.push_back({read_again(bytes), [=] { return reading(bytes, 1); }});
  const std::size_t home = 4 * largest;
  all.push_back({"bandwidth home",
                 [=] { return reading(home / static_cast<std::size_t>(threads), threads); }});
  constexpr std::size_t kTakenOver = std::size_t{64} << 10;
  if (threads > 1)
    all.push_back({"what another core has written", [=] { return taking_over(kTakenOver); }});
  all.push_back({"bandwidth home, one core", [=] { return reading(home, 1); }});
  all.push_back({"writing home", [=] { return writing(home); }});
  all.push_back({"writing past caches", [=] { return writing(home, write_past_pass); }});
  all.push_back({"latency home", [=] { return chasing(home); }});
  std::size_t begin = all.size();
  all.push_back({"copy", [] { return packing(kLongRow); }});
  all.push_back({"copy, short rows", [] { return packing(1); }});
  group(begin);
  // A block of registers a step and besides: two depths.
  begin = all.size();
  for (const auto& [name, depth] :
       {std::pair{kDeepProduct, deep_product(m)}, {"product short", kShortProduct}})
    all.push_back({name, [depth] {
                     return running(product_text(kProductRows, kProductColumns, depth), "C.C", 1,
                                    1);
                   }});
  group(begin);
  // The same product of a right operand as it lies, and of one that is turned.
  begin = all.size();
  for (const bool turned : {false, true})
    all.push_back({turned ? "product, turned" : "product, as it lies", [turned] {
                     const std::string text =
                         product_text(kTurnedRows, kTurnedSide, kTurnedSide, "f32", turned);
                     return running(text, "C.C", 1, 1);
                   }});
  group(begin);
  const auto light = [](int rows, const char* value = "relu(X[i,j] + 1)") {
    return [=] { return running(points_text(value, rows), "C.Y", 1, 1); };
  };
  begin = all.size();
  all.push_back({"points light", light(kNearRows)});
  all.push_back({"points light, one row", light(1)});
  // Six operations more: what an operation takes where no store is waited for.
  all.push_back({kMoreOperations,
                 light(kNearRows, "relu(relu(relu(relu(X[i,j] + 1) - 0.5) - 0.25) - 0.125)")});
  all.push_back({"points divide", [=] {
                   return running(points_text("X[i,j] / (X[i,j] + 4)", kNearRows), "C.Y", 1,
                                  kNearRows * kPointsOfRow / lanes);
                 }});
  all.push_back({"parts", [] { return tiles("relu(X[i,j] + 1)", kPartColumns, kParts); }});
  // Rows of one vector: each is joined.
  all.push_back({"joins", [=] {
                   return running(formatted("name: joins\nloops: {{i: {}, j: {}}}\noperators: "
                                            "[\"S[i] += X[i,j]\"]\n",
                                            kJoinRows, static_cast<int>(lanes)),
                                  "C.S", 1, kJoinRows);
                 }});
  group(begin);
  // What is converted as it is copied in, and as it is copied out.
  for (const char* type : {"f16", "bf16"})
    for (const char* tensor : {"X", "Y"}) {
      begin = all.size();
      for (int rows : {kConvertedRows, 1})
        all.push_back({formatted("{}, {}, {}", *tensor == 'X' ? "widened" : "narrowed", type, rows),
                       [=] { return running(converted_text(tensor, type, rows), "C.Y", 1, 1); }});
      group(begin);
    }
  // What products of bf16 reach, in pairs where there are instructions for it.
  begin = all.size();
  for (int m : {kTallPairs, kFlatPairs})
    for (int k : {kDeepPairs, kShortPairs})
      all.push_back({formatted("pairs, {} rows, {} steps", m, k),
                     [=] { return running(product_text(m, 128, k, "bf16"), "C.C", 1, 1); }});
  group(begin);
  // The same of whole numbers of 8 bits, in quads.
  begin = all.size();
  for (int m : {kTallQuads, kFlatQuads})
    for (int k : {kDeepQuads, kShortQuads})
      all.push_back({formatted("quads, {} rows, {} steps", m, k), [=] {
                       return running("dtypes: {A: i8, B: i8}\n" + product_text(m, 128, k), "C.C",
                                      1, 1);
                     }});
  group(begin);
  constexpr double kPoints = kRows * kPointsOfRow;
  all.push_back({"points expensive", [=] {
                   return running(points_text("exp(X[i,j])", kRows), "C.Y", 1, kPoints / lanes);
                 }});
  begin = all.size();
  for (const auto& one : {std::pair{"light", "relu(X[i,j] + 1)"},
                          {"expensive", "exp(X[i,j])"},
                          {"library", "tanh(X[i,j])"}})
    all.push_back({formatted("points alone, {}", one.first),
                   [one] { return tiles(one.second, 1, kTilePoints); }});
  group(begin);
  const auto sums = [](int rows) {
    return [rows] {
      return running(std::string(kSums), formatted("i/{} ( C.S C.R C.Y )", rows), 1, 1);
    };
  };
  begin = all.size();
  all.push_back({"sums read, few rows", sums(kFewRows)});
  all.push_back({"sums read, many rows", sums(kManyRows)});
  group(begin);
  all.push_back({"visits of vectors", [=] {
                   return at_places([=] {
                     return running(std::string(kVisits),
                                    formatted("i/1 j/{} ( C.T C.Y )", static_cast<int>(lanes)), 1,
                                    kVisitRows * kVisitColumns / lanes);
                   });
                 }});
  const auto taps = [=](int step) {
    return
        [=] { return running(taps_text(step), "C.Y", 1, kTapRows * std::ceil(kTapRow / lanes)); };
  };
  all.push_back({"taps", taps(1)});
  all.push_back({"taps, apart", taps(2)});
  const auto region = [](int of) {
    return [of] { return running(points_text("X[i,j] + 1", kRows), "i/1@grid ( C.Y )", of, 1); };
  };
  all.push_back({"launch", launching_nothing});
  begin = all.size();
  all.push_back({"launch, in turn", [] { return launching(false); }});
  all.push_back({"launch, after other code", [] { return launching(true); }});
  group(begin);
  begin = all.size();
  if (threads > 1) all.push_back({"region", region(2)});
  if (threads > 2) all.push_back({"region, all threads", region(threads)});
  group(begin);
  return all;
}

}  // namespace tilewright::harness
