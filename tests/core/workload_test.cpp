#include "core/workload/workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <set>

#include "core/base/format.h"
#include "core/workload/bytes_read.h"
#include "core/workload/operator_graph.h"
#include "core/workload/rewrite/rewrite.h"
#include "core/workload/text.h"

namespace tilewright {
namespace {

using Lines = std::vector<std::string>;

Workload chain() { return named_workload("gemm-chain:m=10,n=6,k=7,l=9"); }

Access access(int tensor, std::vector<int> loops) {
  Access a{.tensor = TensorId(tensor)};
  for (int l : loops) a.index.push_back({.terms = {{LoopId(l), 1}}});
  return a;
}

Expr input(int i) { return {.kind = Expr::Kind::input, .input = i}; }
Expr call(std::string f, std::vector<Expr> args) {
  return {.kind = Expr::Kind::call, .function = std::move(f), .args = std::move(args)};
}

/// C[m,n] += A[m,k] * B[k,n] by hand: loops m n k, tensors A B C.
WorkloadSpec gemm_spec() {
  WorkloadSpec s{.name = "hand"};
  s.loops = {{"m", 5}, {"n", 6}, {"k", 7}};
  s.tensors = {{"A", {5, 7}}, {"B", {7, 6}}, {"C", {5, 6}}};
  Operator op{.name = "gemm"};
  op.inputs = {access(0, {0, 2}), access(1, {2, 1})};
  op.outputs = {{.target = access(2, {0, 1}),
                 .value = call("mul", {input(0), input(1)}),
                 .combine = Combine::sum}};
  s.operators = {op};
  return s;
}

std::string refusal(const WorkloadSpec& s) {
  try {
    Workload::create(s);
  } catch (const InputError& e) {
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    return e.what();
  }
  return "accepted";
}

TEST(Workload, KnowsItsGraph) {
  const Workload w = chain();
  const OpId gemm1 = *w.find_op("gemm1");
  const OpId gemm2 = *w.find_op("gemm2");
  const TensorId c = *w.find_tensor("C");
  EXPECT_EQ(w.producer(c), gemm1);
  ASSERT_EQ(w.consumers(c).size(), 1u);
  EXPECT_EQ(w.consumers(c)[0], gemm2);
  EXPECT_TRUE(w.is_intermediate(c));
  EXPECT_TRUE(w.is_input(*w.find_tensor("A")));
  EXPECT_TRUE(w.is_output(*w.find_tensor("E")));
  EXPECT_EQ(w.find_op("E"), gemm2);
  EXPECT_EQ(w.find_op("A"), std::nullopt);
  const OperatorGraph graph = operator_graph(w);
  EXPECT_EQ(boost::num_vertices(graph), 2u);
  EXPECT_EQ(boost::num_edges(graph), 1u);
  EXPECT_EQ(graph[*boost::edges(graph).first], c);
}

TEST(Workload, KnowsItsLoops) {
  const Workload w = chain();
  const OpId gemm1 = *w.find_op("gemm1");
  const LoopId k = *w.find_loop("k");
  ASSERT_EQ(w.reduction_loops(gemm1).size(), 1u);
  EXPECT_EQ(w.reduction_loops(gemm1)[0], k);
  EXPECT_TRUE(w.is_reduction(gemm1, k));
  EXPECT_FALSE(w.is_reduction(gemm1, *w.find_loop("l")));
  EXPECT_EQ(w.local_index(gemm1, *w.find_loop("m")), 0);
  EXPECT_EQ(w.local_index(gemm1, *w.find_loop("n")), -1);
  EXPECT_FALSE(w.is_batch(*w.find_loop("m")));
  const Workload batched = named_workload("gemm-chain:batch=4");
  for (const Loop& l : batched.loops())
    EXPECT_EQ(batched.is_batch(*batched.find_loop(l.name)), l.name == "b") << l.name;
  const Workload conv = named_workload("conv-chain:batch=2");
  EXPECT_FALSE(conv.is_batch(*conv.find_loop("b")));  // the weights have no batch
}

TEST(Workload, CountsWork) {
  const Workload w = chain();
  EXPECT_EQ(w.operations(*w.find_op("gemm1")), Operations(10 * 9 * 7));
  EXPECT_TRUE(w.is_contraction(*w.find_op("gemm1")));
  EXPECT_DOUBLE_EQ(w.flops(), 2.0 * (10 * 9 * 7 + 10 * 6 * 9));
  EXPECT_EQ(w.compulsory_bytes(), Bytes(4 * (70 + 63 + 54 + 60)));
  const Workload s = named_workload("softmax:rows=3,cols=5");
  // max: 1 each; sub, exp: 2; sum: 1; div: 1.
  EXPECT_DOUBLE_EQ(s.flops(), 15.0 * (1 + 2 + 1 + 1));
  EXPECT_FALSE(s.is_contraction(*s.find_op("rowsum")));
  EXPECT_EQ(s.compulsory_bytes(), Bytes(4 * 30));
}

/// Elements of each input that some needed output point depends on, point by point.
std::int64_t touched_elements(const Workload& w) {
  std::vector<std::set<std::vector<std::int64_t>>> need(w.tensors().size());
  std::vector<bool> whole(w.tensors().size(), false);
  for (TensorId t : w.outputs()) whole[t.index()] = true;
  for (std::size_t i = w.topological_order().size(); i-- > 0;) {
    const Operator& op = w.op(w.topological_order()[i]);
    std::vector<std::int64_t> at(op.loops.size(), 0);
    const auto evaluate = [&](const Access& a, bool& inside) {
      std::vector<std::int64_t> p;
      for (std::size_t d = 0; d < a.index.size(); ++d) {
        std::int64_t v = a.index[d].offset;
        for (const Term& t : a.index[d].terms)
          for (std::size_t l = 0; l < op.loops.size(); ++l)
            if (op.loops[l] == t.loop) v += t.coefficient * at[l];
        inside = inside && v >= 0 && v < w.tensor(a.tensor).shape[d];
        p.push_back(v);
      }
      return p;
    };
    for (;;) {
      bool inside = true;
      const Access& target = op.outputs[0].target;
      const std::vector<std::int64_t> out = evaluate(target, inside);
      if (whole[target.tensor.index()] || need[target.tensor.index()].contains(out))
        for (const Access& in : op.inputs) {
          bool valid = true;
          const std::vector<std::int64_t> p = evaluate(in, valid);
          if (valid) need[in.tensor.index()].insert(p);
        }
      std::size_t l = op.loops.size();
      while (l-- > 0 && ++at[l] == w.loop(op.loops[l]).extent) at[l] = 0;
      if (l == static_cast<std::size_t>(-1)) break;
    }
  }
  std::int64_t n = 0;
  for (std::size_t t = 0; t < need.size(); ++t)
    if (w.is_input(TensorId(t))) n += static_cast<std::int64_t>(need[t].size());
  return n;
}

/// Indices that share loops, run backwards, skip and leave the tensor: never more than is read.
TEST(Workload, CompulsoryIsNoMoreThanWhatIsRead) {
  std::mt19937_64 random(19);
  const auto pick = [&](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(random);
  };
  int less = 0, equal = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string index[2];
    for (std::string& text : index) {
      text = std::to_string(pick(-3, 3));
      for (const char* loop : {"a", "b", "c"})
        if (pick(0, 1) == 0)
          text += formatted("{}{}*{}", pick(0, 1) == 0 ? "+" : "-", pick(1, 3), loop);
    }
    std::optional<Workload> drawn;
    try {
      drawn = workload_from_yaml(
          formatted("loops: {{a: {}, b: {}, c: {}}}\ntensors: {{X: [{}, {}]}}\noperators:\n"
                    "  - \"Y[a] += X[{},{}]\"\n",
                    pick(1, 6), pick(1, 6), pick(1, 6), pick(1, 8), pick(1, 8), index[0], index[1]),
          "drawn");
    } catch (const InputError&) {
      continue;  // all of it is outside
    }
    const Workload& w = *drawn;
    const Bytes read(4 * touched_elements(w)), written = w.tensor(*w.find_tensor("Y")).bytes();
    ASSERT_LE(w.compulsory_bytes(), read + written) << to_yaml(w);
    (w.compulsory_bytes() == read + written ? equal : less)++;
  }
  EXPECT_GT(equal, less / 4);
}

TEST(Workload, CompulsoryCountsOnlyWhatIsNeeded) {
  for (const char* name :
       {"conv-chain:ic=2,h=9,w=8,oc1=3,oc2=2,st1=2,st2=1,k1=3,k2=1",
        "conv-chain:ic=2,h=9,w=8,oc1=3,oc2=2,st1=2,st2=2,k1=1,k2=1",
        "conv-chain:ic=1,h=11,w=7,oc1=2,oc2=2,st1=1,st2=3,k1=3,k2=1",
        "conv-chain:ic=1,h=7,w=7,oc1=2,oc2=2,st1=3,st2=2,k1=1,k2=3", "conv1d-chain",
        "gemm-chain:m=3,n=2,k=4,l=5,relu=1", "attention:heads=2,m=3,l=4,k=2,n=2",
        "layernorm:rows=3,cols=4", "lstm-cell:batch=2,hidden=3"}) {
    const Workload w = named_workload(name);
    std::int64_t outputs = 0;
    for (TensorId t : w.outputs()) outputs += w.tensor(t).elements().value;
    EXPECT_EQ(w.compulsory_bytes(), Bytes(4 * (touched_elements(w) + outputs))) << name;
  }
}

/// Slices of one tensor add up; what cannot be said as a product of sets is counted short, never
/// long.
TEST(Workload, CompulsoryUnitesSlices) {
  const auto bound_and_truth = [](const std::string& loops, const Lines& operators) {
    std::string text = "name: t\ndtype: f32\nloops: {" + loops + "}\noperators:\n";
    for (const std::string& o : operators) text += "  - '" + o + "'\n";
    const Workload w = workload_from_yaml(text, "t");
    std::int64_t outputs = 0;
    for (TensorId t : w.outputs()) outputs += w.tensor(t).elements().value;
    return std::pair(w.compulsory_bytes().value / 4 - outputs, touched_elements(w));
  };
  for (const Lines& operators :
       {Lines{"y[i] = x[i] + x[i+4]"}, Lines{"y[i] = x[i]", "z[i] = x[2*i+1]"},
        Lines{"p[i] = x[i+1]", "y[i] = p[i] * p[3-i]"}, Lines{"y[i] = x[i] + s[]"},
        Lines{"y[i] = x[i,0] + x[i,2] * x[i,1]"}, Lines{"y[i] = x[i-2] + x[i]"}}) {
    const auto [bound, truth] = bound_and_truth("i: 4", operators);
    EXPECT_EQ(bound, truth) << operators.front();
  }
  for (const Lines& operators : {Lines{"y[i] = x[i,i] + x[i,1]"}, Lines{"y[i] = x[i,1] + x[i,i]"},
                                 Lines{"y[i] = x[i,0] + x[i+1,2]"},
                                 Lines{"p[i] = x[i]", "y[i] = q[i,i] + p[i]", "z[i] = q[i,3]"}}) {
    const auto [bound, truth] = bound_and_truth("i: 4", operators);
    EXPECT_LE(bound, truth) << operators.front();
    EXPECT_GT(bound, 0);
  }
}

TEST(Footprint, CountsHalosAndClips) {
  const Workload w = named_workload("conv-chain:ic=2,h=9,w=9,oc1=3,oc2=2,st1=2,st2=1,k1=3,k2=1");
  const Operator& op = w.op(*w.find_op("conv1"));
  std::vector<Interval> ranges;
  for (LoopId l : op.loops) ranges.push_back({0, w.loop(l).extent});
  const auto y = static_cast<std::size_t>(w.local_index(*w.find_op("conv1"), *w.find_loop("y")));
  ranges[y] = {1, 3};
  // 2*y + r - 1 over y in {1,2}, r in {0,1,2}: 1..5.
  EXPECT_EQ(footprint(op, op.inputs[0].index[1], ranges), (Interval{1, 6}));
  ranges[y] = {0, 1};  // -1..1, clipped
  EXPECT_EQ(footprint(op, op.inputs[0].index[1], ranges), (Interval{-1, 2}));
  EXPECT_EQ(footprint(w, op, op.inputs[0], ranges)[1], (Interval{0, 2}));
  ranges[y] = {2, 2};
  EXPECT_TRUE(footprint(w, op, op.inputs[0], ranges).empty());
}

TEST(Footprint, NegativeCoefficients) {
  const Operator op{.loops = {LoopId(0)}};
  const Affine index{.terms = {{LoopId(0), -3}}, .offset = 10};
  const std::vector<Interval> ranges = {{1, 4}};
  EXPECT_EQ(footprint(op, index, ranges), (Interval{1, 8}));
}

TEST(Workload, OrdersProducersFirstAndTiesAsWritten) {
  const Workload w = workload_from_yaml(R"(
loops: {i: 4}
operators:
  - y[i] = a[i] + b[i]
  - b[i] = x[i] * 2
  - a[i] = x[i] + 1
)",
                                        "t");
  std::vector<std::string> names;
  for (OpId id : w.topological_order()) names.push_back(w.op(id).name);
  EXPECT_EQ(names, (std::vector<std::string>{"b", "a", "y"}));
  EXPECT_EQ(w.consumers(*w.find_tensor("x")).size(), 2u);
}

TEST(Workload, BringsOperatorsIntoOneForm) {
  WorkloadSpec s = gemm_spec();
  const Workload plain = Workload::create(s);
  // Inputs the other way round, loops in another order, a term in two parts.
  Operator& op = s.operators[0];
  std::swap(op.inputs[0], op.inputs[1]);
  op.outputs[0].value = call("mul", {input(1), input(0)});
  op.loops = {LoopId(2), LoopId(1), LoopId(0)};
  op.inputs[1].index[0].terms = {{LoopId(0), 3}, {LoopId(1), 0}, {LoopId(0), -2}};
  EXPECT_EQ(Workload::create(s), plain);
  EXPECT_EQ(plain.op(OpId(0)).loops, (std::vector<LoopId>{LoopId(0), LoopId(1), LoopId(2)}));
}

TEST(Workload, RefusesBadSpecs) {
  struct Case {
    const char* expect;
    void (*spoil)(WorkloadSpec&);
  };
  const Case cases[] = {
      {"'in t' is not an identifier", [](WorkloadSpec& s) { s.loops[0].name = "in t"; }},
      {"'2t' is not an identifier", [](WorkloadSpec& s) { s.tensors[0].name = "2t"; }},
      {"'a;b' is not an identifier", [](WorkloadSpec& s) { s.operators[0].name = "a;b"; }},
      {"name: '$(x)'", [](WorkloadSpec& s) { s.name = "$(x)"; }},
      {"loops.m: is declared twice", [](WorkloadSpec& s) { s.loops[1].name = "m"; }},
      {"tensors.A: is declared twice", [](WorkloadSpec& s) { s.tensors[1].name = "A"; }},
      {"loops.k: 0 is not an extent", [](WorkloadSpec& s) { s.loops[2].extent = 0; }},
      {"loops.k: -3 is not an extent", [](WorkloadSpec& s) { s.loops[2].extent = -3; }},
      {"tensors.B: 0 is not an extent", [](WorkloadSpec& s) { s.tensors[1].shape[0] = 0; }},
      {"tensors.B: has more bytes",
       [](WorkloadSpec& s) {
         s.tensors[1].shape = {std::int64_t{1} << 31, std::int64_t{1} << 31};
       }},
      {"tensors.B: 9 dimensions", [](WorkloadSpec& s) { s.tensors[1].shape.assign(9, 1); }},
      {"operators.gemm: B is indexed by 2 indices but has 1",
       [](WorkloadSpec& s) { s.tensors[1].shape = {7}; }},
      {"operators.gemm: 7 is not a tensor",
       [](WorkloadSpec& s) { s.operators[0].inputs[0].tensor = TensorId(7); }},
      {"operators.gemm: -1 is not a loop",
       [](WorkloadSpec& s) { s.operators[0].inputs[0].index[0].terms[0].loop = LoopId(); }},
      {"operators.gemm: 4 is not a position",
       [](WorkloadSpec& s) { s.operators[0].outputs[0].value.args[0].input = 4; }},
      {"operators.gemm: frobnicate is not a function",
       [](WorkloadSpec& s) { s.operators[0].outputs[0].value.function = "frobnicate"; }},
      {"operators.gemm: mul is called with 1 arguments",
       [](WorkloadSpec& s) { s.operators[0].outputs[0].value.args.pop_back(); }},
      {"operators.gemm: nan is not a constant",
       [](WorkloadSpec& s) {
         s.operators[0].outputs[0].value.args.pop_back();
         s.operators[0].outputs[0].value.args.push_back({.constant = std::nan("")});
       }},
      {"operators.gemm: B is an input that no expression",
       [](WorkloadSpec& s) { s.operators[0].outputs[0].value = input(0); }},
      {"operators.gemm: writes nothing", [](WorkloadSpec& s) { s.operators[0].outputs.clear(); }},
      {"operators: are missing", [](WorkloadSpec& s) { s.operators.clear(); }},
      {"operators.gemm: k is reduced over by an assignment",
       [](WorkloadSpec& s) { s.operators[0].outputs[0].combine = Combine::assign; }},
      {"operators.gemm: C is written at an index that is not a plain loop",
       [](WorkloadSpec& s) { s.operators[0].outputs[0].target.index[0].offset = 1; }},
      {"operators.gemm: C is written at m in two dimensions",
       [](WorkloadSpec& s) {
         s.operators[0].outputs[0].target.index[1].terms[0].loop = LoopId(0);
         s.tensors[2].shape[1] = 5;
       }},
      {"operators.gemm: C is written over [0,5) in dimension 0 of extent 4",
       [](WorkloadSpec& s) { s.tensors[2].shape[0] = 4; }},
      {"operators.gemm: A is read over [90,95), all of it outside",
       [](WorkloadSpec& s) { s.operators[0].inputs[0].index[0].offset = 90; }},
      {"operators.gemm: A has an index past 64 bits",
       [](WorkloadSpec& s) {
         s.operators[0].inputs[0].index[0].terms[0].coefficient =
             std::numeric_limits<std::int64_t>::max();
       }},
      {"operators.gemm: A has an index past 64 bits",
       [](WorkloadSpec& s) {
         s.operators[0].inputs[0].index[0].terms[0].coefficient = std::int64_t{1} << 62;
         s.loops[0].extent = s.tensors[0].shape[0] = s.tensors[2].shape[0] = 1;
       }},
      {"operators.gemm: n is a loop that indexes none",
       [](WorkloadSpec& s) {
         s.operators[0].inputs.pop_back();
         s.operators[0].outputs[0].value = input(0);
         s.operators[0].outputs[0].target.index[1] = {};
         s.tensors[2].shape[1] = 1;
         s.operators[0].loops = {LoopId(0), LoopId(1), LoopId(2)};
       }},
      {"loops.z: indexes no tensor",
       [](WorkloadSpec& s) {
         s.loops.push_back({"z", 3});
       }},
      {"tensors.Z: is used by no operator",
       [](WorkloadSpec& s) {
         s.tensors.push_back({"Z", {3}});
       }},
      {"tensors.C: is written by operators gemm and again",
       [](WorkloadSpec& s) {
         s.operators.push_back(s.operators[0]);
         s.operators[1].name = "again";
       }},
      {"tensors.C: is written twice by operator gemm",
       [](WorkloadSpec& s) { s.operators[0].outputs.push_back(s.operators[0].outputs[0]); }},
      {"outputs: A is written by no operator", [](WorkloadSpec& s) { s.outputs = {TensorId(0)}; }},
      {"outputs: C is listed twice",
       [](WorkloadSpec& s) {
         s.outputs = {TensorId(2), TensorId(2)};
       }},
      {"outputs: 9 is not a tensor", [](WorkloadSpec& s) { s.outputs = {TensorId(9)}; }},
      {"operators: gemm form a cycle",
       [](WorkloadSpec& s) {
         s.operators[0].inputs[1] = access(2, {0, 1});
         s.tensors.erase(s.tensors.begin() + 1);
         s.operators[0].inputs[1].tensor = TensorId(1);
         s.operators[0].outputs[0].target.tensor = TensorId(1);
       }},
      {"C is rescaled but the operator is not running",
       [](WorkloadSpec& s) { s.operators[0].outputs[0].rescale = Expr{.constant = 2}; }},
      {"C looks back at an output but the operator is not running",
       [](WorkloadSpec& s) {
         s.operators[0].inputs.clear();
         s.operators[0].outputs[0].value = {.kind = Expr::Kind::before, .input = 0};
       }},
  };
  EXPECT_EQ(refusal(gemm_spec()), "accepted");
  for (const Case& c : cases) {
    WorkloadSpec s = gemm_spec();
    c.spoil(s);
    EXPECT_NE(refusal(s).find(c.expect), std::string::npos) << c.expect << "\n  got " << refusal(s);
  }
}

TEST(Workload, RefusesIterationSpacesPast64Bits) {
  WorkloadSpec s = gemm_spec();
  for (Loop& l : s.loops) l.extent = std::int64_t{1} << 21;
  const std::int64_t n = std::int64_t{1} << 21;
  s.tensors = {{"A", {n, n}}, {"B", {n, n}}, {"C", {n, n}}};
  EXPECT_NE(refusal(s).find("operators.gemm: has an iteration space of more than 2^63"),
            std::string::npos);
  s.loops[0].extent = s.tensors[0].shape[0] = s.tensors[2].shape[0] = n / 2;
  EXPECT_EQ(refusal(s), "accepted");
}

TEST(Workload, RefusesTooManyLoopsAndTooDeepExpressions) {
  WorkloadSpec s{.loops = {}};
  Operator op{.name = "copy"};
  for (int i = 0; i < 13; ++i) s.loops.push_back({"l" + std::to_string(i), 2});
  s.tensors = {
      {"X", std::vector<std::int64_t>(7, 2)}, {"Y", std::vector<std::int64_t>(6, 2)}, {"Z", {}}};
  op.inputs = {access(0, {0, 1, 2, 3, 4, 5, 6}), access(1, {7, 8, 9, 10, 11, 12})};
  op.outputs = {{.target = {.tensor = TensorId(2)},
                 .value = call("mul", {input(0), input(1)}),
                 .combine = Combine::sum}};
  s.operators = {op};
  EXPECT_NE(refusal(s).find("operators.copy: 13 loops are too many"), std::string::npos);

  WorkloadSpec deep = gemm_spec();
  Expr& value = deep.operators[0].outputs[0].value;
  for (int i = 0; i < 1000; ++i) {
    Expr outer = call("neg", {});
    outer.args.push_back(std::move(value));
    value = std::move(outer);
  }
  EXPECT_NE(refusal(deep).find("nested too deeply"), std::string::npos);
}

TEST(Expressions, FunctionsAreWhatTheyAreCalled) {
  const auto evaluate = [](std::string_view name, std::vector<double> args) {
    const ExprFunction* f = find_expr_function(name);
    EXPECT_NE(f, nullptr) << name;
    EXPECT_EQ(f->arity, static_cast<int>(args.size())) << name;
    return f->evaluate(args.data());
  };
  EXPECT_EQ(evaluate("add", {3, 4}), 7);
  EXPECT_EQ(evaluate("sub", {3, 4}), -1);
  EXPECT_EQ(evaluate("mul", {3, 4}), 12);
  EXPECT_EQ(evaluate("div", {3, 4}), 0.75);
  EXPECT_EQ(evaluate("max", {3, 4}), 4);
  EXPECT_EQ(evaluate("min", {3, 4}), 3);
  EXPECT_EQ(evaluate("pow", {3, 4}), 81);
  EXPECT_EQ(evaluate("lt", {3, 4}), 1);
  EXPECT_EQ(evaluate("lt", {4, 4}), 0);
  EXPECT_EQ(evaluate("select", {1, 3, 4}), 3);
  EXPECT_EQ(evaluate("select", {0, 3, 4}), 4);
  EXPECT_EQ(evaluate("neg", {3}), -3);
  EXPECT_DOUBLE_EQ(evaluate("log", {evaluate("exp", {1.5})}), 1.5);
  EXPECT_EQ(evaluate("sqrt", {9}), 3);
  EXPECT_DOUBLE_EQ(evaluate("rsqrt", {4}), 0.5);
  EXPECT_EQ(evaluate("recip", {4}), 0.25);
  EXPECT_EQ(evaluate("relu", {-4}), 0);
  EXPECT_EQ(evaluate("relu", {4}), 4);
  EXPECT_DOUBLE_EQ(evaluate("tanh", {0.5}), std::tanh(0.5));
  EXPECT_DOUBLE_EQ(evaluate("sigmoid", {0}), 0.5);
  EXPECT_DOUBLE_EQ(evaluate("erf", {0.5}), std::erf(0.5));
  EXPECT_NEAR(evaluate("gelu", {1}), 0.841344746, 1e-9);
  EXPECT_EQ(evaluate("abs", {-4}), 4);
  EXPECT_EQ(evaluate("square", {-4}), 16);
  EXPECT_EQ(evaluate("floor", {-0.5}), -1);
  EXPECT_EQ(evaluate("round", {2.5}), 2);
  EXPECT_EQ(evaluate("round", {-1.5}), -2);
  EXPECT_EQ(evaluate("round", {0.75}), 1);
  EXPECT_DOUBLE_EQ(evaluate("sin", {0.5}), std::sin(0.5));
  EXPECT_DOUBLE_EQ(evaluate("cos", {0.5}), std::cos(0.5));
  EXPECT_EQ(expr_functions().size(), 26u);
  EXPECT_EQ(find_expr_function("system"), nullptr);
  EXPECT_EQ(identity_of(Combine::product), 1.0);
  EXPECT_EQ(identity_of(Combine::max), -std::numeric_limits<double>::infinity());
}

/// Intervals hold every element that is named and, where they are few, no other.
TEST(IntervalsRead, AreThoseOfEveryIteration) {
  int gaps = 0;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto pick = [&](std::int64_t low, std::int64_t high) {
      return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
    };
    std::vector<std::pair<std::int64_t, std::int64_t>> terms;
    for (std::int64_t n = pick(0, 3); n > 0; --n) terms.emplace_back(pick(-12, 12), pick(1, 5));
    const std::int64_t offset = pick(-10, 30), size = pick(1, 40);
    std::set<std::int64_t> named = {offset};
    for (const auto& [step, extent] : terms) {
      std::set<std::int64_t> next;
      for (std::int64_t at : named)
        for (std::int64_t i = 0; i < extent; ++i) next.insert(at + step * i);
      named = std::move(next);
    }
    const std::int64_t around = *named.rbegin() - *named.begin() + 1;
    std::erase_if(named, [&](std::int64_t at) { return at < 0 || at >= size; });
    std::set<std::int64_t> held;
    std::int64_t before = -1;
    const auto all = intervals_read(offset, terms, size);
    for (const Interval& i : all) {
      EXPECT_GE(i.lo, before);
      before = i.hi + 1;  // apart
      for (std::int64_t at = i.lo; at < i.hi; ++at) held.insert(at);
    }
    EXPECT_TRUE(std::ranges::includes(held, named));
    if (all.size() > 1) {
      EXPECT_EQ(held, named);
      ++gaps;
    }
    EXPECT_LE(static_cast<std::int64_t>(held.size()), around);
  }
  EXPECT_GT(gaps, 50);
}

/// What each half of a shuffled concatenation reads: half of both tensors, far apart.
TEST(BytesRead, LeavesOutWhatLiesBetweenSlices) {
  const Workload w = *apply("compose", named_workload("shuffle-unit"));
  for (const Operator& op : w.operators())
    for (const Access& a : op.inputs) EXPECT_EQ(bytes_read(w, op, a).value, 29 * 784 * 4);
}

/// A window whose steps pass over the only column that there is.
TEST(BytesRead, OfNothingAreNone) {
  const Workload w = workload_from_yaml(
      "name: passed-over\nloops: {h: 4, w: 1, s: 3}\ntensors: {I: [4, 1]}\noperators:\n"
      "  - \"conv: C[h,w] += I[h,2*w + 2*s - 3] * W[s]\"\n",
      "passed-over");
  const Operator& op = w.op(OpId(0));
  EXPECT_EQ(bytes_read(w, op, op.inputs[0]).value, 0);
  EXPECT_EQ(bytes_read(w, *w.find_tensor("I"), std::array{OpId(0)}).value, 0);
}

}  // namespace
}  // namespace tilewright
