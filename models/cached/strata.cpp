#include "models/cached/strata.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

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
    count(path, 0, 0, 1, std::vector<std::int64_t>(uses_, line_), kMostClasses);
  }

 private:
  enum class Differs : std::uint8_t { no, last, both };

  /// Where the loops are that are not asked about.
  enum class Others : std::uint8_t { middle, first, last };

  /// The path to the compute with each loop at its middle but one, up to depth `to` of the way.
  void middle(Path& path, std::size_t loop, std::int64_t iteration, std::size_t to,
              Others others = Others::middle) const {
    nest_.begin(path);
    std::size_t l = 0;
    for (std::size_t w = 0; w < to; ++w) {
      const int node = out_.way[w];
      std::int64_t i = 0;
      if (nest_.node(node).kind == NodeKind::loop) {
        const std::int64_t n = nest_.trips_of(node, path.back());
        const std::int64_t other = others == Others::first  ? 0
                                   : others == Others::last ? n - 1
                                                            : n / 2 - (n % 2 == 0 ? 1 : 0);
        i = std::clamp<std::int64_t>(l == loop ? iteration : other, 0,
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
    // A window's place in the padding is told by two loops: the other one may be at an end of it.
    for (const Others others : {Others::first, Others::last}) {
      if (!has_window() || differs_[l] == Differs::both) return;
      Path first, inner, last;
      middle(first, l, 0, out_.way.size(), others);
      middle(inner, l, n / 2, out_.way.size(), others);
      middle(last, l, n - 1, out_.way.size(), others);
      for (std::size_t u = 0; u < uses_; ++u) {
        const Touched b = touched(inner, u);
        if (!same_sizes(touched(first, u), b)) differs_[l] = Differs::both;
        if (!same_sizes(b, touched(last, u))) differs_[l] = std::max(differs_[l], Differs::last);
      }
    }
  }

  /// Whether an index follows several loops.
  bool has_window() const {
    return std::ranges::any_of(nest_.node(out_.leaf).uses, [](const Use& u) {
      return std::ranges::any_of(u.reach.index, [](const auto& d) { return d.terms.size() > 1; });
    });
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

  /// Lines of pieces together, by the sum of those of each: they may share some. 1 where their rows
  /// are many.
  double unshared(const Array& a, const std::vector<Piece>& all) {
    std::int64_t rows = 0;
    for (const Piece& p : all) {
      std::int64_t own = 1;
      for (int d = 0; d + 1 < p.dims; ++d) own *= p.count(d);
      rows += own;
    }
    if (rows > kMostRows) return 1;
    rows_.clear();
    for (const Piece& p : all) list_rows(rows_of(a, p, line_), line_, rows_);
    std::ranges::sort(rows_);
    std::int64_t sum = 0, together = 0, end = 0;
    for (const auto& [first, last] : rows_) {
      sum += last - first;
      together += std::max<std::int64_t>(last - std::max(first, end), 0);
      end = std::max(end, last);
    }
    return static_cast<double>(together) / static_cast<double>(sum);
  }

  /// `steps`: by use, what the rows move by from one to another of the iterations that `times`
  /// counts. `budget`: combinations of iterations that may be told apart from here on.
  void count(Path& path, std::size_t w, std::size_t depth, double times,
             const std::vector<std::int64_t>& steps, double budget) {
    // Counted where all that follows up to the next loop has been entered, or nothing is left.
    const bool leaf = w == out_.way.size();
    const bool loop = !leaf && nest_.node(out_.way[w]).kind == NodeKind::loop;
    if (!leaf && !loop) {
      const std::size_t size = path.size();
      nest_.enter(path, out_.way[w], 0);
      count(path, w + 1, depth, times, steps, budget);
      path.cut(size);
      return;
    }
    for (std::size_t u = 0; u < uses_; ++u) {
      const Array& a = nest_.array(nest_.node(out_.leaf).uses[u].array);
      const std::vector<Piece> all = joined(a, touched(path, u).pieces, line_);
      double lines = 0;
      for (const Piece& p : all) lines += average(a, p, steps[u]);
      out_.lines[u][depth] += times * lines * (all.size() > 1 ? unshared(a, all) : 1);
    }
    if (leaf) {
      ++out_.counted;
      return;
    }
    const std::int64_t n = nest_.trips_of(out_.way[w], path.back());
    const std::size_t size = path.size();
    const std::vector<Class> all = classes(depth, n, budget);
    for (const Class& c : all) {
      nest_.enter(path, out_.way[w], c.iteration);
      std::vector<std::int64_t> moved = steps;
      for (std::size_t u = 0; c.times > 1 && u < uses_; ++u)
        moved[u] = std::gcd(moved[u], steps_[depth][u]);
      count(path, w + 1, depth + 1, times * c.times, moved,
            budget / static_cast<double>(all.size()));
      path.cut(size);
    }
  }

  /// An iteration that stands for some.
  struct Class {
    std::int64_t iteration = 0;
    double times = 1;
  };

  /// Iterations that stand for all of a loop.
  std::vector<Class> classes(std::size_t loop, std::int64_t n, double budget) {
    if (n == 1) return {{0, 1}};
    const bool apart = n <= kApart && moves_within_lines(loop);
    if (!apart && differs_[loop] == Differs::no) return {{0, static_cast<double>(n)}};
    int left = 0;  // loops from this one on whose iterations are told apart
    for (std::size_t l = loop; l < differs_.size(); ++l)
      if (differs_[l] != Differs::no || moves_within_lines(l)) ++left;
    const auto share = static_cast<std::int64_t>(std::pow(budget, 1.0 / left) + 1e-9);
    std::vector<Class> out;
    const std::int64_t least = apart                             ? n
                               : differs_[loop] == Differs::last ? 2
                                                                 : std::min<std::int64_t>(n, 5);
    if (share < least && budget < static_cast<double>(least)) {
      some(0, n, std::max<std::int64_t>(static_cast<std::int64_t>(budget), 1), out);
      return out;
    }
    if (!apart && differs_[loop] == Differs::last) {
      return {{0, static_cast<double>(n - 1)}, {n - 1, 1}};
    }
    if (apart || n <= std::max<std::int64_t>(share, 5)) {
      for (std::int64_t i = 0; i < n; ++i) out.push_back({i, 1});
      return out;
    }
    for (const std::int64_t i : {std::int64_t{0}, std::int64_t{1}, n - 2, n - 1})
      out.push_back({i, 1});
    some(2, n - 2, std::clamp<std::int64_t>(share - 4, 1, kMostInner), out);
    return out;
  }

  /// So many of the iterations [from, to), one in each part of them.
  void some(std::int64_t from, std::int64_t to, std::int64_t count, std::vector<Class>& out) {
    count = std::min(count, to - from);
    for (std::int64_t k = 0; k < count; ++k) {
      drawn_ += 0.6180339887498949;
      drawn_ -= std::floor(drawn_);
      const std::int64_t lo = from + (to - from) * k / count;
      const std::int64_t hi = from + (to - from) * (k + 1) / count;
      const auto at = static_cast<std::int64_t>(drawn_ * static_cast<double>(hi - lo));
      out.push_back({lo + at, static_cast<double>(hi - lo)});
    }
  }

  bool moves_within_lines(std::size_t loop) const {
    return std::ranges::any_of(steps_[loop], [&](std::int64_t s) { return s % line_ != 0; });
  }

  static constexpr std::int64_t kApart = 4;  ///< so few iterations are looked at one by one
  static constexpr double kMostClasses = 64;
  static constexpr std::int64_t kMostInner = 16;
  static constexpr std::int64_t kMostRows = 256;

  const Nest& nest_;
  Strata& out_;
  std::int64_t line_;
  std::size_t uses_;
  std::vector<std::pair<std::int64_t, std::int64_t>> rows_ = {};  ///< lines of rows
  double drawn_ = 0.5;                            ///< of a sequence that fills [0, 1) evenly
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
