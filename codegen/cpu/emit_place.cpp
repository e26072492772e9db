// Which tiles are packed into arrays of their own, and which are used where their tensors lie.
#include <algorithm>

#include "codegen/cpu/emitter.h"
#include "core/lowering/cache_sets.h"
#include "core/workload/expr.h"

namespace tilewright::cpu {
namespace {

bool has_sets(const Level& l) {
  return l.kind == LevelKind::cache && l.ways > 0 && l.line.value > 0 && l.sets() > 0;
}

}  // namespace

/// The innermost cache: the micro-kernel's operands pass through it, whatever level the plan is
/// for.
const Level* KernelEmitter::innermost_cache() const {
  const Level* found = nullptr;
  for (const Level& l : p_.machine().levels)
    if (l.kind == LevelKind::cache && l.private_to >= Unit::grid) found = &l;
  return found;
}

/// Whether a box of the tensor, where it lies, spreads over the cache's sets.
bool KernelEmitter::spreads(const Level& cache, BufferId b,
                            const std::vector<std::int64_t>& extents, bool whole_tile) const {
  if (!has_sets(cache)) return true;
  return spreads_over_sets({.shape = p_.workload().tensor(buffer(b).tensor).shape,
                            .extents = extents,
                            .element_bytes = p_.element_bytes,
                            .line = cache.line.value,
                            .ways = cache.ways,
                            .sets = cache.sets()},
                           whole_tile);
}

/// Why a buffer's tiles are copied; empty: they need not be.
std::string KernelEmitter::why_packed(BufferId b) const {
  const Buffer& buf = buffer(b);
  const Level& level = p_.machine().level(buf.level);
  if (buf.role == BufferRole::intermediate && !buf.leaves) return "it stays on chip";
  // What leaves is made whole, so whoever reads it here finds it at home.
  if (buf.leaves && !needs_no_record(b)) return "it is computed here";
  if (may_lie_in_bytes(b) || may_lie_in_places(b)) return "";
  const DType type = p_.workload().tensor(buf.tensor).dtype, real = p_.prelude.real();
  if (is_integer(type)) return "its integers are converted";
  if (type != real) return "it is converted to " + std::string(name_of(real));
  if (p_.prelude.home != real && (buf.role != BufferRole::input || !needs_no_record(b)))
    return "others are converted";
  if (level.managed == Managed::software) return "software manages " + level.name;
  if (buf.outer.valid()) return "it comes from " + p_.machine().level(buf.outer_level).name;
  if (buf.atomic) return "blocks add to it";
  if (buf.sliding) return "it slides";
  if (once_[b.index()]) return "what is complete of it is kept";
  if (scopes_[b.index()].kind == TileScope::Kind::all_blocks) return "every block has its own";
  if (p_.workload().tensor(buf.tensor).shape.empty()) return "";
  if (!streamed_[b.index()] && !spreads(level, b, layouts_[b.index()].most, true))
    return "its rows would share sets of " + level.name;
  const Level* const inner = innermost_cache();
  for (const auto& extents : panels_[b.index()])
    if (inner != nullptr && !spreads(*inner, b, extents, false))
      return "rows that are used together would share sets of " + inner->name;
  return "";
}

void KernelEmitter::choose_places() {
  for (std::size_t i = 0; i < k_.buffers.size(); ++i) packed_[i] = why_packed(BufferId(i));
  for (std::size_t i = 0; i < k_.buffers.size(); ++i) plain_[i] = can_be_plain(BufferId(i));
}

/// What lies in place needs no record unless its loads are counted; nor does what is made and used
/// under the place that fixes its box.
bool KernelEmitter::can_be_plain(BufferId b) const {
  const Buffer& buf = buffer(b);
  if (!needs_no_record(b)) return false;
  if (packed_[b.index()].empty()) return true;
  return buf.role == BufferRole::intermediate && !buf.leaves && buf.fixed_at.valid();
}

bool KernelEmitter::needs_no_record(BufferId b) const {
  const Buffer& buf = buffer(b);
  return !p_.options.count && !buf.outer.valid() && !buf.sliding && !once_[b.index()] &&
         scopes_[b.index()].kind != TileScope::Kind::all_blocks &&
         std::ranges::none_of(k_.buffers, [&](const Buffer& o) { return o.outer == b; });
}

bool KernelEmitter::may_lie_in_bytes(BufferId b) const {
  const Buffer& buf = buffer(b);
  return is_bytes(b) && p_.vector_bytes > 0 && !p_.prelude.f64 && !takes_reals_[b.index()] &&
         !buf.atomic && needs_no_record(b) &&
         p_.machine().level(buf.level).managed != Managed::software;
}

/// A copy of a few of them, a tile of rows, takes longer than the rows do.
bool KernelEmitter::may_lie_in_places(BufferId b) const {
  const Buffer& buf = buffer(b);
  if (!is_places(b) || buf.role != BufferRole::input || !needs_no_record(b) ||
      p_.machine().level(buf.level).managed == Managed::software)
    return false;
  return std::ranges::none_of(k_.nodes, [&](const ScheduleNode& n) {
    if (n.kind != NodeKind::compute) return false;
    const Operator& op = p_.workload().op(n.op);
    for (int i = 0; i < static_cast<int>(op.inputs.size()); ++i)
      if (buffer_of_input(n, i) == b && std::ranges::any_of(op.outputs, [&](const Output& o) {
            return reads_input(o.value, i) || (o.rescale && reads_input(*o.rescale, i));
          }))
        return true;
    return false;
  });
}

/// Of a compute, what it writes and those inputs are walked as arrays of Real.
void KernelEmitter::take_reals(NodeId id, const std::vector<int>& inputs) {
  const ScheduleNode& n = k_.node(id);
  for (const int i : inputs)
    if (const BufferId b = buffer_of_input(n, i); b.valid()) takes_reals_[b.index()] = true;
  for (const OutputUse& w : n.writes) takes_reals_[w.buffer.index()] = true;
}

void KernelEmitter::prefetch(BufferId b, const SymBox& box) {
  if (!p_.options.prefetch || box.empty() || lies_in_bytes(b) || lies_in_places(b)) return;
  p_.prelude.prefetch = true;
  std::vector<std::string> first;
  std::string sizes, strides;
  for (std::size_t d = 0; d < box.size(); ++d) {
    first.push_back(variables_.text(box[d].lo));
    sizes += (d == 0 ? "" : ", ") + variables_.text(box[d].hi - box[d].lo);
    strides += (d == 0 ? "" : ", ") + std::to_string(layouts_[b.index()].stride[d]);
  }
  out_.line("prefetch<" + std::to_string(box.size()) + ">(" + element_address(b, first) + ", {" +
            sizes + "}, {" + strides + "});");
}

std::string KernelEmitter::element_address(BufferId b,
                                           const std::vector<std::string>& index) const {
  const auto nested = [](const std::string& text) {
    return text.find(' ') == std::string::npos ? text : "(" + text + ")";
  };
  if (!is_plain(b)) {
    std::string text = "at(" + ref(b) + ", {";
    for (std::size_t d = 0; d < index.size(); ++d) text += (d == 0 ? "" : ", ") + index[d];
    return text + (index.empty() ? "0})" : "})");
  }
  std::string text = tile_names_[b.index()];
  const std::vector<std::int64_t>& stride = layouts_[b.index()].stride;
  for (std::size_t d = 0; d < index.size(); ++d) {
    const bool home = packed_[b.index()].empty();
    const std::string low = home ? "0" : variables_.text(fixed_[b.index()][d].lo, true);
    if (index[d] == low) continue;
    text += " + " +
            times(stride[d], low == "0" ? nested(index[d]) : "(" + index[d] + " - " + low + ")");
  }
  return text;
}

std::vector<TileUse> KernelEmitter::tile_uses() const {
  std::vector<TileUse> uses;
  for (std::size_t i = 0; i < k_.buffers.size(); ++i)
    if (k_.buffers[i].role != BufferRole::intermediate || k_.buffers[i].leaves)
      uses.push_back({.tensor = p_.workload().tensor(k_.buffers[i].tensor).name,
                      .level = p_.machine().level(k_.buffers[i].level).name,
                      .packed = !packed_[i].empty(),
                      .reason = packed_[i].empty() ? "its rows spread over the sets" : packed_[i]});
  return uses;
}

}  // namespace tilewright::cpu
