#include "models/flashfuser/options.h"

namespace tilewright::flashfuser {

std::span<const OptionSpec> option_specs() {
  static const std::vector<OptionSpec> all = {
      {.name = "cluster",
       .kind = OptionKind::choice,
       .names = {"16", "8", "4", "2", "1"},
       .standard = "16",
       .help = "thread blocks in a cluster at most; 1 is a GPU without clusters",
       .source = "rule 2"},
      {.name = "block-tile",
       .kind = OptionKind::integer,
       .high = 4096,
       .standard = "16",
       .help = "tile sizes are multiples of this",
       .source = "rule 1"},
      {.name = "busy",
       .kind = OptionKind::choice,
       .names = {"blocks", "machine"},
       .standard = "blocks",
       .published = "machine",
       .help = "the bandwidth that a plan can use: that of the SMs that have a block, or that of "
               "the whole machine",
       .source = "the cost model does not say"},
      {.name = "dsm-bandwidth",
       .kind = OptionKind::number,
       .standard = "3.27",
       .help = "bandwidth of distributed shared memory, of the whole machine, in TB/s",
       .source = "assumed: of the order that microbenchmarks of H100 report; not in the paper"},
      {.name = "shared-width",
       .kind = OptionKind::number,
       .standard = "128",
       .help = "bytes that an SM reads from its shared memory in a clock cycle",
       .source = "assumed: 32 banks of 4 bytes; not in the paper"},
      {.name = "register-part",
       .kind = OptionKind::number,
       .most = 1,
       .standard = "0.75",
       .help = "the fraction of an SM's registers that can hold results",
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
