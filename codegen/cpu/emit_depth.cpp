// The depth of a product whose right operand is read through a window, as the arrays that the
// emitted `convolve` takes: loops that move the window's rows and columns are taps, the others
// channels.
#include <algorithm>

#include "codegen/cpu/window_depth.h"

namespace tilewright::cpu {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 36;
constexpr std::int64_t kListBytes = 8;  // a step: where it is read

}  // namespace

std::int64_t coefficient_of(const Affine& a, LoopId loop) {
  std::int64_t sum = 0;
  for (const Term& t : a.terms)
    if (t.loop == loop) sum += t.coefficient;
  return sum;
}

KernelEmitter::Depth::Depth(KernelEmitter& e, NodeId id, const Window& x, const SymRanges& ranges)
    : e_(e),
      x_(x),
      ranges_(ranges),
      op_(e.p_.workload().op(e.k_.node(id).op)),
      id_(e.k_.node(id).op),
      access_(op_.inputs[static_cast<std::size_t>(x.right)]),
      buffer_(buffer_of_input(e.k_.node(id), x.right)),
      at_(op_.loops.size()) {
  for (int l : x.depth) {
    const SymRange& r = range(l);
    std::string& at = at_[static_cast<std::size_t>(l)];
    if (r.most == 1) {
      at = e.variables_.text(r.lo, true);
      continue;
    }
    at = e.names_.fresh(
        identifier("p_", e.p_.workload().loop(op_.loops[static_cast<std::size_t>(l)]).name));
    steps_.push_back(l);
    const bool moves_window = moves(l, x.row_dim) != 0 || moves(l, x.column_dim) != 0;
    (moves_window && !x.taps_are_channels ? taps_ : channels_).push_back(l);
  }
}

const SymRange& KernelEmitter::Depth::range(int l) const { return e_.range(ranges_, id_, l); }

/// How many of the loop's iterations are steps: a quad is one.
std::int64_t KernelEmitter::Depth::most(int l) const {
  return l == x_.bytes ? ceil_div(range(l).most, e_.p_.whole) : range(l).most;
}

std::string KernelEmitter::Depth::end(int l) const {
  return l == x_.bytes ? std::to_string(most(l)) : e_.variables_.text(range(l).hi);
}

std::int64_t KernelEmitter::Depth::moves(int l, int dim) const {
  if (dim < 0) return 0;
  return coefficient_of(access_.index[static_cast<std::size_t>(dim)],
                        op_.loops[static_cast<std::size_t>(l)]);
}

std::int64_t KernelEmitter::Depth::count(const std::vector<int>& loops) const {
  std::int64_t most = 1;
  for (int l : loops) {
    const auto all = checked_mul(most, this->most(l));
    if (!all || *all > (std::int64_t{1} << 31) - 1)
      throw Refused{"operator " + op_.name + " sums over 2^31 steps or more at once"};
    most = *all;
  }
  return most;
}

std::string KernelEmitter::Depth::size(const std::vector<int>& loops) const {
  std::string text;
  for (int l : loops)
    text += (text.empty() ? "(" : " * (") +
            (l == x_.bytes ? end(l) : e_.size_of_loop(id_, l, ranges_)) + ")";
  return text.empty() ? "1" : text;
}

/// Which of the loops' iterations it is, counted through, innermost last.
std::string KernelEmitter::Depth::number(const std::vector<int>& loops) const {
  std::string text;
  for (int l : loops) {
    const std::string step =
        at_[static_cast<std::size_t>(l)] + " - (" + e_.variables_.text(range(l).lo) + ")";
    text = text.empty() ? step : "(" + text + ") * " + size({l}) + " + " + step;
  }
  return "static_cast<int32_t>(" + (text.empty() ? "0" : text) + ")";
}

/// Where the loops of the depth are, each times a factor of its own.
template <class Factor>
std::string KernelEmitter::Depth::sum(const Factor& factor) const {
  std::string text;
  for (int l : x_.depth)
    if (const std::int64_t f = factor(l); f != 0)
      text += (text.empty() ? "" : " + ") + times(f, at_[static_cast<std::size_t>(l)]);
  return text.empty() ? "0" : text;
}

void KernelEmitter::Depth::nest(const std::vector<int>& loops, const std::string& line) {
  for (int l : loops) {
    const std::string& p = at_[static_cast<std::size_t>(l)];
    e_.out_.open("for (int64_t " + p + " = " + e_.variables_.text(range(l).lo) + "; " + p + " < " +
                 end(l) + "; ++" + p + ")");
  }
  e_.out_.line(line);
  for (std::size_t i = 0; i < loops.size(); ++i) e_.out_.close();
}

std::int64_t KernelEmitter::Depth::room(std::int64_t packed_rows) const {
  const auto bytes = checked_mul(count(steps_), packed_rows * e_.p_.element_bytes);
  if (!bytes) throw Refused{"operator " + op_.name + " packs more than 2^36 bytes at once"};
  return room_beside(*bytes);
}

std::int64_t KernelEmitter::Depth::room_beside(std::int64_t bytes) const {
  if (bytes > kMostBytes || list_bytes() > kMostBytes)
    throw Refused{"operator " + op_.name + " packs more than 2^36 bytes at once"};
  return list_bytes() + bytes;
}

/// Whole lines, so that what lies behind begins at one.
std::int64_t KernelEmitter::Depth::list_bytes() const {
  return ceil_div(count(steps_) * kListBytes, 64) * 64;
}

std::string KernelEmitter::Depth::emit(std::int64_t& offset, const std::string& room,
                                       const std::string& kept, const std::string& prepared) {
  const auto declare = [&](const std::string& type, const std::string& base,
                           const std::vector<int>& loops) {
    const std::string name = e_.names_.fresh(base);
    e_.out_.line(type + "* const " + name + " = " + e_.scratch(8 * count(loops), offset, type) +
                 ";");
    return name;
  };
  const std::string channel = declare("int64_t", "channel", channels_);
  const std::string tap = declare("Tap", "tap", taps_);
  const std::string step = declare("Step", "step", steps_);
  const auto& stride = e_.layouts_[buffer_.index()].stride;
  nest(channels_, channel + "[" + number(channels_) + "] = " + sum([&](int l) {
                    const std::int64_t row =
                        x_.row_dim < 0 ? 0 : stride[static_cast<std::size_t>(x_.row_dim)];
                    if (x_.taps_are_channels) return e_.stride_of(op_, access_, buffer_, l);
                    return e_.stride_of(op_, access_, buffer_, l) - moves(l, x_.column_dim) -
                           moves(l, x_.row_dim) * row;
                  }) + ";");
  const auto moved = [&](int dim) -> std::string {
    if (x_.taps_are_channels) return "0";
    return "static_cast<int32_t>(" + sum([&](int l) { return moves(l, dim); }) + ")";
  };
  nest(taps_, tap + "[" + number(taps_) + "] = {" + moved(x_.row_dim) + ", " +
                  moved(x_.column_dim) + "};");
  const std::string next = e_.names_.fresh("next"), depth = e_.names_.fresh("depth");
  e_.out_.line("int64_t " + next + " = 0;");
  nest(steps_, step + "[" + next + "++] = {" + number(channels_) + ", " + number(taps_) + "};");
  e_.out_.line("const Depth " + depth + " = {" + size(channels_) + ", " + size(taps_) + ", " +
               next + ", " + channel + ", " + tap + ", " + step + ",");
  e_.out_.line("    reinterpret_cast<int64_t*>(" + room + "), reinterpret_cast<Real*>(" + room +
               " + " + std::to_string(list_bytes()) + "), " + prepared + ", " + kept + "};");
  return depth;
}

}  // namespace tilewright::cpu
