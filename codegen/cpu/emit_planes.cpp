// Windows that slide over an image, one image at a time (depthwise convolutions, poolings): bands
// of the image are copied with what is outside of it filled in and columns that a stride leaves
// out apart, so that every tap of neighbouring points is one load. Several rows of points are in
// registers at once: a vector that one of them loads is a tap of the others, too.
#include <algorithm>
#include <memory>

#include "codegen/cpu/followers.h"
#include "codegen/cpu/points.h"
#include "core/lowering/window_planes.h"

namespace tilewright::cpu {

class KernelEmitter::Planes : PointText {
 public:
  Planes(KernelEmitter& e, NodeId id, const SymRanges& ranges) : PointText(e, id, ranges) {
    fits_ = e_.p_.vector_bytes > 0 && find();
  }

  bool fits() const { return fits_; }

  void emit() {
    e_.p_.prelude.functions = e_.p_.prelude.vectors = e_.p_.prelude.planes = true;
    e_.take_reals(id_, {static_cast<int>(x_.image)});
    const Access& a = op_.inputs[x_.image];
    for (std::size_t l = 0; l < op_.loops.size(); ++l)
      names_[l] = e_.names_.fresh(identifier("p_", w_.loop(op_.loops[l]).name));
    for (std::size_t i = 0; i < op_.inputs.size(); ++i) input_array(i);
    array(n_.writes[0].buffer, name_out(0), false);
    followers_ = std::make_unique<Followers>(e_, id_, x_.columns, ranges_, names_);
    if (followers_->empty()) followers_.reset();
    if (followers_) followers_->begin();
    std::int64_t offset = 0;
    plane_ = e_.names_.fresh("plane");
    const std::int64_t elements = x_.image_rows(x_.band) * x_.phases * x_.pitch + lanes();
    e_.out_.line("Real* const " + plane_ + " = " +
                 e_.scratch(elements * e_.p_.element_bytes, offset, "Real") + ";");
    summed_ = x_;
    if (x_.in_turn) {
      summed_.down = -1;
      summed_.taps_down = summed_.row_step = summed_.down_step = 1;
      by_rows_ = e_.names_.fresh("by_rows");
      const std::int64_t those = x_.band * x_.phases * x_.pitch + lanes();
      e_.out_.line("Real* const " + by_rows_ + " = " +
                   e_.scratch(those * e_.p_.element_bytes, offset, "Real") + ";");
    }
    int opened = open([&](LoopId l) { return indexes(a, l); });
    const std::string end = begin_band();
    copy(end);
    if (x_.in_turn) combine_rows(end);
    const int inner = open([&](LoopId l) { return !indexes(a, l); });
    others();
    rows_of_points(end);
    for (int i = 0; i < inner; ++i) e_.out_.close();
    e_.out_.close();
    for (; opened > 0; --opened) e_.out_.close();
    if (followers_) followers_->end();
  }

 private:
  std::int64_t lanes() const { return e_.p_.vector_bytes / e_.p_.element_bytes; }
  std::string low(int l) const { return e_.variables_.text(range_of(l).lo, true); }
  std::string high(int l) const { return e_.variables_.text(range_of(l).hi, true); }
  std::string& name(int l) { return names_[static_cast<std::size_t>(l)]; }

  /// Whether the window is one that is emitted here: columns of its points and of its image lie
  /// side by side, and all its taps are known.
  bool find() {
    std::vector<std::int64_t> sizes;
    for (int l = 0; l < static_cast<int>(op_.loops.size()); ++l) sizes.push_back(range_of(l).most);
    const auto found = window_plane(w_, n_.op, sizes, unit());
    if (!found || n_.writes.size() != 1) return false;
    x_ = *found;
    const auto fixed = [&](int l) {
      return l < 0 || (range_of(l).lo.is_constant() && range_of(l).hi.is_constant());
    };
    return fixed(x_.down) && fixed(x_.across) &&
           (x_.one_by_one || e_.layouts_[in(x_.image).index()].stride.back() == 1) &&
           stride(output(0).target, n_.writes[0].buffer, x_.columns) == 1;
  }

  VectorUnit unit() const {
    return {.lanes = lanes(),
            .registers = e_.registers(),
            .element_bytes = e_.p_.element_bytes,
            .multiply_add = e_.multiply_add_cycles()};
  }

  /// Opens the loops around that satisfy `which`.
  template <class Which>
  int open(const Which& which) {
    int opened = 0;
    for (int l = 0; l < static_cast<int>(op_.loops.size()); ++l) {
      if (l == x_.columns || l == x_.rows || l == x_.across || l == x_.down ||
          !which(op_.loops[static_cast<std::size_t>(l)]))
        continue;
      e_.out_.open("for (int64_t " + name(l) + " = " + low(l) + "; " + name(l) + " < " + high(l) +
                   "; ++" + name(l) + ")");
      ++opened;
    }
    return opened;
  }

  /// Opens the loop over bands; where a band's rows of points end.
  std::string begin_band() {
    if (x_.rows < 0) {
      e_.out_.open("");
      return {};
    }
    from_ = e_.names_.fresh("band");
    const std::string end = e_.names_.fresh("end"), next = from_ + " + " + std::to_string(x_.band);
    e_.out_.open("for (int64_t " + from_ + " = " + low(x_.rows) + "; " + from_ + " < " +
                 high(x_.rows) + "; " + from_ + " += " + std::to_string(x_.band) + ")");
    e_.out_.line("const int64_t " + end + " = " + next + " < " + high(x_.rows) + " ? " + next +
                 " : " + high(x_.rows) + ";");
    return end;
  }

  void copy(const std::string& end) {
    const Access& a = op_.inputs[x_.image];
    const std::vector<std::string> points = names_;
    if (x_.rows >= 0) name(x_.rows) = from_;
    name(x_.columns) = low(x_.columns);
    for (int l : {x_.across, x_.down})
      if (l >= 0) name(l) = low(l);
    const auto index = [&](int d) { return index_text(a.index[static_cast<std::size_t>(d)]); };
    const auto extent = [&](int d) {
      return std::to_string(w_.tensor(a.tensor).shape[static_cast<std::size_t>(d)]);
    };
    const std::int64_t step =
        x_.row_dim < 0
            ? 0
            : e_.layouts_[in(x_.image).index()].stride[static_cast<std::size_t>(x_.row_dim)];
    const std::string rows = x_.rows < 0 ? std::to_string(x_.image_rows(1))
                                         : times(x_.row_step, "(" + end + " - " + from_ + " - 1)") +
                                               " + " + std::to_string(x_.image_rows(1));
    const std::string next =
        x_.one_by_one ? std::to_string(e_.layouts_[in(x_.image).index()]
                                           .stride[static_cast<std::size_t>(x_.column_dim)]) +
                            ", "
                      : "";
    e_.out_.line((x_.one_by_one ? "copy_plane_apart<" : "copy_plane<") +
                 std::to_string(x_.column_step) + ", " + std::to_string(x_.phases) + ">(" + plane_ +
                 ", " + std::to_string(x_.pitch) + ", &" +
                 element(in(x_.image), a, name_in(x_.image)) + ", " + next + std::to_string(step) +
                 ", " + rows + ",");
    e_.out_.line(
        "    " + (x_.row_dim < 0 ? "0, " + rows : index(x_.row_dim) + ", " + extent(x_.row_dim)) +
        ", " + high(x_.columns) + " - " + low(x_.columns) + " + " + std::to_string(x_.reach) +
        ", " + index(x_.column_dim) + ", " + extent(x_.column_dim) + ", " +
        (x_.one_by_one ? literal(x_.outside, "Real") : literal(x_.outside, "splat")) + ");");
    names_ = points;
  }

  /// Rows of the image that each row of points reaches, combined: a row each in `by_rows_`.
  void combine_rows(const std::string& end) {
    const std::string row = std::to_string(x_.phases * x_.pitch);
    const std::string image = "x" + std::to_string(x_.image);
    e_.out_.open("for (int64_t r = 0; r < " + end + " - " + from_ + "; ++r)");
    e_.out_.open("for (int64_t phase = 0; phase < " + row +
                 "; phase += " + std::to_string(x_.pitch) + ")");
    e_.out_.open("for (int64_t j = phase; j < phase + " + high(x_.columns) + " - " +
                 low(x_.columns) + " + " + std::to_string(x_.reach) + "; j += kLanes)");
    e_.out_.line("const Lanes lanes = first_lanes(min(phase + " + high(x_.columns) + " - " +
                 low(x_.columns) + " + " + std::to_string(x_.reach) + " - j, kLanes));");
    e_.out_.line("Vector sum = " + identity(Width::whole, output(0)) + ";");
    unroll();
    e_.out_.open("for (int t = 0; t < " + std::to_string(x_.taps_down) + "; ++t)");
    e_.out_.line("const Vector " + image + " = load_part(" + plane_ + " + (" +
                 times(x_.row_step, "r") + " + " + times(x_.down_step, "t") + ") * " + row +
                 " + j, lanes);");
    e_.out_.line(combined(output(0).combine, "sum", value(Width::whole, *x_.value)));
    e_.out_.close();
    e_.out_.line("store(" + by_rows_ + " + r * " + row + " + j, sum);");
    for (int i = 0; i < 3; ++i) e_.out_.close();
  }

  bool is_other(std::size_t i) const {
    return i != x_.image && reads_input(*x_.value, static_cast<int>(i));
  }
  std::string tap_number() const {
    const auto at = [&](int l) {
      return "(" + names_[static_cast<std::size_t>(l)] + " - " + low(l) + ")";
    };
    std::string text = x_.down < 0 ? "0" : times(x_.taps_across, at(x_.down));
    if (x_.across >= 0) text += " + " + at(x_.across);
    return text;
  }

  /// What each tap is joined with, the same for all points of the image.
  void others() {
    if (!x_.others) return;
    const std::int64_t taps = x_.taps_across * x_.taps_down;
    for (std::size_t i = 0; i < op_.inputs.size(); ++i)
      if (is_other(i))
        e_.out_.line("Vector taps" + std::to_string(i) + "[" + std::to_string(taps) + "];");
    int opened = 0;
    for (int l : {x_.down, x_.across}) {
      if (l < 0) continue;
      unroll();
      e_.out_.open("for (int64_t " + name(l) + " = " + low(l) + "; " + name(l) + " < " + high(l) +
                   "; ++" + name(l) + ")");
      ++opened;
    }
    for (std::size_t i = 0; i < op_.inputs.size(); ++i) {
      if (!is_other(i)) continue;
      const Access& a = op_.inputs[i];
      const std::string within = inside(a);
      const std::string there = taken(Width::whole, element(in(i), a, name_in(i)), false);
      e_.out_.line("taps" + std::to_string(i) + "[" + tap_number() + "] = " +
                   (within.empty() ? there : within + " ? " + there + " : splat(Real(0))") + ";");
    }
    for (; opened > 0; --opened) e_.out_.close();
  }

  /// All rows of points of a band, so many at a time; those left over with one size if it is known.
  void rows_of_points(const std::string& end) {
    if (x_.rows < 0) return block(1);
    const SymRange& r = range_of(x_.rows);
    const Linear all = r.hi - r.lo;
    first_ = e_.names_.fresh("first");
    e_.out_.line("int64_t " + first_ + " = " + from_ + ";");
    const auto loop = [&](std::int64_t points) {
      const std::string n = std::to_string(points);
      e_.out_.open("for (; " + first_ + " + " + n + " <= " + end + "; " + first_ + " += " + n +
                   ")");
      block(points);
      e_.out_.close();
    };
    loop(x_.points);
    const std::int64_t left = all.is_constant() ? all.constant % x_.points : 1;
    if (left > 0 && x_.points > 1) loop(left);
  }

  /// So many rows of points, a vector of columns at a time.
  void block(std::int64_t points) {
    const std::string& p = name(x_.columns);
    const SymRange& r = range_of(x_.columns);
    const Linear all = r.hi - r.lo;
    e_.out_.line("const Real* const rows = " + (x_.in_turn ? by_rows_ : plane_) +
                 (x_.rows < 0 ? ""
                              : " + " + times(summed_.row_step * x_.phases * x_.pitch,
                                              "(" + first_ + " - " + from_ + ")")) +
                 ";");
    e_.out_.line("int64_t " + p + " = " + low(x_.columns) + ";");
    if (r.most >= lanes()) {
      e_.out_.open("for (; " + p + " + kLanes <= " + high(x_.columns) + "; " + p + " += kLanes)");
      sums(points, Width::whole);
      e_.out_.close();
    }
    if (all.is_constant() && all.constant % lanes() == 0) return;
    e_.out_.open("if (" + p + " < " + high(x_.columns) + ")");
    e_.out_.line("const int64_t count = " + high(x_.columns) + " - " + p + ";");
    e_.out_.line("const Lanes lanes = first_lanes(count);");
    sums(points, Width::part);
    e_.out_.close();
  }

  void unroll() { e_.out_.directive("#pragma GCC unroll 64"); }

  void each_row(std::int64_t points) {
    unroll();
    e_.out_.open("for (int u = 0; u < " + std::to_string(points) + "; ++u)");
    if (x_.rows >= 0) e_.out_.line("const int64_t " + name(x_.rows) + " = " + first_ + " + u;");
    if (x_.rows >= 0) e_.out_.line("(void)" + name(x_.rows) + ";");
  }

  void sums(std::int64_t points, Width width) {
    e_.out_.line("Vector sums[" + std::to_string(points) + "];");
    each_row(points);
    std::string begin = identity(width, output(0));
    if (fresh_[0] == "false")
      begin = loaded(width, 0);
    else if (fresh_[0] != "true")
      begin = "(" + fresh_[0] + ") ? " + begin + " : " + loaded(width, 0);
    e_.out_.line("sums[u] = " + begin + ";");
    e_.out_.close();
    taps(points, width);
    each_row(points);
    if (followers_) followers_->begin_row();
    e_.out_.line("const Vector " + y(0) + " = sums[u];");
    if (!followers_ || followers_->stores()) store(width, 0);
    if (followers_) {
      e_.out_.line(std::string("const Vector ") + Followers::kValue + " = " + y(0) + ";");
      followers_->point(width);
      followers_->end_row();
    }
    e_.out_.close();
  }

  /// Each row of the image in turn: a vector of it is a tap of each row of points that reaches it.
  /// Behind a row lies what others have left there, which may be no numbers or so small that each
  /// addition would take a hundred times as long: of a part its lanes alone are read.
  void taps(std::int64_t points, Width width) {
    const WindowPlane& x = summed_;
    if (points * x.taps_across * x.taps_down <= kMostPlaneTaps) unroll();
    e_.out_.open("for (int row = 0; row < " + std::to_string(x.image_rows(points)) + "; ++row)");
    std::string at = "rows + row * " + std::to_string(x_.phases * x_.pitch) + " + (" +
                     name(x_.columns) + " - " + low(x_.columns) + ")";
    if (x_.across >= 0) {
      unroll();
      e_.out_.open("for (int64_t " + name(x_.across) + " = " + low(x_.across) + "; " +
                   name(x_.across) + " < " + high(x_.across) + "; ++" + name(x_.across) + ")");
      const std::string place =
          "(" + times(x_.across_step, "(" + name(x_.across) + " - " + low(x_.across) + ")") + ")";
      at += " + " + place + " % " + std::to_string(x_.column_step) + " * " +
            std::to_string(x_.pitch) + " + " + place + " / " + std::to_string(x_.column_step);
    } else {
      e_.out_.open("");
    }
    e_.out_.line("Vector x" + std::to_string(x_.image) + " = " +
                 (width == Width::part ? "load_part(" + at + ", lanes)" : "vector_at(" + at + ")") +
                 ";");
    // Else compilers load it again for each of the sums.
    if (points > 1) e_.out_.line("__asm__(\"\" : \"+v\"(x" + std::to_string(x_.image) + "));");
    unroll();
    e_.out_.open("for (int u = 0; u < " + std::to_string(points) + "; ++u)");
    const std::int64_t apart = x.down_step;
    const std::string tap = "(row - " + times(x.row_step, "u") + ")";
    e_.out_.line("if (" + tap + " < 0 || " + tap + " >= " + std::to_string(x.image_rows(1)) +
                 " || " + tap + " % " + std::to_string(apart) + " != 0) continue;");
    if (x.down >= 0) {
      e_.out_.line("const int64_t " + name(x.down) + " = " + low(x.down) + " + " + tap + " / " +
                   std::to_string(apart) + ";");
      e_.out_.line("(void)" + name(x.down) + ";");
    }
    for (std::size_t i = 0; i < op_.inputs.size(); ++i)
      if (is_other(i))
        e_.out_.line("const Vector x" + std::to_string(i) + " = taps" + std::to_string(i) + "[" +
                     tap_number() + "];");
    e_.out_.line(
        combined(output(0).combine, "sums[u]",
                 x_.in_turn ? "x" + std::to_string(x_.image) : value(Width::whole, *x_.value)));
    e_.out_.close();
    e_.out_.close();
    e_.out_.close();
  }

  bool fits_ = false;
  WindowPlane x_, summed_;  ///< summed_: what is combined for a point
  std::string plane_, by_rows_, from_, first_;
  std::unique_ptr<Followers> followers_;
};

/// Emits the operator so, if it is such a window.
bool KernelEmitter::by_planes(NodeId id, const SymRanges& ranges) {
  Planes planes(*this, id, ranges);
  if (!planes.fits()) return false;
  planes.emit();
  return true;
}

}  // namespace tilewright::cpu
