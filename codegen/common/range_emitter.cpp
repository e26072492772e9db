// The Ranges API of core/plan/schedule.h, step by step, on expressions.
#include "codegen/common/range_emitter.h"

#include <algorithm>
#include <cctype>
#include <numeric>

namespace tilewright::codegen {
namespace {

/// Of the range that it is known to be a part of, else its own.
const Linear& first_of(const SymRange& r) { return r.within.empty() ? r.lo : r.within[0]; }
const Linear& end_of(const SymRange& r) { return r.within.empty() ? r.hi : r.within[1]; }

/// The same values, whatever else is known of them.
bool same(const SymRange& a, const SymRange& b) { return a.lo == b.lo && a.hi == b.hi; }

/// What is known of a range that holds both: its `most`, of this extent at most, and `within`.
SymRange around(const Variables& variables, const SymRange& a, const SymRange& b,
                std::int64_t extent) {
  SymRange r;
  r.most = std::min({extent, std::max({a.most, b.most, variables.upper(end_of(a) - first_of(b)),
                                       variables.upper(end_of(b) - first_of(a))})});
  const Linear lows = first_of(b) - first_of(a), highs = end_of(b) - end_of(a);
  const bool a_first = variables.lower(lows) >= 0, b_last = variables.lower(highs) >= 0;
  if ((a_first || variables.upper(lows) <= 0) && (b_last || variables.upper(highs) <= 0))
    r.within = {a_first ? first_of(a) : first_of(b), b_last ? end_of(b) : end_of(a)};
  return r;
}

}  // namespace

/// The identifiers in a text.
std::set<std::string> names_in(const std::string& text) {
  const auto in_name = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  std::set<std::string> names;
  for (auto at = text.begin(); at != text.end();) {
    const auto end = std::find_if_not(at, text.end(), in_name);
    if (end != at && std::isdigit(static_cast<unsigned char>(*at)) == 0) names.emplace(at, end);
    at = end == at ? at + 1 : end;
  }
  return names;
}

SymRanges RangeEmitter::whole_ranges() const {
  SymRanges ranges;
  ranges.at.resize(k_.range_count);
  ranges.low.resize(k_.range_count);
  for (OpId op : k_.ops) {
    std::size_t slot = k_.range_base[op.index()];
    for (LoopId l : workload_.op(op).loops)
      ranges.at[slot++] = whole_range(workload_.loop(l).extent);
  }
  return ranges;
}

RangeEmitter::Cut RangeEmitter::cut(NodeId loop, const SymRanges& around) {
  const ScheduleNode& n = k_.node(loop);
  const SymRange outer = around.at[slot(n.cuts.front())];
  const std::string& loop_name = workload_.loop(n.loop).name;
  const Linear size = outer.hi - outer.lo;
  const std::int64_t last = variables_.upper(outer.hi);
  Cut c{.name = names_.fresh(identifier("l_", loop_name)),
        .end = names_.fresh(identifier("l_", loop_name + "_end")),
        .low = variables_.text(outer.lo),
        .high = variables_.text(outer.hi),
        .step = n.step,
        .inner = {.most = std::min(n.step, outer.most)},
        .whole_steps = size.is_constant() && size.constant % n.step == 0};
  const std::int64_t begins = std::gcd(n.step, variables_.multiple(outer.lo));
  if (c.whole_steps) {
    c.inner.lo = variables_.add(c.name, variables_.lower(outer.lo), last - n.step, begins);
    c.inner.hi = c.inner.lo + number(n.step);
  } else {
    c.inner = variables_.add_range(c.name, c.end, {variables_.lower(outer.lo), last}, c.inner.most,
                                   true, begins);
  }
  return c;
}

SymRanges RangeEmitter::inside_of(NodeId loop, const Cut& cut, const SymRanges& around) const {
  const ScheduleNode& n = k_.node(loop);
  SymRanges inside = around;
  for (const OpLoop& c : n.cuts) {
    inside.at[slot(c)] = cut.inner;
    if (n.binding == Binding::grid) inside.low[slot(c)] = cut.inner.lo;
  }
  return inside;
}

std::string RangeEmitter::nonempty(const SymBox& box) const {
  std::string text;
  for (const SymRange& r : box)
    if (!r.nonempty)
      text += (text.empty() ? "" : " && ") + variables_.text(r.lo) + " < " + variables_.text(r.hi);
  return text;
}

/// One dimension of a footprint, before clipping.
SymRange RangeEmitter::reach(const Operator& op, const Affine& index, std::size_t base,
                             const SymRanges& ranges) {
  SymRange r{.lo = number(index.offset), .hi = number(index.offset + 1), .most = 1};
  // Of what the loops' ranges are parts of.
  Linear first = r.lo, end = r.hi;
  bool part = false;
  std::string call = "reach(" + std::to_string(index.offset);
  for (const Term& t : index.terms) {
    const auto local = std::ranges::find(op.loops, t.loop) - op.loops.begin();
    const SymRange& loop = ranges.at[base + static_cast<std::size_t>(local)];
    const Linear last = loop.hi - number(1);
    first = first + t.coefficient * (t.coefficient > 0 ? first_of(loop) : end_of(loop) - number(1));
    end = end + t.coefficient * (t.coefficient > 0 ? end_of(loop) - number(1) : first_of(loop));
    part = part || !loop.within.empty();
    r.lo = r.lo + t.coefficient * (t.coefficient > 0 ? loop.lo : last);
    r.hi = r.hi + t.coefficient * (t.coefficient > 0 ? last : loop.lo);
    r.most += std::abs(t.coefficient) * (loop.most - 1);
    r.nonempty = r.nonempty && loop.nonempty;
    call += ", " + std::to_string(t.coefficient) + ", Range" + variables_.text(loop);
  }
  if (part) r.within = {first, end};
  if (r.nonempty || index.plain_loop()) return r;
  // Which of the loops is empty is known only when it runs.
  const Interval bounds{std::min(index.offset, variables_.lower(r.lo)),
                        std::max(index.offset, variables_.upper(r.hi))};
  SymRange reached = defined("reached", call + ")", bounds, r.most);
  reached.within = r.within;
  return reached;
}

/// A range of the emitted program by a name of its own; the same value keeps the name that it has.
SymRange RangeEmitter::defined(const std::string& base, const std::string& value, Interval bounds,
                               std::int64_t most, bool nonempty, std::int64_t multiple) {
  for (const auto& block : defined_)
    if (const auto found = block.find(value); found != block.end()) return found->second.front();
  const std::string name = names_.fresh(base);
  out_.line("const Range " + name + " = " + value + ";");
  const SymRange r =
      variables_.add_range(name + ".lo", name + ".hi", bounds, most, nonempty, multiple);
  defined_.back()[value] = {r};
  return r;
}

SymRange RangeEmitter::clipped(const SymRange& r, std::int64_t extent) {
  if (variables_.lower(r.lo) >= 0 && variables_.upper(r.hi) <= extent) return r;
  if (r.lo.is_constant() && r.hi.is_constant()) {
    const std::int64_t low = std::max<std::int64_t>(r.lo.constant, 0);
    const std::int64_t high = std::min(r.hi.constant, extent);
    if (low < high) return {.lo = number(low), .hi = number(high), .most = high - low};
  }
  const Interval bounds{std::min<std::int64_t>(0, variables_.lower(r.hi)),
                        std::max(extent, variables_.upper(r.lo))};
  SymRange part =
      defined("clipped", "clip(" + variables_.text(r) + ", " + std::to_string(extent) + ")", bounds,
              std::min(r.most, extent), false, variables_.multiple(r.lo));
  part.within = {first_of(r), end_of(r)};
  // Clipped again it is the same: computes that follow one another have one range, by its name.
  defined_.back()["clip(" + variables_.text(part) + ", " + std::to_string(extent) + ")"] = {part};
  return part;
}

SymBox RangeEmitter::access_box(OpId id, const Access& access, const SymRanges& ranges) {
  const Operator& op = workload_.op(id);
  const Tensor& tensor = workload_.tensor(access.tensor);
  SymBox box;
  for (std::size_t d = 0; d < access.index.size(); ++d)
    box.push_back(
        clipped(reach(op, access.index[d], k_.range_base[id.index()], ranges), tensor.shape[d]));
  return box;
}

std::string RangeEmitter::box_text(const SymBox& box) const {
  std::string text = "Box<" + std::to_string(box.size()) + ">{";
  for (std::size_t d = 0; d < box.size(); ++d)
    text += (d == 0 ? "{" : ", ") + variables_.text(box[d]);
  return text + (box.empty() ? "}" : "}}");
}

/// A box of the emitted program by a name of its own, no larger than `like`.
SymBox RangeEmitter::defined_box(const std::string& base, const std::string& value,
                                 const SymBox& like, TensorId tensor) {
  for (const auto& block : defined_)
    if (const auto found = block.find(value); found != block.end()) return found->second;
  const std::string name = names_.fresh(base);
  out_.line("const Box<" + std::to_string(like.size()) + "> " + name + " = " + value + ";");
  SymBox box;
  for (std::size_t d = 0; d < like.size(); ++d) {
    const std::string dim = name + ".d[" + std::to_string(d) + "]";
    const std::int64_t extent = workload_.tensor(tensor).shape[d];
    const Interval bounds{std::min<std::int64_t>(0, variables_.lower(like[d].lo)),
                          std::max(extent, variables_.upper(like[d].hi))};
    box.push_back(variables_.add_range(dim + ".lo", dim + ".hi", bounds,
                                       std::min(like[d].most, extent), false));
  }
  defined_.back()[value] = box;
  return box;
}

SymBox RangeEmitter::hull_of(const std::vector<SymBox>& boxes, TensorId tensor) {
  SymBox all = boxes.front();
  for (std::size_t i = 1; i < boxes.size(); ++i) {
    const SymBox& b = boxes[i];
    if (std::ranges::equal(b, all, same)) continue;
    SymBox both;
    bool folded = true;
    for (std::size_t d = 0; d < b.size() && folded; ++d) {
      const Linear lows = b[d].lo - all[d].lo;
      const Linear highs = b[d].hi - all[d].hi;
      folded = b[d].nonempty && all[d].nonempty &&
               (variables_.lower(lows) >= 0 || variables_.upper(lows) <= 0) &&
               (variables_.lower(highs) >= 0 || variables_.upper(highs) <= 0);
      if (!folded) break;
      SymRange r{.lo = variables_.lower(lows) >= 0 ? all[d].lo : b[d].lo,
                 .hi = variables_.lower(highs) >= 0 ? b[d].hi : all[d].hi};
      r.most = std::min(variables_.upper(r.hi - r.lo), workload_.tensor(tensor).shape[d]);
      both.push_back(r);
    }
    if (!folded) {
      SymBox like = all;
      std::vector<SymRange> known;
      for (std::size_t d = 0; d < b.size(); ++d) {
        known.push_back(around(variables_, all[d], b[d], workload_.tensor(tensor).shape[d]));
        like[d].most = known[d].most;
      }
      both = defined_box("both", "hull(" + box_text(all) + ", " + box_text(b) + ")", like, tensor);
      for (std::size_t d = 0; d < b.size(); ++d) {
        both[d].within = known[d].within;
        if (same(b[d], all[d])) both[d] = b[d];
      }
    }
    all = std::move(both);
  }
  return all;
}

SymBox RangeEmitter::reads_box(const std::vector<ReadRef>& reads, TensorId tensor,
                               const SymRanges& ranges) {
  std::vector<SymBox> boxes;
  for (const ReadRef& r : reads)
    boxes.push_back(
        access_box(r.op, workload_.op(r.op).inputs[static_cast<std::size_t>(r.input)], ranges));
  return hull_of(boxes, tensor);
}

/// `look_ahead`: only to know the ranges below; a sliding buffer's contents are not asked for.
void RangeEmitter::infer(const Inference& i, SymRanges& ranges, bool look_ahead) {
  SymRanges made;
  const SymRanges& ahead = ahead_of(i.lookahead, ranges, made);
  SymBox need = reads_box(i.reads, i.tensor, ahead);
  if (i.sliding && !look_ahead)
    need = defined_box("new_" + workload_.tensor(i.tensor).name,
                       "needed(" + ref(i.buffer) + ", " + box_text(need) + ")", need, i.tensor);
  const Operator& producer = workload_.op(i.producer);
  const Access& target = producer.outputs[static_cast<std::size_t>(i.output)].target;
  for (std::size_t d = 0; d < need.size(); ++d) {
    const auto loop = target.index[d].plain_loop();
    if (!loop) continue;
    const auto local = static_cast<std::size_t>(workload_.local_index(i.producer, *loop));
    SymRange& r = ranges.at[k_.range_base[i.producer.index()] + local];
    if (!i.merge || same(r, need[d])) {
      r = need[d];
      continue;
    }
    const std::int64_t extent = workload_.loop(*loop).extent;
    const SymRange known = around(variables_, r, need[d], extent);
    r = defined("merged",
                "hull(Range" + variables_.text(r) + ", Range" + variables_.text(need[d]) + ")",
                {0, extent}, known.most, r.nonempty || need[d].nonempty);
    r.within = known.within;
  }
}

const SymRanges& RangeEmitter::ahead_of(const std::vector<Inference>& inferences,
                                        const SymRanges& ranges, SymRanges& made) {
  if (inferences.empty()) return ranges;
  made = ranges;
  for (const Inference& i : inferences) infer(i, made, true);
  return made;
}

SymBox RangeEmitter::tile_of(const Buffer& b, const SymRanges& ranges) {
  SymRanges made;
  const SymRanges& ahead = ahead_of(b.lookahead, ranges, made);
  if (!b.reads.empty()) return reads_box(b.reads, b.tensor, ahead);
  std::vector<SymBox> boxes;
  for (const auto& [op, output] : b.writes)
    boxes.push_back(
        access_box(op, workload_.op(op).outputs[static_cast<std::size_t>(output)].target, ahead));
  return hull_of(boxes, b.tensor);
}

/// The block's own part of a tile that is kept from one nest of blocks to another.
SymBox RangeEmitter::part_of(const Buffer& b, const BlockPart& part,
                             const SymRanges& ranges) const {
  SymBox box;
  for (std::size_t d = 0; d < part.loops.size(); ++d) {
    const std::int64_t all = workload_.tensor(b.tensor).shape[d];
    box.push_back(part.loops[d] < 0 ? SymRange{number(0), number(all), all}
                                    : range(ranges, part.op, part.loops[d]));
  }
  return box;
}

/// Every reduction of the operator is at its low end: of the whole range, or of the block's share.
std::string RangeEmitter::initialises(OpId op, const SymRanges& ranges, bool atomic) const {
  std::string text;
  for (LoopId l : workload_.reduction_loops(op)) {
    const auto slot =
        k_.range_base[op.index()] + static_cast<std::size_t>(workload_.local_index(op, l));
    const Linear low = atomic ? ranges.low[slot] : number(0);
    const Linear above = ranges.at[slot].lo - low;
    if (variables_.upper(above) <= 0) continue;
    if (variables_.lower(above) > 0) return "false";
    text += (text.empty() ? "" : " && ") + variables_.text(ranges.at[slot].lo) +
            " == " + variables_.text(low);
  }
  return text.empty() ? "true" : text;
}

std::string RangeEmitter::completes(OpId op, const SymRanges& ranges) const {
  std::string text;
  for (LoopId l : workload_.reduction_loops(op)) {
    const Linear& end = range(ranges, op, workload_.local_index(op, l)).hi;
    const std::int64_t extent = workload_.loop(l).extent;
    if (variables_.upper(number(extent) - end) <= 0) continue;
    text += (text.empty() ? "" : " && ") + variables_.text(end) + " == " + std::to_string(extent);
  }
  return text;
}

/// A sum that is computed again under a loop that does not index it must not be added twice: where
/// some reduction around that loop has begun before, only the loop's first iteration adds. When
/// this is so, as a condition; empty: always. (Blocks add to tiles of their own.)
std::string RangeEmitter::not_yet_added(OpId op, bool atomic) const {
  std::string text;
  for (const OpenLoop& l : open_) {
    const ScheduleNode& n = k_.node(l.id);
    if (n.binding == Binding::grid || n.max_trips <= 1 ||
        std::ranges::any_of(n.cuts, [&](const OpLoop& c) { return c.op == op; }))
      continue;
    const std::string fresh = initialises(op, l.around, atomic);
    if (fresh == "true") continue;
    text += (text.empty() ? "(" : " && (") + l.name + " == " + l.first +
            (fresh == "false" ? ")" : " || (" + fresh + "))");
  }
  return text;
}

}  // namespace tilewright::codegen
