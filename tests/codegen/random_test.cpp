// Random legal trees as kernels: each computes what the reference evaluator computes, and copies
// the bytes that `exact` counts.
#include <chrono>
#include <cstdlib>
#include <random>

#include "models/exact/exact.h"
#include "tests/codegen/kernel_support.h"
#include "tests/support/random_trees.h"

namespace tilewright {
namespace {

struct Drawn {
  testing::RandomCase c;
  Schedule schedule;
  cpu::Source source;
};

std::optional<Schedule> resolved(const testing::RandomCase& c,
                                 const std::shared_ptr<const Machine>& machine) {
  try {
    auto s = resolve(c.plan, c.workload, machine);
    if (s.ok()) return std::move(s).value();
  } catch (const InputError&) {
  }
  return std::nullopt;
}

/// Draws until `count` cases can be emitted; counts what was refused, by the reason's beginning.
std::vector<Drawn> draw(std::mt19937_64& random, const testing::RandomOptions& options, int count,
                        int& refused, bool counting = true) {
  const std::vector<cpu::Isa> isas = testing::isas_here();
  std::vector<Drawn> drawn;
  for (int tries = 0; tries < 200 * count && static_cast<int>(drawn.size()) < count; ++tries) {
    const auto c = testing::random_case(random, options);
    if (!c) continue;
    auto schedule = resolved(*c, c->machine);
    if (!schedule || (options.phases && !schedule->kernels.front().co_resident)) continue;
    // Every other one as if its levels were caches: nothing is packed that need not be, and the
    // loads count the same.
    std::optional<Schedule> emitted = schedule;
    if (drawn.size() % 2 == 1) emitted = resolved(*c, testing::cached(*c->machine));
    if (!emitted) continue;
    const cpu::EmitOptions emit_options{.isa = isas[random() % isas.size()],
                                        .count = counting,
                                        .threads = counting ? 1 : 3,
                                        .prefix = "k" + std::to_string(drawn.size())};
    auto source = cpu::emit(*emitted, emit_options);
    if (!source.ok()) {
      ++refused;
      if (std::getenv("TILEWRIGHT_SHOW") != nullptr) std::cout << source.reason() << "\n";
      continue;
    }
    drawn.push_back({*c, std::move(*schedule), std::move(source).value()});
  }
  return drawn;
}

/// Whether warps, lanes or threads run one after the other: then they share one set of tiles on a
/// CPU, and what one has left there another need not copy.
bool units_in_turn(const Schedule& s) {
  for (const ScheduledKernel& k : s.kernels)
    for (const ScheduleNode& n : k.nodes)
      if (n.kind == NodeKind::loop && (n.binding == Binding::warp || n.binding == Binding::lane ||
                                       n.binding == Binding::thread))
        return true;
  return false;
}

void check(Drawn& d, cpu::Kernel& kernel, std::uint64_t seed, bool counting) {
  const Workload& w = *d.c.workload;
  const TensorValues inputs = random_inputs(w, seed);
  const TensorValues reference = evaluate(w, inputs);
  testing::Arrays<float> arrays(w, inputs);
  const auto pointers = arrays.pointers();
  if (counting) {
    const auto counted = kernel.run_counted(pointers);
    ASSERT_TRUE(counted.ok()) << counted.reason();
    const auto got = testing::table(*counted);
    const auto expected = testing::table(exact(d.schedule).entries);
    if (!units_in_turn(d.schedule)) {
      EXPECT_EQ(got, expected) << "the kernel copied\n"
                               << testing::text(got) << "exact counts\n"
                               << testing::text(expected) << d.source.prefix << "\n"
                               << testing::describe(d.c);
    }
  } else {
    kernel.run(pointers);
  }
  EXPECT_LT(testing::worst_error(w, arrays, reference), 1e-5)
      << d.source.prefix << "\n"
      << testing::describe(d.c)
      << "resolved: " << to_text(d.schedule.resolved.kernels.front().tree);
}

/// As one translation unit a batch: compilers take longer to start than to compile these.
/// TILEWRIGHT_SEED and TILEWRIGHT_CASES draw others; TILEWRIGHT_SHOW prints what is refused.
void run_batch(const testing::RandomOptions& options, std::uint64_t seed, int count,
               bool counting = true) {
  if (const char* other = std::getenv("TILEWRIGHT_SEED")) seed = std::strtoull(other, nullptr, 10);
  if (const char* other = std::getenv("TILEWRIGHT_CASES")) count = std::atoi(other);
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  int refused = 0;
  std::vector<Drawn> drawn = draw(random, options, count, refused, counting);
  ASSERT_EQ(static_cast<int>(drawn.size()), count);
  std::vector<cpu::Source> sources;
  for (const Drawn& d : drawn) sources.push_back(d.source);
  auto kernels = cpu::build_all(sources, {.optimisation = "-O0"});
  ASSERT_TRUE(kernels.ok()) << kernels.reason();
  std::cout << "seed " << seed << ": " << count << " emitted, " << refused << " refused\n";
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    check(drawn[i], kernels.value()[i], seed + i, counting);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(RandomKernels, GemmChains) {
  run_batch({.gemm_chains_only = true, .units = false}, 20261, 40);
}
TEST(RandomKernels, AnyOperators) { run_batch({.units = false}, 20262, 40); }
TEST(RandomKernels, UnitsAndSharedLevels) { run_batch({}, 20263, 20); }
/// Operators that several kernels compute, each for its own readers.
TEST(RandomKernels, TheSameInSeveralKernels) {
  run_batch({.units = false, .recompute = true}, 20267, 30);
}
TEST(RandomKernels, OnSeveralThreads) {
  run_batch({.max_extent = 17, .units = false}, 20264, 20, false);
}

/// Blocks that wait for one another, in turn and side by side.
TEST(RandomKernels, BlocksThatWait) { run_batch({.units = false, .phases = true}, 20268, 40); }
TEST(RandomKernels, Drops) {
  run_batch({.units = false, .drops = true}, 20272, 20);
  run_batch({.units = false, .phases = true, .drops = true}, 20273, 20);
}
TEST(RandomKernels, BlocksThatWaitOnSeveralThreads) {
  run_batch({.max_extent = 17, .units = false, .phases = true}, 20269, 20, false);
}

TEST(RandomKernels, Indices) { run_batch({.units = false, .indices = true}, 20270, 40); }
TEST(RandomKernels, IndicesOnSeveralThreads) {
  run_batch({.max_extent = 40, .units = false, .indices = true}, 20271, 20, false);
}

TEST(RandomKernels, Einsums) {
  run_batch({.max_extent = 9, .units = false, .einsums = true}, 20274, 20);
}
/// Without counts: products hand their values on in registers.
TEST(RandomKernels, EinsumsFromRegisters) {
  run_batch({.max_extent = 35, .units = false, .einsums = true}, 20275, 20, false);
}

TEST(RandomKernels, Gathers) {
  run_batch({.units = false, .gathers = true}, 20265, 40);
}
TEST(RandomKernels, GathersOnSeveralThreads) {
  run_batch({.max_extent = 17, .units = false, .gathers = true}, 20266, 15,
            false);
}

}  // namespace
}  // namespace tilewright
