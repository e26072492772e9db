// Does affine composition keep what a workload computes, take over what it should, and refuse what
// it would change?
#include <gtest/gtest.h>

#include <random>

#include "core/plan/file.h"
#include "core/workload/rewrite/rewrite.h"
#include "tests/support/random_gathers.h"
#include "tests/support/small_graphs.h"

namespace tilewright {
namespace {

using Lines = std::vector<std::string>;

const std::string kNames[] = {"compose", "compose-gathers", "compose-all"};

Workload make(const std::string& loops, const Lines& operators, const std::string& more = "") {
  std::string text = "name: test\ndtype: f32\nloops: {" + loops + "}\n" + more + "operators:\n";
  for (const std::string& o : operators) text += "  - '" + o + "'\n";
  return workload_from_yaml(text, "test");
}

Lines operators_of(const Workload& w) {
  Lines lines;
  for (std::size_t i = 0; i < w.operators().size(); ++i) lines.push_back(to_text(w, OpId(i)));
  return lines;
}

/// The rewritten operators, held against the evaluator.
Lines rewritten(const std::string& name, const Workload& w) {
  const Result<Workload> r = tilewright::apply(name, w);
  if (!r) return {r.reason()};
  for (std::uint64_t seed : {1, 2, 3}) {
    const RewriteCheck check = check_rewrite(w, *r, seed);
    EXPECT_LT(check.relative_error, 1e-12) << check.where;
    EXPECT_FALSE(check.where.empty());
  }
  // Nothing is left over, and it prints and parses back.
  EXPECT_EQ(workload_from_yaml(to_yaml(*r), "again"), *r);
  return operators_of(*r);
}
Lines composed(const Workload& w) { return rewritten("compose", w); }

void expect_refused(const std::string& name, const Workload& w, const std::string& part) {
  const Result<Workload> r = tilewright::apply(name, w);
  ASSERT_FALSE(r.ok()) << to_yaml(*r);
  EXPECT_NE(r.reason().find(part), std::string::npos) << r.reason();
}

TEST(Compose, SlicesAreComputedInEachReader) {
  const Workload w = named_workload("lstm-cell:batch=3,hidden=5");
  EXPECT_EQ(
      composed(w),
      (Lines{"input: i[b,j] = sigmoid(xw[b,j] + hw[b,j] + bias[j])",
             "forget: f[b,j] = sigmoid(xw[b,j+5] + hw[b,j+5] + bias[j+5])",
             "cell: z[b,j] = tanh(xw[b,j+10] + hw[b,j+10] + bias[j+10])",
             "out: o[b,j] = sigmoid(xw[b,j+15] + hw[b,j+15] + bias[j+15])",
             "kept: kept[b,j] = f[b,j] * c0[b,j]", "state: c1[b,j] = kept[b,j] + i[b,j] * z[b,j]",
             "bent: bent[b,j] = tanh(c1[b,j])", "hidden: h1[b,j] = o[b,j] * bent[b,j]"}));
  const Result<Workload> r = tilewright::apply("compose", w);
  ASSERT_TRUE(r.ok());
  EXPECT_FALSE(r->find_tensor("pre") || r->find_loop("g"));
  // Four slices are the whole.
  EXPECT_EQ(r->compulsory_bytes(), w.compulsory_bytes());
  EXPECT_EQ(r->compulsory_bytes(), Bytes(4 * (2 * 3 * 20 + 20 + 3 * 3 * 5)));
}

TEST(Compose, StridesTransposesAndOffsetsAreComposed) {
  // p at (2r+1, c) is x at (c, 2r+1) and b at 2r+1; reversed, x is read backwards.
  const std::string p = "p: p[i,j] = x[j,i] + 2 * b[i]";
  EXPECT_EQ(composed(make("i: 9, j: 4, r: 4, c: 4", {p, "y: y[r,c] = p[2*r+1,c] * x[r,c]"})),
            (Lines{"y: y[r,c] = (x[c,2*r+1] + 2 * b[2*r+1]) * x[r,c]"}));
  EXPECT_EQ(composed(make("i: 9, j: 4, r: 9, c: 4", {p, "y: y[r,c] = p[8-r,c] * 3"})),
            (Lines{"y: y[r,c] = (x[c,-r+8] + 2 * b[-r+8]) * 3"}));
  EXPECT_EQ(composed(make("i: 4, j: 4", {p, "y: y[i,j] = p[j,i]"})),
            (Lines{"y: y[i,j] = x[i,j] + 2 * b[j]"}));
  // Two loops at a time: coefficients add up, and cancel.
  EXPECT_EQ(composed(make("i: 9, j: 9, a: 3, c: 3",
                          {"p: p[i,j] = x[i-j+8] * k[i+j]", "y: y[a,c] = p[2*a+c,c+2*a]"})),
            (Lines{"y: y[a,c] = x[8] * k[4*a+2*c]"}));
  // A producer that broadcasts, and one that reads nothing.
  EXPECT_EQ(composed(make("i: 5, j: 4, t: 4",
                          {"p: p[i,j] = b[i] + 1", "y: y[i,t] = exp(p[i,t]) * z[t]"})),
            (Lines{"y: y[i,t] = exp(b[i] + 1) * z[t]"}));
}

TEST(Compose, IndicesAreComposed) {
  // At 2r+1 the producer's index is 2r+1.
  const std::string p = "p: p[i,j] = select(lt(i, j), x[i,j], i - 3 * j)";
  EXPECT_EQ(composed(make("i: 9, j: 9, r: 4, c: 9", {p, "y: y[r,c] = p[2*r+1,c]"})),
            (Lines{"y: y[r,c] = select(lt(2 * r + 1, c), x[2*r+1,c], 2 * r + 1 - 3 * c)"}));
  // Its reader reads indices of its own; of several loops, and backwards.
  EXPECT_EQ(composed(make("i: 9, j: 9, a: 3, c: 3",
                          {"p: p[i,j] = x[i,j] + i * j", "y: y[a,c] = p[2*a+c,-c+8] * c"})),
            (Lines{"y: y[a,c] = (x[2*a+c,-c+8] + (2 * a + c) * (-1 * c + 8)) * c"}));
  // Read at one place, an index is a number.
  EXPECT_EQ(composed(make("i: 9, t: 4", {"p: p[i] = x[i] + i", "y: y[t] = p[3] * t"})),
            (Lines{"y: y[t] = (x[3] + 3) * t"}));
  // An operator whose loop is left only as a value would have nothing that it indexes.
  expect_refused("compose-all", make("i: 9", {"p: p[i] = 2 * i", "y: y[] += p[i]"}),
                 "nothing that i indexes");
  // f32 would not hold it; its name would be a tensor's.
  expect_refused("compose",
                 make("i: 16000001, r: 2", {"p: p[i] = x[i] + i", "y: y[r] = p[16000000*r]"}),
                 "f32 does not hold");
  expect_refused("compose", make("i: 9, x: 4", {"p: p[i] = x[i] + i", "y: y[x] = p[2*x+1]"}),
                 "name is not its own");
}

TEST(Compose, PaddingOfTheProducerIsKept) {
  // What p reads outside of x is zero at the same points before and after.
  EXPECT_EQ(composed(make("i: 6, j: 4", {"p: p[i] = exp(x[i-1]) * w[i+2]", "y: y[j] = p[j+2]"},
                          "tensors: {x: [4], w: [7]}\n")),
            (Lines{"y: y[j] = exp(x[j+1]) * w[j+4]"}));
  // All of x that would be read lies outside.
  expect_refused("compose", make("i: 9, j: 3", {"p: p[i] = x[i-4] + 1", "y: y[j] = p[j]"}),
                 "wholly outside");
}

TEST(Compose, ZerosAroundTheValueStay) {
  // What y reads outside of p is zero, and exp(0) is not: the value is chosen by the index.
  const auto read = [](const std::string& p, const std::string& outside) {
    return composed(make("i: 6, j: 6", {"p: p[i] = " + p, "y: y[j] = " + outside + " + 1"}));
  };
  EXPECT_EQ(read("exp(x[i])", "p[j-1]"),
            (Lines{"y: y[j] = select(lt(j + -1, 0), 0, exp(x[j-1])) + 1"}));
  EXPECT_EQ(read("exp(x[i])", "p[2*j]"),
            (Lines{"y: y[j] = select(lt(2 * j, 6), exp(x[2*j]), 0) + 1"}));
  // x ends where p does, so that the value is zero by itself.
  EXPECT_EQ(read("-x[i] * 2", "p[j+1]"), (Lines{"y: y[j] = -x[j+1] * 2 + 1"}));
  EXPECT_EQ(read("x[i] + 2", "p[j+1]"),
            (Lines{"y: y[j] = select(lt(j + 1, 6), x[j+1] + 2, 0) + 1"}));
  // x goes on where p ends.
  EXPECT_EQ(
      composed(make("i: 6, j: 6", {"p: p[i] = -x[i+2]", "y: y[j] = p[j+1] + p[j-1]"},
                    "tensors: {x: [9]}\n")),
      (Lines{"y: y[j] = select(lt(j + 1, 6), -x[j+3], 0) + select(lt(j + -1, 0), 0, -x[j+1])"}));
  // Both factors end there; of one alone the other may be no number.
  EXPECT_EQ(read("x[i] * w[i]", "p[j+1]"), (Lines{"y: y[j] = x[j+1] * w[j+1] + 1"}));
  EXPECT_EQ(composed(make("i: 6, j: 6, r: 2", {"p: p[r,i] = x[i] * w[r]", "y: y[r,j] = p[r,j+1]"})),
            (Lines{"y: y[r,j] = select(lt(j + 1, 6), x[j+1] * w[r], 0)"}));
  // A rotary embedding: halves that are joined again.
  EXPECT_EQ(composed(make("d: 8, e: 4",
                          {"n: n[e] = -x[e+4]", "q: q[d] = n[d] + select(lt(d - 4, 0), 0, x[d-4])",
                           "y: y[d] = x[d] * c[d] + q[d] * s[d]"}))
                .size(),
            2u);
  // The place must be a value.
  expect_refused("compose", make("i: 6, x: 6", {"p: p[i] = exp(x[i])", "y: y[x] = p[x+1]"}),
                 "a place that is no value");
  // A sum counts zeros there.
  expect_refused("compose",
                 make("i: 6, j: 6, r: 3", {"p: p[i] = exp(x[i])", "y: y[j] += p[j+r-1]"}),
                 "sums what is outside");
}

TEST(Compose, KeepsWhatIsWantedElsewhere) {
  const std::string p = "p: p[i] = a[i] + b[i]", y = "y: y[j] = p[j+1] * 2";
  // An output; a reader at the very index.
  EXPECT_EQ(composed(make("i: 6, j: 5", {p, y}, "outputs: [p, y]\n")),
            (Lines{p, "y: y[j] = (a[j+1] + b[j+1]) * 2"}));
  EXPECT_EQ(composed(make("i: 6, j: 5", {p, y, "z: z[i] = abs(p[i])"})),
            (Lines{p, "y: y[j] = (a[j+1] + b[j+1]) * 2", "z: z[i] = abs(p[i])"}));
  // Both in one reader: only the other element is computed there.
  EXPECT_EQ(composed(make("i: 6", {p, "y: y[i] = p[i] * p[5-i]"})),
            (Lines{p, "y: y[i] = p[i] * (a[-i+5] + b[-i+5])"}));
  // compose-all takes that as well, for each use.
  EXPECT_EQ(rewritten("compose-all", make("i: 6", {p, "y: y[i] = p[i] * p[i] + p[5-i]"})),
            (Lines{"y: y[i] = (a[i] + b[i]) * (a[i] + b[i]) + (a[-i+5] + b[-i+5])"}));
  // Several outputs of one operator: it goes when nothing reads either.
  const std::string both = "both: s[i] = a[i] + b[i]; d[i] = a[i] - b[i]";
  EXPECT_EQ(composed(make("i: 6, j: 5", {both, "y: y[j] = s[j+1] * d[j]"})),
            (Lines{"y: y[j] = (a[j+1] + b[j+1]) * (a[j] - b[j])"}));
  EXPECT_EQ(composed(make("i: 6, j: 5", {both, "y: y[j] = s[j+1]"}, "outputs: [d, y]\n")),
            (Lines{"both: d[i] = a[i] - b[i]", "y: y[j] = a[j+1] + b[j+1]"}));
}

TEST(Compose, GoesOnThroughWhatItHasTakenOver) {
  EXPECT_EQ(composed(make("i: 8, j: 6, k: 3", {"p: p[i] = a[i] * 2", "q: q[j] = p[j+1] - p[j]",
                                               "y: y[k] = q[2*k+1] + 1"})),
            (Lines{"y: y[k] = a[2*k+2] * 2 - a[2*k+1] * 2 + 1"}));
  // q stays, and p with it is not read any more: all of its readers have taken it over.
  EXPECT_EQ(composed(make("i: 8, j: 6, k: 3",
                          {"p: p[i] = a[i] * 2", "q: q[j] = p[j+1]", "y: y[k] = q[2*k+1] + 1"},
                          "outputs: [q, y]\n")),
            (Lines{"q: q[j] = a[j+1] * 2", "y: y[k] = a[2*k+2] * 2 + 1"}));
}

TEST(Compose, ExpensiveOperatorsAreComputedNoMoreOften) {
  const auto halves = [](const std::string& call, const std::string& more) {
    Lines lines = {"p: p[i] = " + call, "y: y[j] = p[j] + 1", "z: z[j] = p[j+4]"};
    if (!more.empty()) lines.push_back(more);
    return make("i: 8, j: 4", lines);
  };
  EXPECT_EQ(composed(halves("tanh(a[i])", "")),
            (Lines{"y: y[j] = tanh(a[j]) + 1", "z: z[j] = tanh(a[j+4])"}));
  expect_refused("compose", halves("tanh(a[i])", "u: u[j] = p[j+2]"), "more often");
  EXPECT_EQ(rewritten("compose-all", halves("tanh(a[i])", "u: u[j] = p[j+2]")).size(), 3u);
  // Once in the reader's list of inputs, twice in its expression.
  expect_refused("compose", make("i: 4, j: 4", {"p: p[i] = exp(a[i])", "y: y[j] = p[j] * p[j]"}),
                 "more often");
  // It would be computed where it is still computed.
  expect_refused("compose",
                 make("i: 8, j: 4", {"p: p[i] = exp(a[i])", "y: y[j] = p[j]"}, "outputs: [p, y]\n"),
                 "more often");
  // A division by a constant is light, as multiplications are.
  EXPECT_EQ(composed(halves("a[i] / 3", "u: u[j] = p[j+2]")).size(), 3u);
}

TEST(Compose, ReductionsReadWhatIsComposed) {
  EXPECT_EQ(composed(make("r: 3, i: 8, c: 5",
                          {"p: p[r,i] = x[r,i] - m[r]", "s: s[r] += square(p[r,c+2])"})),
            (Lines{"s: s[r] += square(x[r,c+2] - m[r])"}));
  EXPECT_EQ(rewritten("compose-all",
                      make("r: 3, i: 8", {"p: p[r,i] = x[r,i] - m[r]", "s: s[r] max= p[r,i]"})),
            (Lines{"s: s[r] max= x[r,i] - m[r]"}));
  // A reduction is never computed in a reader.
  expect_refused("compose-all", make("r: 6, i: 8, q: 3", {"p: p[r] += x[r,i]", "y: y[q] = p[q+1]"}),
                 "no operator");
  // Sums over a loop that would index nothing would lose it.
  expect_refused("compose-all", make("r: 3, i: 8", {"p: p[r,i] = m[r] * 2", "s: s[r] += p[r,i]"}),
                 "indexes");
  // Kernels of matrix products are others.
  expect_refused(
      "compose",
      make("m: 4, k: 5, n: 3, i: 9", {"p: p[m,i] = relu(A[m,i])", "C[m,n] += p[m,k+2] * B[k,n]"}),
      "is a product");
  expect_refused("compose",
                 make("m: 4, k: 5, n: 3, a: 4, b: 3, i: 5",
                      {"p: p[a,b,i] = A[a,i] * B[i,b]", "C[m,n] += p[m,n,k]"}),
                 "would become a product");
  // But a sum of products over as many points as it has elements is a reduction like others.
  EXPECT_EQ(composed(make("m: 4, k: 5, i: 9",
                          {"p: p[m,i] = A[m,i] + 1", "s: s[m] += p[m,k+2] * B[m,k]"})),
            (Lines{"s: s[m] += (A[m,k+2] + 1) * B[m,k]"}));
}

TEST(Compose, GathersKeepTheirIndices) {
  const std::string look = "look: k[b,t,d] = table[ids[b,t],d]";
  const std::string more = "tensors: {table: [7, d], ids: [b, t]}\ndtypes: {ids: i32}\n";
  const std::string whole = "b: 2, t: 5, d: 3", loops = whole + ", u: 4";
  EXPECT_EQ(composed(make(loops, {look, "y: y[b,u,d] = k[b,u+1,d] * q[d]"}, more)),
            (Lines{"y: y[b,u,d] = table[ids[b,u+1],d] * q[d]"}));
  // Read where it is written, it is composed by name.
  const Workload same =
      make(whole, {look, "p: p[b,t,d] = k[b,t,d] * q[b,d]", "s: s[b,d] += k[b,t,d]"}, more);
  expect_refused("compose", same, "another index");
  EXPECT_EQ(rewritten("compose-gathers", same),
            (Lines{"p: p[b,t,d] = table[ids[b,t],d] * q[b,d]", "s: s[b,d] += table[ids[b,t],d]"}));
  expect_refused("compose-gathers", make("i: 4", {"p: p[i] = a[i]", "y: y[i] = p[i]"}), "looks up");
  // A reader of another gather may take over what is read beside it, and indices stay apart.
  EXPECT_EQ(composed(make(loops,
                          {look, "p: p[b,t] = 2 * w[b,t]",
                           "y: y[b,u,d] = p[b,u+1] * table[ids[b,u],d] + k[b,u+1,d]"},
                          more)),
            (Lines{"y: y[b,u,d] = 2 * w[b,u+1] * table[ids[b,u],d] + table[ids[b,u+1],d]"}));
  // A value may name no element, where it reads zero.
  expect_refused("compose-all",
                 make("v: 7, t: 5", {"p: p[v] = a[v] + 1", "y: y[t] = p[ids[t]]"},
                      "tensors: {ids: [t]}\ndtypes: {ids: i32}\n"),
                 "gathers by value");
}

TEST(Compose, RefusesIntegersAndRunningOperators) {
  expect_refused(
      "compose-all",
      make("i: 6, j: 5", {"p: p[i] = a[i] * 0.3", "y: y[j] = p[j+1] * 0.5"}, "dtypes: {p: i32}\n"),
      "no operator");
  expect_refused(
      "compose-all",
      make("i: 6, j: 5", {"p: p[i] = a[i] * 0.3", "y: y[j] = p[j+1] * 0.5"}, "dtypes: {y: i8}\n"),
      "writes integers");
  const Workload online = named_workload("attention:heads=1,m=5,l=11,k=4,n=3,scale=1,online=1");
  const Result<Workload> r = tilewright::apply("compose-all", online);
  if (!r) return;
  for (const Operator& op : r->operators()) {
    if (!op.running) continue;
    EXPECT_EQ(op.inputs.size(), online.op(*online.find_op(op.name)).inputs.size()) << op.name;
  }
}

TEST(Compose, ExpressionsDoNotGrowWithoutEnd) {
  // Each reads the one before twice: 2^20 reads of x.
  Lines lines = {"q0: q0[i] = x[i] + 1"};
  for (int k = 1; k < 20; ++k) {
    const std::string before = "q" + std::to_string(k - 1);
    lines.push_back("q" + std::to_string(k) + ": q" + std::to_string(k) + "[i] = " + before +
                    "[i] - 0.5 * " + before + "[63-i]");
  }
  const Lines after = rewritten("compose-all", make("i: 64", lines));
  EXPECT_GT(after.size(), 1u);
  EXPECT_LT(after.size(), lines.size());
  for (const std::string& line : after) EXPECT_LT(line.size(), 4000u);
}

// ---- Every rewrite on every graph ---------------------------------------------------------------

class Contract : public ::testing::TestWithParam<std::string> {};

/// Whether it applied.
bool holds(const std::string& name, const Workload& w) {
  const Result<Workload> r = tilewright::apply(name, w);
  if (!r) {
    EXPECT_FALSE(r.reason().empty());
    return false;
  }
  const RewriteCheck check = check_rewrite(w, *r, 5);
  EXPECT_LT(check.relative_error, 1e-12) << check.where << "\n" << to_yaml(w) << to_yaml(*r);
  EXPECT_NE(*r, w);
  EXPECT_EQ(r->outputs().size(), w.outputs().size());
  EXPECT_EQ(r->dtype(), w.dtype());
  EXPECT_EQ(workload_from_yaml(to_yaml(*r), "again"), *r);
  EXPECT_FALSE(name == "compose" && tilewright::apply(name, *r).ok())
      << "once is enough: " << to_yaml(*r);
  return true;
}

TEST_P(Contract, BuiltInGraphs) {
  int applied = 0;
  for (const std::string& graph : testing::kSmallGraphs) {
    SCOPED_TRACE(graph);
    applied += holds(GetParam(), named_workload(graph)) ? 1 : 0;
  }
  EXPECT_GT(applied, 0);
}

/// Operators that read slices, every other element, and transposes of what was made before, each
/// over loops of its own; sums now and then.
std::string drawn_slices(std::mt19937_64& random) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  struct Made {
    std::string name;
    int rows, cols;
  };
  std::vector<Made> made = {{"x0", pick(6, 9), pick(6, 9)}, {"x1", pick(6, 9), pick(6, 9)}};
  std::string loops = "loops: {", operators = "operators:\n";
  std::string tensors = "tensors: {x0: [" + std::to_string(made[0].rows) + ", " +
                        std::to_string(made[0].cols) + "], x1: [" + std::to_string(made[1].rows) +
                        ", " + std::to_string(made[1].cols) + "]}\n";
  const int n = pick(3, 7);
  for (int k = 0; k < n; ++k) {
    const std::string r = "r" + std::to_string(k), c = "c" + std::to_string(k);
    const std::size_t first = made.size() > 3 ? made.size() - 3 : 0;
    const Made a = k == 0 ? made[0]
                          : made[static_cast<std::size_t>(
                                pick(static_cast<int>(first), static_cast<int>(made.size()) - 1))];
    const Made b = k == 0
                       ? made[1]
                       : made[static_cast<std::size_t>(pick(0, static_cast<int>(made.size()) - 1))];
    const bool turned = pick(0, 3) == 0, twice = pick(0, 4) == 0 && a.cols > 3;
    const int rows = std::min(turned ? a.cols : a.rows, b.rows);
    const int most = turned ? a.rows : twice ? (a.cols + 1) / 2 : a.cols;
    const int cols = std::max(1, std::min(most, b.cols) - pick(0, 1));
    const int off = !turned && !twice ? a.cols - cols : 0;
    const std::string at = turned ? c + "," + r
                           : twice
                               ? r + ",2*" + c
                               : r + "," + c + (off > 0 ? "+" + std::to_string(pick(0, off)) : "");
    const char* calls[] = {"abs(", "tanh(", "0.5 * (", "relu("};
    const std::string t = "t" + std::to_string(k);
    std::string value = std::string(calls[pick(0, 3)]) + a.name + "[" + at + "])";
    const char* signs[] = {" + ", " * ", " - "};
    // Of the other operand the same element, or the last rows backwards.
    value += signs[pick(0, 2)] + b.name + "[" +
             (pick(0, 2) == 0 ? std::to_string(rows - 1) + "-" + r : r) + "," + c + "]";
    loops += (k > 0 ? ", " : "") + r + ": " + std::to_string(rows) + ", " + c + ": " +
             std::to_string(cols);
    if (pick(0, 5) == 0) {
      operators += "  - 'o" + t + ": " + t + "[" + r + "] += " + value + "'\n";
      continue;  // a vector: an output
    }
    operators += "  - 'o" + t + ": " + t + "[" + r + "," + c + "] = " + value + "'\n";
    made.push_back({t, rows, cols});
  }
  return "name: drawn\ndtype: f64\n" + loops + "}\n" + tensors + operators;
}

TEST_P(Contract, DrawnSlices) {
  if (GetParam() == "compose-gathers") return;
  int applied = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    std::mt19937_64 random(seed);
    const std::string text = drawn_slices(random);
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + text);
    applied += holds(GetParam(), workload_from_yaml(text, "drawn")) ? 1 : 0;
  }
  EXPECT_GT(applied, 60);
}

TEST_P(Contract, DrawnGathersAndGraphs) {
  int applied = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    std::mt19937_64 random(seed);
    testing::RandomOptions options;
    options.gathers = true;
    const std::string text = testing::random_trees::GatherMaker(random, options).text();
    SCOPED_TRACE("seed " + std::to_string(seed));
    applied += holds(GetParam(), workload_from_yaml(text, "drawn")) ? 1 : 0;
    applied += holds(GetParam(), named_workload("random-graph:vertices=12,rows=5,cols=6,seed=" +
                                                std::to_string(seed)))
                   ? 1
                   : 0;
  }
  // Of these only padding is read at another index.
  EXPECT_GT(applied, GetParam() == "compose" ? -1 : 5);
}

INSTANTIATE_TEST_SUITE_P(Compositions, Contract, ::testing::ValuesIn(kNames));

}  // namespace
}  // namespace tilewright
