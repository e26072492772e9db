// Rewriting of GIR to a fixed point (section 5, algorithm 1).
#pragma once

#include <string>
#include <vector>

#include "models/powerfusion/scope.h"

namespace tilewright::powerfusion {

/// What the paper leaves open about rewriting.
struct Rewriting {
  ScopeTest scope = ScopeTest::units;
  bool swap = true;  ///< element-wise gOperators go behind moves and syncs
};

/// One round: what was done, and the GIR after it.
struct Rewrite {
  std::string rule;               ///< sync, swap, merge
  std::vector<std::string> done;  ///< "block: t", "s3 behind s7", "null: x"
  Gir after;
};

/// Algorithm 1: syncs take the least scope and their slices the highest tier that it allows;
/// element-wise gOperators with one input go behind the moves and syncs that follow where those
/// cross the device; moves that follow one another become one, or none where their patterns are
/// equal; moves that read the same become one. Until nothing is merged. Equal to its own result.
/// `steps`, where it is not null, takes each round that changed something. Cost: rounds times
/// gOperators squared, at worst.
Gir optimised(Gir g, const Rewriting& how = {}, std::vector<Rewrite>* steps = nullptr);

/// Bytes that its moves read from DRAM and write there, an element once a gOperator.
double dram_bytes(const Gir& g);
/// The same if each tensor that comes from DRAM or leaves crossed once: what no rewriting goes
/// below.
double compulsory_bytes(const Gir& g);
/// Its syncs of a scope.
int syncs_of(const Gir& g, Scope s);

}  // namespace tilewright::powerfusion
