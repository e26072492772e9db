// Three counts of one plan: exact, the simulator, and the CUDA kernels that are emitted of it, run
// on simulator/cuda_host. Plans are drawn over the whole notation: several kernels, packs, syncs,
// atomics, recomputation, spills, sliding, convolutions, gathers, masks, loops bound to blocks,
// warps, lanes and threads. What is not emitted is counted by its reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iomanip>
#include <iostream>
#include <map>
#include <set>

#include "core/workload/reference/rounding.h"
#include "core/workload/text.h"
#include "harness/verified_kernel.h"
#include "tests/codegen/cuda_support.h"
#include "tests/harness/witnesses.h"
#include "tests/support/drawn_kinds.h"

namespace tilewright {
namespace {

using testing::RandomCase;
using testing::drawn_kinds::Kind;
using testing::drawn_kinds::kinds;
using testing::drawn_kinds::workload_of;

/// The reason without the names and numbers of this plan.
std::string alike(const std::string& reason, const Workload& w) {
  std::set<std::string> names;
  for (const Tensor& t : w.tensors()) names.insert(t.name);
  for (const Operator& o : w.operators()) names.insert(o.name);
  for (const Loop& l : w.loops()) names.insert(l.name);
  std::string text, word;
  const auto end = [&] {
    const bool digit = !word.empty() && std::isdigit(static_cast<unsigned char>(word.front())) != 0;
    const bool english = word == "a" || (word == "s" && text.ends_with('\''));
    text += (names.contains(word) && !english) || digit ? "_" : word;
    word.clear();
  };
  for (const char c : reason + " ")
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
      word += c;
    } else {
      end();
      text += c;
    }
  const std::size_t colon = text.find(": ");
  return text.starts_with("kernel") && colon != std::string::npos ? text.substr(colon + 2) : text;
}

std::string described(const RandomCase& c) {
  std::string text = testing::describe(c);
  for (const Kernel& k : c.plan.kernels) text += "level: " + k.level + "\n";
  return text;
}

struct Drawn {
  std::size_t kind = 0;
  RandomCase c;
  Schedule schedule;
  cuda::Source source;
};

/// What of the notation a plan uses.
void note(const Node& n, std::set<std::string>& uses) {
  if (n.kind == Node::Kind::pack) uses.insert("packs");
  if (n.kind == Node::Kind::sync) uses.insert("Y." + n.name);
  if (n.kind == Node::Kind::drop) uses.insert("D");
  if (n.kind == Node::Kind::store && n.atomic) uses.insert("!atomic");
  if (n.kind == Node::Kind::compute && n.once) uses.insert("!once");
  if (n.kind == Node::Kind::loop && n.binding != Binding::seq)
    uses.insert("@" + std::string(name_of(n.binding)));
  for (const Node& c : n.children) note(c, uses);
}
std::set<std::string> used(const Drawn& d) {
  const Workload& w = *d.c.workload;
  std::set<std::string> uses;
  if (d.schedule.kernels.size() > 1) uses.insert("several kernels");
  for (const Kernel& k : d.c.plan.kernels) {
    note(k.tree, uses);
    for (const auto& [tensor, flags] : k.flags)
      if (flags.sliding) uses.insert("sliding");
  }
  for (const ScheduledKernel& k : d.schedule.kernels) {
    std::set<std::pair<TensorId, LevelId>> loaded;
    for (const Buffer& b : k.buffers)
      if (b.role == BufferRole::input && !loaded.emplace(b.tensor, b.level).second)
        uses.insert("slices with gaps");
    for (const Buffer& b : k.buffers)
      if (b.role == BufferRole::input && w.producer(b.tensor).valid() &&
          std::ranges::find(k.ops, w.producer(b.tensor)) != k.ops.end())
        uses.insert("spilled and read again");
  }
  const Traffic counted = exact(d.schedule);
  for (std::size_t o = 0; o < w.operators().size(); ++o) {
    const Operator& op = w.operators()[o];
    const auto at = counted.operations.find(op.name);
    if (at != counted.operations.end() && at->second > w.operations(OpId(o)))
      uses.insert("recomputed");
    if (op.running) uses.insert("running");
    if (op.outputs.size() > 1) uses.insert("several outputs");
    for (const Access& a : op.inputs) {
      if (is_gather(a)) uses.insert("gathers");
      for (const Affine& i : a.index)
        if (i.terms.size() > 1) uses.insert("windows");
    }
  }
  if (to_yaml(w).find("select(") != std::string::npos) uses.insert("masks");
  return uses;
}

struct Counts {
  int illegal = 0, legal = 0, refused = 0, agreed = 0, differ = 0;
};

class Plans {
 public:
  explicit Plans(std::uint64_t seed) : random_(seed), all_(kinds()), counts_(all_.size()) {}

  /// Draws legal plans, kinds in turn, until `count` of them are emitted and run.
  void look(int count) {
    std::vector<Drawn> batch;
    int emitted = 0;
    for (int tries = 0; emitted < count && tries < 400 * count; ++tries) {
      if (!draw(emitted, batch)) continue;
      ++emitted;
      if (batch.size() == 25) run(batch);
    }
    EXPECT_EQ(emitted, count);
    run(batch);
  }

  void print() const {
    std::cout << std::setw(22) << ""
              << "   legal refused  agreed differ\n";
    Counts sum;
    const auto row = [](const std::string& name, const Counts& c) {
      std::cout << std::setw(22) << name << std::setw(8) << c.legal << std::setw(8) << c.refused
                << std::setw(8) << c.agreed << std::setw(7) << c.differ << "\n";
    };
    for (std::size_t i = 0; i < all_.size(); ++i) {
      row(all_[i].name, counts_[i]);
      sum.legal += counts_[i].legal, sum.refused += counts_[i].refused;
      sum.agreed += counts_[i].agreed, sum.differ += counts_[i].differ;
    }
    row("all", sum);
    std::cout << "compared, with";
    for (const auto& [what, n] : uses_)
      std::cout << (&n == &uses_.begin()->second ? " " : ", ") << what << " " << n;
    std::cout << "\n";
    std::vector<std::pair<int, std::string>> reasons;
    for (const auto& [reason, n] : refused_) reasons.emplace_back(-n, reason);
    std::ranges::sort(reasons);
    std::cout << "refused:\n";
    for (const auto& [n, reason] : reasons)
      std::cout << std::setw(6) << -n << "  " << reason << "\n";
  }

 private:
  bool draw(int number, std::vector<Drawn>& batch) {
    const std::size_t kind = static_cast<std::size_t>(number) % all_.size();
    Counts& counts = counts_[kind];
    Drawn d{.kind = kind};
    try {
      auto c = all_[kind].draw(random_);
      if (!c) return false;
      d.c = std::move(*c);
      auto schedule = resolve(d.c.plan, d.c.workload, d.c.machine);
      if (!schedule) {
        ++counts.illegal;
        return false;
      }
      d.schedule = std::move(schedule).value();
    } catch (const InputError&) {
      ++counts.illegal;
      return false;
    }
    ++counts.legal;
    if (!witnesses_agree(d)) {
      ++counts.differ;
      return false;
    }
    cuda::EmitOptions options{.warps = static_cast<int>(random_() % 5),
                              .stages = static_cast<int>(random_() % 4),
                              .warpgroups = number % 2 == 1,
                              .registers = random_() % 5 != 0,
                              .prefix = "k" + std::to_string(number)};
    if (random_() % 8 == 0 && d.c.workload->dtype() == DType::f16) options.micro_kernel = "wmma2x2";
    if (random_() % 8 == 0) options.micro_kernel = "simt";
    if (number % 3 == 0 && d.c.workload->dtype() == DType::f32) options.micro_kernel = "tf32x3";
    try {
      auto source = cuda::emit(d.schedule, options);
      if (!source) {
        ++counts.refused;
        ++refused_[alike(source.reason(), *d.c.workload)];
        return false;
      }
      d.source = std::move(source).value();
    } catch (const InputError& e) {
      ++counts.refused;
      ++refused_[alike(e.what(), *d.c.workload)];
      return false;
    }
    batch.push_back(std::move(d));
    return true;
  }

  static bool witnesses_agree(const Drawn& d) {
    const Traffic counted = exact(d.schedule), simulated = simulate(d.schedule);
    const bool agree =
        counted.unavailable.empty() && testing::moved(counted) == testing::moved(simulated) &&
        counted.operations == simulated.operations && counted.memory == simulated.memory;
    EXPECT_TRUE(agree) << "exact and the simulator\n" << described(d.c);
    return agree;
  }

  void run(std::vector<Drawn>& batch) {
    std::vector<cuda::Source> sources;
    for (const Drawn& d : batch) sources.push_back(d.source);
    const auto module = testing::build_cuda(sources);
    ASSERT_TRUE(module) << module.reason();
    for (const Drawn& d : batch) ++(counts_[d.kind].*compare(d, *module));
    batch.clear();
  }

  /// A sum that cancels may be far off relative to itself: what the rounding of each result
  /// explains.
  static bool explained(const Schedule& s, std::uint64_t seed, const TensorValues& outputs) {
    const Workload& w = *s.workload;
    const Bounded b = evaluate_bounded(w, random_inputs(w, seed), harness::rounding_of(s));
    return std::ranges::all_of(w.outputs(), [&](TensorId t) {
      for (std::size_t i = 0; i < outputs[t.index()].size(); ++i)
        if (!(std::abs(outputs[t.index()][i] - b.values[t.index()][i]) <= b.bounds[t.index()][i]))
          return false;
      return true;
    });
  }

  int Counts::*compare(const Drawn& d, const cuda_host::Module& module) {
    const Workload& w = *d.c.workload;
    const std::string what = all_[d.kind].name + ", " + d.source.prefix + ", " +
                             std::string(name_of(w.dtype())) + "\n" + described(d.c);
    const std::uint64_t seed = random_();
    const auto run = testing::run_cuda(module, d.source, w, seed);
    EXPECT_TRUE(run) << run.reason() << "\n" << what;
    if (!run) return &Counts::differ;
    const auto counted = testing::exact_bytes(d.schedule);
    const double most = w.dtype() == DType::f64   ? 1e-12
                        : w.dtype() == DType::f32 ? 2e-5
                        : w.dtype() == DType::f16 ? 4e-3
                                                  : 3e-2;
    EXPECT_TRUE(run->report.clean()) << run->report.findings.front().text << "\n" << what;
    const bool near = run->error < most || explained(d.schedule, seed, run->outputs);
    EXPECT_TRUE(near) << run->error << "\n" << what;
    EXPECT_EQ(run->bytes, counted) << "the kernel moved\n"
                                   << testing::text(run->bytes) << "\nexact counts\n"
                                   << testing::text(counted) << "\n"
                                   << what;
    for (const std::string& one : used(d)) ++uses_[one];
    const bool right = run->report.clean() && near && run->bytes == counted;
    return right ? &Counts::agreed : &Counts::differ;
  }

  std::mt19937_64 random_;
  std::vector<Kind> all_;
  std::vector<Counts> counts_;
  std::map<std::string, int> refused_, uses_;
};

/// TILEWRIGHT_SEED and TILEWRIGHT_CASES draw others, 1,000 for the table in docs/gpu.md.
TEST(WitnessesAndKernels, AgreeToTheByteOnRandomPlans) {
  const char* const seed = std::getenv("TILEWRIGHT_SEED");
  const char* const count = std::getenv("TILEWRIGHT_CASES");
  Plans plans(seed != nullptr ? std::strtoull(seed, nullptr, 10) : 20261123);
  plans.look(count != nullptr ? std::atoi(count) : 48);
  plans.print();
}

/// Slices with a gap between them have a load and a tile each: nobody moves the gap. Where they
/// meet, or where they slide, there is one tile around both.
TEST(WitnessesAndKernels, SlicesWithAGapAreLoadedByThemselves) {
  struct Case {
    int offset;
    std::string tree;
    bool sliding;
    std::int64_t elements;  // of x, into the SMs
    std::ptrdiff_t tiles;
  };
  const std::vector<Case> cases = {
      {36, "r/1@grid i/6 ( L.x C.y )", false, 2 * 8 * 24, 2},
      {36, "r/1@grid i/12@warp ( L.x@registers i/1@lane C.y )", false, 2 * 8 * 24, 2},
      {4, "r/1@grid i/6 ( L.x C.y )", false, 8 * 4 * (6 + 4), 1},
      {4, "r/1@grid i/6 ( L.x C.y )", true, 8 * (24 + 4), 1},
      {4, "r/1@grid i/2 ( L.x C.y )", false, 2 * 8 * 24, 2},
  };
  std::vector<Schedule> schedules;
  std::vector<cuda::Source> sources;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.tree + " at " + std::to_string(c.offset));
    const auto w = workload_of(
        "name: halves\nloops: {r: 8, i: 24}\ntensors: {x: [r, 60]}\noperators:\n"
        "  - \"y: y[r,i] = x[r,i] * x[r,i+" +
        std::to_string(c.offset) + "]\"\n");
    Kernel k{.name = "one", .level = "shared", .tree = parse_tree(c.tree)};
    k.flags["x"].sliding = c.sliding;
    auto s = resolve({.kernels = {k}}, w, testing::random_stitched::machine());
    ASSERT_TRUE(s) << s.reason();
    const auto again = resolve(s->resolved, w, s->machine);
    ASSERT_TRUE(again) << again.reason();
    EXPECT_EQ(to_text(again->resolved.kernels.front().tree),
              to_text(s->resolved.kernels.front().tree));
    EXPECT_EQ(testing::exact_bytes(*again), testing::exact_bytes(*s));
    EXPECT_EQ(std::ranges::count(s->kernels.front().buffers, BufferRole::input, &Buffer::role),
              c.tiles);
    EXPECT_EQ(testing::moved(exact(*s)), testing::moved(simulate(*s)));
    EXPECT_EQ(testing::exact_bytes(*s).at("x").first, 4 * c.elements);
    const auto source = cuda::emit(*s, {.prefix = "slices" + std::to_string(sources.size())});
    ASSERT_TRUE(source) << source.reason();
    sources.push_back(*source);
    schedules.push_back(std::move(s).value());
  }
  const auto module = testing::build_cuda(sources);
  ASSERT_TRUE(module) << module.reason();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(cases[i].tree + " at " + std::to_string(cases[i].offset));
    const auto run = testing::run_cuda(*module, sources[i], *schedules[i].workload, 3);
    ASSERT_TRUE(run) << run.reason();
    EXPECT_TRUE(run->report.clean());
    EXPECT_LT(run->error, 1e-6);
    EXPECT_EQ(run->bytes, testing::exact_bytes(schedules[i]));
  }
}

/// Each iteration of a loop over units has buffers of its own, also where one unit has several
/// iterations: a loop around it finds held in each what that one loaded. Pieces of pieces, of which
/// the last are smaller, and blocks and units that have fewer.
TEST(WitnessesAndKernels, UnitsWithSeveralTurnsHoldWhatEachLoaded) {
  const char* const seed = std::getenv("TILEWRIGHT_SEED");
  const char* const count = std::getenv("TILEWRIGHT_CASES");
  std::mt19937_64 random(seed != nullptr ? std::strtoull(seed, nullptr, 10) : 2711);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  std::vector<Schedule> schedules;
  std::vector<cuda::Source> sources;
  std::vector<std::string> texts;
  const int most = count != nullptr ? std::atoi(count) : 24;
  int held = 0, makeshifts = 0;
  for (int i = 0; i < most; ++i) {
    const int columns = pick(33, 200), block = pick(33, columns), piece = pick(33, block);
    const char* const unit = i % 3 == 0 ? "thread" : i % 3 == 1 ? "warp" : "lane";
    const auto w =
        workload_of("name: turns\nloops: {r: 3, k: 66, c: " + std::to_string(columns) +
                    "}\ntensors: {T: [7, c], ids: [r]}\ndtypes: {ids: i32}\noperators:\n"
                    "  - \"a: u[r,c] = x[r,c] * m[r]\"\n  - \"b: y[r,c] = u[r,c] + T[ids[r],c]\"\n"
                    "  - \"s: z[r] += u[r,c] * x[r,c]\"\n  - \"p: v[r,c] += h[r,k] * W[k,c]\"\n");
    std::string tree = "r/1@grid ";
    const bool grid = pick(0, 2) == 0, sum = !grid && pick(0, 1) == 0;
    if (grid) tree += "c/" + std::to_string(block) + "@grid ";
    const std::string loops = "c/" + std::to_string(piece) + " c/" + std::to_string(pick(1, 3)) +
                              "@" + unit + (pick(0, 1) == 0 ? " c/1" : "") + " ";
    const bool product = pick(0, 3) == 0;  // each unit needs a whole row of h
    const std::string rest = std::string("C.b ") + (sum ? "C.s " : "") + (product ? "C.p " : "");
    tree += pick(0, 2) == 0 ? "( " + loops + "C.a " + loops + "( " + rest + ") )"
                            : "( " + loops + "( C.a " + rest + ") )";
    Kernel k{.name = "one", .level = "registers", .tree = parse_tree(tree)};
    const Kernel last{
        .name = "sum", .level = "registers", .tree = parse_tree("r/1@grid c/1@lane C.s")};
    Kernel rows = last;
    rows.name = "product", rows.tree = parse_tree("r/1@grid c/1@thread C.p");
    Plan plan{.kernels = {k}};
    if (!sum) plan.kernels.push_back(last);
    if (!product) plan.kernels.push_back(rows);
    auto s = resolve(plan, w, testing::random_stitched::machine());
    ASSERT_TRUE(s) << s.reason() << tree;
    EXPECT_EQ(testing::moved(exact(*s)), testing::moved(simulate(*s))) << tree;
    auto source = cuda::emit(*s, {.prefix = "k" + std::to_string(i)});
    ASSERT_TRUE(source) << source.reason() << tree;
    held += exact(*s).at("m", "shared/registers").read.value < 4 * 3 * columns;
    makeshifts += source->makeshift.has_value();
    texts.push_back(tree + " of " + std::to_string(columns));
    sources.push_back(std::move(source).value());
    schedules.push_back(std::move(s).value());
  }
  const auto module = testing::build_cuda(sources);
  ASSERT_TRUE(module) << module.reason();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto run = testing::run_cuda(*module, sources[i], *schedules[i].workload, i);
    ASSERT_TRUE(run) << run.reason();
    EXPECT_TRUE(run->report.clean()) << texts[i];
    EXPECT_LT(run->error, 2e-5) << texts[i];
    EXPECT_EQ(testing::text(run->bytes), testing::text(testing::exact_bytes(schedules[i])))
        << texts[i];
  }
  EXPECT_GT(held, most / 2);
  EXPECT_LT(makeshifts, most / 2);  // by all warps: ends with a smaller piece, and read twice
}

/// What is loaded for a !once compute is loaded wherever its tile is not complete, also where the
/// compute has no point left: u slides, so that from the second turn of n on no row of it is new.
TEST(WitnessesAndKernels, ALoadForAComputeWithoutPoints) {
  const auto w = workload_of(
      "name: once\ndtype: f32\nloops: {r: 10, c: 9, k: 9, n: 7}\noperators:\n"
      "  - \"score: t[r,c] += a[r,k] * b[k,c]\"\n"
      "  - \"mask: u[r,c] = select(lt(keep[c], 0), 0, t[r,c])\"\n"
      "  - \"apply: y[r,n] += u[r,c] * v[c,n]\"\n");
  Kernel k{.name = "one",
           .tree = parse_tree("n/2 ( c/1 ( C.score!once ) "
                              "( c/1 ( C.mask ) c/2 ( C.apply S.y@DRAM ) ) )")};
  k.flags["b"].sliding = k.flags["u"].sliding = true;
  const auto s =
      resolve({.kernels = {k}}, w, std::make_shared<const Machine>(named_machine("scratchpad:1M")));
  ASSERT_TRUE(s) << s.reason();
  const auto source = cuda::emit(*s, {.prefix = "once"});
  ASSERT_TRUE(source) << source.reason();
  const auto module = testing::build_cuda({*source});
  ASSERT_TRUE(module) << module.reason();
  const auto run = testing::run_cuda(*module, *source, *w, 3);
  ASSERT_TRUE(run) << run.reason();
  EXPECT_TRUE(run->report.clean());
  EXPECT_LT(run->error, 2e-5);
  EXPECT_EQ(run->bytes, testing::exact_bytes(*s));
  EXPECT_EQ(exact(*s).at("b", "DRAM/L1").read, Bytes(1296));
}

/// Of the boxes that a !once compute finishes, a thread keeps a record; the loop of its own sum,
/// here of 520 turns a box, makes no more of them. There may be many, as long as a thread's local
/// memory has room for the record.
TEST(WitnessesAndKernels, BoxesThatAreFinishedAreRecorded) {
  struct Case {
    std::string loops, tree, pinned_at;
  };
  const Case few = {"{m: 4, l: 4, k: 520, n: 4}", "m/2 n/2 l/2 ( k/1 ( C.first!once ) C.second )",
                    "m"};
  const Case many = {"{m: 30, l: 20, k: 2, n: 2}", "n/1 m/1 l/1 ( C.first!once C.second )", "n"};
  const Case too_many = {"{m: 100, l: 50, k: 2, n: 2}", many.tree, "n"};
  const auto schedule_of = [](const Case& c) {
    const auto w = workload_of("name: once\ndtype: f32\nloops: " + c.loops +
                               "\noperators:\n  - \"first: t[m,l] += a[m,k] * b[k,l]\"\n"
                               "  - \"second: y[m,n] += t[m,l] * d[l,n]\"\n");
    Kernel k{.name = "one", .tree = parse_tree(c.tree)};
    k.pins["t"] = {.level = "L1", .at = c.pinned_at};
    return resolve({.kernels = {k}}, w,
                   std::make_shared<const Machine>(named_machine("scratchpad:1M")));
  };
  for (const Case& c : {few, many}) {
    const auto s = schedule_of(c);
    ASSERT_TRUE(s) << s.reason();
    const auto source = cuda::emit(*s, {.prefix = "once"});
    ASSERT_TRUE(source) << source.reason();
    const auto module = testing::build_cuda({*source});
    ASSERT_TRUE(module) << module.reason();
    const auto run = testing::run_cuda(*module, *source, *s->workload, 3);
    ASSERT_TRUE(run) << run.reason();
    EXPECT_TRUE(run->report.clean());
    EXPECT_LT(run->error, 2e-5);
    EXPECT_EQ(run->bytes, testing::exact_bytes(*s));
  }
  const auto s = schedule_of(too_many);
  ASSERT_TRUE(s) << s.reason();
  const auto source = cuda::emit(*s, {.prefix = "once"});
  ASSERT_FALSE(source);
  EXPECT_NE(source.reason().find("its local memory has room for"), std::string::npos)
      << source.reason();
}

/// An element that is read from home for several points of a thread is read once for all of them:
/// looked up, alone or several at once, or where it lies. A block's kernel has what is in no order.
TEST(WitnessesAndKernels, ThreadsReadOnceWhatSeveralPointsNeed) {
  Machine of_warps = named_machine("scratchpad:1M");
  of_warps.levels.back().private_to = Unit::warp;
  const auto warps = std::make_shared<const Machine>(of_warps);
  const auto gpu = testing::random_stitched::machine();
  struct Case {
    std::string text, tree, tensor;
    std::shared_ptr<const Machine> machine;
    std::int64_t elements;  // of the tensor, by hand
    bool threads = true;    // no kernel of blocks
  };
  const std::string lookup = "dtypes: {ids: i8}\noperators:\n  - \"y: ";
  const Case cases[] = {
      {"loops: {b: 10, d: 10, e: 8}\ntensors: {T: [11, d], ids: [b], y: [b, e], W: [d, e]}\n" +
           lookup + "y[b,e] += T[ids[b],d] * W[d,e]\"\n  - \"act: a[b,e] = relu(y[b,e])\"\n",
       "e/4@unroll d/5@warp b/2 ( C.y ) b/7 e/1 b/4 ( C.act )", "T", warps, 2 * 10 * 10},
      {"loops: {r: 6, e: 7, c: 64}\ntensors: {T: [11, c], ids: [r], W: [e, c]}\n" + lookup +
           "y[r,e,c] = T[ids[r],c] * W[e,c]\"\n",
       "r/2@grid r/1@warp e/3 c/2@lane ( C.y )", "T", gpu, 3 * 6 * 64},
      {"loops: {r: 6, e: 30}\ntensors: {T: [11], ids: [r]}\n" + lookup +
           "y[r,e] = T[ids[r]] * g[e]\"\n",
       "r/1@grid e/4@lane ( C.y )", "T", gpu, 8 * 6},
      {"loops: {b: 100, e: 16}\noperators:\n  - \"y: y[b,e] = x[b] * g[e]\"\n", "e/4@lane ( C.y )",
       "x", gpu, 4 * 100},
      {"loops: {r: 6, c: 30}\ntensors: {T: [11], S: [9], ids: [r], at: [c]}\ndtypes: {at: i8, ids: "
       "i8}"
       "\noperators:\n  - \"y: y[r,c] = T[ids[r]] * S[at[c]]\"\n",
       "r/2@grid c/3@lane ( C.y )", "T", gpu, 10 * 6, false},
  };
  std::vector<Schedule> schedules;
  std::vector<cuda::Source> sources;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text + c.tree);
    Kernel k{.name = "one", .tree = parse_tree(c.tree)};
    if (c.machine == gpu) k.level = "registers";
    const auto s =
        resolve({.kernels = {k}}, workload_of("name: once\ndtype: f32\n" + c.text), c.machine);
    ASSERT_TRUE(s) << s.reason();
    const auto source = cuda::emit(*s, {.prefix = "once" + std::to_string(sources.size())});
    ASSERT_TRUE(source) << source.reason();
    EXPECT_NE(c.threads, std::ranges::any_of(source->notes, [](const std::string& note) {
                return note.find("again for each element of another") != std::string::npos;
              }));
    sources.push_back(*source);
    schedules.push_back(*s);
  }
  const auto module = testing::build_cuda(sources);
  ASSERT_TRUE(module) << module.reason();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    SCOPED_TRACE(cases[i].text + cases[i].tree);
    const auto run = testing::run_cuda(*module, sources[i], *schedules[i].workload, 3);
    ASSERT_TRUE(run) << run.reason();
    EXPECT_TRUE(run->report.clean());
    EXPECT_LT(run->error, 2e-5);
    EXPECT_EQ(run->bytes, testing::exact_bytes(schedules[i]));
    EXPECT_EQ(run->bytes.at(cases[i].tensor).first, 4 * cases[i].elements);
  }
}

/// What moves other bytes in a kernel of warps and lanes is a block's: a sum that is stored in
/// every iteration of its own reduction, and a window that is wider than its tensor, so that two
/// turns have the same box.
TEST(WitnessesAndKernels, BlocksTakeWhatUnitsWouldMoveOtherwise) {
  struct Case {
    std::shared_ptr<const Workload> workload;
    std::string tree, reason, tensor;
    std::pair<std::int64_t, std::int64_t> bytes;  // read and written, by hand
  };
  const Case cases[] = {{std::make_shared<const Workload>(named_workload("gemm:m=9,n=3,k=4")),
                         "m/8@grid n/1@warp k/3 n/1 ( L.A C.gemm S.C )",
                         "writes what there is of C so far",
                         "C",
                         {0, 2 * 9 * 3 * 4}},
                        {workload_of("name: windows\ndtype: f16\nloops: {b: 4, y: 2, r: 5, c: 1}\n"
                                     "tensors: {I: [b, c, 1]}\noperators:\n"
                                     "  - \"conv: O[b,y] += I[b,c,y+r-4] * W[c,r]\"\n"
                                     "  - \"bias: P[b,y] = O[b,y] + v[y]\"\n"),
                         "b/1@grid y/2@grid y/2@warp y/2@lane ( c/1 r/2 ( L.I C.conv ) C.bias )",
                         "narrower than the window",
                         "I",
                         {4 * 2, 0}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.tree);
    Kernel k{.name = "one", .tree = parse_tree(c.tree)};
    k.level = "registers";
    const auto s = resolve({.kernels = {k}}, c.workload,
                           std::make_shared<const Machine>(named_machine("h200")));
    ASSERT_TRUE(s) << s.reason();
    const auto source = cuda::emit(*s, {.prefix = "units"});
    ASSERT_TRUE(source) << source.reason();
    EXPECT_TRUE(std::ranges::any_of(source->notes, [&](const std::string& note) {
      return note.find(c.reason) != std::string::npos;
    }));
    const auto module = testing::build_cuda({*source});
    ASSERT_TRUE(module) << module.reason();
    const auto run = testing::run_cuda(*module, *source, *c.workload, 3);
    ASSERT_TRUE(run) << run.reason();
    EXPECT_TRUE(run->report.clean());
    EXPECT_LT(run->error, 4e-3);
    EXPECT_EQ(run->bytes.at(c.tensor), c.bytes);
  }
}

/// Blocks that would share a tile of an outer level, each with a part of it written.
TEST(WitnessesAndKernels, BlocksShareNoTileOfAnOuterLevel) {
  const auto w = workload_of(
      "name: outer\ndtype: f32\nloops: {b: 3, s: 2, d: 4}\noperators:\n"
      "  - \"sum: y[b,d] += k[b,s,d]\"\n");
  Kernel k{.name = "one",
           .tree = parse_tree("b/3@grid ( d/3@grid ( d/1 ( C.sum S.y@L2 ) ) S.y@DRAM!atomic )")};
  k.level = "L1";
  const auto s = resolve({.kernels = {k}}, w,
                         std::make_shared<const Machine>(named_machine("scratchpad:1M,1M")));
  ASSERT_TRUE(s) << s.reason();
  const auto source = cuda::emit(*s, {.prefix = "outer"});
  ASSERT_FALSE(source);
  EXPECT_NE(source.reason().find("others use its tile of y"), std::string::npos) << source.reason();
}

}  // namespace
}  // namespace tilewright
