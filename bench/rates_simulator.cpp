// Rates of the cache simulator on a tiled GEMM 512^3 (fp32, tiles of 64, loops ii jj kk i k j) and
// on random accesses. Counts are held against golden numbers in every run: a fast wrong simulator
// throws.
#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "bench/rates.h"
#include "simulator/cache.h"
#include "tests/support/tiled_gemm.h"

namespace tilewright::bench {
namespace {

constexpr std::int64_t kN = 512, kT = 64, kElement = 4, kArena = 0x10000000;
/// A once for each i, k and column of tiles; B, C and C again for each multiplication.
constexpr double kAccesses = kN * kN * (kN / kT) + 3.0 * kN * kN * kN;
static_assert(kAccesses == 404750336);

CacheHierarchy hierarchy(int tensors) {
  return CacheHierarchy({{.name = "L1", .capacity = Bytes(48 << 10), .ways = 12},
                         {.name = "L2", .capacity = Bytes(1 << 20), .ways = 16},
                         {.name = "L3", .capacity = Bytes(32 << 20), .ways = 16}},
                        tensors);
}

struct Golden {
  std::int64_t leading;
  std::array<std::int64_t, 3> misses, write_backs;
};
constexpr Golden kGolden[] = {{512, {8650752, 172024, 49152}, {131068, 14336, 0}},
                              {528, {391200, 163840, 49152}, {128800, 15297, 0}}};

void check(const CacheHierarchy& h, const Golden& golden) {
  for (std::size_t l = 0; l < 3; ++l) {
    const CacheCount c = h.total(l);
    if (c.misses != golden.misses[l] || c.written.value / 64 != golden.write_backs[l])
      throw std::runtime_error("the simulator counts wrongly: level " + std::to_string(l + 1) +
                               ", leading dimension " + std::to_string(golden.leading));
  }
}

void by_access(const Golden& golden, int tensors) {
  CacheHierarchy h = hierarchy(tensors);
  const int b = tensors > 1 ? 1 : 0, c = tensors > 1 ? 2 : 0;
  testing::tiled_gemm(golden.leading, [&](std::int64_t at_a, std::int64_t at_b, std::int64_t at_c) {
    h.read(at_a, kElement, 0);
    for (std::int64_t j = 0; j < kT * kElement; j += kElement) {
      h.read(at_b + j, kElement, b);
      h.read(at_c + j, kElement, c);
      h.write(at_c + j, kElement, c);
    }
  });
  check(h, golden);
}

void by_range(const Golden& golden, int tensors) {
  CacheHierarchy h = hierarchy(tensors);
  const int b = tensors > 1 ? 1 : 0, c = tensors > 1 ? 2 : 0;
  testing::tiled_gemm(golden.leading, [&](std::int64_t at_a, std::int64_t at_b, std::int64_t at_c) {
    h.read(at_a, kElement, 0);
    h.range(at_b, kT * kElement, false, b);
    h.update(at_c, kT * kElement, c);
  });
  check(h, golden);
}

constexpr std::int64_t kRandom = 30'000'000;

/// Reads of 4 bytes at random places of 64 MiB.
void by_chance() {
  CacheHierarchy h = hierarchy(1);
  std::uint64_t x = 88172645463325252;  // xorshift64: a nanosecond, and the same everywhere
  for (std::int64_t i = 0; i < kRandom; ++i) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    h.read(kArena + static_cast<std::int64_t>(x % ((64U << 20) / kElement)) * kElement, kElement);
  }
  const CacheCount l1 = h.total(0), l2 = h.total(1);
  if (l1.hits + l1.misses != kRandom || l2.hits + l2.misses != l1.misses)
    throw std::runtime_error("the simulator loses accesses");
}

}  // namespace

std::vector<Rate> simulator_rates() {
  std::vector<Rate> rows;
  const std::string peer[2][2] = {{"pycachesim's core: 264 M", "pycachesim's core: 1.9 G"},
                                  {"pycachesim's core: 312 M", "pycachesim's core: 4.0 G"}};
  for (std::size_t g = 0; g < std::size(kGolden); ++g)
    for (int tensors : {3, 1}) {
      const Golden& golden = kGolden[g];
      const std::string which = "GEMM 512, LD " + std::to_string(golden.leading) +
                                (tensors > 1 ? ", by tensor" : ", not by tensor");
      rows.push_back({.name = "access by access, " + which,
                      .unit = "accesses",
                      .per_call = kAccesses,
                      .call = [&golden, tensors] { by_access(golden, tensors); },
                      .slow = true,
                      .beside = tensors == 1 ? peer[g][0] : ""});
      rows.push_back({.name = "by row ranges, " + which,
                      .unit = "element accesses",
                      .per_call = kAccesses,
                      .call = [&golden, tensors] { by_range(golden, tensors); },
                      .slow = true,
                      .beside = tensors == 1 ? peer[g][1] : ""});
    }
  rows.push_back({.name = "random reads over 64 MiB",
                  .unit = "accesses",
                  .per_call = kRandom,
                  .call = by_chance,
                  .slow = true,
                  .beside = "pycachesim's core: 11.5 M"});
  return rows;
}

}  // namespace tilewright::bench
