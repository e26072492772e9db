// Index notation, YAML and JSON: hand cases, round trips, bad input, mutations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <random>

#include "core/plan/file.h"
#include "core/workload/cut.h"
#include "core/workload/reference/evaluate.h"

namespace tilewright {
namespace {

/// True where the letter stands alone.
bool mentions(const std::string& text, char letter) {
  const auto part_of_name = [&](std::size_t i) {
    return i < text.size() && (std::isalnum(static_cast<unsigned char>(text[i])) || text[i] == '_');
  };
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] == letter && !part_of_name(i + 1) && (i == 0 || !part_of_name(i - 1))) return true;
  return false;
}

/// A workload of one operator over those of the loops m=5, n=6, k=7 that it mentions.
Workload one(const std::string& notation) {
  std::string loops;
  for (const char* loop : {"m: 5", "n: 6", "k: 7"})
    if (mentions(notation, loop[0])) loops += (loops.empty() ? "" : ", ") + std::string(loop);
  return workload_from_yaml("loops: {" + loops + "}\noperators:\n  - \"" + notation + "\"\n", "t");
}

std::string error_of(const std::string& yaml) {
  try {
    workload_from_yaml(yaml, "f.yaml");
  } catch (const InputError& e) {
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    return e.what();
  }
  return "accepted";
}

TEST(Notation, ReadsAGemm) {
  const Workload w = one("gemm1: C[m,n] += A[m,k] * B[k,n]");
  const Operator& op = w.op(OpId(0));
  EXPECT_EQ(op.name, "gemm1");
  EXPECT_EQ(op.outputs[0].combine, Combine::sum);
  EXPECT_EQ(op.inputs.size(), 2u);
  EXPECT_EQ(w.tensor(*w.find_tensor("B")).shape, (std::vector<std::int64_t>{7, 6}));
  EXPECT_EQ(to_text(w, OpId(0)), "gemm1: C[m,n] += A[m,k] * B[k,n]");
}

TEST(Notation, NameDefaultsToTheTarget) {
  EXPECT_EQ(one("C[m,n] += A[m,k] * B[k,n]").op(OpId(0)).name, "C");
}

TEST(Notation, GathersByAValue) {
  const std::string head =
      "loops: {b: 4, d: 3}\ntensors: {T: [9, d], ids: [b]}\ndtypes: {ids: i32}\noperators:\n";
  const Workload w = workload_from_yaml(head + "  - y[b,d] = T[ids[b],d] * T[ids[b],0]\n", "t");
  const Operator& op = w.op(OpId(0));
  EXPECT_TRUE(w.gathers(OpId(0)));
  ASSERT_EQ(op.inputs.size(), 3u);  // ids once, before what it indexes
  EXPECT_EQ(w.tensor(op.inputs[0].tensor).name, "ids");
  EXPECT_EQ(op.inputs[1].index[0].gathered, 0);
  EXPECT_EQ(op.inputs[2].index[0].gathered, 0);
  EXPECT_EQ(to_text(w, OpId(0)), "y: y[b,d] = T[ids[b],d] * T[ids[b],0]");
  EXPECT_EQ(workload_from_yaml(to_yaml(w), "t"), w);
  const std::vector<Interval> one = {{1, 2}, {0, 3}};
  EXPECT_EQ(footprint(w, op, op.inputs[1], one), (Box{{0, 9}, {0, 3}}));
  EXPECT_EQ(w.compulsory_bytes(), Bytes(4 * (4 + 3 + 12)));  // ids, one row at least, y
}

TEST(Notation, GathersThatAreRefused) {
  const auto error = [](const std::string& dtypes, const std::string& op) {
    return error_of("loops: {b: 4, d: 3}\ntensors: {T: [9, d], ids: [b]}\n" + dtypes +
                    "operators:\n  - " + op + "\n");
  };
  const std::string whole = "dtypes: {ids: i32}\n";
  EXPECT_NE(error("", "y[b,d] = T[ids[b],d]").find("i32 or i8"), std::string::npos);
  EXPECT_NE(error(whole, "y[b,d] = T[ids[ids[b]],d]").find("itself gathered"), std::string::npos);
  EXPECT_NE(error(whole, "y[b,d] = U[ids[b],d] + T[0,d]").find("no declared shape"),
            std::string::npos);
  EXPECT_NE(error(whole, "T[ids[b],d] = x[b,d]").find("written at an index that is a value"),
            std::string::npos);
}

TEST(Notation, PrintsInOneForm) {
  const struct {
    const char* given;
    const char* printed;
  } cases[] = {
      {"C[m] = A[m]-(A[m]-A[m])", "C: C[m] = A[m] - (A[m] - A[m])"},
      {"C[m] = (A[m]-A[m])-A[m]", "C: C[m] = A[m] - A[m] - A[m]"},
      {"C[m] = A[m]/(A[m]*A[m])", "C: C[m] = A[m] / (A[m] * A[m])"},
      {"C[m] = (A[m]+1)*2", "C: C[m] = (A[m] + 1) * 2"},
      {"C[m] = -(A[m]+1)*-.5", "C: C[m] = -(A[m] + 1) * -0.5"},
      {"C[m] = --A[m] - -1e-5", "C: C[m] = --A[m] - -1e-05"},
      {"C[m] = neg(3) + A[m]", "C: C[m] = neg(3) + A[m]"},
      {"C[m] = add(A[m], mul(2, A[m]))", "C: C[m] = A[m] + 2 * A[m]"},
      {"C[m] = max(A[m], -inf)", "C: C[m] = max(A[m], -inf)"},
      {"C[m] = -inf[m] + inf", "C: C[m] = -inf[m] + inf"},
      {"C[m] = select(lt(A[m],0), exp(A[m]) - 1, A[m])",
       "C: C[m] = select(lt(A[m], 0), exp(A[m]) - 1, A[m])"},
      {"C[m] max= A[m,n]", "C: C[m] max= A[m,n]"},
      {"C[m] min= A[m,n]", "C: C[m] min= A[m,n]"},
      {"C[m] *= A[m,n]", "C: C[m] *= A[m,n]"},
      {"s: x[] += A[m]", "s: x[] += A[m]"},
      {"C[m] += I[2*m + k - 1]", "C: C[m] += I[2*m+k-1]"},
      {"C[m] += I[k-1+m*2]", "C: C[m] += I[2*m+k-1]"},
      {"C[m] = I[6-m] + I[0]", "C: C[m] = I[-m+6] + I[0]"},
      {"C[m] = I[-m+8]", "C: C[m] = I[-m+8]"},
      {"S[m] += X[m,n]; Q[m] += X[m,n]*X[m,n]", "S: S[m] += X[m,n]; Q[m] += X[m,n] * X[m,n]"},
      {"Z[m] += P[m,n] rescale(exp(d[m])) running", "Z: Z[m] += P[m,n] rescale(exp(d[m])) running"},
      {"R[m] max= S[m,n]; d[m] = before(R) - after(R) running",
       "R: R[m] max= S[m,n]; d[m] = before(R) - after(R) running"},
  };
  for (const auto& c : cases) {
    const Workload w = one(c.given);
    EXPECT_EQ(to_text(w, OpId(0)), c.printed);
    EXPECT_EQ(one(c.printed), w) << c.printed;
  }
}

TEST(Notation, EqualAccessesAreOneInput) {
  EXPECT_EQ(one("C[m] = A[m] * A[m]").op(OpId(0)).inputs.size(), 1u);
  EXPECT_EQ(one("C[m] += A[m+k] * A[k+m]").op(OpId(0)).inputs.size(), 1u);
  EXPECT_EQ(one("C[m] += A[m,k] * A[m,0]").op(OpId(0)).inputs.size(), 2u);
}

TEST(Notation, SeveralOutputsShareTheirLoops) {
  const Workload w = one("stat: S[m] += X[m,n]; Q[m] += X[m,n] * X[m,n]");
  const Operator& op = w.op(OpId(0));
  EXPECT_EQ(op.outputs.size(), 2u);
  EXPECT_EQ(op.inputs.size(), 1u);
  EXPECT_EQ(w.outputs().size(), 2u);
  EXPECT_EQ(op.loops, (std::vector<LoopId>{*w.find_loop("m"), *w.find_loop("n")}));
}

TEST(Notation, InfersShapes) {
  const Workload w = workload_from_yaml(R"(
loops: {h: 8, y: 8, r: 3}
operators:
  - M[y] += I[2*y+r-1] * W[r]
  - O[h] += M[h+r-1]
)",
                                        "t");
  // An input holds all its reads; of what is written, reads beyond the writer are padding.
  EXPECT_EQ(w.tensor(*w.find_tensor("I")).shape, (std::vector<std::int64_t>{16}));
  EXPECT_EQ(w.tensor(*w.find_tensor("M")).shape, (std::vector<std::int64_t>{8}));
}

TEST(Notation, NamesPlaceFoundAndExpected) {
  const struct {
    const char* notation;
    const char* expect;
  } cases[] = {
      {"", "column 1: end of text was found; accepted: a tensor to write"},
      {"C", "column 2: end of text was found; accepted: '['"},
      {"C[m", "column 4: end of text was found; accepted: ']'"},
      {"C[m] A[m]", "column 6: 'A' was found; accepted: =, +=, *=, max= or min="},
      {"C[m] =", "column 7: end of text was found"},
      {"C[m] = A[m] A[m]", "column 13: 'A' was found; accepted: an operator, ; or the end"},
      {"C[m] = A[m] +", "column 14: end of text was found"},
      {"C[m] = A",
       "column 8: A is not a loop whose index could be read here; accepted: A[...], A(...) or "
       "one of the loops m, n"},
      {"C[m] = A[m] * q", "column 15: q is not a loop whose index could be read here"},
      {"C[m] = A[m] * n", "n is a loop whose index is read and that indexes none of its tensors"},
      {"C[m] = m[n] + m", "m is a loop whose index is read and is also a tensor"},
      {"C[m] max= A[m]; d[m] = after(C) + m running", "d looks back at an output and reads a loop"},
      {"C[m] += A[m,n] rescale(n) running", "C is rescaled by what n indexes"},
      {"C[m] = (A[m]", "accepted: ')'"},
      {"C[m] = 1.2.3", "column 8: 1.2.3 is not a number in range"},
      {"C[m] = 1e999", "column 8: 1e999 is not a number in range"},
      {"C[m] = A[1.5*m]", "column 10: 1.5 is not an integer within 64 bits"},
      {"C[m] = A[99999999999999999999]", "is not an integer within 64 bits"},
      {"C[m] = A[m*m]", "column 12: 'm' was found; accepted: an integer"},
      {"C[m] = A[q]", "column 10: loop: 'q' is unknown; accepted: m, n"},
      {"C[m] = A[9223372036854775807 + 9223372036854775807]", "takes an index past 64 bits"},
      {"C[m] = A[m + 9223372036854775807]", "has an index past 64 bits"},
      {"C[m] = exq(A[m])", "function: 'exq' is unknown, did you mean 'exp'?"},
      {"C[m] = exp(A[m], A[m])", "exp is called with 2 arguments; accepted: 1"},
      {"C[m] = exp()", "exp is called with 0 arguments"},
      {"C[m] = A[m] * A[m,n]", "A is indexed by 2 indices but has 1 dimensions"},
      {"C[m] = A[m]; D[m,n] = A[m] + B[n]", "D is indexed by other loops than C"},
      {"C[m] += A[m,m,m,m,m,m,m,m,m]", "A has 9 dimensions; accepted: at most 8"},
      {"C[m] = A[m] $ A[m]", "column 13: '$' was found"},
      {"C[m] = A[m];", "accepted: a tensor to write"},
      {"C[m] = A[m] rescale(2)", "C is rescaled but the operator is not running"},
      {"C[m] max= before(D) running", "output: 'D' is unknown; accepted: C"},
      {"C[m] max= before(C) running", "C looks back at an output but is not an assignment"},
      {"C[m] max= A[m,n]; d[m] = after(C) + A[m,n] running", "d looks back at an output and reads"},
      {"C[m] max= A[m,n]; d[m] = after(C)", "the operator is not running"},
      {"C[m] max= A[m,n]; d[m] = after(d) running", "looks back at d, which is not accumulated"},
      {"C[m] += A[m,n] rescale(A[m,n]) running", "C is rescaled by what n indexes"},
      {"C[m] max= A[m,n]; d[m] += A[m,n] rescale(after(C)) running", "by the operator's own"},
      {"C[m] = A[m,n]", "n is reduced over by an assignment to C"},
      {"C[m+1] = A[m]", "C is written at an index that is not a plain loop"},
      {"C[m] = C[m] + A[m]", "operators: C form a cycle"},
  };
  for (const auto& c : cases) {
    const std::string message = error_of("loops: {m: 5, n: 6}\noperators:\n  - \"" +
                                         std::string(c.notation) + "\"\n  - \"u[n] += v[n,m]\"");
    EXPECT_TRUE(message.starts_with("f.yaml:3: operators") ||
                message.starts_with("f.yaml: operators: C form"))
        << message;
    EXPECT_NE(message.find(c.expect), std::string::npos) << c.notation << "\n  " << message;
  }
}

// ---- Loops' indices as values
// --------------------------------------------------------------------

TEST(Notation, ALoopsNameIsItsIndex) {
  const Workload w = one("E[m,n] = select(lt(m, n), -inf, S[m,n] + 2 * (n - m))");
  const Expr& less = w.op(OpId(0)).outputs[0].value.args[0];
  ASSERT_EQ(less.function, "lt");
  EXPECT_EQ(less.args[0].kind, Expr::Kind::index);
  EXPECT_EQ(less.args[0].loop, *w.find_loop("m"));
  EXPECT_EQ(less.args[1].loop, *w.find_loop("n"));
  EXPECT_EQ(w.op(OpId(0)).inputs.size(), 1u);
  const struct {
    const char* loops;
    const char* notation;
  } cases[] = {
      {"m: 5, n: 6", "E: E[m,n] = select(lt(m, n), -inf, S[m,n] + 2 * (n - m))"},
      {"m: 5", "C: C[m] = m * m - 3"},
      {"m: 5, n: 6", "C: C[m] += select(lt(n, m), A[m,n], -n / 4)"},
      // A word is a loop's index wherever it is not called: these are functions, too.
      {"exp: 5, max: 6, running: 3", "C: C[exp,max,running] = exp(exp) + A[exp] * max + running"},
  };
  for (const auto& [loops, notation] : cases) {
    const Workload made = workload_from_yaml(
        "loops: {" + std::string(loops) + "}\noperators:\n  - \"" + notation + "\"", "f");
    EXPECT_EQ(to_text(made, OpId(0)), notation);
    EXPECT_EQ(workload_from_yaml(to_yaml(made), "again"), made);
    EXPECT_EQ(workload_from_json(nlohmann::json::parse(to_json(made).dump()), "json"), made);
  }
}

TEST(Notation, IndicesThatAreNoValuesAreNamed) {
  const struct {
    const char* text;
    const char* expect;
  } cases[] = {
      {"loops: {m: 16777217}\noperators: [\"C[m] = m\"]",
       "m is a loop whose index is read and has more than 16777216 iterations"},
      {"loops: {m: 5}\noperators: [\"C[m] = m\", \"D[m] = C[m] + m[m]\"]",
       "m is a loop whose index is read and is also a tensor"},
      {"loops: {m: 5}\noperators: [\"C[m] = M + A[m]\", \"M[m] = A[m]\"]",
       "M is not a loop whose index could be read here"},
  };
  for (const auto& c : cases) {
    const std::string message = error_of(c.text);
    EXPECT_NE(message.find(c.expect), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
  EXPECT_NO_THROW(workload_from_yaml("loops: {m: 16777216}\noperators: [\"C[m] = m\"]", "f"));
  // A loop called inf cannot be read: the word is a number. Made otherwise, it would not read back.
  WorkloadSpec spec =
      workload_from_yaml("loops: {m: 5}\noperators: [\"C[m] = A[m] + m\"]", "f").spec();
  spec.loops[0].name = "inf";
  EXPECT_THROW(Workload::create(spec), InputError);
  spec.loops[0].name = "i";
  EXPECT_NO_THROW(Workload::create(spec));
  spec.operators[0].outputs[0].value.args[1].loop = LoopId(7);
  EXPECT_THROW(Workload::create(spec), InputError);
}

TEST(Notation, DepthAndLengthAreBounded) {
  const auto nested = [](int n) {
    return "C[m] = " + std::string(static_cast<std::size_t>(n), '(') + "A[m]" +
           std::string(static_cast<std::size_t>(n), ')');
  };
  EXPECT_NO_THROW(one(nested(150)));
  EXPECT_THROW(one(nested(10000)), InputError);
  EXPECT_THROW(one("C[m] = " + std::string(10000, '-') + "A[m]"), InputError);
  std::string sum = "C[m] = A[m]";
  for (int i = 0; i < 3000; ++i) sum += " + A[m]";
  EXPECT_THROW(one(sum), InputError);
  EXPECT_THROW(one("C[m] = A[m]" + std::string(100000, ' ')), InputError);
}

TEST(Yaml, ReadsTheDocumentedFile) {
  const Workload w = workload_from_yaml(R"(# a workload file
name: my-chain
dtype: f32
loops: {m: 512, n: 64, k: 64, l: 512}
tensors: {A: [m, k], B: [k, l], C: [m, l], D: [l, n], E: [m, n]}
dtypes: {A: f16}
operators:
  - C[m,l] += A[m,k] * B[k,l]
  - C1[m,l] = relu(C[m,l])
  - gemm2: E[m,n] += C1[m,l] * D[l,n]
outputs: [E]
)",
                                        "my.yaml");
  EXPECT_EQ(w.name(), "my-chain");
  EXPECT_EQ(w.tensor(*w.find_tensor("A")).dtype, DType::f16);
  EXPECT_EQ(w.tensor(*w.find_tensor("C1")).shape, (std::vector<std::int64_t>{512, 512}));
  EXPECT_EQ(w.op(OpId(2)).name, "gemm2");
  EXPECT_EQ(workload_from_yaml(to_yaml(w), "again"), w);
  EXPECT_EQ(workload_from_json(nlohmann::json::parse(to_json(w).dump()), "again"), w);
}

/// From a least value on, as a root or a logarithm needs them; written and read back.
TEST(Yaml, RangesMayHaveALeastValue) {
  const Workload w = workload_from_yaml(
      "loops: {i: 500}\nranges: {x: 0.25 to 2, z: -3 to -1}\n"
      "operators: ['y[i] = sqrt(x[i]) * log(-z[i])']\n",
      "f.yaml");
  const TensorValues in = random_inputs(w, 1);
  const auto& x = in[w.find_tensor("x")->index()];
  const auto& z = in[w.find_tensor("z")->index()];
  EXPECT_GE(*std::ranges::min_element(x), 0.25);
  EXPECT_LE(*std::ranges::min_element(x), 0.3);
  EXPECT_GE(*std::ranges::max_element(x), 1.95);
  EXPECT_LE(*std::ranges::max_element(x), 2);
  EXPECT_LE(*std::ranges::max_element(z), -1);
  EXPECT_GE(*std::ranges::min_element(z), -3);
  EXPECT_EQ(workload_from_yaml(to_yaml(w), "again"), w);
  EXPECT_EQ(workload_from_json(nlohmann::json::parse(to_json(w).dump()), "again"), w);
}

TEST(Yaml, DrawnValuesStayTheSame) {
  const std::string text =
      "loops: {m: 3, n: 50}\nranges: {W: 2 to 3}\noperators:\n  - twice: U[n] = 2 * W[n]\n"
      "  - C[m,n] = A[m,n] * U[n]\n  - D[m,n] = A[m,n] * C[m,n]\n";
  const Workload each = workload_from_yaml(text, "t");
  const Workload same = workload_from_yaml(text + "values: {W: drawn}\n", "t");
  EXPECT_EQ(constant_operators(each), (std::vector<bool>{false, false, false}));
  EXPECT_EQ(constant_operators(same), (std::vector<bool>{true, false, false}));
  EXPECT_TRUE(same.tensor(*same.find_tensor("W")).drawn());
  EXPECT_EQ(random_inputs(same, 7), random_inputs(each, 7));
  EXPECT_NE(random_inputs(same, 7), random_inputs(same, 8));
  EXPECT_EQ(workload_from_yaml(to_yaml(same), "again"), same);
  EXPECT_EQ(workload_from_json(to_json(same), "again"), same);
  EXPECT_NE(same, each);
}

TEST(Yaml, DimensionsMayBeAffine) {
  const Workload w = workload_from_yaml(R"(
loops: {h: 4, r: 3, s: 2}
tensors: {I: [2*h + r, 7], W: [r]}
operators: ["O[h] += I[2*h+r, s] * W[r]"]
)",
                                        "t");
  EXPECT_EQ(w.tensor(*w.find_tensor("I")).shape, (std::vector<std::int64_t>{9, 7}));
}

TEST(Yaml, NamesThatYamlReadsOtherwise) {
  const Workload w = workload_from_yaml(R"(
loops: {"null": 4, "no": 3, y: 2}
operators: [{"NULL": "yes[null] += on[null,no,y]"}]
)",
                                        "t");
  EXPECT_EQ(workload_from_yaml(to_yaml(w), "again"), w);
}

TEST(Yaml, BadInput) {
  const std::string good = "loops: {m: 4}\noperators: ['C[m] = A[m]']\n";
  EXPECT_EQ(error_of(good), "accepted");
  const struct {
    std::string yaml;
    const char* expect;
  } cases[] = {
      {"", "f.yaml"},
      {"[]", "f.yaml:1: workload: is a list; accepted: a map with keys name"},
      {"just text", "f.yaml:1: workload: is a scalar"},
      {"lops: {m: 4}", "f.yaml:1: key: 'lops' is unknown, did you mean 'loops'?"},
      {good + "colour: red", "f.yaml:3: key: 'colour' is unknown; accepted: name"},
      {good + "loops: {n: 4}", "f.yaml:3: loops: is given twice"},
      {"operators: ['C[m] = A[m]']", "f.yaml: loops: is missing"},
      {"loops: {m: 4}", "f.yaml: operators: is missing"},
      {"loops: {m: 4}\noperators: []", "f.yaml: operators: are missing"},
      {"loops: [m]\noperators: []", "f.yaml:1: loops: is a list; accepted: a map"},
      {"loops: {m: [4]}\noperators: []", "f.yaml:1: loops.m: is a list; accepted: an extent"},
      {"loops:\n  m: 4\n  m: 5\noperators: ['C[m] = A[m]']", "f.yaml:3: loops.m: is given twice"},
      {"loops: {m: 0}\noperators: ['C[m] = A[m]']",
       "f.yaml:1: loops.m: 0 is not a positive integer"},
      {"loops: {m: -4}\noperators: ['C[m] = A[m]']", "loops.m: -4 is not a positive integer"},
      {"loops: {m: 4.5}\noperators: ['C[m] = A[m]']", "loops.m: 4.5 is not a positive integer"},
      {"loops: {m: 0x10}\noperators: ['C[m] = A[m]']", "loops.m: 0x10 is not a positive integer"},
      {"loops: {m: 9223372036854775808}\noperators: ['C[m] = A[m]']",
       "loops.m: 9223372036854775808 is past 64 bits"},
      {"loops: {m: 4611686018427387904}\noperators: ['C[m] = A[m]']",
       "tensors.C: has more bytes than 64 bits can count"},
      {"loops: {m: 1000000000000000000}\noperators: ['C[] += A[m] * B[m]']",
       "tensors: have more bytes together than are counted"},
      {"loops: {m: 4}\ndtype: f33\noperators: ['C[m] = A[m]']",
       "f.yaml:2: dtype: 'f33' is unknown, did you mean 'f32'?"},
      {good + "dtypes: {A: float}", "f.yaml:3: dtypes.A: 'float' is unknown"},
      {good + "dtypes: {B: f16}", "f.yaml:3: dtypes: 'B' is unknown"},
      {good + "dtypes: {A: f16, A: f64}", "f.yaml:3: dtypes.A: is given twice"},
      {good + "ranges: {A: 0}", "f.yaml:3: ranges.A: 0 is not a range of values"},
      {good + "ranges: {A: 1e999}", "f.yaml:3: ranges.A: 1e999 is not a range of values"},
      {good + "ranges: {A: .5x}", "f.yaml:3: ranges.A: .5x is not a range of values"},
      {good + "ranges: {A: 1 to 1}", "f.yaml:3: ranges.A: 1 to 1 is not a range of values"},
      {good + "ranges: {A: 0 to inf}", "f.yaml:3: ranges.A: 0 to inf is not a range of values"},
      {good + "ranges: {A: ' to 1'}", "f.yaml:3: ranges.A:  to 1 is not a range of values"},
      {good + "ranges: {A: [0, 1]}", "f.yaml:3: ranges.A: is a list"},
      {good + "ranges: {B: 0.5}", "f.yaml:3: ranges: 'B' is unknown"},
      {good + "ranges: {A: 2, A: 2}", "f.yaml:3: ranges.A: is given twice"},
      {good + "ranges: {C: 0.5}", "ranges.C: is of a tensor that an operator writes"},
      {good + "values: {A: []}", "f.yaml:3: values.A: an empty list says no values; accepted: 4"},
      {good + "values: {A: draw}", "f.yaml:3: values.A: 'draw' says no values; accepted: a list"},
      {good + "values: {A: drawn, A: drawn}", "f.yaml:3: values.A: is given twice"},
      {good + "values: {C: drawn}", "values.C: are of a tensor that an operator writes"},
      {good + "outputs: [B]", "f.yaml:3: outputs: 'B' is unknown"},
      {good + "outputs: [A]", "f.yaml:3: outputs: A is written by no operator"},
      {good + "outputs: C", "f.yaml:3: outputs: is a scalar; accepted: a list of tensors"},
      {good + "tensors: {A: m}",
       "f.yaml:3: tensors.A: is a scalar; accepted: a list of dimensions"},
      {good + "tensors: {A: [q]}", "f.yaml:3: tensors.A: 'q' is not a dimension"},
      {good + "tensors: {A: ['']}", "f.yaml:3: tensors.A: '' is not a dimension"},
      {good + "tensors: {A: [' ']}", "f.yaml:3: tensors.A: ' ' is not a dimension"},
      {good + "tensors: {A: [0]}", "f.yaml:3: tensors.A: 0 is not a positive integer"},
      {good + "tensors: {A: ['m] = x['] }", "f.yaml:3: tensors.A: 'm] = x[' is not a dimension"},
      {good + "tensors: {A: [m, m]}", "f.yaml:2: operators[0]: column 9: A is indexed by 1"},
      {good + "tensors: {C: [7]}", "f.yaml:2: operators.C: C is written over [0,4)"},
      {good + "tensors: {Z: [m]}", "f.yaml:3: tensors.Z: is used by no operator"},
      {good + "tensors: {A: [m], A: [m]}", "f.yaml:3: tensors.A: is given twice"},
      {"loops:\n  m: 4\n  z: 2\noperators: ['C[m] = A[m]']",
       "f.yaml:3: loops.z: indexes no tensor"},
      {"loops: {m: 4, 'a b': 2}\noperators: ['C[m] = A[m]']", "loops: 'a b' is not an identifier"},
      {"loops: {m: 4}\noperators:\n  - C[m] = A[m]\n  - C[m] = B[m]",
       "operators.C: is declared twice"},
      {"loops: {m: 4}\noperators:\n  - C[m] = A[m]\n  - D: C[m] = B[m]",
       "tensors.C: is written by operators C and D"},
      {"loops: {m: 4}\noperators:\n  - C[m] = D[m]\n  - D[m] = C[m] + A[m]",
       "operators: C, D form a cycle"},
      {"loops: {m: 4}\noperators: [[C]]", "f.yaml:2: operators[0]: is a list"},
      {"loops: {m: 4}\noperators: [{a: 'C[m] = A[m]', b: x}]", "f.yaml:2: operators[0]: is a map"},
      {"loops: {m: 4}\noperators: [{a: 'b: C[m] = A[m]'}]", "b names an operator that is called a"},
      {"loops: {m: 4}\noperators: [{'a b': 'C[m] = A[m]'}]",
       "operators: 'a b' is not an identifier"},
      {"loops: {m: 4}\noperators: {a: b}", "f.yaml:2: operators: is a map; accepted: a list"},
      {"loops: {m: 4}\nname: [x]\noperators: []", "f.yaml:2: name: is a list"},
      {"name: 'a\"; rm -rf /'\n" + good, "f.yaml:1: name: 'a\"; rm -rf /' is not a name"},
      {"loops: {m: 4", "f.yaml:"},
      {"loops: *nowhere", "f.yaml:1: is not YAML"},
      {good + "---\n" + good, "f.yaml: 2 documents were found"},
      {std::string(5 << 20, ' '), "characters are too many"},
      {std::string(20000, '['), "f.yaml"},
  };
  for (const auto& c : cases) {
    const std::string message = error_of(c.yaml);
    EXPECT_NE(message.find(c.expect), std::string::npos)
        << c.yaml.substr(0, 200) << "\n  got " << message << "\n  not " << c.expect;
  }
}

TEST(Yaml, AliasBombsAreHarmless) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 40; ++i) {
    const std::string from = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + from;
    for (int j = 0; j < 8; ++j) bomb += ", " + from;
    bomb += "]\n";
  }
  EXPECT_NE(error_of(bomb).find("key: 'a0' is unknown"), std::string::npos);
  EXPECT_NE(error_of("loops: &l {m: *l}\noperators: []"), "accepted");
}

TEST(Json, ReadsObjectsAndArrays) {
  const nlohmann::json j = nlohmann::json::parse(R"({
    "loops": {"m": 4, "n": 3}, "tensors": {"A": ["m", 3]}, "dtypes": {"A": "f16"},
    "operators": [{"sum": "C[m] += A[m,n]"}], "outputs": ["C"]})");
  const Workload w = workload_from_json(j, "j");
  EXPECT_EQ(w.op(OpId(0)).name, "sum");
  EXPECT_EQ(w.tensor(*w.find_tensor("A")).dtype, DType::f16);
  EXPECT_EQ(workload_from_json(nlohmann::json(to_json(w)), "again"), w);
}

TEST(Json, BadInput) {
  const struct {
    const char* json;
    const char* expect;
  } cases[] = {
      {R"([])", "j: workload: is array; accepted: an object"},
      {R"({"lops": {}})", "j: key: 'lops' is unknown, did you mean 'loops'?"},
      {R"({"loops": {"m": 4}})", "j: operators: is missing"},
      {R"({"loops": 3, "operators": []})", "j: loops: is number; accepted: an array"},
      {R"({"loops": {"m": -1}, "operators": ["C[m] = A[m]"]})", "loops.m: -1 is not a positive"},
      {R"({"loops": {"m": 1e3}, "operators": ["C[m] = A[m]"]})",
       "loops.m: 1000.0 is not a positive"},
      {R"({"loops": {"m": 18446744073709551615}, "operators": ["C[m] = A[m]"]})",
       "loops.m: 18446744073709551615 is past 64 bits"},
      {R"({"loops": {"m": null}, "operators": ["C[m] = A[m]"]})", "loops.m: is null"},
      {R"({"loops": [{"name": "m"}], "operators": []})", "loops.extent: is missing"},
      {R"({"loops": [{"name": "m", "size": 3}], "operators": []})", "loops: 'size' is unknown"},
      {R"({"loops": {"m": 4}, "operators": [3]})", "operators[0]: is number"},
      {R"({"loops": {"m": 4}, "operators": ["C[m] = "]})", "column 8: end of text was found"},
      {R"({"loops": {"m": 4}, "tensors": {"A": 3}, "operators": []})", "tensors.A: is number"},
      {R"({"loops": {"m": 4}, "operators": ["C[m] = A[m]"], "outputs": "C"})",
       "outputs: is string; accepted: an array"},
  };
  for (const auto& c : cases) {
    try {
      workload_from_json(nlohmann::json::parse(c.json), "j");
      ADD_FAILURE() << c.json;
    } catch (const InputError& e) {
      EXPECT_NE(std::string(e.what()).find(c.expect), std::string::npos) << e.what();
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    }
  }
}

// ---- Random expressions and mutations ----------------------------------------------------------

Expr random_expr(std::mt19937& random, int depth) {
  std::uniform_int_distribution<int> pick(0, 9);
  const int kind = depth == 0 ? pick(random) % 4 : pick(random);
  if (kind < 2) return {.kind = Expr::Kind::input, .input = kind % 2};
  if (kind == 2) return {.kind = Expr::Kind::index, .loop = LoopId(0)};
  if (kind == 3) {
    std::uniform_real_distribution<double> value(-3, 3);
    return {.constant = pick(random) == 0 ? -std::numeric_limits<double>::infinity()
                                          : value(random) * (pick(random) == 0 ? 1e-30 : 1)};
  }
  const std::span<const ExprFunction> functions = expr_functions();
  // Infix operators and signs are where parentheses can go wrong, so they come more often.
  const std::string_view often[] = {"add", "sub", "mul", "div", "neg"};
  const ExprFunction* f = kind < 8 ? find_expr_function(often[random() % std::size(often)])
                                   : &functions[random() % functions.size()];
  Expr e{.kind = Expr::Kind::call, .function = std::string(f->name)};
  for (int i = 0; i < f->arity; ++i) e.args.push_back(random_expr(random, depth - 1));
  return e;
}

TEST(Notation, RandomExpressionsReadBack) {
  const unsigned seed = 7;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 500; ++i) {
    WorkloadSpec spec = one("C[m] = A[m] + B[m]").spec();
    Expr sum{.kind = Expr::Kind::call, .function = "add"};
    sum.args = {random_expr(random, 5), spec.operators[0].outputs[0].value};
    spec.operators[0].outputs[0].value = sum;
    const Workload w = Workload::create(spec);
    EXPECT_EQ(workload_from_yaml(to_yaml(w), "again"), w) << to_text(w, OpId(0));
  }
}

TEST(Notation, MutationsOnlyEverGiveInputErrors) {
  const unsigned seed = 11;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::string seeds[] = {"gemm1: C[m,n] += A[m,k] * B[k,n]",
                               "stat: S[m] += X[m,n]; Q[m] += X[m,n] * X[m,n]",
                               "O[m] += I[2*m + k - 1] * W[k]",
                               "C[m] = select(lt(A[m], 0), exp(A[m] / 2) - 1, -(A[m] + B[n,m,0]))",
                               "R[m] max= S[m,n]; d[m] = before(R) - after(R) running",
                               "Z[m] += P[m,n] rescale(exp(d[m])) running",
                               "E[m,n] = select(lt(m, n - 3), S[m,n], m + 2 * n)"};
  const std::string tokens[] = {"[",       "]",
                                "(",       ")",
                                ",",       ";",
                                ":",       "+",
                                "-",       "*",
                                "/",       "=",
                                "+=",      "max=",
                                "running", "rescale(",
                                "before(", "after(R)",
                                "inf",     "1.5",
                                "0",       "9223372036854775807",
                                "m",       "n",
                                "k",       "A[m]",
                                "exp",     "$",
                                "e"};
  int accepted = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string text = seeds[random() % std::size(seeds)];
    for (std::size_t n = 1 + random() % 3; n-- > 0 && !text.empty();) {
      const std::size_t at = random() % text.size();
      if (random() % 2 == 0) text.erase(at, 1 + random() % 4);
      if (random() % 2 == 0)
        text.insert(std::min(at, text.size()), tokens[random() % std::size(tokens)]);
    }
    try {
      const Workload w = one(text);
      ++accepted;
      ASSERT_EQ(one(to_text(w, OpId(0))), w) << text;
    } catch (const InputError& e) {
      ASSERT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    }
  }
  EXPECT_GT(accepted, 300);
}

TEST(Yaml, MutationsOnlyEverGiveInputErrors) {
  const unsigned seed = 20240612;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::vector<std::string> seeds;
  for (const char* name : {"gemm-chain:batch=3,relu=1", "attention:heads=2,scale=1", "chimera/C1",
                           "layernorm:rows=5,cols=7"})
    seeds.push_back(to_yaml(named_workload(name)));
  seeds.push_back(to_yaml(one("R[m] max= S[m,n]; d[m] = before(R) - after(R) running")));
  seeds.push_back(to_yaml(one("Z[m] += P[m,n] rescale(exp(d[m])) running")));
  const std::string alphabet = "[](){}:;,+-*/=&*!|>'\"%@`#? \n\t\0x09mk._e~<\xff";
  const std::string words[] = {"running",  "rescale(", "max=", "inf",      "9223372036854775807",
                               "-1",       "0",        "1e9",  "loops",    "before(C)",
                               "tensors:", "- ",       "[]",   "operators"};
  int accepted = 0;
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = seeds[random() % seeds.size()];
    for (std::size_t n = 1 + random() % 2; n-- > 0;) {
      const std::size_t at = random() % text.size();
      switch (random() % 5) {
        case 0:
          text[at] = alphabet[random() % alphabet.size()];
          break;
        case 1:
          text.erase(at, 1 + random() % 8);
          break;
        case 2:
          text.insert(at, 1, alphabet[random() % alphabet.size()]);
          break;
        case 3:
          text.insert(at, words[random() % std::size(words)]);
          break;
        case 4:
          text.insert(at, text.substr(random() % text.size(), random() % 20));
          break;
      }
      if (text.empty()) text = " ";
    }
    try {
      const Workload w = workload_from_yaml(text, "m.yaml");
      ++accepted;
      ASSERT_EQ(workload_from_yaml(to_yaml(w), "again"), w) << text;
      ASSERT_EQ(workload_from_json(nlohmann::json::parse(to_json(w).dump()), "again"), w) << text;
    } catch (const InputError& e) {
      ++refused;
      ASSERT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    }
  }
  EXPECT_GT(accepted, 50);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace tilewright
