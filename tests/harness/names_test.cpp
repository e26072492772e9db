// Names of loops, tensors and operators that mean something to a compiler, a library or the emitted
// text itself: a kernel of them is as right as any other, on every target.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#include "core/base/toolchain.h"
#include "core/plan/plan.h"
#include "core/workload/text.h"
#include "harness/request.h"
#include "harness/verbs.h"

namespace tilewright::harness {
namespace {

/// Macros of compilers and headers, words of C++ and CUDA, their libraries, and words of which the
/// emitted text makes its own names: store_box, made_here, end_held.
const std::vector<std::string> kNames = [] {
  std::istringstream text(
      "i386 linux unix M_PI NULL EOF INFINITY I N min double threadIdx _Complex __global__ "
      "int auto typeof warpSize assert errno expf half float4 uint32_t main std restrict "
      "__asm__ operator blockIdx float16_t memcpy printf CUDART_PI _Float16 char if return "
      "asm signed _mm256_set1_ps Range Vector kLanes block blocks row scratch load store "
      "add clear read write round copy keep held begin of next made tilewright true not "
      "loop copy_in let inf nan e x0 tile sum shared in");
  return std::vector<std::string>(std::istream_iterator<std::string>(text), {});
}();

std::string name(std::size_t i) { return kNames[i % kNames.size()]; }

/// A product, what follows it, a softmax and gathered rows; each name from `first` on.
std::string text_of(std::size_t first, const std::string& type) {
  // $a to $d: loops; $A on: tensors, and operators of the same names.
  const std::string text =
      "name: names\ndtype: " + type +
      "\nloops: {\"$a\": 40, \"$b\": 24, \"$c\": 33, \"$d\": 7}\n"
      "tensors: {\"$A\": [40, 33], \"$B\": [33, 24], \"$H\": [7]}\ndtypes: {\"$H\": i32}\n"
      "operators:\n"
      "  - \"$C: $C[$a, $b] += $A[$a, $c] * $B[$c, $b]\"\n"
      "  - \"$D: $D[$a, $b] = max($C[$a, $b], 0.25)\"\n"
      "  - \"$E: $E[$a] max= $D[$a, $b]\"\n"
      "  - \"$F: $F[$a, $b] = exp($D[$a, $b] - $E[$a])\"\n"
      "  - \"$G: $G[$d, $b] = $F[$H[$d], $b] * 0.5\"\n";
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '$') {
      out += text[i];
      continue;
    }
    const char c = text[++i];
    out += c >= 'a' ? name(first + static_cast<std::size_t>(c - 'a'))
                    : name(first + 4 + static_cast<std::size_t>(c - 'A'));
  }
  return out;
}

TEST(Names, AreAllOfTheirForm) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    const Workload w = workload_from_yaml(text_of(i, "f32"), "test");
    EXPECT_TRUE(w.find_loop(name(i))) << name(i);
    EXPECT_TRUE(w.find_tensor(name(i + 4))) << name(i + 4);
    // In a plan's tree, too.
    const std::string tree = name(i) + "/8 " + name(i + 1) + " ( C." + name(i + 6) + " )";
    EXPECT_EQ(to_text(parse_tree(tree)), tree);
  }
}

struct On {
  std::string machine, target, type;
};

class NamesOn : public ::testing::TestWithParam<On> {};

TEST_P(NamesOn, MeanNothingToTheKernel) {
  const On& on = GetParam();
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "names.yaml").string();
  for (std::size_t first = 0; first < kNames.size(); first += 12) {
    std::ofstream(file) << text_of(first, on.type);
    Request request{.subject = file, .machine = on.machine};
    const Answer a = run(request, {.target = on.target, .seconds = 0});
    ASSERT_TRUE(a.ok()) << name(first) << ": " << a.json.dump(2);
    EXPECT_TRUE(a.json["verified"]) << name(first) << ": " << a.json.dump(2);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Targets, NamesOn,
    ::testing::Values(On{"host", "cpu", "f32"}, On{"h200", "cuda-emulated", "f16"},
                      On{"a100", "cuda-emulated", "f32"}, On{"ascend910", "npu", "f16"}),
    [](const auto& info) {
      std::string text = info.param.machine + "_" + info.param.target + "_" + info.param.type;
      std::ranges::replace(text, '-', '_');
      return text;
    });

}  // namespace
}  // namespace tilewright::harness
