#include "bench/drawn.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "core/base/format.h"

namespace tilewright::bench {
namespace {

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}

  std::int64_t whole(std::int64_t least, std::int64_t most) {
    return least +
           static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(most - least + 1));
  }
  /// Evenly in its logarithm; every third one is no multiple of anything, the others are of 16.
  std::int64_t size(std::int64_t least, std::int64_t most) {
    const double unit = static_cast<double>(random_() >> 11) * 0x1p-53;
    const double x =
        std::exp(std::log(static_cast<double>(least)) +
                 unit * std::log(static_cast<double>(most) / static_cast<double>(least)));
    const auto n = static_cast<std::int64_t>(std::lround(x));
    const bool odd = random_() % 3 == 0;
    return std::clamp(odd ? n : (n + 8) / 16 * 16, least, most);
  }

 private:
  std::mt19937_64 random_;
};

struct Row {
  std::string text;
  double flops = 0;
};

double of(std::int64_t a, std::int64_t b, std::int64_t c) {
  return 2.0 * static_cast<double>(a) * static_cast<double>(b) * static_cast<double>(c);
}

Row product(Draw& d) {
  const auto m = d.size(16, 4096), n = d.size(256, 4096), k = d.size(256, 4096);
  return {formatted("gemm:m={},n={},k={}", m, n, k), of(m, n, k)};
}

Row layers(Draw& d) {
  const auto m = d.size(16, 4096), k = d.size(256, 4096), l = d.size(256, 4096),
             n = d.size(256, 4096);
  return {formatted("gemm-chain:m={},k={},l={},n={},relu={}", m, k, l, n, d.whole(0, 1)),
          of(m, k, l) + of(m, l, n)};
}

Row low_rank(Draw& d) {
  const auto m = d.size(64, 4096), k = d.size(256, 4096), l = d.size(8, 96), n = d.size(256, 4096);
  return {formatted("gemm-chain:m={},k={},l={},n={}", m, k, l, n), of(m, k, l) + of(m, l, n)};
}

Row attention(Draw& d) {
  const auto heads = d.whole(1, 16), m = d.size(32, 1024), l = d.size(32, 1024);
  const auto k = d.size(32, 128), n = d.size(32, 128);
  return {formatted("attention:heads={},m={},l={},k={},n={}", heads, m, l, k, n),
          static_cast<double>(heads) * (of(m, k, l) + of(m, l, n))};
}

Row convolutions(Draw& d) {
  const auto ic = d.size(16, 128), size = d.whole(14, 112), oc1 = d.size(16, 192),
             oc2 = d.size(16, 192);
  const auto k1 = 2 * d.whole(0, 1) + 1, k2 = 2 * d.whole(0, 1) + 1, st1 = d.whole(1, 2);
  const double points = static_cast<double>(size * size) / static_cast<double>(st1 * st1);
  return {formatted("conv-chain:ic={},h={},w={},oc1={},oc2={},st1={},k1={},k2={},relu={}", ic, size,
                    size, oc1, oc2, st1, k1, k2, d.whole(0, 1)),
          points * (of(ic, oc1, k1 * k1) + of(oc1, oc2, k2 * k2))};
}

}  // namespace

std::vector<std::string> drawn_rows(std::uint64_t seed, int count, double most_flops) {
  static constexpr Row (*kKinds[])(Draw&) = {product, layers, low_rank, attention, convolutions};
  Draw draw(seed);
  std::vector<std::string> rows;
  for (std::size_t kind = 0; static_cast<int>(rows.size()) < count;
       kind = (kind + 1) % std::size(kKinds)) {
    Row row = kKinds[kind](draw);
    while (row.flops > most_flops) row = kKinds[kind](draw);
    rows.push_back(std::move(row.text));
  }
  return rows;
}

}  // namespace tilewright::bench
