// Which tiles are packed into arrays of their own, and which are used where their tensors lie.
#include <algorithm>

#include "codegen/cpu/emitter.h"
#include "core/workload/expr.h"

namespace tilewright::cpu {
namespace {

constexpr std::int64_t kMostLines = std::int64_t{1} << 18;

/// The innermost cache: the micro-kernel's operands pass through it, whatever level the plan is
/// for.
const Level* innermost_cache(const Machine& m) {
  const Level* found = nullptr;
  for (const Level& l : m.levels)
    if (l.kind == LevelKind::cache && l.private_to >= Unit::grid) found = &l;
  return found;
}

bool has_sets(const Level& l) {
  return l.kind == LevelKind::cache && l.ways > 0 && l.line.value > 0 && l.sets() > 0;
}

}  // namespace

/// Whether a box of the tensor, where it lies, spreads over the cache's sets. A panel may take half
/// of a set's ways; a tile that is to stay in the cache half as many lines of a set again as an
/// even spread would give it.
bool KernelEmitter::spreads(const Level& cache, BufferId b,
                            const std::vector<std::int64_t>& extents, bool whole_tile) const {
  if (!has_sets(cache)) return true;
  const std::vector<std::int64_t> stride = home_strides(buffer(b).tensor);
  const std::vector<std::int64_t>& shape = p_.workload().tensor(buffer(b).tensor).shape;
  const std::int64_t line = cache.line.value, sets = cache.sets();
  // Whole rows follow one another: they are one long row.
  std::size_t outer = extents.empty() ? 0 : extents.size() - 1;
  std::int64_t row = extents.empty() ? 1 : extents.back();
  while (outer > 0 && extents[outer] == shape[outer]) row *= extents[--outer];
  std::int64_t rows = 1;
  for (std::size_t d = 0; d < outer; ++d) rows *= extents[d];
  if (rows == 1) return true;
  const std::int64_t row_bytes = row * p_.element_bytes;
  const std::int64_t most_lines = rows * (row_bytes / line + 1);
  if (most_lines > kMostLines || most_lines <= 0) return false;
  std::vector<std::int64_t> lines_of(static_cast<std::size_t>(sets), 0);
  std::vector<std::int64_t> index(extents.size(), 0);
  std::int64_t lines = 0, last = -1;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < outer; ++d) at += index[d] * stride[d];
    const std::int64_t first = at * p_.element_bytes / line;
    const std::int64_t end = (at * p_.element_bytes + row_bytes - 1) / line;
    for (std::int64_t l = first; l <= end; ++l) {
      if (l == last) continue;  // rows that follow one another share lines
      ++lines_of[static_cast<std::size_t>(l % sets)], ++lines, last = l;
    }
    for (std::size_t d = outer; d-- > 0;) {
      if (++index[d] < extents[d]) break;
      index[d] = 0;
    }
  }
  const std::int64_t even = ceil_div(lines, sets);
  const std::int64_t room =
      whole_tile ? std::max(cache.ways / 2, even + even / 2) : std::max(cache.ways / 2, even);
  return *std::ranges::max_element(lines_of) <= room;
}

/// Why a buffer's tiles are copied; empty: they need not be.
std::string KernelEmitter::why_packed(BufferId b) const {
  const Buffer& buf = buffer(b);
  const Level& level = p_.machine().level(buf.level);
  if (buf.role == BufferRole::intermediate)
    return buf.leaves ? "it is computed here" : "it stays on chip";
  const DType type = p_.workload().tensor(buf.tensor).dtype, real = p_.prelude.real();
  if (is_integer(type)) return "its integers are converted";
  if (type != real) return "it is converted to " + std::string(name_of(real));
  if (p_.prelude.home != real) return "others are converted";
  if (level.managed == Managed::software) return "software manages " + level.name;
  if (buf.outer.valid()) return "it comes from " + p_.machine().level(buf.outer_level).name;
  if (buf.atomic) return "blocks add to it";
  if (buf.sliding) return "it slides";
  if (once_[b.index()]) return "what is complete of it is kept";
  if (scopes_[b.index()].kind == TileScope::Kind::all_blocks) return "every block has its own";
  if (p_.workload().tensor(buf.tensor).shape.empty()) return "";
  if (!streamed_[b.index()] && !spreads(level, b, layouts_[b.index()].most, true))
    return "its rows would share sets of " + level.name;
  const Level* const inner = innermost_cache(p_.machine());
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
  if (p_.options.count || buf.outer.valid() || buf.sliding || once_[b.index()] ||
      scopes_[b.index()].kind == TileScope::Kind::all_blocks)
    return false;
  if (std::ranges::any_of(k_.buffers, [&](const Buffer& o) { return o.outer == b; })) return false;
  if (packed_[b.index()].empty()) return true;
  return buf.role == BufferRole::intermediate && !buf.leaves && buf.fixed_at.valid();
}

void KernelEmitter::prefetch(BufferId b, const SymBox& box) {
  if (!p_.options.prefetch || box.empty()) return;
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
