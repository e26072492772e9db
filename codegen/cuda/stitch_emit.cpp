// The text of a stitched kernel: its loops, what is declared and waited for between them.
#include <algorithm>

#include "codegen/cuda/launch_text.h"
#include "codegen/cuda/stitch.h"

namespace tilewright::cuda {
namespace {

constexpr std::int64_t kLongest = std::int64_t{1} << 31;

/// "a < b" for what must be positive.
std::string positive(const Variables& variables, const Linear& x) {
  Linear more, less;
  for (const auto& [id, c] : x.terms) (c > 0 ? more : less).terms[id] = c > 0 ? c : -c;
  (x.constant > 0 ? more : less).constant = std::abs(x.constant);
  return variables.text(less) + " < " + variables.text(more);
}

}  // namespace

Result<KernelText> StitchEmitter::emit() {
  try {
    check();
    shape_block();
    Point at;
    at.ranges.resize(k_.range_count);
    for (OpId op : k_.ops)
      for (std::size_t l = 0; l < workload_.op(op).loops.size(); ++l)
        at.ranges[slot(op, l)] = {
            .lo = number(0), .most = workload_.loop(workload_.op(op).loops[l]).extent, .ends = {}};
    walk(NodeId(0), at);
    make_values();
    lay_out();
    write();
  } catch (const Refused& refused) {
    return Reason{k_.name + ": " + refused.text, refused.shortage};
  }
  KernelText text = launch_text(p_, number_,
                                {.body = out_.text(),
                                 .threads = static_cast<int>(32 * warps_),
                                 .shared_bytes = shared_bytes_});
  for (const Value& v : values_) {
    const bool shared = v.storage == Storage::shared;
    text.tiles.push_back(
        {.tensor = workload_.tensor(v.tensor).name,
         .level = p_.machine().level(k_.buffer(v.buffer).level).name,
         .place = shared                         ? "shared, " + real()
                  : v.storage == Storage::direct ? "nowhere"
                                                 : "registers",
         .bytes = shared ? v.elements * (p_.f64 ? 8 : 4) : 0,
         .reason = v.storage == Storage::direct ? "used element by element" : v.reason});
  }
  return text;
}

void StitchEmitter::write() {
  if (shared_bytes_ > 0) out_.line("TW_SHARED(memory);");
  out_.line(
      "const int block = blockIdx.x, thread = threadIdx.x, warp = thread / 32, "
      "lane = thread % 32;");
  out_.line("(void)block, (void)warp, (void)lane;");
  define_units();
  for (const Value& v : values_)
    if (v.storage == Storage::shared)
      out_.line(real() + "* const " + v.name + " = reinterpret_cast<" + real() + "*>(memory + " +
                std::to_string(v.offset) + ");");
  for (const auto& [anchor, flip] : flips_) out_.line("int " + flip + " = 0;");
  rest_ = "block";
  blocks_here_ = k_.blocks;
  defined_.emplace_back();
  visit_children(NodeId(0));
}

void StitchEmitter::define_units() {
  for (const Index& i : indices_) {
    if (i.kind != Index::Kind::unit || i.text == name_of(i.unit)) continue;
    std::string value(name_of(i.unit));
    if (i.stride > 1) value += " / " + std::to_string(i.stride);
    const std::int64_t all = i.unit == Binding::lane ? 32 : warps_;
    if (i.stride * i.size < all) value += " % " + std::to_string(i.size);
    out_.line("const int " + i.text + " = " + value + ";");
  }
}

void StitchEmitter::visit(NodeId id) {
  const ScheduleNode& n = k_.node(id);
  switch (n.kind) {
    case NodeKind::loop:
      return n.binding == Binding::grid ? visit_grid(id) : visit_loop(id);
    case NodeKind::sequence:
      return visit_children(id);
    case NodeKind::pack:
      return visit_pack(id);
    case NodeKind::load:
      for (const Value& v : values_)
        if (v.producer == id && v.anchor == id) load(v);
      return;
    case NodeKind::compute:
      return compute(id);
    case NodeKind::store:  // what leaves is written where it is complete
    case NodeKind::sync:   // threads wait where one reads what another has written
      return;
  }
}

void StitchEmitter::visit_children(NodeId parent) {
  for (NodeId c : k_.node(parent).children) {
    before(parent, c);
    visit(c);
    finish_sums(c);
  }
}

/// What stands between a node's children: declarations, loads that were moved here, barriers.
void StitchEmitter::before(NodeId parent, NodeId child) {
  std::vector<std::size_t> rewritten;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const Value& v = values_[i];
    const bool here = v.scope == parent && child_towards(parent, v.anchor) == child;
    if (here && v.storage == Storage::registers) declare(v);
    if (v.storage == Storage::shared && is_sum(v) && v.anchor == child) declare(v);
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
  if (!rewritten.empty()) {
    out_.comment("What the last turn left here has been read.");
    synchronise(rewritten);
  }
  const auto moved = hoisted_.find(child);
  if (moved != hoisted_.end())
    for (const Value& v : values_)
      if (v.loaded() && v.anchor == child && v.producer != child) load(v);
  std::vector<std::size_t> read;
  for (std::size_t i : written_)
    if (std::ranges::any_of(values_[i].uses, [&](const Use& use) {
          return use.node == child || is_around(child, use.node);
        }))
      read.push_back(i);
  if (!read.empty()) synchronise(read);
  for (const Value& v : values_)
    if (is_sum(v) && v.anchor == child) start_sum(v);
}

bool StitchEmitter::within_warp(const Value& v) const {
  return warps_ == 1 || copies({}, v.around).warp.empty();
}

/// Threads that share these values meet.
void StitchEmitter::synchronise(const std::vector<std::size_t>& values) {
  const bool warp =
      std::ranges::all_of(values, [this](std::size_t i) { return within_warp(values_[i]); });
  out_.line(warp ? "warp_sync();" : "block_sync();");
  std::erase_if(written_, [&](std::size_t i) { return !warp || within_warp(values_[i]); });
}

void StitchEmitter::declare(const Value& v) {
  std::string sizes;
  for (int id : v.dims)
    sizes += "[" + std::to_string(indices_[static_cast<std::size_t>(id)].count) + "]";
  out_.line(real() + " " + v.name + (v.storage == Storage::shared ? "_sum" : "") + sizes + ";");
}

/// Whether a loop does so little that the compiler had better do several turns at a time.
bool StitchEmitter::is_short(NodeId loop) const {
  for (const Index& i : indices_)
    if (i.kind == Index::Kind::loop && i.node != loop && is_around(loop, i.node) && !i.unrolled)
      return false;
  return std::ranges::none_of(values_, [&](const Value& v) {
    return is_around(loop, v.anchor) && (is_sum(v) || v.storage == Storage::shared);
  });
}

void StitchEmitter::open_loop(int id, std::int64_t step, const std::string& how) {
  const Index& i = indices_[static_cast<std::size_t>(id)];
  out_.line(!how.empty() ? how : i.unrolled ? "TW_UNROLL" : "TW_NO_UNROLL");
  out_.open("for (int " + i.text + " = 0; " + i.text + " < " + std::to_string(i.count) + "; " +
            (step == 1 ? "++" + i.text : i.text + " += " + std::to_string(step)) + ")");
  defined_.emplace_back();
}

void StitchEmitter::close_loop() {
  defined_.pop_back();
  out_.close();
}

void StitchEmitter::visit_loop(NodeId id) {
  const int turn = facts_[id.index()].turn;
  if (turn < 0) return visit_children(id);
  const bool unrolled = indices_[static_cast<std::size_t>(turn)].unrolled;
  hold_reads(id);
  open_loop(turn, 1, !unrolled && is_short(id) ? "TW_UNROLL_4" : "");
  open_.push_back(id);
  visit_children(id);
  open_.pop_back();
  close_loop();
}

/// The block's iteration of a grid loop, where it has one.
void StitchEmitter::visit_grid(NodeId id) {
  const ScheduleNode& n = k_.node(id);
  const std::string outer = rest_;
  const std::int64_t outer_blocks = blocks_here_, inner = blocks_below(k_, id);
  const int turn = facts_[id.index()].turn;
  const bool idle = outer_blocks > n.max_trips * inner;
  if (idle) {
    out_.open("if (" + outer + " < " + std::to_string(n.max_trips * inner) + ")");
    defined_.emplace_back();
  }
  if (turn >= 0)
    out_.line("const int " + indices_[static_cast<std::size_t>(turn)].text + " = " + outer +
              (inner == 1 ? ";" : " / " + std::to_string(inner) + ";"));
  if (inner > 1 && turn >= 0) {
    rest_ = names_.fresh("rest");
    out_.line("const int " + rest_ + " = " + outer + " % " + std::to_string(inner) + ";");
  } else if (inner == 1) {
    rest_ = "0";
  }
  blocks_here_ = inner;
  visit_children(id);
  rest_ = outer;
  blocks_here_ = outer_blocks;
  if (idle) close_loop();
}

void StitchEmitter::visit_pack(NodeId id) {
  const std::string outer = rest_;
  const std::int64_t outer_blocks = blocks_here_;
  for (NodeId c : k_.node(id).children) {
    const std::int64_t first = k_.node(c).first_block, blocks = blocks_of(k_, c);
    rest_ = names_.fresh("rest");
    out_.open("if (" + outer + " >= " + std::to_string(first) + " && " + outer + " < " +
              std::to_string(first + blocks) + ")");
    defined_.emplace_back();
    out_.line("const int " + rest_ + " = " + outer + " - " + std::to_string(first) + ";");
    out_.line("(void)" + rest_ + ";");
    blocks_here_ = blocks;
    before(id, c);
    visit(c);
    finish_sums(c);
    close_loop();
  }
  rest_ = outer;
  blocks_here_ = outer_blocks;
}

// ---- expressions ------------------------------------------------------------------------------

/// A name for a value; the same value keeps the name that it has.
std::string StitchEmitter::named(const std::string& type, const std::string& base,
                                 const std::string& text) {
  for (const auto& scope : defined_)
    if (const auto found = scope.find(type + text); found != scope.end()) return found->second;
  const std::string name = names_.fresh(base);
  out_.line("const " + type + " " + name + " = " + text + ";");
  defined_.back()[type + text] = name;
  return name;
}

/// What must hold, by name; empty: it always does.
std::string StitchEmitter::condition(const std::vector<Linear>& inside) {
  std::string text;
  for (const Linear& x : inside) text = both(text, positive(variables_, x));
  return text.empty() ? text : named("bool", "in", text);
}

Linear StitchEmitter::flat(TensorId t, const Key& key) const {
  Linear x = number(0);
  const Tensor& tensor = workload_.tensor(t);
  for (std::size_t d = 0; d < key.size(); ++d) x = tensor.shape[d] * x + key[d];
  return x;
}

/// "at + 128 * j": what the compiler does not know stands in a name of its own, so that turns
/// differ by constants.
std::string StitchEmitter::offset_text(TensorId t, const Linear& flat) {
  Linear base, rest = number(flat.constant);
  for (const auto& [id, c] : flat.terms)
    (indices_[static_cast<std::size_t>(id)].unrolled ? rest : base).terms[id] = c;
  std::string text;
  if (!base.terms.empty()) {
    const bool wide = workload_.tensor(t).elements().value >= kLongest;
    std::string value;
    for (const auto& [id, c] : base.terms)
      value += (value.empty() ? "" : " + ") +
               (wide ? "i64(" + std::to_string(c) + ") * " + variables_.text({{{id, 1}}, 0})
                     : times(c, variables_.text({{{id, 1}}, 0})));
    text = named(wide ? "i64" : "int", "at", value);
  }
  const std::string more = variables_.text(rest);
  if (text.empty()) return more;
  return more == "0" ? text : text + (more.front() == '-' ? " " : " + ") + more;
}

/// A value in registers; `of_use`: the user's indices for the maker's.
std::string StitchEmitter::array(const Value& v, const std::map<int, int>& of_use,
                                 int without) const {
  std::string text = v.name + (v.storage == Storage::shared ? "_sum" : "");
  for (int id : v.dims) {
    if (id == without) continue;
    const auto found = of_use.find(id);
    text += "[" +
            indices_[static_cast<std::size_t>(found == of_use.end() ? id : found->second)].text +
            "]";
  }
  return text;
}

}  // namespace tilewright::cuda
