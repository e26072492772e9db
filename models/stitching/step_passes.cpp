#include "models/stitching/step_passes.h"

#include <algorithm>
#include <set>

#include "core/lowering/gpu/unrolled.h"

namespace tilewright::stitching {

using lowering::Step;

/// Whether a load stands beside the computes that read it: the plan does not say where it is.
bool StepPasses::beside_readers(NodeId load) const {
  const ScheduleNode& n = k_.node(load);
  if (!n.parent.valid()) return false;
  return std::ranges::all_of(n.reads_below, [&](const ReadRef& r) {
    return std::ranges::any_of(k_.node(n.parent).children, [&](NodeId c) {
      return k_.node(c).kind == NodeKind::compute && k_.node(c).op == r.op;
    });
  });
}

/// Whether loops hold nothing but other loops and, innermost, computes.
bool StepPasses::is_leaf(NodeId id) const {
  const ScheduleNode& n = k_.node(id);
  switch (n.kind) {
    case NodeKind::compute:
    case NodeKind::store:
      return true;
    case NodeKind::load:
      return beside_readers(id);
    case NodeKind::loop:
      return n.binding != Binding::grid &&
             (n.children.size() == 1 ? is_leaf(n.children.front())
                                     : std::ranges::all_of(n.children, [&](NodeId c) {
                                         return k_.node(c).kind != NodeKind::loop && is_leaf(c);
                                       }));
    case NodeKind::sequence:
      return n.children.size() == 1 ? is_leaf(n.children.front())
                                    : std::ranges::all_of(n.children, [&](NodeId c) {
                                        return k_.node(c).kind != NodeKind::loop && is_leaf(c);
                                      });
    default:
      return false;
  }
}

NodeId StepPasses::root_of(const Step& s) const {
  if (!s.node.valid() || s.kind == Step::Kind::stage || s.kind == Step::Kind::blocks ||
      s.kind == Step::Kind::hold)
    return {};
  const ScheduleNode& n = k_.node(s.node);
  if (n.kind == NodeKind::pack) return {};
  if (n.kind == NodeKind::load &&
      (p_.value(s.values.front()).anchor != s.node || !beside_readers(s.node)))
    return {};
  const auto known = roots_.find(s.node);
  if (known != roots_.end()) return known->second;
  NodeId root;
  for (NodeId at = s.node; at.valid() && (at == s.node || is_leaf(at)); at = k_.node(at).parent) {
    const NodeKind kind = k_.node(at).kind;
    if (kind == NodeKind::compute || kind == NodeKind::loop) root = at;
    if (kind == NodeKind::loop && !is_leaf(at)) root = {};
  }
  if (n.kind == NodeKind::load && !root.valid())  // with the compute that reads it
    for (NodeId c : k_.node(n.parent).children)
      if (k_.node(c).kind == NodeKind::compute && k_.node(c).op == n.reads_below.front().op)
        root = c;
  return roots_[s.node] = root;
}

bool StepPasses::costless(const Step& s) {
  return s.kind == Step::Kind::declare || s.kind == Step::Kind::spread;
}

void StepPasses::collect(const Step& s, double times, double waits, double together,
                         StepPass& pass) const {
  if (s.kind == Step::Kind::compute)
    pass.turns = std::max(pass.turns, times), pass.waits = std::max(pass.waits, waits);
  if (s.kind == Step::Kind::lanes) pass.joins = std::max(pass.joins, waits);
  if (s.kind != Step::Kind::loop) return pass.steps.emplace_back(&s, times), void();
  pass.loops.push_back(s.index);
  const std::int64_t count = p_.index(s.index).count;
  const bool few = s.few;
  if (p_.index(s.index).unrolled || (few && lowering::turns_unrolled(count) >= count)) {
    together *= static_cast<double>(count);
  } else {
    // A loop within: turns around it are no longer one after the other's loads.
    waits *= together * static_cast<double>(few ? lowering::waits_of(count) : count);
    together = 1;
  }
  for (const Step& inner : s.body)
    collect(inner, times * static_cast<double>(count), waits, together, pass);
}

std::size_t StepPasses::loops_of(const StepPass& pass) const {
  std::set<LoopId> loops;
  for (const auto& [s, times] : pass.steps)
    for (NodeId at = s->node; s->kind == Step::Kind::compute && at != pass.root;) {
      at = k_.node(at).parent;
      const ScheduleNode& n = k_.node(at);
      if (n.kind == NodeKind::loop && (n.max_trips > 1 || unit_of(n.binding))) loops.insert(n.loop);
    }
  return loops.size();
}

bool StepPasses::beyond(NodeId anchor, const StepPass& pass) const {
  for (NodeId at = k_.node(pass.root).parent; at.valid(); at = k_.node(at).parent)
    if (at == anchor) return true;
  return false;
}

}  // namespace tilewright::stitching
