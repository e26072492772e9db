// Two products fused: which tensors are kept at which depth of the nest of m and l around both.
//
// The nest cuts m and l in turn, outermost first. After a cut of m to t, A and E may be kept:
// strips of t rows, used again over all l that is still to come inside. After a cut of l to u, B
// and D may be kept: u of their columns or rows, used again over the m still to come. Innermost is
// a region of C, t x u words: the first product fills it, the second uses it up, and what is not
// kept streams past it by a line and a word, or a word beside what is kept. A `Form` says which
// tensors are kept where; its traffic and memory are sums over tensors of size times visits.
#include <algorithm>
#include <cmath>

#include "models/bounds/front.h"
#include "models/bounds/trees.h"

namespace tilewright::bounds {
namespace {

using I = std::int64_t;
enum Tensor4 : unsigned { kA = 1, kB = 2, kD = 4, kE = 8 };
constexpr unsigned kRows = kA | kE, kColumns = kB | kD;

struct Form {
  unsigned group[3] = {};  ///< tensors kept after each cut; alternately of rows and of columns
  int groups = 0;
  bool split = false;  ///< n is cut around the products (C is computed for each part)

  unsigned kept() const { return group[0] | group[1] | group[2]; }
  bool rows(int g) const { return (group[g] & kRows) != 0; }
  bool all(unsigned set) const { return (kept() & set) == set; }
  /// n is cut inside what the first group keeps, where that is A or B, else outside everything.
  bool split_inside() const { return groups > 0 && (group[0] & (kA | kB)) != 0; }
  bool ends_in_rows() const { return groups > 0 && rows(groups - 1); }
  /// Whether the region's other dimension matters: some tensor streams that it gives reuse.
  bool free_dimension() const { return groups == 0 || !all(ends_in_rows() ? kRows : kColumns); }
  /// The last group's step is one where nothing inside profits from more.
  bool last_is_one() const { return groups > 0 && all(ends_in_rows() ? kColumns : kRows); }
};

std::vector<Form> make_forms() {
  const unsigned rows[] = {kA, kE, kRows}, columns[] = {kB, kD, kColumns};
  std::vector<Form> forms{Form{}};
  for (unsigned x : rows) forms.push_back({{x}, 1});
  for (unsigned y : columns) forms.push_back({{y}, 1});
  for (unsigned x : rows)
    for (unsigned y : columns) {
      forms.push_back({{x, y}, 2});
      forms.push_back({{y, x}, 2});
    }
  for (unsigned x : {kA, kE})
    for (unsigned y : columns) forms.push_back({{x, y, kRows ^ x}, 3});
  for (unsigned y : {kB, kD})
    for (unsigned x : rows) forms.push_back({{y, x, kColumns ^ y}, 3});
  const std::size_t plain = forms.size();
  for (std::size_t i = 0; i < plain; ++i)
    if ((forms[i].kept() & (kD | kE)) != 0) {
      Form f = forms[i];
      f.split = true;
      forms.push_back(f);
    }
  return forms;
}

const std::vector<Form>& forms() {
  static const std::vector<Form> all = make_forms();
  return all;
}

/// Pieces of a loop that is cut by `outer` and each piece by `inner`.
I nested(I extent, I outer, I inner) {
  return extent / outer * ceil_div(outer, inner) + ceil_div(extent % outer, inner);
}

/// One dimension of the nest (m or l): its cuts so far.
struct Side {
  I extent;
  I range;             ///< the current one
  I pieces = 1;        ///< of the extent
  I alone = 0;         ///< elements in a first-cut piece that the next cut leaves whole
  bool again = false;  ///< cut twice

  void cut(I step) {
    if (pieces > 1 || range < extent) {
      alone = extent % range != 0 && extent % range <= step ? extent % range : 0;
      again = true;
      pieces = nested(extent, range, step);
    } else {
      pieces = ceil_div(extent, step);
    }
    range = step;
  }
};

/// cut[0..2]: the groups' steps; cut[3]: the region's other dimension (no group: cut[0] is m's and
/// cut[3] l's); cut[4]: n's. False where the form does not mean what it says at these steps (it is
/// another form then).
bool evaluate(const Chain& chain, const Form& f, Choice& c) {
  const I M = chain.M, L = chain.L, K = chain.K, N = chain.N;
  Side m{M, M}, l{L, L};
  const I tn = f.split ? c.cut[4] : N, parts = ceil_div(N, tn);
  // How often A, B start over because n is cut around them.
  const I a_times = f.group[0] & kA ? 1 : parts, b_times = f.group[0] & kB ? 1 : parts;
  I buffer = 0, traffic = 0;
  for (int g = 0; g < f.groups; ++g) {
    const unsigned keep = f.group[g];
    if (f.rows(g)) {
      const I visits = l.pieces;
      if (g > 0 && visits > 1 && c.cut[g] >= m.range) return false;
      m.cut(c.cut[g]);
      const I lone = g == 2 ? m.alone : 0;
      if (keep & kA) {
        buffer += m.range * K;
        traffic += m.range == M ? M * K : ((M - lone) * visits + lone) * K * a_times;
      }
      if (keep & kE) {
        buffer += m.range * tn;
        traffic += N * ((M - lone) * (2 * visits - 1) + lone * visits);
      }
    } else {
      const I visits = m.pieces;
      if (g > 0 && visits > 1 && c.cut[g] >= l.range && g == 2) return false;
      l.cut(c.cut[g]);
      const I lone = g == 2 ? l.alone : 0;
      if (keep & kB) {
        buffer += l.range * K;
        traffic += l.range == L ? K * L : ((L - lone) * visits + lone) * K * b_times;
      }
      if (keep & kD) {
        buffer += l.range * tn;
        const bool stays = l.range == L && (parts == 1 || !f.split_inside());
        traffic += stays ? L * N : ((L - lone) * visits + lone) * N;
      }
    }
  }
  if (f.groups == 0) {
    m.cut(c.cut[0]);
    l.cut(c.cut[3]);
  } else if (f.ends_in_rows()) {
    if (c.cut[3] > l.range) return false;
    if (c.cut[3] < l.range) l.cut(c.cut[3]);
  } else {
    if (c.cut[3] > m.range) return false;
    if (c.cut[3] < m.range) m.cut(c.cut[3]);
  }
  const unsigned keep = f.kept();
  if (!(keep & kA)) traffic += M * K * l.pieces * a_times;
  if (!(keep & kB)) traffic += K * L * m.pieces * b_times;
  if (!(keep & kD)) traffic += L * N * m.pieces;
  if (!(keep & kE)) traffic += M * N * (2 * l.pieces - 1);
  const auto stream = [&](bool first, bool second) {
    return first && second ? I{0} : first || second ? I{1} : std::min(m.range, l.range) + 1;
  };
  c.buffer = buffer + m.range * l.range +
             std::max(stream(keep & kA, keep & kB), stream(keep & kD, keep & kE));
  c.traffic = traffic;
  return true;
}

/// Every step where that is few, else the least ones.
std::vector<I> cuts_of(I extent, Steps steps) {
  if (extent > 32 || steps == Steps::dividing) return steps_of(extent, steps);
  std::vector<I> all;
  for (I i = 1; i <= extent; ++i) all.push_back(i);
  return all;
}

/// At most `most` of them, spread evenly by ratio; the ends stay.
std::vector<I> thinned(const std::vector<I>& steps, std::size_t most) {
  if (steps.size() <= most) return steps;
  std::vector<I> kept;
  const double ratio = static_cast<double>(steps.back()) / static_cast<double>(steps.front());
  for (std::size_t i = 0; i < most; ++i) {
    const double want = static_cast<double>(steps.front()) *
                        std::pow(ratio, static_cast<double>(i) / static_cast<double>(most - 1));
    const auto at = std::ranges::lower_bound(steps, static_cast<I>(std::llround(want)));
    const I step = at == steps.end() ? steps.back() : *at;
    if (kept.empty() || kept.back() < step) kept.push_back(step);
  }
  return kept;
}

/// The search over one form's cuts: what no completion can bring onto the front is left out.
class Search {
 public:
  Search(const Chain& chain, Steps steps, Front& front) : chain_(chain), front_(front) {
    m_ = cuts_of(chain.M, steps);
    l_ = cuts_of(chain.L, steps);
    n_ = steps_of(chain.N, steps);
  }

  /// The forms with that many cuts that may vary (4: four and more).
  void run(std::size_t id, long wanted) {
    const Form& f = forms()[id];
    slots_.clear();
    const std::vector<I> one{1};
    for (int g = 0; g < f.groups; ++g) {
      const bool fixed = g + 1 == f.groups && f.last_is_one();
      slots_.push_back({g, fixed ? one : f.rows(g) ? m_ : l_});
    }
    if (f.groups == 0) slots_.push_back({0, m_});
    const bool other_is_l = f.groups == 0 || f.ends_in_rows();
    if (f.groups > 0 && !f.free_dimension())
      slots_.push_back({3, one});
    else
      slots_.push_back({3, other_is_l ? l_ : m_});
    if (f.split) slots_.push_back({4, n_});
    // Forms of many cuts gain little where loops are long: they are tried at fewer steps there.
    const auto cuts =
        std::ranges::count_if(slots_, [](const Slot& s) { return s.steps.size() > 1; });
    if (std::clamp(cuts, 2L, 4L) != wanted) return;
    if (cuts > 2)
      for (Slot& s : slots_) s.steps = thinned(s.steps, cuts == 3 ? 16 : 8);
    Choice c{.form = static_cast<std::int32_t>(id)};
    form_ = &f;
    least_ = c;
    for (const Slot& s : slots_) least_.cut[s.cut] = s.steps.front();
    go(0, c);
  }

 private:
  struct Slot {
    int cut;
    std::vector<I> steps;
  };

  /// n cut to single columns, or leaving one: a word that streams is then the same word at the next
  /// region, kept without being meant to be.
  bool plain_split(const Choice& c) const {
    if (!form_->split) return true;
    if (c.cut[4] >= chain_.N) return false;
    if (form_->all(kD | kE)) return true;
    return c.cut[4] >= 2 && chain_.N % c.cut[4] != 1;
  }

  void go(std::size_t at, Choice& c) {
    if (at == slots_.size()) {
      if (plain_split(c) && evaluate(chain_, *form_, c)) front_.add(c);
      return;
    }
    for (I step : slots_[at].steps) {
      c.cut[slots_[at].cut] = step;
      if (at + 1 < slots_.size() && !promising(at, c)) continue;
      go(at + 1, c);
    }
  }

  /// Least memory (the other steps least) against least traffic: every tensor that is not settled
  /// moves as if its reuse were whole.
  bool promising(std::size_t at, const Choice& c) const {
    Choice low = c;
    for (std::size_t i = at + 1; i < slots_.size(); ++i)
      low.cut[slots_[i].cut] = least_.cut[slots_[i].cut];
    if (!evaluate(chain_, *form_, low)) return true;
    return front_.open(low.buffer, floor_traffic(at, c));
  }

  I floor_traffic(std::size_t at, const Choice& c) const {
    const Form& f = *form_;
    const I M = chain_.M, L = chain_.L, K = chain_.K, N = chain_.N;
    I a = 1, b = 1, d = 1, e = 1;
    // Steps that are set bound the pieces from below for what comes after them in the nest.
    I m = 1, l = 1;
    for (int g = 0; g < f.groups && g <= static_cast<int>(at); ++g) {
      if (f.rows(g)) {
        if (g == 0 || c.cut[g] < M) {
          if (f.group[g] & kA && c.cut[g] < M) a = l;
          if (f.group[g] & kE) e = l;
        }
        m = std::max(m, ceil_div(M, c.cut[g]));
      } else {
        if (f.group[g] & kB && c.cut[g] < L) b = m;
        if (f.group[g] & kD && c.cut[g] < L) d = m;
        l = std::max(l, ceil_div(L, c.cut[g]));
      }
    }
    if (f.groups == 0) m = ceil_div(M, c.cut[0]);
    const unsigned keep = f.kept();
    if (!(keep & kA)) a = l;
    if (!(keep & kE)) e = l;
    if (!(keep & kB)) b = m;
    if (!(keep & kD)) d = m;
    if (f.groups == 3)
      return M * K + K * L + L * N + M * N;  // pieces of one trip: not bounded here
    return M * K * a + K * L * b + L * N * d + M * N * (2 * e - 1);
  }

  const Chain& chain_;
  Front& front_;
  const Form* form_ = nullptr;
  std::vector<I> m_, l_, n_;
  std::vector<Slot> slots_;
  Choice least_;
};

}  // namespace

std::vector<Choice> chain_choices(const Chain& chain, Steps steps) {
  Front front;
  Search search(chain, steps, front);
  // Simple forms first: the front that they leave refuses most of the others early.
  for (long cuts : {2L, 3L, 4L})
    for (std::size_t id = 0; id < forms().size(); ++id) search.run(id, cuts);
  return front.finish();
}

namespace {

/// The nest from the outside in: each step wraps what the later ones make.
struct Nest {
  const Workload& w;
  const Chain& chain;
  const Choice& c;
  const Form& f;
  TreeMaker make;
  I m, l;  ///< the ranges here

  Node region() const {
    const unsigned keep = f.kept();
    const Node one = compute(make.name(chain.first)), two = compute(make.name(chain.second));
    const auto product = [&](bool rows, bool columns, LoopId sweep, const Node& work) {
      const I range = w.loop(sweep).extent;
      if (rows && columns) return work;
      const auto over = [&](LoopId outer, I outer_range, LoopId inner, I inner_range) {
        return make.cut(outer, 1, outer_range, {make.cut(inner, 1, inner_range, {work})});
      };
      if (rows) return over(chain.l, l, sweep, range);     // a word of B or D at a time
      if (columns) return over(chain.m, m, sweep, range);  // a word of A or E
      return l <= m ? over(sweep, range, chain.m, m) : over(sweep, range, chain.l, l);
    };
    Node first = product(keep & kA, keep & kB, chain.k, one);
    Node second = product(keep & kE, keep & kD, chain.n, two);
    return sequence({std::move(first), std::move(second)});
  }

  Node inside(int g) {
    if (g < f.groups) return group(g);
    if (f.groups == 0) {
      const I outer = m, inner = l;
      m = c.cut[0], l = c.cut[3];
      return make.cut(chain.m, m, outer, {make.cut(chain.l, l, inner, {region()})});
    }
    const LoopId loop = f.ends_in_rows() ? chain.l : chain.m;
    I& range = f.ends_in_rows() ? l : m;
    const I before = range;
    range = c.cut[3];
    return make.cut(loop, range, before, {region()});
  }

  Node group(int g) {
    I& range = f.rows(g) ? m : l;
    const LoopId loop = f.rows(g) ? chain.m : chain.l;
    const I before = range;
    range = c.cut[g];
    const unsigned keep = f.group[g];
    const I step = range;
    std::vector<Node> outside, body;
    if (keep & kA) outside.push_back(load(make.name(chain.a)));
    if (keep & kB) outside.push_back(load(make.name(chain.b)));
    if (keep & kD) body.push_back(load(make.name(chain.d)));
    body.push_back(inside(g + 1));
    if (keep & kE) body.push_back(store(make.name(chain.e)));
    if (g == 0 && f.split && f.split_inside()) {
      outside.push_back(make.cut(chain.n, c.cut[4], chain.N, std::move(body)));
    } else {
      for (Node& n : body) outside.push_back(std::move(n));
    }
    return make.cut(loop, step, before, std::move(outside));
  }
};

}  // namespace

Node chain_tree(const Workload& w, const Chain& chain, const Choice& c) {
  const Form& f = forms()[static_cast<std::size_t>(c.form)];
  Nest nest{w, chain, c, f, TreeMaker{w}, chain.M, chain.L};
  Node tree = nest.inside(0);
  if (f.split && !f.split_inside())
    tree = nest.make.cut(chain.n, c.cut[4], chain.N, {std::move(tree)});
  return nest.make.batch(chain.batch, std::move(tree));
}

}  // namespace tilewright::bounds
