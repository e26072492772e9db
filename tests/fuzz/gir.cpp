// GIR's text, and what is computed from it.
#include "models/powerfusion/gir.h"

#include "models/powerfusion/optimise.h"
#include "tests/fuzz/fuzz.h"

namespace tilewright::fuzz {

void one(std::string_view input) {
  refusable([&] {
    const powerfusion::Gir g = powerfusion::parse_gir(input);
    TW_CHECK(powerfusion::parse_gir(powerfusion::to_text(g)) == g, powerfusion::to_text(g));
    powerfusion::to_json(g);
    powerfusion::dram_bytes(g);
    if (g.ops.size() > 200) return;
    const powerfusion::Gir after = powerfusion::optimised(g);
    TW_CHECK(powerfusion::parse_gir(powerfusion::to_text(after)) == after,
             powerfusion::to_text(after));
  });
}

}  // namespace tilewright::fuzz
