// The verbs' records: what each is asked, and the function that answers. Those of kernels are in
// kernel_verbs.cpp.
#include "harness/verbs.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/workload/import/onnx_import.h"
#include "harness/ask.h"
#include "harness/layers.h"
#include "harness/registry.h"
#include "harness/split.h"
#include "harness/verb_records.h"

namespace tilewright::harness {
namespace {

OptionSpec layers() {
  return {.name = "split",
          .kind = OptionKind::choice,
          .names = {"each", "contractions", "followed"},
          .fallback = "of an ONNX file followed",
          .help = "how to cut a network into layers, as in plan --split; each layer is priced"};
}

OptionSpec drawing() {
  OptionSpec spec = out(Writes::file, "the drawing of the graph to write: .dot, .svg");
  spec.endings = {".dot", ".gv", ".svg", ""};
  return spec;
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

/// Of a verb that lists, or shows one as a file.
std::vector<OptionSpec> file_options(const char* help) {
  return {{.name = "yaml",
           .kind = OptionKind::flag,
           .help = "the one named, as a file; what is printed of it anyway"},
          out(Writes::file, help)};
}

/// A list is no file.
Answer listed(const Settings& s, Answer (*list)()) {
  if (s.flag("yaml") || s.find_text("out"))
    throw InputError({.where = s.flag("yaml") ? "--yaml" : "--out",
                      .problem = "is of one file, and none is named",
                      .accepted = "a name before it: without any, all are listed"});
  return list();
}

Verb workloads_verb() {
  return {.name = "workloads",
          .summary = "the built-in workloads and their parameters, or one as a file to start from",
          .subject = "[W]",
          .details =
              "Without W it lists them. With W it prints that workload as a file, after --rewrite "
              "if given.",
          .returns =
              "Returns {'workloads': [...]}, or {'workload', 'file', 'content'}: the "
              "file's text, and what it says.",
          .options = shared_options({"rewrite"}) + file_options("the workload file to write"),
          .run = [](const Request& r, const Settings& s) {
            return r.subject.empty() && !r.subject_text ? listed(s, list_workloads)
                                                        : show_workload(r, s.find_text("out"));
          }};
}

Verb machines_verb() {
  return {.name = "machines",
          .summary = "the machines that -m names, or one as a file to start from",
          .subject = "[M]",
          .details = "Without M it lists them. With M it prints that machine as a file.",
          .returns =
              "Returns {'machines': [...], 'made': [...]}, or {'machine', 'file', "
              "'content'}: the file's text, and what it says.",
          .options = file_options("the machine file to write"),
          .run = [](const Request& r, const Settings& s) {
            return r.subject.empty() ? listed(s, list_machines)
                                     : show_machine(r, s.find_text("out"));
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
        .help = "sizes of symbolic dimensions; they may also follow the file's name, "
                "model.onnx:batch=1",
        .repeated = true},
       into<&ImportOptions::bind>},
      {{.name = "skip",
        .kind = OptionKind::flag,
        .help = "leave out unsupported nodes: their results become inputs, and what only they read "
                "becomes an output"},
       into<&ImportOptions::skip>},
      {out(Writes::file, "the workload file to write"), into<&ImportOptions::out>}};
  return all;
}

Verb import_verb() {
  return {
      .name = "import",
      .summary = "an ONNX model as a workload file",
      .subject = "W",
      .details =
          "Every verb that takes a workload also takes an .onnx file. This one shows the workload "
          "that\n"
          "it becomes. Weights stay in the file: the workload refers to them, and runs read them "
          "there.",
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
          "For a workload it shows which model proposed each part. For each tensor between "
          "operators it shows\n"
          "whether they share a kernel, and what the other choice would cost. With --order or "
          "--model " +
          standard_model().name +
          "\n"
          "it ranks loop orders (all by default; best: the plan's alone), with --tiles or the "
          "best\n"
          "tiles for the level. --resolved prints the plan with every default made visible.\n"
          "--curve prints the least bytes by buffer size, proven and attainable, fused and "
          "unfused; it\n"
          "needs no -m. With a model that fuses graphs it shows kernels and their groups; -o draws "
          "them\n"
          "(.dot, .svg). For an ONNX file, or with --split, it shows what fusion gains, layer by "
          "layer.",
      .returns =
          "Returns {'edges': [{'tensor', 'from', 'to', 'fused', 'why', ...}], ...}, or, of orders, "
          "{'orders':\n[{'order', 'legal', 'reason', 'volume_elements', 'memory_elements', "
          "'tensors'}]}.",
      .options = plan_options() + shared_options({"seed", "samples"}) +
                 Specs{{.name = "resolved",
                        .kind = OptionKind::flag,
                        .help = "print the plan with every default made visible"},
                       {.name = "curve",
                        .kind = OptionKind::flag,
                        .help = "the least bytes by buffer size, fused and unfused"},
                       layers(),
                       drawing()},
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
                 " unless --model names another. With --target no tile is smaller than\n"
                 "that target's micro-kernel. -o writes the plan file.",
      .returns =
          "Returns {'plan', 'volume_bytes', 'bound_bytes', 'gap', ...}, which simulate() takes.",
      .options =
          shared_options(
              {"machine", "rewrite", "model", "level", "capacity", "target", "threads", "seed"}) +
          Specs{
              {.name = "part",
               .value = "'OP OP'",
               .help =
                   "plan these operators alone; tensors that cross the cut are inputs and outputs"},
              {.name = "split",
               .value = "HOW|FILE",
               .help = "plan in parts and join the plans: each (every operator alone), "
                       "contractions (pairs of products with what lies between; the rest apart), "
                       "followed (an operator with the element-wise operators behind it; attention "
                       "whole), "
                       "'OP OP=MODEL; OP=MODEL' (these parts by these models, other operators "
                       "alone), or a YAML file of parts; --model may name several models, with "
                       "commas"},
              out(Writes::file, "the plan file to write")},
      .models = true,
      .run = [](const Request& asked, const Settings& s) {
        const auto part = s.find_text("part");
        const Request r = part ? of_part(asked, *part) : asked;
        const auto split = s.find_text("split");
        return split ? plan_in_parts(r, *split, s.find_text("out")) : plan(r, s.find_text("out"));
      }};
}

Verb predict_verb() {
  return {
      .name = "predict",
      .summary = "one model's price of any plan",
      .subject = "PLAN",
      .details =
          "With --tree, --model prices that tree. Without it the model makes the plan and prices\n"
          "it. A model that cannot price a plan gives the reason. With --target the model "
          "tilewright\n"
          "takes the seconds from that target's own time model, where it has one.",
      .returns =
          "Returns a traffic document: {'source': 'predicted', 'traffic': [{'tensor', "
          "'boundary',\n'read_bytes', 'written_bytes'}], ...}.",
      .options = plan_options() + shared_options({"target", "threads", "seed", "layout"}),
      .models = true,
      .run = [](const Request& r, const Settings&) { return predict(r); }};
}

Verb compare_verb() {
  return {
      .name = "compare",
      .summary = "every model's plan, priced by every model and by the simulator",
      .subject = "W",
      .details =
          "The verdict comes first: whose plan takes the least time, and whose moves the fewest "
          "bytes. All\n"
          "plans are judged alike. One model gives their times; exact counts their bytes between "
          "home and the\n"
          "level, as if each block had the level to itself. --json has each model's price of each "
          "plan, and\nwhy it differs, tensor by tensor. Of an ONNX file, or with --split, there is "
          "a "
          "row for every layer:\nthe operators unfused, every model's plan, and the bound.",
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
        .help = "simulate a recorded trace in place of a plan: din, lackey, or from --save-trace"},
       into<&WalkOptions::trace>},
      {{.name = "save-trace",
        .kind = OptionKind::path,
        .writes = Writes::file,
        .help = "record the accesses to the innermost cache"},
       into<&WalkOptions::save_trace>},
      {{.name = "curve", .kind = OptionKind::flag, .help = "misses by size of an LRU cache"},
       into<&WalkOptions::curve>},
      {{.name = "csv",
        .kind = OptionKind::path,
        .writes = Writes::file,
        .help = "with --curve: write every size at which the misses change"},
       into<&WalkOptions::csv>},
      {{.name = "attribute",
        .kind = OptionKind::flag,
        .help = "misses by kind, which tensor evicted which, and in which loop (slow)"},
       into<&WalkOptions::attribute>},
      {{.name = "occupancy",
        .kind = OptionKind::path,
        .writes = Writes::file,
        .endings = {".csv", ".json"},
        .help = "write the lines that each tensor holds over time: .csv, or .json for plot and "
                "chrome://tracing"},
       into<&WalkOptions::occupancy>},
      {{.name = "stride",
        .kind = OptionKind::integer,
        .high = INT64_MAX,
        .fallback = "512 to 1024 samples",
        .help = "with --occupancy: accesses between two samples"},
       into<&WalkOptions::stride>},
      {{.name = "computes",
        .kind = OptionKind::integer,
        .high = INT64_MAX,
        .fallback = "all",
        .help = "stop after N computes: the traffic until then, and what each level holds"},
       into<&WalkOptions::computes>},
      {{.name = "no-skip",
        .kind = OptionKind::flag,
        .help = "also walk iterations that only repeat others (slower, same counts)"},
       [](WalkOptions& o, const Settings& s, std::string_view name) { o.skip = !s.flag(name); }},
      {{.name = "cores",
        .kind = OptionKind::integer,
        .high = 1024,
        .fallback = "1",
        .help = "cores that run the blocks in turn; they share the outer caches"},
       into<&WalkOptions::cores>},
      {{.name = "schedule",
        .kind = OptionKind::choice,
        .names = {"timed", "lockstep", "serial"},
        .fallback = "timed",
        .help = "GPU: how blocks advance"},
       into<&WalkOptions::schedule>},
      {{.name = "blocks-per-sm",
        .kind = OptionKind::integer,
        .high = 64,
        .fallback = "by memory, at most 8",
        .help = "GPU: blocks resident on an SM"},
       into<&WalkOptions::blocks_per_sm>},
      {{.name = "partitions",
        .kind = OptionKind::integer,
        .high = 2,
        .fallback = "1",
        .help = "GPU: partitions of L2; with 2, each caches lines of the other"},
       into<&WalkOptions::partitions>},
      {{.name = "jitter",
        .kind = OptionKind::number,
        .most = 0.9,
        .fallback = "0.1",
        .help = "GPU: largest relative deviation of a block's pace"},
       into<&WalkOptions::jitter>},
      {{.name = "sample-waves",
        .kind = OptionKind::integer,
        .high = 1'000'000,
        .help = "GPU: simulate only N waves of blocks and scale up (approximate)"},
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
          "\nWith --trace FILE there is no plan: the trace's accesses go through the machine's "
          "caches.\n"
          "Blocks of a plan are dealt to --cores in turn and run one after the other. --threads "
          "share the\n"
          "sets of the caches: each walks the whole plan and simulates its own sets. On a GPU "
          "blocks "
          "run\n"
          "side by side on the SMs and share L2, with row-major tensors unless --layout says "
          "otherwise;\n"
          "with --cores, --curve, --csv, --attribute, --occupancy or --save-trace they run one "
          "after "
          "the other.",
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
        .help = "tilings drawn for each order"},
       into<&ValidateOptions::samples>},
      {{.name = "truth",
        .standard = "simulator",
        .value = "NAME",
        .help = "what predictions are compared with: simulator, or a meter"},
       into<&ValidateOptions::truth>},
      {{.name = "min-r2",
        .kind = OptionKind::number,
        .least = -1e9,
        .most = 1,
        .help = "the least R² about y = x that passes; below it the exit status is 3"},
       into<&ValidateOptions::min_r2>},
      {{.name = "beyond",
        .kind = OptionKind::flag,
        .help = "also draw tilings past half the capacity; they are reported apart"},
       into<&ValidateOptions::beyond>},
      {{.name = "spill",
        .value = "C",
        .help = "an intermediate that is written home and read back",
        .source = "Chimera, Fig. 8 f"},
       into<&ValidateOptions::spill>},
      {{.name = "csv",
        .kind = OptionKind::path,
        .writes = Writes::file,
        .help = "write the points"},
       into<&ValidateOptions::csv>},
      {{.name = "recorded",
        .kind = OptionKind::path,
        .help = "with --truth ncu or cuda-events: a recording by experiments/gpu/counters"},
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
          "Compares the bytes into the innermost level that a model predicts, partial tiles at "
          "their "
          "true\n"
          "size, with the true bytes. Tilings are drawn at random, in the model's notation or as "
          "new "
          "tiles of\n"
          "a plan (W may be a plan). All tilings whose memory use is at most half the capacity and "
          "whose\n"
          "tiles are at least 4 (--min-tile) are equally likely. --beyond adds a quarter as many "
          "past "
          "half\n"
          "the capacity and with smaller tiles. Errors are fractions of the true bytes. --truth "
          "ncu "
          "counts on\n"
          "a GPU, or reads a recording by --recorded; --truth cuda-events compares predicted times "
          "with\nrecorded ones.",
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
       {import_verb, explain_verb, plan_verb, predict_verb, compare_verb, simulate_verb})
    all.push_back(make());
  for (Verb& verb : kernel_verbs()) all.push_back(std::move(verb));
  all.push_back(validate_verb());
  return all;
}

}  // namespace tilewright::harness
