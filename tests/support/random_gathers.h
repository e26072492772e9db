// Seeded random workloads, as YAML text, that read tables by other tensors' values.
#pragma once

#include <random>
#include <string>

#include "tests/support/random_workloads.h"

namespace tilewright::testing::random_trees {

class GatherMaker : private Dice {
 public:
  GatherMaker(std::mt19937_64& random, const RandomOptions& options) : Dice(random), o_(options) {}

  std::string text() {
    switch (pick(0, 7)) {
      case 0:
        return lookup();
      case 1:
        return pairs();
      case 2:
        return bags();
      case 3:
        return edges();
      case 4:
        return both_ways();
      case 5:
        return product();
      case 6:
        return beyond();
      default:
        return made_indices();
    }
  }

 private:
  std::string n(std::int64_t least = 1) {
    return std::to_string(pick<std::int64_t>(least, std::max(least, o_.max_extent)));
  }
  std::string type() { return chance(0.5) ? "i32" : "i8"; }
  static std::string file(const std::string& loops, const std::string& tensors,
                          const std::string& types, const std::string& operators) {
    return "name: random-gather\nloops: {" + loops + "}\ntensors: {" + tensors + "}\ndtypes: {" +
           types + "}\noperators:\n" + operators;
  }

  /// An embedding, what is made of it and a sum over it; sometimes of a table that is made first.
  std::string lookup() {
    std::string text, table = "T", loops = "b: " + n() + ", d: " + n();
    const std::string rows = n();
    std::string tensors = "T: [" + rows + ", d], ids: [b]";
    if (chance(0.3)) {
      loops += ", r: " + rows;
      text = "  - \"make: M[r,d] = T[r,d] + 1\"\n";
      table = "M";
    }
    text +=
        "  - \"look: k[b,d] = " + table + "[ids[b],d]" + (chance(0.5) ? " * q[d]" : "") + "\"\n";
    if (chance(0.7)) text += "  - \"act: a[b,d] = relu(k[b,d]) + k[b,d]\"\n";
    if (chance(0.5)) text += "  - \"sum: s[b] += k[b,d]\"\n";
    return file(loops, tensors, "ids: " + type(), text);
  }

  /// Both dimensions by values.
  std::string pairs() {
    return file("b: " + n() + ", t: " + n(), "T: [" + n() + ", " + n() + "], i: [b, t], j: [b]",
                "i: " + type() + ", j: " + type(),
                "  - \"look: z[b,t] = T[i[b,t],j[b]] + c[t]\"\n  - \"sum: s[b] += z[b,t]\"\n");
  }

  /// A sum over looked-up rows, as a recommendation model takes it of a user's items.
  std::string bags() {
    return file("b: " + n() + ", t: " + n() + ", d: " + n(), "T: [" + n() + ", d], ids: [b, t]",
                "ids: " + type(),
                "  - \"bag: y[b,d] += w[b,t] * T[ids[b,t],d]\"\n"
                "  - \"act: a[b,d] = sigmoid(y[b,d])\"\n");
  }

  /// Indices beyond the edges of their tensor read as zero; the row is a stride or an offset away.
  std::string edges() {
    const std::string b = n(), s = std::to_string(pick(1, 3));
    const std::int64_t d = pick<std::int64_t>(1, o_.max_extent);
    const bool strided = chance(0.5);
    return file(
        "b: " + b + ", s: " + s + ", d: " + std::to_string(d),
        "T: [" + n() + ", " + std::to_string(strided ? 2 * d : d + 1) + "], ids: [" + b + "]",
        "ids: " + type(),
        "  - \"look: k[b,s,d] = T[ids[b + s - 1]," + std::string(strided ? "2*d" : "d + 1") +
            "]\"\n  - \"sum: y[b,d] += k[b,s,d]\"\n");
  }

  /// The dimensions that are no values leave the table, too: at either end, backwards, by several
  /// loops at once, or by one loop twice.
  std::string beyond() {
    const std::int64_t d = pick<std::int64_t>(1, o_.max_extent), s = pick<std::int64_t>(1, 3);
    const auto size = [&] { return std::to_string(pick<std::int64_t>(1, d + 1)); };
    const std::string loops =
        "b: " + n() + ", s: " + std::to_string(s) + ", d: " + std::to_string(d);
    const std::string ends = one_of<std::string>(
        {"d - 1", "d + s", "d - s", "-d + " + size(), "2*d", "2*d - 1", "3*s + d - 2"});
    const bool twice = chance(0.3);
    std::string shape = n() + ", " + size(), index = "ids[b], " + ends;
    if (twice) shape += ", " + size(), index += chance(0.5) ? ", d" : ", s";
    return file(loops, "T: [" + shape + "], ids: [b]", "ids: " + type(),
                "  - \"look: k[b,s,d] = T[" + index + "] + w[d] * u[s]\"\n" +
                    (chance(0.5) ? "  - \"act: a[b,s,d] = relu(k[b,s,d]) + k[b,s,d]\"\n"
                                 : "  - \"sum: y[b,d] += k[b,s,d]\"\n"));
  }

  /// One table, by values and by loops.
  std::string both_ways() {
    const std::string b = n();
    return file("b: " + b + ", d: " + n(), "T: [" + b + ", d], ids: [b]", "ids: " + type(),
                "  - \"look: k[b,d] = T[ids[b],d] - T[b,d]\"\n"
                "  - \"act: a[b,d] = k[b,d] * T[b,d]\"\n");
  }

  std::string product() {
    return file(
        "b: " + n() + ", d: " + n() + ", e: " + n(), "T: [" + n() + ", d], ids: [b]",
        "ids: " + type(),
        "  - \"gemm: y[b,e] += T[ids[b],d] * W[d,e]\"\n  - \"act: a[b,e] = relu(y[b,e])\"\n");
  }

  /// Made of -1, 0 and 1: rows that there are.
  std::string made_indices() {
    return file("b: " + n() + ", d: " + n(), "T: [" + n(3) + ", d], ids: [b], i: [b]",
                "ids: i32, i: i32",
                "  - \"next: i[b] = ids[b] + 1\"\n  - \"look: k[b,d] = T[i[b],d]\"\n"
                "  - \"sum: s[b] += k[b,d]\"\n");
  }

  const RandomOptions& o_;
};

}  // namespace tilewright::testing::random_trees
