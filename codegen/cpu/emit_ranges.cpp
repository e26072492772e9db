// The Ranges API of core/lowering/schedule.h, step by step, on expressions.
#include <algorithm>
#include <functional>

#include "codegen/cpu/emitter.h"

namespace tilewright::cpu {

/// One dimension of a footprint, before clipping.
SymRange KernelEmitter::reach(const Operator& op, const Affine& index, std::size_t base,
                              const SymRanges& ranges) {
  SymRange r{.lo = number(index.offset), .hi = number(index.offset + 1), .most = 1};
  std::string call = "reach(" + std::to_string(index.offset);
  for (const Term& t : index.terms) {
    const auto local = std::ranges::find(op.loops, t.loop) - op.loops.begin();
    const SymRange& loop = ranges.at[base + static_cast<std::size_t>(local)];
    const Linear last = loop.hi - number(1);
    r.lo = r.lo + t.coefficient * (t.coefficient > 0 ? loop.lo : last);
    r.hi = r.hi + t.coefficient * (t.coefficient > 0 ? last : loop.lo);
    r.most += std::abs(t.coefficient) * (loop.most - 1);
    r.nonempty = r.nonempty && loop.nonempty;
    call += ", " + std::to_string(t.coefficient) + ", Range" + variables_.text(loop);
  }
  if (r.nonempty || index.plain_loop()) return r;
  // Which of the loops is empty is known only when it runs.
  const Interval bounds{std::min(index.offset, variables_.lower(r.lo)),
                        std::max(index.offset, variables_.upper(r.hi))};
  return defined("reached", call + ")", bounds, r.most);
}

/// A range of the emitted program by a name of its own; the same value keeps the name that it has.
SymRange KernelEmitter::defined(const std::string& base, const std::string& value, Interval bounds,
                                std::int64_t most, bool nonempty) {
  for (const auto& block : defined_)
    if (const auto found = block.find(value); found != block.end()) return found->second.front();
  const std::string name = names_.fresh(base);
  out_.line("const Range " + name + " = " + value + ";");
  const SymRange r = variables_.add_range(name + ".lo", name + ".hi", bounds, most, nonempty);
  defined_.back()[value] = {r};
  return r;
}

SymRange KernelEmitter::clipped(const SymRange& r, std::int64_t extent) {
  if (variables_.lower(r.lo) >= 0 && variables_.upper(r.hi) <= extent) return r;
  const Interval bounds{std::min<std::int64_t>(0, variables_.lower(r.hi)),
                        std::max(extent, variables_.upper(r.lo))};
  return defined("clipped", "clip(" + variables_.text(r) + ", " + std::to_string(extent) + ")",
                 bounds, std::min(r.most, extent));
}

SymBox KernelEmitter::access_box(OpId id, const Access& access, const SymRanges& ranges) {
  const Operator& op = p_.workload().op(id);
  const Tensor& tensor = p_.workload().tensor(access.tensor);
  SymBox box;
  for (std::size_t d = 0; d < access.index.size(); ++d)
    box.push_back(clipped(reach(op, access.index[d], k_.range_base[id.index()], ranges),
                          tensor.shape[d]));
  return box;
}

std::string KernelEmitter::box_text(const SymBox& box) const {
  std::string text = "Box<" + std::to_string(box.size()) + ">{";
  for (std::size_t d = 0; d < box.size(); ++d)
    text += (d == 0 ? "{" : ", ") + variables_.text(box[d]);
  return text + (box.empty() ? "}" : "}}");
}

/// A box of the emitted program by a name of its own, no larger than `like`.
SymBox KernelEmitter::defined_box(const std::string& base, const std::string& value,
                                  const SymBox& like, TensorId tensor) {
  for (const auto& block : defined_)
    if (const auto found = block.find(value); found != block.end()) return found->second;
  const std::string name = names_.fresh(base);
  out_.line("const Box<" + std::to_string(like.size()) + "> " + name + " = " + value + ";");
  SymBox box;
  for (std::size_t d = 0; d < like.size(); ++d) {
    const std::string dim = name + ".d[" + std::to_string(d) + "]";
    const std::int64_t extent = p_.workload().tensor(tensor).shape[d];
    const Interval bounds{std::min<std::int64_t>(0, variables_.lower(like[d].lo)),
                          std::max(extent, variables_.upper(like[d].hi))};
    box.push_back(variables_.add_range(dim + ".lo", dim + ".hi", bounds,
                                       std::min(like[d].most, extent), false));
  }
  defined_.back()[value] = box;
  return box;
}

SymBox KernelEmitter::hull_of(const std::vector<SymBox>& boxes, TensorId tensor) {
  SymBox all = boxes.front();
  for (std::size_t i = 1; i < boxes.size(); ++i) {
    const SymBox& b = boxes[i];
    if (b == all) continue;
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
      r.most = std::min(variables_.upper(r.hi - r.lo),
                        p_.workload().tensor(tensor).shape[d]);
      both.push_back(r);
    }
    if (!folded) {
      SymBox like = all;
      for (std::size_t d = 0; d < b.size(); ++d) {
        std::int64_t most = std::max(all[d].most, b[d].most);
        most = std::max(most, variables_.upper(all[d].hi - b[d].lo));
        like[d].most = std::max(most, variables_.upper(b[d].hi - all[d].lo));
      }
      both = defined_box("both", "hull(" + box_text(all) + ", " + box_text(b) + ")", like, tensor);
    }
    all = std::move(both);
  }
  return all;
}

SymBox KernelEmitter::reads_box(const std::vector<ReadRef>& reads, TensorId tensor,
                                const SymRanges& ranges) {
  std::vector<SymBox> boxes;
  for (const ReadRef& r : reads)
    boxes.push_back(access_box(
        r.op, p_.workload().op(r.op).inputs[static_cast<std::size_t>(r.input)], ranges));
  return hull_of(boxes, tensor);
}

/// `look_ahead`: only to know the ranges below; a sliding buffer's contents are not asked for.
void KernelEmitter::infer(const Inference& i, SymRanges& ranges, bool look_ahead) {
  SymRanges ahead = ranges;
  for (const Inference& further_in : i.lookahead) infer(further_in, ahead, true);
  SymBox need = reads_box(i.reads, i.tensor, ahead);
  if (i.sliding && !look_ahead)
    need = defined_box("new_" + p_.workload().tensor(i.tensor).name,
                       "needed(" + ref(i.buffer) + ", " + box_text(need) + ")", need, i.tensor);
  const Operator& producer = p_.workload().op(i.producer);
  const Access& target = producer.outputs[static_cast<std::size_t>(i.output)].target;
  for (std::size_t d = 0; d < need.size(); ++d) {
    const auto loop = target.index[d].plain_loop();
    if (!loop) continue;
    const auto local = static_cast<std::size_t>(p_.workload().local_index(i.producer, *loop));
    SymRange& r = ranges.at[k_.range_base[i.producer.index()] + local];
    if (!i.merge || r == need[d]) {
      r = need[d];
      continue;
    }
    const std::int64_t extent = p_.workload().loop(*loop).extent;
    r = defined("merged",
                "hull(Range" + variables_.text(r) + ", Range" + variables_.text(need[d]) + ")",
                {0, extent}, extent, r.nonempty || need[d].nonempty);
  }
}

SymBox KernelEmitter::tile_of(const Buffer& b, const SymRanges& ranges) {
  SymRanges ahead = ranges;
  for (const Inference& i : b.lookahead) infer(i, ahead, true);
  if (!b.reads.empty()) return reads_box(b.reads, b.tensor, ahead);
  std::vector<SymBox> boxes;
  for (const auto& [op, output] : b.writes)
    boxes.push_back(access_box(
        op, p_.workload().op(op).outputs[static_cast<std::size_t>(output)].target, ahead));
  return hull_of(boxes, b.tensor);
}

}  // namespace tilewright::cpu
