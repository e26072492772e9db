// Convolutions with vectors along their points: each step of the depth reads one line of points,
// where it lies or from a copy; see lines_text.cpp. What follows takes the sums from registers.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "codegen/cpu/followers.h"
#include "codegen/cpu/window_depth.h"
#include "core/lowering/window_points.h"

namespace tilewright::cpu {
namespace {

constexpr int kMostGroup = 12;                     // rows, as `listed_product` unrolls them
constexpr std::int64_t kCopyBytes = 192 << 10;     // copies of a block of channels, about
constexpr std::int64_t kMostCopyBytes = 16 << 20;  // of what cannot be in blocks
constexpr std::int64_t kPanelBytes = 288 << 10;    // of all panels, in the second cache
constexpr std::int64_t kMostSteps = 1024;          // of a block
constexpr std::int64_t kNearBytes = 256 << 10;     // of sums that stay in the second cache

/// As even as they can be.
std::int64_t channels_of_block(std::int64_t bytes, std::int64_t taps, std::int64_t channels) {
  const std::int64_t most =
      std::clamp<std::int64_t>(std::min(kCopyBytes / std::max<std::int64_t>(bytes, 1),
                                        std::max<std::int64_t>(kMostSteps / taps, 1)),
                               1, channels);
  return ceil_div(channels, ceil_div(channels, most));
}

}  // namespace

std::pair<int, int> block_shape(std::int64_t rows, std::int64_t vectors, int registers,
                                std::int64_t begins, bool at_groups) {
  constexpr double kLatency = 4;
  // Beside multiply-adds and loads a step counts and asks for lines: a Zen 3 with 16 registers
  // takes longer for all of it than for few multiply-adds.
  constexpr double kOthers = 6, kIssued = 4.3;
  constexpr double kNotPacked = 1.1;  // rows of weights far from one another
  std::pair<int, int> best;
  std::pair<double, double> least;
  for (int n = 1; n <= 6; ++n)
    for (int m = 1; m <= kMostGroup && m * n + n + 1 <= registers; ++m) {
      if (at_groups && begins % m != 0) continue;
      std::pair<double, double> cost;  // cycles, loads
      const auto add = [&](std::int64_t count, std::int64_t height, std::int64_t width) {
        if (count * height * width == 0) return;
        const auto blocks = static_cast<double>(count), h = static_cast<double>(height);
        const auto w = static_cast<double>(width);
        const double loads = w + h + 1;  // and where the line lies
        const double issued = registers < 32 ? (w * h + w + h + kOthers) / kIssued : 0;
        cost.first += blocks * std::max({w * h / 2, loads / 2, kLatency, issued});
        cost.second += blocks * loads;
      };
      const std::int64_t panels = ceil_div(vectors, n), wide = vectors % panels;
      for (const auto& [count, height] : {std::pair(rows / m, std::int64_t{m}), {1, rows % m}}) {
        add(count * wide, height, vectors / panels + 1);
        add(count * (panels - wide), height, vectors / panels);
      }
      if (begins % m != 0) cost.first *= kNotPacked;
      if (best.first == 0 || cost < least) best = {m, n}, least = cost;
    }
  return best;
}

/// What `convolve_lines` copies of a channel for so many rows of points, in elements.
std::int64_t KernelEmitter::lines_of_channel(NodeId id, const Window& x, const SymRanges& ranges,
                                             std::int64_t rows_of_points) {
  const Operator& op = p_.workload().op(k_.node(id).op);
  const Access& b = op.inputs[static_cast<std::size_t>(x.right)];
  const auto most = [&](int l) { return l < 0 ? 1 : range(ranges, k_.node(id).op, l).most; };
  const auto moves = [&](int l, int dim) -> std::int64_t {
    if (dim < 0 || l < 0) return 0;
    return coefficient_of(b.index[static_cast<std::size_t>(dim)],
                          op.loops[static_cast<std::size_t>(l)]);
  };
  const std::int64_t step = std::max<std::int64_t>(1, moves(x.outer, x.row_dim));
  std::int64_t columns = 1, rows = 1, span = 0;
  for (int l : x.depth) {
    if (moves(l, x.column_dim) != 0) columns *= most(l);
    if (moves(l, x.row_dim) == 0) continue;
    rows *= most(l);
    span += std::abs(moves(l, x.row_dim)) * (most(l) - 1);
  }
  const std::int64_t height = rows_of_points + span / step + 1;
  return columns * std::min(step, rows) * height * most(x.columns) +
         p_.vector_bytes / p_.element_bytes;
}

/// Cycles of a vector's multiply-add, as the machine's file has them.
double KernelEmitter::multiply_add_cycles() const {
  constexpr double kUnknown = 0.5;
  const Machine& m = p_.machine();
  if (m.units.empty()) return kUnknown;
  const ComputeUnit& unit = m.units.front();
  const auto peak = unit.peak.find(p_.element_bytes == 8 ? "f64" : "f32");
  if (peak == unit.peak.end() || peak->second.value <= 0 || unit.clock_hz <= 0) return kUnknown;
  const double lanes = static_cast<double>(p_.vector_bytes / p_.element_bytes);
  const auto cores = static_cast<double>(std::max<std::int64_t>(1, unit.count));
  return std::clamp(2 * lanes * cores * unit.clock_hz / peak->second.value, 0.5, 2.0);
}

/// Cycles of one row of points where so many are a band: a block of the depth has the channels
/// whose lines fit, all sums are loaded and stored once for each block, rows that the window
/// reaches beyond its points are copied for every band, and so are weights brought.
double KernelEmitter::band_cycles(NodeId id, const Window& x, const SymRanges& ranges,
                                  const Depth& depth, std::int64_t band) {
  constexpr double kFlat = 3, kApart = 5, kNear = 1.5, kFar = 6, kPanel = 2;  // a vector
  constexpr double kWeights = 16;                                             // bytes a cycle
  const auto most = [&](int l) { return l < 0 ? 1 : range(ranges, k_.node(id).op, l).most; };
  const Access& b = p_.workload().op(k_.node(id).op).inputs[static_cast<std::size_t>(x.right)];
  const std::int64_t lanes = p_.vector_bytes / p_.element_bytes, width = most(x.columns);
  const auto rows = static_cast<double>(most(x.rows));
  const auto steps = static_cast<double>(depth.channels() * depth.taps());
  const std::int64_t elements = lines_of_channel(id, x, ranges, band);
  const std::int64_t lines = elements * p_.element_bytes;
  const std::int64_t blocks =
      x.channels_first
          ? ceil_div(depth.channels(), channels_of_block(lines, depth.taps(), depth.channels()))
          : 1;
  const auto vectors = static_cast<double>(ceil_div(band * width, lanes));
  const double of_sums = rows * vectors * static_cast<double>(p_.vector_bytes);
  const double touched = static_cast<double>(blocks - 1) * rows * vectors *
                         (of_sums <= static_cast<double>(kNearBytes) ? kNear : kFar);
  // Lines that do not follow one another in the source are copied a whole number of vectors each.
  const bool flat = x.step == 1 && width == p_.workload().tensor(b.tensor).shape.back();
  const double copied = flat ? kFlat * static_cast<double>(elements) / static_cast<double>(lanes)
                             : kApart * static_cast<double>(elements) / static_cast<double>(width) *
                                   static_cast<double>(ceil_div(width, lanes));
  const double copies = x.direct ? 0 : static_cast<double>(depth.channels()) * copied;
  const double weights = rows * steps * static_cast<double>(p_.element_bytes) / kWeights;
  // The first of several groups of rows packs panels.
  const double panels = rows > kMostGroup ? vectors * steps * kPanel : 0;
  return (rows * vectors * steps * multiply_add_cycles() + touched + copies + panels + weights) /
         static_cast<double>(band);
}

/// So many rows of points at a time that one costs least.
std::int64_t KernelEmitter::band_of(NodeId id, const Window& x, const SymRanges& ranges,
                                    const Depth& depth) {
  const auto most = [&](int l) { return l < 0 ? 1 : range(ranges, k_.node(id).op, l).most; };
  const std::int64_t height = most(x.outer);
  if (!x.channels_first || x.outer < 0) return height;
  constexpr double kGain = 0.97, kEven = 0.99;  // bands of one size need less code
  std::int64_t best = height;
  double least = band_cycles(id, x, ranges, depth, best);
  for (std::int64_t bands = 2; bands <= height; ++bands) {
    const std::int64_t band = ceil_div(height, bands);
    const double gain = best == height ? kGain : height % band == 0 ? 1 : kEven;
    const double cycles = band_cycles(id, x, ranges, depth, band);
    if (cycles < gain * least) best = band, least = cycles;
  }
  return best;
}

/// The same where rows of points are apart in the result, and are summed one behind the other in
/// the second cache before they go there; 0: they are not.
std::int64_t KernelEmitter::band_set_apart(NodeId id, const Window& x, const SymRanges& ranges,
                                           const Depth& depth) {
  constexpr std::int64_t kMostBytes = 256 << 10;
  const auto most = [&](int l) { return l < 0 ? 1 : range(ranges, k_.node(id).op, l).most; };
  if (x.outer < 0 || !x.channels_first || depth.channels() * depth.taps() < kFewSteps) return 0;
  const std::int64_t band =
      std::min(band_of(id, x, ranges, depth),
               kMostBytes / (most(x.rows) * most(x.columns) * p_.element_bytes));
  return band > 1 ? band : 0;
}

/// Cycles of the tile where lines of points are vectors.
double KernelEmitter::lines_cycles(NodeId id, const Window& x, const SymRanges& ranges,
                                   const Depth& depth) {
  const ScheduleNode& n = k_.node(id);
  const auto most = [&](int l) { return l < 0 ? 1 : range(ranges, n.op, l).most; };
  const Access& c = p_.workload().op(n.op).outputs[0].target;
  const BufferId in_c = n.writes[0].buffer;
  const bool follow =
      x.outer < 0 ||
      dense(in_c, stride_of(p_.workload().op(n.op), c, in_c, x.outer), most(x.columns));
  const double rows = static_cast<double>(most(x.outer));
  const std::int64_t band =
      follow ? band_of(id, x, ranges, depth) : band_set_apart(id, x, ranges, depth);
  return rows * band_cycles(id, x, ranges, depth, std::max<std::int64_t>(1, band));
}

/// The same where points are broadcast: taps that fall into the padding are left out, weights that
/// are not packed once are packed beside, and sums are turned as they leave.
double KernelEmitter::points_cycles(NodeId id, const Window& x, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Workload& w = p_.workload();
  const Access& b = w.op(n.op).inputs[static_cast<std::size_t>(x.right)];
  const auto inside = [&](int dim) {
    return dim < 0 ? 1 : inside_share(w, b, static_cast<std::size_t>(dim));
  };
  WindowPoints points = points_of(id, x, ranges);
  points.inside = inside(x.column_dim) * inside(x.row_dim);
  points.packs = !prepares_points(id, x, ranges);
  return cycles_of_points(points);
}

/// What is broadcast beside vectors of rows: all but what of the steps is left out.
WindowPoints KernelEmitter::points_of(NodeId id, const Window& x, const SymRanges& ranges) const {
  const OpId op = k_.node(id).op;
  const auto most = [&](int l) {
    return static_cast<double>(l < 0 ? 1 : range(ranges, op, l).most);
  };
  double steps = 1;
  for (int l : x.depth) steps *= most(l);
  WindowPoints points{.rows = most(x.rows),
                      .width = most(x.columns),
                      .height = most(x.outer),
                      .steps = steps,
                      .lanes = p_.vector_bytes / p_.element_bytes,
                      .registers = registers(),
                      .multiply_add = multiply_add_cycles()};
  if (const Level* const first = innermost_cache(); first != nullptr)
    points.near = kRowsNear * static_cast<double>(first->capacity.value);
  return points;
}

/// Whether their rows are packed once for all runs.
bool KernelEmitter::prepares_points(NodeId id, const Window& x, const SymRanges& ranges) const {
  const WindowPoints points = points_of(id, x, ranges);
  return prepares_left(id, x, vectors_beside_points(points) * points.lanes, ranges);
}

/// Whether vectors of points cost less than points that are broadcast, or these cannot be.
bool KernelEmitter::goes_by_lines(NodeId id, const Window& x, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const auto most = [&](int l) { return l < 0 ? 1 : range(ranges, n.op, l).most; };
  std::int64_t channels = 1;
  for (int l : x.depth) channels *= most(l);
  if (lines_of_channel(id, x, ranges, most(x.outer)) * p_.element_bytes *
          (x.channels_first ? 1 : channels) >
      kMostCopyBytes)
    return false;
  // Points that lie as they are wanted need no copies: few idle lanes alone are no reason.
  if (x.direct && !(prepares_points(id, x, ranges) && wastes_lanes(id, x, ranges))) return true;
  const Depth depth(*this, id, x, ranges);
  return lines_cycles(id, x, ranges, depth) <= points_cycles(id, x, ranges);
}

/// What tiles of an operator's loop begin at multiples of; 0: there is one tile.
std::int64_t KernelEmitter::begins_of_tiles(OpId op, int local) const {
  std::int64_t begins = 0;
  for (const OpenLoop& open : open_) {
    const ScheduleNode& loop = k_.node(open.id);
    for (const OpLoop& cut : loop.cuts)
      if (cut.op == op && cut.local == local && loop.max_trips > 1)
        begins = std::gcd(begins, loop.step);
  }
  return begins;
}

void KernelEmitter::read_lines(NodeId id, const Window& x, const Surroundings& s,
                               const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = p_.workload().op(n.op);
  const Access& a = op.inputs[static_cast<std::size_t>(x.left)];
  const Access& c = op.outputs[0].target;
  const BufferId in_a = buffer_of_input(n, x.left), in_c = n.writes[0].buffer;
  p_.prelude.products = p_.prelude.windows = p_.prelude.vectors = true;
  p_.prelude.lines = p_.prelude.functions = true;
  const std::int64_t lanes = p_.vector_bytes / p_.element_bytes;
  const auto known = [&](int l) { return std::stoll(known_size(n.op, l, ranges)); };
  const auto most = [&](int l) { return l < 0 ? 1 : range(ranges, n.op, l).most; };
  const std::int64_t c_line = stride_of(op, c, in_c, x.outer), width = known(x.columns);
  const bool follow = x.outer < 0 || (width > 0 && c_line == width);
  Depth depth(*this, id, x, ranges);
  const std::int64_t set_apart = follow ? 0 : band_set_apart(id, x, ranges, depth);
  const std::int64_t band = set_apart > 0 ? set_apart : band_of(id, x, ranges, depth);
  const std::int64_t all = follow || set_apart > 0 ? most(x.columns) * band : most(x.columns);
  const std::int64_t even = known(x.outer) % band == 0 ? band : 0;  // rows of points of each band
  const std::int64_t points = set_apart > 0 ? 0
                              : !follow     ? known(x.columns)
                              : x.outer < 0 ? known(x.columns)
                                            : known(x.columns) * (known(x.outer) > 0 ? even : 0);
  // Rows that are packed once are packed in groups: tiles that begin within one do not find them.
  const std::int64_t begins = can_prepare(id, x, ranges) ? begins_of_tiles(n.op, x.rows) : 0;
  auto [rows, vectors] =
      block_shape(most(x.rows), ceil_div(all, lanes), registers(), begins, false);
  if (p_.micro_kernel) rows = p_.micro_kernel->rows, vectors = p_.micro_kernel->vectors;
  const std::string name = std::to_string(rows) + "x" + std::to_string(vectors);
  if (std::ranges::find(p_.used, name) == p_.used.end()) p_.used.push_back(name);

  out_.open("");
  std::int64_t offset = 0;
  // As many channels at a time as copies of them, and a panel of their steps, fit in caches.
  const std::int64_t channels = depth.channels(), taps = depth.taps();
  const std::int64_t of_channel = lines_of_channel(id, x, ranges, band) * p_.element_bytes;
  std::int64_t block = channels_of_block(of_channel, taps, channels);
  if (!x.channels_first) block = channels;
  // Behind the copies one panel, or all of them where the second cache holds them.
  const std::int64_t copied =
      ceil_div(block * of_channel + (vectors + 1) * p_.vector_bytes, 64) * 64;
  const std::int64_t steps = block * taps, panel = vectors * p_.vector_bytes * steps;
  const std::int64_t panels = ceil_div(all, lanes) * p_.vector_bytes * steps;
  const std::int64_t panel_room = panels <= kPanelBytes ? panels : panel;
  const std::string memory = scratch(depth.room_beside(copied + panel_room), offset, "char");
  const std::string prepared = prepared_left(id, x, rows, s, ranges);
  const std::string steps_name = depth.emit(offset, "(" + memory + ")", "nullptr", "nullptr, 0");
  std::string left = corner(op, a, in_a, s.at);
  std::string row = std::to_string(stride_of(op, a, in_a, x.rows));
  std::string step = std::to_string(x.left_step);
  if (!x.left_dense && prepared.empty()) {
    left = pack_left(id, x, s.at, ranges, offset);
    row = depth.steps(), step = "1";
  }
  std::string group = std::to_string(rows) + " * (" + row + ")";
  if (!prepared.empty()) {
    const std::size_t comma = prepared.rfind(", ");
    const std::string packed = names_.fresh("packed");
    out_.line("const Real* const " + packed + " = " + prepared.substr(0, comma) + ";");
    const auto either = [&](const std::string& one, const std::string& other) {
      return "(" + packed + " ? " + one + " : " + other + ")";
    };
    const bool always = prepared.find(" : nullptr") == std::string::npos;
    const std::string its = prepared.substr(comma + 2);
    left = always ? packed : either(packed, left);
    row = always ? "1" : either("1", row);
    step = always ? std::to_string(rows) : either(std::to_string(rows), step);
    group = always ? its : either(its, group);
  }
  const std::string window = emit_window(id, x, s.at, ranges);
  std::string after;
  std::unique_ptr<Followers> followers;
  if (s.opened == 0 && follow && channels * taps >= kFewSteps)
    followers =
        followers_of_window(id, x, ranges, s.at, points > 0 && points % lanes == 0, width, after);
  if (!after.empty()) after = ", " + after;
  if (set_apart > 0)
    after = ", Keep{}, " +
            scratch(most(x.rows) * all * p_.element_bytes + p_.vector_bytes, offset, "Real");
  out_.line("convolve_lines<" + std::to_string(rows) + ", " + std::to_string(vectors) + ", " +
            std::to_string(x.step) + ", " + known_size(n.op, x.rows, ranges) + ", " +
            std::to_string(points) + ", " + (block == channels ? "true" : "false") + ">(" +
            size_of_loop(n.op, x.rows, ranges) + ", " + left + ", " + row + ", " + step + ", " +
            group + ", " + window + ", " + steps_name + ", " + std::to_string(band) + ", " +
            std::to_string(block) + ", " + std::to_string(copied / p_.element_bytes) + ", " +
            std::to_string(panel_room / p_.element_bytes) + ",");
  out_.line("         " + corner(op, c, in_c, s.at) + ", " +
            std::to_string(stride_of(op, c, in_c, x.rows)) + ", " + std::to_string(c_line) + ", " +
            s.fresh + after + ");");
  if (followers) followers->end();
  out_.close();
}

/// As followers_of_product: points of both loops are counted through along the columns, whose index
/// runs on into the next rows.
std::unique_ptr<KernelEmitter::Followers> KernelEmitter::followers_of_window(
    NodeId id, const Window& x, const SymRanges& ranges, const std::vector<std::string>& first,
    bool whole, std::int64_t width, std::string& argument) {
  const Operator& op = p_.workload().op(k_.node(id).op);
  std::vector<std::string> at = first;
  const auto named = [&](int local) {
    if (local < 0) return std::string();
    const auto l = static_cast<std::size_t>(local);
    return at[l] = names_.fresh(identifier("p_", p_.workload().loop(op.loops[l]).name));
  };
  const std::string row = named(x.rows), column = named(x.columns);
  auto followers = std::make_unique<Followers>(*this, id, x.columns, ranges, at, x.outer, width);
  if (followers->empty()) return nullptr;
  const std::string first_row = x.rows < 0 ? "" : first[static_cast<std::size_t>(x.rows)];
  argument = lambda_of(*followers, row, column, first_row,
                       first[static_cast<std::size_t>(x.columns)], whole);
  return followers;
}

}  // namespace tilewright::cpu
