#include "models/chimera/options.h"

namespace tilewright::chimera {

// WebAssembly's linker needs the whole type of a function whose address is taken, as choice() takes
// these.
static_assert(sizeof(std::optional<Reading>) > 0 && sizeof(std::optional<Edges>) > 0 &&
              sizeof(std::optional<Memory>) > 0 && sizeof(std::optional<Objective>) > 0);

std::span<const OptionSpec> option_specs() {
  static const std::vector<OptionSpec> specs = {
      {.name = "reading",
       .kind = OptionKind::choice,
       .names = {"observed", "literal", "trip-one"},
       .standard = "observed",
       .published = "literal",
       .help = "Algorithm 1's line 11: which loops move a tensor",
       .source = "Algorithm 1, lines 11 and 12"},
      {.name = "edges",
       .kind = OptionKind::choice,
       .names = {"full", "exact"},
       .standard = "full",
       .help = "partial tiles at the edges (validate: exact unless given)",
       .source = "Algorithm 1; Table III has exact"},
      // Memory::held is the model's own device, not a choice.
      {.name = "memory",
       .kind = OptionKind::choice,
       .names = {"creq", "paper", "sum"},
       .standard = "creq",
       .published = "paper",
       .help = "what is held against the capacity",
       .source = "Algorithm 1, line 20"},
      {.name = "objective",
       .kind = OptionKind::choice,
       .names = {"largest", "sum"},
       .standard = "largest",
       .help = "with --level all, of the levels' costs",
       .source = "eq. (3)",
       .in_answers = false},
      {.name = "write-weight",
       .kind = OptionKind::number,
       .standard = "1",
       .help = "what an output's movement counts"},
      {.name = "min-tile",
       .kind = OptionKind::integer,
       .high = 1'000'000'000,
       .standard = "1",
       .help = "the smallest tile tried (validate draws from 4 on unless given)"}};
  return specs;
}

Options options_of(const Settings& settings) {
  Options o;
  o.reading = settings.choice("reading", reading_from_name);
  o.edges = settings.choice("edges", edges_from_name);
  o.memory = settings.choice("memory", memory_from_name);
  o.write_weight = settings.number("write-weight");
  o.min_tile = settings.integer("min-tile");
  return o;
}

Objective objective_of(const Settings& settings) {
  return settings.choice("objective", objective_from_name);
}

}  // namespace tilewright::chimera
