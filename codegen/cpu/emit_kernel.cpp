// A kernel's tree, node by node, as the access stream walks it.
#include <algorithm>
#include <cctype>
#include <set>

#include "codegen/cpu/emitter.h"

namespace tilewright::cpu {

int Program::boundary(LevelId from, LevelId to) const {
  const auto at = std::ranges::find(boundaries, machine().boundary(from, to));
  TW_CHECK(at != boundaries.end(), "a boundary that the machine's paths have was not listed");
  return static_cast<int>(at - boundaries.begin());
}

KernelEmitter::KernelEmitter(Program& program, int index)
    : RangeEmitter(program.workload(), program.schedule.kernels[static_cast<std::size_t>(index)]),
      p_(program),
      index_(index) {
  layouts_.resize(k_.buffers.size());
  panels_.resize(k_.buffers.size());
  dense_.assign(k_.buffers.size(), false);
  packed_.assign(k_.buffers.size(), kUndecided);
  plain_.assign(k_.buffers.size(), false);
  takes_reals_.assign(k_.buffers.size(), false);
  streamed_.assign(k_.buffers.size(), false);
  fixed_.resize(k_.buffers.size());
  for (std::size_t i = 0; i < k_.buffers.size(); ++i) {
    const std::size_t rank = p_.workload().tensor(k_.buffers[i].tensor).shape.size();
    layouts_[i].most.assign(rank, 0);
    layouts_[i].stride = home_strides(k_.buffers[i].tensor);  // until lay_out knows
  }
}

Result<KernelText> KernelEmitter::emit() {
  try {
    hidden_ = hidden_columns(p_.workload(), k_);
    check_sums(p_.workload(), k_, "cpu");
    place_tiles();
    choose_parallel_loop();
    // The text needs the arrays' strides, which need the largest tiles, which the text's ranges
    // say: the first pass is for these only.
    pass();
    choose_places();
    lay_out();
    pass();  // which operands are packed once for many products depends on the strides
    // Who walks an array of Real may depend on them, too.
    const auto both = [this](std::size_t i) {
      return takes_reals_[i] && lies_in_bytes(BufferId(i));
    };
    for (std::size_t i = 0; i < k_.buffers.size(); ++i) {
      if (!both(i)) continue;
      choose_places();
      lay_out();
      pass();
    }
    lay_out();
    pass();
    lay_out();
  } catch (const Refused& refused) {
    return Reason{k_.name + ": " + refused.text, refused.shortage};
  }
  for (const Buffer& b : k_.buffers)
    if (!b.outer.valid() && (b.role != BufferRole::intermediate || b.leaves))
      p_.needed[b.tensor.index()] = true;
  std::string prepare;
  for (const auto& [compute, prepared] : prepared_) prepare += prepared.text;
  return KernelText{.text = out_.text(),
                    .workspace = workspace_,
                    .parallel = split_ || parallel_grid_,
                    .shared = split_,
                    .notes = notes_,
                    .tiles = tile_uses(),
                    .prepare = prepare};
}

void KernelEmitter::pass() {
  out_ = Lines(1);
  variables_ = {};
  names_ = {};
  block_ = "0";
  open_.clear();
  in_scope_.clear();
  waiting_.clear();
  followed_.clear();
  visible_.assign(hidden_.size(), {});
  computed_.clear();
  defined_.assign(1, {});
  tile_names_.clear();
  for (const Buffer& b : k_.buffers)
    tile_names_.push_back(names_.fresh(identifier(
        "t_", p_.workload().tensor(b.tensor).name + "_" + p_.machine().level(b.level).name)));

  SymRanges ranges = whole_ranges();
  for (TensorId t : k_.zeroed) {
    const auto b = std::ranges::find_if(k_.buffers,
                                        [&](const Buffer& o) { return o.tensor == t && o.atomic; });
    TW_CHECK(b != k_.buffers.end(), "a zeroed tensor has no atomic buffer");
    out_.comment("Blocks add to " + p_.workload().tensor(t).name + ": it starts from nothing.");
    out_.open("");
    out_.line("char* const memory = workspace;");
    const BufferId id(static_cast<std::size_t>(b - k_.buffers.begin()));
    in_scope_.push_back(scopes_[id.index()].loop);
    declare_one(id);
    out_.line("zero(" + ref(id) + ", " + std::to_string(p_.workload().tensor(t).elements().value) +
              ");");
    in_scope_.pop_back();
    out_.close();
  }
  if (split_)
    out_.comment("A part has tiles of its own and the same share of one loop below each time.");
  out_.line("char* const memory = workspace;");
  out_.line("(void)memory;");
  const std::vector<BufferId> root = scoped({TileScope::Kind::root, NodeId()});
  declare(root);
  for (const auto& [compute, place] : pairs_)
    out_.line("Paired<" + std::to_string(place.rank) + "> paired_" +
              std::to_string(compute.index()) + ";");
  enter_body(NodeId(0), ranges);
  visit_all(k_.node(NodeId(0)).children, ranges);
  leave_scope(root);
  order_stores();
}

void KernelEmitter::order_stores() {
  if (!p_.prelude.vectors) return;
  for (std::size_t b = 0; b < k_.buffers.size(); ++b)
    if (past_caches(BufferId(b))) return out_.line("_mm_sfence();");
}

/// What is still changed is written, inner buffers first (rule 10).
void KernelEmitter::leave_scope(const std::vector<BufferId>& buffers) {
  std::vector<BufferId> order = outer_first(buffers);
  std::ranges::reverse(order);
  for (BufferId b : order) {
    const Buffer& buf = buffer(b);
    if (buf.role == BufferRole::input || (buf.role == BufferRole::intermediate && !buf.leaves))
      continue;
    if (is_plain(b)) continue;  // it is home already
    if (scopes_[b.index()].kind == TileScope::Kind::all_blocks) {
      const std::string& name = tile_names_[b.index()];
      out_.line("for (int64_t i = 0; i < " + std::to_string(k_.blocks) + "; ++i)");
      out_.line("  flush(*reinterpret_cast<" + type(b) + "*>(" + name + "_all + i * " +
                std::to_string(layouts_[b.index()].bytes + 1024) + "));");
    } else {
      out_.line("flush(" + tile_names_[b.index()] + ");");
    }
  }
}

void KernelEmitter::enter_body(NodeId body, SymRanges& ranges) {
  const ScheduleNode& n = k_.node(body);
  for (BufferId b : outer_first(n.fixes)) select(b);
  for (const Inference& i : n.infer) {
    infer(i, ranges, false);
  }
  for (BufferId b : n.fixes) {
    const SymBox tile = tile_of(buffer(b), ranges);
    record(b, tile);
    fix(b, tile);
  }
  see_columns(body, ranges);
}

void KernelEmitter::fix(BufferId b, const SymBox& box) {
  fixed_[b.index()] = box;
  if (!is_plain(b)) out_.line("fix(" + ref(b) + ", " + box_text(box) + ");");
}

void KernelEmitter::visit_all(const std::vector<NodeId>& children, const SymRanges& ranges) {
  for (std::size_t i = 0; i < children.size(); ++i) {
    look_for_followers(children, i, ranges);
    visit(children[i], ranges);
  }
}

void KernelEmitter::visit(NodeId id, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  switch (n.kind) {
    case NodeKind::loop:
      return visit_loop(id, ranges);
    case NodeKind::sequence:
      return visit_all(n.children, ranges);
    case NodeKind::pack: {
      const std::string outer = block_;
      for (NodeId c : n.children) {
        if (blocks_numbered_) block_ = outer + " + " + std::to_string(k_.node(c).first_block);
        visit(c, ranges);
      }
      block_ = outer;
      return;
    }
    case NodeKind::load:
      return visit_load(id, ranges);
    case NodeKind::compute:
      return visit_compute(id, ranges);
    case NodeKind::store:
      return visit_store(id, ranges);
    case NodeKind::sync:
      return out_.comment("a barrier: units run one after the other");
    case NodeKind::drop:
      return visit_drop(id);
  }
}

/// What is used where it lies has no tile to empty.
void KernelEmitter::visit_drop(NodeId id) {
  const ScheduleNode& n = k_.node(id);
  const TileScope& scope = scopes_[n.buffer.index()];
  const std::string& name = tile_names_[n.buffer.index()];
  out_.comment("D." + p_.workload().tensor(n.tensor).name);
  if (is_plain(n.buffer)) return;
  if (scope.kind == TileScope::Kind::all_blocks && n.all_units) {
    out_.line("for (int64_t i = 0; i < " + std::to_string(k_.blocks) + "; ++i)");
    out_.line("  reinterpret_cast<" + type(n.buffer) + "*>(" + name + "_all + i * " +
              std::to_string(layouts_[n.buffer.index()].bytes + 1024) + ")->full = false;");
  } else if (scope.kind != TileScope::Kind::block || !n.all_units) {
    select(n.buffer);
    out_.line(ref(n.buffer) + ".full = false;");
  }  // a block's tile, dropped outside of the blocks: each begins with none
}

void KernelEmitter::visit_loop(NodeId id, const SymRanges& around) {
  const ScheduleNode& n = k_.node(id);
  Cut c = cut(id, around);
  // One iteration is all of the range around: what follows a compute within finds its ranges again.
  const SymRange& whole = around.at[slot(n.cuts.front())];
  const Linear size = whole.hi - whole.lo;
  if (size.is_constant() && size.constant == n.step && n.binding != Binding::grid &&
      !is_parallel(id))
    c.inner = whole;
  emit_hoists(id, around);
  std::string from = c.low, to = c.high, by = std::to_string(c.step);
  if (is_parallel(id) && split_ && sees_columns(id)) {
    // Later rows have more to do: threads take steps in turn.
    from = c.low + " + part * " + by, by = "parts * " + by;
  } else if (is_parallel(id) && split_) {
    const std::string share = names_.fresh("share");
    out_.line("const Share " + share + " = share_of(" + c.low + ", " + c.high + ", " +
              std::to_string(c.step) + ", part, parts);");
    from = share + ".lo", to = share + ".hi";
  } else if (is_parallel(id)) {
    out_.directive("#pragma omp parallel for schedule(static) num_threads(kThreads)");
  }
  defined_.emplace_back();
  out_.open("for (int64_t " + c.name + " = " + from + "; " + c.name + " < " + to + "; " + c.name +
            " += " + by + ")");
  if (!c.whole_steps)
    out_.line("const int64_t " + c.end + " = min(" + c.next() + ", " + c.high + ");");

  SymRanges inside = inside_of(id, c, around);
  const std::string outer_block = block_;
  if (n.binding == Binding::grid && blocks_numbered_) {
    const std::string block = names_.fresh("block");
    out_.line("const int64_t " + block + " = " + outer_block + " + (" + c.name + " - " +
              variables_.text(around.at[slot(n.cuts.front())].lo, true) + ") / " +
              std::to_string(c.step) + " * " + std::to_string(blocks_below(k_, id)) + ";");
    block_ = block;
  }
  if (is_parallel(id) && !split_)
    out_.line("char* const memory = workspace + thread() * kWorkspace;");
  const std::vector<BufferId> mine = scoped({TileScope::Kind::block, id});
  in_scope_.push_back(id);
  declare(mine);
  enter_body(id, inside);
  open_.push_back({id, c.name, c.end, c.low, c.high, around});
  visit_all(n.children, inside);
  open_.pop_back();
  leave_scope(mine);
  if (is_parallel(id) && !split_) order_stores();
  in_scope_.pop_back();
  out_.close();
  defined_.pop_back();
  block_ = outer_block;
}

void KernelEmitter::visit_load(NodeId id, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  if (n.only_for.valid()) return;  // its compute emits it, where that runs
  emit_load(id, ranges);
}

/// A spilled tensor is about to be read: what its producer left changed is written. Tiles of blocks
/// that have ended were written at their ends.
void KernelEmitter::flush_spilled(BufferId f, NodeId load) {
  if (is_plain(f)) return;
  const TileScope& scope = scopes_[f.index()];
  const std::string why = "  // " + p_.workload().tensor(buffer(f).tensor).name +
                          " is spilled: written before it is read";
  if (scope.kind == TileScope::Kind::root) {
    out_.line("flush(" + ref(f) + ");" + why);
  } else if (scope.kind == TileScope::Kind::block) {
    for (NodeId n = load; n.valid(); n = k_.node(n).parent)
      if (n == scope.loop) out_.line("flush(" + ref(f) + ");" + why);
  } else {
    leave_scope({f});
  }
}

void KernelEmitter::emit_load(NodeId id, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  SymRanges ahead = ranges;
  for (const Inference& i : n.lookahead) infer(i, ahead, true);
  const SymBox box = reads_box(n.reads_below, n.tensor, ahead);
  record(n.buffer, box);
  std::string condition;
  if (n.flush.valid()) {
    condition = nonempty(box);
    if (!condition.empty()) out_.open("if (" + condition + ")");
    for (BufferId f = n.flush; f.valid(); f = buffer(f).outer) flush_spilled(f, id);
    if (!condition.empty()) out_.close();
  }
  select(n.buffer);
  if (is_plain(n.buffer)) {
    out_.comment("L." + p_.workload().tensor(n.tensor).name + ": as it is used");
    return prefetch(n.buffer, box);
  }
  const std::string text = box_text(box);
  const std::string first = only_first(id, text);
  out_.line((first.empty() ? "" : "if (" + first + ") ") + "load(" + ref(n.buffer) + ", " + text +
            ");");
}

/// A load finds its tile held in all but the first iterations of the loops just around it that its
/// box does not depend on, unless somebody else fills the buffer: then it need not even look. That
/// condition, or nothing.
std::string KernelEmitter::only_first(NodeId load, const std::string& box) const {
  const ScheduleNode& n = k_.node(load);
  const Buffer& b = buffer(n.buffer);
  if (b.role != BufferRole::input || b.outer.valid() || n.only_for.valid() || n.flush.valid() ||
      scopes_[n.buffer.index()].kind == TileScope::Kind::all_blocks)
    return "";
  for (std::size_t i = 0; i < k_.nodes.size(); ++i)
    if ((k_.nodes[i].kind == NodeKind::load || k_.nodes[i].kind == NodeKind::drop) &&
        k_.nodes[i].buffer == n.buffer && NodeId(i) != load)
      return "";
  std::set<std::string> used = names_in(box);
  std::set<std::string> known = {"Box"};
  for (const OpenLoop& l : open_) known.insert({l.name, l.end});
  // What is no loop's own was derived from loops that its name does not tell.
  const auto derived = [&] {
    return !std::ranges::all_of(used, [&](const std::string& n) { return known.contains(n); });
  };
  std::string text;
  for (std::size_t i = open_.size(); i-- > 0;) {
    const OpenLoop& l = open_[i];
    const ScheduleNode& loop = k_.node(l.id);
    if (derived()) return "";
    if (loop.binding == Binding::grid || is_parallel(l.id)) break;
    const bool uses = used.contains(l.name) || used.contains(l.end);
    if (loop.max_trips <= 1) {
      if (uses) used.merge(names_in(l.first + " " + l.last));  // it is the range around it
      continue;
    }
    if (uses) break;
    text += (text.empty() ? "" : " && ") + l.name + " == " + l.first;
  }
  return text;
}

void KernelEmitter::visit_store(NodeId id, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Buffer& b = buffer(n.buffer);
  const std::string fresh = b.role == BufferRole::intermediate
                                ? "true"
                                : initialises(p_.workload().producer(n.tensor), ranges, n.atomic);
  if (is_plain(n.buffer))
    out_.comment("S." + p_.workload().tensor(n.tensor).name + ": it is home already");
  else
    out_.line("store(" + ref(n.buffer) + ", " + fresh + ");");
}

}  // namespace tilewright::cpu
