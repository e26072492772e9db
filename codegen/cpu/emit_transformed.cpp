// Convolutions whose rows of taps are transformed once for all runs; transformed_text.cpp.
#include <algorithm>
#include <numeric>

#include "codegen/cpu/followers.h"
#include "codegen/cpu/window_depth.h"
#include "core/lowering/window_transform.h"

namespace tilewright::cpu {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 34;
constexpr std::int64_t kPanelBytes = 288 << 10;  // of all panels, in the second cache

}  // namespace

/// The loops of taps' rows and columns, where these are neighbours of points that move by one, can
/// be transformed, and the tile has all steps of the depth; nothing where they are others.
std::optional<KernelEmitter::Taps> KernelEmitter::neighbours(NodeId id, const Window& x,
                                                             const SymRanges& ranges) const {
  const ScheduleNode& n = k_.node(id);
  const Workload& w = p_.workload();
  const Operator& op = w.op(n.op);
  const Access& b = op.inputs[static_cast<std::size_t>(x.right)];
  if (p_.micro_kernel || x.bytes >= 0 || x.taps_are_channels || x.rows < 0 || x.outer < 0 ||
      x.step != 1 || x.row_dim < 0 || x.column_dim < 0 || !can_prepare(id, x, ranges))
    return std::nullopt;
  const auto whole = [&](int l) {
    const SymRange& r = range(ranges, n.op, l);
    return r.lo == number(0) && r.hi.is_constant() &&
           r.hi.constant == w.loop(op.loops[static_cast<std::size_t>(l)]).extent;
  };
  // Of an index, the loop of the depth beside the points' own, if any; both move by one.
  const auto tap = [&](int dim, int points, int& found, std::int64_t& count) {
    for (const Term& t : b.index[static_cast<std::size_t>(dim)].terms) {
      const auto l = static_cast<int>(std::ranges::find(op.loops, t.loop) - op.loops.begin());
      if (t.coefficient != 1) return false;
      if (l == points) continue;
      if (found >= 0 || std::ranges::find(x.depth, l) == x.depth.end()) return false;
      found = l;
      count = w.loop(t.loop).extent;
    }
    return true;
  };
  Taps taps;
  if (!tap(x.row_dim, x.outer, taps.row, taps.down) ||
      !tap(x.column_dim, x.columns, taps.column, taps.across) ||
      (taps.row >= 0 && taps.row == taps.column) || !std::ranges::all_of(x.depth, whole))
    return std::nullopt;
  for (std::size_t d = 0; d < b.index.size(); ++d)
    if (static_cast<int>(d) != x.row_dim && static_cast<int>(d) != x.column_dim)
      for (int l : {taps.row, taps.column, x.outer, x.columns})
        if (l >= 0 && coefficient_of(b.index[d], op.loops[static_cast<std::size_t>(l)]) != 0)
          return std::nullopt;
  std::int64_t steps = 1;
  for (int l : x.depth) steps *= w.loop(op.loops[static_cast<std::size_t>(l)]).extent;
  const auto channels = static_cast<double>(steps / (taps.down * taps.across));
  if (!can_transform(taps.down, taps.across, channels)) return std::nullopt;
  return taps;
}

/// The tile as it would be transformed.
TransformedWindow KernelEmitter::transformed_of(NodeId id, const Window& x, const Taps& taps,
                                                const SymRanges& ranges) const {
  const OpId op = k_.node(id).op;
  const auto most = [&](int l) { return static_cast<double>(range(ranges, op, l).most); };
  // A tile that other operators' loops cut begins where they say.
  const std::int64_t begins =
      std::gcd(begins_of_tiles(op, x.rows), variables_.multiple(range(ranges, op, x.rows).lo));
  double steps = 1;
  for (int l : x.depth) steps *= most(l);
  TransformedWindow w{.rows = most(x.rows),
                      .width = most(x.columns),
                      .height = most(x.outer),
                      .channels = steps / static_cast<double>(taps.down * taps.across),
                      .down = taps.down,
                      .across = taps.across,
                      .begins = begins,
                      .lanes = p_.vector_bytes / p_.element_bytes,
                      .registers = registers(),
                      .multiply_add = multiply_add_cycles(),
                      .element = static_cast<double>(p_.element_bytes)};
  const Level* inner = nullptr;  // outermost first: the second cache stands before the first
  for (const Level& l : p_.machine().levels) {
    if (l.kind != LevelKind::cache || l.private_to < Unit::grid) continue;
    if (&l == innermost_cache() && inner != nullptr)
      w.near = static_cast<double>(inner->capacity.value);
    inner = &l;
  }
  return w;
}

/// Whether that takes fewer cycles than either other form, and groups of rows begin where tiles do.
bool KernelEmitter::goes_transformed(NodeId id, const Window& x, const SymRanges& ranges) {
  const std::optional<Taps> taps = neighbours(id, x, ranges);
  if (!taps) return false;
  const TransformedWindow window = transformed_of(id, x, *taps, ranges);
  const TransformedBands bands = bands_of_transformed(window);
  const Depth depth(*this, id, x, ranges);
  return bands.cycles < std::min(lines_cycles(id, x, ranges, depth), points_cycles(id, x, ranges));
}

void KernelEmitter::read_transformed(NodeId id, const Window& x, const Surroundings& s,
                                     const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = p_.workload().op(n.op);
  const Access& c = op.outputs[0].target;
  const BufferId in_c = n.writes[0].buffer;
  p_.prelude.products = p_.prelude.windows = p_.prelude.vectors = true;
  p_.prelude.lines = p_.prelude.transformed = p_.prelude.functions = true;
  const Taps taps = *neighbours(id, x, ranges);
  const TransformedWindow window = transformed_of(id, x, taps, ranges);
  const TransformedBands bands = bands_of_transformed(window);
  const std::int64_t points_down = points_of_taps(taps.down);
  const std::int64_t points_across = points_of_taps(taps.across);
  const std::int64_t rows_of_places = places_of_taps(taps.down);
  const std::int64_t columns_of_places = places_of_taps(taps.across);
  const std::int64_t places = rows_of_places * columns_of_places;
  const std::int64_t lanes = window.lanes, skew = 64 / p_.element_bytes;
  const auto channels = static_cast<std::int64_t>(window.channels);
  const auto width = static_cast<std::int64_t>(window.width);
  const std::int64_t across = ceil_div(width, points_across);
  const std::int64_t pitch = ceil_div(bands.tiles * across, lanes) * lanes;
  const TransformedBlock shape = block_of_transformed(window, pitch / lanes);
  const std::string name = std::to_string(shape.rows) + "x" + std::to_string(shape.vectors);
  if (std::ranges::find(p_.used, name) == p_.used.end()) p_.used.push_back(name);

  const std::int64_t of_lines = (points_down * bands.tiles + rows_of_places - points_down) *
                                (across + (columns_of_places - 1) / 2);
  const std::int64_t lines =
      std::max((points_across + columns_of_places) * (of_lines + 5 * lanes),
               points_down * points_across * pitch + points_down * bands.tiles * width + 5 * lanes);
  const std::int64_t right = places * (channels * pitch + skew);
  const std::int64_t sums = places * (bands.rows * pitch + skew);
  const std::int64_t panel = shape.vectors * lanes * channels;
  const std::int64_t panels = pitch * channels * p_.element_bytes <= kPanelBytes
                                  ? std::max(pitch * channels, panel)
                                  : panel;
  // Pieces begin at lines of a cache.
  const auto whole = [&](std::int64_t n) { return ceil_div(n, skew) * skew; };

  out_.open("");
  std::int64_t offset = 0;
  Depth depth(*this, id, x, ranges);
  const std::string list = scratch(depth.room_beside(0), offset, "char");
  const std::string memory =
      scratch((whole(lines) + whole(right) + whole(sums) + whole(panels)) * p_.element_bytes,
              offset, "Real");
  const std::string left = prepared_transformed(id, x, shape.rows, s, ranges);
  const std::string steps = depth.emit(offset, "(" + list + ")", "nullptr", "nullptr, 0");
  const std::string at = emit_window(id, x, s.at, ranges);
  const std::string transformed = names_.fresh("transformed");
  out_.line("const Transformed " + transformed + " = {" + std::to_string(bands.tiles) + ", " +
            std::to_string(bands.rows) + ", " + left + ",");
  out_.line("    " + memory + ", " + std::to_string(whole(lines)) + ", " +
            std::to_string(whole(right)) + ", " + std::to_string(whole(sums)) + ", " +
            std::to_string(whole(panels)) + "};");
  const std::int64_t c_line = stride_of(op, c, in_c, x.outer);
  const std::int64_t known_width = std::stoll(known_size(n.op, x.columns, ranges));
  const std::int64_t known_height = std::stoll(known_size(n.op, x.outer, ranges));
  const std::int64_t known_rows = std::stoll(known_size(n.op, x.rows, ranges));
  std::string after;
  std::unique_ptr<Followers> followers;
  if (s.opened == 0 && known_width > 0 && c_line == known_width)
    followers = followers_of_window(id, x, ranges, s.at, false, known_width, after);
  if (!after.empty()) after = ", " + after;
  const std::int64_t rows = known_rows % bands.rows == 0 && known_rows > 0 ? bands.rows : 0;
  const bool even =
      known_width > 0 && known_height > 0 && ceil_div(known_height, points_down) % bands.tiles == 0;
  out_.line("convolve_transformed<" + std::to_string(shape.rows) + ", " +
            std::to_string(shape.vectors) + ", " + std::to_string(taps.down) + ", " +
            std::to_string(taps.across) + ", " + std::to_string(rows) + ", " +
            std::to_string(even ? pitch : 0) + ">(" + size_of_loop(n.op, x.rows, ranges) + ", " +
            at + ", " + steps + ", " + transformed + ", " + corner(op, c, in_c, s.at) + ",");
  out_.line("         " + std::to_string(stride_of(op, c, in_c, x.rows)) + ", " +
            std::to_string(c_line) + after + ");");
  if (followers) followers->end();
  out_.close();
}

/// "where the taps are, elements from one group of rows to the next, and from one place": all of
/// the left operand, transformed before the first run.
std::string KernelEmitter::prepared_transformed(NodeId id, const Window& x, std::int64_t group,
                                                const Surroundings& s, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Workload& w = p_.workload();
  const Operator& op = w.op(n.op);
  const Access& a = op.inputs[static_cast<std::size_t>(x.left)];
  const Taps taps = *neighbours(id, x, ranges);
  const auto extent = [&](int l) { return w.loop(op.loops[static_cast<std::size_t>(l)]).extent; };
  std::vector<int> others, channels;  // iterations of `others` have panels of their own
  for (int l = 0; l < static_cast<int>(op.loops.size()); ++l)
    if (l != x.rows && indexes(a, op.loops[static_cast<std::size_t>(l)]) &&
        std::ranges::find(x.depth, l) == x.depth.end())
      others.push_back(l);
  std::int64_t steps = 1, all = 1;
  for (int l : x.depth)
    if (l != taps.row && l != taps.column) channels.push_back(l), steps *= extent(l);
  for (int l : others) all *= extent(l);
  const std::int64_t place = ceil_div(extent(x.rows), group) * group * steps;
  const std::int64_t panel = places_of_taps(taps.down) * places_of_taps(taps.across) * place;
  const auto elements = checked_mul(panel, all);
  if (!elements || *elements > kMostElements)
    throw Refused{"operator " + op.name + " transforms more than 2^34 elements"};
  Prepared& made = prepared_[id];
  if (made.elements == 0) made.offset = p_.kept, made.elements = *elements, p_.kept += *elements;

  Lines text(1);
  const auto strides = home_strides(a.tensor);
  const auto step = [&](int l) {
    return loop_stride(a, op.loops[static_cast<std::size_t>(l)], strides);
  };
  std::string from, number = "0";
  const std::string kept = begin_packing(
      text, "Real", a.tensor, ", transformed, by groups of " + op.name + "'s rows", made);
  int opened = 1;
  const auto loop = [&](int l) {
    const std::string l_name = "l" + std::to_string(l);
    text.open("for (int64_t " + l_name + " = 0; " + l_name + " < " + std::to_string(extent(l)) +
              "; ++" + l_name + ")");
    from += times(step(l), l_name) + " + ";
    ++opened;
  };
  for (int l : others) {
    loop(l);
    const std::string here = "(" + s.at[static_cast<std::size_t>(l)] + ")";
    number =
        number == "0" ? here : "(" + number + ") * " + std::to_string(extent(l)) + " + " + here;
  }
  const std::string rows = std::to_string(extent(x.rows));
  text.open("for (int64_t g = 0; g < " + rows + "; g += " + std::to_string(group) + ")");
  ++opened;
  for (int l : channels) loop(l);
  text.open("for (int64_t i = 0; i < " + std::to_string(group) + "; ++i)");
  const auto between = [&](int l) { return std::to_string(l < 0 ? 0 : step(l)); };
  text.line("transform_taps<" + std::to_string(taps.down) + ", " + std::to_string(taps.across) +
            ">(g + i < " + rows + " ? from + " + from + times(step(x.rows), "(g + i)") +
            " : nullptr, " + between(taps.row) + ", " + between(taps.column) + ", to++, " +
            std::to_string(place) + ");");
  text.close();
  for (int l : channels) (void)l, text.close(), --opened;
  text.close(), --opened;
  if (!others.empty()) text.line("to += " + std::to_string(panel - place) + ";");
  for (; opened > 0; --opened) text.close();
  made.text = text.text();
  const std::string row = "(" + s.at[static_cast<std::size_t>(x.rows)] + ")";
  return kept + " + " + std::to_string(panel) + " * (" + number + ") + " + row + " * " +
         std::to_string(steps) + ", " + std::to_string(group * steps) + ", " +
         std::to_string(place);
}

}  // namespace tilewright::cpu
