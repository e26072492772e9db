// Where tiles live: their arrays, their scopes (rule 7), and which loop threads share.
#include <algorithm>

#include "codegen/cpu/emitter.h"

namespace tilewright::cpu {
namespace {

constexpr std::int64_t kLine = 64;
constexpr std::int64_t kMostWorkspace = std::int64_t{1} << 40;

std::int64_t product(std::int64_t a, std::int64_t b) {
  const auto r = checked_mul(a, b);
  if (!r || *r > kMostWorkspace)
    throw Refused{"its tiles need more than 2^40 bytes of working memory"};
  return *r;
}

/// The innermost loop bound to grid around a place, itself included; none outside all.
NodeId grid_loop_around(const ScheduledKernel& k, NodeId place) {
  for (NodeId n = place; n.valid(); n = k.node(n).parent)
    if (k.node(n).kind == NodeKind::loop && k.node(n).binding == Binding::grid) return n;
  return NodeId();
}

bool only_grid_loops_around(const ScheduledKernel& k, NodeId loop) {
  for (NodeId n = loop; n.valid(); n = k.node(n).parent)
    if (k.node(n).kind == NodeKind::loop && k.node(n).binding != Binding::grid) return false;
  return true;
}

/// The places that fix a buffer's tile.
std::vector<NodeId> fixing_places(const ScheduledKernel& k, BufferId b) {
  if (k.buffer(b).fixed_at.valid()) return {k.buffer(b).fixed_at};
  std::vector<NodeId> places;
  for (std::size_t i = 0; i < k.nodes.size(); ++i) {
    const ScheduleNode& n = k.nodes[i];
    if (n.kind == NodeKind::load && n.buffer == b) places.emplace_back(i);
    if (n.kind == NodeKind::compute &&
        std::ranges::find(n.writes, b, &OutputUse::buffer) != n.writes.end())
      places.emplace_back(i);
  }
  return places;
}

bool inside(const ScheduledKernel& k, NodeId n, NodeId ancestor) {
  for (; n.valid(); n = k.node(n).parent)
    if (n == ancestor) return true;
  return false;
}

}  // namespace

/// Blocks run one after the other on a thread, so a buffer of each block's own needs only one array
/// where no block is met twice; else there is one for each block.
void KernelEmitter::place_tiles() {
  const bool packs =
      std::ranges::any_of(k_.nodes, [](const ScheduleNode& n) { return n.kind == NodeKind::pack; });
  scopes_.assign(k_.buffers.size(), {});
  for (std::size_t i = 0; i < k_.buffers.size(); ++i) {
    if (p_.machine().level(k_.buffers[i].level).private_to < Unit::grid) continue;
    std::vector<NodeId> loops;
    for (NodeId place : fixing_places(k_, BufferId(i)))
      loops.push_back(grid_loop_around(k_, place));
    const bool same = std::ranges::all_of(loops, [&](NodeId l) { return l == loops.front(); });
    const NodeId loop = loops.empty() ? NodeId() : loops.front();
    if (same && !packs && !loop.valid()) continue;
    if (same && !packs && only_grid_loops_around(k_, loop)) {
      scopes_[i] = {TileScope::Kind::block, loop};
    } else {
      scopes_[i] = {TileScope::Kind::all_blocks, NodeId()};
      blocks_numbered_ = true;
    }
  }
  once_.assign(k_.buffers.size(), false);
  for (const ScheduleNode& n : k_.nodes)
    if (n.kind == NodeKind::compute && n.once)
      for (const OutputUse& w : n.writes) once_[w.buffer.index()] = p_.prelude.once = true;
}

void KernelEmitter::record(BufferId b, const SymBox& tile) {
  auto& most = layouts_[b.index()].most;
  for (std::size_t d = 0; d < tile.size(); ++d) most[d] = std::max(most[d], tile[d].most);
}

/// Rows (planes of rows without a gap where a product walks those as one) are an odd number of
/// cache lines long, so that the rows of a tile spread over all sets of a cache. Past the end there
/// is a vector's room: the micro-kernel reads whole vectors.
void KernelEmitter::lay_out() {
  const std::int64_t line = kLine / p_.element_bytes;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < layouts_.size(); ++i) {
    TileLayout& l = layouts_[i];
    if (packed_[i].empty()) {
      l.stride = home_strides(buffer(BufferId(i)).tensor);
      l.bytes = 0;
      l.offset = offset;
      continue;
    }
    l.stride.assign(l.most.size(), 1);
    std::int64_t elements = 1;
    for (std::size_t d = l.most.size(); d-- > 0;) {
      l.stride[d] = elements;
      std::int64_t extent = std::max<std::int64_t>(l.most[d], 1);
      if (!dense_[i] && d + 1 == l.most.size() && d > 0 && extent >= line)
        extent = (ceil_div(extent, line) | 1) * line;
      elements = product(elements, extent);
      if (dense_[i] && d + 2 == l.most.size() && elements >= line)
        elements = (ceil_div(elements, line) | 1) * line;
    }
    l.bytes = ceil_div(product(elements, p_.element_bytes) + kLine, kLine) * kLine;
    if (once_[i]) {
      const auto box = static_cast<std::int64_t>(16 * std::max<std::size_t>(1, l.most.size()));
      l.bytes += ceil_div(product(elements, box + 8), kLine) * kLine;
    }
    l.offset = offset;
    const bool each = scopes_[i].kind == TileScope::Kind::all_blocks;
    const std::int64_t copies = each ? k_.blocks : 1;
    // The records of the tiles themselves lie before their arrays.
    offset += product(l.bytes + (each ? 1024 : 0), copies);
    product(offset, 1);
  }
  for (auto& [compute, hoist] : hoists_) {
    hoist.offset = offset;
    offset += ceil_div(hoist.bytes, kLine) * kLine;
    product(offset, 1);
  }
  for (auto* kept : {&lanes_of_rows_, &pairs_})
    for (auto& [compute, place] : *kept) {
      place.offset = offset;
      offset = product(offset + ceil_div(place.bytes, kLine) * kLine, 1);
    }
  scratch_offset_ = offset;
  workspace_ = ceil_div(offset + scratch_, 4096) * 4096;
}

std::vector<std::int64_t> KernelEmitter::home_strides(TensorId t) const {
  return strides_of(p_.workload().tensor(t));
}

std::string KernelEmitter::ref(BufferId b) const {
  const std::string& name = tile_names_[b.index()];
  if (scopes_[b.index()].kind == TileScope::Kind::block &&
      std::ranges::find(in_scope_, scopes_[b.index()].loop) == in_scope_.end())
    throw Refused{p_.workload().tensor(buffer(b).tensor).name + " at " +
                  p_.machine().level(buffer(b).level).name +
                  " is used outside the blocks that have it"};
  return scopes_[b.index()].kind == TileScope::Kind::all_blocks ? "(*" + name + ")" : name;
}

std::string KernelEmitter::type(BufferId b) const {
  const TensorId t = buffer(b).tensor;
  const std::string rank = std::to_string(p_.workload().tensor(t).shape.size());
  // What never leaves has no type at home.
  const bool at_home = std::ranges::any_of(k_.buffers, [&](const Buffer& o) {
    return o.tensor == t && (o.role != BufferRole::intermediate || o.leaves);
  });
  const std::string element = at_home ? home_type(t) : "Home";
  return "Tile<" + rank + (element == "Home" ? "" : ", " + element) + ">";
}

std::string KernelEmitter::home_type(TensorId t) const {
  const DType type = p_.workload().tensor(t).dtype;
  if (type == p_.prelude.home) return "Home";
  p_.prelude.read.insert(type);
  return type == p_.prelude.real() ? "Real" : element_type(type);
}

std::vector<BufferId> KernelEmitter::scoped(const TileScope& scope) const {
  std::vector<BufferId> buffers;
  for (std::size_t i = 0; i < scopes_.size(); ++i) {
    const bool root = scope.kind == TileScope::Kind::root;
    if (root ? scopes_[i].kind != TileScope::Kind::block
             : scopes_[i].kind == scope.kind && scopes_[i].loop == scope.loop)
      buffers.emplace_back(i);
  }
  return buffers;
}

/// What is fixed of a tile from the beginning.
void KernelEmitter::describe(BufferId b, const std::string& ref_text) {
  const Buffer& buf = buffer(b);
  const std::string r = ref_text + ".";
  if (packed_[b.index()].empty()) {
    out_.line(r + "in_place = true;");
    p_.prelude.in_place = true;
  }
  if (buf.outer.valid() && scopes_[buf.outer.index()].kind != TileScope::Kind::all_blocks)
    out_.line(r + "outer = &" + ref(buf.outer) + ";");
  if (buf.sliding && buf.role != BufferRole::output) out_.line(r + "sliding = true;");
  if (buf.role == BufferRole::intermediate) {
    out_.line(r + "on_chip = true;");
    if (!buf.leaves) out_.line(r + "moves = false;");
  }
  if (buf.atomic) {
    const Operator& op = p_.workload().op(p_.workload().producer(buf.tensor));
    Combine combine = Combine::sum;
    for (const Output& o : op.outputs)
      if (o.target.tensor == buf.tensor) combine = o.combine;
    if (combine == Combine::assign)
      throw Refused{"S." + p_.workload().tensor(buf.tensor).name + "!atomic: '=' combines nothing"};
    const char* const names[] = {"", "sum", "product", "max", "min"};
    const char* const identities[] = {"0", "0", "1", "-HUGE_VAL", "HUGE_VAL"};
    out_.line(r + "merge = merge_" + names[static_cast<int>(combine)] + ";");
    out_.line(r + "identity = static_cast<Real>(" + identities[static_cast<int>(combine)] + ");");
    p_.prelude.atomic = true;
  }
  if (!p_.options.count) return;
  const auto steps = p_.machine().path(buf.outer_level, buf.level);
  p_.prelude.most_steps = std::max(p_.prelude.most_steps, static_cast<int>(steps.size()));
  for (const auto& [from, to] : steps) {
    const auto at = 2 * (buf.tensor.index() * p_.boundaries.size() +
                         static_cast<std::size_t>(p_.boundary(from, to)));
    out_.line(r + "steps.crosses(counts + " + std::to_string(at) + ");  // " +
              one_line(p_.machine().boundary(from, to)));
  }
}

void KernelEmitter::declare_one(BufferId b) {
  const TileLayout& l = layouts_[b.index()];
  const std::string& name = tile_names_[b.index()];
  std::string packed, row_major;
  const std::vector<std::int64_t> home = home_strides(buffer(b).tensor);
  for (std::size_t d = 0; d < home.size(); ++d) {
    packed += (d == 0 ? "" : ", ") + std::to_string(l.stride[d]);
    row_major += (d == 0 ? "" : ", ") + std::to_string(home[d]);
  }
  if (home.empty()) packed = row_major = "1";
  if (is_plain(b)) {
    const bool at_home = packed_[b.index()].empty();
    const std::string elements = type_at_home(b) + "*";
    out_.line(elements + " const " + name + " = " +
              (at_home ? "static_cast<" + elements + ">(tensors[" +
                             std::to_string(buffer(b).tensor.value) + "])"
                       : "reinterpret_cast<" + elements + ">(memory + " + std::to_string(l.offset) +
                             ")") +
              ";");
    return;
  }
  const std::string arguments = ", {" + packed + "}, tensors[" +
                                std::to_string(buffer(b).tensor.value) + "], {" + row_major + "})";
  const bool each = scopes_[b.index()].kind == TileScope::Kind::all_blocks;
  const std::string memory = "memory + " + std::to_string(l.offset);
  std::string target = name;
  if (each) {
    const std::string type_text = type(b);
    out_.line("static_assert(sizeof(" + type_text + ") <= 1024, \"room for the tile's record\");");
    out_.line("char* const " + name + "_all = " + memory + ";  // one tile a block");
    out_.open("for (int64_t i = 0; i < " + std::to_string(k_.blocks) + "; ++i)");
    out_.line("char* const place = " + name + "_all + i * " + std::to_string(l.bytes + 1024) + ";");
    out_.line(type_text + "& tile = *new (place) " + type_text + "(place + 1024" + arguments + ";");
    target = "tile";
  } else {
    out_.line(type(b) + " " + name + "(" + memory + arguments + ";");
  }
  describe(b, target);
  if (once_[b.index()]) {
    const std::int64_t count =
        l.most.empty() ? 1 : l.stride[0] * std::max<std::int64_t>(1, l.most[0]);
    const std::int64_t bytes = ceil_div(count * p_.element_bytes + kLine, kLine) * kLine;
    const std::string box = "Box<" + std::to_string(home.size()) + ">";
    out_.line(target + ".complete_since = reinterpret_cast<int64_t*>(" + target + ".data + " +
              std::to_string(bytes / p_.element_bytes) + ");");
    out_.line(target + ".complete = reinterpret_cast<" + box + "*>(" + target +
              ".complete_since + " + std::to_string(count) + ");");
    out_.line("std::memset(" + target + ".complete_since, 0, " + std::to_string(8 * count) + ");");
  }
  if (each) {
    out_.close();
    out_.line(type(b) + "* " + name + " = reinterpret_cast<" + type(b) + "*>(" + name + "_all);");
  }
}

/// Outer buffers before the inner ones that point to them.
std::vector<BufferId> KernelEmitter::outer_first(std::vector<BufferId> buffers) const {
  const auto depth = [&](BufferId b) {
    int n = 0;
    for (BufferId o = buffer(b).outer; o.valid(); o = buffer(o).outer) ++n;
    return n;
  };
  std::ranges::stable_sort(buffers, {}, depth);
  return buffers;
}

void KernelEmitter::declare(const std::vector<BufferId>& buffers) {
  for (BufferId b : outer_first(buffers)) {
    const Buffer& buf = buffer(b);
    std::string what = buf.role == BufferRole::input ? "loaded from " : "written to ";
    what += buf.outer.valid() ? p_.machine().level(buf.outer_level).name : "home";
    if (buf.role == BufferRole::intermediate) what = buf.leaves ? "stays, and " + what : "stays";
    if (packed_[b.index()].empty()) what = "used where it lies";
    out_.comment(p_.workload().tensor(buf.tensor).name + " at " +
                 p_.machine().level(buf.level).name + ", " + what);
    declare_one(b);
  }
}

void KernelEmitter::select(BufferId b) {
  const Buffer& buf = buffer(b);
  if (scopes_[b.index()].kind == TileScope::Kind::all_blocks) {
    const std::string& name = tile_names_[b.index()];
    out_.line(name + " = reinterpret_cast<" + type(b) + "*>(" + name + "_all + (" + block_ +
              ") * " + std::to_string(layouts_[b.index()].bytes + 1024) + ");");
  }
  if (buf.outer.valid() && scopes_[buf.outer.index()].kind == TileScope::Kind::all_blocks)
    out_.line(ref(b) + ".outer = " + tile_names_[buf.outer.index()] + ";");
}

/// Why the iterations of a loop that is not bound to grid may not run on several threads, each with
/// buffers of its own; empty where they may.
std::string KernelEmitter::why_not_split(NodeId loop) const {
  const ScheduleNode& l = k_.node(loop);
  const std::string& name = p_.workload().loop(l.loop).name;
  // Inside other loops, a thread meets the same iterations every time: the ranges must not change.
  for (NodeId o = l.parent; o.valid(); o = k_.node(o).parent) {
    if (k_.node(o).kind == NodeKind::loop && k_.node(o).loop == l.loop)
      return "loop " + name + " is cut twice";
    if (!k_.node(o).infer.empty()) return "ranges within loop " + name + " are inferred around it";
  }
  for (std::size_t i = 0; i < k_.nodes.size(); ++i)
    if (k_.nodes[i].kind == NodeKind::store && !inside(k_, NodeId(i), loop))
      return "there is a store outside loop " + name;
  for (std::size_t i = 0; i < k_.nodes.size(); ++i) {
    const ScheduleNode& n = k_.nodes[i];
    if (n.kind != NodeKind::load || inside(k_, NodeId(i), loop)) continue;
    const OpId maker = p_.workload().producer(n.tensor);
    if (maker.valid() && std::ranges::find(k_.ops, maker) != k_.ops.end())
      return p_.workload().tensor(n.tensor).name + " is loaded outside loop " + name;
  }
  for (const Buffer& b : k_.buffers)
    if (b.role != BufferRole::input && b.fixed_at.valid() && !inside(k_, b.fixed_at, loop))
      return p_.workload().tensor(b.tensor).name + " is kept from one " + name + " to the next";
  for (std::size_t i = 0; i < k_.nodes.size(); ++i) {
    const ScheduleNode& n = k_.nodes[i];
    if (n.kind != NodeKind::compute) continue;
    const Operator& op = p_.workload().op(n.op);
    if (!inside(k_, NodeId(i), loop)) return op.name + " is computed outside loop " + name;
    for (const OutputUse& w : n.writes) {
      const Buffer& b = buffer(w.buffer);
      if (b.role == BufferRole::intermediate && !b.leaves) continue;
      const Access& target = op.outputs[static_cast<std::size_t>(w.output)].target;
      const bool own = std::ranges::any_of(
          target.index, [&](const Affine& a) { return a.plain_loop() == l.loop; });
      const bool cut = std::ranges::any_of(l.cuts, [&](const OpLoop& c) { return c.op == n.op; });
      if (!own || !cut)
        return "iterations of " + name + " share tiles of " + p_.workload().tensor(w.tensor).name;
    }
  }
  return "";
}

/// Of the loops around everything that is computed, the one whose iterations threads share most
/// evenly; the outermost of equals. Loops around it run on every thread: batch and rows are shared,
/// whichever of them there are, and a reduction around the rows stays where it is.
NodeId KernelEmitter::loop_to_split() const {
  NodeId best;
  double best_share = 0;
  for (NodeId at(0); at.valid();) {
    NodeId next;
    int inside = 0;
    for (NodeId c : k_.node(at).children) {
      if (k_.node(c).kind == NodeKind::load) continue;
      ++inside;
      if (k_.node(c).kind == NodeKind::loop || k_.node(c).kind == NodeKind::sequence) next = c;
    }
    if (inside != 1 || !next.valid()) break;
    at = next;
    const ScheduleNode& l = k_.node(at);
    if (l.kind != NodeKind::loop || !why_not_split(at).empty()) continue;
    const std::int64_t turns = ceil_div(l.max_trips, p_.options.threads);
    const double share =
        static_cast<double>(l.max_trips) / static_cast<double>(turns * p_.options.threads);
    if (share > best_share) best = at, best_share = share;
  }
  return best;
}

void KernelEmitter::choose_parallel_loop() {
  if (p_.options.threads <= 1 || p_.options.count) return;
  const std::string here = "kernel " + std::to_string(index_) + " runs on one thread: ";
  NodeId grid, first;
  for (std::size_t i = 0; i < k_.nodes.size(); ++i) {
    if (k_.nodes[i].kind != NodeKind::loop) continue;
    if (!first.valid()) first = NodeId(i);
    if (!grid.valid() && k_.nodes[i].binding == Binding::grid) grid = NodeId(i);
  }
  if (!first.valid()) {
    notes_.push_back(here + "it has no loop");
    return;
  }
  if (!grid.valid() && !k_.zeroed.empty()) {
    // One part could begin after another has added.
    notes_.push_back(here + p_.workload().tensor(k_.zeroed.front()).name +
                     " starts from nothing before anything is added to it");
    return;
  }
  if (!grid.valid()) {
    split_loop_ = loop_to_split();
    split_ = split_loop_.valid();
    if (!split_) notes_.push_back(here + why_not_split(first));
    return;
  }
  // Blocks share threads where every tile that is written within them is their own.
  for (std::size_t i = 0; i < k_.buffers.size(); ++i) {
    const Buffer& b = k_.buffers[i];
    if (scopes_[i].kind == TileScope::Kind::block) continue;
    bool filled_outside = b.role == BufferRole::input;
    for (NodeId place : fixing_places(k_, BufferId(i)))
      filled_outside = filled_outside && !grid_loop_around(k_, place).valid();
    if (filled_outside && scopes_[i].kind == TileScope::Kind::root) continue;
    notes_.push_back(here + p_.workload().tensor(b.tensor).name + " at " +
                     p_.machine().level(b.level).name + " is shared by its blocks");
    return;
  }
  parallel_grid_ = true;
  // Blocks of one loop are parts of a run like any other loop's iterations. Those of several wait
  // for each other between the loops.
  std::vector<NodeId> shared;
  for (std::size_t i = 0; i < k_.nodes.size(); ++i)
    if (k_.nodes[i].kind == NodeKind::loop && is_parallel(NodeId(i))) shared.emplace_back(i);
  if (shared.size() != 1 || !k_.zeroed.empty() ||
      std::ranges::any_of(k_.buffers, [](const Buffer& b) { return b.atomic; }))
    return;
  split_ = true, split_loop_ = shared.front();
  parallel_grid_ = false;
}

/// Whether the iterations of a loop are what threads share.
bool KernelEmitter::is_parallel(NodeId loop) const {
  if (split_) return loop == split_loop_;
  return parallel_grid_ && grid_loop_around(k_, k_.node(loop).parent) == NodeId() &&
         k_.node(loop).binding == Binding::grid && only_grid_loops_around(k_, loop);
}

}  // namespace tilewright::cpu
