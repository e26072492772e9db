// MCFuser as a model: what the registry holds, and what its parts share. The paper's experiments ask
// here for what the record does not say.
#pragma once

#include <map>
#include <string>

#include "models/mcfuser/options.h"
#include "models/model.h"

namespace tilewright::mcfuser {

/// The record.
Model model();
/// Chimera's space (nested loops only) under MCFuser's model, as the paper's comparison has it.
Model nested_model();

/// The chain and where it runs; a Reason where the model does not apply.
struct Fused {
  Chain chain;
  Device device;
  LevelId level;
};
Result<Fused> fused_of(const Question& q);

/// The settings as JSON, and which rules and space they are of.
nlohmann::ordered_json options_json(const Settings& settings, const Options& options);
/// Sizes by loop, whole loops where it says nothing, batch loops 1.
Tiles named_tiles(const Chain& c, const std::map<std::string, std::int64_t>& named);
/// {"m": 64, ...} of the loops that expressions order.
nlohmann::ordered_json tiles_json(const Chain& c, const Tiles& tiles);
/// memory_seconds, compute_seconds, slowdown, blocks, flops
nlohmann::ordered_json time_json(const Price& price);
/// {"generated": ..., "after": {"rule1": ...}, "expressions": {...}, "tuples": {...}}
nlohmann::ordered_json space_json(const Space& space);

/// The chain's products by their ratio, the space with every rule's count, every expression's class,
/// and of one expression (the one that is asked about, else the best) the DAG before and after, and
/// every statement's price.
Explained explain(const Question& q, const ExplainAsked& asked, const Settings& settings,
                  bool flat);

}  // namespace tilewright::mcfuser
