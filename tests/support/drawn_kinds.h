// Drawn plans over the whole notation, by kind: several kernels, packs, syncs, atomics,
// recomputation, spills, sliding, convolutions, gathers, masks, loops bound to blocks, warps, lanes
// and threads, in several types.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/workload/text.h"
#include "tests/support/random_stitched.h"
#include "tests/support/random_trees.h"
#include "tests/support/small_graphs.h"

namespace tilewright::testing::drawn_kinds {

/// A kind of plans, drawn.
struct Kind {
  std::string name;
  std::function<std::optional<RandomCase>(std::mt19937_64&)> draw;
};

inline std::string number(std::mt19937_64& random, int least, int most) {
  return std::to_string(std::uniform_int_distribution<int>(least, most)(random));
}

inline std::shared_ptr<const Workload> workload_of(const std::string& text) {
  return std::make_shared<const Workload>(workload_from_yaml(text, "random"));
}

/// Scores that a mask replaces, their sum or maximum, and what is made of both; or a product of
/// them.
inline std::string masked(std::mt19937_64& random) {
  const bool product = random() % 2 == 0, causal = random() % 2 == 0;
  const std::string mask = causal ? "keep[r,c]" : "keep[c]";
  std::string text = "name: random-mask\nloops: {r: " + number(random, 1, 11) +
                     ", c: " + number(random, 1, 11) + ", k: " + number(random, 1, 11) +
                     (product ? ", n: " + number(random, 1, 11) : std::string()) +
                     "}\noperators:\n  - \"score: t[r,c] += a[r,k] * b[k,c]\"\n";
  text += "  - \"mask: u[r,c] = select(lt(" + mask + ", 0), " + (product ? "0" : "-3") +
          ", t[r,c])\"\n";
  if (product) return text + "  - \"apply: y[r,n] += u[r,c] * v[c,n]\"\n";
  text += random() % 2 == 0 ? "  - \"most: s[r] max= u[r,c]\"\n" : "  - \"sum: s[r] += u[r,c]\"\n";
  return text + "  - \"y: y[r,c] = u[r,c] - s[r]\"\n";
}

/// Integers that operators make: counts, products and maxima of integers, values rounded to
/// integers, and indices by which another one reads a table.
inline std::string integers(std::mt19937_64& random) {
  const std::string r = number(random, 1, 11), c = number(random, 1, 11), k = number(random, 1, 11);
  const std::string type = random() % 2 == 0 ? "i8" : "i32", loops = "{r: " + r + ", c: " + c;
  const auto text = [](const std::string& all, const std::string& types,
                       const std::string& operators) {
    return "name: random-integers\nloops: " + all + "}\ndtype: f32\n" + types + "operators:\n" +
           operators;
  };
  switch (random() % 5) {
    case 0:
      return text(loops, "dtypes: {n: " + type + "}\n",
                  "  - \"count: n[r] += lt(x[r,c], 0.25)\"\n  - \"y: y[r,c] = x[r,c] * n[r]\"\n");
    case 1:
      return text(loops, "dtypes: {q: " + type + ", m: i32}\n",
                  "  - \"round: q[r,c] = 40 * x[r,c] + s[c]\"\n"
                  "  - \"most: m[r] max= q[r,c] - c\"\n  - \"y: y[r,c] = q[r,c] - m[r]\"\n");
    case 2:
      return text(loops + ", k: " + k, "dtypes: {a: i8, b: i32, t: i32}\n",
                  "  - \"dot: t[r,c] += a[r,k] * b[k,c]\"\n"
                  "  - \"y: y[r,c] = 0.5 * t[r,c]\"\n");
    case 3:
      return text(loops + ", k: " + k, "dtypes: {q: " + type + ", s: i32}\n",
                  "  - \"score: t[r,c] += a[r,k] * b[k,c]\"\n"
                  "  - \"round: q[r,c] = 10 * t[r,c]\"\n  - \"sum: s[r] += q[r,c]\"\n");
    default:
      return "name: random-integers\nloops: " + loops + "}\ndtype: f32\ntensors: {T: [" +
             number(random, 2, 11) + ", c], ids: [r], i: [r]}\ndtypes: {ids: i32, i: " + type +
             "}\noperators:\n  - \"next: i[r] = max(ids[r], 0) * lt(r, 3)\"\n"
             "  - \"look: z[r,c] = T[i[r],c]\"\n  - \"sum: s[c] += z[r,c]\"\n";
  }
}

/// One tensor read at several offsets, with and without gaps in between: halves that are turned,
/// gates, and a row of scores whose operands are parts of one projection.
inline std::string slices(std::mt19937_64& random) {
  const int r = std::uniform_int_distribution<int>(1, 9)(random);
  const int c = std::uniform_int_distribution<int>(1, 9)(random);
  const auto at = [&](int slice) {  // a gap of two columns behind each slice, or none
    static const int gaps[] = {0, 2};
    return std::to_string(slice * (c + gaps[(r + c) % 2]));
  };
  const std::string text = "name: random-slices\nloops: {r: " + std::to_string(r) +
                           ", c: " + std::to_string(c) + ", k: " + std::to_string(r) +
                           "}\ndtype: f32\ntensors: {x: [r, " + std::to_string(3 * c + 6) +
                           "]}\noperators:\n";
  switch (random() % 4) {
    case 0:
      return text + "  - \"low: u[r,c] = x[r,c] * g[c] - x[r,c+" + at(1) + "] * h[c]\"\n" +
             "  - \"high: v[r,c] = x[r,c] * h[c] + x[r,c+" + at(1) + "] * g[c]\"\n";
    case 1:
      return text + "  - \"gate: t[r,c] = tanh(x[r,c]) * x[r,c+" + at(2) + "]\"\n" +
             "  - \"sum: s[r] += t[r,c] * x[r,c+" + at(1) + "]\"\n";
    case 2:
      return text + "  - \"score: t[r,k] += x[r,c] * x[k,c+" + at(1) + "]\"\n" +
             "  - \"apply: y[r,c] += t[r,k] * x[k,c+" + at(2) + "]\"\n";
    default:  // slices that may meet, and one element
      return text + "  - \"pair: t[r,c] = x[r,c] - x[r,c+" + std::to_string(c > 2 ? c - 2 : 0) +
             "]\"\n" + "  - \"y: y[r,c] = t[r,c] + x[r,c+" + at(2) + "] * x[r," + at(1) + "]\"\n";
  }
}

/// Of a workload in f32: in a drawn type, f32 in half of them.
inline std::shared_ptr<const Workload> with_drawn_type(const Workload& w, std::mt19937_64& random) {
  const char* const types[] = {"f16", "f32", "bf16", "f32"};
  const bool f32 = to_yaml(w).find("dtype: f32") != std::string::npos;
  return with_type(w, f32 ? types[random() % 4] : "f32");
}

template <class Maker>
std::optional<RandomCase> stitched(Maker maker, std::mt19937_64& random) {
  const char* const types[] = {"f32", "f16", "f32", "f64"};
  auto w = workload_of(maker.workload(types[random() % 4]));
  return RandomCase{w, random_stitched::machine(), {.kernels = {maker.kernel()}}};
}

inline std::vector<Kind> kinds() {
  const auto trees = [](std::string name, RandomOptions options) -> Kind {
    return {std::move(name), [options](std::mt19937_64& random) {
              auto c = random_case(random, options);
              if (c) c->workload = with_drawn_type(*c->workload, random);
              return c;
            }};
  };
  const auto over = [](std::string name, auto workload) -> Kind {
    return {std::move(name), [workload](std::mt19937_64& random) -> std::optional<RandomCase> {
              auto c = random_case_of(random, workload(random), {.two_levels = false});
              c.workload = with_drawn_type(*c.workload, random);
              return c;
            }};
  };
  using namespace random_stitched;
  return {
      trees("products", {.two_levels = false, .units = false}),
      trees("two levels", {}),
      trees("warps, packs, syncs", {.two_levels = false}),
      trees("recomputed", {.two_levels = false, .recompute = true}),
      trees("phases", {.two_levels = false, .once = false, .units = false, .phases = true}),
      trees("drops", {.two_levels = false, .units = false, .phases = true, .drops = true}),
      trees("gathers", {.two_levels = false, .gathers = true}),
      trees("convolutions", {.two_levels = false, .planes = true}),
      over("masks", [](std::mt19937_64& r) { return *workload_of(masked(r)); }),
      over("integers", [](std::mt19937_64& r) { return *workload_of(integers(r)); }),
      over("slices", [](std::mt19937_64& r) { return *workload_of(slices(r)); }),
      over("attention",
           [](std::mt19937_64& r) {
             std::string sizes;
             for (const char* loop : {"m", "l", "k", "n"})
               sizes += std::string(loop) + "=" + number(r, 1, 11) + ",";
             return named_workload("attention:" + sizes + "online=" + number(r, 0, 1));
           }),
      over("graphs",
           [](std::mt19937_64& r) {
             return named_workload(kSmallGraphs[r() % kSmallGraphs.size()]);
           }),
      {"rows by lanes", [](std::mt19937_64& r) { return stitched(RowMaker(r, false), r); }},
      {"lookups by lanes", [](std::mt19937_64& r) { return stitched(RowMaker(r, true), r); }},
      {"slices by lanes",
       [](std::mt19937_64& r) { return stitched(RowMaker(r, false, false, true), r); }},
      {"windows by lanes", [](std::mt19937_64& r) { return stitched(WindowMaker(r), r); }},
  };
}

}  // namespace tilewright::testing::drawn_kinds
