// Does an ONNX file become the workload that it says? Files that are refused:
// onnx_refused_test.cpp. tests/python/test_onnx.py holds each operator against another
// implementation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <numeric>
#include <random>

#include "core/base/error.h"
#include "core/workload/import/onnx_import.h"
#include "core/workload/reference/evaluate.h"
#include "core/workload/text.h"
#include "tests/core/onnx_files.h"
#include "tests/support/places.h"

namespace tilewright {
namespace {

using namespace onnx_test;  // NOLINT: the vocabulary of this test
using testing::ElementsAre;
using testing::HasSubstr;

class Onnx : public Files {};

std::vector<double> values(const OnnxImport& made, const std::string& onnx,
                           const TensorValues& inputs) {
  const Workload& w = made.workload;
  return evaluate(w, inputs).at(w.find_tensor(made.tensors.at(onnx)).value().index());
}

TEST_F(Onnx, AProductIsTheProductOfTheFilesWeights) {
  const OnnxImport made = import(product());
  EXPECT_THAT(operators(made.workload),
              ElementsAre("product: product[i4,i3] += x[i4,i2] * w[i2,i3]",
                          "y: y[i4,i3] = relu(product[i4,i3])"));
  const Workload& w = made.workload;
  TensorValues in = random_inputs(w, 1);
  EXPECT_THAT(in[w.find_tensor("w")->index()], ElementsAre(1, 2, 3, -4, -5, -6));
  in[w.find_tensor("x")->index()] = {1, 0, 0, 1, -1, -1, 2, 1};
  EXPECT_THAT(values(made, "y", in), ElementsAre(1, 2, 3, 0, 0, 0, 3, 3, 3, 0, 0, 0));
}

TEST_F(Onnx, ThePlacesOfWeightsReadBack) {
  const Workload w = import(product()).workload;
  const std::string text = to_yaml(w);
  EXPECT_THAT(text, HasSubstr("f32 at "));
  EXPECT_EQ(workload_from_yaml(text, "again"), w);
  EXPECT_EQ(workload_from_json(nlohmann::json::parse(to_json(w).dump()), "again"), w);
  EXPECT_EQ(random_inputs(workload_from_yaml(text, "again"), 1), random_inputs(w, 1));
}

/// No value is drawn that the type does not have.
TEST_F(Onnx, UnsignedInputsAreDrawnFromZeroOn) {
  for (const int type : {2, 4, 9, 12, 13}) {  // uint8, uint16, bool, uint32, uint64
    const OnnxImport made = import({.nodes = {node("Cast", {"x"}, {"y"}, {attribute_int("to", 1)})},
                                    .inputs = {value("x", {200}, type)},
                                    .outputs = {value("y", {200})}});
    const Workload& w = made.workload;
    const TensorValues in = random_inputs(w, 1);
    const auto& x = in[w.find_tensor("x")->index()];
    EXPECT_EQ(*std::ranges::min_element(x), 0) << type;
    EXPECT_EQ(*std::ranges::max_element(x), 1) << type;
    EXPECT_EQ(workload_from_yaml(to_yaml(w), "again"), w);
  }
}

/// Of everything: blocks join their parts in 32 bits, and the result is rounded once.
TEST_F(Onnx, SumsOfAllOf16BitsAreAddedIn32) {
  for (const char* op : {"ReduceSum", "ReduceMax", "ReduceMin"}) {
    const Workload w = import({.nodes = {node(op, {"x"}, {"y"}, {attribute_int("keepdims", 0)})},
                               .inputs = {value("x", {30, 40}, 10)},
                               .outputs = {value("y", {}, 10)}})
                           .workload;
    ASSERT_EQ(w.operators().size(), 2u) << op;
    const Operator& part = w.operators().front();
    EXPECT_EQ(w.tensor(part.outputs.front().target.tensor).dtype, DType::f32) << op;
    EXPECT_NE(part.outputs.front().combine, Combine::assign) << op;
    EXPECT_EQ(w.tensor(*w.find_tensor("y")).dtype, DType::f16) << op;
  }
}

/// What is rounded to f16 is stored so by the operator that computes it; where something else reads
/// the wider numbers, it is a copy beside them. Elements of a mask are counted in whole numbers.
TEST_F(Onnx, CastsAreStoredInTheirType) {
  const auto half = attribute_int("to", 10);
  Graph g{.nodes = {node("Mul", {"x", "x"}, {"p"}), node("Cast", {"p"}, {"h"}, {half}),
                    node("MatMul", {"h", "w"}, {"y"})},
          .inputs = {value("x", {3, 4}), value("w", {4, 5}, 10)},
          .outputs = {value("y", {3, 5}, 10)}};
  const auto type = [](const Workload& w, const char* name) {
    return w.tensor(*w.find_tensor(name)).dtype;
  };
  const Workload folded = import(g).workload;
  EXPECT_EQ(folded.operators().size(), 2);
  EXPECT_EQ(type(folded, "h"), DType::f16);
  EXPECT_FALSE(folded.find_tensor("p"));

  g.nodes.push_back(node("Relu", {"p"}, {"wide"}));
  g.outputs.push_back(value("wide", {3, 4}));
  const Workload beside = import(g).workload;
  EXPECT_EQ(beside.operators().size(), 4);
  EXPECT_EQ(type(beside, "p"), DType::f32);
  EXPECT_EQ(type(beside, "h"), DType::f16);

  const Workload counted = import({.nodes = {node("Greater", {"x", "z"}, {"m"}),
                                             node("Cast", {"m"}, {"n"}, {attribute_int("to", 7)}),
                                             node("ReduceSum", {"n"}, {"y"})},
                                   .inputs = {value("x", {3, 4}), value("z", {3, 4})},
                                   .outputs = {value("y", {1, 1}, 7)}})
                               .workload;
  EXPECT_EQ(counted.operators().size(), 2);
  EXPECT_EQ(type(counted, "n"), DType::i32);
}

TEST_F(Onnx, NumbersAreReadHoweverTheyAreStored) {
  std::ofstream(path("weights.bin"), std::ios::binary)
      .write("\0\0\0\0\0\0\x80\x3f\0\0\0\x40", 12);  // 0, 1, 2
  const Graph g{.nodes = {node("Add", {"x", "a"}, {"p"}), node("Add", {"p", "b"}, {"q"}),
                          node("Add", {"q", "c"}, {"y"})},
                .tensors = {floats("a", {2}, {1, 2}), packed_floats("b", {2}, {10, 20}),
                            outside("c", {2}, "weights.bin", 4)},
                .inputs = {value("x", {2})},
                .outputs = {value("y", {2})}};
  const OnnxImport made = import(g);
  TensorValues in = random_inputs(made.workload, 1);
  in[made.workload.find_tensor("x")->index()] = {100, 200};
  EXPECT_THAT(values(made, "y", in), ElementsAre(112, 224));
}

/// Two a byte, the lower half first; the last byte of five is half empty.
TEST_F(Onnx, WeightsOfFourBitsStayInTheFile) {
  for (const bool listed : {false, true}) {
    std::string w = tensor_head("w", {5}, 22);
    if (listed)
      for (const int pair : {0x9f, 0x70, 0x08}) pbf_writer(w).add_int32(5, pair);
    else
      pbf_writer(w).add_bytes(9, "\x9f\x70\x08", 3);
    const Graph g{.nodes = {node("DequantizeLinear", {"w", "s"}, {"v"}, {attribute_int("axis", 0)}),
                            node("Add", {"x", "v"}, {"y"})},
                  .tensors = {w, floats("s", {}, {0.5f})},
                  .inputs = {value("x", {5})},
                  .outputs = {value("y", {5})},
                  .opset = 21};
    const OnnxImport made = import(g);
    TensorValues in = random_inputs(made.workload, 1);
    in[made.workload.find_tensor("x")->index()] = {0, 0, 0, 0, 0};
    EXPECT_THAT(values(made, "y", in), ElementsAre(-0.5, -3.5, 0, 3.5, -4)) << listed;
  }
  Graph g = product();
  g.tensors = {tensor_head("w", {2, 3}, 21)};
  pbf_writer(g.tensors[0]).add_bytes(9, "\x21\x43", 2);  // six elements have three bytes
  EXPECT_THAT(error(g), HasSubstr("2 bytes"));
  pbf_writer(g.tensors[0]).add_bytes(9, "\x21\x43\x65", 3);
  const OnnxImport made = import(g);
  const Workload& w = made.workload;
  EXPECT_THAT(random_inputs(w, 1)[w.find_tensor("w")->index()], ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(to_yaml(w), HasSubstr("u4 at "));
  EXPECT_EQ(workload_from_yaml(to_yaml(w), "again"), w);
}

TEST_F(Onnx, SequencesFoldAway) {
  const Graph g{
      .nodes = {node("SplitToSequence", {"x"}, {"parts"}, {attribute_int("axis", 1)}),
                node("SequenceAt", {"parts", "last"}, {"a"}),
                node("SequenceErase", {"parts", "last"}, {"rest"}),
                node("SequenceInsert", {"rest", "a", "first"}, {"turned"}),
                node("ConcatFromSequence", {"turned"}, {"y"}, {attribute_int("axis", 1)})},
      .tensors = {integers("first", {}, {0}), integers("last", {}, {-1})},
      .inputs = {value("x", {2, 3})},
      .outputs = {value("y", {2, 3})}};
  const OnnxImport made = import(g);
  TensorValues in = random_inputs(made.workload, 1);
  in[made.workload.find_tensor("x")->index()] = {1, 2, 3, 4, 5, 6};
  EXPECT_THAT(values(made, "y", in), ElementsAre(3, 1, 2, 6, 4, 5));
  Graph out = g;
  out.outputs = {value("turned", {2, 3})};
  EXPECT_THAT(error(out), HasSubstr("turned is a sequence"));
  out = g;
  out.nodes[1] = node("Relu", {"parts"}, {"a"});
  EXPECT_THAT(error(out), HasSubstr("a: Relu: a sequence where a tensor is read"));
}

// A transformer's heads are dimensions: no operator moves anything.
TEST_F(Onnx, HeadsAreIndices) {
  std::vector<float> weights(24, 0.5F);
  weights[0] = 1;  // weights that are all the same are one number
  const Graph g{
      .nodes = {node("MatMul", {"x", "wq"}, {"q"}), node("Reshape", {"q", "heads"}, {"q4"}),
                node("Transpose", {"q4"}, {"qt"}, {attribute_ints("perm", {0, 2, 1, 3})}),
                node("MatMul", {"x", "wk"}, {"k"}), node("Reshape", {"k", "heads"}, {"k4"}),
                node("Transpose", {"k4"}, {"kt"}, {attribute_ints("perm", {0, 2, 3, 1})}),
                node("MatMul", {"qt", "kt"}, {"s"})},
      .tensors = {floats("wq", {4, 6}, weights), floats("wk", {4, 6}, weights),
                  integers("heads", {4}, {0, 0, 2, 3})},
      .inputs = {value("x", {1, 5, 4})},
      .outputs = {value("s", {1, 2, 5, 5})}};
  EXPECT_THAT(operators(import(g).workload),
              ElementsAre("q: q[i5,i2,i3] += x[i5,i4] * wq[i4,i2,i3]",
                          "k: k[j5,i2,i3] += x[j5,i4] * wk[i4,i2,i3]",
                          "s: s[i2,i5,j5] += q[i5,i2,i3] * k[j5,i2,i3]"));
}

// Not by a tensor, of which no kernel knows that it is empty in places.
TEST_F(Onnx, ACausalMaskIsAConditionOnIndices) {
  const Graph g{
      .nodes = {node("Attention", {"q", "k", "v", "", "keys", "values"}, {"y"},
                     {attribute_int("is_causal", 1)})},
      .inputs = {value("q", {1, 2, 3, 2}), value("k", {1, 1, 3, 2}), value("v", {1, 1, 3, 5}),
                 value("keys", {1, 1, 2, 2}), value("values", {1, 1, 2, 5})},
      .outputs = {value("y", {1, 2, 3, 5})},
      .opset = 23};
  const OnnxImport made = import(g);
  EXPECT_THAT(operators(made.workload),
              testing::Contains("y_causal: y_causal[i2,i3,j5] = select(lt(i3 + 2, j5), -inf, "
                                "y_scaled[i2,i3,j5])"));
  // With values that are a unit matrix results are the probabilities: none beyond a row's own key.
  TensorValues in = random_inputs(made.workload, 1);
  const auto set = [&](const std::string& name, std::vector<double> to) {
    in[made.workload.find_tensor(made.tensors.at(name)).value().index()] = std::move(to);
  };
  set("values", {1, 0, 0, 0, 0, 0, 1, 0, 0, 0});
  set("v", {0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1});
  const std::vector<double> y = values(made, "y", in);
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i] > 0, i % 5 <= i / 5 % 3 + 2) << i;
}

// Outside of an image the largest of nothing is no zero.
TEST_F(Onnx, TheLargestOfAWindowAtTheEdgeMayBeNegative) {
  Graph g{.nodes = {node("MaxPool", {"x"}, {"y"},
                         {attribute_ints("kernel_shape", {3}), attribute_ints("pads", {1, 1})})},
          .inputs = {value("x", {1, 1, 3})},
          .outputs = {value("y", {1, 1, 3})}};
  const OnnxImport made = import(g);
  TensorValues in(made.workload.tensors().size());
  in[made.workload.find_tensor(made.tensors.at("x"))->index()] = {-3, -2, -1};
  EXPECT_THAT(values(made, "y", in), ElementsAre(-2, -1, -1));
}

/// Taps of a convolution that meet padding in every window are left out: of three, the middle one
/// of an image of one element, and two of an image of two that one window reads.
TEST_F(Onnx, TapsThatMeetPaddingAloneAreLeftOut) {
  const auto conv = [](std::int64_t size, std::int64_t stride) {
    return Graph{
        .nodes = {node("Conv", {"x", "w"}, {"y"},
                       {attribute_ints("pads", {1, 1}), attribute_ints("strides", {stride})})},
        .tensors = {floats("w", {1, 2, 3}, {1, 2, 3, 4, 5, 6})},
        .inputs = {value("x", {1, 2, size})},
        .outputs = {value("y", {1, 1, 1})}};
  };
  const auto of = [&](const Graph& g, const std::vector<double>& x) {
    const OnnxImport made = import(g);
    TensorValues in = random_inputs(made.workload, 1);
    in[made.workload.find_tensor(made.tensors.at("x"))->index()] = x;
    return std::pair{operators(made.workload).front(), values(made, "y", in)};
  };
  const auto [one, sum] = of(conv(1, 1), {10, 1});
  EXPECT_EQ(one, "y: y[] += x[i2] * w[i2,1]");
  EXPECT_THAT(sum, ElementsAre(2 * 10 + 5 * 1));
  const auto [two, sums] = of(conv(2, 2), {10, 1, 7, 3});
  EXPECT_EQ(two, "y: y[] += x[i2,j2] * w[i2,j2+1]");
  EXPECT_THAT(sums, ElementsAre(2 * 10 + 3 * 1 + 5 * 7 + 6 * 3));
}

/// A window of many taps reads a padded copy, of a part of an image, too.
TEST_F(Onnx, ManyTapsOverAPartOfAnImageReadAPaddedCopy) {
  constexpr int kSize = 100, kTaps = 65, kPad = 32;
  const Graph g{
      .nodes = {node("Slice", {"x", "from", "to", "axis"}, {"part"}),
                node("Conv", {"part", "w"}, {"y"}, {attribute_ints("pads", {kPad, kPad})})},
      .tensors = {integers("from", {1}, {1}), integers("to", {1}, {kSize}),
                  integers("axis", {1}, {2}),
                  floats("w", {1, 1, kTaps}, std::vector<float>(kTaps, 1))},
      .inputs = {value("x", {1, 1, kSize})},
      .outputs = {value("y", {1, 1, kSize - 1})}};
  const OnnxImport made = import(g);
  TensorValues in = random_inputs(made.workload, 1);
  std::vector<double>& x = in[made.workload.find_tensor(made.tensors.at("x"))->index()];
  std::vector<double> sums;
  for (int j = 0; j < kSize - 1; ++j) {
    double sum = 0;
    for (int t = std::max(0, j - kPad); t < std::min(kSize - 1, j - kPad + kTaps); ++t)
      sum += x[static_cast<std::size_t>(t + 1)];
    sums.push_back(sum);
  }
  EXPECT_THAT(values(made, "y", in), testing::Pointwise(testing::DoubleNear(1e-4), sums));
}

/// Along an axis that is read elsewhere, or one that is cut; other numbers are read.
TEST_F(Onnx, NumbersOfPlacesAreTheLoopsIndex) {
  const auto of = [&](const std::vector<float>& row, const std::vector<std::int64_t>& shape) {
    const OnnxImport made = import({.nodes = {node("Mul", {"x", "row"}, {"y"})},
                                    .tensors = {floats("row", shape, row)},
                                    .inputs = {value("x", {2, 3})},
                                    .outputs = {value("y", {2, 3})}});
    TensorValues in = random_inputs(made.workload, 1);
    in[made.workload.find_tensor("x")->index()] = {1, 2, 3, 4, 5, 6};
    return std::pair{operators(made.workload).front(), values(made, "y", in)};
  };
  const auto [along, rows] = of({0, 1, 2}, {3});
  EXPECT_EQ(along, "y: y[i2,i3] = x[i2,i3] * i3");
  EXPECT_THAT(rows, ElementsAre(0, 2, 6, 0, 5, 12));
  const auto [down, columns] = of({0, 1}, {2, 1});
  EXPECT_EQ(down, "y: y[i2,i3] = x[i2,i3] * i2");
  EXPECT_THAT(columns, ElementsAre(0, 0, 0, 4, 5, 6));
  const auto [other, read] = of({0, 1, 3}, {3});
  EXPECT_EQ(other, "y: y[i2,i3] = x[i2,i3] * row[i3]");
  EXPECT_THAT(read, ElementsAre(0, 2, 9, 0, 5, 18));
  const OnnxImport cut =
      import({.nodes = {node("Mul", {"x", "row"}, {"z"}), node("Reshape", {"z", "shape"}, {"y"})},
              .tensors = {floats("row", {6}, {0, 1, 2, 3, 4, 5}), integers("shape", {2}, {2, 3})},
              .inputs = {value("x", {6})},
              .outputs = {value("y", {2, 3})}});
  TensorValues in = random_inputs(cut.workload, 1);
  in[cut.workload.find_tensor("x")->index()] = {1, 1, 1, 2, 2, 2};
  EXPECT_THAT(values(cut, "y", in), ElementsAre(0, 1, 2, 6, 8, 10));
}

/// Running sums and the first few of long rows, in each direction, beside the definition; their
/// work does not grow with the square of the row.
TEST_F(Onnx, LongRowsAreOrderedAndAddedUpInLessThanTheirSquare) {
  std::mt19937 random(2711);
  for (int i = 0; i < 12; ++i) {
    const auto size = static_cast<std::int64_t>(64 + random() % 200);
    const auto k = static_cast<std::int64_t>(2 + random() % 5);
    const std::int64_t rows = 2, exclusive = random() % 2, reverse = random() % 2,
                       largest = random() % 2;
    const bool product = random() % 3 == 0, down = random() % 2 == 0;
    const std::vector<std::int64_t> shape =
        down ? std::vector<std::int64_t>{size, rows} : std::vector<std::int64_t>{rows, size};
    const std::vector<std::int64_t> few =
        down ? std::vector<std::int64_t>{k, rows} : std::vector<std::int64_t>{rows, k};
    Graph g{
        .nodes = {node("Neg", {"x"}, {"n"}),
                  node(product ? "CumProd" : "CumSum", {"n", "axis"}, {"y"},
                       {attribute_int("exclusive", exclusive), attribute_int("reverse", reverse)}),
                  node("TopK", {"n", "k"}, {"best", "places"},
                       {attribute_int("axis", down ? 0 : -1), attribute_int("largest", largest)})},
        .tensors = {integers("axis", {}, {down ? 0 : 1}), integers("k", {1}, {k})},
        .inputs = {value("x", shape)},
        .outputs = {value("y", shape), value("best", few), value("places", few, 7)}};
    if (product) g.opset = 26;
    const OnnxImport made = import(g);
    TensorValues in = random_inputs(made.workload, 1);
    std::vector<double> x(static_cast<std::size_t>(rows * size));
    // Whole numbers, so that many are equal; products stay near one.
    for (double& v : x)
      v = product ? 1 - static_cast<double>(random() % 3) : static_cast<double>(random() % 9) - 4;
    in[made.workload.find_tensor(made.tensors.at("x"))->index()] = x;
    const std::vector<double> y = values(made, "y", in), best = values(made, "best", in),
                              places = values(made, "places", in);
    const auto at = [&](std::int64_t r, std::int64_t j, std::int64_t of) {
      return static_cast<std::size_t>(down ? j * rows + r : r * of + j);
    };
    for (std::int64_t r = 0; r < rows; ++r) {
      std::vector<std::int64_t> order(static_cast<std::size_t>(size));
      std::iota(order.begin(), order.end(), 0);
      double sum = product ? 1 : 0;
      for (std::int64_t n = 0; n < size; ++n) {
        const std::int64_t j = reverse ? size - 1 - n : n;
        const double before = sum, its = -x[at(r, j, size)];
        sum = product ? sum * its : sum + its;
        ASSERT_NEAR(y[at(r, j, size)], exclusive ? before : sum, 1e-9) << j;
      }
      std::ranges::stable_sort(order, [&](std::int64_t a, std::int64_t b) {
        const double p = -x[at(r, a, size)], q = -x[at(r, b, size)];
        return largest ? p > q : p < q;
      });
      for (std::int64_t j = 0; j < k; ++j) {
        ASSERT_EQ(places[at(r, j, k)], static_cast<double>(order[static_cast<std::size_t>(j)]))
            << j;
        ASSERT_EQ(best[at(r, j, k)], -x[at(r, order[static_cast<std::size_t>(j)], size)]) << j;
      }
    }
    const double each = made.workload.flops() / static_cast<double>(rows * size);
    EXPECT_LT(each, 24 * static_cast<double>(k + 2)) << size;
  }
}

// Cuts that do not divide one another are read by a constant index.
TEST_F(Onnx, AReshapeThatNoIndexSaysIsACopy) {
  Graph g{.nodes = {node("Relu", {"x"}, {"a"}), node("Reshape", {"a", "to"}, {"b"}),
                    node("Transpose", {"b"}, {"y"}, {attribute_ints("perm", {1, 0})})},
          .tensors = {integers("to", {2}, {3, 2})},
          .inputs = {value("x", {2, 3})},
          .outputs = {value("y", {2, 3})}};
  const OnnxImport made = import(g);
  TensorValues in = random_inputs(made.workload, 1);
  in[made.workload.find_tensor(made.tensors.at("x"))->index()] = {0, 1, 2, 3, 4, 5};
  EXPECT_THAT(values(made, "y", in), ElementsAre(0, 2, 4, 1, 3, 5));
}

// Bits of rows and columns change places in both operands, so that a product of theirs would have
// ten dimensions.
TEST_F(Onnx, AProductOfOperandsThatAreCutTooOftenReadsCopies) {
  const auto turned = [](const std::string& from, const std::string& to) {
    return std::vector<std::string>{node("Reshape", {from, "bits"}, {from + "_bits"}),
                                    node("Transpose", {from + "_bits"}, {from + "_turned"},
                                         {attribute_ints("perm", {9, 8, 7, 6, 5, 4, 3, 2, 1, 0})}),
                                    node("Reshape", {from + "_turned", "matrix"}, {to})};
  };
  Graph g{.tensors = {integers("bits", {10}, std::vector<std::int64_t>(10, 2)),
                      integers("matrix", {2}, {32, 32})},
          .inputs = {value("x", {32, 32}), value("w", {32, 32})},
          .outputs = {value("y", {32, 32})}};
  for (const auto& nodes : {turned("x", "a"), turned("w", "b")})
    g.nodes.insert(g.nodes.end(), nodes.begin(), nodes.end());
  g.nodes.push_back(node("MatMul", {"a", "b"}, {"y"}));
  const OnnxImport made = import(g);
  const TensorValues in = random_inputs(made.workload, 1);
  const auto& x = in[made.workload.find_tensor(made.tensors.at("x"))->index()];
  const auto& w = in[made.workload.find_tensor(made.tensors.at("w"))->index()];
  const auto reversed = [](std::size_t at) {
    std::size_t out = 0;
    for (int bit = 0; bit < 10; ++bit) out |= (at >> bit & 1) << (9 - bit);
    return out;
  };
  const std::vector<double> y = values(made, "y", in);
  for (std::size_t i = 0; i < 32; ++i)
    for (std::size_t j = 0; j < 32; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < 32; ++k) sum += x[reversed(i * 32 + k)] * w[reversed(k * 32 + j)];
      EXPECT_NEAR(y[i * 32 + j], sum, 1e-12) << i << " " << j;
    }
}

/// Whether an operator of constants is folded, evaluated or said: it has no output to be written
/// to.
TEST_F(Onnx, ANodeWithoutOutputsMakesNothing) {
  for (const char* op :
       {"Clip", "Where", "Cast", "Add", "MatMul", "Relu", "Softmax", "Shape", "TopK", "CumSum",
        "Concat", "ReduceSum", "Gather", "Not", "Dropout", "Identity"}) {
    SCOPED_TRACE(op);
    Graph g = product();
    g.tensors.push_back(floats("low", {}, {0}));
    g.nodes.push_back(node(op, {"low", "low", "low"}, {}));
    const std::string what = error(g);
    EXPECT_TRUE(what == "taken" || what.find("model.onnx") != what.npos) << what;
  }
}

}  // namespace
}  // namespace tilewright
