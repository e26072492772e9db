// Random legal trees as CUDA kernels on simulator/cuda_host: each computes what the reference
// evaluator computes, moves the bytes that `exact` counts, and has nothing found in it.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <random>

#include "core/plan/dependence.h"
#include "tests/codegen/cuda_barriers.h"
#include "tests/support/random_trees.h"

namespace tilewright {
namespace {

struct Drawn {
  testing::RandomCase c;
  Schedule schedule;
  cuda::Source source;
};

struct Tally {
  int refused = 0, loads_ahead = 0, makeshifts = 0;
  std::int64_t rounded = 0;
};

/// Who asks for the plan's own form alone is told why there is none, as with makeshifts, and gets
/// the same text where there is one. Of several kernels the first without one is named; with
/// makeshifts it is the first that has none either.
void expect_own_form_alone(const Schedule& schedule, cuda::EmitOptions options,
                           const Result<cuda::Source>& any) {
  options.own_form = true;
  const auto own = cuda::emit(schedule, options);
  ASSERT_EQ(own.ok(), any.ok() && !any->makeshift);
  if (own.ok()) {
    EXPECT_EQ(own->text, any->text);
    return;
  }
  if (!any.ok() && schedule.kernels.size() > 1) return;
  EXPECT_EQ(own.reason(), any.ok() ? any->makeshift->text : any.reason());
  EXPECT_EQ(own.why().shortage.has_value(),
            (any.ok() ? *any->makeshift : any.why()).shortage.has_value());
}

/// Draws until `count` cases can be emitted; types, micro-kernels and places of sums in turn.
std::vector<Drawn> draw(std::mt19937_64& random, const testing::RandomOptions& options, int count,
                        Tally& tally) {
  const char* const types[] = {"f16", "f32", "bf16", "f16"};
  std::vector<Drawn> drawn;
  for (int tries = 0; tries < 400 * count && static_cast<int>(drawn.size()) < count; ++tries) {
    auto c = testing::random_case(random, options);
    if (!c) continue;
    const std::size_t n = drawn.size();
    c->workload = testing::with_type(*c->workload, types[n % 4]);
    if (options.phases && n % 2 == 0) c->plan.kernels.front().launch.ahead = 1;
    try {
      auto schedule = resolve(c->plan, c->workload, c->machine);
      if (!schedule.ok()) continue;
      if (options.phases && !schedule->kernels.front().co_resident) continue;
      cuda::EmitOptions emit_options{.warps = static_cast<int>(random() % 5),
                                     .stages = static_cast<int>(random() % 4),
                                     .warpgroups = n % 3 == 1,
                                     .registers = n % 5 != 4,
                                     .prefix = "k" + std::to_string(n)};
      if (n % 8 == 3) emit_options.micro_kernel = "wmma2x2";
      if (n % 8 == 4) emit_options.micro_kernel = "simt";
      if (n % 8 == 5 && c->workload->dtype() == DType::f32) emit_options.micro_kernel = "tf32x3";
      auto source = cuda::emit(*schedule, emit_options);
      if (!source.ok()) {
        ++tally.refused;
        if (std::getenv("TILEWRIGHT_SHOW") != nullptr) std::cout << source.reason() << "\n";
        continue;
      }
      // Where less room is taken, rings are shorter and tiles rounded.
      for (const double part : {0.4, 0.5, 0.6, 0.7, 0.8, 0.9}) {
        if (n % 2 != 0) break;
        std::int64_t bytes = 0;
        for (const cuda::Launch& l : source->launches) bytes = std::max(bytes, l.shared_bytes);
        emit_options.shared_room = static_cast<std::int64_t>(part * static_cast<double>(bytes));
        auto tighter = cuda::emit(*schedule, emit_options);
        expect_own_form_alone(*schedule, emit_options, tighter);
        if (!tighter.ok()) continue;
        if (tighter->makeshift && n % 8 != 6) continue;
        tally.makeshifts += tighter->makeshift.has_value();
        tally.rounded += std::ranges::count_if(tighter->tiles, [](const cuda::TileUse& t) {
          return t.reason.find("rounded") != std::string::npos;
        });
        source = std::move(tighter);
        break;
      }
      tally.loads_ahead +=
          source->text.find("before blocks wait for one another") != std::string::npos;
      drawn.push_back({*c, std::move(schedule).value(), std::move(source).value()});
    } catch (const InputError&) {
    }
  }
  return drawn;
}

/// TILEWRIGHT_SEED and TILEWRIGHT_CASES draw others; TILEWRIGHT_SHOW prints what is refused.
void run_batch(const testing::RandomOptions& options, std::uint64_t seed, int count) {
  if (const char* other = std::getenv("TILEWRIGHT_SEED")) seed = std::strtoull(other, nullptr, 10);
  if (const char* other = std::getenv("TILEWRIGHT_CASES")) count = std::atoi(other);
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  Tally tally;
  const std::vector<Drawn> drawn = draw(random, options, count, tally);
  ASSERT_EQ(static_cast<int>(drawn.size()), count);
  std::vector<cuda::Source> sources;
  for (const Drawn& d : drawn) sources.push_back(d.source);
  const auto module = testing::build_cuda(sources);
  ASSERT_TRUE(module) << module.reason();
  std::cout << "seed " << seed << ": " << count << " emitted, " << tally.refused << " refused, "
            << tally.rounded << " tiles rounded, " << tally.makeshifts << " without padding, "
            << tally.loads_ahead << " with loads before a barrier\n";
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const Drawn& d = drawn[i];
    const auto run = testing::run_cuda(*module, d.source, *d.c.workload, seed + i);
    ASSERT_TRUE(run) << run.reason();
    const std::string what = d.source.prefix + ", " + std::string(name_of(d.c.workload->dtype())) +
                             ", " + d.source.micro_kernel + "\n" + testing::describe(d.c) +
                             "resolved: " + to_text(d.schedule.resolved.kernels.front().tree);
    EXPECT_TRUE(run->report.clean()) << run->report.findings.front().text << "\n" << what;
    // ptxas takes an address that it derives from another array's to move along with that one.
    EXPECT_EQ(d.source.text.find("*>(memory + "), std::string::npos) << d.source.text;
    EXPECT_EQ(d.source.text.find("*>(memory)"), std::string::npos) << d.source.text;
    // An output that is read back and added to is rounded each time.
    EXPECT_LT(run->error, d.c.workload->dtype() == DType::f32   ? 1e-5
                          : d.c.workload->dtype() == DType::f16 ? 4e-3
                                                                : 3e-2)
        << what;
    EXPECT_EQ(run->bytes, testing::exact_bytes(d.schedule))
        << "the kernel moved\n"
        << testing::text(run->bytes) << "\nexact counts\n"
        << testing::text(testing::exact_bytes(d.schedule)) << "\n"
        << what;
    std::int64_t between = 0, counted = 0;
    for (const cuda_host::LaunchCounts& l : run->report.launches) between += l.cluster_read;
    for (const TrafficEntry& e : exact(d.schedule).entries)
      if (e.boundary.starts_with("cluster/")) counted += e.read.value + e.written.value;
    EXPECT_EQ(between, counted) << "between blocks of clusters\n" << what;
    if (std::getenv("TILEWRIGHT_FIRST") != nullptr && ::testing::Test::HasFailure()) return;
  }
}

TEST(RandomCudaKernels, GemmChains) {
  run_batch({.gemm_chains_only = true, .units = false}, 20271, 24);
}
TEST(RandomCudaKernels, AnyOperators) { run_batch({.units = false}, 20272, 24); }

TEST(RandomCudaKernels, Indices) { run_batch({.units = false, .indices = true}, 20277, 32); }

TEST(RandomCudaKernels, TheSameInSeveralKernels) {
  run_batch({.units = false, .recompute = true}, 20274, 16);
}

TEST(RandomCudaKernels, BlocksThatWait) {
  run_batch({.two_levels = false, .once = false, .units = false, .phases = true}, 20275, 32);
}

TEST(RandomCudaKernels, Drops) {
  run_batch({.two_levels = false, .once = false, .units = false, .phases = true, .drops = true},
            20287, 16);
  run_batch({.two_levels = false, .units = false, .drops = true}, 20288, 12);
}

TEST(RandomCudaKernels, LoopsOverClusters) {
  run_batch({.units = false, .clusters = true}, 20289, 16);
}

/// Each barrier of drawn kernels left out: docs/gpu.md says what becomes of them.
void leave_out(const testing::RandomOptions& options, std::uint64_t seed, int count,
               testing::BarriersLeftOut& seen) {
  if (const char* other = std::getenv("TILEWRIGHT_SEED")) seed += std::strtoull(other, nullptr, 10);
  if (const char* other = std::getenv("TILEWRIGHT_CASES")) count = std::atoi(other);
  std::mt19937_64 random(seed);
  Tally tally;
  const std::vector<Drawn> drawn = draw(random, options, count, tally);
  std::vector<cuda::Source> sources;
  for (const Drawn& d : drawn) sources.push_back(d.source);
  const auto module = testing::build_cuda(sources);
  ASSERT_TRUE(module) << module.reason();
  for (std::size_t i = 0; i < drawn.size(); ++i)
    seen.look(*module, drawn[i].source, *drawn[i].c.workload, seed + i,
              "seed " + std::to_string(seed) + ", " + drawn[i].source.prefix + "\n" +
                  testing::describe(drawn[i].c));
}

TEST(RandomCudaKernels, BarriersLeftOutAreFound) {
  testing::BarriersLeftOut seen;
  leave_out({.gemm_chains_only = true, .units = false}, 20281, 3, seen);
  leave_out({.units = false}, 20282, 3, seen);
  leave_out({.units = false, .recompute = true}, 20283, 2, seen);
  leave_out({.two_levels = false, .once = false, .units = false, .phases = true}, 20284, 4, seen);
  leave_out({.units = false, .gathers = true}, 20285, 3, seen);
  leave_out({.units = false, .planes = true}, 20286, 2, seen);
  seen.print();
  EXPECT_EQ(seen.count(testing::BarriersLeftOut::wrong), 0);
  EXPECT_GT(seen.count(testing::BarriersLeftOut::race), 40);
}

/// The text without its n-th barrier of all blocks, which copying and computing warps both come to.
std::string without_barrier(const std::string& text, std::size_t n) {
  const std::string call = "grid_sync(arrivals";
  std::vector<std::size_t> at;
  for (std::size_t i = text.find(call); i != std::string::npos; i = text.find(call, i + 1))
    at.push_back(i);
  const bool twice = text.find("int copier") != std::string::npos;
  const std::size_t barriers = twice ? at.size() / 2 : at.size();
  std::string left = text;
  if (twice) left.erase(at[n + barriers], text.find('\n', at[n + barriers]) - at[n + barriers]);
  left.erase(at[n], text.find('\n', at[n]) - at[n]);
  return left;
}

/// Every Y.grid that a dependence needs, taken out of the kernel: the emulator finds each.
TEST(RandomCudaKernels, BarriersTakenOutAreFound) {
  std::mt19937_64 random(20276);
  Tally tally;
  std::vector<Drawn> drawn =
      draw(random, {.two_levels = false, .once = false, .units = false, .phases = true}, 48, tally);
  // The nth of each kernel's barriers is taken out: these have names of their own and are compiled
  // together.
  std::vector<std::vector<cuda::Source>> sources;
  std::vector<std::vector<const Drawn*>> of;
  for (const Drawn& d : drawn) {
    const ScheduledKernel& k = d.schedule.kernels.front();
    if (d.schedule.kernels.size() > 1) continue;
    std::size_t n = 0, needed_before = 0;
    for (std::size_t i = 0; i < k.nodes.size(); ++i) {
      if (k.nodes[i].kind != NodeKind::sync || k.nodes[i].scope != Unit::machine) continue;
      ScheduledKernel without = k;
      without.nodes[i].kind = NodeKind::sequence;
      const auto needs = dependences(d.schedule, k);
      const bool needed = std::ranges::any_of(
          needs, [&](const Dependence& x) { return !barrier_of(without, x).valid(); });
      if (needed) {
        cuda::Source source = d.source;
        source.text = without_barrier(source.text, n);
        if (++needed_before > sources.size()) sources.emplace_back(), of.emplace_back();
        sources[needed_before - 1].push_back(std::move(source));
        of[needed_before - 1].push_back(&d);
      }
      ++n;
    }
  }
  int found = 0;
  std::uint64_t taken_out = 0;
  for (std::size_t batch = 0; batch < sources.size(); ++batch) {
    const auto module = testing::build_cuda(sources[batch]);
    ASSERT_TRUE(module) << module.reason();
    for (std::size_t i = 0; i < sources[batch].size(); ++i) {
      const Drawn& d = *of[batch][i];
      const auto run = testing::run_cuda(*module, sources[batch][i], *d.c.workload, taken_out++);
      ASSERT_TRUE(run) << run.reason();
      EXPECT_FALSE(run->report.clean())
          << testing::describe(d.c) << to_text(d.schedule.resolved.kernels.front().tree);
      found += !run->report.clean();
    }
  }
  ASSERT_GT(taken_out, 10u);
  std::cout << found << " of " << taken_out << " found\n";
}

TEST(RandomCudaKernels, Gathers) { run_batch({.units = false, .gathers = true}, 20273, 24); }

}  // namespace
}  // namespace tilewright
