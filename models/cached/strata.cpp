#include "models/cached/strata.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tilewright::cached {

namespace {

/// What a use touches at some depth of the nest.
struct Touched {
  std::vector<Piece> pieces;
};

class Counting {
 public:
  Counting(const Nest& nest, Strata& out, std::int64_t line)
      : nest_(nest), out_(out), line_(line), uses_(nest.node(out.leaf).uses.size()) {
    out.lines.assign(uses_, std::vector<double>(out.loops.size() + 1, 0));
    steps_.assign(out.loops.size(), std::vector<std::int64_t>(uses_, line));
    differs_.assign(out.loops.size(), Differs::no);
    for (std::size_t l = 0; l < out.loops.size(); ++l) probe(l);
  }

  void run() {
    Path path;
    nest_.begin(path);
    count(path, 0, 0, 1, std::vector<std::int64_t>(uses_, line_));
  }

 private:
  enum class Differs : std::uint8_t { no, last, both };

  /// The path to the compute with each loop at its middle but one, up to depth `to` of the way.
  void middle(Path& path, std::size_t loop, std::int64_t iteration, std::size_t to) const {
    nest_.begin(path);
    std::size_t l = 0;
    for (std::size_t w = 0; w < to; ++w) {
      const int node = out_.way[w];
      std::int64_t i = 0;
      if (nest_.node(node).kind == NodeKind::loop) {
        const std::int64_t n = nest_.trips_of(node, path.back());
        i = std::clamp<std::int64_t>(l == loop ? iteration : n / 2 - (n % 2 == 0 ? 1 : 0), 0,
                                     std::max<std::int64_t>(n - 1, 0));
        ++l;
      }
      nest_.enter(path, node, i);
    }
  }

  Touched touched(const Path& path, std::size_t use) const {
    Touched t;
    const auto keep = [&](const Use&, const Piece& p) {
      t.pieces.push_back(p);
      return false;
    };
    const std::size_t at = path.size() - 1;
    if (at == out_.way.size()) {
      nest_.once(path, use, keep);
      return t;
    }
    const int next = out_.way[at];
    const bool loop = nest_.node(next).kind == NodeKind::loop;
    const std::int64_t n = loop ? nest_.trips_of(next, path.back()) : 1;
    nest_.sweep_use(path, path.back(), next, {0, n}, out_.leaf, use, keep);
    return t;
  }

  std::vector<std::int64_t> inner_trips(const Path& path) const {
    std::vector<std::int64_t> all;
    for (std::size_t f = 1; f < path.size(); ++f)
      if (nest_.node(path.at(f).node).kind == NodeKind::loop)
        all.push_back(nest_.trips_of(path.at(f).node, path.at(f - 1)));
    return all;
  }

  bool same_sizes(const Touched& a, const Touched& b) const {
    if (a.pieces.size() != b.pieces.size()) return false;
    for (std::size_t p = 0; p < a.pieces.size(); ++p)
      for (int d = 0; d < a.pieces[p].dims; ++d)
        if (a.pieces[p].at[static_cast<std::size_t>(d)].size() !=
            b.pieces[p].at[static_cast<std::size_t>(d)].size())
          return false;
    return true;
  }

  /// Which iterations of a loop differ in what they touch, and by what they move along a line.
  void probe(std::size_t l) {
    std::size_t own = 0, seen = 0;
    while (true) {
      if (nest_.node(out_.way[own]).kind == NodeKind::loop && seen++ == l) break;
      ++own;
    }
    Path path;
    middle(path, out_.loops.size(), 0, own);
    const std::int64_t n = nest_.trips_of(out_.way[own], path.back());
    if (n < 2) return;
    for (const std::size_t to : {own + 1, out_.way.size()}) {
      Path first, inner, last;
      middle(first, l, 0, to);
      middle(inner, l, n / 2, to);
      middle(last, l, n - 1, to);
      if (inner_trips(first) != inner_trips(inner)) differs_[l] = Differs::both;
      if (inner_trips(inner) != inner_trips(last))
        differs_[l] = std::max(differs_[l], Differs::last);
      for (std::size_t u = 0; u < uses_; ++u) {
        const Touched a = touched(first, u), b = touched(inner, u), c = touched(last, u);
        if (!same_sizes(a, b)) differs_[l] = Differs::both;
        if (!same_sizes(b, c) && differs_[l] == Differs::no) differs_[l] = Differs::last;
        if (a.pieces.empty() || b.pieces.empty()) continue;
        Path before;
        middle(before, l, n / 2 - 1, to);
        const Touched z = touched(before, u);
        if (z.pieces.empty()) continue;
        const Array& array = nest_.array(nest_.node(out_.leaf).uses[u].array);
        const std::int64_t step =
            std::abs(row_address(array, b.pieces.front()) - row_address(array, z.pieces.front()));
        steps_[l][u] = std::gcd(steps_[l][u], step);
      }
    }
  }

  /// Lines of a piece on average over where its rows may begin.
  double average(const Array& a, const Piece& p, std::int64_t step) const {
    double rows = 1;
    for (int d = 0; d + 1 < p.dims; ++d) {
      const auto i = static_cast<std::size_t>(d);
      rows *= static_cast<double>(p.count(d));
      if (p.at[i].size() > 1) step = std::gcd(step, pitch_of(a, p, d) * p.step_of(d));
    }
    const std::int64_t bytes = p.bytes().size();
    const std::int64_t begin = row_address(a, p) % std::gcd(step, line_);
    step = std::gcd(step, line_);
    std::int64_t sum = 0;
    for (std::int64_t at = begin; at < line_; at += step) sum += (at + bytes - 1) / line_ + 1;
    return rows * static_cast<double>(sum) * static_cast<double>(step) / static_cast<double>(line_);
  }

  /// `steps`: by use, what the rows move by from one to another of the iterations that `times`
  /// counts.
  void count(Path& path, std::size_t w, std::size_t depth, double times,
             const std::vector<std::int64_t>& steps) {
    // Counted where all that follows up to the next loop has been entered, or nothing is left.
    const bool leaf = w == out_.way.size();
    const bool loop = !leaf && nest_.node(out_.way[w]).kind == NodeKind::loop;
    if (!leaf && !loop) {
      const std::size_t size = path.size();
      nest_.enter(path, out_.way[w], 0);
      count(path, w + 1, depth, times, steps);
      path.cut(size);
      return;
    }
    for (std::size_t u = 0; u < uses_; ++u) {
      const Array& a = nest_.array(nest_.node(out_.leaf).uses[u].array);
      for (const Piece& p : joined(a, touched(path, u).pieces, line_))
        out_.lines[u][depth] += times * average(a, p, steps[u]);
    }
    if (leaf) return;
    const std::int64_t n = nest_.trips_of(out_.way[w], path.back());
    const std::size_t size = path.size();
    const auto one = [&](std::int64_t i, std::int64_t weight) {
      if (weight <= 0) return;
      nest_.enter(path, out_.way[w], i);
      std::vector<std::int64_t> all = steps;
      for (std::size_t u = 0; weight > 1 && u < uses_; ++u)
        all[u] = std::gcd(all[u], steps_[depth][u]);
      count(path, w + 1, depth + 1, times * static_cast<double>(weight), all);
      path.cut(size);
    };
    if (n <= kApart && moves_within_lines(depth)) {
      for (std::int64_t i = 0; i < n; ++i) one(i, 1);
      return;
    }
    switch (differs_[depth]) {
      case Differs::no:
        return one(0, n);
      case Differs::last:
        one(0, n - 1);
        return one(n - 1, 1);
      case Differs::both:
        if (n <= 5) {
          for (std::int64_t i = 0; i < n; ++i) one(i, 1);
          return;
        }
        one(0, 1);
        one(1, 1);
        one(n / 2, n - 4);
        one(n - 2, 1);
        return one(n - 1, 1);
    }
  }

  bool moves_within_lines(std::size_t loop) const {
    return std::ranges::any_of(steps_[loop], [&](std::int64_t s) { return s % line_ != 0; });
  }

  static constexpr std::int64_t kApart = 4;  ///< so few iterations are looked at one by one

  const Nest& nest_;
  Strata& out_;
  std::int64_t line_;
  std::size_t uses_;
  std::vector<Differs> differs_;                  // by loop
  std::vector<std::vector<std::int64_t>> steps_;  // by loop, use: bytes that rows move by
};

}  // namespace

Strata strata_of(const Nest& nest, int leaf, std::int64_t line) {
  Strata s{.leaf = leaf};
  for (int n = leaf; n != 0; n = nest.node(n).parent) s.way.push_back(n);
  std::ranges::reverse(s.way);
  for (const int n : s.way)
    if (nest.node(n).kind == NodeKind::loop) s.loops.push_back(n);
  Counting(nest, s, line).run();
  return s;
}

}  // namespace tilewright::cached
