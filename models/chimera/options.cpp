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
       .help = "which loops fetch a tensor's tiles again (Algorithm 1, line 11). literal: those "
               "of its operator, as printed; observed: those of the fused nest, as the paper's "
               "text and figures have it; trip-one: as observed, but a loop of one iteration "
               "never ends reuse",
       .source = "Algorithm 1, lines 11 and 12"},
      {.name = "edges",
       .kind = OptionKind::choice,
       .names = {"full", "exact"},
       .standard = "full",
       .help = "how tiles that are cut off at the edge of a tensor count: as full tiles or at "
               "their exact size (validate: exact unless given)",
       .source = "Algorithm 1; Table III has exact"},
      // Memory::held is the model's own device, not a choice.
      {.name = "memory",
       .kind = OptionKind::choice,
       .names = {"creq", "paper", "sum"},
       .standard = "creq",
       .published = "paper",
       .help = "what must fit into the level. paper: the tiles of the largest operator; creq: the "
               "same, with the whole buffer that an intermediate tensor needs; sum: the tiles of "
               "all operators at once",
       .source = "Algorithm 1, line 20"},
      {.name = "objective",
       .kind = OptionKind::choice,
       .names = {"largest", "sum"},
       .standard = "largest",
       .help = "with --level all, what a plan costs: the time of its slowest level, or the sum "
               "over all levels",
       .source = "eq. (3)",
       .in_answers = false},
      {.name = "write-weight",
       .kind = OptionKind::number,
       .standard = "1",
       .help = "a factor on the bytes of outputs, for memories that are slower to write than to "
               "read"},
      {.name = "min-tile",
       .kind = OptionKind::integer,
       .high = 1'000'000'000,
       .standard = "1",
       .help = "the smallest tile size that is tried (validate: 4 unless given)"}};
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
