// Index notation, tree notation, and the small languages of options: tiles, sizes, machines in
// place.
#include "core/workload/notation.h"

#include <string>

#include "core/base/units.h"
#include "core/machine/machine.h"
#include "core/plan/file.h"
#include "core/plan/plan.h"
#include "tests/fuzz/fuzz.h"

namespace tilewright::fuzz {
namespace {

void index_notation(std::string_view input) {
  WorkloadSpec spec{.name = "f", .loops = {{"m", 6}, {"n", 5}, {"k", 4}, {"h", 3}, {"r", 2}}};
  NotationContext context{.spec = spec, .inferred = {}};
  // One operator a line, as a workload file has one an entry.
  for (std::size_t begin = 0; begin < input.size();) {
    const std::size_t end = std::min(input.find('\n', begin), input.size());
    parse_operator(context, input.substr(begin, end - begin), "f");
    begin = end + 1;
  }
  infer_shapes(context);
  const Workload w = Workload::create(spec);
  use(w);
  TW_CHECK(workload_from_yaml(to_yaml(w), "again") == w, to_yaml(w));
}

}  // namespace

void one(std::string_view input) {
  refusable([&] { index_notation(input); });
  refusable([&] {
    const Node tree = parse_tree(input);
    TW_CHECK(parse_tree(to_text(tree)) == tree, to_text(tree));
  });
  refusable([&] { parse_tiles(input); });
  refusable([&] { parse_synthetic_machine(input); });
  parse_bytes(input);
}

}  // namespace tilewright::fuzz
