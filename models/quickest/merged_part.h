// Parts of a workload that are planned over fewer loops. Internal header of the folder.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/plan.h"
#include "core/workload/workload.h"

namespace tilewright::quickest {

/// A part where loops that always go together are one, and its plans as plans of the part: for
/// targets that run those as if loops were merged.
class MergedPart {
 public:
  /// Nothing where no loops go together.
  static std::optional<MergedPart> of(const Workload& part);
  const std::shared_ptr<const Workload>& workload() const { return workload_; }
  /// A tile of a merged loop becomes one of its loops: inner ones whole, of the next as many as it
  /// has room for, outer ones one at a time; each loop has a node, so that its tile may be searched
  /// further. Nothing where a tensor's home is a merged loop's body.
  std::optional<Plan> split(const Plan& plan) const;

 private:
  std::vector<std::int64_t> steps(const std::vector<Loop>& loops, std::int64_t step) const;
  Node split(const Node& n, const std::map<std::string, std::int64_t>& tiles,
             std::map<std::string, std::int64_t> around) const;

  std::shared_ptr<const Workload> workload_;
  std::map<std::string, std::vector<Loop>> merged_;  ///< by name: what it was, outermost first
};

}  // namespace tilewright::quickest
