#include "tests/simulator/rates.h"

#include <array>
#include <ctime>
#include <random>

#include "simulator/stack_distance.h"
#include "tests/support/tiled_gemm.h"

namespace tilewright::rates {

namespace {

constexpr std::int64_t kN = 512, kT = 64, kElement = 4, kArena = 0x10000000, kRow = kT * kElement;
constexpr double kGemmAccesses = 404'750'336;
constexpr int kRandom = 30'000'000;

double now() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

std::array<Stream, 3> inner_loop(std::int64_t b, std::int64_t c, int tb, int tc) {
  return {Stream{.address = b, .stride = kElement, .tensor = tb},
          Stream{.address = c, .stride = kElement, .tensor = tc},
          Stream{.address = c, .stride = kElement, .write = true, .tensor = tc}};
}

void finish(Rate& r, const CacheHierarchy& h, double begun) {
  r.seconds = now() - begun;
  for (std::size_t l = 0; l < h.levels().size(); ++l) {
    const CacheCount c = h.total(l);
    r.misses.push_back(c.misses);
    r.written.push_back(c.written.value / 64);
  }
}

const char* word(Telling t) {
  return t == Telling::singles ? "singles" : t == Telling::ranges ? "ranges" : "streams";
}

std::string name_of(std::int64_t leading, Telling telling, const std::string& what) {
  return "gemm LD " + std::to_string(leading) + ", " + word(telling) + ", " + what;
}

}  // namespace

CacheHierarchy golden_hierarchy(int tensors, const std::string& policy) {
  std::vector<CacheGeometry> levels{{.name = "L1", .capacity = Bytes(48 << 10), .ways = 12},
                                    {.name = "L2", .capacity = Bytes(1 << 20), .ways = 16},
                                    {.name = "L3", .capacity = Bytes(32 << 20), .ways = 16}};
  for (CacheGeometry& g : levels) g.policy = policy;
  return CacheHierarchy(std::move(levels), tensors);
}

Rate gemm(std::int64_t leading, Telling telling, int tensors, const std::string& policy) {
  CacheHierarchy h = golden_hierarchy(tensors, policy);
  const int tb = tensors == 1 ? 0 : 1, tc = tensors == 1 ? 0 : 2;
  Rate r{.name = name_of(leading, telling, policy + (tensors == 1 ? "" : ", by tensor")),
         .accesses = kGemmAccesses};
  const double begun = now();
  switch (telling) {
    case Telling::singles:
      testing::tiled_gemm(leading, [&](std::int64_t a, std::int64_t b, std::int64_t c) {
        h.read(a, kElement, 0);
        for (std::int64_t j = 0; j < kRow; j += kElement) {
          h.read(b + j, kElement, tb);
          h.read(c + j, kElement, tc);
          h.write(c + j, kElement, tc);
        }
      });
      break;
    case Telling::ranges:
      testing::tiled_gemm(leading, [&](std::int64_t a, std::int64_t b, std::int64_t c) {
        h.read(a, kElement, 0);
        h.elements(b, kT, kElement, false, tb);
        h.update_elements(c, kT, kElement, tc);
      });
      break;
    case Telling::streams:
      testing::tiled_gemm(leading, [&](std::int64_t a, std::int64_t b, std::int64_t c) {
        h.read(a, kElement, 0);
        h.streams(inner_loop(b, c, tb, tc), kT);
      });
      break;
  }
  finish(r, h, begun);
  return r;
}

Rate random_accesses(int tensors, const std::string& policy) {
  CacheHierarchy h = golden_hierarchy(tensors, policy);
  std::mt19937_64 random(1);
  std::vector<std::uint32_t> at(kRandom);
  for (std::uint32_t& a : at) a = static_cast<std::uint32_t>(random() % (64 << 20)) & ~3u;
  Rate r{.name = "random over 64 MiB, " + policy + (tensors == 1 ? "" : ", by tensor"),
         .accesses = kRandom};
  const double begun = now();
  for (const std::uint32_t a : at) h.read(kArena + a, kElement, 0);
  finish(r, h, begun);
  return r;
}

Rate gemm_distances(std::int64_t leading, Telling telling) {
  StackDistances s(Bytes(64), 1, 3);
  Rate r{.name = name_of(leading, telling, "stack distances"), .accesses = kGemmAccesses};
  const double begun = now();
  testing::tiled_gemm(leading, [&](std::int64_t a, std::int64_t b, std::int64_t c) {
    s.access(a, kElement, 0);
    if (telling == Telling::streams) return s.streams(inner_loop(b, c, 1, 2), kT);
    for (std::int64_t j = 0; j < kRow; j += kElement) {
      s.access(b + j, kElement, 1);
      s.access(c + j, kElement, 2);
      s.access(c + j, kElement, 2);
    }
  });
  r.seconds = now() - begun;
  r.misses = {s.total().misses((48 << 10) / 64)};
  return r;
}

}  // namespace tilewright::rates
