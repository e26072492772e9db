#include "cli/options.h"

#include <cerrno>
#include <charconv>
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/base/error.h"
#include "core/base/option.h"
#include "harness/registry.h"

namespace tilewright::cli {
namespace {

[[noreturn]] void bad(const char* name, const std::string& value, const char* problem,
                      const std::string& accepted) {
  throw InputError({.where = name,
                    .value = value.empty() ? "nothing" : value,
                    .problem = problem,
                    .accepted = accepted});
}

template <class Integer>
Integer whole(const char* name, const std::string& text, Integer low, Integer high) {
  Integer value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < low || value > high)
    bad(name, text, "is not accepted",
        "a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  return value;
}

double number(const char* name, const std::string& text, double low, double high,
              const char* accepted) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(value) || value < low || value > high)
    bad(name, text, "is not accepted", accepted);
  return value;
}

/// "mlkn,mlnk" is two orders; where a loop's name is longer than a letter, orders are parted by
/// semicolons: "m,oc1,k;m,k,oc1".
std::vector<std::string> split_orders(const std::string& text) {
  const char separator = text.find(';') == std::string::npos ? ',' : ';';
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    if (parts.back().empty())
      bad("--orders", text, "has an empty order", "orders such as mlkn,mlnk");
    begin = end + 1;
  }
  return parts;
}

std::vector<Option> make_subject_options() {
  return {
      {"--machine", "-m", "MACHINE",
       "a name (tilewright machines), a .yaml file, scratchpad:32K or cache:48K/12,1M/16", false,
       [](Invocation& i, const std::string& v) { i.request.machine = v; }},
      {"--rewrite", "", "NAME",
       "the workload rewritten: online-softmax, compose, compose-gathers, compose-all", true,
       [](Invocation& i, const std::string& v) { i.request.rewrites.push_back(v); }},
      {"--model", "", "NAME", "the model (tilewright models)", false,
       [](Invocation& i, const std::string& v) { i.request.model = v; }},
      {"--tree", "", "TREE", "a loop tree in place: \"m l ( k ( C.gemm1 ) n ( C.gemm2 ) )\"", false,
       [](Invocation& i, const std::string& v) { i.request.tree = v; }},
      {"--tiles", "", "m=64,l=64", "tile sizes by loop; a loop that needs none is ignored", false,
       [](Invocation& i, const std::string& v) { i.request.tiles = v; }},
      {"--pin", "", "C=dram", "with --tree: a tensor's level, or C=L1@m from a loop's body on", true,
       [](Invocation& i, const std::string& v) { i.request.pins.push_back(v); }},
      {"--flag", "", "C=sliding", "with --tree: sliding or running", true,
       [](Invocation& i, const std::string& v) { i.request.flags.push_back(v); }},
      {"--level", "", "L2", "the level planned for (default: the innermost on-chip one), or all",
       false, [](Invocation& i, const std::string& v) { i.request.level = v; }},
      {"--capacity", "", "SIZE", "instead of the level's: 32K, 4096B, or elements as 262144e", false,
       [](Invocation& i, const std::string& v) { i.request.capacity = v; }},
      {"--order", "", "mlkn", "an order of the loops, outermost first (m,oc1,k where names are longer)",
       false, [](Invocation& i, const std::string& v) { i.request.order = v; }},
  };
}

std::vector<Option> make_shared_options() {
  return {
      {"--layout", "", "NAME", "tensors in memory: tiled (default) or row-major", false,
       [](Invocation& i, const std::string& v) { i.request.layout = v; }},
      {"--seed", "", "N", "of everything random (default 1)", false,
       [](Invocation& i, const std::string& v) {
         i.request.seed = whole<std::uint64_t>("--seed", v, 0, UINT64_MAX);
       }},
      {"--threads", "", "N", "threads (default: every core; run, simulate: 1)", false,
       [](Invocation& i, const std::string& v) {
         i.request.threads = whole<int>("--threads", v, 1, 1024);
       }},
  };
}

std::vector<Option> make_verb_options() {
  return {
      {"--resolved", "", "", "of a plan: the schedule, every default made visible", false,
       [](Invocation& i, const std::string&) { i.resolved = true; }},
      {"--curve", "", "",
       "explain: the least bytes by buffer size, fused and not; simulate: misses of LRU caches of every "
       "size",
       false, [](Invocation& i, const std::string&) { i.curve = i.walk.curve = true; }},
      {"--target", "", "NAME", "cpu, cuda, cuda-emulated, npu (tilewright targets)", false,
       [](Invocation& i, const std::string& v) {
         i.request.target = i.emit.target = i.run.target = i.measure.target = v;
       }},
      {"--isa", "", "NAME", "avx512_bf16, avx512, avx2, generic (default: the widest that runs here)", false,
       [](Invocation& i, const std::string& v) { i.emit.isa = i.run.isa = i.measure.isa = v; }},
      {"--prefetch", "", "", "ask for the lines of tiles in place before they are used", false,
       [](Invocation& i, const std::string&) { i.emit.prefetch = i.run.prefetch = i.measure.prefetch = true; }},
      {"--micro-kernel", "", "NAME",
       "6x4, 5x5 (avx512), 6x2, 4x3 (avx2), scalar; cuda: mma, wmma2x2, simt (default: the one that "
       "fits each product)",
       false,
       [](Invocation& i, const std::string& v) {
         i.emit.micro_kernel = i.run.micro_kernel = i.measure.micro_kernel = v;
       }},
      {"--out", "-o", "PATH", "the file (plan, run --batch) or folder (emit, reproduce) to write", false,
       [](Invocation& i, const std::string& v) {
         i.out = v;
         i.emit.out = v;
         i.reproduce.out = v;
       }},
      {"--models", "", "NAMES", "the models to compare, with commas between (default: all)", false,
       [](Invocation& i, const std::string& v) { i.models = v; }},
      {"--orders", "", "mlkn,mlnk", "the orders to validate (default: the model's best)", false,
       [](Invocation& i, const std::string& v) { i.validate.orders = split_orders(v); }},
      {"--samples", "", "N", "tilings an order; explain: candidates drawn", false,
       [](Invocation& i, const std::string& v) {
         i.validate.samples = whole<std::int64_t>("--samples", v, 1, 1'000'000);
         i.reproduce.samples = i.request.samples = i.validate.samples;
       }},
      {"--size", "", "NAME", "of the kernels: small, medium (default) or large", false,
       [](Invocation& i, const std::string& v) { i.reproduce.size = v; }},
      {"--all", "", "", "every experiment; those that are finished stay as they are", false,
       [](Invocation& i, const std::string&) { i.reproduce.all = true; }},
      {"--data", "", "DIR", "where counted misses or recordings lie", false,
       [](Invocation& i, const std::string& v) { i.reproduce.data = v; }},
      {"--meter", "", "NAME", "what measures: cachegrind (default), perf, ... (tilewright meters)", false,
       [](Invocation& i, const std::string& v) { i.measure.meter = v; }},
      {"--cold-only", "", "", "ncu: count only with caches emptied before every kernel: half the time", false,
       [](Invocation& i, const std::string&) { i.measure.cuda.cold_only = true; }},
      {"--executed", "", "", "also every address executed, through simulated caches, and the causes", false,
       [](Invocation& i, const std::string&) { i.measure.executed = true; }},
      {"--truth", "", "NAME", "what the prediction is held against: simulator (default) or a meter", false,
       [](Invocation& i, const std::string& v) { i.validate.truth = v; }},
      {"--min-r2", "", "NUMBER", "the least R² about y = x; below it the exit status is 3", false,
       [](Invocation& i, const std::string& v) {
         i.validate.min_r2 = number("--min-r2", v, -1e9, 1, "a number up to 1");
       }},
      {"--beyond", "", "", "tilings past half the capacity too, in a block of their own", false,
       [](Invocation& i, const std::string&) { i.validate.beyond = true; }},
      {"--spill", "", "C", "an intermediate that goes home and back (Chimera's Fig. 8 f)", false,
       [](Invocation& i, const std::string& v) { i.validate.spill = v; }},
      {"--recorded", "", "FILE", "truth ncu, cuda-events: what experiments/gpu/counters has written", false,
       [](Invocation& i, const std::string& v) { i.validate.recorded = v; }},
      {"--csv", "", "FILE", "the points", false,
       [](Invocation& i, const std::string& v) { i.validate.csv = i.walk.csv = v; }},
      {"--trace", "", "FILE", "a recorded trace instead of a plan: din, lackey or --save-trace's", false,
       [](Invocation& i, const std::string& v) { i.walk.trace = v; }},
      {"--save-trace", "", "FILE", "what the innermost cache is touched with, recorded", false,
       [](Invocation& i, const std::string& v) { i.walk.save_trace = v; }},
      {"--attribute", "", "", "misses by kind, who evicted whom, which loop pays (slow)", false,
       [](Invocation& i, const std::string&) { i.walk.attribute = true; }},
      {"--no-skip", "", "", "walk iterations that only repeat themselves too (same counts)", false,
       [](Invocation& i, const std::string&) { i.walk.skip = false; }},
      {"--occupancy", "", "FILE",
       "lines that each tensor holds over time: .csv, or .json, which plot and chrome://tracing read",
       false, [](Invocation& i, const std::string& v) { i.walk.occupancy = v; }},
      {"--timeline", "", "FILE",
       "target npu: what every pipe does when, .svg (core 0), or .json for Perfetto and chrome://tracing",
       false, [](Invocation& i, const std::string& v) { i.run.timeline = v; }},
      {"--stride", "", "N", "of --occupancy, in accesses (default: 512 to 1024 samples)", false,
       [](Invocation& i, const std::string& v) {
         i.walk.stride = whole<std::int64_t>("--stride", v, 1, INT64_MAX);
       }},
      {"--cores", "", "N", "cores that blocks are dealt to, sharing the outer caches (default 1)", false,
       [](Invocation& i, const std::string& v) {
         i.walk.cores = whole<int>("--cores", v, 1, 1024);
       }},
      {"--schedule", "", "NAME", "GPU: blocks are timed (default), in lockstep, or serial", false,
       [](Invocation& i, const std::string& v) { i.walk.schedule = v; }},
      {"--blocks-per-sm", "", "N", "GPU: blocks that an SM holds (default: by memory, at most 8)", false,
       [](Invocation& i, const std::string& v) {
         i.walk.blocks_per_sm = whole<std::int64_t>("--blocks-per-sm", v, 1, 64);
       }},
      {"--partitions", "", "N", "GPU: of L2: 1 (default), or 2 that copy what the other one is home of",
       false, [](Invocation& i, const std::string& v) {
         i.walk.partitions = whole<int>("--partitions", v, 1, 2);
       }},
      {"--jitter", "", "NUMBER", "GPU: how far a block's pace is off, at most (default 0.1)", false,
       [](Invocation& i, const std::string& v) {
         i.walk.jitter = number("--jitter", v, 0, 0.9, "a number from 0 to 0.9");
       }},
      {"--sample-waves", "", "N", "GPU: approximate: so many waves of blocks stand for all", false,
       [](Invocation& i, const std::string& v) {
         i.walk.sample_waves = whole<std::int64_t>("--sample-waves", v, 1, 1'000'000);
       }},
      {"--json", "", "", "one JSON document instead of a table", false,
       [](Invocation& i, const std::string&) { i.json = true; }},
  };
}

std::vector<Option> make_cuda_options() {
  return {
      {"--warps", "", "N", "cuda: warps that compute, a block (default: by the tiles)", false,
       [](Invocation& i, const std::string& v) {
         i.emit.cuda.warps = i.run.cuda.warps = i.measure.cuda.warps = whole<int>("--warps", v, 1, 16);
       }},
      {"--stages", "", "N", "cuda: copies of a loaded tile (default: two where they fit)", false,
       [](Invocation& i, const std::string& v) {
         i.emit.cuda.stages = i.run.cuda.stages = i.measure.cuda.stages = whole<int>("--stages", v, 1, 8);
       }},
      {"--arch", "", "NAME", "cuda: built for sm_80, sm_90a (default: the device's; emit: both)", false,
       [](Invocation& i, const std::string& v) { i.emit.cuda.arch = i.run.cuda.arch = i.measure.cuda.arch = v; }},
      {"--cache", "", "DIR", "cuda: a folder where built kernels are kept and found again", false,
       [](Invocation& i, const std::string& v) { i.emit.cuda.cache = i.run.cuda.cache = i.measure.cuda.cache = v; }},
      {"--cold", "", "", "cuda: time on tensors in turn that are together larger than L2", false,
       [](Invocation& i, const std::string&) { i.run.cuda.cold = true; }},
      {"--build-only", "", "", "cuda: build, and stop before a device is needed", false,
       [](Invocation& i, const std::string&) { i.run.cuda.build_only = i.measure.cuda.build_only = true; }},
      {"--count", "", "", "cuda: run each verified kernel once more for a profiler; not timed", false,
       [](Invocation& i, const std::string&) { i.run.cuda.count = true; }},
      {"--seconds", "", "NUMBER", "of timing, about (default: 2 on cpu, 0.25 on cuda)", false,
       [](Invocation& i, const std::string& v) {
         i.run.seconds = number("--seconds", v, 0, 3600, "a number from 0 to 3600");
       }},
      {"--batch", "", "FILE", "cuda: many runs, a JSON object of options a line; built in parallel",
       false, [](Invocation& i, const std::string& v) { i.batch = v; }},
  };
}

std::vector<Option> make_options() {
  std::vector<Option> all = make_subject_options();
  for (auto group : {make_shared_options, make_cuda_options, make_verb_options})
    for (Option& o : group()) all.push_back(std::move(o));
  return all;
}

}  // namespace

const std::vector<Option>& options() {
  static const std::vector<Option> all = make_options();
  return all;
}

namespace {

/// Whoever is asked checks the value: models may take different values under one name.
Option option_of(const OptionSpec& spec) {
  return {as_argument(spec), "", value_name(spec), help_text(spec), spec.repeated,
          [name = spec.name](Invocation& i, const std::string& v) {
            i.request.options[name].push_back(v.empty() ? "on" : v);
          }};
}

}  // namespace

const std::vector<ModelGroup>& model_options() {
  static const std::vector<ModelGroup> all = [] {
    std::vector<ModelGroup> groups{{"every model", defaults_options(), {}}};
    for (const harness::ModelRecord& m : harness::builtin_models()) {
      const auto same = std::ranges::find_if(
          groups, [&m](const ModelGroup& g) { return g.specs.data() == m.options.data(); });
      if (same != groups.end())
        same->models += ", " + m.name;
      else if (!m.options.empty())
        groups.push_back({m.name, m.options, {}});
    }
    for (ModelGroup& g : groups)
      for (const OptionSpec& spec : g.specs) g.options.push_back(option_of(spec));
    return groups;
  }();
  return all;
}

const Option& option(std::string_view name) {
  for (const Option& o : options())
    if (o.name == name) return o;
  TW_CHECK(false, "an option without a record");
  std::abort();
}

}  // namespace tilewright::cli
