// MCFuser out of a request: its options, its plans, its prices, what explain says of it.
#pragma once

#include "harness/registry.h"
#include "models/mcfuser/options.h"

namespace tilewright::harness {

/// MCFuser's options. Throws InputError naming the option.
Settings mcfuser_settings(const Request& request);
mcfuser::Options mcfuser_options(const Request& request, bool flat = true);
/// They as JSON, with every default filled in, and which space they are of.
nlohmann::ordered_json options_json(const Request& request, const mcfuser::Options& options);

/// The chain and where it runs; a Reason where the model does not apply.
struct Fused {
  mcfuser::Chain chain;
  mcfuser::Device device;
  LevelId level;
};
Result<Fused> fused_of(const Request& request, const Setting& setting);

/// Tiles of --tiles, whole loops where it says nothing, batch loops 1.
mcfuser::Tiles named_tiles(const Request& request, const mcfuser::Chain& c);
/// {"m": 64, ...} of the loops that expressions order.
nlohmann::ordered_json tiles_json(const mcfuser::Chain& c, const mcfuser::Tiles& tiles);
/// memory_seconds, compute_seconds, slowdown, blocks, flops
nlohmann::ordered_json time_json(const mcfuser::Price& price);

/// The plan of --expression and --tiles, or the best tiles where those are not given.
Result<Plan> mcfuser_named_plan(const Request& request, const Setting& setting);
/// The chain's products by their ratio, the space with every rule's count, every expression's
/// class, and of one expression (--expression, else the best) the DAG before and after, and every
/// statement's price.
Answer mcfuser_explain(const Request& request, const Setting& setting);

/// {"generated": ..., "after": {"rule1": ...}, "expressions": {...}, "tuples": {...}}
nlohmann::ordered_json space_json(const mcfuser::Space& space);

ModelRecord mcfuser_record();
/// Chimera's space (nested loops only) under MCFuser's model, as the paper's comparison has it.
ModelRecord mcfuser_chimera_record();

}  // namespace tilewright::harness
