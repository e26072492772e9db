// Is every file that is no model, or that cannot be said, refused in one line that names it?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "core/base/error.h"
#include "core/workload/import/onnx_import.h"
#include "tests/core/onnx_files.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/places.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using namespace onnx_test;  // NOLINT: the vocabulary of this test
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class OnnxRefused : public Files {};

TEST_F(OnnxRefused, DataOutsideOfTheModelsFolderAreNotRead) {
  std::ofstream(folder() + "/secret") << "12345678";
  fs::create_symlink(folder() + "/secret", path("link"));
  for (const std::string at : {"../secret", "link", "/etc/passwd", "a/../../secret", ""}) {
    const Graph g{.nodes = {node("Add", {"x", "c"}, {"y"})},
                  .tensors = {outside("c", {2}, at, 0)},
                  .inputs = {value("x", {2})},
                  .outputs = {value("y", {2})}};
    EXPECT_THAT(error(g), HasSubstr("is not a place for its data")) << at;
  }
}

TEST_F(OnnxRefused, EverySymbolicDimensionIsNamed) {
  Graph g = product();
  g.inputs = {value("x", {-1, 2}), value("other", {-2, -3})};
  EXPECT_THAT(error(g), HasSubstr("dimensions: n, o, p are not bound"));
  EXPECT_THAT(error(g, {.bind = {{"n", 4}, {"o", 1}}}), HasSubstr("dimensions: p is not bound"));
  EXPECT_THAT(error(g, {.bind = {{"q", 4}}}), HasSubstr("q is not a symbolic dimension"));
  const OnnxImport made = import(g, {.bind = {{"n", 4}, {"o", 1}, {"p", 2}}});
  EXPECT_THAT(made.unused, ElementsAre("other"));
  EXPECT_EQ(named_workload(path("model.onnx") + ":n=4,o=1,p=2"), made.workload);
}

/// The places of an axis are values in f32.
TEST_F(OnnxRefused, AnAxisThatIsTooLongToCountIsRefused) {
  const std::int64_t most = std::int64_t{1} << 24;
  for (const std::int64_t size : {most, most + 1, std::int64_t{1} << 40}) {
    const Graph largest{.nodes = {node("ArgMax", {"x"}, {"y"}, {attribute_int("axis", 1)})},
                        .inputs = {value("x", {3, size})},
                        .outputs = {value("y", {3, 1}, 7)}};
    const Graph hard{.nodes = {node("Hardmax", {"x"}, {"y"})},
                     .inputs = {value("x", {3, size})},
                     .outputs = {value("y", {3, size})}};
    if (size == most) {
      EXPECT_EQ(import(largest).workload.find_tensor("y").has_value(), true);
      continue;
    }
    for (const Graph& g : {largest, hard})
      EXPECT_THAT(error(g), HasSubstr("an axis of more than 16777216 elements")) << size;
  }
}

// Each would be a list of as many places, or as many weights.
TEST_F(OnnxRefused, AnAxisThatIsTooLongToReadByPlacesIsRefused) {
  const std::int64_t most = std::int64_t{1} << 22;
  for (const std::int64_t size : {most - 1, most, std::int64_t{1} << 40}) {
    const Graph padded{
        .nodes = {node("Pad", {"x", "pads"}, {"y"}, {attribute_text("mode", "reflect")})},
        .tensors = {integers("pads", {4}, {0, 0, 0, 1})},
        .inputs = {value("x", {3, size})},
        .outputs = {value("y", {3, size + 1})}};
    const Graph smaller{
        .nodes = {node("Resize", {"x", "", "", "sizes"}, {"y"},
                       {attribute_text("mode", "linear"), attribute_int("antialias", 1)})},
        .tensors = {integers("sizes", {2}, {3, 2})},
        .inputs = {value("x", {3, size})},
        .outputs = {value("y", {3, 2})}};
    if (size < most) {
      EXPECT_EQ(import(padded).workload.find_tensor("y").has_value(), true);
    } else {
      EXPECT_THAT(error(padded), HasSubstr("padding by reflect of more than 4194304 elements"));
    }
    EXPECT_THAT(error(smaller), HasSubstr("a matrix of weights that is too large"));
  }
  const Graph larger{.nodes = {node("Resize", {"x", "", "", "sizes"}, {"y"})},
                     .tensors = {integers("sizes", {1}, {most + 1})},
                     .inputs = {value("x", {3})},
                     .outputs = {value("y", {most + 1})}};
  EXPECT_THAT(error(larger), HasSubstr("an axis of 4194305 elements, not of 1 to 4194304"));
}

TEST_F(OnnxRefused, ARecurrentLayerThatHasNoCellHasTwoOutputs) {
  for (const char* op : {"GRU", "RNN"}) {
    const std::int64_t rows = op == std::string("GRU") ? 3 : 1;
    const Graph g{
        .nodes = {node(op, {"x", "w", "r"}, {"y", "h", "more"})},
        .inputs = {value("x", {2, 1, 1}), value("w", {1, rows, 1}), value("r", {1, rows, 1})},
        .outputs = {value("more", {1, 1, 1})}};
    EXPECT_THAT(error(g), HasSubstr("a third output")) << op;
  }
}

TEST_F(OnnxRefused, EveryNodeThatIsNotSupportedIsNamed) {
  Graph g = product();
  g.nodes = {node("NonZero", {"x"}, {"most"}), node("MatMul", {"x", "w"}, {"product"}),
             node("Magic", {"product"}, {"z"}), node("Relu", {"z"}, {"y"})};
  const std::string what = error(g);
  EXPECT_THAT(what, HasSubstr("2 nodes cannot be imported"));
  EXPECT_THAT(what, HasSubstr("\n  most: NonZero: the operator is not supported"));
  EXPECT_THAT(what, HasSubstr("\n  z: Magic: the operator is not supported"));
  g.others = {value("z", {4, 3})};
  const OnnxImport made = import(g, {.skip = true});
  EXPECT_EQ(made.skipped.size(), 2u);
  EXPECT_THAT(operators(made.workload),
              testing::UnorderedElementsAre("y: y[i4,i3] = relu(z[i4,i3])",
                                            "product: product[i4,i3] += x[i4,i2] * w[i2,i3]"));
}

TEST_F(OnnxRefused, WhatIsNoModelIsRefused) {
  const std::string good = model(product());
  for (const std::string& bytes :
       {std::string(), std::string("no model"), good.substr(0, good.size() / 2)}) {
    const std::string file = write("bad.onnx", bytes);
    EXPECT_THROW(import_onnx(file), InputError);
  }
  EXPECT_THROW(import_onnx(path("missing.onnx")), InputError);
  EXPECT_THROW(import_onnx(folder()), InputError);
  Graph g = product();
  g.tensors = {floats("w", {std::int64_t{1} << 40, std::int64_t{1} << 40}, {1})};
  EXPECT_THAT(error(g), HasSubstr("has too many elements"));
  g.tensors = {floats("w", {1000000, 1000000}, {1})};
  EXPECT_THAT(error(g), HasSubstr("4 bytes are not its shape's"));
}

TEST_F(OnnxRefused, AnInputThatIsLeftOutIsNamedWhereverItStands) {
  for (const char* op :
       {"Min", "Max", "Sum", "Mean", "Concat", "Where", "Add", "MatMul", "Einsum", "Gather"})
    for (const std::vector<std::string>& in :
         {std::vector<std::string>{"x", "", "x"}, {"x", "x", ""}, {"", "x", "x"}, {"", ""}}) {
      SCOPED_TRACE(std::string(op) + " " + testing::PrintToString(in));
      Graph g = product();
      g.nodes = {node(op, in, {"y"}, {attribute_int("axis", 0)})};
      const std::string what = error(g);
      EXPECT_TRUE(what == "taken" || what.find("cannot be imported") != what.npos) << what;
    }
}

// What make fuzz begins with, broken in 300 ways: each is taken or refused, in one line but for the
// nodes that are named.
TEST_F(OnnxRefused, BrokenFilesAreRefused) {
  std::vector<std::string> seeds;
  for (const auto& entry : fs::directory_iterator(test::in_sources("tests/fuzz/corpus/onnx"))) {
    std::ifstream in(entry.path(), std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  std::ranges::sort(seeds);
  ASSERT_GE(seeds.size(), 5u);
  std::mt19937_64 draw(7);
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    std::string bytes = seeds[draw() % seeds.size()];
    if (i % 3 == 0) bytes.resize(draw() % bytes.size());
    for (std::size_t n = 1 + draw() % 8; !bytes.empty() && i % 3 != 0 && n > 0; --n) {
      const std::size_t at = draw() % bytes.size();
      if (draw() % 3 == 0)
        bytes.erase(at, 1 + draw() % 4);
      else if (draw() % 2 == 0)
        bytes.insert(at, 1, static_cast<char>(draw()));
      else
        bytes[at] = static_cast<char>(draw());
    }
    SCOPED_TRACE("seed 7, case " + std::to_string(i));
    try {
      fuzz::use(import_onnx(bytes, "broken.onnx", {.bind = {}, .skip = i % 2 == 0}).workload);
    } catch (const InputError& e) {
      ++refused;
      const std::string what = e.what();
      EXPECT_THAT(what, HasSubstr("broken.onnx"));
      if (what.find("cannot be imported") == what.npos) {
        EXPECT_THAT(what, Not(HasSubstr("\n")));
      }
    }
  }
  EXPECT_GT(refused, 150);
}

}  // namespace
}  // namespace tilewright
