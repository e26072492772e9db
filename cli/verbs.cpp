#include "cli/verbs.h"

#include "cli/tables.h"

namespace tilewright::cli {
namespace {

using harness::Answer;

using Names = std::vector<std::string>;

Names operator+(Names a, const Names& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// What several verbs take.
const Names kPlan = {"--machine", "--rewrite", "--model", "--tree", "--tiles",    "--pin",
                     "--flag",    "--level", "--order", "--capacity"};

constexpr const char* kPlanHelp =
    "A plan is a plan file (plan -o writes one), or a workload with --tree and --tiles, with --order\n"
    "(and --tiles, or tiles solved), or with --model (the model's best).";

std::vector<Verb> make_lists() {
  return {
      {"models", "the cost models, their sources, assumptions and options", "", {"--json"}, "",
       [](const Invocation&) { return harness::list_models(); }, models_table},
      {"machines", "the machines that -m names", "", {"--json"}, "",
       [](const Invocation&) { return harness::list_machines(); }, machines_table},
      {"workloads", "the built-in workloads and their parameters", "", {"--json"}, "",
       [](const Invocation&) { return harness::list_workloads(); }, workloads_table},
      {"targets", "what code can be generated for, and whether it is usable here", "", {"--json"}, "",
       [](const Invocation&) { return harness::list_targets(); }, availability_table},
      {"meters", "what can measure traffic, and whether it is usable here", "", {"--json"}, "",
       [](const Invocation&) { return harness::list_meters(); }, availability_table},
      {"experiments", "the papers' tables and figures that reproduce knows", "", {"--json"}, "",
       [](const Invocation&) { return harness::list_experiments(); }, experiments_table},
  };
}

std::vector<Verb> make_verbs() {
  std::vector<Verb> verbs = make_lists();
  verbs.push_back({"explain",
                   "per tensor: footprint, movement, what decides it; all orders ranked",
                   "W|PLAN",
                   kPlan + Names{"--seed", "--samples", "--resolved", "--curve", "--out", "--json"},
                   "Of a workload: orders (--order, all by default) with --tiles, or with tiles solved\n"
                   "for the level. Of a plan (--resolved): the schedule, every default made visible. --curve: the\n"
                   "least bytes by buffer size, proven and attainable, fused and not (-m is optional then). --model\n"
                   "fusionstitching: the graph's kernels, groups and schemes; -o draws them (.dot, .svg).",
                   [](const Invocation& i) {
                     return i.curve ? harness::explain_curve(i.request)
                                    : harness::explain(i.request, i.resolved, i.out);
                   },
                   explain_table,
                   true});
  verbs.push_back({"plan",
                   "the model's best plan, its traffic and time, its gap to the lower bound",
                   "W",
                   {"--machine", "--rewrite", "--model", "--level", "--capacity", "--target", "--seed", "--out",
                    "--json"},
                   "The model is chimera unless --model says another. --target raises the smallest tile to that\n"
                   "target's micro-kernel. -o writes the plan file.",
                   [](const Invocation& i) { return harness::plan(i.request, i.out); },
                   plan_table,
                   true});
  verbs.push_back({"predict",
                   "one model's price of any plan",
                   "PLAN",
                   kPlan + Names{"--seed", "--json"},
                   "With --tree, --model prices that tree; without it the model makes the plan and\n"
                   "prices it. Chimera prices orders of the loops only; exact and mcfuser price any tree.",
                   [](const Invocation& i) { return harness::predict(i.request); },
                   traffic_table,
                   true});
  verbs.push_back({"compare",
                   "every model's plan, priced by every model and by the simulator",
                   "W",
                   {"--machine", "--rewrite", "--models", "--level", "--capacity", "--seed", "--json"},
                   "Bytes are counted between home and the level, taken as a scratchpad of each block's\n"
                   "own: exact's count, the simulator's walk, and each model's price, with the causes of\n"
                   "every difference by tensor.",
                   [](const Invocation& i) { return harness::compare(i.request, i.models); },
                   compare_table,
                   true});
  verbs.push_back({"simulate",
                   "simulated traffic: every level, every tensor, reads and writes",
                   "PLAN",
                   kPlan + Names{"--seed", "--layout", "--trace", "--save-trace", "--curve", "--csv", "--attribute",
                             "--occupancy", "--stride", "--no-skip", "--cores", "--threads", "--schedule",
                             "--blocks-per-sm", "--partitions", "--jitter", "--sample-waves", "--json"},
                   std::string(kPlanHelp) +
                       "\nWith --trace FILE there is no plan: its accesses walk through the machine's caches.\n"
                       "Blocks of a plan are dealt to --cores in turn and run one after the other. --threads share\n"
                       "the sets of the caches: a thread walks the whole plan and touches its own sets.\n"
                       "On a GPU blocks run side by side on the SMs and meet in L2, row-major tensors unless --layout\n"
                       "says otherwise; with --cores, --curve, --csv, --attribute, --occupancy or --save-trace one\n"
                       "after the other.",
                   [](const Invocation& i) { return harness::simulate(i.request, i.walk); },
                   simulate_table,
                   true});
  verbs.push_back({"emit",
                   "the generated source and how to build it",
                   "PLAN",
                   kPlan + Names{"--target", "--out", "--isa", "--micro-kernel", "--prefetch", "--threads", "--seed",
                                          "--warps", "--stages", "--arch", "--cache", "--json"},
                   std::string(kPlanHelp) +
                       "\nFor cuda: the .cu file, the headers it includes and, where nvcc or NVRTC is there, what\n"
                       "ptxas says of it. For cuda-emulated: also the headers that stand in for CUDA on a CPU.",
                   [](const Invocation& i) { return harness::emit(i.request, i.emit); },
                   emit_table,
                   true});
  verbs.push_back({"run",
                   "emit, build, verify against the reference evaluator, time",
                   "PLAN",
                   kPlan + Names{"--target", "--isa", "--micro-kernel", "--prefetch",
                                          "--threads", "--seed", "--seconds", "--warps", "--stages",
                                          "--arch", "--cache", "--cold", "--build-only", "--count", "--timeline",
                                          "--batch", "--out", "--json"},
                   std::string(kPlanHelp) +
                       "\nSpeed counts the workload's own operations, recomputation not. On cpu the peak is\n"
                       "measured in the same run, turn by turn with the kernel; on cuda it is the machine\n"
                       "file's, and runs are timed inside a CUDA graph. --batch takes no PLAN: each line of the\n"
                       "file is one, {\"workload\": \"mcfuser/G1\", \"model\": \"mcfuser\", \"stages\": 3}, and what it\n"
                       "does not say is taken from the command line; -o gets each answer as soon as it is there.",
                   [](const Invocation& i) {
                     return i.batch ? harness::run_batch(i.request, i.run, *i.batch, i.out)
                                    : harness::run(i.request, i.run);
                   },
                   run_table,
                   true});
  verbs.push_back({"measure",
                   "measured traffic of the plan's verified kernel",
                   "PLAN",
                   kPlan + Names{"--target", "--meter", "--cold-only", "--executed", "--isa", "--micro-kernel",
                                          "--prefetch", "--threads", "--seed", "--warps", "--stages",
                                          "--arch", "--cache", "--build-only", "--batch", "--out",
                                          "--json"},
                   std::string(kPlanHelp) +
                       "\nEmits, builds and verifies the kernel, then runs it under the meter. --executed traces it\n"
                       "too and says, by cause, why the count differs from the simulation of the plan. --target\n"
                       "cuda --meter ncu: also what models predict; --batch as run's, counted in one process.",
                   [](const Invocation& i) {
                     return i.batch ? harness::measure_batch(i.request, i.measure, *i.batch, i.out)
                                    : harness::measure(i.request, i.measure);
                   },
                   measure_table,
                   true});
  verbs.push_back({"validate",
                   "predicted against true traffic over many tilings",
                   "W",
                   Names{"--machine", "--rewrite", "--model", "--orders", "--order", "--samples", "--truth",
                         "--min-r2", "--beyond", "--spill", "--csv", "--recorded", "--level", "--capacity",
                         "--layout", "--seed", "--threads", "--json"},
                   "Chimera with exact edges at the boundary into the innermost level. Tilings are drawn,\n"
                   "each with equal probability, from those whose memory use is at most half the\n"
                   "capacity and whose tiles are at least 4 (--min-tile). --beyond adds a quarter as many\n"
                   "past half the capacity, and with smaller tiles. Errors are fractions of the true bytes.\n"
                   "--truth ncu: on a GPU, in MCFuser's expressions, or of a file with --recorded;\n"
                   "--truth cuda-events: MCFuser's estimates against the times in such a file.",
                   [](const Invocation& i) { return harness::validate(i.request, i.validate); },
                   validate_table,
                   true});
  verbs.push_back({"reproduce",
                   "a paper's table or figure: our numbers beside the paper's",
                   "ID",
                   {"--all", "--out", "--samples", "--size", "--data", "--threads", "--json"},
                   "Writes report.md, result.json, points.csv and figure.svg into the folder (default results/ID).\n"
                   "What takes long is kept point by point in journal.jsonl: killed, it goes on from there. Of a\n"
                   "paper (chimera), a list with commas, or --all: each into results/ID with results/index.md, those\n"
                   "that are finished left as they are, those that cannot be run here with the reason.\n"
                   "--size and --data are for validation/polybench, which reads others' counts from a folder\n"
                   "(../shared/data/polybench-papi); --data also for what was recorded on a GPU\n"
                   "(experiments/results). Where there is none the exit status is 3.",
                   [](const Invocation& i) { return harness::reproduce(i.request, i.reproduce); },
                   reproduce_table});
  return verbs;
}

}  // namespace

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> all = make_verbs();
  return all;
}

const Verb* find_verb(std::string_view name) {
  for (const Verb& v : verbs())
    if (v.name == name) return &v;
  return nullptr;
}

}  // namespace tilewright::cli
