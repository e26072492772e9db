// The verbs' records: what each is asked, and the function that answers.
#include "harness/verbs.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/workload/import/onnx_import.h"
#include "harness/ask.h"
#include "harness/layers.h"
#include "harness/registry.h"
#include "harness/split.h"
#include "harness/verb.h"

namespace tilewright::harness {
namespace {

constexpr const char* kPlanHelp =
    "A plan is a plan file (plan -o writes one), or a workload with --tree and --tiles, with "
    "--order\n"
    "(and --tiles, or tiles solved), or with --model (the model's best). A workload alone: the "
    "plan\n"
    "that the verb plan answers.";

using Specs = std::vector<OptionSpec>;

Specs operator+(Specs a, const Specs& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// What says a plan.
Specs plan_options() {
  return shared_options({"machine", "rewrite", "model", "tree", "tiles", "pin", "flag", "level",
                         "order", "capacity"});
}

Specs one(OptionSpec spec) { return {std::move(spec)}; }

OptionSpec out(const char* value, const char* help) {
  return {.name = "out", .kind = OptionKind::path, .value = value, .help = help, .letter = "o"};
}

OptionSpec layers() {
  return {.name = "split",
          .kind = OptionKind::choice,
          .names = {"each", "contractions", "followed"},
          .fallback = "of an ONNX file followed",
          .help = "a network's layers, as plan --split has them, priced one by one"};
}

/// What --split says, or means of a network that nothing else is asked about.
std::optional<std::string> layers_of(const Request& r, const Settings& s) {
  if (const auto how = s.find_text("split")) return how;
  const bool other = find_option(s.specs(), "curve") != nullptr &&
                     (s.flag("curve") || s.flag("resolved") || s.find_text("out"));
  if (names_onnx(r.subject) && !r.subject_text && !other && !r.tree && notation_of(r) == nullptr)
    return "followed";
  return std::nullopt;
}

OptionSpec build_only() {
  return {.name = "build-only",
          .kind = OptionKind::flag,
          .help = "build, and stop before a device is needed"};
}

OptionSpec batch() {
  return {.name = "batch",
          .kind = OptionKind::path,
          .help = "cuda: many runs, a JSON object of options a line; built in parallel"};
}

/// The request, its target's options checked for this verb.
const Request& checked(const Request& request, const char* verb) {
  target_settings(request, target_named(request.target).name, verb);
  return request;
}

struct FileOptions {
  std::optional<std::string> out;
};

const std::vector<Bound<FileOptions>>& workloads_options() {
  static const std::vector<Bound<FileOptions>> all = {
      {out("FILE", "the workload file to write"), into<&FileOptions::out>}};
  return all;
}

const std::vector<Bound<FileOptions>>& machines_options() {
  static const std::vector<Bound<FileOptions>> all = {
      {out("FILE", "the machine file to write"), into<&FileOptions::out>}};
  return all;
}

Verb workloads_verb() {
  return {.name = "workloads",
          .summary = "the built-in workloads and their parameters, or one as a file to start from",
          .subject = "[W]",
          .details =
              "Without a workload: the list. With one: the workload file that says the same, "
              "rewritten by --rewrite.",
          .returns =
              "Returns {'workloads': [...]}, or {'workload', 'file', 'content'}: the "
              "file's text, and what it says.",
          .options = shared_options({"rewrite"}) + specs_of(workloads_options()),
          .run = [](const Request& r, const Settings& s) {
            return r.subject.empty() && !r.subject_text
                       ? list_workloads()
                       : show_workload(r, read(workloads_options(), s).out);
          }};
}

Verb machines_verb() {
  return {.name = "machines",
          .summary = "the machines that -m names, or one as a file to start from",
          .subject = "[M]",
          .details = "Without a machine: the list. With one: the machine file that says the same.",
          .returns =
              "Returns {'machines': [...], 'made': [...]}, or {'machine', 'file', "
              "'content'}: the file's text, and what it says.",
          .options = specs_of(machines_options()),
          .run = [](const Request& r, const Settings& s) {
            return r.subject.empty() ? list_machines()
                                     : show_machine(r, read(machines_options(), s).out);
          }};
}

std::vector<Verb> lists() {
  return {
      {.name = "models",
       .summary = "the cost models, their sources, assumptions and options",
       .run = [](const Request&, const Settings&) { return list_models(); }},
      machines_verb(),
      workloads_verb(),
      {.name = "targets",
       .summary = "what code can be generated for, and whether it is usable here",
       .run = [](const Request&, const Settings&) { return list_targets(); }},
      {.name = "meters",
       .summary = "what can measure traffic, and whether it is usable here",
       .run = [](const Request&, const Settings&) { return list_meters(); }},
      {.name = "doctor",
       .summary = "what works on this machine, what is missing, and what to try next",
       .returns =
           "Returns {'host', 'parts': [{'name', 'kind', 'usable', 'reason', 'help'}], 'next'}.",
       .run = [](const Request&, const Settings&) { return doctor(); }},
  };
}

const std::vector<Bound<ImportOptions>>& import_options() {
  static const std::vector<Bound<ImportOptions>> all = {
      {{.name = "bind",
        .kind = OptionKind::pairs,
        .accepted = "NAME=N, with commas between",
        .value = "batch=1,seq=128",
        .help = "extents of symbolic dimensions; also behind the file's name, model.onnx:batch=1",
        .repeated = true},
       into<&ImportOptions::bind>},
      {{.name = "skip",
        .kind = OptionKind::flag,
        .help = "import what is supported: what other nodes make becomes an input, and what only "
                "they read an output"},
       into<&ImportOptions::skip>},
      {out("FILE", "the workload file to write"), into<&ImportOptions::out>}};
  return all;
}

Verb import_verb() {
  return {.name = "import",
          .summary = "an ONNX model as a workload file",
          .subject = "W",
          .details =
              "Any verb that takes a workload takes the .onnx file, too; this one says what "
              "becomes of\n"
              "it. Weights stay in the file: the workload names their place, and runs use their "
              "values.",
          .returns =
              "Returns {'workload', 'operators', 'nodes', 'inputs', 'outputs', 'notes', 'skipped', "
              "'unused', ...}.",
          .options = specs_of(import_options()),
          .run = [](const Request& r, const Settings& s) {
            return import_model(r, read(import_options(), s));
          }};
}

Verb explain_verb() {
  return {
      .name = "explain",
      .summary =
          "why a plan is as it is: what shares a kernel and what the other choice costs; "
          "orders ranked",
      .subject = "W|PLAN",
      .details =
          "Of a workload: who proposed each part, and of each tensor between operators whether "
          "they share\n"
          "a kernel and what the other choice would cost. With --order or --model " +
          standard_model().name +
          ": orders (all by\n"
          "default) with --tiles, or with tiles solved for the level. Of a plan (--resolved): the\n"
          "schedule, every default made visible. --curve: the least bytes by buffer size, proven "
          "and\n"
          "attainable, fused and not (-m is optional then). With a model of graphs: its kernels, "
          "groups and\n"
          "schemes; -o draws them (.dot, .svg). Of an ONNX file, or with --split: what fusion is "
          "worth,\nlayer by layer.",
      .returns =
          "Returns {'edges': [{'tensor', 'from', 'to', 'fused', 'why', ...}], ...}, or, of orders, "
          "{'orders':\n[{'order', 'legal', 'reason', 'volume_elements', 'memory_elements', "
          "'tensors'}]}.",
      .options = plan_options() + shared_options({"seed", "samples"}) +
                 Specs{{.name = "resolved",
                        .kind = OptionKind::flag,
                        .help = "of a plan: the schedule, every default made visible"},
                       {.name = "curve",
                        .kind = OptionKind::flag,
                        .help = "the least bytes by buffer size, fused and not"},
                       layers(),
                       out("FILE", "the drawing of the graph to write: .dot, .svg")},
      .models = true,
      .run = [](const Request& r, const Settings& s) {
        if (const auto how = layers_of(r, s))
          return explain_layers(r, *how, r.model.value_or("all"));
        return s.flag("curve") ? explain_curve(r)
                               : explain(r, s.flag("resolved"), s.find_text("out"));
      }};
}

Verb plan_verb() {
  return {
      .name = "plan",
      .summary = "the model's best plan, its traffic and time, its gap to the lower bound",
      .subject = "W",
      .details = "The model is " + planning_model().name +
                 " unless --model says another. --target raises the smallest tile to "
                 "that\n"
                 "target's micro-kernel. -o writes the plan file.",
      .returns =
          "Returns {'plan', 'volume_bytes', 'bound_bytes', 'gap', ...}, which simulate() takes.",
      .options =
          shared_options(
              {"machine", "rewrite", "model", "level", "capacity", "target", "threads", "seed"}) +
          Specs{{.name = "part",
                 .value = "'OP OP'",
                 .help = "plan these operators alone: what crosses the cut is input and output"},
                {.name = "split",
                 .value = "HOW|FILE",
                 .help = "plan in parts and join the plans: each (operator), contractions (pairs "
                         "and what lies between; the rest apart), followed (an operator and what "
                         "follows it element by element), 'OP OP=MODEL; OP=MODEL' (these parts by "
                         "these models, other operators alone), or a YAML file of parts; --model "
                         "may name several, with commas"},
                out("FILE", "the plan file to write")},
      .models = true,
      .run = [](const Request& asked, const Settings& s) {
        const auto part = s.find_text("part");
        const Request r = part ? of_part(asked, *part) : asked;
        const auto split = s.find_text("split");
        return split ? plan_in_parts(r, *split, s.find_text("out")) : plan(r, s.find_text("out"));
      }};
}

Verb predict_verb() {
  return {.name = "predict",
          .summary = "one model's price of any plan",
          .subject = "PLAN",
          .details =
              "With --tree, --model prices that tree; without it the model makes the plan and\n"
              "prices it. A model may price some plans only, and then says why.",
          .returns =
              "Returns a traffic document: {'source': 'predicted', 'traffic': [{'tensor', "
              "'boundary',\n'read_bytes', 'written_bytes'}], ...}.",
          .options = plan_options() + shared_options({"seed", "layout"}),
          .models = true,
          .run = [](const Request& r, const Settings&) { return predict(r); }};
}

Verb compare_verb() {
  return {
      .name = "compare",
      .summary = "every model's plan, priced by every model and by the simulator",
      .subject = "W",
      .details =
          "First the verdict: whose plan takes the least time, and whose moves the fewest bytes. "
          "All\n"
          "plans are judged alike: their time by one model, their bytes by exact, between home and "
          "the\n"
          "level, taken as a scratchpad of each block's own. --json has each model's price of each "
          "plan,\nand by tensor why it differs. Of an ONNX file, or with --split: of every layer, "
          "folded "
          "where\nlayers differ in names alone, the operators alone, every model's plan, and the "
          "bound.",
      .returns =
          "Returns {'bound_bytes', 'plans': [{'model', 'tree', 'exact_bytes', "
          "'simulated_bytes', 'gap',\n'prices': [{'by', 'volume_bytes', 'difference_bytes', "
          "'causes'}]}]}.",
      .options = shared_options({"machine", "rewrite"}) +
                 one({.name = "models",
                      .kind = OptionKind::list,
                      .accepted = "names of models with commas between, or all",
                      .standard = "all",
                      .help = "the models to compare, with commas between"}) +
                 one(layers()) + shared_options({"level", "capacity", "seed"}),
      .models = true,
      .run = [](const Request& r, const Settings& s) {
        const auto how = layers_of(r, s);
        return how ? explain_layers(r, *how, s.text("models")) : compare(r, s.text("models"));
      }};
}

const std::vector<Bound<WalkOptions>>& walk_options() {
  static const std::vector<Bound<WalkOptions>> all = {
      {{.name = "trace",
        .kind = OptionKind::path,
        .help = "a recorded trace instead of a plan: din, lackey or --save-trace's"},
       into<&WalkOptions::trace>},
      {{.name = "save-trace",
        .kind = OptionKind::path,
        .help = "what the innermost cache is touched with, recorded"},
       into<&WalkOptions::save_trace>},
      {{.name = "curve", .kind = OptionKind::flag, .help = "misses of LRU caches of every size"},
       into<&WalkOptions::curve>},
      {{.name = "csv",
        .kind = OptionKind::path,
        .help = "of the curve: every size at which anything changes"},
       into<&WalkOptions::csv>},
      {{.name = "attribute",
        .kind = OptionKind::flag,
        .help = "misses by kind, who evicted whom, which loop pays (slow)"},
       into<&WalkOptions::attribute>},
      {{.name = "occupancy",
        .kind = OptionKind::path,
        .help = "lines that each tensor holds over time: .csv, or .json, which plot and "
                "chrome://tracing read"},
       into<&WalkOptions::occupancy>},
      {{.name = "stride",
        .kind = OptionKind::integer,
        .high = INT64_MAX,
        .fallback = "512 to 1024 samples",
        .help = "of --occupancy, in accesses"},
       into<&WalkOptions::stride>},
      {{.name = "computes",
        .kind = OptionKind::integer,
        .high = INT64_MAX,
        .fallback = "all",
        .help =
            "stop after so many tiles are computed: the traffic until then, and what each level "
            "holds"},
       into<&WalkOptions::computes>},
      {{.name = "no-skip",
        .kind = OptionKind::flag,
        .help = "walk iterations that only repeat themselves too (same counts)"},
       [](WalkOptions& o, const Settings& s, std::string_view name) { o.skip = !s.flag(name); }},
      {{.name = "cores",
        .kind = OptionKind::integer,
        .high = 1024,
        .fallback = "1",
        .help = "cores that blocks are dealt to, sharing the outer caches"},
       into<&WalkOptions::cores>},
      {{.name = "schedule",
        .kind = OptionKind::choice,
        .names = {"timed", "lockstep", "serial"},
        .fallback = "timed",
        .help = "GPU: how blocks run"},
       into<&WalkOptions::schedule>},
      {{.name = "blocks-per-sm",
        .kind = OptionKind::integer,
        .high = 64,
        .fallback = "by memory, at most 8",
        .help = "GPU: blocks that an SM holds"},
       into<&WalkOptions::blocks_per_sm>},
      {{.name = "partitions",
        .kind = OptionKind::integer,
        .high = 2,
        .fallback = "1",
        .help = "GPU: of L2: 1, or 2 that copy what the other one is home of"},
       into<&WalkOptions::partitions>},
      {{.name = "jitter",
        .kind = OptionKind::number,
        .most = 0.9,
        .fallback = "0.1",
        .help = "GPU: how far a block's pace is off, at most"},
       into<&WalkOptions::jitter>},
      {{.name = "sample-waves",
        .kind = OptionKind::integer,
        .high = 1'000'000,
        .help = "GPU: approximate: so many waves of blocks stand for all"},
       into<&WalkOptions::sample_waves>},
  };
  return all;
}

Verb simulate_verb() {
  return {
      .name = "simulate",
      .summary = "simulated traffic: every level, every tensor, reads and writes",
      .subject = "PLAN",
      .details =
          std::string(kPlanHelp) +
          "\nWith --trace FILE there is no plan: its accesses walk through the machine's caches.\n"
          "Blocks of a plan are dealt to --cores in turn and run one after the other. --threads "
          "share\n"
          "the sets of the caches: a thread walks the whole plan and touches its own sets.\n"
          "On a GPU blocks run side by side on the SMs and meet in L2, row-major tensors unless "
          "--layout\n"
          "says otherwise; with --cores, --curve, --csv, --attribute, --occupancy or --save-trace "
          "one\n"
          "after the other.",
      .returns =
          "Returns a traffic document as predict() does, with 'source': 'simulated'; or of a "
          "recorded trace\n(subject None, trace=FILE).",
      .options = plan_options() + shared_options({"seed", "layout"}) + specs_of(walk_options()) +
                 shared_options({"threads"}),
      .models = true,
      .run = [](const Request& r, const Settings& s) {
        return simulate(r, read(walk_options(), s));
      }};
}

Verb emit_verb() {
  return {
      .name = "emit",
      .summary = "the generated source and how to build it",
      .subject = "PLAN",
      .details =
          std::string(kPlanHelp) +
          "\nFor cuda: the .cu file, the headers it includes and, where nvcc or NVRTC is there, "
          "what\n"
          "ptxas says of it. For cuda-emulated: also the headers that stand in for CUDA on a CPU.\n"
          "--explain: the thread program that CUDA text is printed from; of other targets nothing.",
      .returns =
          "Returns {'target', 'files', 'build', 'notes', ...}; with explain 'program', its lines.",
      .options =
          plan_options() + shared_options({"target", "threads", "seed"}) +
          Specs{{.name = "explain",
                 .kind = OptionKind::flag,
                 .help = "what the threads of each kernel do, step by step; -o may be left out"},
                out("DIR", "the folder to write")},
      .models = true,
      .targets = true,
      .run = [](const Request& r, const Settings& s) {
        return emit(checked(r, "emit"), s.find_text("out").value_or(""), s.flag("explain"));
      }};
}

Verb calibrate_verb() {
  return {
      .name = "calibrate",
      .summary = "measure this machine into a machine file that -m FILE reads",
      .details =
          "Clock, bandwidth and latency of every cache and of memory (one and all threads), the "
          "rate\n"
          "of multiply-adds, what a block of a product, a packed line, a vector's operation and\n"
          "beginning threads take. Each number says when it was measured and how far its samples "
          "lie\n"
          "apart; numbers that scatter are not written. What is there is kept in FILE.part: run "
          "it\n"
          "again and it goes on.",
      .returns =
          "Returns {'numbers': [{'name', 'seconds', 'spread', 'samples', 'date'}], 'written'}.",
      .options = shared_options({"machine"}) + one(out("FILE", "the machine file to write")),
      .run = [](const Request& r, const Settings& s) {
        Request of = r;
        if (!of.machine && !of.machine_text) of.machine = "host";
        return calibrate(of, s.find_text("out").value_or(""));
      }};
}

const std::vector<Bound<RunOptions>>& run_options() {
  static const std::vector<Bound<RunOptions>> all = {
      {{.name = "seconds",
        .kind = OptionKind::number,
        .most = 3600,
        .fallback = "2 on cpu, 0.25 on cuda",
        .help = "of timing, about"},
       into<&RunOptions::seconds>},
      {{.name = "tune",
        .kind = OptionKind::integer,
        .high = 1000,
        .help =
            "time so many of the plans that the model offers and take the fastest; of a network, "
            "for each kernel; MCFuser's paper: 8"},
       into<&RunOptions::tune>},
      {{.name = "split",
        .value = "HOW|FILE",
        .help =
            "a network's parts, as plan has them (default the whole by --model, on a GPU by our "
            "planner; else, or where that refuses, followed)"},
       into<&RunOptions::split>},
      {{.name = "profile",
        .kind = OptionKind::flag,
        .help = "of a network: a line a kernel: predicted, measured, bytes, share of the roof"},
       into<&RunOptions::profile>},
      {{.name = "trace",
        .kind = OptionKind::path,
        .value = "FILE.json",
        .help = "of a network: when each kernel ran, for Perfetto and chrome://tracing"},
       into<&RunOptions::trace>},
      {{.name = "beside",
        .fallback = "python3",
        .value = "PYTHON",
        .help =
            "of an ONNX file: the Python whose onnxruntime runs the same inputs; none: nothing"},
       into<&RunOptions::beside>},
      {build_only(), into<&RunOptions::build_only>},
      {{.name = "count",
        .kind = OptionKind::flag,
        .help = "run each verified kernel once more for a profiler; not timed"},
       into<&RunOptions::count>}};
  return all;
}

Verb run_verb() {
  return {
      .name = "run",
      .summary = "emit, build, verify against the reference evaluator, time",
      .subject = "PLAN",
      .details =
          std::string(kPlanHelp) +
          "\nA workload with none of these, and an ONNX file, runs as a network: in parts, each "
          "kernel and\nthe whole verified.\nSpeed counts the workload's own operations, "
          "recomputation not. On cpu the peak is\n"
          "measured in the same run, turn by turn with the kernel; on cuda it is the machine\n"
          "file's, and runs are timed inside a CUDA graph. --batch takes no PLAN: each line of "
          "the\n"
          "file is one, {\"workload\": \"mcfuser/G1\", \"model\": \"NAME\", \"stages\": 3}, and "
          "what it\n"
          "does not say is taken from the command line; -o gets each answer as soon as it is "
          "there.",
      .returns =
          "Returns {'verified', 'relative_error', 'seconds_median', 'gflops', 'peak_gflops', ...}.",
      .options = plan_options() + shared_options({"target", "threads", "seed"}) +
                 specs_of(run_options()) + one(batch()) +
                 one(out("FILE", "of --batch: the file that gets each answer, a line each")),
      .models = true,
      .targets = true,
      .run = [](const Request& r, const Settings& s) {
        const RunOptions o = read(run_options(), s);
        checked(r, "run");
        return s.has("batch") ? run_batch(r, o, s.text("batch"), s.find_text("out")) : run(r, o);
      }};
}

const std::vector<Bound<MeasureOptions>>& measure_options() {
  static const std::vector<Bound<MeasureOptions>> all = {
      {{.name = "meter",
        .standard = "cachegrind",
        .value = "NAME",
        .help = "what measures (tilewright meters)"},
       into<&MeasureOptions::meter>},
      {{.name = "cold-only",
        .kind = OptionKind::flag,
        .help = "ncu: count only with caches emptied before every kernel: half the time"},
       into<&MeasureOptions::cold_only>},
      {build_only(), into<&MeasureOptions::build_only>},
      {{.name = "executed",
        .kind = OptionKind::flag,
        .help = "also every address executed, through simulated caches, and the causes"},
       into<&MeasureOptions::executed>}};
  return all;
}

Verb measure_verb() {
  return {
      .name = "measure",
      .summary = "measured traffic of the plan's verified kernel",
      .subject = "PLAN",
      .details =
          std::string(kPlanHelp) +
          "\nEmits, builds and verifies the kernel, then runs it under the meter. --executed "
          "traces it\n"
          "too and says, by cause, why the count differs from the simulation of the plan. "
          "--target\n"
          "cuda --meter ncu: also what models predict; --batch as run's, counted in one process.",
      .returns =
          "Returns a traffic document as predict() does, of one tensor 'total', with 'counters' "
          "and "
          "'notes';\nwith executed=True 'comparison': plan, executed addresses and meter, and "
          "every "
          "difference's cause.\ntarget='cuda', meter='ncu': also 'predicted' and 'counted'; with a "
          "batch {'results': [...]}.",
      .options = plan_options() + shared_options({"target"}) + specs_of(measure_options()) +
                 shared_options({"threads", "seed"}) + one(batch()) +
                 one(out("FILE", "of --batch: the file that gets the answers, a line each")),
      .models = true,
      .targets = true,
      .run = [](const Request& r, const Settings& s) {
        const MeasureOptions o = read(measure_options(), s);
        checked(r, "measure");
        return s.has("batch") ? measure_batch(r, o, s.text("batch"), s.find_text("out"))
                              : measure(r, o);
      }};
}

/// "mlkn,mlnk" is two orders; where a loop's name is longer than a letter, orders are parted by
/// semicolons: "m,oc1,k;m,k,oc1".
std::vector<std::string> split_orders(std::string_view text) {
  const char separator = text.find(';') == std::string_view::npos ? ',' : ';';
  if (text.ends_with(';')) text.remove_suffix(1);
  std::vector<std::string> orders;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    orders.emplace_back(text.substr(begin, end - begin));
    if (orders.back().empty())
      throw InputError({.where = "--orders",
                        .value = std::string(text),
                        .problem = "has an empty order",
                        .accepted = "orders such as mlkn,mlnk"});
    begin = end + 1;
  }
  return orders;
}

const std::vector<Bound<ValidateOptions>>& validate_options() {
  static const std::vector<Bound<ValidateOptions>> all = {
      {{.name = "orders",
        .kind = OptionKind::list,
        .accepted = "orders such as mlkn,mlnk",
        .fallback = "the model's best",
        .value = "mlkn,mlnk",
        .help = "the orders to validate, or all",
        .repeated = true},
       [](ValidateOptions& o, const Settings& s, std::string_view name) {
         for (const std::string& text : s.texts(name))
           for (std::string& order : split_orders(text)) o.orders.push_back(std::move(order));
       }},
      {{.name = "samples",
        .kind = OptionKind::integer,
        .high = 1'000'000,
        .standard = "60",
        .help = "tilings an order"},
       into<&ValidateOptions::samples>},
      {{.name = "truth",
        .standard = "simulator",
        .value = "NAME",
        .help = "what the prediction is held against: simulator or a meter"},
       into<&ValidateOptions::truth>},
      {{.name = "min-r2",
        .kind = OptionKind::number,
        .least = -1e9,
        .most = 1,
        .help = "the least R² about y = x; below it the exit status is 3"},
       into<&ValidateOptions::min_r2>},
      {{.name = "beyond",
        .kind = OptionKind::flag,
        .help = "tilings past half the capacity too, in a block of their own"},
       into<&ValidateOptions::beyond>},
      {{.name = "spill",
        .value = "C",
        .help = "an intermediate that goes home and back",
        .source = "Chimera, Fig. 8 f"},
       into<&ValidateOptions::spill>},
      {{.name = "csv", .kind = OptionKind::path, .help = "the points"},
       into<&ValidateOptions::csv>},
      {{.name = "recorded",
        .kind = OptionKind::path,
        .help = "truth ncu, cuda-events: what experiments/gpu/counters has written"},
       into<&ValidateOptions::recorded>},
  };
  return all;
}

Verb validate_verb() {
  return {
      .name = "validate",
      .summary = "predicted against true traffic over many tilings",
      .subject = "W",
      .details =
          "What the model says goes into the innermost level, partial tiles at their size. "
          "Tilings\n"
          "are drawn in the model's notation, or as a plan's tiles redrawn (W may be a plan),\n"
          "each with equal probability, from those whose memory use is at most half the\n"
          "capacity and whose tiles are at least 4 (--min-tile). --beyond adds a quarter as many\n"
          "past half the capacity, and with smaller tiles. Errors are fractions of the true "
          "bytes.\n"
          "--truth ncu: on a GPU, in a model's own notation, or of a file with --recorded;\n"
          "--truth cuda-events: predicted times against the times in such a file.",
      .returns =
          "Returns {'r2_identity', 'r2_fit', 'mape', 'worst', 'bias', 'points': [{'order', "
          "'tiles',\n'predicted_bytes', 'true_bytes'}], ...}.",
      .options = shared_options({"machine", "rewrite", "model"}) + specs_of(validate_options()) +
                 shared_options({"order", "level", "capacity", "layout", "seed", "threads"}),
      .models = true,
      .run = [](const Request& r, const Settings& s) {
        return validate(r, read(validate_options(), s));
      }};
}

}  // namespace

std::vector<Verb> harness_verbs() {
  std::vector<Verb> all = lists();
  for (const auto make :
       {import_verb, explain_verb, plan_verb, predict_verb, compare_verb, simulate_verb,
        calibrate_verb, emit_verb, run_verb, measure_verb, validate_verb})
    all.push_back(make());
  return all;
}

}  // namespace tilewright::harness
