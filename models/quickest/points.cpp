// What an operator takes that is no product: vectors of its points, or points alone, and rows that
// are joined.
#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "core/lowering/row_values.h"
#include "core/workload/access.h"
#include "core/workload/expr.h"
#include "models/quickest/computes.h"

namespace tilewright::quickest {
namespace {

/// Operations of an extreme of points alone: two comparisons, as NaN stays, and what is chosen.
constexpr double kExtremeAlone = 3;

}  // namespace

/// Whether the expression is the same in all lanes of a vector that runs along the loop.
bool Compute::uniform(const Expr& e, LoopId along) const {
  if (e.kind == Expr::Kind::constant) return true;
  if (e.kind == Expr::Kind::index) return e.loop != along;
  if (e.kind != Expr::Kind::call) return false;
  return std::ranges::all_of(e.args, [&](const Expr& a) { return uniform(a, along); });
}

/// Seconds of a function beside its arguments: of a vector, or of a point that is computed alone.
double Compute::call(const Expr& e, bool alone) const {
  // Beside an exponential of f32. Vectors have longer polynomials, quotients, and integers that are
  // taken out of numbers (codegen/cpu/functions_text.cpp); points alone call the library.
  struct Beside {
    std::string_view name;
    double f32, f64, alone_f32, alone_f64;
  };
  static constexpr std::array kBeside = {
      Beside{"exp", 1, 1.7, 1, 1.1},    Beside{"sqrt", 1, 1, 1, 1},
      Beside{"rsqrt", 1, 1, 1, 1},      Beside{"log", 2.2, 2.7, 1.6, 2.4},
      Beside{"sin", 1.3, 2, 1.1, 4.2},  Beside{"cos", 1.3, 2, 1.1, 4.2},
      Beside{"pow", 5.9, 18, 2.8, 6.5}, Beside{"tanh", 1.45, 4, 0, 0},
      Beside{"erf", 2.3, 5.3, 1, 1.9},  Beside{"gelu", 2.5, 5.6, 1, 2.1}};
  const auto is = [&e](std::initializer_list<std::string_view> names) {
    return std::ranges::find(names, e.function) != names.end();
  };
  const ExprFunction* const f = find_expr_function(e.function);
  const bool light = f != nullptr && f->light == 1, f64 = r_.element == 8;
  const auto at = std::ranges::find(kBeside, e.function, &Beside::name);
  if (alone) {
    if (is({"max", "min"})) return kExtremeAlone * r_.light_one;
    if (light || is({"div", "recip"})) return r_.light_one;
    if (e.function == "tanh") return r_.library_one;
    return (at == kBeside.end() ? 1 : f64 ? at->alone_f64 : at->alone_f32) * r_.expensive_one;
  }
  if (light) return r_.light;
  if (is({"div", "recip"})) return r_.divide;
  const double exponential = r_.expensive * (f64 ? kBeside.front().f64 : 1);
  // Half of its division runs beside the next vector's exponential.
  if (e.function == "sigmoid") return exponential + r_.divide / 2;
  // Roots, products and quotients.
  if (lowering::is_short_power(e))
    return std::fmod(e.args[1].constant, 1) == 0 && e.args[1].constant > 0 ? 2 * r_.light
                                                                           : r_.expensive;
  // Of functions without code for vectors the library's is called for each lane.
  if (at == kBeside.end()) return static_cast<double>(r_.lanes) * r_.expensive_one;
  return (f64 ? at->f64 : at->f32) * r_.expensive;
}

/// What a vector, or a point alone, of an expression costs, lanes along a loop: what all lanes
/// share is a scalar's work beside, as a branch is, and what is written twice is computed once.
double Compute::seconds_of(const Operator& op, const Expr& e, LoopId along,
                           std::vector<const Expr*>& known) const {
  if (e.kind != Expr::Kind::call || uniform(e, along) || lowering::is_of_row(op, e, along))
    return 0;
  if (std::ranges::any_of(known, [&](const Expr* k) { return *k == e; })) return 0;
  known.push_back(&e);
  double seconds = 0;
  for (const Expr& a : e.args) seconds += seconds_of(op, a, along, known);
  if (e.function == "select" && uniform(e.args.front(), along)) return seconds;
  return seconds + call(e, !along.valid());
}

/// What is computed once a row, beside its vectors.
double Compute::row_seconds(const Operator& op, const Expr& e, LoopId along) const {
  double seconds = lowering::is_of_row(op, e, along) ? call(e, true) : 0;
  for (const Expr& a : e.args) seconds += row_seconds(op, a, along);
  return seconds;
}

/// Of all results of an operator, and of combining them; points alone are stored, too.
double Compute::value_seconds(const Operator& op, LoopId along) const {
  const bool alone = !along.valid();
  const double light = alone ? r_.light_one : r_.light;
  std::vector<const Expr*> known;
  double seconds = 0;
  for (const Output& out : op.outputs) {
    seconds += seconds_of(op, out.value, along, known);
    if (alone || out.combine != Combine::assign) seconds += light;
    // As vectors, extremes are compared with themselves beside, and chosen: NaN stays.
    if (!alone && (out.combine == Combine::max || out.combine == Combine::min))
      seconds += 2 * light;
    if (out.rescale) seconds += light;
    if (alone && (out.combine == Combine::max || out.combine == Combine::min))
      seconds += (kExtremeAlone - 1) * light;
  }
  return seconds;
}

/// The longest loop that vectors run along, as the CPU target chooses it: every access walks it
/// element by element or not at all; -1: none does, and points are computed one by one.
Compute::Apart Compute::between_neighbours(int input) const {
  constexpr double kPage = 4096;
  const Operator& op = w_.op(n_.op);
  const Access& a = op.inputs[static_cast<std::size_t>(input)];
  if (r_.caches.empty() || is_gather(a) || !places_.in_place(buffer_read(input))) return {};
  const double element = static_cast<double>(size_of(w_.tensor(a.tensor).dtype)),
               line = r_.caches.front().line;
  const auto step = [&](int l) {  // in bytes
    const LoopId loop = op.loops[static_cast<std::size_t>(l)];
    return element * static_cast<double>(std::abs(places_.stride_at_home(a, loop)));
  };
  // From the innermost loop on: vectors, and then the others as they stand.
  std::vector<int> order;
  if (const int along = vector_loop(); along >= 0) order.push_back(along);
  for (int l = static_cast<int>(op.loops.size()); l-- > 0;)
    if (order.empty() || l != order.front()) order.push_back(l);
  Apart found;
  for (const int l : order) {
    if (most(l) == 1 || step(l) == 0) continue;
    if (step(l) == element) {
      found.elements = std::min(line / element, most(l));
      return found;
    }
    if (found.lines == 1 && std::fmod(step(l), line) == 0)
      found.step = static_cast<std::int64_t>(step(l) / line);
    found.lines *= std::max(1.0, most(l) * std::min(1.0, step(l) / line));
    found.pages *= std::max(1.0, most(l) * std::min(1.0, step(l) / kPage));
  }
  return {};
}

int Compute::vector_loop() const {
  const Operator& op = w_.op(n_.op);
  // What moves from one iteration to the next: nothing (0), to a neighbour (1), further in the same
  // row (2), to another row (3).
  const auto step = [&](const Access& a, LoopId loop, bool packed) {
    int found = 0;
    bool last = true;  // but for dimensions of one element
    for (std::size_t d = a.index.size(); d-- > 0;) {
      for (const Term& t : a.index[d].terms)
        if (t.loop == loop)
          found = std::max(found, !last ? 3 : std::abs(t.coefficient) == 1 ? 1 : 2);
      bool one = w_.tensor(a.tensor).shape[d] == 1;
      if (packed)
        one = one || std::ranges::all_of(a.index[d].terms, [&](const Term& t) {
                return most(w_.local_index(n_.op, t.loop)) == 1;
              });
      last = last && one;
    }
    return found;
  };
  int best = -1;
  for (int l = 0; l < static_cast<int>(op.loops.size()); ++l) {
    if (most(l) < 2 || (best >= 0 && most(l) <= most(best))) continue;
    const LoopId loop = op.loops[static_cast<std::size_t>(l)];
    const bool reduced = w_.is_reduction(n_.op, loop);
    bool fits = true, walks = false;
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      const BufferId buffer = buffer_read(static_cast<int>(i));
      const int by = step(op.inputs[i], loop, buffer.valid() && !places_.in_place(buffer));
      walks = walks || by == 1;
      // Points of a window may lie apart in their row.
      const bool strip = !reduced && by == 2 && through_window(op.inputs[i]);
      // Places that are read from a tensor along the loop are found point by point.
      const bool placed = std::ranges::any_of(op.inputs[i].index, [&](const Affine& x) {
        return x.gathered >= 0 && indexes(op.inputs[static_cast<std::size_t>(x.gathered)], loop);
      });
      fits = fits && !placed && (by < 2 || strip);
    }
    for (const OutputUse& use : n_.writes) {
      const Access& out = op.outputs[static_cast<std::size_t>(use.output)].target;
      fits = fits && step(out, loop, !places_.in_place(use.buffer)) == (reduced ? 0 : 1);
    }
    if (fits && (walks || !reduced)) best = l;
  }
  return best;
}

/// Whether vectors along the loop read what was summed up and stored element by element: a load of
/// several stores waits until these have left.
bool Compute::reads_sums_together(int along) const {
  if (along < 0 || most(along) < 2) return false;
  const Operator& op = w_.op(n_.op);
  const LoopId loop = op.loops[static_cast<std::size_t>(along)];
  return std::ranges::any_of(op.inputs, [&](const Access& a) {
    const OpId by = w_.producer(a.tensor);
    if (!by.valid() || a.index.empty() || !indexes(a, loop)) return false;
    const Operator& sum = w_.op(by);
    return !product_of(w_, by) && !sum.inputs.empty() && !sum.inputs.front().index.empty() &&
           std::ranges::any_of(sum.inputs.front().index.back().terms,
                               [&](const Term& t) { return w_.is_reduction(by, t.loop); });
  });
}

/// Of a vector of all operators before this one whose values it takes from registers.
double Compute::in_step(const InRegisters& registers, const Operator& op, LoopId along) const {
  double seconds = 0;
  for (const Access& a : op.inputs) {
    const OpId by = w_.producer(a.tensor);
    if (!by.valid() || product_of(w_, by)) continue;
    const bool taken = std::ranges::any_of(registers.reads, [&](const auto& read) {
      return &w_.op(read.first) == &op && k_.buffer(read.second).tensor == a.tensor;
    });
    if (taken) seconds += value_seconds(w_.op(by), along) + in_step(registers, w_.op(by), along);
  }
  return seconds;
}

/// What a sum or an extreme along vectors takes beside its additions: each waits for the one
/// before, and the lanes are joined where a row ends. The compiler unrolls short rows, and the next
/// row begins beside.
double Compute::joined(const InRegisters& registers, bool follows, int along) const {
  constexpr double kChains = 4;    // codegen/cpu/emit_points.cpp; a follower has one
  constexpr double kUnrolls = 16;  // vectors
  const Operator& op = w_.op(n_.op);
  const LoopId loop = op.loops[static_cast<std::size_t>(along)];
  const double vectors = std::ceil(most(along) / static_cast<double>(r_.lanes));
  const double outputs = static_cast<double>(op.outputs.size());
  double rows = 1;
  for (int l = 0; l < static_cast<int>(extents_.size()); ++l)
    if (l != along) rows *= most(l);
  const bool chains = !follows && vectors >= 2 * kChains;
  const double steps =
      chains ? std::floor(vectors / kChains) + std::fmod(vectors, kChains) : vectors;
  double waits = 0;
  if (chains || vectors > kUnrolls) {
    const double busy = vectors * (value_seconds(op, loop) + in_step(registers, op, loop));
    // The next row begins beside it as far as the processor looks ahead: each vector's operations,
    // a load and a step of the loop.
    constexpr double kAhead = 256;  // instructions
    const double ahead = std::min(1.0, (busy / r_.light + 2 * vectors) / kAhead);
    waits = std::max(0.0, ahead * steps * kLatency * r_.cycle - busy);
  }
  // A follower keeps a row's lanes apart until the row is whole.
  const double ends = follows ? most(along) / static_cast<double>(w_.loop(loop).extent) : 1;
  const double apart = follows && ends < 1 ? 3 * r_.light : 0;
  return rows * (waits + outputs * (ends * r_.join + apart));
}

/// Least seconds of a step of a sum along no vector, of so many steps: each waits for the one
/// before. Other sums pass beside it as far as a processor looks ahead.
double Compute::waits_of_chain(double steps) const {
  return kLatency * r_.cycle * std::min(1.0, (steps - 1) / kStepsAhead);
}

/// The same where sums of as many steps follow: the one that is waited for, and those beside it
/// that a processor has begun.
double Compute::passing_chains(double steps) const {
  return kLatency * r_.cycle / (1 + kStepsAhead / steps);
}

/// All steps of the reduction that the innermost loop around cuts: tile by tile its sums go on; 1:
/// that loop cuts none.
double Compute::steps_around() const {
  NodeId around = n_.parent;
  while (around.valid() && k_.node(around).kind != NodeKind::loop) around = k_.node(around).parent;
  if (!around.valid()) return 1;
  double steps = 1;
  for (const OpLoop& c : k_.node(around).cuts) {
    if (c.op != n_.op) continue;
    const LoopId loop = w_.op(n_.op).loops[static_cast<std::size_t>(c.local)];
    if (w_.is_reduction(n_.op, loop)) steps *= static_cast<double>(w_.loop(loop).extent);
  }
  return steps;
}

double Compute::points(const InRegisters& registers) const {
  const double points = all_points();
  const Operator& op = w_.op(n_.op);
  const int vector = vector_loop();
  const LoopId along = vector < 0 ? LoopId() : op.loops[static_cast<std::size_t>(vector)];
  const bool alone = vector < 0;
  const double light = alone ? r_.light_one : r_.light;
  double each = value_seconds(op, along);
  // Operations: a second load, and neighbours put together. Vectors of 32 bytes take two shuffles.
  const double apart = static_cast<double>(r_.lanes) * r_.element > 32 ? 2.5 : 9;
  constexpr double kGathered = 2;  // operations: an index that is read is converted and multiplied
  bool follows = registers.beside.contains(n_.op);
  for (const InputUse& use : n_.reads) {
    if (use.buffer.valid() && registers.reads.contains({n_.op, use.buffer}))
      follows = true;
    else
      each += 0.5 * light * static_cast<double>(use.inputs.size());
    for (int i : use.inputs)
      for (const Affine& index : op.inputs[static_cast<std::size_t>(i)].index) {
        if (vector < 0 && index.gathered >= 0) each += kGathered * light;
        for (const Term& t : index.terms)
          if (t.loop == along && std::abs(t.coefficient) > 1)
            each += apart * light * static_cast<double>(std::abs(t.coefficient)) / 2;
      }
  }
  const bool unstored = registers.unstored.contains(n_.writes.front().buffer);
  const double lanes = static_cast<double>(r_.lanes);
  // What a loop leaves over of its last vector costs a vector, too.
  const double run = most(vector), vectors = alone ? 1 : std::ceil(run / lanes);
  // Sums are stored once, where all of the tile's steps are added.
  double steps = 1;
  for (int l = 0; l < static_cast<int>(extents_.size()); ++l)
    if (l != vector && w_.is_reduction(n_.op, op.loops[static_cast<std::size_t>(l)]))
      steps *= most(l);
  const bool across = !alone && w_.is_reduction(n_.op, along);
  // Sums that go on in the next tile pass beside the tile's others.
  const double sums = points / steps / (alone ? 1 : lanes);
  if (!across)
    each =
        std::max(each, waits_of_chain(sums < kLatency ? std::max(steps, steps_around()) : steps));
  const double rows = points / run, stored_rows = rows / steps;
  double seconds = rows * vectors * each;
  if (!alone && !across && !unstored)
    seconds += stored_rows * vectors * r_.store * static_cast<double>(op.outputs.size());
  // A part of a vector that is stored: with AVX2 on a Zen 3, such a store takes ten cycles. Sums of
  // a row, and what stays in registers, leave lanes out by one more operation.
  if (!alone && std::fmod(run, lanes) != 0)
    seconds += stored_rows * (unstored || across ? light : r_.part);
  for (const Output& out : op.outputs) seconds += rows * row_seconds(op, out.value, along);
  if (across) seconds += joined(registers, follows, vector);
  // A row begins; `join` and `part` are measured with rows of one vector, and have most of it.
  constexpr double kRowBegins = 0.5;  // cycles
  if (!follows) seconds += r_.visit + rows * kRowBegins * r_.cycle;
  if (reads_sums_together(vector))
    seconds += r_.reread;
  else
    seconds += waits_for_rows(vector);
  seconds += waits_for_parts(registers, vector, seconds);
  return seconds;
}

/// Seconds until a part of a vector, or points alone, that another operator has just stored in the
/// tile can be loaded as a part of a vector: longer than this tile takes where it is small.
double Compute::waits_for_parts(const InRegisters& registers, int along, double takes) const {
  if (along < 0 || std::fmod(most(along), static_cast<double>(r_.lanes)) == 0) return 0;
  const LoopId loop = w_.op(n_.op).loops[static_cast<std::size_t>(along)];
  for (const InputUse& use : n_.reads) {
    if (!use.buffer.valid() || registers.reads.contains({n_.op, use.buffer})) continue;
    const OpId by = w_.producer(k_.buffer(use.buffer).tensor);
    if (!by.valid() || product_of(w_, by) || visits_since(by) != 1 ||
        !indexes(w_.op(n_.op).inputs[static_cast<std::size_t>(use.inputs.front())], loop))
      continue;
    return std::max(0.0, kPartStored * r_.cycle - takes);
  }
  return 0;
}

/// How often this compute is visited in the iteration in which its kernel has the operator; 0: the
/// kernel has not.
double Compute::visits_since(OpId by) const {
  const auto made = std::ranges::find_if(
      k_.nodes, [by](const ScheduleNode& n) { return n.kind == NodeKind::compute && n.op == by; });
  if (made == k_.nodes.end()) return 0;
  std::set<NodeId> around;
  for (NodeId at = made->parent; at.valid(); at = k_.node(at).parent) around.insert(at);
  double visits = 1;
  for (NodeId at = n_.parent; at.valid() && !around.contains(at); at = k_.node(at).parent)
    if (k_.node(at).kind == NodeKind::loop)
      visits *= static_cast<double>(std::max<std::int64_t>(1, k_.node(at).max_trips));
  return visits;
}

/// Seconds until what was made of a row just before is there, once a tile: the last row's sum is
/// joined, or its root found, before this compute begins with it, and no other row is left that
/// could be worked on meanwhile.
double Compute::waits_for_rows(int along) const {
  constexpr double kJoined = 32, kRoot = 32, kValue = 10;  // cycles
  const Operator& op = w_.op(n_.op);
  double waits = 0;
  for (const Access& a : op.inputs) {
    const OpId by = w_.producer(a.tensor);
    if (!by.valid() || product_of(w_, by)) continue;
    if (along >= 0 && indexes(a, op.loops[static_cast<std::size_t>(along)])) continue;
    const bool sums = !w_.reduction_loops(by).empty();
    const bool light = std::ranges::all_of(w_.op(by).outputs, [](const Output& o) {
      return o.value.kind != Expr::Kind::call || (find_expr_function(o.value.function) != nullptr &&
                                                  find_expr_function(o.value.function)->light == 1);
    });
    if (along < 0 && !sums) continue;  // a point alone
    const double visits = visits_since(by);
    if (visits > 0) waits = std::max(waits, (sums ? kJoined : light ? kValue : kRoot) / visits);
  }
  return waits * r_.cycle;
}

}  // namespace tilewright::quickest
