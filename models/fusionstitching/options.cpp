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
      whole("top-k", 1, 64, "3", "candidate patterns that are kept for each operator"),
      whole("group", 1, 4, "2",
            "consumers of an operator are divided into groups of this size, and the "
            "combinations within a group are tried"),
      with(whole("beam", 1, 64, "8", "width of the beam search over plans"), &OptionSpec::published,
           "3"),
      choice("last-step", {"unite", "select"},
             "the last step of PatternReduction: unite the patterns of both groups, or select one "
             "of them",
             "select"),
      switched("alone", true, "an operator on its own is a candidate beside its patterns"),
      switched("remote", true, "independent patterns may share a kernel (remote stitching)"),
      switched("skip", true, "the beam search may leave out all patterns of an operator"),
      // --seed is of everything random.
      with(switched("xla-seed", true,
                    "the fusions of XLA's rule are candidate patterns, and its whole plan is a "
                    "candidate plan"),
           &OptionSpec::answer_name, "seed"),
      whole("most-operators", 2, 64, "64", "operators in a pattern at most"),
      {.name = "call-us",
       .kind = OptionKind::number,
       .standard = "6",
       .help = "microseconds that a kernel launch costs (T_reduced_calls; the paper does not say)"},
      whole("registers", 1, 255, "16", "registers of a thread that the delta-evaluator assumes"),
      choice("penalty", {"difference", "whole"},
             "the penalty T_penalty: the difference between the pattern's time and that of its "
             "operators alone, or the pattern's whole time"),
      choice("pick", {"latency", "score"},
             "which of the plans that the beam search keeps is taken: that of the least "
             "predicted latency, or that of the best score"),
  };
}

std::vector<OptionSpec> kernel_options() {
  return {
      choice("groupings", {"few", "each"},
             "which sets of expensive operators are tried as sub-roots of a kernel: a few "
             "of them, or each"),
      choice("product", {"ridge", "points"},
             "contractions that are left to a library. ridge: those whose intensity is above the "
             "ridge point of f32; points: those with more iterations than elements"),
      switched("written", true,
               "consider only schedules that a plan file can express, and price them as it "
               "expresses them",
               "no"),
      choice("latency", {"overlap", "published"},
             "the time of a kernel. overlap: the longest of its resources, which work at the same "
             "time; published: the formula L of the paper",
             "published"),
      switched("bandwidth", false,
               "with --latency published: a kernel takes at least the time that DRAM needs for "
               "its compulsory bytes"),
      switched("compose", true,
               "plan the graph a second time with slices and gathers computed in each reader, and "
               "take the faster plan",
               "no"),
      // --schedule is how the simulator runs blocks.
      with(whole("schedule-rank", 1, 1 << 20, "1",
                 "take the Nth fastest schedule of the slowest kernel; 1 is the fastest"),
           &OptionSpec::answer_name, "schedule"),
      {.name = "stitch",
       .kind = OptionKind::assignment,
       .fallback = "none",
       .help = "one of the options above, by the name that it has in answers, such as beam=3 or "
               "schedule=7; recorded files use this form",
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
