#include "models/fusionstitching/options.h"

namespace tilewright::fusionstitching {
namespace {

// WebAssembly's linker needs the whole type of a function whose address is taken, as choice() takes
// these.
static_assert(sizeof(std::optional<LastStep>) > 0 && sizeof(std::optional<Penalty>) > 0 &&
              sizeof(std::optional<Pick>) > 0 && sizeof(std::optional<Groupings>) > 0 &&
              sizeof(std::optional<Products>) > 0 && sizeof(std::optional<Latency>) > 0);

OptionSpec whole(const char* name, int low, int high, const char* standard, const char* help) {
  return {.name = name,
          .kind = OptionKind::integer,
          .low = low,
          .high = static_cast<std::uint64_t>(high),
          .standard = standard,
          .help = help};
}

OptionSpec choice(const char* name, std::vector<std::string> names, const char* help,
                  const char* published = "") {
  const std::string standard = names.front();
  return {.name = name,
          .kind = OptionKind::choice,
          .names = std::move(names),
          .standard = standard,
          .published = published,
          .help = help};
}

/// yes or no, the default first.
OptionSpec switched(const char* name, bool standard, const char* help, const char* published = "") {
  OptionSpec spec = choice(name, {"yes", "no"}, help, published);
  spec.standard = standard ? "yes" : "no";
  return spec;
}

OptionSpec with(OptionSpec spec, std::string OptionSpec::*field, const char* text) {
  spec.*field = text;
  return spec;
}

std::vector<OptionSpec> search_options() {
  return {
      whole("top-k", 1, 64, "3", "candidate patterns kept a vertex"),
      whole("group", 1, 4, "2", "consumers whose combinations are enumerated"),
      with(whole("beam", 1, 64, "8", "buffer sets"), &OptionSpec::published, "3"),
      choice("last-step", {"unite", "select"},
             "PatternReduction's: unite both groups' patterns, or select from them", "select"),
      switched("alone", true, "a vertex alone competes with its patterns"),
      switched("remote", true, "packing through the virtual vertex"),
      switched("skip", true, "a buffer set may leave a vertex's patterns out"),
      // --seed is of everything random.
      with(switched("xla-seed", true, "XLA's fusions are candidates, and its plan is one"),
           &OptionSpec::answer_name, "seed"),
      whole("most-operators", 2, 64, "64", "operators of a pattern"),
      {.name = "call-us",
       .kind = OptionKind::number,
       .standard = "6",
       .help = "T_reduced_calls: microseconds of a kernel call (not published)"},
      whole("registers", 1, 255, "16", "a thread's, in the delta-evaluator"),
      choice("penalty", {"difference", "whole"},
             "T_penalty: difference to the operators alone, or whole"),
      choice("pick", {"latency", "score"}, "what decides between the beam's plans"),
  };
}

std::vector<OptionSpec> kernel_options() {
  return {
      choice("groupings", {"few", "each"}, "expensive operators as sub-roots: few subsets, or each"),
      choice("product", {"ridge", "points"},
             "contractions that are products: above the ridge point of f32, or of more points than "
             "elements"),
      switched("written", true, "schedules that a plan can say, priced as it says them", "no"),
      choice("latency", {"overlap", "published"},
             "what a kernel takes: resources that work at the same time, or L", "published"),
      switched("bandwidth", false,
               "latency published: a kernel takes at least its compulsory bytes over DRAM's "
               "bandwidth"),
      switched("compose", true,
               "plan also what slices and gathers are of in each reader; the faster is taken", "no"),
      // --schedule is how the simulator runs blocks.
      with(whole("schedule-rank", 1, 1 << 20, "1",
                 "the schedule taken, by its time, of the kernel that takes longest; 1: the best"),
           &OptionSpec::answer_name, "schedule"),
      {.name = "stitch",
       .kind = OptionKind::assignment,
       .fallback = "none",
       .help = "any of these by its name in answers, as recorded files have it: beam=3, schedule=7",
       .repeated = true,
       .in_answers = false}};
}

}  // namespace

std::span<const OptionSpec> option_specs() {
  static const std::vector<OptionSpec> specs = [] {
    std::vector<OptionSpec> all = search_options();
    for (OptionSpec& spec : kernel_options()) all.push_back(std::move(spec));
    return all;
  }();
  return specs;
}

Options options_of(const Settings& s) {
  const auto whole_of = [&s](const char* name) { return static_cast<int>(s.integer(name)); };
  const auto yes = [&s](const char* name) { return s.text(name) == "yes"; };
  Options o;
  o.top_k = whole_of("top-k");
  o.group = whole_of("group");
  o.beam = whole_of("beam");
  o.last_step = s.choice("last-step", last_step_from_name);
  o.alone = yes("alone");
  o.remote = yes("remote");
  o.skip = yes("skip");
  o.seed = yes("xla-seed");
  o.most_operators = whole_of("most-operators");
  o.call_seconds = s.number("call-us") * 1e-6;
  o.registers = whole_of("registers");
  o.penalty = s.choice("penalty", penalty_from_name);
  o.pick = s.choice("pick", pick_from_name);
  o.groupings = s.choice("groupings", groupings_from_name);
  o.products = s.choice("product", products_from_name);
  o.written = yes("written");
  o.latency = s.choice("latency", latency_from_name);
  o.bandwidth = yes("bandwidth");
  o.schedule = whole_of("schedule-rank");
  o.compose = yes("compose");
  return o;
}

}  // namespace tilewright::fusionstitching
