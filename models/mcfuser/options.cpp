#include "models/mcfuser/options.h"

#include <algorithm>

namespace tilewright::mcfuser {
namespace {

// WebAssembly's linker needs the whole type of a function whose address is taken, as choice() takes
// these.
static_assert(sizeof(std::optional<Hoist>) > 0 && sizeof(std::optional<Blocks>) > 0 &&
              sizeof(std::optional<Shared>) > 0 && sizeof(std::optional<Stores>) > 0 &&
              sizeof(std::optional<Ratio>) > 0);

void choose_rules(const Settings& settings, bool (&rules)[4]) {
  const std::string& text = settings.text("rules");
  std::fill(std::begin(rules), std::end(rules), false);
  if (text == "none") return;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const bool rule = text[i] >= '1' && text[i] <= '4';
    const bool comma = i + 1 == text.size() || (i + 2 < text.size() && text[i + 1] == ',');
    if (!rule || !comma)
      settings.refuse("rules", "is not accepted", find_option(option_specs(), "rules")->accepted);
    rules[text[i] - '1'] = true;
  }
}

std::vector<OptionSpec> space_options() {
  return {{.name = "expression",
           .accepted = "every loop of the chain once, such as mnlk or ml(k,n)",
           .fallback = "the best",
           .value = "ml(k,n)",
           .help = "plan with this tiling expression, written with the workload's loops",
           .source = "section III-A",
           .in_answers = false},
          {.name = "hoist",
           .kind = OptionKind::choice,
           .names = {"dag", "block", "scope", "none"},
           .standard = "dag",
           .help = "how far loads and stores are moved out of loops. none: they stay beside the "
                   "computation; scope: out to the innermost loop that indexes the tensor; dag: "
                   "the same, after loops of one iteration are removed; block: as dag, but never "
                   "out of a loop over thread blocks",
           .source = "section III-B"},
          {.name = "rule1",
           .kind = OptionKind::choice,
           .names = {"between", "always"},
           .standard = "between",
           .help = "rule 1: which spatial loops become loops over thread blocks. always: all but "
                   "those in a sequence; between: of these not those that lie between two loops "
                   "that stay",
           .source = "section III-C, rule 1"},
          {.name = "rule4",
           .kind = OptionKind::choice,
           .names = {"loaded", "all"},
           .standard = "loaded",
           .help = "rule 4: the tensors whose tiles must fit into shared memory, as in eq. (1): "
                   "those that are loaded, or intermediates and outputs, too",
           .source = "section III-C, rule 4"},
          {.name = "stores",
           .kind = OptionKind::choice,
           .names = {"once", "each"},
           .standard = "once",
           .published = "each",
           .help = "when an output is stored: once, after its reduction, or each time a partial "
                   "result is there",
           .source = "section III-B"},
          {.name = "phi",
           .kind = OptionKind::choice,
           .names = {"written-once", "printed"},
           .standard = "written-once",
           .published = "printed",
           .help = "the ratio of operations to bytes in section II-A: with the output written "
                   "once, which gives the paper's numbers, or with the formula as printed",
           .source = "section II-A"},
          {.name = "rules",
           .accepted = "rules to prune by, such as 1,2,3,4, or none",
           .standard = "1,2,3,4",
           .value = "1,2,3,4",
           .help = "the rules that prune the search space, or none",
           .source = "section III-C"},
          {.name = "slack",
           .kind = OptionKind::number,
           .standard = "1.2",
           .help = "rule 4: candidates may need this many times the shared memory",
           .source = "section III-C, rule 4"},
          {.name = "padding",
           .kind = OptionKind::number,
           .standard = "0.05",
           .help = "rule 3: padding may be at most this fraction of a dimension",
           .source = "section III-C, rule 3"},
          {.name = "tile-step",
           .kind = OptionKind::integer,
           .high = 1'000'000,
           .standard = "16",
           .help = "tile sizes are multiples of this",
           .source = "section III-A"},
          {.name = "edges",
           .kind = OptionKind::choice,
           .names = {"full", "exact"},
           .standard = "full",
           .help = "how tiles that are cut off at the edge of a tensor count in a price: as full "
                   "tiles or at their exact size",
           .in_answers = false}};
}

OptionSpec evolution_option(const char* name, const char* standard, const char* help) {
  return {.name = name,
          .kind = OptionKind::integer,
          .high = 1'000'000,
          .standard = standard,
          .help = help,
          .source = "Algorithm 1",
          .in_answers = false};
}

std::vector<OptionSpec> search_options() {
  std::vector<OptionSpec> specs = {
      {.name = "search",
       .kind = OptionKind::choice,
       .names = {"exhaustive", "evolutionary"},
       .standard = "exhaustive",
       .published = "evolutionary",
       .help = "how the best candidate is found: by pricing all of them, or by the evolutionary "
               "search of Algorithm 1",
       .source = "section IV",
       .in_answers = false},
      evolution_option("population", "512",
                       "evolutionary search: candidates in a generation (N in Algorithm 1)"),
      evolution_option("top", "8",
                       "evolutionary search: candidates that are measured in each generation (n in "
                       "Algorithm 1)"),
      {.name = "epsilon",
       .kind = OptionKind::number,
       .standard = "0.001",
       .help = "evolutionary search: an improvement below this fraction of the best time does not "
               "count",
       .source = "Algorithm 1",
       .in_answers = false},
      evolution_option(
          "patience", "4",
          "evolutionary search: it ends after this many generations without improvement"),
      evolution_option("generations", "200", "evolutionary search: generations at most"),
      {.name = "no-guard",
       .kind = OptionKind::flag,
       .published = "on",
       .help = "evolutionary search: return the best of the last generation instead of the best "
               "of all",
       .source = "Algorithm 1, line 11",
       .in_answers = false}};
  for (OptionSpec& spec : specs)
    if (spec.name == "patience") spec.published = "1";
  return specs;
}

}  // namespace

std::span<const OptionSpec> option_specs() {
  static const std::vector<OptionSpec> specs = [] {
    std::vector<OptionSpec> all = space_options();
    for (OptionSpec& spec : search_options()) all.push_back(std::move(spec));
    return all;
  }();
  return specs;
}

Options options_of(const Settings& settings, bool flat) {
  Options o;
  o.flat = flat;
  o.hoist = settings.choice("hoist", hoist_from_name);
  o.blocks = settings.choice("rule1", blocks_from_name);
  o.shared = settings.choice("rule4", shared_from_name);
  o.stores = settings.choice("stores", stores_from_name);
  o.ratio = settings.choice("phi", ratio_from_name);
  choose_rules(settings, o.rules);
  o.slack = settings.number("slack");
  o.padding = settings.number("padding");
  o.tile_step = settings.integer("tile-step");
  return o;
}

std::optional<Evolution> evolution_of(const Settings& settings, std::uint64_t seed) {
  if (settings.text("search") == "exhaustive") return std::nullopt;
  Evolution e;
  e.population = settings.integer("population");
  e.top = settings.integer("top");
  e.epsilon = settings.number("epsilon");
  e.patience = settings.integer("patience");
  e.generations = settings.integer("generations");
  e.seed = seed;
  e.guard = !settings.flag("no-guard");
  return e;
}

}  // namespace tilewright::mcfuser
