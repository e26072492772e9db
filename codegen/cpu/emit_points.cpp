// Any operator, point by point: loops over its box, a vector at a time along a loop that every
// access walks contiguously or not at all, else one element at a time.
#include <algorithm>
#include <memory>

#include "codegen/cpu/followers.h"
#include "codegen/cpu/points.h"
#include "core/workload/joins.h"

namespace tilewright::cpu {

/// The points of one compute's box: the loops over them and the elements that they touch.
class KernelEmitter::Points : PointText {
 public:
  Points(KernelEmitter& e, NodeId id, const SymRanges& ranges)
      : PointText(e, id, ranges), reduces_(!w_.reduction_loops(n_.op).empty()) {
    for (std::size_t l = 0; l < op_.loops.size(); ++l)
      names_[l] = e.names_.fresh(identifier("p_", w_.loop(op_.loops[l]).name));
    runs_ =
        std::ranges::any_of(op_.outputs, [](const Output& o) { return names_outputs(o.value); });
    vector_ = vector_loop();
    e_.p_.prelude.functions = true;
    if (vector_ >= 0) e_.p_.prelude.vectors = true;
  }

  /// Whether vectors run along that loop.
  bool runs_along(int loop) const { return vector_ == loop; }

  void emit() {
    if (reduces_) e_.take_reals(id_, {});  // sums are not rounded before they are whole
    for (std::size_t i = 0; i < op_.inputs.size(); ++i) input_array(i);
    for (std::size_t o = 0; o < n_.writes.size(); ++o)
      array(n_.writes[o].buffer, name_out(o), false);
    if (vector_ >= 0 && !is_reduction(vector_) && n_.writes.size() == 1)
      followers_ = std::make_unique<Followers>(e_, id_, vector_, ranges_, names_);
    if (followers_ && followers_->empty()) followers_.reset();
    if (followers_) followers_->begin();
    if (!emit_copy() && !emit_parts()) all_points();
    if (followers_) followers_->end();
  }

  /// What the results so far are multiplied by before this block of the reduction is combined in
  /// (rule 14), where this is done apart from combining.
  void emit_rescaling() {
    const Output& out = output(0);
    if (!out.rescale || fresh_[0] == "true") return;
    open_unless(fresh_[0]);
    for (std::size_t i = 0; i < op_.inputs.size(); ++i)
      if (w_.gathers(n_.op) || reads_input(*out.rescale, static_cast<int>(i))) input_array(i);
    array(n_.writes[0].buffer, name_out(0), false);
    const int opened = open(false, vector_);
    const auto scaled = [&](Width width) {
      inputs(width, {&*out.rescale});
      e_.out_.line(type(width) + " y0 = " + loaded(width, 0) + ";");
      e_.out_.line("y0 *= " + value(width, *out.rescale) + ";");
      store(width, 0);
    };
    if (vector_ < 0 || is_reduction(vector_))
      scaled(Width::one);
    else
      by_vectors(scaled);
    close(opened + 1);
  }

 private:
  /// The longest loop that vectors can run along; -1: none. Along a reduction, lanes are joined at
  /// its end.
  int vector_loop() const {
    if (e_.p_.vector_bytes == 0) return -1;
    int best = -1;
    for (int l = 0; l < static_cast<int>(op_.loops.size()); ++l) {
      if (range_of(l).most < 2 || (best >= 0 && range_of(l).most <= range_of(best).most)) continue;
      bool fits = true, walks = false;
      for (std::size_t i = 0; i < op_.inputs.size(); ++i) {
        const std::int64_t step = input_stride(i, l);
        fits = fits && reads_along(i, l, step);
        walks = walks || step == 1;
      }
      for (std::size_t o = 0; o < n_.writes.size(); ++o) {
        fits =
            fits && stride(output(o).target, n_.writes[o].buffer, l) == (is_reduction(l) ? 0 : 1);
        if (!is_reduction(l)) continue;
        if (names_outputs(output(o).value))
          for (std::size_t i = 0; i < op_.inputs.size(); ++i)
            fits = fits && !reads_input(output(o).value, static_cast<int>(i));
        else
          fits = fits && output(o).combine != Combine::assign;
      }
      if (fits && (walks || !is_reduction(l))) best = l;
    }
    return best;
  }

  /// Whether vectors along a loop read that input: still, densely, or as a strip. What is outside
  /// is zero as an input, but would be no part of a reduction's lanes.
  bool reads_along(std::size_t i, int l, std::int64_t step) const {
    const Access& a = op_.inputs[i];
    const bool dense = step == 0 || step == 1;
    if (!can_leave(w_, op_, a) && dense) return true;
    if (is_gather(a) || is_reduction(l)) return false;
    if (step != 0) return strip(i, l).has_value();
    // Dimensions that the loop moves against each other may keep the element, and leave the tensor.
    const LoopId loop = op_.loops[static_cast<std::size_t>(l)];
    for (std::size_t d = 0; d < a.index.size(); ++d)
      if (leaves(a, d) &&
          std::ranges::any_of(a.index[d].terms, [&](const Term& t) { return t.loop == loop; }))
        return false;
    return true;
  }

  void all_points() {
    const int opened = open(false, vector_);
    if (vector_ >= 0) begin_values(values());
    const int chains = chains_of_followers();
    if (followers_) followers_->begin_row(chains);
    if (vector_ < 0)
      point(Width::one);
    else if (is_reduction(vector_))
      across();
    else
      along(chains);
    if (followers_) followers_->end_row(chains);
    close(opened);
  }

  int chains_of_followers() const {
    if (!followers_ || reduces_ || !within_all().empty()) return 1;
    const auto all = values();
    return followers_->chains(range_of(vector_).most,
                              std::ranges::all_of(all, [](const Expr* e) { return is_light(*e); }));
  }

  /// Tensors put side by side, one after the other: no point asks whose it is. What lies in its
  /// place already is not copied. False: the operator is none that does so.
  bool emit_parts() {
    constexpr std::size_t kMost = 8;
    const std::vector<JoinedPart> parts = joined_parts(w_, n_.op);
    if (parts.empty() || parts.size() > kMost || followers_) return false;
    const LoopId along = *op_.outputs.front().target.index[parts.front().dim].plain_loop();
    const int loop = w_.local_index(n_.op, along);
    if (loop == vector_) return false;
    std::int64_t at = 0;
    const auto segment = [&](std::int64_t end, const std::string& condition) {
      if (at >= end) return;
      segment_ = {.loop = loop, .first = at, .end = end};
      e_.out_.open(condition);
      all_points();
      e_.out_.close();
      at = end;
    };
    for (const JoinedPart& part : parts) {
      segment(part.from, "");
      segment(part.from + part.size, differs(part));
    }
    segment(w_.loop(along).extent, "");
    segment_ = {};
    return true;
  }

  /// A tensor in another shape that lies where it is copied to (same_in_memory) is not copied.
  bool emit_copy() {
    const auto copied = copied_input(w_, n_.op);
    if (!copied || followers_) return false;
    // Tiles of the kernel's own may share memory, one after the other.
    const auto at_home = [&](BufferId b, BufferRole role) {
      return e_.buffer(b).role == role && e_.is_plain(b) && e_.packed_[b.index()].empty();
    };
    if (!(is_gather(op_.inputs[*copied]) || at_home(in(*copied), BufferRole::input)) ||
        !at_home(n_.writes.front().buffer, BufferRole::output))
      return false;
    e_.out_.open("if (static_cast<const void*>(" + name_in(*copied) + ") != " + name_out(0) + ")");
    all_points();
    e_.out_.close();
    return true;
  }

  /// The condition under which a part does not lie where it would be copied to; empty: it never
  /// does.
  std::string differs(const JoinedPart& part) const {
    const auto i = static_cast<std::size_t>(part.input);
    const BufferId from = in(i), to = n_.writes.front().buffer;
    if (!place_in_result(w_, n_.op, part) || !e_.is_plain(from) || !e_.is_plain(to)) return "";
    const auto& own = e_.layouts_[from.index()].stride;
    if (own != e_.layouts_[to.index()].stride || e_.lies_in_bytes(from) != e_.lies_in_bytes(to))
      return "";
    return "if (" + name_in(i) + " != " + name_out(0) + " + " +
           std::to_string(own[part.dim] * part.from) + ")";
  }

  /// Of all outputs whose values do not name outputs.
  std::vector<const Expr*> values() const {
    std::vector<const Expr*> all;
    for (std::size_t o = 0; o < n_.writes.size(); ++o)
      if (!names_outputs(output(o).value)) all.push_back(&output(o).value);
    return all;
  }

  int open(bool reductions, int except) const {
    int opened = 0;
    for (std::size_t l = 0; l < op_.loops.size(); ++l) {
      if (static_cast<int>(l) == except || is_reduction(static_cast<int>(l)) != reductions)
        continue;
      const SymRange& r = range_of(static_cast<int>(l));
      std::string low = e_.variables_.text(r.lo), high = e_.variables_.text(r.hi);
      if (static_cast<int>(l) == segment_.loop) {
        low = "max(" + low + ", " + std::to_string(segment_.first) + ")";
        high = "min(" + high + ", " + std::to_string(segment_.end) + ")";
      }
      e_.out_.open("for (int64_t " + names_[l] + " = " + low + "; " + names_[l] + " < " + high +
                   "; ++" + names_[l] + ")");
      ++opened;
    }
    return opened;
  }
  void open_unless(const std::string& condition) const {
    e_.out_.open(condition == "false" ? "" : "if (!(" + condition + "))");
  }
  void close(int opened) const {
    for (; opened > 0; --opened) e_.out_.close();
  }

  /// Runs `body` over the vector loop: whole vectors, then what is left over. `chain`: counts so
  /// many whole vectors at a time, which need not wait for one another.
  template <class Body>
  void by_vectors(const Body& body, int chains = 1, int* chain = nullptr) const {
    const SymRange& r = range_of(vector_);
    const std::string& p = names_[static_cast<std::size_t>(vector_)];
    const std::string high = e_.variables_.text(r.hi);
    const std::int64_t lanes = e_.p_.vector_bytes / e_.p_.element_bytes;
    const Linear size = r.hi - r.lo;
    e_.out_.line("int64_t " + p + " = " + e_.variables_.text(r.lo) + ";");
    std::string row = is_reduction(vector_) ? "" : shifted_row(0);
    if (row.empty() && followers_) row = followers_->shifted_row();
    if (!row.empty()) {
      e_.out_.line("const int64_t before = before_vector(" + row + ", " + high + " - " + p + ");");
      e_.out_.open("if (before > 0)");
      e_.out_.line("const int64_t count = before;");
      e_.out_.line("const Lanes lanes = first_lanes(count);");
      body(Width::part);
      e_.out_.line(p + " += before;");
      e_.out_.close();
    }
    if (chains > 1) {
      e_.out_.open("for (; " + p + " + " + std::to_string(chains) + " * kLanes <= " + high + ";)");
      for (*chain = 0; *chain < chains; ++*chain) {
        e_.out_.open("");
        body(Width::whole);
        e_.out_.close();
        e_.out_.line(p + " += kLanes;");
      }
      *chain = 0;
      e_.out_.close();
    }
    if (r.most >= lanes) {
      e_.out_.open("for (; " + p + " + kLanes <= " + high + "; " + p + " += kLanes)");
      body(Width::whole);
      e_.out_.close();
    }
    if (row.empty() && size.is_constant() && size.constant % lanes == 0) return;
    e_.out_.open("if (" + p + " < " + high + ")");
    e_.out_.line("const int64_t count = " + high + " - " + p + ";");
    e_.out_.line("const Lanes lanes = first_lanes(count);");
    body(Width::part);
    e_.out_.close();
  }

  /// What each output is before this block: rescaled where there is something to rescale.
  void start(Width width) const {
    for (std::size_t o = 0; o < n_.writes.size(); ++o) {
      std::string first = identity(width, output(o));
      if (fresh_[o] == "false")
        first = loaded(width, o);
      else if (fresh_[o] != "true")
        first = "(" + fresh_[o] + ") ? " + first + " : " + loaded(width, o);
      e_.out_.line(type(width) + " " + y(o) + " = " + first + ";");
      if (!runs_) continue;
      e_.out_.line("const " + type(width) + " before" + std::to_string(o) + " = " + y(o) + ";");
      e_.out_.line("(void)before" + std::to_string(o) + ";");
    }
    for (std::size_t o = 0; o < n_.writes.size(); ++o) {
      const auto& by = output(o).rescale;
      if (!by || fresh_[o] == "true") continue;
      open_unless(fresh_[o]);
      inputs(width, {&*by});
      e_.out_.line(y(o) + " *= " + value(width, *by) + ";");
      e_.out_.close();
    }
  }

  /// Outputs that name what others were and are, then all of them stored.
  void finish(Width width, int chain = 0) const {
    const auto named = [&](int out, bool before) {
      for (std::size_t o = 0; o < n_.writes.size(); ++o)
        if (n_.writes[o].output == out) return (before ? "before" : "y") + std::to_string(o);
      throw Refused{"operator " + op_.name + " reads an output that it does not write here"};
    };
    for (std::size_t o = 0; o < n_.writes.size(); ++o) {
      if (!names_outputs(output(o).value)) continue;
      inputs(width, {&output(o).value});
      e_.out_.line(combined(output(o).combine, y(o), value(width, output(o).value, named)));
    }
    if (!followers_ || followers_->stores())
      for (std::size_t o = 0; o < n_.writes.size(); ++o) store(width, o);
    if (!followers_) return;
    e_.out_.line(std::string("const Vector ") + Followers::kValue + " = " + y(0) + ";");
    followers_->point(width, chain);
  }

  /// `chain`: of those of by_vectors.
  void point(Width width, int chain = 0) const {
    if (!reduces_) {
      inputs(width, values());
      for (std::size_t o = 0; o < n_.writes.size(); ++o)
        e_.out_.line("const " + type(width) + " " + y(o) + " = " + value(width, output(o).value) +
                     ";");
      return finish(width, chain);
    }
    start(width);
    const int opened = open(true, -1);
    inputs(width, values());
    for (std::size_t o = 0; o < n_.writes.size(); ++o)
      if (!names_outputs(output(o).value))
        e_.out_.line(combined(output(o).combine, y(o), value(width, output(o).value)));
    close(opened);
    finish(width);
  }

  /// Vectors of points; those within all tensors need not look where these end.
  void along(int chains) const {
    const std::string condition = within_all();
    int chain = 0;
    by_vectors(
        [&](Width width) {
          if (condition.empty() || width != Width::whole) return point(width, chain);
          e_.out_.open("if (" + condition + ")");
          middle_ = true;
          point(width);
          middle_ = false;
          e_.out_.close();
          e_.out_.open("else");
          point(width);
          e_.out_.close();
        },
        chains, &chain);
  }

  /// The condition under which no lane of a whole vector is outside of what it reads, whatever the
  /// reductions are at; empty: none ever is.
  std::string within_all() const {
    std::string text;
    for (std::size_t i = 0; i < op_.inputs.size(); ++i) {
      const Access& a = op_.inputs[i];
      const auto along = strip(i, vector_);
      if (!along || !along->leaves) continue;
      std::string low, high;
      for (const Term& t : a.index[along->dim].terms) {
        const auto l = static_cast<int>(std::ranges::find(op_.loops, t.loop) - op_.loops.begin());
        std::string first = names_[static_cast<std::size_t>(l)], last = first;
        if (is_reduction(l)) {
          first = "(" + e_.variables_.text(range_of(l).lo) + ")";
          last = "(" + e_.variables_.text(range_of(l).hi) + " - 1)";
          if (t.coefficient < 0) std::swap(first, last);
        } else if (l == vector_) {
          last = "(" + last + " + kLanes - 1)";
        }
        low += times(t.coefficient, first) + " + ";
        high += times(t.coefficient, last) + " + ";
      }
      const std::string offset = std::to_string(a.index[along->dim].offset);
      text += (text.empty() ? "" : " && ") + low + offset + " >= 0 && " + high + offset + " < " +
              std::to_string(w_.tensor(a.tensor).shape[along->dim]);
    }
    return text;
  }

  /// One point at a time; vectors run along its reduction, and their lanes are joined at its end.
  void across() const {
    constexpr int kChains = 4;  // additions that wait for one another take four cycles each
    start(Width::one);
    const std::int64_t lanes = e_.p_.vector_bytes / e_.p_.element_bytes;
    const int chains = range_of(vector_).most >= 2 * kChains * lanes ? kChains : 1;
    int chain = 0;
    const auto part = [&chain](std::size_t o) {
      return "part" + std::to_string(o) + (chain > 0 ? "_" + std::to_string(chain) : "");
    };
    const auto each_part = [&](const auto& write) {
      for (std::size_t o = 0; o < n_.writes.size(); ++o)
        if (!names_outputs(output(o).value))
          for (chain = 0; chain < chains; ++chain) write(o);
      chain = 0;
    };
    each_part([&](std::size_t o) {
      e_.out_.line("Vector " + part(o) + " = " + identity(Width::whole, output(o)) + ";");
    });
    const int opened = open(true, vector_);
    e_.out_.open("");
    by_vectors(
        [&](Width width) {
          inputs(width, values());
          for (std::size_t o = 0; o < n_.writes.size(); ++o) {
            if (names_outputs(output(o).value)) continue;
            std::string next = value(width, output(o).value);
            if (width == Width::part)
              next = "first_of(lanes, " + next + ", " + identity(width, output(o)) + ")";
            e_.out_.line(combined(output(o).combine, part(o), next));
          }
        },
        chains, &chain);
    e_.out_.close();
    close(opened);
    each_part([&](std::size_t o) {
      const std::string other = part(o);
      if (chain > 0) e_.out_.line(combined(output(o).combine, "part" + std::to_string(o), other));
    });
    for (std::size_t o = 0; o < n_.writes.size(); ++o) {
      const Combine combine = output(o).combine;
      if (!names_outputs(output(o).value))
        e_.out_.line(combined(combine, y(o), PointText::across(combine, part(o))));
    }
    finish(Width::one);
  }

  bool reduces_;
  bool runs_ = false;                     ///< some output names what another was
  std::unique_ptr<Followers> followers_;  ///< none: nothing takes its values from registers
};

/// Whether a product read through a window has so few rows, as depthwise convolutions have one,
/// that vectors of its points beat vectors of rows.
bool KernelEmitter::slides(NodeId id, const Window& x, const SymRanges& ranges) {
  constexpr std::int64_t kFewRows = 3;
  const OpId op = k_.node(id).op;
  return !x.direct && (x.rows < 0 || range(ranges, op, x.rows).most <= kFewRows) &&
         Points(*this, id, ranges).runs_along(x.columns);
}

void KernelEmitter::point_loops(NodeId id, const SymRanges& ranges) {
  Points(*this, id, ranges).emit();
}

void KernelEmitter::rescale(NodeId id, const SymRanges& ranges) {
  Points(*this, id, ranges).emit_rescaling();
}

}  // namespace tilewright::cpu
