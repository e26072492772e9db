// Operators on the values that a thread has, and sums over lanes and warps.
#include <algorithm>
#include <cmath>

#include "codegen/common/expression.h"
#include "codegen/cuda/stitch.h"
#include "core/workload/expr.h"
#include "core/workload/text.h"

namespace tilewright::cuda {

std::string StitchEmitter::functor(Combine c) {
  switch (c) {
    case Combine::max:
      return "Larger{}";
    case Combine::min:
      return "Smaller{}";
    case Combine::product:
      return "Product{}";
    default:
      return "Sum{}";
  }
}

std::string StitchEmitter::literal_text(double value) const {
  if (std::isinf(value)) return real() + (value > 0 ? "(kInfinity)" : "(-kInfinity)");
  return literal(value, real());
}

/// An input at the compute's point.
std::string StitchEmitter::read(const Use& use) {
  const Value& v = values_[used_by_.at({use.node, use.input})];
  const Key key = use_key(use);
  if (v.storage == Storage::registers) return array(v, *match(v.key, key, v.scope));
  if (v.storage == Storage::shared) return read_shared(use);
  std::vector<Linear> inside = facts_[use.node.index()].inside;
  for (Linear& x : there(use)) inside.push_back(std::move(x));
  const std::string in = condition(inside);
  const std::string value =
      "load_one(" + home(v.tensor) + " + " + offset_text(v.tensor, flat(v.tensor, key)) + ")";
  const Copies c = copies(key, v.around);
  const std::string only = both(in, owner(c));
  const std::string loaded = only.empty() ? value : only + " ? " + value + " : " + real() + "(0)";
  return c.lane.empty() ? loaded : "shuffle(" + loaded + ", " + c.lane + ")";
}

/// The sums that a thread has at once: indices of loops around them are those of the current turn.
std::vector<int> StitchEmitter::sum_dims(const Value& v) const {
  return own(v.key, k_.node(v.anchor).parent);
}
void StitchEmitter::open_sums(const Value& v) {
  for (int id : sum_dims(v)) open_loop(id);
}
void StitchEmitter::close_sums(const Value& v) {
  for (std::size_t n = sum_dims(v).size(); n > 0; --n) close_loop();
}

void StitchEmitter::start_sum(const Value& v) {
  open_sums(v);
  out_.line(array(v) + " = " + literal_text(identity_of(output_of(v).combine)) + ";");
  close_sums(v);
}

void StitchEmitter::compute(NodeId id) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  const Facts& facts = facts_[id.index()];
  out_.comment("C." + to_text(workload_, n.op));
  std::optional<Run> run = run_of(id);
  const bool braces = run || facts.elements.empty();
  if (braces) {
    out_.open("");
    defined_.emplace_back();
  }
  for (int e : facts.elements)
    if (!run || e != run->element) open_loop(e);
  std::set<int> known;
  const auto define = [&](int i) {
    const Use use{id, i};
    const bool of_run = run && i == run->input;
    const Access& a = op.inputs[static_cast<std::size_t>(i)];
    const std::string value =
        of_run ? run->name + "[" + indices_[static_cast<std::size_t>(run->element)].text + "]"
        : is_gather(a) ? read_gathered(use)
                       : read(use);
    out_.line("const " + real() + " x" + std::to_string(i) + " = " + value + ";");
    known.insert(i);
  };
  if (run) {
    for (int i : named_by(id, run->input)) define(i);
    load_run(id, *run);
    open_loop(run->element);
  }
  for (int i = 0; i < static_cast<int>(op.inputs.size()); ++i)
    if (!known.contains(i)) define(i);
  const auto index = [&](LoopId loop) {
    const auto l = static_cast<std::size_t>(workload_.local_index(n.op, loop));
    return real() + "(" + variables_.text(facts.point[l]) + ")";
  };
  for (std::size_t at : made_by_.at(id)) {
    const Value& v = values_[at];
    const Output& out = output_of(v);
    const std::string value = expression(out.value, real(), index);
    if (is_sum(v)) {
      std::vector<Linear> guards;
      for (const Linear& x : facts.inside)
        if (std::ranges::find(v.inside, x) == v.inside.end()) guards.push_back(x);
      const std::string in = condition(guards);
      out_.line(combined(out.combine, array(v),
                         in.empty() ? value
                                    : "(" + in + " ? " + value + " : " +
                                          literal_text(identity_of(out.combine)) + ")"));
    } else if (v.storage == Storage::registers) {
      out_.line(array(v) + " = " + value + ";");
    } else {
      const std::string in = both(condition(v.inside), owner(copies(v.key, {})));
      const bool shared = v.storage == Storage::shared;
      const std::string place = shared ? shared_at(v, v.key) : "";
      const auto to_home = [&](const std::string& what) {
        return "store_one(" + home(v.tensor) + " + " +
               offset_text(v.tensor, flat(v.tensor, v.key)) + ", " + what + ");";
      };
      // What leaves is stored by the thread that makes it; others read it where it is shared.
      const std::string text = !shared     ? to_home(value)
                               : leaves(v) ? "{ " + place + " = " + value + "; " + to_home(place) + " }"
                                           : place + " = " + value + ";";
      out_.line((in.empty() ? "" : "if (" + in + ") ") + text);
    }
  }
  for (std::size_t i = 0; i < facts.elements.size() + (braces ? 1 : 0); ++i) close_loop();
  for (std::size_t at : made_by_.at(id)) {
    const Value& v = values_[at];
    if (v.storage == Storage::shared && !is_sum(v)) written_.push_back(at);
    if (leaves(v) && !is_sum(v) && v.storage == Storage::registers) store(v);
  }
}

/// The units that have a part of a sum each.
std::vector<int> StitchEmitter::reduced_units(const Value& v) const {
  std::vector<int> units;
  for (int id : reduced(v))
    if (indices_[static_cast<std::size_t>(id)].kind == Index::Kind::unit) units.push_back(id);
  return units;
}

/// Lanes that have different sums once their parts are joined.
std::int64_t StitchEmitter::scratch_lanes(const Value& v) const {
  return copies(v.key, {}).lane == "0" ? 1 : 32;
}

/// Joins the parts that lanes have.
void StitchEmitter::join_lanes(const Value& v) {
  std::string text;
  for (int id : reduced_units(v)) {
    const Index& i = indices_[static_cast<std::size_t>(id)];
    if (i.unit == Binding::warp) continue;
    const bool thread = i.unit == Binding::thread;
    text += array(v) + " = over_lanes<" + std::to_string(thread ? 32 : i.count) + ", " +
            std::to_string(thread ? 1 : i.stride) + ">(" + array(v) + ", " +
            functor(output_of(v).combine) + "); ";
  }
  if (text.empty()) return;
  text.pop_back();
  open_sums(v);
  out_.line(text);
  close_sums(v);
}

/// Where a thread's value lies among all values of the array that it has.
std::string StitchEmitter::place_among(const Value& v) const {
  std::string at;
  for (int id : sum_dims(v)) {
    const Index& i = indices_[static_cast<std::size_t>(id)];
    at = at.empty() ? i.text : "(" + at + ") * " + std::to_string(i.count) + " + " + i.text;
  }
  return at.empty() ? "0" : at;
}

/// Whether a sum over all warps is only written home: then each warp joins some of its values.
bool StitchEmitter::shared_out(const Value& v) const {
  return v.uses.empty() && warps_ > 1 && copies(v.key, {}).warp == "0" &&
         std::ranges::any_of(reduced_units(v), [this](int id) {
           return indices_[static_cast<std::size_t>(id)].unit != Binding::lane;
         });
}

/// "warp == ...": the one that joins and writes a value; those that are written at once are one's.
std::string StitchEmitter::joining_warp(const Value& v) const {
  const Strip run = strip_of(v);
  std::string at;
  const auto append = [&at](const std::string& index, std::int64_t count) {
    at = at.empty() ? index : "(" + at + ") * " + std::to_string(count) + " + " + index;
  };
  for (int id : sum_dims(v)) {
    const Index& i = indices_[static_cast<std::size_t>(id)];
    if (id != run.element) append(i.text, i.count);
  }
  if (run.element >= 0 && !run.whole) {
    const Index& i = indices_[static_cast<std::size_t>(run.element)];
    append(run.width == 1 ? i.text : i.text + " / " + std::to_string(run.width),
           ceil_div(i.count, run.width));
  }
  return "warp == " + (at.empty() ? "0" : "(" + at + ") % " + std::to_string(warps_));
}

/// A warp's slot for a value of a sum, in shared memory.
std::string StitchEmitter::part(const Value& v, const std::string& parts,
                                const std::string& warp) const {
  const bool one = scratch_lanes(v) == 1;
  return parts + "[((" + place_among(v) + ") * " + std::to_string(warps_) + " + " + warp + ")" +
         (one ? "]" : " * 32 + lane]");
}

/// Joins the parts that warps have of some sums, at one barrier.
void StitchEmitter::join_warps(const std::vector<std::size_t>& sums, const std::string& flip) {
  std::vector<std::string> parts;
  for (std::size_t i : sums) {
    const Value& v = values_[i];
    parts.push_back(names_.fresh(v.name + "_parts"));
    const std::string more =
        flip.empty() ? "" : " + " + flip + " * " + std::to_string(scratch_elements(v));
    out_.line(real() + "* const " + parts.back() + " = reinterpret_cast<" + real() +
              "*>(memory + " + std::to_string(scratch_.at(i)) + ")" + more + ";");
    open_sums(v);
    out_.line((scratch_lanes(v) == 1 ? "if (lane == 0) " : "") + part(v, parts.back(), "warp") +
              " = " + array(v) + ";");
    close_sums(v);
  }
  out_.line("block_sync();");
  for (std::size_t i = 0; i < sums.size(); ++i) add_up_parts(values_[sums[i]], parts[i]);
}

void StitchEmitter::add_up_parts(const Value& v, const std::string& parts) {
  std::string from = "warp";
  std::int64_t group = 1;
  std::vector<std::pair<std::int64_t, std::int64_t>> counts;  // of warps, and how far apart
  for (int id : reduced_units(v)) {
    const Index& i = indices_[static_cast<std::size_t>(id)];
    if (i.unit == Binding::lane) continue;
    const bool thread = i.unit == Binding::thread;
    counts.emplace_back(thread ? warps_ : i.count, thread ? 1 : i.stride);
    group *= counts.back().first;
    from += " - " + times(i.stride, i.text);
  }
  from = group == warps_ ? "" : named("int", "first_warp", from) + " + ";
  open_sums(v);
  if (shared_out(v)) out_.open("if (" + joining_warp(v) + ")");
  out_.line(array(v) + " = " + literal_text(identity_of(output_of(v).combine)) + ";");
  for (std::size_t c = 0; c < counts.size(); ++c) {
    const std::string w = names_.fresh("w");
    out_.line("TW_UNROLL");
    out_.open("for (int " + w + " = 0; " + w + " < " + std::to_string(counts[c].first) + "; ++" +
              w + ")");
    from += (c == 0 ? "" : " + ") + times(counts[c].second, w);
  }
  // A block may have warps that are no whole group.
  const std::string exists =
      warps_ % group == 0 ? "" : "if (" + from + " < " + std::to_string(warps_) + ") ";
  out_.line(exists + combined(output_of(v).combine, array(v), part(v, parts, "(" + from + ")")));
  for (std::size_t i = 0; i < counts.size(); ++i) out_.close();
  if (shared_out(v)) out_.close();
  close_sums(v);
}

void StitchEmitter::finish_sums(NodeId anchor) {
  std::vector<std::size_t> sums, together;
  for (std::size_t i = 0; i < values_.size(); ++i)
    if (is_sum(values_[i]) && values_[i].anchor == anchor) sums.push_back(i);
  for (std::size_t i : sums) {
    join_lanes(values_[i]);
    if (scratch_.contains(i) && !long_sums_.contains(i)) together.push_back(i);
  }
  if (!together.empty()) {
    const auto flip = flips_.find(anchor);
    // In a loop, turns use one of two places: who still reads the last turn's is not waited for.
    if (flip != flips_.end()) out_.line(flip->second + " ^= 1;");
    join_warps(together, flip == flips_.end() ? "" : flip->second);
  }
  for (std::size_t i : sums) {
    if (!long_sums_.contains(i)) continue;
    if (!open_.empty() || long_place_taken_) out_.line("block_sync();");
    long_place_taken_ = true;
    join_warps({i}, "");
  }
  for (std::size_t i : sums) keep_sum(i);
}

/// A sum that is complete, to where it goes.
void StitchEmitter::keep_sum(std::size_t value) {
  const Value& v = values_[value];
  if (leaves(v)) store(v);
  if (v.storage != Storage::shared) return;
  const std::vector<int> ids = own(v.key, k_.node(v.anchor).parent);
  for (int id : ids) open_loop(id);
  const std::string in = both(condition(v.inside), owner(copies(v.key, {})));
  out_.line((in.empty() ? "" : "if (" + in + ") ") + shared_at(v, v.key) + " = " + array(v) + ";");
  for (std::size_t k = 0; k < ids.size(); ++k) close_loop();
  written_.push_back(value);
}

}  // namespace tilewright::cuda
