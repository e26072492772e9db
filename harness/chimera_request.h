// Chimera's options and orders out of a request: what explain, plan, predict and validate share.
#pragma once

#include <optional>
#include <string>

#include "harness/request.h"
#include "models/chimera/options.h"

namespace tilewright::harness {

/// Chimera's options. Throws InputError naming the option.
Settings chimera_settings(const Request& request);
chimera::Options chimera_options(const Request& request);
/// The same, and with --target no tile of a contraction's loop smaller than that target's micro-kernel
/// (convention 4): its rows, its columns, and one vector of the reduction. --min-tile overrides.
chimera::Options chimera_options(const Request& request, const Workload& w);
/// They as JSON, with every default filled in, and with the edges that `used` has: a verb or a target
/// may have other ones as its default.
nlohmann::ordered_json options_json(const Request& request, const chimera::Options& used);

/// An intermediate of the workload by name. Throws InputError where it is none.
TensorId intermediate_named(const Workload& w, const std::string& name, const char* option);

/// --capacity or the level's, in elements of the workload's type.
Elements capacity_elements(const Request& request, const Setting& setting, LevelId level);

/// {"m": 64, ...} of the loops that the tree of this order cuts.
nlohmann::ordered_json tiles_json(const Workload& w, const chimera::Order& order,
                                  const chimera::Tiles& tiles);

/// What Algorithm 1 prices: an order, tiles, and what is spilled.
struct OrderedTiling {
  chimera::Order order;
  chimera::Tiles tiles;
  chimera::Options options;
  LevelId level;
  bool whole = true;  ///< false: only its loops and computes are the plan's, not where it loads
};

/// The order and tiles that the request names by --order, or those whose tree a plan's tree is. A plan
/// has an order where some order's loop tree with the same steps resolves to the same schedule (loops
/// of one trip aside) or, where none does, has the same loops around its computes (loads, stores and
/// bindings aside); of several such orders, the one that the model prices least. A Reason where no
/// order describes it: Algorithm 1 prices orders only.
Result<OrderedTiling> ordered_tiling(const Request& request, const Setting& setting,
                                     const Plan& plan);
/// The tiling that --order (a single one) and --tiles name; solved tiles where --tiles is not given.
Result<OrderedTiling> named_tiling(const Request& request, const Setting& setting);

}  // namespace tilewright::harness
