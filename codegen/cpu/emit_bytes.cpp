// Convolutions of whole numbers of 8 bits: quads of channels (pairs with AVX2) are steps of the
// depth, vectors run along the points of a copy of the image in them; see bytes_text.cpp. Weights
// are packed once.
#include <algorithm>
#include <cmath>
#include <set>

#include "codegen/cpu/followers.h"
#include "codegen/cpu/window_depth.h"

namespace tilewright::cpu {
namespace {

constexpr std::int64_t kTileRows = 16;              // and quads of a row: tiles_text.cpp
constexpr std::int64_t kLeastRowsOfQuads = 4;       // fewer slide over each channel, or waste sums
constexpr std::int64_t kQuadCopyBytes = 256 << 10;  // copies of all quads, in the second cache
constexpr std::int64_t kTilePanelBytes = 1
                                         << 20;  // of those beside which tiles of weights lie there
constexpr std::int64_t kQuadPanelBytes = 288 << 10;  // of all panels, in the second cache
constexpr std::int64_t kMostQuads = 64 << 20;        // elements of the part in quads
constexpr std::int64_t kMostPackedQuads = std::int64_t{1} << 32;

}  // namespace

/// The loop over channels of a convolution whose weights never change and whose tiles have all of
/// its depth, where products of i8 are summed in whole numbers; -1: it is computed like others.
int KernelEmitter::loop_of_bytes(NodeId id, const Window& x, const SymRanges& ranges) const {
  const ScheduleNode& n = k_.node(id);
  const Workload& w = p_.workload();
  const Operator& op = w.op(n.op);
  const Access& a = op.inputs[static_cast<std::size_t>(x.left)];
  const Access& b = op.inputs[static_cast<std::size_t>(x.right)];
  if (!sums_whole(n.op) || p_.micro_kernel || x.taps_are_channels || x.rows < 0 ||
      !p_.constant[a.tensor.index()] || op.outputs[0].rescale || n.writes[0].atomic)
    return -1;
  std::set<LoopId> loops;
  for (const Affine& index : a.index) {
    const auto loop = index.plain_loop();
    if (!loop || !loops.insert(*loop).second) return -1;
  }
  const auto extent = [&](int l) { return w.loop(op.loops[static_cast<std::size_t>(l)]).extent; };
  const SymRange& rows = range(ranges, n.op, x.rows);
  if (rows.most < kLeastRowsOfQuads || (begins_of_tiles(n.op, x.rows) == 0 && rows.lo != number(0)))
    return -1;
  int found = -1;
  std::int64_t image = ceil_div(w.tensor(b.tensor).elements().value, p_.whole);
  for (int l : x.depth) {
    if (extent(l) == 1) continue;
    const SymRange& r = range(ranges, n.op, l);
    if (r.lo != number(0) || !r.hi.is_constant() || r.hi.constant != extent(l)) return -1;
    const bool tap = std::ranges::any_of(std::array{x.row_dim, x.column_dim}, [&](int dim) {
      return dim >= 0 && coefficient_of(b.index[static_cast<std::size_t>(dim)],
                                        op.loops[static_cast<std::size_t>(l)]) != 0;
    });
    if (tap) continue;
    if (found >= 0) return -1;
    found = l;
  }
  return image <= kMostQuads ? found : -1;
}

/// Where the weights of this tile's first group of rows are, as convolve_bytes takes them; they are
/// packed once: for each iteration of the other loops groups of so many rows, each with a number a
/// row in front of its steps.
std::string KernelEmitter::prepared_bytes(NodeId id, const Window& x, std::int64_t group,
                                          const Surroundings& s) {
  const ScheduleNode& n = k_.node(id);
  const Workload& w = p_.workload();
  const Operator& op = w.op(n.op);
  const Access& a = op.inputs[static_cast<std::size_t>(x.left)];
  const auto strides = home_strides(a.tensor);
  const auto extent = [&](int l) { return w.loop(op.loops[static_cast<std::size_t>(l)]).extent; };
  const auto stride = [&](int l) {
    return loop_stride(a, op.loops[static_cast<std::size_t>(l)], strides);
  };
  const auto text_of = [](std::int64_t v) { return std::to_string(v); };
  const auto name = [](int l) { return "l" + std::to_string(l); };
  std::vector<int> others, taps;  // iterations of others have groups of their own
  for (int l = 0; l < static_cast<int>(op.loops.size()); ++l)
    if (l != x.rows && indexes(a, op.loops[static_cast<std::size_t>(l)]) &&
        std::ranges::find(x.depth, l) == x.depth.end())
      others.push_back(l);
  std::ranges::copy_if(x.depth, std::back_inserter(taps), [&](int l) { return l != x.bytes; });
  const std::string together = text_of(p_.whole);
  std::int64_t steps = ceil_div(extent(x.bytes), p_.whole);
  for (int l : taps) steps *= extent(l);
  const bool tiles = group == kTileRows;
  if (tiles) steps = round_up(steps, kTileRows);
  const std::int64_t groups = ceil_div(extent(x.rows), group), of_group = group * (steps + 1);
  std::int64_t all = groups * of_group;
  for (int l : others) {
    const auto more = checked_mul(all, extent(l));
    if (!more || *more > kMostPackedQuads)
      throw Refused{"operator " + op.name + " packs more than 2^32 elements once"};
    all = *more;
  }
  Prepared& made = prepared_[id];
  // The first pass does not know yet how rows of points lie, nor so how many rows a group has.
  const bool decided = packed_[buffer_of_input(n, x.left).index()] != kUndecided;
  if (decided && made.elements < all) made.offset = p_.kept, made.elements = all, p_.kept += all;

  Lines text(1);
  std::string from, number = "0";
  int opened = 0;
  const auto loop = [&](int l) {
    text.open("for (int64_t " + name(l) + " = 0; " + name(l) + " < " + text_of(extent(l)) + "; ++" +
              name(l) + ")");
    from += times(stride(l), name(l)) + " + ";
    ++opened;
  };
  text.open("");
  text.comment(w.tensor(a.tensor).name + " in " + together_name(n.op) + ", by groups of " +
               op.name + "'s rows");
  text.line("const std::int8_t* const from = static_cast<const std::int8_t*>(tensors[" +
            text_of(a.tensor.value) + "]);");
  const std::string kept = "static_cast<Real*>(tensors[" +
                           text_of(static_cast<std::int64_t>(w.tensors().size())) + "]) + " +
                           text_of(made.offset);
  text.line("Real* to = " + kept + ";");
  for (int l : others) {
    loop(l);
    number = "(" + number + ") * " + text_of(extent(l)) + " + (" +
             s.at[static_cast<std::size_t>(l)] + ")";
  }
  const std::string width = text_of(group), rows = text_of(extent(x.rows));
  text.open("for (int64_t g = 0; g < " + rows + "; g += " + width + ")");
  text.line("std::int32_t first[" + width + "] = {};");
  text.line("Real* const begin = to;");
  text.line("to += " + width + ";");
  if (tiles) {
    text.line("std::memset(to, 0, " + text_of(4 * (of_group - group)) + ");");
    text.line("int64_t step = 0;");
  }
  const int around = opened;
  text.open("for (int64_t q = 0; q < " + text_of(extent(x.bytes)) + "; q += " + together + ")");
  for (int l : taps) loop(l);
  text.line("for (int64_t i = 0; i < " + width + "; ++i)");
  text.line(std::string(tiles ? "  to[step / 16 * 256 + i * 16 + step % 16]" : "  *to++") +
            " = together_of(from + " + from + times(stride(x.bytes), "q") + " + (g + i < " + rows +
            " ? " + times(stride(x.rows), "(g + i)") + " : 0), " + text_of(stride(x.bytes)) +
            ", g + i < " + rows + " ? min(" + text_of(extent(x.bytes)) + " - q, " + together +
            ") : 0, first[i]);");
  if (tiles) text.line("++step;");
  for (; opened > around; --opened) text.close();
  text.close();
  if (tiles) text.line("to += " + text_of(of_group - group) + ";");
  text.line("std::memcpy(begin, first, sizeof(first));");
  text.close();
  for (; opened > 0; --opened) text.close();
  text.close();
  made.text = text.text();

  // Tiles begin at groups.
  return "static_cast<const Real*>(tensors[" +
         text_of(static_cast<std::int64_t>(w.tensors().size())) + "]) + " + text_of(made.offset) +
         " + ((" + number + ") * " + text_of(groups) + " + (" +
         s.at[static_cast<std::size_t>(x.rows)] + ") / " + width + ") * " + text_of(of_group) +
         " + " + width;
}

void KernelEmitter::read_bytes(NodeId id, Window x, const Surroundings& s,
                               const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Workload& w = p_.workload();
  const Operator& op = w.op(n.op);
  const Access& b = op.inputs[static_cast<std::size_t>(x.right)];
  const Access& c = op.outputs[0].target;
  const BufferId in_b = buffer_of_input(n, x.right), in_c = n.writes[0].buffer;
  std::stable_partition(x.depth.begin(), x.depth.end(), [&](int l) { return l == x.bytes; });
  PreludeOptions& prelude = p_.prelude;
  prelude.products = prelude.windows = prelude.vectors = prelude.lines = prelude.functions = true;
  prelude.bytes = true;
  take_reals(id, {});  // operands may lie in bytes

  const std::int64_t lanes = p_.vector_bytes / p_.element_bytes;
  const auto known = [&](int l) { return std::stoll(known_size(n.op, l, ranges)); };
  const auto most = [&](int l) { return l < 0 ? 1 : range(ranges, n.op, l).most; };
  const std::int64_t c_line = stride_of(op, c, in_c, x.outer), width = known(x.columns);
  const bool follow = x.outer < 0 || (width > 0 && dense(in_c, c_line, width));
  Depth depth(*this, id, x, ranges);
  const std::int64_t quads = depth.channels(), steps = quads * depth.taps();
  // So many rows of points at a time that copies of all quads fit.
  const std::int64_t height = most(x.outer);
  std::int64_t band = height;
  const auto copies = [&] {
    return quads * lines_of_channel(id, x, ranges, band) * p_.element_bytes;
  };
  for (std::int64_t bands = 2; !x.direct && bands <= height && copies() > kQuadCopyBytes; ++bands)
    band = ceil_div(height, bands);
  const std::int64_t all = most(x.columns) * (follow ? band : 1);
  const std::int64_t even = known(x.outer) > 0 && known(x.outer) % band == 0 ? band : 0;
  const std::int64_t points = known(x.columns) * (follow && x.outer >= 0 ? even : 1);
  auto [rows, vectors] = block_shape(most(x.rows), ceil_div(all, lanes), registers(),
                                     begins_of_tiles(n.op, x.rows), true);
  if (p_.tiles && most(x.rows) >= kTileRows && begins_of_tiles(n.op, x.rows) % kTileRows == 0)
    rows = kTileRows, vectors = 2;
  const std::string name = std::to_string(rows) + "x" + std::to_string(vectors);
  if (std::ranges::find(p_.used, name) == p_.used.end()) p_.used.push_back(name);

  out_.open("");
  std::int64_t offset = 0;
  const std::int64_t copied = ceil_div(copies() + (vectors + 1) * p_.vector_bytes, 64) * 64;
  const std::int64_t packed = rows == kTileRows ? round_up(steps, kTileRows) : steps;
  const std::int64_t panel = vectors * p_.vector_bytes * packed;
  // Panels for which the weights pass by once.
  const std::int64_t panels = rows == kTileRows ? ceil_div(all, 2 * lanes) * panel
                                                : ceil_div(all, lanes) * p_.vector_bytes * steps;
  const std::int64_t most_panels = rows == kTileRows ? kTilePanelBytes : kQuadPanelBytes;
  const std::int64_t panel_room = panels <= most_panels ? panels
                                  : rows == kTileRows ? std::max(panel, most_panels / panel * panel)
                                                      : panel;
  const std::string memory = scratch(depth.room_beside(copied + panel_room), offset, "char");
  const std::string list = scratch(quads * 8, offset, "int64_t");
  // What the window reads of the image, at most.
  std::int64_t image = quads;
  for (const int dim : {x.row_dim, x.column_dim}) {
    if (dim < 0) continue;
    const Affine& index = b.index[static_cast<std::size_t>(dim)];
    std::int64_t reach = 1;
    for (const Term& t : index.terms) {
      const auto l = std::ranges::find(op.loops, t.loop) - op.loops.begin();
      reach += std::abs(t.coefficient) * (most(static_cast<int>(l)) - 1);
    }
    image *= std::min(reach, w.tensor(b.tensor).shape[static_cast<std::size_t>(dim)]);
  }
  const std::string in_quads = scratch(image * p_.element_bytes + p_.vector_bytes, offset, "Real");
  const std::string left = prepared_bytes(id, x, rows, s);
  const std::string steps_name = depth.emit(offset, "(" + memory + ")", "nullptr", "nullptr, 0");
  const std::string window = emit_window(id, x, s.at, ranges, "nullptr");
  std::vector<std::string> origin = s.at;
  for (int l : x.depth) origin[static_cast<std::size_t>(l)] = "0";
  std::string after;
  std::unique_ptr<Followers> followers;
  if (s.opened == 0 && follow)
    followers =
        followers_of_window(id, x, ranges, s.at, points > 0 && points % lanes == 0, width, after);
  out_.line("convolve_bytes<" + std::to_string(rows) + ", " + std::to_string(vectors) + ", " +
            std::to_string(x.step) + ", " + known_size(n.op, x.rows, ranges) + ", " +
            std::to_string(points) + ">(" + size_of_loop(n.op, x.rows, ranges) + ", " + left +
            ", " + std::to_string(rows * (packed + 1)) + ", " + corner(op, b, in_b, origin) + ",");
  out_.line("         " + size_of_loop(n.op, x.bytes, ranges) + ", " +
            std::to_string(stride_of(op, b, in_b, x.bytes)) + ", " + window + ", " + steps_name +
            ", " + list + ", " + in_quads + ", " + std::to_string(band) + ", " +
            std::to_string(copied / p_.element_bytes) + ", " +
            std::to_string(panel_room / p_.element_bytes) + ",");
  out_.line("         " + corner(op, c, in_c, s.at) + ", " +
            std::to_string(stride_of(op, c, in_c, x.rows)) + ", " + std::to_string(c_line) + ", " +
            together_name(n.op) + "(" + (after.empty() ? "Keep{}" : after) + "));");
  if (followers) followers->end();
  out_.close();
}

}  // namespace tilewright::cpu
