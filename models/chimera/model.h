// Chimera as a model: what the registry holds, and what its parts share. The paper's experiments ask
// here for what the record does not say.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "models/chimera/levels.h"
#include "models/chimera/options.h"
#include "models/chimera/paths.h"
#include "models/model.h"

namespace tilewright::chimera {

/// The record.
Model model();

/// The options, and for a target's micro-kernel no tile of a contraction's loop smaller than its rows,
/// its columns, and one vector of the reduction (convention 4). --min-tile overrides.
Options options_for(const Question& q, const Settings& settings);
/// The settings as JSON, with the edges that `used` has: a verb or a target may have other ones as its
/// default.
nlohmann::ordered_json options_json(const Settings& settings, const Options& used);
/// What the level may hold, in elements of the workload's type.
Elements room_of(const Question& q, LevelId level);
/// {"m": 64, ...} of the loops that the tree of this order cuts.
nlohmann::ordered_json tiles_json(const Workload& w, const Order& order, const Tiles& tiles);
/// Intermediates by name. Throws InputError where one is none.
std::set<TensorId> intermediates_named(const Workload& w, std::span<const std::string> names);

/// What Algorithm 1 prices: an order, tiles, and what is spilled.
struct OrderedTiling {
  Order order;
  Tiles tiles;
  Options options;
  LevelId level;
  bool whole = true;  ///< false: only its loops and computes are the plan's, not where it loads
};
/// The order and tiles whose tree a plan's tree is. A plan has an order where some order's loop tree
/// with the same steps resolves to the same schedule (loops of one trip aside) or, where none does,
/// has the same loops around its computes (loads, stores and bindings aside); of several such orders,
/// the one that the model prices least. A Reason where no order describes it.
Result<OrderedTiling> ordered_tiling(const Question& q, const Plan& plan, const Settings& settings);

// ---- Several levels ------------------------------------------------------------------------------

/// Whether every on-chip level of a machine that has several is asked for.
bool over_levels(const Question& q);
/// Throws InputError where words say an order or tiles: over several levels each has its own.
void refuse_of_one_level(const Words& words);
/// What a plan over several levels truly moves: `exact` with every level a scratchpad.
struct OverLevels {
  std::map<std::string, Bytes> moved;  ///< by boundary, read and written
  std::map<std::string, Operations> operations;
  std::int64_t recomputed = 0;  ///< operations beyond each point once
};
/// A Reason where the plan is illegal there.
Result<OverLevels> exact_over_levels(const Workload& w, const Machine& m, const Plan& plan);
Result<Proposal> propose_levels(const Question& q, const Settings& settings);
Result<tilewright::Price> price_levels(const Question& q, const Plan& plan, const Settings& settings);

// ---- An NPU's paths ------------------------------------------------------------------------------

/// Whether the plan is for the paths of an NPU's core.
bool over_paths(const Question& q);
Result<Proposal> propose_paths(const Question& q);
Result<tilewright::Price> price_paths(const Question& q, const Plan& plan);
/// Random plans of blocks for every path that fit and that the space takes, each with Algorithm 1's
/// price of the order in which its blocks come.
Result<std::vector<DrawnPlan>> draw_paths(const Question& q, const DrawSpace& space);

Explained explain(const Question& q, const ExplainAsked& asked, const Settings& settings);

}  // namespace tilewright::chimera
