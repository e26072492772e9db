// Random plans on the emulated NPU: every program computes what the reference evaluator computes,
// is free of faults and races, and copies on every path the bytes that exact counts, which looks at
// no instruction and no counter. What the programs take is near what is predicted without running
// them.
#include <gtest/gtest.h>

#include <random>

#include "codegen/npu/emulated/loaded.h"
#include "harness/path_differences.h"
#include "harness/request.h"
#include "harness/verified_kernel.h"
#include "models/exact/exact.h"

namespace tilewright::harness {
namespace {

struct Drawn {
  std::string workload, machine;
  std::string tree;
  std::vector<std::string> pins;
  std::string text() const {
    std::string all = workload + " -m " + machine + " --tree '" + tree + "'";
    for (const std::string& p : pins) all += " --pin " + p;
    return all;
  }
};

class Plans {
 public:
  explicit Plans(std::uint64_t seed) : random_(seed) {}

  Drawn draw(int kind) {
    Drawn d = kind == 0 ? product() : kind == 1 ? chain() : kind == 2 ? rows() : attention();
    d.machine = coin() ? "ascend910" : "ascend910-256";
    return d;
  }

 private:
  std::int64_t up_to(std::int64_t n) {
    return std::uniform_int_distribution<std::int64_t>(1, n)(random_);
  }
  bool coin() { return up_to(2) == 1; }
  std::string copies() { return coin() ? "x2" : ""; }
  /// "m/32 " with a multiple of 16 below `range`, which it then is; nothing where one is all.
  std::string loop(const std::string& name, std::int64_t& range, const std::string& binding = "") {
    const std::int64_t step = 16 * up_to((range + 15) / 16);
    if (step >= range)
      return binding.empty() ? "" : name + "/" + std::to_string(range) + binding + " ";
    range = step;
    return name + "/" + std::to_string(step) + binding + " ";
  }
  std::string grid() { return coin() ? "@grid" : ""; }

  /// The tile of a product, from L1 or straight from home.
  std::string tile(const std::string& op, const std::string& a, const std::string& b,
                   const std::string& depth, std::int64_t& k) {
    return loop(depth, k) + "( L." + a + "@L0A" + copies() + " L." + b + "@L0B" + copies() + " C." +
           op + " ) ";
  }

  Drawn product() {
    std::int64_t m = up_to(150), n = up_to(150), k = up_to(150);
    const std::int64_t batch = up_to(3) == 1 ? 2 : 1;
    Drawn d{.workload = "gemm:m=" + std::to_string(m) + ",n=" + std::to_string(n) + ",k=" +
                        std::to_string(k) + ",batch=" + std::to_string(batch) + ",dtype=f16",
            .pins = {"C=L0C"}};
    std::string& t = d.tree;
    if (batch > 1 && coin()) t += "b/1" + grid() + " ";
    t += loop("m", m, grid()) + loop("n", n, grid());
    const bool keep = coin();  // sums over blocks of k, written once
    if (keep) t += "( " + loop("k", k);
    t += "( ";
    if (up_to(4) > 1) t += "L.A@L1" + copies() + " ";
    if (up_to(4) > 1) t += "L.B@L1" + copies() + " ";
    t += loop("m", m) + loop("n", n) + "( " + tile("gemm", "A", "B", "k", k);
    const std::string store = coin() ? "S.C@UB S.C@dram " : "S.C ";
    if (!keep) t += store;
    t += ") ) ";
    if (keep) t += store + ")";
    return d;
  }

  Drawn chain() {
    std::int64_t m = up_to(120), n = up_to(80), k = up_to(80), l = up_to(120);
    const std::int64_t batch = up_to(4) == 1 ? 2 : 1;
    const bool relu = coin();
    Drawn d{.workload = "gemm-chain:m=" + std::to_string(m) + ",n=" + std::to_string(n) +
                        ",k=" + std::to_string(k) + ",l=" + std::to_string(l) + ",batch=" +
                        std::to_string(batch) + ",relu=" + (relu ? "1" : "0") + ",dtype=f16",
            .pins = {"C=L0C", "E=L0C"}};
    std::string& t = d.tree;
    if (batch > 1) t += "b/1@grid ";
    t += loop("m", m, grid());
    if (up_to(4) == 1) t += loop("n", n, grid());
    t += "( ";
    const bool early = coin();
    if (early) t += "L.A@L1 ";
    t += loop("l", l) + "( ";
    if (!early) t += "L.A@L1" + copies() + " ";
    t += "L.B@L1" + copies() + " ";
    std::int64_t rows = m, columns = l, depth = k;
    t += loop("m", rows) + loop("l", columns) + "( " + tile("gemm1", "A", "B", "k", depth);
    if (relu) {
      d.pins.push_back("C1=UB");
      t += "S.C@UB C.relu S.C1@L1 ) ";
    } else {
      t += coin() ? "S.C@UB S.C@L1 ) " : "S.C@L1 ) ";
    }
    t += "L.D@L1" + copies() + " ";
    rows = m, columns = n, depth = l;
    t += loop("m", rows) + loop("n", columns);
    t += tile("gemm2", relu ? "C1" : "C", "D", "l", depth);
    t += ") " + std::string(coin() ? "S.E@UB S.E@dram " : "S.E ") + ")";
    return d;
  }

  /// A whole row of scores in UB: the softmax between two products. Scaled: scores are f16 in UB,
  /// and half a unit in the last place of a large one is more than the tolerance in its
  /// exponential.
  Drawn attention() {
    std::int64_t m = up_to(100);
    const std::int64_t l = up_to(120), k = up_to(80), n = up_to(80), heads = up_to(2);
    Drawn d{.workload = "attention:heads=" + std::to_string(heads) + ",m=" + std::to_string(m) +
                        ",l=" + std::to_string(l) + ",k=" + std::to_string(k) +
                        ",n=" + std::to_string(n) + ",scale=1,dtype=f16",
            .pins = {"S=L0C", "T=UB", "O=L0C", "P=UB", "R=UB", "Z=UB", "E=UB"}};
    if (heads > 1) d.tree = "b/1@grid ";
    d.tree += loop("m", m, "@grid") + loop("m", m) + "( L.Q@L1" + copies() + " L.K@L1 ";
    std::int64_t depth = k;
    d.tree += tile("qk", "Q", "K", "k", depth);
    d.tree +=
        "S.S@UB C.scaled C.rowmax C.exp C.rowsum L.V@L1 ( L.P@L1 ( L.P@L0A L.V@L0B C.pv ) ) S.O@UB "
        "C.divide S.E )";
    return d;
  }

  Drawn rows() {
    const std::int64_t rows = up_to(100), columns = up_to(300);
    const bool norm = coin();
    const std::string size = "rows=" + std::to_string(rows) + ",cols=" + std::to_string(columns) +
                             ",dtype=" + (coin() ? "f16" : "f32");
    std::int64_t r = rows;
    Drawn d{.workload = (norm ? "layernorm:" : "softmax:") + size};
    d.tree = loop("r", r, "@grid") + loop("r", r) + "( L.x@UB" + copies() + " ";
    const std::vector<std::string> ops =
        norm ? std::vector<std::string>{"sum", "mean", "sub", "sq", "varsum", "rstd"}
             : std::vector<std::string>{"rowmax", "exp", "rowsum"};
    for (const std::string& op : ops) d.tree += "C." + op + " ";
    d.tree += norm ? "L.gain@UB C.norm S.y )" : "C.divide S.y )";
    d.pins = norm ? std::vector<std::string>{"sum=UB",    "mean=UB", "sub=UB", "sq=UB",
                                             "varsum=UB", "rstd=UB", "y=UB"}
                  : std::vector<std::string>{"R=UB", "P=UB", "Z=UB", "y=UB"};
    return d;
  }

  std::mt19937_64 random_;
};

/// Of the predicted seconds of plans, how far they are off the emulated ones.
struct Errors {
  double sum = 0, worst = 0;
  std::string of;  ///< the worst
  void add(double predicted, double emulated, const Drawn& d) {
    const double error = std::abs(predicted / emulated - 1);
    sum += error;
    if (error <= worst) return;
    worst = error;
    of = d.text();
  }
};

/// refuses() walks one of the blocks that do the same elsewhere: it counts the instructions that
/// emit() makes of all of them.
void expect_counted(const Drawn& d, const Schedule& schedule, const npu::Source& source) {
  npu::EmitOptions options{.most_instructions = 0};
  for (const npu::KernelSource& k : source.kernels)
    options.most_instructions = std::max(options.most_instructions, k.instructions - 2 * k.flags);
  EXPECT_FALSE(npu::refuses(schedule, options)) << d.text();
  --options.most_instructions;
  EXPECT_TRUE(npu::refuses(schedule, options)) << d.text();
}

/// A plan's program, run and judged; why it has none.
std::optional<std::string> judge(const Drawn& d, std::uint64_t seed, Errors& errors) {
  const Setting s = setting_of({.subject = d.workload, .machine = d.machine});
  Request request{.subject = d.workload, .machine = d.machine, .tree = d.tree, .pins = d.pins};
  const Result<Schedule> schedule = resolve(*plan_in_place(request, s), s.workload, s.machine);
  if (!schedule) return schedule.reason();
  const Result<npu::Source> source = npu::emit(*schedule);
  const auto refused = npu::refuses(*schedule);
  EXPECT_EQ(refused ? refused->text : "", source ? "" : source.reason()) << d.text();
  if (!source) return source.reason();
  expect_counted(d, *schedule, *source);
  auto made = std::make_unique<npu::LoadedKernel>(*source, *schedule);
  npu::LoadedKernel& kernel = *made;
  std::vector<npu::Report> reports;
  const VerifyResult checked = verify(
      std::move(made), *s.workload, reference_of(*s.workload, seed),
      [&] { reports = kernel.reports(); }, &*schedule);
  for (const npu::Report& r : reports)
    EXPECT_TRUE(r.ok()) << r.findings.front().text << "\n" << d.text() << "\n" << source->text;
  EXPECT_TRUE(checked.verification.verified())
      << reason_of(checked.verification, *s.workload) << "\n"
      << d.text() << "\n"
      << source->text;
  double seconds = 0;
  for (const npu::Report& r : reports) seconds += r.seconds;
  const Result<double> predicted = npu::predicted_seconds(*schedule);
  EXPECT_TRUE(predicted) << d.text();
  if (predicted) errors.add(*predicted, seconds, d);
  const Traffic counted = npu::emulated_traffic(reports, *s.workload, *s.machine);
  for (const PathDifference& p : path_differences(exact(*schedule), counted))
    ADD_FAILURE() << p.tensor << " at " << p.boundary << ": exact " << p.exact.value
                  << ", emulated " << p.emulated.value << "\n"
                  << d.text();
  return std::nullopt;
}

/// Values of an expression in UB, whole repeats of them, read two at a time: cycles in which their
/// banks conflict are in the price.
TEST(NpuRandom, ConflictsOfBanksArePriced) {
  for (const char* sizes : {"rows=96,cols=38", "rows=128,cols=64", "rows=160,cols=96"}) {
    Drawn d;
    d.workload = std::string("gelu:") + sizes + ",dtype=f16";
    d.machine = "ascend910";
    d.tree = "r/80@grid c/32@grid ( C.biased C.cubic C.tanh C.half C.gelu )";
    d.pins = {"x=UB", "bias=UB", "biased=UB", "cubic=UB", "bent=UB", "half=UB", "y=UB"};
    Errors errors;
    EXPECT_EQ(judge(d, 7, errors), std::nullopt) << d.text();
    EXPECT_LT(errors.worst, 0.02) << d.text();
  }
}

/// Blocks at an image's edge read less than others, also where the convolution that does has its
/// ranges from another one.
TEST(NpuRandom, BlocksAtEdgesCountAsTheyAre) {
  std::mt19937_64 random(20261130);
  const auto up_to = [&](int n) { return std::uniform_int_distribution<int>(1, n)(random); };
  int judged = 0;
  for (int i = 0; i < 12; ++i) {
    const int rows = 5 + up_to(5), columns = 5 + up_to(5), stride = up_to(2);
    Drawn d;
    d.workload = "conv-chain:ic=1,h=" + std::to_string(rows) + ",w=" + std::to_string(columns) +
                 ",oc1=1,oc2=2,st1=1,st2=" + std::to_string(stride) +
                 ",k1=" + (up_to(2) == 1 ? "5" : "3") + ",k2=" + (up_to(2) == 1 ? "5" : "3");
    d.machine = "ascend910";
    d.pins = {"I=UB", "W1=UB", "M=UB", "W2=UB", "O=UB"};
    d.tree = "oc2/" + std::to_string(up_to(2)) + "@grid h/" + std::to_string(up_to(3)) +
             "@grid w/" + std::to_string(up_to(4)) + "@grid " + (up_to(2) == 1 ? "" : "h/1 ") +
             "( C.conv1 C.conv2 )";
    Errors errors;
    const auto why = judge(d, 7, errors);
    EXPECT_EQ(why, std::nullopt) << d.text();
    judged += why == std::nullopt;
  }
  EXPECT_EQ(judged, 12);
}

/// TILEWRIGHT_SEED and TILEWRIGHT_CASES draw others; TILEWRIGHT_SHOW prints what is refused.
TEST(NpuRandom, FiveHundredPlansComputeAndCountRight) {
  std::uint64_t seed = 20261122;
  int count = 500;
  if (const char* other = std::getenv("TILEWRIGHT_SEED")) seed = std::strtoull(other, nullptr, 10);
  if (const char* other = std::getenv("TILEWRIGHT_CASES")) count = std::atoi(other);
  SCOPED_TRACE("seed " + std::to_string(seed));
  Plans plans(seed);
  int run = 0, refused = 0;
  Errors errors;
  for (int i = 0; run < count && i < 4 * count && !HasFailure(); ++i) {
    const Drawn d = plans.draw(i % 10 == 9 ? 3 : i % 5 == 4 ? 2 : i % 2);
    const auto why = judge(d, seed + static_cast<std::uint64_t>(i), errors);
    if (why && std::getenv("TILEWRIGHT_SHOW") != nullptr)
      std::cout << d.text() << ": " << *why << "\n";
    ++(why ? refused : run);
  }
  std::cout << "seed " << seed << ": " << run << " emulated, " << refused << " refused\n";
  EXPECT_TRUE(HasFailure() || run == count);
  std::cout << "predicted seconds off by " << 100 * errors.sum / run << " % on average, at most "
            << 100 * errors.worst << " %: " << errors.of << "\n";
  EXPECT_LT(errors.sum / run, 0.01);
  EXPECT_LT(errors.worst, 0.1);
}

}  // namespace
}  // namespace tilewright::harness
