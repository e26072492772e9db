#include "core/workload/access.h"

#include <algorithm>
#include <vector>

namespace tilewright {

bool indexes(const Affine& index, LoopId loop) {
  return std::ranges::any_of(index.terms, [&](const Term& t) { return t.loop == loop; });
}

bool indexes(const Access& access, LoopId loop) {
  return std::ranges::any_of(access.index, [&](const Affine& i) { return indexes(i, loop); });
}

namespace {

/// Dimensions of an access that leave its tensor and share loops, with these.
struct Tied {
  std::vector<std::size_t> dims;
  std::vector<int> loops;  ///< positions in op.loops; the longest last
};

int local(const Operator& op, LoopId loop) {
  return static_cast<int>(std::ranges::find(op.loops, loop) - op.loops.begin());
}

/// Dimensions that stay inside in these ranges are in none.
std::vector<Tied> tied_dimensions(const Workload& w, const Operator& op, const Access& a,
                                  std::span<const Interval> ranges) {
  std::vector<Tied> all;
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    if (a.index[d].gathered >= 0 ||
        contains(Interval{0, w.tensor(a.tensor).shape[d]}, footprint(op, a.index[d], ranges)))
      continue;
    Tied now{.dims = {d}};
    for (const Term& t : a.index[d].terms) now.loops.push_back(local(op, t.loop));
    std::erase_if(all, [&](const Tied& other) {
      if (std::ranges::find_first_of(other.loops, now.loops) == other.loops.end()) return false;
      now.dims.insert(now.dims.end(), other.dims.begin(), other.dims.end());
      now.loops.insert(now.loops.end(), other.loops.begin(), other.loops.end());
      return true;
    });
    all.push_back(std::move(now));
  }
  for (Tied& t : all) {
    std::ranges::sort(t.loops);
    t.loops.erase(std::unique(t.loops.begin(), t.loops.end()), t.loops.end());
    std::ranges::stable_sort(t.loops, {},
                             [&](int l) { return ranges[static_cast<std::size_t>(l)].size(); });
  }
  return all;
}

/// Counts the points of tied dimensions' loops that lie inside in all of them.
class PointsInside {
 public:
  PointsInside(const Workload& w, const Operator& op, const Access& a, const Tied& tied,
               std::span<const Interval> ranges)
      : loops_(tied.loops), ranges_(ranges) {
    for (std::size_t d : tied.dims) {
      Form f{.at = a.index[d].offset, .extent = w.tensor(a.tensor).shape[d]};
      f.steps.resize(loops_.size());
      for (const Term& t : a.index[d].terms)
        f.steps[static_cast<std::size_t>(std::ranges::find(loops_, local(op, t.loop)) -
                                         loops_.begin())] = t.coefficient;
      forms_.push_back(std::move(f));
    }
  }

  std::int64_t count(std::size_t loop = 0) {
    if (loops_.empty()) return std::ranges::all_of(forms_, [](const Form& f) { return f.here(); });
    const Interval range = ranges_[static_cast<std::size_t>(loops_[loop])];
    if (loop + 1 == loops_.size()) return last(range);
    std::int64_t n = 0;
    for (std::int64_t i = range.lo; i < range.hi; ++i) {
      for (Form& f : forms_) f.at += f.steps[loop] * i;
      n += count(loop + 1);
      for (Form& f : forms_) f.at -= f.steps[loop] * i;
    }
    return n;
  }

 private:
  struct Form {
    std::int64_t at = 0, extent = 0;
    std::vector<std::int64_t> steps = {};  ///< by loops_
    bool here() const { return at >= 0 && at < extent; }
  };

  std::int64_t last(Interval range) const {
    for (const Form& f : forms_) {
      const std::int64_t step = f.steps.back();
      if (step == 0) {
        if (!f.here()) return 0;
        continue;
      }
      // 0 <= at + step * i < extent
      const std::int64_t low = step > 0 ? -f.at : f.at - f.extent + 1;
      const std::int64_t high = step > 0 ? f.extent - f.at : f.at + 1;
      const std::int64_t size = std::abs(step);
      range = intersect(range, {up(low, size), up(high, size)});
    }
    return range.size();
  }
  static std::int64_t up(std::int64_t a, std::int64_t b) {
    return a >= 0 ? (a + b - 1) / b : -(-a / b);
  }

  const std::vector<int>& loops_;
  std::span<const Interval> ranges_;
  std::vector<Form> forms_;
};

}  // namespace

std::int64_t points_named(const Workload& w, const Operator& op, const Access& gather,
                          std::span<const Interval> ranges) {
  std::vector<int> free = gather_loops(op, gather);
  std::int64_t n = 1;
  for (int l : free)
    if (ranges[static_cast<std::size_t>(l)].empty()) return 0;
  for (const Tied& t : tied_dimensions(w, op, gather, ranges)) {
    n *= PointsInside(w, op, gather, t, ranges).count();
    for (int l : t.loops) std::erase(free, l);
  }
  for (int l : free) n *= ranges[static_cast<std::size_t>(l)].size();
  return n;
}

double most_steps_of_points_named(const Workload& w, const Operator& op, const Access& gather) {
  std::vector<Interval> whole;
  for (LoopId l : op.loops) whole.push_back({0, w.loop(l).extent});
  double all = 0;
  for (const Tied& t : tied_dimensions(w, op, gather, whole)) {
    double steps = 1;
    for (std::size_t i = 0; i + 1 < t.loops.size(); ++i)
      steps *= static_cast<double>(whole[static_cast<std::size_t>(t.loops[i])].size());
    all += steps;
  }
  return all;
}

std::optional<std::array<int, 2>> factors_of(const Output& output) {
  const Expr& e = output.value;
  if (output.combine != Combine::sum || e.kind != Expr::Kind::call || e.function != "mul" ||
      e.args[0].kind != Expr::Kind::input || e.args[1].kind != Expr::Kind::input ||
      e.args[0].input == e.args[1].input)
    return std::nullopt;
  return std::array{e.args[0].input, e.args[1].input};
}

std::vector<std::int64_t> strides_of(const Tensor& t) {
  std::vector<std::int64_t> strides(t.shape.size(), 1);
  for (std::size_t d = strides.size(); d-- > 1;) strides[d - 1] = strides[d] * t.shape[d];
  return strides;
}

}  // namespace tilewright
