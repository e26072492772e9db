// Random graphs of rows under random trees whose loops are bound to warps, lanes and threads: each
// kernel that is emitted computes what the reference evaluator computes, moves the bytes that
// `exact` counts, and has nothing found in it.
#include <cstdlib>
#include <iostream>
#include <random>

#include "core/machine/machine.h"
#include "core/plan/file.h"
#include "tests/codegen/cuda_barriers.h"

namespace tilewright {
namespace {

enum class Shape : std::uint8_t { full, row, column };
struct Op {
  std::string name, text;
  Shape shape = Shape::full;    ///< of its result
  bool sums = false;            ///< over c (a row) or over r (a column)
  std::vector<int> reads = {};  ///< operators
};

class Maker {
 public:
  /// `gathers`: operators also read tables by the values of ids.
  Maker(std::mt19937_64& random, bool gathers) : random_(random), gathers_(gathers) {}

  std::string workload(const std::string& type) {
    rows_ = pick(1, 20), columns_ = pick(1, 70);
    const int count = pick(2, 8);
    for (int i = 0; i < count; ++i) ops_.push_back(draw(i));
    std::string text = "name: rows\ndtype: " + type + "\nloops: {r: " + std::to_string(rows_) +
                       ", c: " + std::to_string(columns_) + "}\noperators:\n";
    for (const Op& op : ops_) text += "  - \"" + op.text + "\"\n";
    const std::string tables =
        std::string(used("T") ? "T: [7, c], " : "") + (used("S") ? "S: [7], " : "");
    if (!tables.empty())
      text += "tensors: {" + tables + "ids: [r]}\ndtypes: {ids: " + (chance(0.5) ? "i8" : "i32") +
              "}\n";
    return text;
  }

  Kernel kernel() {
    Kernel k{.level = chance(0.7) ? "registers" : "shared", .tree = parse_tree(tree())};
    for (const Op& op : ops_)
      if (op.shape != Shape::column && chance(0.2) && read(op))
        k.pins["t" + op.name].level = "shared";
    return k;
  }

 private:
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool chance(double p) { return std::bernoulli_distribution(p)(random_); }
  bool read(const Op& op) const {
    for (const Op& o : ops_)
      for (int i : o.reads)
        if (&ops_[static_cast<std::size_t>(i)] == &op) return true;
    return false;
  }

  Op draw(int i) {
    Op op{.name = "o" + std::to_string(i), .text = {}};
    const auto operand = [&](bool row_only) {
      std::vector<std::pair<std::string, int>> all = {
          {"m" + std::to_string(pick(0, 1)) + "[r]", -1}};
      if (!row_only) {
        all.push_back({"x" + std::to_string(pick(0, 1)) + "[r,c]", -1});
        all.push_back({"x0[r,c]", -1});
        all.push_back({"g[c]", -1});
      }
      for (int weight = 0; gathers_ && weight < 3; ++weight)
        all.push_back({row_only ? "S[ids[r]]" : "T[ids[r],c]", -1});
      for (int p = 0; p < i; ++p) {
        const Op& o = ops_[static_cast<std::size_t>(p)];
        if (o.shape == Shape::column || (row_only && o.shape == Shape::full)) continue;
        for (int weight = 0; weight < 3; ++weight)
          all.push_back({"t" + o.name + (o.shape == Shape::full ? "[r,c]" : "[r]"), p});
      }
      const auto& [text, from] =
          all[static_cast<std::size_t>(pick(0, static_cast<int>(all.size()) - 1))];
      if (from >= 0) op.reads.push_back(from);
      return text;
    };
    const std::string target = op.name + ": t" + op.name;
    switch (pick(0, 9)) {
      case 0:
      case 1:
        op.shape = Shape::row, op.sums = true;
        op.text = target + "[r] += " + operand(false) + " * x0[r,c]";
        break;
      case 2:
        op.shape = Shape::row, op.sums = true;
        op.text = target + "[r] max= " + operand(false) + " + x1[r,c]";
        break;
      case 3:
        op.shape = Shape::row;
        op.text = target + "[r] = tanh(" + operand(true) + ") + " + operand(true);
        break;
      case 4:
        op.shape = Shape::column, op.sums = true;
        op.text = target + "[c] += " + operand(false) + " + x0[r,c]";
        break;
      default:
        op.text = target + "[r,c] = tanh(" + operand(false) + ") - " + operand(false) + " * x" +
                  std::to_string(pick(0, 1)) + "[r,c]";
    }
    return op;
  }

  /// Runs of operators over c share a loop; one that reads a sum starts a new run.
  std::string rows_body(const std::string& before, const std::string& after) {
    std::string text, run;
    std::vector<int> in_run;
    const auto close = [&] {
      if (!run.empty()) text += before + "( " + run + ") " + after;
      run.clear(), in_run.clear();
    };
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      const Op& op = ops_[i];
      const bool waits = std::ranges::any_of(op.reads, [&](int r) {
        return ops_[static_cast<std::size_t>(r)].sums &&
               std::ranges::find(in_run, r) != in_run.end();
      });
      const bool outside = op.shape == Shape::row && !op.sums && chance(0.8);
      if (waits || outside || chance(0.15)) close();
      if (outside) {
        text += "C." + op.name + " ";
        continue;
      }
      run += "C." + op.name + " ";
      in_run.push_back(static_cast<int>(i));
    }
    close();
    for (const Op& op : ops_)
      if (op.shape == Shape::row && op.sums && !read(op) && chance(0.9))
        text += "S.t" + op.name + " ";
    for (const char* input : {"x0", "x1", "m0", "g"})
      if (chance(0.25) && used(input))
        text = std::string("L.") + input + (chance(0.2) ? "@shared " : " ") + text;
    return text;
  }
  bool used(const std::string& input) const {
    return std::ranges::any_of(
        ops_, [&](const Op& op) { return op.text.find(input + "[") != std::string::npos; });
  }

  std::string step(const char* loop, int most, const char* unit) {
    const int extent = loop[0] == 'r' ? rows_ : columns_;
    return std::string(loop) + "/" + std::to_string(std::min(extent, pick(1, most))) + unit + " ";
  }

  std::string tree() {
    const int per_block = std::min(rows_, pick(1, 8)), per_warp = std::min(per_block, pick(1, 3));
    std::string stores;
    for (const Op& op : ops_)
      if (op.shape == Shape::column) stores += "S.t" + op.name + "!atomic ";
    const std::string grid = "r/" + std::to_string(per_block) + "@grid ( ";
    const std::string one = per_warp > 1 ? "r/1 " : "";
    const std::string warp = "r/" + std::to_string(per_warp) + "@warp " + one;
    switch (pick(0, 6)) {
      case 0:
      case 1:
        return grid + warp + "( " + rows_body(step("c", 5, "@lane"), "") + ") " + stores + ")";
      case 2: {
        const int piece = std::min(columns_, pick(8, 40));
        return grid + warp + "( " +
               rows_body("c/" + std::to_string(piece) + "@warp c/" +
                             std::to_string(std::min(piece, pick(1, 4))) + "@lane ",
                         "") +
               ") " + stores + ")";
      }
      case 3:
        return grid + "r/1 ( " + rows_body(step("c", 4, "@thread"), "Y.block ") + ") " + stores +
               ")";
      case 4:
        return grid + "r/1@thread ( " + rows_body(step("c", 4, ""), "") + ") " + stores + ")";
      case 5: {
        const int piece = std::min(columns_, pick(8, 40));
        return grid + warp + "( " +
               rows_body("c/" + std::to_string(piece) + " c/" +
                             std::to_string(std::min(piece, pick(1, 4))) + "@lane ",
                         "Y.warp ") +
               ") " + stores + ")";
      }
      default:
        return grid + warp + "( " + rows_body(step("c", 40, "@lane") + step("c", 4, "@lane"), "") +
               ") " + stores + ")";
    }
  }

  std::mt19937_64& random_;
  bool gathers_;
  std::vector<Op> ops_;
  int rows_ = 1, columns_ = 1;
};

/// Convolutions and stencils of one or two dimensions: strides, padding, windows that reach past
/// both ends.
class WindowMaker {
 public:
  explicit WindowMaker(std::mt19937_64& random) : random_(random) {}

  std::string workload(const std::string& type) {
    const int stride = chance(0.3) ? 2 : 1;
    taps_ = pick(1, 5), shift_ = pick(0, taps_ - 1), outputs_ = pick(1, 70), rows_ = pick(1, 9);
    channels_ = pick(1, 4), biased_ = chance(0.5);
    const std::string at = (stride > 1 ? "2*y" : "y") +
                           (shift_ > 0 ? " + r - " + std::to_string(shift_) : std::string(" + r"));
    const int length = std::max(1, stride * (outputs_ - 1) + taps_ - pick(0, 2 * shift_));
    return "name: windows\ndtype: " + type + "\nloops: {b: " + std::to_string(rows_) +
           ", y: " + std::to_string(outputs_) + ", r: " + std::to_string(taps_) +
           ", c: " + std::to_string(channels_) + "}\ntensors: {I: [b, c, " +
           std::to_string(length) + "]}\noperators:\n  - \"conv: O[b,y] += I[b,c," + at +
           "] * W[c,r]\"\n" + (biased_ ? "  - \"bias: P[b,y] = O[b,y] + v[y]\"\n" : "");
  }

  Kernel kernel() {
    const auto step = [&](const char* loop, int extent, int most, const char* unit) {
      return std::string(loop) + "/" + std::to_string(std::min(extent, pick(1, most))) + unit + " ";
    };
    const std::string lanes = step("y", outputs_, 3, pick(0, 1) == 0 ? "@lane" : "@thread");
    const bool threads = lanes.find("thread") != std::string::npos;
    const std::string tail = biased_ ? "C.conv C.bias" : "C.conv";
    const std::string load = chance(0.7) ? "L.I " : "";
    std::string body = "b/1@grid " + step("y", outputs_, 40, "@grid ");
    if (!threads && chance(0.5)) body += step("y", outputs_, 20, "@warp");
    const std::string inner =
        chance(0.5) ? step("c", channels_, 2, "") + step("r", taps_, 3, "") : "";
    if (inner.empty())
      body += chance(0.5) ? "( " + load + lanes + "( " + tail + " ) )"
                          : lanes + "( " + load + tail + " )";
    else
      body += lanes + "( " + inner + "( " + load + "C.conv )" + (biased_ ? " C.bias" : "") + " )";
    return {.level = chance(0.6) ? "registers" : "shared", .tree = parse_tree(body)};
  }

 private:
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool chance(double p) { return std::bernoulli_distribution(p)(random_); }

  std::mt19937_64& random_;
  int taps_ = 1, shift_ = 0, outputs_ = 1, rows_ = 1, channels_ = 1;
  bool biased_ = false;
};

std::shared_ptr<const Machine> machine() {
  Machine m = named_machine("h200");
  std::erase_if(m.levels, [](const Level& l) { return l.kind == LevelKind::cache; });
  for (Level& l : m.levels)
    for (std::string& from : l.filled_by)
      if (from == "L2") from = "DRAM";
  return std::make_shared<const Machine>(m);
}

struct Drawn {
  Schedule schedule;
  cuda::Source source;
};

/// Draws until `count` cases can be emitted.
template <class Make>
std::vector<Drawn> draw(std::mt19937_64& random, int count, const Make& make, int& refused,
                        int& illegal) {
  const char* const types[] = {"f32", "f16", "f32", "f64"};
  const auto on = machine();
  std::vector<Drawn> drawn;
  for (int tries = 0; tries < 100 * count && static_cast<int>(drawn.size()) < count; ++tries) {
    const std::size_t n = drawn.size();
    auto maker = make();
    try {
      const std::string text = maker.workload(types[n % 4]);
      auto w = std::make_shared<const Workload>(workload_from_yaml(text, "random"));
      auto schedule = resolve({.kernels = {maker.kernel()}}, w, on);
      if (!schedule.ok()) {
        ++illegal;
        if (std::getenv("TILEWRIGHT_SHOW") != nullptr) std::cout << schedule.reason() << "\n";
        continue;
      }
      auto source = cuda::emit(
          *schedule, {.warps = static_cast<int>(random() % 3), .prefix = "k" + std::to_string(n)});
      if (!source.ok()) {
        ++refused;
        if (std::getenv("TILEWRIGHT_SHOW") != nullptr) std::cout << source.reason() << "\n";
        continue;
      }
      drawn.push_back({std::move(schedule).value(), std::move(source).value()});
    } catch (const InputError& e) {
      ++illegal;
      if (std::getenv("TILEWRIGHT_SHOW") != nullptr) std::cout << e.what() << "\n";
    }
  }
  return drawn;
}

/// TILEWRIGHT_SEED and TILEWRIGHT_CASES draw others; TILEWRIGHT_SHOW prints what is refused.
template <class Make>
void run_batch(std::uint64_t seed, int count, bool gathers, const Make& make_from) {
  if (const char* other = std::getenv("TILEWRIGHT_SEED")) seed = std::strtoull(other, nullptr, 10);
  if (const char* other = std::getenv("TILEWRIGHT_CASES")) count = std::atoi(other);
  std::mt19937_64 random(seed);
  int refused = 0, illegal = 0;
  const std::vector<Drawn> drawn = draw(
      random, count, [&] { return make_from(random); }, refused, illegal);
  ASSERT_EQ(static_cast<int>(drawn.size()), count);
  std::vector<cuda::Source> sources;
  for (const Drawn& d : drawn) sources.push_back(d.source);
  const auto module = testing::build_cuda(sources);
  ASSERT_TRUE(module) << module.reason();
  std::cout << "seed " << seed << ": " << count << " emitted, " << refused << " refused, "
            << illegal << " not legal\n";
  int gathering = 0;
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const Drawn& d = drawn[i];
    const Workload& w = *d.schedule.workload;
    gathering += w.find_tensor("ids") ? 1 : 0;
    const auto run = testing::run_cuda(*module, d.source, w, seed + i);
    ASSERT_TRUE(run) << run.reason();
    const Kernel& k = d.schedule.resolved.kernels.front();
    const std::string what = "seed " + std::to_string(seed) + ", " + d.source.prefix + "\n" +
                             to_yaml(w) + to_text(k.tree);
    EXPECT_TRUE(run->report.clean()) << run->report.findings.front().text << "\n" << what;
    EXPECT_LT(run->error, w.dtype() == DType::f64   ? 1e-12
                          : w.dtype() == DType::f32 ? 2e-5
                                                    : 4e-3)
        << what;
    EXPECT_EQ(run->bytes, testing::exact_bytes(d.schedule))
        << "the kernel moved\n"
        << testing::text(run->bytes) << "\nexact counts\n"
        << testing::text(testing::exact_bytes(d.schedule)) << "\n"
        << what;
    if (std::getenv("TILEWRIGHT_FIRST") != nullptr && ::testing::Test::HasFailure()) return;
  }
  EXPECT_EQ(gathering > count / 2, gathers) << gathering;
}

/// Each barrier of drawn kernels left out.
template <class Make>
void leave_out(std::uint64_t seed, int count, const Make& make_from,
               testing::BarriersLeftOut& seen) {
  if (const char* other = std::getenv("TILEWRIGHT_SEED")) seed += std::strtoull(other, nullptr, 10);
  if (const char* other = std::getenv("TILEWRIGHT_CASES")) count = std::atoi(other);
  std::mt19937_64 random(seed);
  int refused = 0, illegal = 0;
  const std::vector<Drawn> drawn = draw(
      random, count, [&] { return make_from(random); }, refused, illegal);
  std::vector<cuda::Source> sources;
  for (const Drawn& d : drawn) sources.push_back(d.source);
  const auto module = testing::build_cuda(sources);
  ASSERT_TRUE(module) << module.reason();
  for (std::size_t i = 0; i < drawn.size(); ++i)
    seen.look(*module, drawn[i].source, *drawn[i].schedule.workload, seed + i,
              "seed " + std::to_string(seed) + ", " + drawn[i].source.prefix + "\n" +
                  to_yaml(*drawn[i].schedule.workload) +
                  to_text(drawn[i].schedule.resolved.kernels.front().tree));
}

TEST(RandomStitched, BarriersLeftOutAreFound) {
  testing::BarriersLeftOut seen;
  leave_out(
      20281, 16, [](std::mt19937_64& random) { return Maker(random, false); }, seen);
  leave_out(
      20282, 8, [](std::mt19937_64& random) { return Maker(random, true); }, seen);
  leave_out(
      20283, 16, [](std::mt19937_64& random) { return WindowMaker(random); }, seen);
  seen.print();
  EXPECT_EQ(seen.count(testing::BarriersLeftOut::wrong), 0);
  EXPECT_GT(seen.count(testing::BarriersLeftOut::race), 5);
}

TEST(RandomStitched, RowGraphs) {
  run_batch(20273, 40, false, [](std::mt19937_64& random) { return Maker(random, false); });
}
TEST(RandomStitched, Gathers) {
  run_batch(20274, 24, true, [](std::mt19937_64& random) { return Maker(random, true); });
}
TEST(RandomStitched, Windows) {
  run_batch(20275, 40, false, [](std::mt19937_64& random) { return WindowMaker(random); });
}

}  // namespace
}  // namespace tilewright
