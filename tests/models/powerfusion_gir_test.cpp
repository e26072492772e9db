// GIR's text, scopes and rewriting, on graphs and unit maps that nobody named, held against slow
// and obvious computations of the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/base/format.h"
#include "core/workload/text.h"
#include "models/powerfusion/build.h"
#include "models/powerfusion/optimise.h"

namespace tilewright::powerfusion {
namespace {

using ::testing::HasSubstr;

// ---- random kernels: each operator in units of its own
// -----------------------------------------------

constexpr std::int64_t kWarps = 4;

/// Loops around one operator, some of them over units.
Node random_nest(const Workload& w, OpId id, std::mt19937_64& random, int style) {
  const auto& loops = w.op(id).loops;
  Node body = compute(w.op(id).name);
  const auto pick = [&](std::initializer_list<std::int64_t> of) {
    return *(of.begin() + static_cast<std::ptrdiff_t>(random() % of.size()));
  };
  for (std::size_t i = loops.size(); i-- > 0;) {
    const std::string& name = w.loop(loops[i]).name;
    const bool last = i + 1 == loops.size() && loops.size() > 1;
    const std::int64_t wide = style < 0 ? pick({1, 2, 4}) : style % 2 + 1;
    const int way = style < 0 ? static_cast<int>(random() % 4) : style / 2;
    if (last) {
      body = loop(name, std::move(body), wide, way == 3 ? Binding::thread : Binding::lane);
    } else if (way == 0 && !w.is_reduction(id, loops[i])) {
      body = loop(name, loop(name, std::move(body), 1, Binding::warp), kWarps, Binding::grid);
    } else if (!w.is_reduction(id, loops[i])) {
      body = loop(name, std::move(body), way == 2 ? 2 : 1, Binding::grid);
    }
  }
  return body;
}

/// `style`: the same of all operators; -1: each its own.
Gir random_gir(const std::string& workload, std::mt19937_64& random, int style) {
  const Workload w = named_workload(workload);
  std::vector<Node> all;
  for (OpId id : w.topological_order()) all.push_back(random_nest(w, id, random, style));
  Kernel k{.name = "k", .tree = all.size() == 1 ? all.front() : sequence(all)};
  return gir_of(w, k, kWarps).front();
}

std::string graph_of(int seed, int vertices = 8) {
  return "random-graph:rows=12,cols=40,vertices=" + std::to_string(vertices) +
         ",seed=" + std::to_string(seed) + (seed % 5 == 0 ? ",indices=1" : "");
}

// ---- text
// -----------------------------------------------------------------------------------------

TEST(GirText, ReadsBackToTheSame) {
  std::mt19937_64 random(3);
  for (int seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    const Gir g = random_gir(graph_of(seed), random, -1);
    EXPECT_EQ(parse_gir(to_text(g)), g) << to_text(g);
    const Gir after = optimised(g);
    EXPECT_EQ(parse_gir(to_text(after)), after) << to_text(after);
  }
}

TEST(GirText, SaysWhatIsWrongAndWhere) {
  const auto refused = [](const std::string& text) -> std::string {
    try {
      parse_gir(text);
    } catch (const InputError& e) {
      return e.what();
    }
    return "";
  };
  const std::string head =
      "gir k blocks 2 warps 1\nloop c 8\ntensor x f32 8\nunits u0 lane c/1:8\n";
  EXPECT_EQ(refused(head + "slice s0 x [1*d0] (dram, 1, 8, 0) u0\n"), "");
  EXPECT_THAT(refused(""), HasSubstr("gir NAME blocks"));
  EXPECT_THAT(refused(head + "slice s0 x [1*d0] (dram, 8, 1, 2) u0\n"), HasSubstr("line 5"));
  EXPECT_THAT(refused(head + "slice s0 x [1*d1] (dram, 1, 8, 0) u0\n"), HasSubstr("d0 to d0"));
  EXPECT_THAT(refused(head + "slice s0 y [1*d0] (dram, 1, 8, 0) u0\n"),
              HasSubstr("a tensor above"));
  EXPECT_THAT(refused(head + "slice s0 x [1*d0] (disk, 1, 8, 0) u0\n"), HasSubstr("lane, warp"));
  EXPECT_THAT(refused(head + "move s0 -> s1\n"), HasSubstr("line 5"));
  EXPECT_THAT(refused("gir k blocks 0 warps 1\n"), HasSubstr("from 1"));
  EXPECT_THAT(refused("gir k blocks 1 warps 1 1\n"), HasSubstr("end of the line"));
}

TEST(GirText, PatternsAreThePapersFourAttributes) {
  const Gir g = parse_gir(
      "gir k blocks 1 warps 1\nloop r 64\nloop c 64\ntensor x f32 64 64\n"
      "units u0 lane r/1:32\nunits u1 lane c/2:32 item c/1:2\nunits u2 lane r/1:4 lane c/4:8 item "
      "c/1:4\n"
      "slice s0 x [1*d0, 0] (dram, 32, 1, 64) u0\nslice s1 x [0, 2*d0+1*d1] (dram, 1, 64, 0) u1\n"
      "slice s2 x [1*d0, 4*d1+1*d2] (dram, 4, 32, 64) u2\n");
  EXPECT_EQ(pattern_of(g, g.slices[2]), (SlicePattern{4, 32, 64, 1}));
}

// ---- scopes
// ---------------------------------------------------------------------------------------

struct Unit {
  std::int64_t block = 0, warp = 0, lane = 0;
  auto operator<=>(const Unit&) const = default;
};

/// Every iteration of a slice: f(digits, element). Iterations that do not exist, and elements
/// outside of the tensor, are left out.
void each_element(const Gir& g, const Slice& s,
                  const std::function<void(const std::vector<std::int64_t>&, std::int64_t)>& f) {
  const UnitMap& map = g.maps[static_cast<std::size_t>(s.units)];
  const Tensor& t = g.tensors[static_cast<std::size_t>(s.tensor)];
  std::vector<std::int64_t> at(map.size());
  const std::function<void(std::size_t)> go = [&](std::size_t i) {
    if (i < map.size()) {
      for (at[i] = 0; at[i] < map[i].count; ++at[i]) go(i + 1);
      return;
    }
    for (std::size_t d = 0; d < map.size(); ++d) {
      std::int64_t inner = 0, all = 0;
      for (std::size_t e = 0; e < map.size(); ++e) {
        if (map[e].loop != map[d].loop) continue;
        if (e > d) inner += map[e].step * at[e];
        all += map[e].step * at[e];
      }
      if (inner >= map[d].step || all >= g.loops[static_cast<std::size_t>(map[d].loop)].extent)
        return;
    }
    std::int64_t element = 0;
    for (std::size_t d = 0; d < s.base.size(); ++d) {
      std::int64_t coordinate = s.base[d].offset;
      for (const BaseTerm& term : s.base[d].terms)
        coordinate += term.coefficient * at[static_cast<std::size_t>(term.digit)];
      if (coordinate < 0 || coordinate >= t.shape[d]) return;
      element = element * t.shape[d] + coordinate;
    }
    f(at, element);
  };
  go(0);
}

/// Units that do an iteration.
std::vector<Unit> units_of(const Gir& g, const UnitMap& map, const std::vector<std::int64_t>& at) {
  std::vector<Unit> out(1);
  const auto over = [&](Place place, std::int64_t all, std::int64_t Unit::*where) {
    std::int64_t number = 0;
    bool any = false;
    for (std::size_t d = 0; d < map.size(); ++d) {
      if (map[d].place != place) continue;
      any = true;
      number = number * map[d].count + at[d];
    }
    std::vector<Unit> next;
    for (const Unit& u : out)
      for (std::int64_t n = any ? number : 0; n < (any ? number + 1 : all); ++n) {
        next.push_back(u);
        next.back().*where = n;
      }
    out = std::move(next);
  };
  over(Place::block, g.blocks, &Unit::block);
  over(Place::warp, g.warps, &Unit::warp);
  over(Place::lane, kLanes, &Unit::lane);
  return out;
}

Scope slow_scope(const Gir& g, const Slice& written, const Slice& read) {
  std::map<std::int64_t, std::set<Unit>> has;
  each_element(g, written, [&](const auto& at, std::int64_t element) {
    for (const Unit& u : units_of(g, g.maps[static_cast<std::size_t>(written.units)], at))
      has[element].insert(u);
  });
  Scope scope = Scope::lane;
  each_element(g, read, [&](const auto& at, std::int64_t element) {
    const std::set<Unit>& holders = has[element];
    for (const Unit& u : units_of(g, g.maps[static_cast<std::size_t>(read.units)], at)) {
      Scope least = Scope::device;
      for (const Unit& h : holders)
        if (h.block == u.block)
          least = std::min(least, h.warp != u.warp   ? Scope::block
                                  : h.lane != u.lane ? Scope::warp
                                                     : Scope::lane);
      scope = std::max(scope, least);
    }
  });
  return scope;
}

/// One tensor, written and read in random units.
Gir random_pair(std::mt19937_64& random, bool divisible) {
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
  };
  Gir g{.name = "pair", .warps = pick(1, 4)};
  const std::int64_t rows = divisible ? 8 : pick(3, 12), cols = divisible ? 64 : pick(5, 70);
  g.loops = {{"r", rows}, {"c", cols}, {"p", rows}, {"q", cols}};
  g.tensors.push_back({.name = "t", .shape = {rows, cols}});
  for (int side = 0; side < 2; ++side) {
    const int r = 2 * side, c = r + 1;
    UnitMap map;
    const auto add = [&](int loop, std::int64_t step, std::int64_t count, Place place) {
      if (count > 1) map.push_back({loop, step, count, place});
    };
    const std::int64_t of_block = divisible ? std::int64_t{1} << pick(0, 2) : pick(1, 3);
    add(r, of_block, ceil_div(rows, of_block), Place::block);
    if (of_block <= g.warps && random() % 2 == 0)
      add(r, 1, of_block, Place::warp);
    else
      add(r, 1, of_block, Place::trip);
    const std::int64_t item = std::int64_t{1} << pick(0, 2);
    const std::int64_t lanes =
        std::min<std::int64_t>(divisible ? 16 : pick(2, 32), ceil_div(cols, item));
    if (ceil_div(cols, lanes * item) <= g.warps && map.back().place != Place::warp &&
        random() % 2 == 0)
      add(c, lanes * item, ceil_div(cols, lanes * item), Place::warp);
    else
      add(c, lanes * item, ceil_div(cols, lanes * item), Place::trip);
    add(c, item, lanes, Place::lane);
    add(c, 1, item, Place::item);
    g.maps.push_back(map);
    std::int64_t blocks = 1;
    for (const Digit& d : map)
      if (d.place == Place::block) blocks *= d.count;
    g.blocks = std::max(g.blocks, blocks);
    Slice s{.tensor = 0, .tier = Tier::dram, .units = side};
    s.base.resize(2);
    for (std::size_t d = 0; d < map.size(); ++d)
      s.base[map[d].loop == r ? 0 : 1].terms.push_back({static_cast<int>(d), map[d].step});
    if (side == 1 && random() % 4 == 0) s.base[random() % 2].offset = pick(-2, 2);
    g.slices.push_back(std::move(s));
  }
  return g;
}

/// TILEWRIGHT_SEED and TILEWRIGHT_CASES draw others: {first, last}.
std::pair<int, int> drawn_seeds(int count) {
  const auto number = [](const char* name, int otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::atoi(text);
  };
  const int first = number("TILEWRIGHT_SEED", 1);
  return {first, first + number("TILEWRIGHT_CASES", count) - 1};
}

TEST(Scopes, AreThoseOfASlowLookAtEveryElement) {
  const auto [first, last] = drawn_seeds(400);
  const int count = last - first + 1;
  std::map<Scope, int> seen;
  int larger = 0;
  for (int seed = first; seed <= last; ++seed) {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    const Gir g = random_pair(random, seed % 2 == 0);
    const Scope slow = slow_scope(g, g.slices[0], g.slices[1]);
    const Scope fast = scope_between(g, g.slices[0], g.slices[1]);
    ASSERT_GE(fast, slow) << "seed " << seed << '\n' << to_text(g);
    if (seed % 2 == 0 && g.slices[1].base[0].offset == 0 && g.slices[1].base[1].offset == 0) {
      EXPECT_EQ(fast, slow) << "seed " << seed << '\n' << to_text(g);
    }
    larger += fast > slow ? 1 : 0;
    ++seen[slow];
  }
  EXPECT_LE(larger, count / 20);
  for (Scope s : {Scope::lane, Scope::warp, Scope::block, Scope::device})
    EXPECT_GT(seen[s], 5) << name_of(s);
}

TEST(Scopes, ThePrintedTestTakesEqualPatternsForEqualUnits) {
  const Gir g = parse_gir(
      "gir k blocks 4 warps 1\nloop r 4\nloop c 32\nloop p 4\nloop q 32\ntensor t f32 4 32\n"
      "units u0 block r/1:4 lane c/1:32\nunits u1 block p/1:4 lane q/1:32\n"
      "slice s0 t [1*d0, 1*d1] (dram, 1, 32, 0) u0\nslice s1 t [-1*d0+3, 1*d1] (dram, 1, 32, 0) "
      "u1\n");
  EXPECT_EQ(scope_between(g, g.slices[0], g.slices[1]), Scope::device);
  EXPECT_EQ(scope_between(g, g.slices[0], g.slices[1], ScopeTest::printed), Scope::lane);
  EXPECT_EQ(slow_scope(g, g.slices[0], g.slices[1]), Scope::device);
}

// ---- rewriting
// ------------------------------------------------------------------------------------

/// What is computed into each tensor that leaves, moves and syncs left aside.
std::map<std::string, std::string> computed(const Gir& g) {
  std::map<int, const GOp*> maker;
  for (const GOp& o : g.ops) maker[o.out] = &o;
  std::map<int, std::string> known;
  const std::function<const std::string&(int)> text = [&](int s) -> const std::string& {
    const auto [at, fresh] = known.emplace(s, "");
    if (!fresh) return at->second;
    const Slice& slice = g.slices[static_cast<std::size_t>(s)];
    std::string out;
    const auto made = maker.find(s);
    if (made == maker.end()) {
      out = g.tensors[static_cast<std::size_t>(slice.tensor)].name;
    } else if (made->second->kind == GKind::move || made->second->kind == GKind::sync) {
      out = text(made->second->in.front());
    } else {
      out = made->second->name + std::string(name_of(made->second->kind)) + '(';
      for (int in : made->second->in)
        out += std::to_string(std::hash<std::string>()(text(in))) + ' ';
      out += ')';
    }
    return known[s] = out;
  };
  std::map<std::string, std::string> out;
  for (const GOp& o : g.ops) {
    const Slice& s = g.slices[static_cast<std::size_t>(o.out)];
    if (o.kind == GKind::move && s.tier == Tier::dram &&
        std::ranges::binary_search(g.leaving, s.tensor))
      out[g.tensors[static_cast<std::size_t>(s.tensor)].name] = text(o.in.front());
  }
  return out;
}

TEST(Rewriting, KeepsWhatIsComputedAndEndsWhereItIs) {
  double before = 0, after = 0;
  int syncs[4] = {};
  const auto [first, last] = drawn_seeds(500);
  for (int seed = first; seed <= last; ++seed) {
    SCOPED_TRACE(formatted("seed {}", seed));
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    const Gir g = random_gir(graph_of(seed, 3 + seed % 8), random, seed % 3 == 0 ? -1 : seed % 6);
    const Gir done = optimised(g);
    ASSERT_EQ(optimised(done), done) << to_text(done);
    EXPECT_LE(dram_bytes(done), dram_bytes(g) * (1 + 1e-12));
    EXPECT_GE(dram_bytes(done), compulsory_bytes(done) * (1 - 1e-12)) << to_text(done);
    // Less may have to be read than before: what a slice drops, nobody loads any more.
    EXPECT_LE(compulsory_bytes(done), compulsory_bytes(g) * (1 + 1e-12))
        << to_text(g) << to_text(done);
    ASSERT_EQ(computed(done), computed(g)) << to_text(g) << to_text(done);
    before += dram_bytes(g);
    after += dram_bytes(done);
    for (const GOp& o : done.ops)
      if (o.kind == GKind::sync) ++syncs[static_cast<int>(o.scope)];
  }
  EXPECT_LT(after, 0.8 * before);
  EXPECT_EQ(syncs[0], 0);
  for (int s = 1; s < 4; ++s) EXPECT_GT(syncs[s], 0) << s;
}

TEST(Rewriting, NeverWaitsForTooFew) {
  for (int seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(formatted("seed {}", seed));
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    const Gir g = optimised(random_gir(graph_of(seed, 6), random, -1));
    for (const GOp& o : g.ops) {
      if (o.kind != GKind::sync && o.kind != GKind::move) continue;
      const Slice &a = g.slices[static_cast<std::size_t>(o.in.front())],
                  &b = g.slices[static_cast<std::size_t>(o.out)];
      if (a.tier != Tier::lane || b.tier != Tier::lane) continue;
      const Scope s = o.kind == GKind::move ? Scope::lane : o.scope;
      EXPECT_GE(s, slow_scope(g, a, b)) << to_text(g);
    }
  }
}

TEST(Rewriting, SwapsWhatThePaperSwaps) {
  // Figure 6: an element-wise gOperator between two moves across the device.
  const std::string text =
      "gir fig6 blocks 8 warps 1\nloop r 8\nloop c 8\nloop p 8\nloop q 8\ntensor x f32 8 8\n"
      "tensor t f32 8 8\ntensor y f32 8 8 out\n"
      "units u0 block r/1:8 lane c/1:8\nunits u1 block q/1:8 lane p/1:8\n"
      "slice s0 x [1*d0, 1*d1] (dram, 1, 8, 0) u0\nslice s1 x [1*d0, 1*d1] (lane, 1, 8, 0) u0\n"
      "slice s2 t [1*d0, 1*d1] (lane, 1, 8, 0) u0\nslice s3 t [1*d0, 1*d1] (dram, 1, 8, 0) u0\n"
      "slice s4 t [1*d1, 1*d0] (dram, 8, 1, 8) u1\nslice s5 t [1*d1, 1*d0] (lane, 8, 1, 8) u1\n"
      "slice s6 y [1*d1, 1*d0] (lane, 8, 1, 8) u1\nslice s7 y [1*d1, 1*d0] (dram, 8, 1, 8) u1\n"
      "move s0 -> s1\new f s1 -> s2\nmove s2 -> s3\nsync device s3 -> s4\nmove s4 -> s5\new h s5 "
      "-> s6\n"
      "move s6 -> s7\n";
  const Gir g = parse_gir(text);
  std::vector<Rewrite> steps;
  const Gir done = optimised(g, {}, &steps);
  EXPECT_EQ(dram_bytes(g), 4 * 256);
  EXPECT_EQ(dram_bytes(done), 2 * 256);
  EXPECT_EQ(syncs_of(done, Scope::device), 0);
  EXPECT_EQ(steps.front().rule, "swap");
  EXPECT_EQ(dram_bytes(optimised(g, {.swap = false})), 4 * 256);
}

}  // namespace
}  // namespace tilewright::powerfusion
