// The options of a Request: what several verbs are asked alike.
#include "core/base/error.h"
#include "core/workload/rewrite/rewrite.h"
#include "harness/verb.h"

namespace tilewright::harness {
namespace {

std::string rewrite_names() {
  std::string names;
  for (const Rewrite& r : rewrites()) names += (names.empty() ? "" : ", ") + r.form();
  return names;
}

}  // namespace

const std::vector<Bound<Request>>& request_options() {
  static const std::vector<Bound<Request>> all = {
      {{.name = "machine",
        .value = "MACHINE",
        .help = "a name (tilewright machines lists them), host for this machine, a .yaml file, "
                "scratchpad:32K, or cache:48K/12,1M/16 (bytes/ways of each cache)",
        .letter = "m"},
       into<&Request::machine>},
      {{.name = "rewrite",
        .value = "NAME",
        .help = "rewrite the workload first: " + rewrite_names(),
        .repeated = true},
       into<&Request::rewrites>},
      {{.name = "model", .value = "NAME", .help = "the model; tilewright models lists them"},
       into<&Request::model>},
      {{.name = "tree",
        .value = "TREE",
        .help = "the plan as a loop tree: \"m l ( k ( C.gemm1 ) n ( C.gemm2 ) )\""},
       into<&Request::tree>},
      {{.name = "tiles",
        .kind = OptionKind::pairs,
        .accepted = "m=64,l=64",
        .value = "m=64,l=64",
        .help = "tile sizes by loop, in iterations; a size for a loop that needs none is ignored"},
       into<&Request::tiles>},
      {{.name = "pin",
        .kind = OptionKind::pairs,
        .accepted = "TENSOR=LEVEL or TENSOR=LEVEL@LOOP",
        .value = "C=dram",
        .help = "with --tree: the level that holds a tensor; C=L1@m: from the body of loop m on",
        .repeated = true,
        .key = "pins"},
       into<&Request::pins>},
      {{.name = "flag",
        .kind = OptionKind::pairs,
        .accepted = "TENSOR=sliding or TENSOR=running",
        .value = "C=sliding",
        .help = "with --tree: mark a tensor as sliding or running",
        .repeated = true,
        .key = "flags"},
       into<&Request::flags>},
      {{.name = "level",
        .value = "L2",
        .help = "the memory level to plan for, or all (default: the innermost on chip)"},
       into<&Request::level>},
      {{.name = "capacity",
        .kind = OptionKind::size,
        .accepted = "a size in bytes (4096B, 32K, 1M) or in elements (262144e), above zero",
        .help =
            "capacity to plan for, in place of the level's: bytes (4096B, 32K, 1M; K is 1,024) or "
            "elements of the workload's type (262144e)"},
       into<&Request::capacity>},
      {{.name = "order",
        .kind = OptionKind::list,
        .accepted = "an order of the loops, mlkn or m,oc1,k",
        .value = "mlkn",
        .help = "loop order, outermost first (m,oc1,k where names have several letters)"},
       into<&Request::order>},
      {{.name = "target",
        .fallback = "cpu; plan: none",
        .value = "NAME",
        .help = "what to generate code for; tilewright targets lists them"},
       into<&Request::target>},
      {{.name = "layout",
        .kind = OptionKind::choice,
        .names = {"tiled", "row-major"},
        .fallback = "tiled",
        .help = "how tensors lie in memory"},
       into<&Request::layout>},
      {{.name = "samples",
        .kind = OptionKind::integer,
        .high = 1'000'000,
        .help = "candidates to draw at random from the model's search space"},
       into<&Request::samples>},
      {{.name = "seed",
        .kind = OptionKind::integer,
        .low = 0,
        .high = UINT64_MAX,
        .standard = "1",
        .help = "seed of all random numbers"},
       into<&Request::seed>},
      {{.name = "threads",
        .kind = OptionKind::integer,
        .high = 1024,
        .fallback = "every core; emit, run, measure, plan, predict, simulate: 1",
        .help = "number of threads"},
       into<&Request::threads>},
  };
  return all;
}

std::vector<OptionSpec> shared_options(std::initializer_list<std::string_view> names) {
  static const std::vector<OptionSpec> all = specs_of(request_options());
  std::vector<OptionSpec> some;
  for (const std::string_view name : names) {
    const OptionSpec* spec = find_option(all, name);
    TW_CHECK(spec != nullptr, "an option without a record: " + std::string(name));
    some.push_back(*spec);
  }
  return some;
}

}  // namespace tilewright::harness
