// Any operator point by point, on tiles in shared memory: the points shared out among threads, and
// among lanes what a point's sum adds up. Neighbours that lie side by side are taken four at once.
#include <algorithm>

#include "codegen/common/expression.h"
#include "codegen/cuda/emitter.h"
#include "core/lowering/gpu/block_rules.h"
#include "core/lowering/gpu/thread_program.h"
#include "core/workload/access.h"
#include "core/workload/expr.h"

namespace tilewright::cuda {
namespace {

constexpr int kWarmPhases = 16;

}  // namespace

/// How many points and neighbours a thread has at once, and how many threads share a point's sum.
lowering::BlockPoints KernelEmitter::share_out(NodeId id, const SymRanges& ranges) {
  const OpId op = k_.node(id).op;
  const std::vector<std::int64_t> most = mosts(op, ranges);
  return block_.points_of(id, {.most = most,
                               .divides =
                                   [&](int l) {
                                     const SymRange& r = range(ranges, op, l);
                                     return divisor(r.hi - r.lo);
                                   },
                               .begins =
                                   [&](const Access& a, BufferId b, int l) {
                                     const Linear first =
                                         range(ranges, op, l).lo + number(a.index.back().offset);
                                     return divisor(first - fixed_[b.index()]->back().lo);
                                   }});
}

/// How an operator's points are gone through, and by what names.
struct KernelEmitter::Points {
  NodeId id;
  const SymRanges& ranges;
  const ScheduleNode& n;
  const Operator& op;
  lowering::BlockPoints way = {};
  std::vector<std::string> loops = {};  ///< by position
  std::vector<std::size_t> outer = {}, sums = {};
  std::vector<std::int64_t> counts = {};  ///< of each loop, in strips and blocks
  std::string first_of_strip = {}, first_of_block = {};

  std::int64_t members() const { return way.members; }
  std::int64_t block() const { return way.at_once.block; }  ///< for what they read alike
  int block_loop() const { return way.at_once.loop; }
  bool strip() const { return way.strip >= 0; }
  bool is_strip(std::size_t l) const { return way.strip == static_cast<int>(l); }
  bool is_block(std::size_t l) const { return block() > 1 && block_loop() == static_cast<int>(l); }
  std::int64_t at_once(std::size_t l) const {
    return is_strip(l) ? kStrip : is_block(l) ? block() : 1;
  }
  std::string name(std::size_t l) const {
    return is_strip(l) ? first_of_strip : is_block(l) ? first_of_block : loops[l];
  }
  std::string result(std::size_t o) const {
    return "y" + std::to_string(o) + (block() > 1 ? "[b]" : "");
  }
  /// Whether all of a block's points read the same neighbours.
  bool alike(std::size_t input) const {
    const LoopId l = op.loops[static_cast<std::size_t>(block_loop())];
    return std::ranges::none_of(op.inputs[input].index,
                                [&](const Affine& i) { return indexes(i, l); });
  }
};

/// The loops' values out of one number, the last of a group fastest.
void KernelEmitter::number_points(const Points& p, const std::vector<std::size_t>& group,
                                  const std::string& rest) {
  for (std::size_t i = group.size(); i-- > 0;) {
    const std::size_t l = group[i];
    const std::string low = variables_.text(range(p.ranges, p.n.op, static_cast<int>(l)).lo),
                      count = std::to_string(p.counts[l]);
    std::string index = i == 0 ? rest : rest + " % " + count;
    if (p.at_once(l) > 1)
      index = (i == 0 ? index : "(" + index + ")") + " * " + std::to_string(p.at_once(l));
    // Where a tile has one of them, reads may have numbers in its place.
    out_.line((p.counts[l] == 1 ? "[[maybe_unused]] const int " : "const int ") + p.name(l) +
              " = " + (low == "0" ? "" : low + " + ") + index + ";");
    if (i != 0) out_.line(rest + " /= " + count + ";");
  }
}

/// Under which condition the points of a group of loops exist, as far as it is not known; counts
/// are of the largest box.
std::string KernelEmitter::some_points(Points& p, const std::vector<std::size_t>& group) const {
  std::string text;
  for (std::size_t l : group) {
    const SymRange& of = range(p.ranges, p.n.op, static_cast<int>(l));
    p.counts[l] = ceil_div(std::max<std::int64_t>(1, of.most), p.at_once(l));
    const Linear size = of.hi - of.lo;
    if (size.is_constant() && size.constant == of.most) continue;
    text += (text.empty() ? "" : " && ") + p.name(l) + " < " + variables_.text(of.hi);
  }
  return text;
}

/// Neighbours of every input that has them: of those that a block's points read alike, or of the
/// others.
void KernelEmitter::load_strips(const Points& p, bool alike) {
  std::vector<std::string> at = p.loops;
  at[static_cast<std::size_t>(p.way.strip)] = p.first_of_strip;
  for (std::size_t i = 0; i < p.op.inputs.size(); ++i) {
    if (!p.way.inputs[i] || (p.block() > 1 && p.alike(i)) != alike) continue;
    const Access& a = p.op.inputs[i];
    const std::string in = inside(p.n.op, a, at), name = "s" + std::to_string(i);
    out_.line(real() + " " + name + "[" + std::to_string(kStrip) + "]" +
              (in.empty() ? "" : " = {}") + ";");
    out_.line((in.empty() ? "" : "if (" + in + ") ") + "read_strip(" + name + ", " +
              point(p.n.op, a, block_.buffer_of_input(p.n, static_cast<int>(i)), at) + ");");
  }
}

/// Each of a strip's elements; to be closed.
void KernelEmitter::open_strip(const Points& p) {
  const std::string& loop = p.loops[static_cast<std::size_t>(p.way.strip)];
  out_.line("TW_UNROLL");
  out_.open("for (int v = 0; v < " + std::to_string(kStrip) + "; ++v)");
  out_.line("const int " + loop + " = " + p.first_of_strip + " + v;");
  out_.line("(void)" + loop + ";");
}

/// Whether what a phase runs through is fetched for a few turns of it: where phases are many, bytes
/// of instructions cost more than the branches of a loop.
bool KernelEmitter::cold() const { return block_.phase_of(NodeId(k_.nodes.size())) > kWarmPhases; }
std::string KernelEmitter::unrolled(int turns) const {
  return cold() ? "TW_NO_UNROLL" : "TW_UNROLL_BY(" + std::to_string(turns) + ")";
}

/// When a point of a block exists, where not all of them do.
std::string KernelEmitter::in_block(const Points& p) const {
  if (p.block() == 1) return "";
  const SymRange& of = range(p.ranges, p.n.op, p.block_loop());
  if (divisor(of.hi - of.lo) % p.block() == 0) return "";
  return p.loops[static_cast<std::size_t>(p.block_loop())] + " < " + variables_.text(of.hi);
}

/// Each of a block's points, or only those that exist; to be closed. Shuffles are for all.
void KernelEmitter::open_block(const Points& p, bool all) {
  if (p.block() == 1) return out_.open("");
  const std::string& loop = p.loops[static_cast<std::size_t>(p.block_loop())];
  out_.line("TW_UNROLL");
  out_.open("for (int b = 0; b < " + std::to_string(p.block()) + "; ++b)");
  out_.line("const int " + loop + " = " + p.first_of_block + " + b;");
  out_.line("(void)" + loop + ";");
  const std::string in = in_block(p);
  if (!all && !in.empty()) out_.line("if (!(" + in + ")) continue;");
}

/// The inputs' values at a point; of those alone that an expression reads, where one is given.
void KernelEmitter::point_inputs(const Points& p, const std::vector<std::string>& at, bool in_strip,
                                 const Expr* of) {
  for (std::size_t i = 0; i < p.op.inputs.size(); ++i)
    if (of != nullptr && !reads_input(*of, static_cast<int>(i))) {
      continue;
    } else if (in_strip && p.way.inputs[i]) {
      out_.line("const " + real() + " x" + std::to_string(i) + " = s" + std::to_string(i) + "[v];");
    } else {
      declare_input(p.id, i, at, p.ranges);
    }
}

/// The first lane of each warp has its part of a sum: the first of all gets them together.
void KernelEmitter::exchange_parts(const Points& p, bool again) {
  const std::string outputs = std::to_string(p.n.writes.size()), r = real();
  out_.line(r + "* const parts = reinterpret_cast<" + r + "*>(scratch);");
  for (std::size_t o = 0; o < p.n.writes.size(); ++o)
    out_.line("if (thread % 32 == 0) parts[thread / 32 * " + outputs + " + " + std::to_string(o) +
              "] = " + p.result(o) + ";");
  act(BlockAct::exchange, [&] {
    out_.open("if (writes)");
    out_.line("TW_UNROLL");
    out_.open("for (int w = 1; w < " + std::to_string(p.members() / kLanes) + "; ++w)");
    for (std::size_t o = 0; o < p.n.writes.size(); ++o) {
      const Output& out = output_of(p.id, static_cast<int>(o));
      if (!names_outputs(out.value))
        out_.line(
            combined(out.combine, p.result(o),
                     "parts[(thread / 32 + w) * " + outputs + " + " + std::to_string(o) + "]"));
    }
    out_.close();
    out_.close();
  });
  if (again) meet();  // another round of points writes where parts are read
}

/// Results that are no sums, several neighbours at once.
void KernelEmitter::strips_of_results(const Points& p) {
  for (std::size_t o = 0; o < p.n.writes.size(); ++o)
    out_.line(real() + " " + p.result(o) + "[" + std::to_string(kStrip) + "];");
  load_strips(p, false);
  open_strip(p);
  point_inputs(p, p.loops, true);
  for (std::size_t o = 0; o < p.n.writes.size(); ++o)
    out_.line(p.result(o) +
              "[v] = " + made_text(output_of(p.id, static_cast<int>(o)), p.n.op, p.loops) + ";");
  out_.close();
  std::vector<std::string> at = p.loops;
  at[static_cast<std::size_t>(p.way.strip)] = p.first_of_strip;
  for (std::size_t o = 0; o < p.n.writes.size(); ++o)
    out_.line("put_strip(" +
              point(p.n.op, output_of(p.id, static_cast<int>(o)).target, p.n.writes[o].buffer, at) +
              ", " + p.result(o) + ");");
}

/// What results begin with, and what they have been so far by its new scale (rule 14).
void KernelEmitter::begin_results(const Points& p, const std::string& fresh) {
  const bool shared = p.members() > 1, reduces = !p.sums.empty();
  const std::string r = real();
  const bool runs = std::ranges::any_of(
      p.op.outputs, [](const Output& o) { return o.rescale || names_outputs(o.value); });
  if (p.block() > 1) {
    out_.line(r + " y0[" + std::to_string(p.block()) + "];");
    open_block(p, true);
  }
  for (std::size_t o = 0; o < p.n.writes.size(); ++o) {
    const Output& out = output_of(p.id, static_cast<int>(o));
    const std::string at = point(p.n.op, out.target, p.n.writes[o].buffer, p.loops);
    const std::string identity = literal_text(identity_of(out.combine));
    std::string start = "*" + at;
    if (!reduces || fresh == "true")
      start = identity;
    else if (fresh != "false")
      start = "(" + fresh + ") ? " + identity + " : " + start;
    std::string there = shared ? "writes" : "";
    if (const std::string in = in_block(p); !in.empty()) there += (shared ? " && " : "") + in;
    if (!there.empty() && start != identity)
      start = "!(" + there + ") ? " + identity + " : " + start;
    out_.line((p.block() > 1 ? "" : r + " ") + p.result(o) + " = " + start + ";");
    if (runs) out_.line("const " + r + " before" + std::to_string(o) + " = " + p.result(o) + ";");
  }
  if (p.block() > 1) out_.close();
  for (std::size_t o = 0; o < p.n.writes.size(); ++o) {
    const Output& out = output_of(p.id, static_cast<int>(o));
    if (!out.rescale || fresh == "true") continue;
    std::vector<std::string> at = p.loops;
    for (std::size_t l : p.sums)
      at[l] = variables_.text(range(p.ranges, p.n.op, static_cast<int>(l)).lo, true);
    const std::string again = fresh == "false" ? "" : "!(" + fresh + ")";
    const std::string when = !shared ? again : again.empty() ? "writes" : "writes && " + again;
    out_.open(when.empty() ? "" : "if (" + when + ")");
    point_inputs(p, at, false, &*out.rescale);
    out_.line(p.result(o) + " *= " + expression_text(*out.rescale, p.n.op, at) + ";");
    out_.close();
  }
}

/// A point's sums, or its values where it has none; then what lanes and warps have of a sum,
/// joined.
void KernelEmitter::add_up(Points& p, std::int64_t total) {
  const bool shared = p.members() > 1;
  std::size_t opened = 0;
  if (shared) {
    out_.open("if (exists)");
    const std::string some = some_points(p, p.sums);
    std::int64_t parts = 1;
    for (std::size_t l : p.sums) parts *= p.counts[l];
    out_.line(unrolled(p.strip() ? lowering::kStripsUnrolled : lowering::kPointsUnrolled));
    out_.open("for (int part = member; part < " + std::to_string(parts) +
              "; part += " + std::to_string(p.members()) + ")");
    opened = 2;
    out_.line("int rest_of_part = part;");
    number_points(p, p.sums, "rest_of_part");
    if (!some.empty()) out_.line("if (!(" + some + ")) continue;");
  } else {
    for (std::size_t l : p.sums) {
      const SymRange& of = range(p.ranges, p.n.op, static_cast<int>(l));
      const std::string name = p.name(l);
      if (p.is_strip(l)) out_.line(unrolled(lowering::kStripsUnrolled));
      out_.open("for (int " + name + " = " + variables_.text(of.lo) + "; " + name + " < " +
                variables_.text(of.hi) + "; " +
                (p.is_strip(l) ? name + " += " + std::to_string(kStrip) : "++" + name) + ")");
      ++opened;
    }
  }
  if (p.strip()) load_strips(p, true);
  open_block(p, false);
  if (p.strip()) {
    load_strips(p, false);
    open_strip(p);
  }
  point_inputs(p, p.loops, p.strip());
  for (std::size_t o = 0; o < p.n.writes.size(); ++o) {
    const Output& out = output_of(p.id, static_cast<int>(o));
    if (!names_outputs(out.value))
      out_.line(combined(p.sums.empty() ? Combine::assign : out.combine, p.result(o),
                         made_text(out, p.n.op, p.loops)));
  }
  if (p.strip()) out_.close();
  out_.close();
  for (; opened > 0; --opened) out_.close();
  if (!shared) return;
  open_block(p, true);
  for (std::size_t o = 0; o < p.n.writes.size(); ++o) {
    const Output& out = output_of(p.id, static_cast<int>(o));
    if (names_outputs(out.value)) continue;
    out_.line("TW_UNROLL");
    out_.open("for (int m = 1; m < " + std::to_string(std::min(p.members(), kLanes)) + "; m *= 2)");
    out_.line(combined(out.combine, p.result(o), "shuffle_xor(" + p.result(o) + ", m)"));
    out_.close();
  }
  out_.close();
  if (p.members() > kLanes) exchange_parts(p, total * p.members() > threads());
}

/// Every point of the outputs by one thread, which runs the reductions, or by several, which share
/// what is to be added: lanes of a warp or whole warps, who join their parts.
void KernelEmitter::points(NodeId id, const SymRanges& ranges, const std::string& fresh) {
  const ScheduleNode& n = k_.node(id);
  Points p{.id = id, .ranges = ranges, .n = n, .op = workload_.op(n.op)};
  p.way = share_out(id, ranges);
  p.counts.resize(p.op.loops.size(), 1);
  for (std::size_t l = 0; l < p.op.loops.size(); ++l) {
    p.loops.push_back(names_.fresh(identifier("p_", workload_.loop(p.op.loops[l]).name)));
    (workload_.is_reduction(n.op, p.op.loops[l]) ? p.sums : p.outer).push_back(l);
  }
  // Innermost the neighbours, else the longest.
  std::ranges::stable_sort(p.sums, {}, [&](std::size_t l) {
    return std::pair(p.is_strip(l), range(ranges, n.op, static_cast<int>(l)).most);
  });
  if (p.strip())
    p.first_of_strip = names_.fresh(p.loops[static_cast<std::size_t>(p.way.strip)] + "_first");
  if (p.block() > 1)
    p.first_of_block = names_.fresh(p.loops[static_cast<std::size_t>(p.block_loop())] + "_first");
  const std::string some = some_points(p, p.outer), members = std::to_string(p.members());
  std::int64_t total = 1;
  for (std::size_t l : p.outer) total *= p.counts[l];
  const std::string all = std::to_string(total);
  if (p.members() > 1) {
    out_.open("for (int first = 0; first < " + all +
              "; first += " + std::to_string(threads() / p.members()) + ")");
    out_.line("const int member = thread % " + members + ", point = first + thread / " + members +
              ";");
    out_.line("int rest_of_point = least(point, " + std::to_string(total - 1) + ");");
  } else {
    out_.open("for (int point = thread; point < " + all +
              "; point += " + std::to_string(threads()) + ")");
    out_.line("int rest_of_point = point;");
  }
  number_points(p, p.outer, "rest_of_point");
  if (p.members() > 1)
    out_.line("const bool exists = point < " + all + (some.empty() ? "" : " && " + some) +
              ", writes = exists && member == 0;");
  else if (!some.empty())
    out_.line("if (!(" + some + ")) continue;");
  if (p.strip() && p.sums.empty()) {
    strips_of_results(p);
  } else {
    begin_results(p, fresh);
    add_up(p, total);
    if (p.members() > 1) out_.open("if (writes)");
    open_block(p, false);
    const auto named = [&](int output, bool before) {
      for (std::size_t o = 0; o < n.writes.size(); ++o)
        if (n.writes[o].output == output) return (before ? "before" : "y") + std::to_string(o);
      throw Refused{"operator " + p.op.name + " reads an output that it does not write here"};
    };
    for (std::size_t o = 0; o < n.writes.size(); ++o) {
      const Output& out = output_of(id, static_cast<int>(o));
      if (names_outputs(out.value))
        out_.line(combined(out.combine, p.result(o), made_text(out, n.op, p.loops, named)));
      out_.line(put_text(n.writes[o].buffer, point(n.op, out.target, n.writes[o].buffer, p.loops),
                         p.result(o)));
    }
    out_.close();
    if (p.members() > 1) out_.close();
  }
  out_.close();
}

}  // namespace tilewright::cuda
