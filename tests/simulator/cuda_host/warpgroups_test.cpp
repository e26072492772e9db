// Boxes of tensors (swizzled, zero outside), mbarriers that count their bytes, and products of a
// warpgroup by descriptors: right where nothing is wrong, and each thing wrong is found.
#include <algorithm>
#include <cstring>

#include "tests/simulator/cuda_host/support.h"

namespace tilewright::cuda_host {
namespace {

const Built& built() {
  static const Built all(
      "warpgroups.cu", {"boxes_right",         "boxes_no_wait",     "boxes_not_known",
                        "boxes_few_bytes",     "stored_right",      "stored_no_fence",
                        "stored_no_wait",      "multiplied_00",     "multiplied_01",
                        "multiplied_10",       "multiplied_11",     "multiplied_no_wait",
                        "multiplied_no_begin", "multiplied_offset", "cluster_right",
                        "cluster_before",      "cluster_after",     "cluster_end",
                        "cluster_rank",        "cluster_unwritten", "matrices",
                        "delivered_right",     "delivered_begin",   "delivered_end",
                        "delivered_give_back", "delivered_mask",    "delivered_peer",
                        "boxes_between",       "points_right",      "points_of_three"},
      {{"tilewright_hopper.h", contents("codegen/cuda/device/tilewright_hopper.h")}});
  return all;
}

/// Of a row-major tensor of f16, or of words.
lowering::BoxMap map_of(std::size_t tensor, std::array<std::int64_t, 3> extent, int rows) {
  const std::int64_t row = extent[0] * 2;
  return {.tensor = TensorId(tensor),
          .extent = {extent[0], extent[1], extent[2], 1, 1},
          .stride = {2, row, row * extent[1], row * extent[1], row * extent[1]},
          .box = {64, rows, 1, 1, 1}};
}

Report run(const Launch& launch, const std::vector<Tensor>& tensors) {
  auto report = built().module.run(std::span(&launch, 1), tensors);
  EXPECT_TRUE(report) << (report ? "" : report.reason());
  return report ? *report : Report{};
}

constexpr int kColumns = 72, kRows = 20;

struct Boxes {
  std::vector<std::uint16_t> in = random_f16(std::size_t{2} * kRows * kColumns, 1);
  std::vector<std::uint32_t> out = std::vector<std::uint32_t>(1024);
  Report run(const std::string& kernel) {
    return cuda_host::run({.kernel = kernel,
                           .tensors = {1},
                           .maps = {map_of(0, {kColumns, kRows, 2}, 16)},
                           .threads = 32,
                           .shared_bytes = 2048 + 8},
                          {tensor("in", in), tensor("out", out, false)});
  }
};

TEST(CudaHostWarpgroups, BoxesAreSwizzledAndZeroOutside) {
  Boxes b;
  const Report report = b.run("boxes_right");
  EXPECT_TRUE(report.clean()) << texts(report);
  std::int64_t inside = 0;
  for (int phase = 0; phase < 2; ++phase)
    for (int r = 0; r < 16; ++r)
      for (int c = 0; c < 64; ++c) {
        const int x = phase * 56 - 8 + c, y = phase * 18 - 4 + r;
        const bool in = x >= 0 && x < kColumns && y >= 0 && y < kRows;
        inside += in;
        std::uint16_t got;
        std::memcpy(&got,
                    reinterpret_cast<const char*>(b.out.data()) + phase * 2048 + r * 128 +
                        ((c / 8) ^ (r % 8)) * 16 + c % 8 * 2,
                    2);
        ASSERT_EQ(got, in ? b.in[(kRows + y) * kColumns + x] : 0) << phase << " " << r << " " << c;
      }
  EXPECT_EQ(report.launches.at(0).tensors[0], (TensorBytes{.read = 2 * inside}));
  EXPECT_EQ(report.launches.at(0).mbarrier_phases, 2);
  EXPECT_EQ(report.launches.at(0).boxes, 2);
}

/// Two images of 5 x 7 points with 64 channels, in boxes of every second of five points, of two
/// lines.
Report points(const std::string& kernel, std::vector<std::uint16_t>& in,
              std::vector<std::uint32_t>& out) {
  const lowering::BoxMap map{.tensor = TensorId(0),
                             .rank = 5,
                             .extent = {64, 7, 5, 1, 2},
                             .stride = {2, 128, 128 * 7, 128 * 35, 128 * 35},
                             .box = {64, 5, 2, 1, 1},
                             .steps = {1, 2, 1, 1, 1}};
  return cuda_host::run(
      {.kernel = kernel, .tensors = {1}, .maps = {map}, .threads = 32, .shared_bytes = 1024 + 8},
      {tensor("in", in), tensor("out", out, false)});
}

TEST(CudaHostWarpgroups, BoxesOfImagesTakeStepsAndAreZeroOutside) {
  std::vector<std::uint16_t> in = random_f16(std::size_t{2} * 5 * 7 * 64, 3);
  std::vector<std::uint32_t> out(192);
  const Report report = points("points_right", in, out);
  EXPECT_TRUE(report.clean()) << texts(report);
  for (int r = 0; r < 6; ++r)
    for (int c = 0; c < 64; ++c) {
      const int x = -1 + r % 3 * 2, y = 4 + r / 3;
      std::uint16_t got;
      std::memcpy(&got,
                  reinterpret_cast<const char*>(out.data()) + r * 128 + ((c / 8) ^ (r % 8)) * 16 +
                      c % 8 * 2,
                  2);
      ASSERT_EQ(got, x >= 0 && y < 5 ? in[static_cast<std::size_t>(((5 + y) * 7 + x) * 64 + c)] : 0)
          << r << " " << c;
    }
  EXPECT_EQ(report.launches.at(0).tensors[0], (TensorBytes{.read = 2 * 128}));
}

void expect_found(const Report& report, Fault fault) {
  EXPECT_TRUE(
      std::ranges::any_of(report.findings, [&](const Finding& f) { return f.fault == fault; }))
      << name_of(fault) << "\n"
      << texts(report);
}

TEST(CudaHostWarpgroups, AnInstructionOfOtherDimensionsThanItsMapIsFound) {
  std::vector<std::uint16_t> in = random_f16(std::size_t{2} * 5 * 7 * 64, 3);
  std::vector<std::uint32_t> out(192);
  expect_found(points("points_of_three", in, out), Fault::bad_argument);
}

TEST(CudaHostWarpgroups, BoxesThatNobodyWaitsForAreFound) {
  expect_found(Boxes{}.run("boxes_no_wait"), Fault::race);
  expect_found(Boxes{}.run("boxes_not_known"), Fault::mbarrier_misuse);
  expect_found(Boxes{}.run("boxes_few_bytes"), Fault::deadlock);
  expect_found(Boxes{}.run("boxes_between"), Fault::misaligned);
}

TEST(CudaHostWarpgroups, StoredBoxesLeaveOutWhatIsOutside) {
  const auto stored = [](const std::string& kernel, std::vector<std::uint16_t>& out) {
    return run({.kernel = kernel,
                .tensors = {},
                .maps = {map_of(0, {kColumns, kRows, 1}, 16)},
                .threads = 32,
                .shared_bytes = 2048},
               {tensor("out", out)});
  };
  std::vector<std::uint16_t> out(std::size_t{kRows} * kColumns, 0xffff);
  const Report report = stored("stored_right", out);
  EXPECT_TRUE(report.clean()) << texts(report);
  for (int y = 0; y < kRows; ++y)
    for (int x = 0; x < kColumns; ++x) {
      const int r = y - 10, c = x - 40;
      const int word = r * 32 + ((c / 8) ^ (r & 7)) * 4 + c % 8 / 2;
      const int want = r < 0 || c < 0 ? 0xffff : c % 2 == 0 ? word & 0xffff : 0;
      ASSERT_EQ(out[static_cast<std::size_t>(y * kColumns + x)], want) << y << " " << x;
    }
  EXPECT_EQ(report.launches.at(0).tensors[0].written, 2 * 10 * 32);
  expect_found(stored("stored_no_fence", out), Fault::not_fenced);
  expect_found(stored("stored_no_wait", out), Fault::race);
}

TEST(CudaHostWarpgroups, MatricesThatAreStoredTransposedComeBack) {
  std::vector<std::uint32_t> out(136);
  const Report report =
      run({.kernel = "matrices", .tensors = {0}, .threads = 32, .shared_bytes = 512},
          {tensor("out", out, false)});
  EXPECT_TRUE(report.clean()) << texts(report);
  for (std::uint32_t lane = 0; lane < 32; ++lane)
    for (std::uint32_t i = 0; i < 4; ++i)
      ASSERT_EQ(out[lane * 4 + i], lane + 100 * i) << lane << " " << i;
  // Lane l has elements t and t + 1 of row g, t = l % 4 * 2 and g = l / 4. Column c of rows 0 and 1
  // are halves of what lanes c / 2 and c / 2 + 4 have.
  for (std::uint32_t c = 0; c < 8; ++c) {
    const std::uint32_t first = c % 2 == 0 ? c / 2 : 0, second = c % 2 == 0 ? c / 2 + 4 : 0;
    ASSERT_EQ(out[128 + c], first | second << 16) << c;
  }
}

struct Product {
  std::vector<std::uint16_t> a = random_f16(64 * 64, 2), b = random_f16(64 * 64, 3);
  std::vector<float> out = std::vector<float>(64 * 64);
  Report run(const std::string& kernel) {
    return cuda_host::run({.kernel = kernel,
                           .tensors = {2},
                           .maps = {map_of(0, {64, 64, 1}, 64), map_of(1, {64, 64, 1}, 64)},
                           .threads = 128,
                           .shared_bytes = 16384 + 2048 + 8},
                          {tensor("a", a), tensor("b", b), tensor("out", out, false)});
  }
};

TEST(CudaHostWarpgroups, ProductsByDescriptorsOfEitherWay) {
  for (const bool a_across : {false, true})
    for (const bool b_across : {false, true}) {
      Product p;
      const Report report =
          p.run(std::string("multiplied_") + (a_across ? "1" : "0") + (b_across ? "1" : "0"));
      EXPECT_TRUE(report.clean()) << texts(report);
      for (int i = 0; i < 64; ++i)
        for (int j = 0; j < 64; ++j) {
          double sum = 0;
          for (int k = 0; k < 64; ++k)
            sum += double{tw_half::float_of_f16(p.a[a_across ? k * 64 + i : i * 64 + k])} *
                   tw_half::float_of_f16(p.b[b_across ? k * 64 + j : j * 64 + k]);
          ASSERT_NEAR(p.out[static_cast<std::size_t>(i * 64 + j)], sum, 1e-4) << i << " " << j;
        }
      EXPECT_EQ(report.launches.at(0).wgmma, 4);
    }
}

TEST(CudaHostWarpgroups, MisusedProductsAreFound) {
  expect_found(Product{}.run("multiplied_no_wait"), Fault::wgmma_misuse);
  expect_found(Product{}.run("multiplied_no_begin"), Fault::wgmma_misuse);
  expect_found(Product{}.run("multiplied_offset"), Fault::bad_argument);
}

struct Cluster {
  std::vector<std::uint32_t> out = std::vector<std::uint32_t>(6 * 2 * 32);
  Report run(const std::string& kernel, std::uint64_t turns = 0, int cluster = 3) {
    const Launch launch{.kernel = kernel,
                        .tensors = {0},
                        .blocks = 6,
                        .threads = 32,
                        .shared_bytes = 512,
                        .cluster = cluster};
    const std::vector<Tensor> tensors = {tensor("out", out, false)};
    auto report = built().module.run(std::span(&launch, 1), tensors, {.turns = turns});
    EXPECT_TRUE(report) << (report ? "" : report.reason());
    return report ? *report : Report{};
  }
};

TEST(CudaHostWarpgroups, ABlockReadsWhatOthersOfItsClusterWrote) {
  for (const std::uint64_t turns : {0, 1, 2}) {
    Cluster c;
    const Report report = c.run("cluster_right", turns);
    EXPECT_TRUE(report.clean()) << texts(report);
    for (std::uint32_t b = 0; b < 6; ++b)
      for (std::uint32_t turn = 0; turn < 2; ++turn)
        for (std::uint32_t t = 0; t < 32; ++t)
          ASSERT_EQ(c.out[(b * 2 + turn) * 32 + t],
                    (b / 3 * 3 + (b + 1) % 3) * 1000 + t * 10 + turn)
              << b << " " << turn << " " << t;
    const LaunchCounts& counts = report.launches.at(0);
    EXPECT_EQ(counts.cluster_read, 6 * 2 * 32 * 16);
    EXPECT_EQ(counts.cluster_syncs, 2 * 4);
  }
}

struct Delivered {
  std::vector<std::uint16_t> in = random_f16(std::size_t{2} * kRows * kColumns, 4);
  std::vector<std::uint32_t> out = std::vector<std::uint32_t>(4 * 512);
  Report run(const std::string& kernel, std::uint64_t turns = 0) {
    const Launch launch{.kernel = kernel,
                        .tensors = {1},
                        .maps = {map_of(0, {kColumns, kRows, 2}, 16)},
                        .blocks = 2,
                        .threads = 32,
                        .shared_bytes = 2048 + 16,
                        .cluster = 2};
    const std::vector<Tensor> tensors = {tensor("in", in), tensor("out", out, false)};
    auto report = built().module.run(std::span(&launch, 1), tensors, {.turns = turns});
    EXPECT_TRUE(report) << (report ? "" : report.reason());
    return report ? *report : Report{};
  }
};

TEST(CudaHostWarpgroups, ABoxIsDeliveredToSeveralBlocks) {
  for (const std::uint64_t turns : {0, 1, 2, 3}) {
    Delivered d;
    const Report report = d.run("delivered_right", turns);
    EXPECT_TRUE(report.clean()) << texts(report);
    for (int block = 0; block < 2; ++block)
      for (int turn = 0; turn < 2; ++turn)
        for (int r = 0; r < 16; ++r)
          for (int c = 0; c < 64; ++c) {
            std::uint16_t got;
            std::memcpy(&got,
                        reinterpret_cast<const char*>(d.out.data()) + (block * 2 + turn) * 2048 +
                            r * 128 + ((c / 8) ^ (r % 8)) * 16 + c % 8 * 2,
                        2);
            ASSERT_EQ(got, d.in[static_cast<std::size_t>((turn * kRows + r) * kColumns + c)]);
          }
    // Counted once for each block that gets it.
    EXPECT_EQ(report.launches.at(0).tensors[0], (TensorBytes{.read = 2 * 2 * 2048}));
  }
}

TEST(CudaHostWarpgroups, WhatSeveralBlocksDoNotWaitForIsFound) {
  for (const std::uint64_t turns : {0, 1, 2, 3}) {
    EXPECT_FALSE(Delivered{}.run("delivered_begin", turns).clean()) << turns;
    expect_found(Delivered{}.run("delivered_give_back", turns), Fault::race);
  }
  bool ended = false;  // whether the other block has ended is a matter of turns
  for (const std::uint64_t turns : {0, 1, 2, 3, 4, 5, 6, 7})
    ended = ended || !Delivered{}.run("delivered_end", turns).clean();
  EXPECT_TRUE(ended);
  expect_found(Delivered{}.run("delivered_mask"), Fault::bad_argument);
  expect_found(Delivered{}.run("delivered_peer"), Fault::bad_argument);
}

TEST(CudaHostWarpgroups, WhatAClusterDoesNotWaitForIsFound) {
  for (const std::uint64_t turns : {0, 1, 2, 3}) {
    expect_found(Cluster{}.run("cluster_before", turns), Fault::race);
    expect_found(Cluster{}.run("cluster_after", turns), Fault::race);
    expect_found(Cluster{}.run("cluster_end", turns), Fault::race);
    expect_found(Cluster{}.run("cluster_unwritten", turns), Fault::uninitialised);
  }
  expect_found(Cluster{}.run("cluster_rank"), Fault::bad_argument);
  expect_found(Cluster{}.run("cluster_right", 0, 1), Fault::bad_argument);
  EXPECT_THROW(Cluster{}.run("cluster_right", 0, 4), InputError);
}

}  // namespace
}  // namespace tilewright::cuda_host
