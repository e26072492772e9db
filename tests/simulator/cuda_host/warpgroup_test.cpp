// Does a product by warpgroups and the TMA unit compute the right numbers and move the right bytes
// with nothing found, and is each of its barriers, waits and fences missed where it is left out?
#include <algorithm>
#include <cmath>
#include <set>

#include "tests/simulator/cuda_host/support.h"

namespace tilewright::cuda_host {
namespace {

struct Form {
  std::string kernel;
  int rows, columns;  ///< of a tile
  int groups, stages, steps;
  bool bfloat, left_across, right_across, all;  ///< all: products have the right operand together
  int out_bytes;
  bool out_bfloat, positive;
  int unit;  ///< that the columns are a multiple of
};
const std::vector<Form> kForms = {
    {"rows_rows", 64, 64, 1, 2, 1, false, false, true, false, 2, false, false, 8},
    {"rows_columns", 128, 48, 2, 3, 1, true, false, false, false, 2, true, true, 2},
    {"columns_rows", 128, 64, 1, 2, 2, false, true, true, true, 4, false, true, 8},
    {"columns_columns", 64, 80, 1, 2, 1, true, true, false, true, 2, false, false, 1},
};

const Built& built() {
  static const Built all("warpgroup.cu",
                         {"rows_rows", "rows_columns", "columns_rows", "columns_columns"},
                         {"tilewright_tiles.h", "tilewright_hopper.h", "tilewright_warpgroups.h"});
  return all;
}

struct Size {
  int m, n, k, count;
};

/// [count][outer][inner], or one of them, in boxes of rows of 128 bytes.
lowering::BoxMap boxes(int tensor, DType type, std::int64_t inner, std::int64_t outer,
                       std::int64_t count, int box) {
  const std::int64_t e = size_of(type);
  return {.tensor = TensorId(static_cast<std::size_t>(tensor)),
          .type = type,
          .extent = {inner, outer, count},
          .stride = {e, inner * e, inner * outer * e},
          .box = {static_cast<int>(128 / e), box}};
}

struct Case {
  Form form;
  Size size;
  std::vector<std::uint16_t> a, b, c;
  std::vector<float> wide;
  std::vector<int> sizes;

  Case(const Form& f, const Size& s, unsigned seed) : form(f), size(s) {
    a = random_f16(std::size_t(s.m) * s.k * s.count, seed);
    b = random_f16(std::size_t(s.n) * s.k * (f.all ? 1 : s.count), seed + 1);
    if (f.bfloat)
      for (auto* all : {&a, &b})
        for (auto& x : *all) x = tw_half::bf16_of_float(tw_half::float_of_f16(x));
    c.assign(std::size_t(s.m) * s.n * s.count, 0x7fff);
    wide.assign(c.size(), NAN);
    sizes = {s.m, s.n, s.k, s.count, 2};
  }
  Report run(RunOptions options = {}) {
    const DType in = form.bfloat ? DType::bf16 : DType::f16, out = form.out_bytes == 4 ? DType::f32
                                                                   : form.out_bfloat   ? DType::bf16
                                                                                       : DType::f16;
    const auto [m, n, k, count] = size;
    const std::vector<Tensor> tensors = {
        tensor("A", a), tensor("B", b),
        form.out_bytes == 4 ? tensor("C", wide, false) : tensor("C", c, false),
        tensor("sizes", sizes)};
    Launch launch{
        .kernel = form.kernel,
        .tensors = {2, 3},
        .maps = {form.left_across ? boxes(0, in, m, k, count, 64)
                                  : boxes(0, in, k, m, count, form.rows),
                 form.right_across ? boxes(1, in, n, k, form.all ? 1 : count, 64)
                                   : boxes(1, in, k, n, form.all ? 1 : count, form.columns),
                 boxes(2, out, n, m, count, 64)},
        .blocks = 2,
        .threads = 128 * (form.groups + 1),
        .shared_bytes = form.stages * (form.steps * (form.rows + form.columns) * 128 + 16) +
                        form.groups * 2 * 8192};
    const auto report = built().module.run(std::span(&launch, 1), tensors, options);
    EXPECT_TRUE(report) << (report ? "" : report.reason());
    return report ? *report : Report{};
  }
  float element(const std::vector<std::uint16_t>& x, std::int64_t at) const {
    return form.bfloat ? tw_half::float_of_bf16(x[std::size_t(at)])
                       : tw_half::float_of_f16(x[std::size_t(at)]);
  }
  /// Empty: all right.
  std::string wrong() const {
    const std::int64_t m = size.m, n = size.n, k = size.k;
    for (std::int64_t z = 0; z < size.count; ++z)
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (std::int64_t q = 0; q < k; ++q)
            sum += double(element(a, z * m * k + (form.left_across ? q * m + i : i * k + q))) *
                   element(
                       b, (form.all ? 0 : z * n * k) + (form.right_across ? q * n + j : j * k + q));
          if (form.positive) sum = std::max(sum, 0.0);
          const auto at = std::size_t((z * m + i) * n + j);
          const float is = form.out_bytes == 4 ? wide[at]
                           : form.out_bfloat   ? tw_half::float_of_bf16(c[at])
                                               : tw_half::float_of_f16(c[at]);
          const double unit = form.out_bytes == 4 ? 1e-6 : form.out_bfloat ? 1.0 / 256 : 1.0 / 2048;
          if (!(std::abs(is - sum) <= std::abs(sum) * unit + 1e-4))
            return std::to_string(z) + " " + std::to_string(i) + " " + std::to_string(j);
        }
    return {};
  }
};

TEST(CudaHostWarpgroup, ComputesAndMovesWhatItShouldAndIsClean) {
  constexpr unsigned kSeed = 25;
  SCOPED_TRACE("seed 25");
  std::mt19937 random(kSeed);
  for (const Form& f : kForms)
    for (int i = 0; i < 3; ++i) {
      const auto draw = [&](int most, int unit) {
        return int(random() % (most / unit) + 1) * unit;
      };
      // Rows that are copied by the TMA unit begin at multiples of 16 bytes.
      const Size s{draw(200, 8), draw(200, f.right_across ? 8 : f.unit), draw(200, 8),
                   1 + int(random() % 2)};
      SCOPED_TRACE(f.kernel + " " + std::to_string(s.m) + " " + std::to_string(s.n) + " " +
                   std::to_string(s.k) + " " + std::to_string(s.count));
      Case c(f, s, random() % 1000);
      const Report report = c.run();
      EXPECT_TRUE(report.clean()) << texts(report);
      EXPECT_EQ(c.wrong(), "");
      const std::int64_t down = (s.m + f.rows - 1) / f.rows,
                         across = (s.n + f.columns - 1) / f.columns;
      const auto& bytes = report.launches.at(0).tensors;
      EXPECT_EQ(bytes[0], (TensorBytes{.read = 2 * std::int64_t{s.m} * s.k * s.count * across}));
      EXPECT_EQ(bytes[1], (TensorBytes{.read = 2 * std::int64_t{s.n} * s.k * s.count * down}));
      EXPECT_EQ(bytes[2],
                (TensorBytes{.written = f.out_bytes * std::int64_t{s.m} * s.n * s.count}));
      const std::int64_t steps = (s.k + 64 * f.steps - 1) / (64 * f.steps) * f.steps;
      EXPECT_EQ(report.launches.at(0).wgmma, down * across * s.count * steps * 4 * (f.rows / 64));
    }
}

TEST(CudaHostWarpgroup, EveryBarrierWaitAndFenceIsMissed) {
  for (const Form& f : {kForms[0], kForms[1]}) {
    Case whole(f, {200, 136, 328, 2}, 7);
    const Report listed = whole.run({.list_barriers = true});
    EXPECT_TRUE(listed.clean()) << texts(listed);
    EXPECT_EQ(whole.wrong(), "");
    std::set<std::string> kinds;
    for (const Barrier& b : listed.barriers) {
      kinds.insert(b.kind);
      Case without(f, {200, 136, 328, 2}, 7);
      const Report report = without.run({.max_seconds = 20, .without = b.calls});
      EXPECT_FALSE(report.clean())
          << f.kernel << " without " << b.kind << " of line " << described(b.places.front());
    }
    for (const char* kind :
         {"block_sync", "mbarriers_made", "mbarrier_arrive_expecting", "mbarrier_wait",
          "mbarrier_arrive", "wgmma_begin", "wgmma_wait", "barrier"})
      EXPECT_TRUE(kinds.contains(kind)) << kind;
  }
}

}  // namespace
}  // namespace tilewright::cuda_host
