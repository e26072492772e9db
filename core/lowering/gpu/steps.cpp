// What threads do, in order: what is declared, moved and waited for between a tree's nodes.
#include <algorithm>
#include <cmath>

#include "core/lowering/gpu/block_rules.h"
#include "core/lowering/gpu/lowering.h"
#include "core/lowering/gpu/unrolled.h"

namespace tilewright::lowering {
namespace {

// Loads of which ptxas leaves but some under way together: of 53 of a launch that asks for
// registers seven (SASS of nvcc 13.0).
constexpr std::int64_t kAtOnce = 16;

}  // namespace

Step Lowering::of_value(Step::Kind kind, std::size_t value) const {
  const Value& v = values_[value];
  Step step{.kind = kind, .node = v.producer, .values = {static_cast<int>(value)}};
  count_units(step, loops_around(v.loaded() ? v.producer : v.anchor));
  return step;
}

/// Which warps have an iteration of these loops, and how many of the iterations that units go
/// through there are: the last ones may be fewer.
void Lowering::count_units(Step& step, const std::vector<NodeId>& loops) const {
  for (NodeId l : loops) {
    const ScheduleNode& n = k_.node(l);
    const Facts& f = facts_[l.index()];
    const OpLoop& first = n.cuts.front();
    const auto whole = static_cast<double>(
        f.at->ranges[slot(first.op, static_cast<std::size_t>(first.local))].most);
    const double trips = std::ceil(whole / static_cast<double>(n.step));
    const auto block = static_cast<double>(warps_);
    step.full *= whole / (trips * std::min(whole, static_cast<double>(n.step)));
    if (n.binding == Binding::warp) step.warps = std::min(std::max(1.0, step.warps) * trips, block);
    if (n.binding == Binding::thread)
      step.warps = std::min(std::ceil(trips / static_cast<double>(kLanes)), block);
    if (n.binding == Binding::lane) step.warps = std::max(1.0, step.warps);
    const auto units = f.unit < 0 ? 1.0 : static_cast<double>(index(f.unit).count);
    const auto turns = f.turn < 0 ? 1.0 : static_cast<double>(index(f.turn).count);
    if (n.binding != Binding::grid && turns > 1)
      step.full *= trips / (turns * std::min(trips, units));
  }
}

void Lowering::visit(NodeId id, std::vector<Step>& out) {
  const ScheduleNode& n = k_.node(id);
  switch (n.kind) {
    case NodeKind::loop:
      return n.binding == Binding::grid ? visit_grid(id, out) : visit_loop(id, out);
    case NodeKind::sequence:
      return visit_children(id, out);
    case NodeKind::pack:
      return visit_pack(id, out);
    case NodeKind::load:
      for (std::size_t i = 0; i < values_.size(); ++i)
        if (values_[i].producer == id && values_[i].anchor == id) load(i, out);
      return;
    case NodeKind::compute:
      return compute(id, out);
    case NodeKind::sync:  // threads wait where one reads what another has written
      if (n.scope != Unit::machine) return;
      written_.clear();
      return out.push_back({.kind = Step::Kind::barrier, .node = id, .all_blocks = true});
    case NodeKind::store:  // what leaves is written where it is complete
    case NodeKind::drop:   // what is read again is another value
      return;
  }
}

void Lowering::visit_children(NodeId parent, std::vector<Step>& out) {
  for (NodeId c : k_.node(parent).children) visit_child(parent, c, out);
}

void Lowering::visit_child(NodeId parent, NodeId child, std::vector<Step>& out) {
  before(parent, child, out);
  visit(child, out);
  finish_sums(child, out);
}

/// What stands between a node's children: declarations, loads that were moved here, barriers.
void Lowering::before(NodeId parent, NodeId child, std::vector<Step>& out) {
  std::vector<std::size_t> rewritten;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const Value& v = values_[i];
    const bool here = v.scope == parent && child_towards(parent, v.anchor) == child;
    if ((here && v.storage == Storage::registers) ||
        (v.storage == Storage::shared && v.sum && v.anchor == child))
      out.push_back(of_value(Step::Kind::declare, i));
    if (v.storage != Storage::shared || (!here && v.anchor != child)) continue;
    // At the scope for the loops around it; where it is made for those that make it again.
    if (std::ranges::any_of(open_, [&](NodeId l) {
          if (is_around(l, v.scope) || l == v.scope) return here;
          return v.anchor == child && std::ranges::any_of(v.uses, [&](const Use& use) {
                   return is_around(l, use.node);
                 });
        }))
      rewritten.push_back(i);
  }
  if (!rewritten.empty()) synchronise(rewritten, true, out);
  if (hoisted_.contains(child))
    for (std::size_t i = 0; i < values_.size(); ++i)
      if (values_[i].loaded() && values_[i].anchor == child && values_[i].producer != child)
        load(i, out);
  std::vector<std::size_t> read;
  for (std::size_t i : written_)
    if (std::ranges::any_of(values_[i].uses, [&](const Use& use) {
          return use.node == child || is_around(child, use.node);
        }))
      read.push_back(i);
  if (!read.empty()) synchronise(read, false, out);
  for (std::size_t i = 0; i < values_.size(); ++i)
    if (values_[i].sum && values_[i].anchor == child) {
      out.push_back(of_value(Step::Kind::start, i));
      out.back().dims = own(values_[i]);
    }
}

bool Lowering::within_warp(const Value& v) const {
  return warps_ == 1 || !copies({}, v.around).warp;
}

/// Threads that share these values meet.
void Lowering::synchronise(const std::vector<std::size_t>& values, bool reused,
                           std::vector<Step>& out) {
  Step step{.kind = Step::Kind::barrier, .reused = reused};
  step.warp =
      std::ranges::all_of(values, [this](std::size_t i) { return within_warp(values_[i]); });
  step.values.assign(values.begin(), values.end());
  std::erase_if(written_, [&](std::size_t i) { return !step.warp || within_warp(values_[i]); });
  out.push_back(std::move(step));
}

/// Whether a loop does so little that the compiler had better do several turns at a time: with all
/// turns of loops within, where all of them together are few, as a window's are.
bool Lowering::is_short(NodeId loop) const {
  constexpr std::int64_t kMostTogether = 32;
  std::int64_t together = index(facts_[loop.index()].turn).count;
  for (const ProgramIndex& i : p_.indices) {
    if (i.kind != ProgramIndex::Kind::loop || i.node == loop || !is_around(loop, i.node) ||
        i.unrolled)
      continue;
    together *= i.count;
    if (together > kMostTogether || turns_unrolled(i.count) < i.count) return false;
  }
  return std::ranges::none_of(values_, [&](const Value& v) {
    return is_around(loop, v.anchor) && (v.sum || v.storage == Storage::shared);
  });
}

void Lowering::visit_loop(NodeId id, std::vector<Step>& out) {
  const int turn = facts_[id.index()].turn;
  if (turn < 0) return visit_children(id, out);
  hold_reads(id, out);
  hold_windows(id, out);
  Step step{.kind = Step::Kind::loop, .node = id, .index = turn};
  step.few = !index(turn).unrolled && is_short(id);
  open_.push_back(id);
  visit_children(id, step.body);
  open_.pop_back();
  out.push_back(std::move(step));
}

/// The block's iteration of a grid loop, where it has one.
void Lowering::visit_grid(NodeId id, std::vector<Step>& out) {
  const ScheduleNode& n = k_.node(id);
  Step step{.kind = Step::Kind::blocks, .node = id, .index = facts_[id.index()].turn};
  step.below = blocks_below(k_, id);
  step.count = n.max_trips * step.below;
  step.idle = blocks_here_ > step.count;
  const std::int64_t outer = std::exchange(blocks_here_, step.below);
  visit_children(id, step.body);
  blocks_here_ = outer;
  out.push_back(std::move(step));
}

void Lowering::visit_pack(NodeId id, std::vector<Step>& out) {
  Step pack{.kind = Step::Kind::parts, .node = id};
  const std::int64_t outer = blocks_here_;
  for (NodeId c : k_.node(id).children) {
    Step part{.kind = Step::Kind::part, .node = c};
    part.first = k_.node(c).first_block;
    part.count = blocks_here_ = blocks_of(k_, c);
    visit_child(id, c, part.body);
    pack.body.push_back(std::move(part));
  }
  blocks_here_ = outer;
  out.push_back(std::move(pack));
}

// ---- moves ------------------------------------------------------------------------------------

/// Each run of a thread's values, as one where it is aligned.
Step Lowering::moved(Step::Kind kind, std::size_t value) const {
  const Value& v = values_[value];
  Step step = of_value(kind, value);
  step.dims = own(v);
  step.strip = strip_of(v);
  step.at = flat(v.tensor, v.key);
  if (step.strip.whole) step.at.terms.erase(step.strip.element);
  step.inside = moved_inside(v);
  return step;
}

void Lowering::load(std::size_t value, std::vector<Step>& out) {
  const Value& v = values_[value];
  if (v.storage == Storage::direct) return;
  if (v.storage == Storage::shared) return stage(value, out);
  Step step = moved(Step::Kind::load, value);
  step.copies = copies(v.key, v.around);
  step.together = !v.alike && !step.inside.empty() && !step.copies.lane && !step.copies.warp &&
                  of_block(step.inside);
  out.push_back(step);
  if (!step.copies.lane || v.alike) return;
  Step spread = of_value(Step::Kind::spread, value);
  spread.dims = step.dims;
  spread.copies = step.copies;
  out.push_back(std::move(spread));
}

/// The threads that share an instance bring its tile to shared memory, each element once: all of
/// them together or, where lanes have tiles of their own, one for those that have the same.
void Lowering::stage(std::size_t value, std::vector<Step>& out) {
  const Value v = values_[value];
  Step step = of_value(Step::Kind::stage, value);
  step.copies = copies({}, v.around);
  const bool alone = !step.copies.of_warp();
  step.threads = alone ? 1 : kLanes;
  if (step.copies.warp && !alone) {
    std::int64_t inner = warps_;
    for (NodeId l : v.around) {
      const int id = facts_[l.index()].unit;
      if (id >= 0 && index(id).unit == Binding::warp) inner = std::min(inner, index(id).stride);
    }
    step.threads = kLanes * inner;
  }
  std::set<int> known;
  for (const auto& loops : {loops_around(v.anchor), v.around})
    for (NodeId l : loops)
      for (int id : {facts_[l.index()].unit, facts_[l.index()].turn}) known.insert(id);
  step.inside = inside_before(v, facts_[v.producer.index()].at->inside, known);
  step.dims = turns_ahead(v);
  Key key;
  for (const Span& s : v.tile) {
    const bool chunks = v.padded > 1 && &s == &v.tile.back(), whole = chunks && v.whole > 0;
    const int id = add_index({.kind = ProgramIndex::Kind::loop,
                              .text = p_.names.fresh("s"),
                              .count = whole    ? v.whole / v.padded
                                       : chunks ? s.most / v.padded
                                                : s.most,
                              .node = v.anchor});
    step.elements.push_back(id);
    key.push_back(s.lo + number(whole ? v.whole_from : 0) + (chunks ? v.padded : 1) * linear(id));
    std::vector<Linear> guards;
    for (const Linear& e : s.ends) guards.push_back(e - key.back());
    if (s.from_zero) guards.push_back(key.back() + number(1));
    if (v.begins_early && v.padded == 1 && &s == &v.tile.back()) guards.push_back(linear(id));
    step.guards.push_back(std::move(guards));
  }
  step.from = flat(v.tensor, key);
  step.at = shared_at(v, key);
  out.push_back(std::move(step));
  written_.push_back(value);
}

/// Whether a stage has so few turns that registers hold what it brings.
bool Lowering::is_fetched(const Step& s) const {
  return s.kind == Step::Kind::stage && s.threads > 1 && s.dims.empty() &&
         p_.turns_of(s) == p_.together_of(s);
}

/// Whether threads may meet in a step, or read what `pending` puts into shared memory.
bool Lowering::waits_for(const Step& s, const std::vector<Step>& pending) {
  using Kind = Step::Kind;
  if (s.kind == Kind::loop)
    return std::ranges::any_of(s.body,
                               [&](const Step& inner) { return waits_for(inner, pending); });
  if (s.kind != Kind::compute && s.kind != Kind::start && s.kind != Kind::declare) return true;
  return std::ranges::any_of(s.reads, [&](const Read& r) {
    return std::ranges::any_of(pending, [&](const Step& p) { return p.values.front() == r.value; });
  });
}

/// Elements that are looked up before threads meet are all under way by then: the compiler would
/// put off those that are used later.
void Lowering::look_up_ahead(Step& s) {
  s.ahead = s.kind == Step::Kind::compute && s.run;
  if (s.kind == Step::Kind::loop) std::ranges::for_each(s.body, look_up_ahead);
}

/// Whether a step, or one in it, uses a value that was loaded.
bool Lowering::uses(const Step& s, int value) {
  const auto is_it = [&](const Read& r) { return r.value == value; };
  return std::ranges::find(s.values, value) != s.values.end() || is_it(s.read) ||
         std::ranges::any_of(s.reads, is_it) ||
         std::ranges::any_of(s.body, [&](const Step& inner) { return uses(inner, value); });
}

/// The same of what is loaded before threads meet and used behind that.
void Lowering::load_ahead(std::vector<Step>& steps) {
  for (auto at = steps.begin(); at != steps.end(); ++at) {
    if (at->kind != Step::Kind::load) continue;
    const int value = at->values.front();
    const auto next = std::find_if(at + 1, steps.end(), [&](const Step& s) {
      return s.kind == Step::Kind::barrier || s.kind == Step::Kind::exchange || uses(s, value);
    });
    at->ahead = next != steps.end() && !uses(*next, value);
  }
}

/// Loads that stand together, of so many values of 16 bits that ptxas would put most of them off to
/// where they are used: it begins with conversions, which take registers, and waits for a few loads
/// at a time where the launch asks for registers. Where these have room for all, all are under way
/// before the first is used. Other loads are under way together by themselves, and would be waited
/// for longer (h200-rows-at-once-turns.json). `unrolled`: turns of a loop around them are
/// under way together.
void Lowering::load_at_once(std::vector<Step>& steps, bool unrolled) const {
  using Kind = Step::Kind;
  for (auto at = steps.begin(); at != steps.end(); ++at) {
    load_at_once(at->body, unrolled || (at->kind == Kind::loop && at->few));
    const auto end = std::find_if_not(at, steps.end(), [](const Step& s) {
      return s.kind == Kind::declare || s.kind == Kind::load;
    });
    if (unrolled || end == at) continue;
    const auto halves = [this](const Step& s) {
      if (s.kind != Kind::load) return false;
      const Value& v = p_.value(s.values.front());
      return !v.alike && size_of(workload_.tensor(v.tensor).dtype) == 2;
    };
    std::int64_t loads = 0, words = ThreadProgram::kBeside;
    for (auto s = at; s != end; ++s) {
      if (!halves(*s)) continue;
      loads += p_.strips_of(s->dims, s->strip);
      words += p_.words_of(p_.value(s->values.front()));
    }
    const ComputeUnit& sm = machine_.units.front();
    const std::int64_t blocks = p_.asked(sm.count, sm.registers);
    if (loads >= kAtOnce && blocks > 0 &&
        words <= most_registers(kLanes * warps_ * blocks, sm.registers))
      for (auto s = at; s != end; ++s) s->at_once = halves(*s);
    at = end - 1;
  }
}

/// Loads that stand together are all under way before the first of them is waited for: by a
/// shuffle, or by a store to shared memory, which is put off until threads meet.
void Lowering::load_first(std::vector<Step>& steps) {
  using Kind = Step::Kind;
  const auto loads = [](const Step& s) {
    return s.kind == Kind::declare || s.kind == Kind::load || s.kind == Kind::stage ||
           s.kind == Kind::spread;
  };
  // First what waits for nothing, then stages of many turns, then what waits for a load.
  const auto waits = [this](const Step& s) {
    return s.kind == Kind::spread ? 2 : s.kind == Kind::stage && !is_fetched(s) ? 1 : 0;
  };
  std::vector<Step> out, pending;
  const auto put = [&] {
    std::ranges::move(pending, std::back_inserter(out));
    pending.clear();
  };
  for (auto at = steps.begin(); at != steps.end();) {
    const auto end = std::find_if_not(at, steps.end(), loads);
    if (std::ranges::any_of(at, end, [](const Step& s) { return s.kind == Kind::stage; }))
      std::ranges::stable_sort(at, end, {}, waits);
    for (; at != end; ++at) {
      if (is_fetched(*at)) {
        at->fetched = p_.names.fresh(p_.value(at->values.front()).name + "_fetched");
        pending.push_back(*at);
        pending.back().kind = Kind::put;
      }
      out.push_back(std::move(*at));
    }
    if (at == steps.end()) break;
    if (at->kind == Kind::barrier && !out.empty()) look_up_ahead(out.back());
    if (waits_for(*at, pending)) put();
    load_first(at->body);
    out.push_back(std::move(*at++));
  }
  put();
  load_ahead(out);
  steps = std::move(out);
}

void Lowering::store(std::size_t value, std::vector<Step>& out) {
  const Value& v = values_[value];
  Step step = moved(Step::Kind::store, value);
  step.atomic = k_.buffer(v.buffer).atomic;
  step.copies = copies(v.key, {});
  step.shared_out = v.sum && shared_out(v);
  if (step.shared_out) step.copies.warp.reset();
  out.push_back(std::move(step));
}

// ---- sums -------------------------------------------------------------------------------------

/// Joins the parts that lanes have.
void Lowering::join_lanes(std::size_t value, std::vector<Step>& out) {
  Step step = of_value(Step::Kind::lanes, value);
  for (int id : reduced_units(values_[value]))
    if (index(id).unit != Binding::warp) step.units.push_back(id);
  if (step.units.empty()) return;
  step.dims = own(values_[value]);
  out.push_back(std::move(step));
}

/// Joins the parts that warps have of some sums, at one barrier.
Step Lowering::exchange(const std::vector<std::size_t>& sums) const {
  Step step = of_value(Step::Kind::exchange, sums.front());
  step.values.clear();
  for (std::size_t i : sums) {
    const Value& v = values_[i];
    step.values.push_back(static_cast<int>(i));
    Step::Joined joined{.value = static_cast<int>(i), .dims = own(v)};
    for (int id : reduced_units(v))
      if (index(id).unit != Binding::lane) joined.units.push_back(id);
    joined.scratch = scratch_.at(i);
    joined.elements = scratch_elements(v);
    joined.lanes = scratch_lanes(v);
    joined.shared_out = shared_out(v);
    if (joined.shared_out) joined.strip = strip_of(v);
    step.joined.push_back(std::move(joined));
  }
  return step;
}

void Lowering::finish_sums(NodeId anchor, std::vector<Step>& out) {
  std::vector<std::size_t> sums, together;
  for (std::size_t i = 0; i < values_.size(); ++i)
    if (values_[i].sum && values_[i].anchor == anchor) sums.push_back(i);
  for (std::size_t i : sums) {
    join_lanes(i, out);
    if (scratch_.contains(i) && !long_sums_.contains(i)) together.push_back(i);
  }
  if (!together.empty()) {
    // In a loop, turns use one of two places: who still reads the last turn's is not waited for.
    Step step = exchange(together);
    if (const auto flip = flips_.find(anchor); flip != flips_.end()) step.flip = flip->second;
    out.push_back(std::move(step));
  }
  for (std::size_t i : sums) {
    if (!long_sums_.contains(i)) continue;
    if (!open_.empty() || long_place_taken_) {
      out.push_back({.kind = Step::Kind::barrier});
      out.back().values = {static_cast<int>(i)};
    }
    long_place_taken_ = true;
    out.push_back(exchange({i}));
  }
  for (std::size_t i : sums) keep_sum(i, out);
}

/// A sum that is complete, to where it goes.
void Lowering::keep_sum(std::size_t value, std::vector<Step>& out) {
  const Value& v = values_[value];
  if (leaves(v)) store(value, out);
  if (v.storage != Storage::shared) return;
  Step step = of_value(Step::Kind::keep, value);
  step.dims = own(v);
  step.inside = v.inside;
  step.copies = copies(v.key, v.around);
  step.at = shared_at(v, v.key);
  out.push_back(std::move(step));
  written_.push_back(value);
}

}  // namespace tilewright::lowering
