#include <algorithm>
#include <optional>
#include <utility>

#include "codegen/cpu/followers.h"
#include "core/lowering/checks.h"
#include "core/workload/expr.h"
#include "core/workload/text.h"

namespace tilewright::cpu {
namespace {

/// What a subtree reads and writes. Loading a tile changes what is read from its buffer, unless
/// that is read where it lies.
struct Touched {
  std::set<TensorId> read, written;
  bool barrier = false;

  /// Whether what it touches must come before, or after, what the other touches.
  bool meets(const Touched& other) const;
};

void touch(const Workload& w, const ScheduledKernel& k, const std::vector<bool>& lies_at_home,
           NodeId id, Touched& t) {
  const ScheduleNode& n = k.node(id);
  if (n.kind == NodeKind::sync || n.kind == NodeKind::drop) t.barrier = true;
  if (n.kind == NodeKind::load && !lies_at_home[n.buffer.index()]) t.written.insert(n.tensor);
  if (n.kind == NodeKind::store) t.read.insert(n.tensor);
  if (n.kind == NodeKind::compute) {
    for (const Access& a : w.op(n.op).inputs) t.read.insert(a.tensor);
    for (const Output& o : w.op(n.op).outputs) t.written.insert(o.target.tensor);
  }
  for (NodeId c : n.children) touch(w, k, lies_at_home, c, t);
}

bool meet(const std::set<TensorId>& a, const std::set<TensorId>& b) {
  return std::ranges::any_of(a, [&b](TensorId t) { return b.contains(t); });
}

bool Touched::meets(const Touched& other) const {
  return meet(read, other.written) || meet(written, other.read) || meet(written, other.written);
}

/// By dimension: the loop, as a position in op.loops, that alone indexes it; none where some
/// dimension has no such loop or two have the same.
std::optional<std::vector<int>> plain_loops(const Workload& w, OpId op, const Access& a) {
  std::vector<int> loops;
  for (const Affine& index : a.index) {
    const auto loop = index.plain_loop();
    if (!loop) return std::nullopt;
    const int local = w.local_index(op, *loop);
    if (std::ranges::find(loops, local) != loops.end()) return std::nullopt;
    loops.push_back(local);
  }
  if (loops.empty()) return std::nullopt;
  return loops;
}

}  // namespace

/// Before child `i` of a body is emitted: the computes behind it that could run as its one
/// compute's values are made. Nothing between them and it touches what they touch. Element-wise
/// ones that read none of these values may, too, where one that does reads what they make.
void KernelEmitter::look_for_followers(const std::vector<NodeId>& children, std::size_t i,
                                       const SymRanges& ranges) {
  const NodeId producer = lowering::only_compute(k_, children[i], 1);
  if (!producer.valid() || p_.vector_bytes == 0 || p_.options.count) return;
  const Workload& w = p_.workload();
  std::vector<bool> lies_at_home;
  for (std::size_t b = 0; b < k_.buffers.size(); ++b)
    lies_at_home.push_back(is_plain(BufferId(b)) && packed_[b].empty());
  std::set<TensorId> made;
  for (const Output& o : w.op(k_.node(producer).op).outputs) made.insert(o.target.tensor);
  std::vector<Touched> own(children.size());
  for (std::size_t j = i + 1; j < children.size(); ++j)
    touch(w, k_, lies_at_home, children[j], own[j]);
  std::vector<Waiting> waiting;
  std::set<std::size_t> apart;  // of `children`: nobody asks for them here
  for (bool again = true; again;) {
    std::set<TensorId> known = made, asked;
    Touched between;
    std::vector<std::size_t> places;
    waiting.clear();
    for (std::size_t j = i + 1; j < children.size() && !between.barrier; ++j) {
      const NodeId other = lowering::only_compute(k_, children[j], 0);
      const bool follows = other.valid() && meet(own[j].read, known);
      if (other.valid() && !own[j].meets(between) && !apart.contains(j) &&
          (follows || w.reduction_loops(k_.node(other).op).empty())) {
        if (follows) known.insert(own[j].written.begin(), own[j].written.end());
        waiting.push_back({.id = other, .ranges = ranges, .beside = !follows});
        places.push_back(j);
      } else {
        touch(w, k_, lies_at_home, children[j], between);
      }
    }
    again = false;
    for (std::size_t j = waiting.size(); j-- > 0;)
      if (waiting[j].beside && !meet(own[places[j]].written, asked))
        again = apart.insert(places[j]).second;
      else
        asked.insert(own[places[j]].read.begin(), own[places[j]].read.end());
  }
  // A body within this one, entered next, may have the same compute first, and nearer ones behind
  // it.
  if (!waiting.empty()) waiting_[producer] = std::move(waiting);
}

KernelEmitter::Follower::Follower(KernelEmitter& e, NodeId id, const SymRanges& ranges, int number,
                                  int vector, std::vector<std::string> names,
                                  std::vector<std::string> values)
    : PointText(e, id, ranges, "_" + std::to_string(number)),
      values_(std::move(values)),
      value_("v" + std::to_string(number)),
      reduces_(!w_.reduction_loops(n_.op).empty()) {
  names_ = std::move(names);
  vector_ = vector;
  e.p_.prelude.functions = e.p_.prelude.vectors = true;
}

/// Where a row's lanes, not joined yet, are: a vector for each element that they will become.
std::string KernelEmitter::Follower::lanes_of_row() const {
  return "part" + suffix_ + " + (&" + result(0) + " - " +
         e_.tile_names_[n_.writes[0].buffer.index()] + ") * kLanes";
}

void KernelEmitter::Follower::over_rows(const std::string& condition,
                                        const std::function<std::string()>& statement) {
  const std::vector<std::string> points = names_;
  e_.out_.open(condition.empty() ? "" : "if (" + condition + ")");
  int opened = 1;
  for (int l = 0; l < static_cast<int>(op_.loops.size()); ++l) {
    if (l == vector_) continue;
    std::string& name = names_[static_cast<std::size_t>(l)];
    const Loop& loop = w_.loop(op_.loops[static_cast<std::size_t>(l)]);
    name = e_.names_.fresh(identifier("p_", loop.name));
    e_.out_.open("for (int64_t " + name + " = " + e_.variables_.text(range_of(l).lo) + "; " + name +
                 " < " + e_.variables_.text(range_of(l).hi) + "; ++" + name + ")");
    ++opened;
  }
  e_.out_.line(statement());
  for (; opened > 0; --opened) e_.out_.close();
  names_ = points;
}

void KernelEmitter::Follower::begin() {
  e_.out_.comment("C." + to_text(w_, n_.op) + ", from registers");
  e_.prepare_outputs(id_, ranges_);
  for (std::size_t i = 0; i < op_.inputs.size(); ++i)
    if (values_[i].empty()) array(in(i), name_in(i), true);
  if (stores_)
    array(n_.writes[0].buffer, name_out(0), false);
  else
    e_.out_.line("(void)" + e_.tile_names_[n_.writes[0].buffer.index()] + ";");
  if (!reduces_) return;
  Kept& lanes = e_.lanes_of_rows_[id_];
  lanes.bytes =
      e_.layouts_[n_.writes[0].buffer.index()].bytes * (e_.p_.vector_bytes / e_.p_.element_bytes);
  e_.out_.line("Real* const part" + suffix_ + " = reinterpret_cast<Real*>(memory + " +
               std::to_string(lanes.offset) + ");");
  if (fresh_[0] == "false") return;
  over_rows(fresh_[0] == "true" ? "" : fresh_[0], [this] {
    return "store(" + lanes_of_row() + ", " + identity(Width::whole, output(0)) + ");";
  });
}

void KernelEmitter::Follower::begin_row(int chains) {
  begin_values({&output(0).value}, values_);
  if (!reduces_) return;
  e_.out_.line("Vector " + value_ + " = vector_at(" + lanes_of_row() + ");");
  for (int chain = 1; chain < chains; ++chain)
    e_.out_.line("Vector " + in_chain(chain) + " = " + identity(Width::whole, output(0)) + ";");
}

void KernelEmitter::Follower::point(Width width, int chain) {
  if (!reduces_) e_.out_.line("Vector " + value_ + ";");
  e_.out_.open("");
  inputs(width, {&output(0).value}, values_);
  std::string next = PointText::value(width, output(0).value);
  if (reduces_) {
    if (width == Width::part)
      next = "first_of(lanes, " + next + ", " + identity(width, output(0)) + ")";
    e_.out_.line(combined(output(0).combine, in_chain(chain), next));
  } else {
    e_.out_.line("const Vector " + y(0) + " = " + next + ";");
    if (stores_) store(width, 0);
    e_.out_.line(value_ + " = " + y(0) + ";");
  }
  e_.out_.close();
}

/// Asks for what it reads at home, and for where it writes, a vector along the columns.
void KernelEmitter::Follower::fetch() {
  const auto ask = [&](const std::string& element, BufferId b, const Access& a, bool writes) {
    if (!e_.packed_[b.index()].empty() || stride(a, b, vector_) != 1) return;
    e_.out_.line("__builtin_prefetch(&" + element + (writes ? ", 1);" : ");"));
  };
  for (std::size_t i = 0; i < op_.inputs.size(); ++i)
    if (values_[i].empty())
      ask(element(in(i), op_.inputs[i], name_in(i)), in(i), op_.inputs[i], false);
  if (stores_ && !reduces_ && !past_caches(0))
    ask(result(0), n_.writes[0].buffer, output(0).target, true);
}

void KernelEmitter::Follower::end_row(int chains) {
  if (!reduces_) return;
  for (int chain = 1; chain < chains; ++chain)
    e_.out_.line(combined(output(0).combine, value_, in_chain(chain)));
  e_.out_.line("store(" + lanes_of_row() + ", " + value_ + ");");
}

void KernelEmitter::Follower::end() {
  if (!reduces_) return;
  const Linear left = number(w_.loop(op_.loops[static_cast<std::size_t>(vector_)]).extent) -
                      e_.range(ranges_, n_.op, vector_).hi;
  const std::string last = e_.variables_.upper(left) <= 0 ? "" : e_.variables_.text(left) + " == 0";
  over_rows(last, [this] {
    return result(0) + " = " + across(output(0).combine, "vector_at(" + lanes_of_row() + ")") + ";";
  });
}

std::string KernelEmitter::Followers::shifted_row() const {
  for (const auto& follower : all_)
    if (std::string row = follower->shifted_row(); !row.empty()) return row;
  return "";
}

/// Values that are in registers at a point.
struct KernelEmitter::Followers::Known {
  TensorId tensor;
  std::string value;
  std::vector<std::string> names;  ///< by dimension: the index
  std::vector<SymRange> ranges;    ///< by dimension
  std::vector<LoopId> loops = {};  ///< by dimension; of the producer's values alone
};

KernelEmitter::Followers::Followers(KernelEmitter& e, NodeId producer, int columns,
                                    const SymRanges& ranges, const std::vector<std::string>& names,
                                    int outer, std::int64_t width)
    : e_(e), width_(width) {
  const ScheduleNode& n = e_.k_.node(producer);
  const Workload& w = e_.p_.workload();
  const auto waiting = e_.waiting_.find(producer);
  if (waiting == e_.waiting_.end() || n.once || n.writes.size() != 1 || n.writes[0].atomic ||
      w.op(n.op).running || !e_.is_plain(n.writes[0].buffer) || !complete(producer, ranges))
    return;
  const Access& target = w.op(n.op).outputs[static_cast<std::size_t>(n.writes[0].output)].target;
  const auto loops = plain_loops(w, n.op, target);
  if (!loops || loops->back() != columns) return;
  column_ = names[static_cast<std::size_t>(columns)];
  if (outer >= 0) outer_ = names[static_cast<std::size_t>(outer)];
  std::vector<Known> known{{.tensor = target.tensor, .value = kValue, .names = {}, .ranges = {}}};
  for (int l : *loops) {
    known[0].names.push_back(names[static_cast<std::size_t>(l)]);
    known[0].ranges.push_back(e_.range(ranges, n.op, l));
    known[0].loops.push_back(w.op(n.op).loops[static_cast<std::size_t>(l)]);
  }
  std::vector<NodeId> order;
  // One that is not taken stays where it stands. So does all behind it that it must come before,
  // and all behind one that reads the producer's values.
  Touched left;
  std::size_t last = 0;
  for (const Waiting& next : waiting->second) {
    Touched own;
    touch(w, e_.k_, {}, next.id, own);
    if (!own.meets(left) && take(next, known)) {
      order.push_back(next.id);
      if (!next.beside) last = order.size();
    } else if (next.beside) {
      touch(w, e_.k_, {}, next.id, left);
    } else {
      break;
    }
  }
  order.resize(last), all_.resize(last), flat_.resize(last);
  std::set<NodeId> taken(order.begin(), order.end());
  // What is stored must lie flat. What was read by those that are left out is stored, too.
  for (std::size_t i = 0; i < all_.size();) {
    if (flat_[i] || all_[i]->reduces() || !leaves_registers(all_[i]->result_buffer(), taken)) {
      ++i;
      continue;
    }
    all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(i), all_.end());
    taken = {order.begin(), order.begin() + static_cast<std::ptrdiff_t>(i)};
    i = 0;
  }
  e_.followed_.insert(taken.begin(), taken.end());
  stores_ = leaves_registers(n.writes[0].buffer, taken);
  for (const auto& f : all_)
    if (!f->reduces() && !leaves_registers(f->result_buffer(), taken)) f->only_in_registers();
}

/// Whether somebody beside those that follow reads what is made.
bool KernelEmitter::Followers::leaves_registers(BufferId id, const std::set<NodeId>& taken) const {
  const Buffer& b = e_.buffer(id);
  bool leaves = b.role != BufferRole::intermediate || b.leaves;
  for (std::size_t i = 0; i < e_.k_.nodes.size(); ++i)
    for (const InputUse& use : e_.k_.nodes[i].reads)
      leaves = leaves || (use.buffer == id && !taken.contains(NodeId(i)));
  return leaves;
}

/// Whether the producer's sums are whole when they are made.
bool KernelEmitter::Followers::complete(NodeId producer, const SymRanges& ranges) const {
  const Workload& w = e_.p_.workload();
  const OpId op = e_.k_.node(producer).op;
  return std::ranges::all_of(w.reduction_loops(op), [&](LoopId l) {
    const SymRange& r = e_.range(ranges, op, w.local_index(op, l));
    return e_.variables_.upper(r.lo) <= 0 &&
           e_.variables_.upper(number(w.loop(l).extent) - r.hi) <= 0;
  });
}

bool KernelEmitter::Followers::take(const Waiting& next, std::vector<Known>& known) {
  const NodeId id = next.id;
  const SymRanges& ranges = next.ranges;
  const ScheduleNode& n = e_.k_.node(id);
  const Workload& w = e_.p_.workload();
  const Operator& op = w.op(n.op);
  if (n.once || op.running || w.gathers(n.op) || n.writes.size() != 1 || n.writes[0].atomic ||
      !e_.is_plain(n.writes[0].buffer))
    return false;
  const Output& out = op.outputs[static_cast<std::size_t>(n.writes[0].output)];
  if (out.rescale || names_outputs(out.value)) return false;

  std::vector<std::string> names(op.loops.size()), values(op.inputs.size());
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const Access& a = op.inputs[i];
    if (can_leave(w, op, a) || !e_.is_plain(buffer_of_input(n, static_cast<int>(i)))) return false;
    const auto source = std::ranges::find(known, a.tensor, &Known::tensor);
    if (source == known.end()) {
      if (std::ranges::find(written_, a.tensor) != written_.end()) return false;
      continue;
    }
    const auto loops = plain_loops(w, n.op, a);
    if (!loops) return false;
    for (std::size_t d = 0; d < loops->size(); ++d) {
      const SymRange& own = e_.range(ranges, n.op, (*loops)[d]);
      const SymRange& theirs = source->ranges[d];
      std::string& name = names[static_cast<std::size_t>((*loops)[d])];
      if (e_.variables_.text(own.lo) != e_.variables_.text(theirs.lo) ||
          e_.variables_.text(own.hi) != e_.variables_.text(theirs.hi) ||
          (!name.empty() && name != source->names[d]))
        return false;
      name = source->names[d];
    }
    values[i] = source->value;
  }
  if (next.beside) {
    // The producer's very points: the same loops, and no fewer.
    if (op.loops.size() != known[0].loops.size()) return false;
    for (std::size_t d = 0; d < known[0].loops.size(); ++d) {
      const auto l = std::ranges::find(op.loops, known[0].loops[d]) - op.loops.begin();
      if (l == std::ssize(op.loops)) return false;
      const SymRange& own = e_.range(ranges, n.op, static_cast<int>(l));
      std::string& name = names[static_cast<std::size_t>(l)];
      if (e_.variables_.text(own.lo) != e_.variables_.text(known[0].ranges[d].lo) ||
          e_.variables_.text(own.hi) != e_.variables_.text(known[0].ranges[d].hi) ||
          (!name.empty() && name != known[0].names[d]))
        return false;
      name = known[0].names[d];
    }
  }
  const auto column = std::ranges::find(names, column_);
  if (column == names.end() || std::ranges::find(names, "") != names.end()) return false;
  const int vector = static_cast<int>(column - names.begin());
  if (!fits_vectors(n, vector, values) || !reads_flat(n, vector, names, values)) return false;

  all_.push_back(std::make_unique<Follower>(e_, id, ranges, static_cast<int>(all_.size()) + 1,
                                            vector, names, values));
  flat_.push_back(stores_flat(n, vector, names));
  written_.push_back(out.target.tensor);
  const auto loops = plain_loops(w, n.op, out.target);
  if (all_.back()->reduces() || !loops) return true;
  Known made{.tensor = out.target.tensor, .value = all_.back()->value(), .names = {}, .ranges = {}};
  for (int l : *loops) {
    made.names.push_back(names[static_cast<std::size_t>(l)]);
    made.ranges.push_back(e_.range(ranges, n.op, l));
  }
  known.push_back(std::move(made));
  return true;
}

/// Whether an operator's elements can be vectors along this loop, which its reduction, if it has
/// one, joins into one.
bool KernelEmitter::Followers::fits_vectors(const ScheduleNode& n, int vector,
                                            const std::vector<std::string>& values) const {
  const Operator& op = e_.p_.workload().op(n.op);
  const LoopId loop = op.loops[static_cast<std::size_t>(vector)];
  const auto step = [&](const Access& a, BufferId b) {
    return loop_stride(a, loop, e_.layouts_[b.index()].stride);
  };
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const auto walked = step(op.inputs[i], buffer_of_input(n, static_cast<int>(i)));
    if (values[i].empty() && walked != 0 && walked != 1) return false;
  }
  const Output& out = op.outputs[static_cast<std::size_t>(n.writes[0].output)];
  const auto reductions = e_.p_.workload().reduction_loops(n.op);
  const BufferId to = n.writes[0].buffer;
  if (reductions.empty()) return out.combine == Combine::assign && step(out.target, to) == 1;
  const Buffer& b = e_.buffer(to);
  return reductions.size() == 1 && reductions[0] == loop && out.combine != Combine::assign &&
         b.role == BufferRole::intermediate && b.fixed_at.valid();
}

/// Whether a tensor's elements lie one row of columns after the other.
bool KernelEmitter::Followers::is_flat(const Operator& op, const Access& a, BufferId b, int column,
                                       const std::vector<std::string>& names) const {
  const auto outer = std::ranges::find(names, outer_) - names.begin();
  const auto& stride = e_.layouts_[b.index()].stride;
  return loop_stride(a, op.loops[static_cast<std::size_t>(outer)], stride) ==
         width_ * loop_stride(a, op.loops[static_cast<std::size_t>(column)], stride);
}

/// Whether what an operator reads from memory lies flat, and nothing asks which row it is.
bool KernelEmitter::Followers::reads_flat(const ScheduleNode& n, int column,
                                          const std::vector<std::string>& names,
                                          const std::vector<std::string>& values) const {
  if (outer_.empty()) return true;
  const Operator& op = e_.p_.workload().op(n.op);
  const auto outer = std::ranges::find(names, outer_);
  if (outer == names.end() || !e_.p_.workload().reduction_loops(n.op).empty()) return false;
  const LoopId rows = op.loops[static_cast<std::size_t>(outer - names.begin())];
  const LoopId columns = op.loops[static_cast<std::size_t>(column)];
  for (std::size_t i = 0; i < op.inputs.size(); ++i)
    if (values[i].empty() &&
        !is_flat(op, op.inputs[i], buffer_of_input(n, static_cast<int>(i)), column, names))
      return false;
  bool asks = false;
  each_index(op.outputs[static_cast<std::size_t>(n.writes[0].output)].value,
             [&](LoopId l) { asks = asks || l == rows || l == columns; });
  return !asks;
}

bool KernelEmitter::Followers::stores_flat(const ScheduleNode& n, int column,
                                           const std::vector<std::string>& names) const {
  if (outer_.empty()) return true;
  const Operator& op = e_.p_.workload().op(n.op);
  return is_flat(op, op.outputs[static_cast<std::size_t>(n.writes[0].output)].target,
                 n.writes[0].buffer, column, names);
}

void KernelEmitter::Followers::begin() {
  for (const auto& f : all_) f->begin();
}
int KernelEmitter::Followers::chains(std::int64_t points, bool light) const {
  constexpr int kChains = 4;
  const std::int64_t lanes = e_.p_.vector_bytes / e_.p_.element_bytes;
  const bool wait = std::ranges::any_of(all_, [](const auto& f) { return f->reduces(); });
  light = light && std::ranges::all_of(all_, [](const auto& f) { return f->is_light(); });
  return wait && light && points >= 2 * kChains * lanes ? kChains : 1;
}
void KernelEmitter::Followers::begin_row(int chains) {
  for (const auto& f : all_) f->begin_row(chains);
}
void KernelEmitter::Followers::point(Width width, int chain) {
  for (const auto& f : all_) f->point(width, chain);
}
void KernelEmitter::Followers::fetch() {
  for (const auto& f : all_) f->fetch();
}
void KernelEmitter::Followers::end_row(int chains) {
  for (const auto& f : all_) f->end_row(chains);
}
void KernelEmitter::Followers::end() {
  for (const auto& f : all_) f->end();
}

/// The product's last argument: what its rows go through before they leave their registers.
std::string KernelEmitter::lambda_of(Followers& followers, const std::string& row,
                                     const std::string& column, const std::string& first_row,
                                     const std::string& first_column, bool whole) {
  followers.begin();
  const std::string name = names_.fresh("after");
  out_.line("const auto " + name +
            " = [=](auto count, auto part, int64_t i, int64_t j, Lanes lanes,");
  out_.open("                      const Vector* sums) TILEWRIGHT_TARGET TILEWRIGHT_ALWAYS");
  if (!row.empty()) out_.line("const int64_t " + row + " = " + first_row + " + i;");
  out_.line("int64_t " + column + " = " + first_column + " + j;");
  out_.line("(void)i, (void)lanes, (void)part;");
  followers.begin_row();
  out_.directive("#pragma GCC unroll 12");
  out_.open("for (int n = 0; n < count.value; ++n, " + column + " += kLanes)");
  out_.line(std::string("const Vector ") + Followers::kValue + " = sums[n];");
  if (!whole) {
    out_.open("if (part.value && n + 1 == count.value)");
    followers.point(Width::part);
    out_.close();
    out_.open("else");
  }
  followers.point(Width::whole);
  if (!whole) out_.close();
  out_.close();
  followers.end_row();
  out_.end();
  out_.line("};");
  const std::string fetch = names_.fresh("fetch");
  out_.open("const auto " + fetch +
            " = [=](auto count, int64_t i, int64_t j) TILEWRIGHT_TARGET TILEWRIGHT_ALWAYS");
  if (!row.empty()) out_.line("const int64_t " + row + " = " + first_row + " + i;");
  out_.line("int64_t " + column + " = " + first_column + " + j;");
  out_.line("(void)i;");
  out_.directive("#pragma GCC unroll 12");
  out_.open("for (int n = 0; n < count.value; ++n, " + column + " += kLanes)");
  followers.fetch();
  out_.close();
  out_.end();
  out_.line("};");
  return std::string("then<") + (followers.stores() ? "true" : "false") + ">(" + name + ", " +
         fetch + ")";
}

}  // namespace tilewright::cpu
