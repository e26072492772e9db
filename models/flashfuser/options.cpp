#include "models/flashfuser/options.h"

namespace tilewright::flashfuser {

std::span<const OptionSpec> option_specs() {
  static const std::vector<OptionSpec> all = {
      {.name = "cluster",
       .kind = OptionKind::choice,
       .names = {"16", "8", "4", "2", "1"},
       .standard = "16",
       .help = "most thread blocks of a cluster; 1: a GPU without clusters",
       .source = "rule 2"},
      {.name = "block-tile",
       .kind = OptionKind::integer,
       .high = 4096,
       .standard = "16",
       .help = "tiles are multiples of it",
       .source = "rule 1"},
      {.name = "busy",
       .kind = OptionKind::choice,
       .names = {"blocks", "machine"},
       .standard = "blocks",
       .published = "machine",
       .help = "whose bandwidth a plan has: of the SMs that its blocks fill, or of all",
       .source = "the cost model does not say"},
      {.name = "dsm-bandwidth",
       .kind = OptionKind::number,
       .standard = "3.27",
       .help = "TB/s between the SMs of clusters, the whole machine",
       .source = "assumed: of the order that microbenchmarks of H100 report; not in the paper"},
      {.name = "shared-width",
       .kind = OptionKind::number,
       .standard = "128",
       .help = "bytes a clock that an SM reads of its shared memory",
       .source = "assumed: 32 banks of 4 bytes; not in the paper"},
      {.name = "register-part",
       .kind = OptionKind::number,
       .most = 1,
       .standard = "0.75",
       .help = "the part of an SM's registers that holds results",
       .source = "assumed; not in the paper"},
  };
  return all;
}

Options options_of(const Settings& s) {
  Options o;
  o.cluster = std::stoll(s.text("cluster"));
  o.tile_step = s.integer("block-tile");
  o.busy = s.text("busy") == "blocks";
  o.dsm = 1e12 * s.number("dsm-bandwidth");
  o.shared = s.number("shared-width");
  o.registers = s.number("register-part");
  return o;
}

}  // namespace tilewright::flashfuser
