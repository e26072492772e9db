// Verification put to the proof: of every built-in workload in every type, what a right kernel
// makes is accepted, and the same with one element, tile, row or everything wrong is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <map>
#include <random>
#include <set>

#include "core/base/format.h"
#include "core/workload/reference/elements.h"
#include "core/workload/reference/rounding.h"
#include "core/workload/text.h"

namespace tilewright {
namespace {

/// Sizes at which everything is evaluated in a moment and odd edges are there. A test holds the
/// list to the families that there are.
const std::map<std::string, std::vector<std::string>> kSizes = {
    {"gemm", {"m=67,n=53,k=190", "m=3,n=130,k=4099"}},
    {"gemm-chain", {"m=61,n=40,k=48,l=131", "m=33,n=35,k=20,l=64,relu=1,batch=3"}},
    {"gemm-chain3", {"m=40,n=33,k=37,l=60,p=31"}},
    {"gated-ffn", {"m=40,n=33,k=37,l=60", "m=21,n=35,k=20,l=64,batch=3"}},
    {"attention",
     {"heads=2,m=40,l=130,k=16,n=24", "m=70,l=96,k=64,n=16,scale=1",
      "m=33,l=140,k=32,n=20,online=1", "heads=6,groups=3,m=20,l=70,k=16,n=24",
      "m=67,l=67,k=32,n=20,causal=1", "heads=2,m=33,l=90,k=32,n=20,scale=1,online=1,causal=1"}},
    {"softmax", {"rows=37,cols=190"}},
    {"layernorm", {"rows=37,cols=190"}},
    {"conv-chain", {"ic=7,h=19,w=17,oc1=12,oc2=9", "ic=5,h=20,w=21,oc1=8,oc2=9,relu=1,st1=1,k2=3"}},
    {"conv1d-chain", {"h=300,r=5,s=7"}},
    {"layernorm-backward", {"rows=45,cols=130"}},
    {"gelu", {"rows=45,cols=130"}},
    {"batchnorm", {"batch=5,channels=9,size=70"}},
    {"groupnorm", {"batch=3,groups=4,channels=5,size=60"}},
    {"residual-layernorm", {"rows=45,cols=130"}},
    {"adam", {"size=5000"}},
    {"lstm-cell", {"batch=21,hidden=70"}},
    {"masked-softmax", {"batch=3,heads=2,m=17,l=120"}},
    {"squeeze-excite", {"batch=4,channels=40,size=49,squeezed=8"}},
    {"attention-unit",
     {"batch=12,items=40,width=32,rows=200", "batch=12,items=40,width=32,gather=0"}},
    {"shuffle-unit", {"channels=10,size=35"}},
    {"kv-attention", {"batch=3,past=9,heads=2,size=21"}},
    {"involution", {"channels=2,group=3,size=11,kernel=5"}},
    {"rotary", {"tokens=9,heads=3,half=21"}},
    {"column-norm", {"rows=130,cols=45"}},
    {"cross-entropy", {"rows=37,cols=190", "rows=37,cols=190,soft=1"}},
    {"rmsnorm", {"rows=37,cols=190"}},
    {"rmsnorm-backward", {"rows=45,cols=130"}},
    {"swiglu", {"rows=45,cols=130"}},
    {"add-layernorm-gelu", {"rows=45,cols=130"}},
    {"transformer-block", {"tokens=24,heads=2,size=8,hidden=40"}},
    {"bert",
     {"layers=1,seq=19,heads=2,hidden=16,ffn=40",
      "layers=2,seq=12,heads=2,hidden=24,ffn=36,standard=1"}},
    {"bert-large", {"layers=1,seq=11,heads=3,hidden=24,ffn=50"}},
    {"lstm", {"layers=1,steps=3,hidden=21", "layers=2,steps=1,hidden=24,wavefront=1"}},
    {"mmoe", {"input=37,experts=3,tasks=2,units=11"}},
    {"se-module", {"channels=40,squeezed=7,size=6"}},
    {"resnext101", {"size=9,channels=4,groups=2,width=3,stages=1,blocks=1,classes=60"}},
    {"efficientnet-b0", {"size=9,channels=4,stages=2,blocks=1,classes=60"}},
    {"vit-b16", {"size=6,patch=2,layers=1,hidden=48,heads=2,mlp=8,classes=60"}},
    {"gpt2", {"batch=3,past=9,layers=1,hidden=48,heads=3,mlp=24,vocabulary=31"}},
    {"swin-b", {"size=8,patch=2,window=4,width=32,heads=2,mlp=1,stages=1,blocks=1,classes=60"}},
    {"shufflenet-v2", {"size=9,stem=5,channels=8,stages=1,blocks=2,head=30,classes=60"}},
    {"sar-drn", {"size=7,channels=2"}},
    {"rednet50", {"size=5,channels=4,group=2,kernel=3,stages=1,blocks=1,classes=60"}},
    {"random-graph",
     {"rows=40,cols=64,seed=1", "rows=40,cols=64,seed=2", "rows=40,cols=64,seed=3",
      "rows=40,cols=64,seed=4", "rows=40,cols=64,seed=5", "rows=40,cols=64,seed=6",
      "rows=40,cols=64,seed=1,indices=1", "rows=40,cols=64,seed=2,indices=1"}}};

/// A workload, its bounds, and what a kernel makes that stores every result in its type.
struct Subject {
  Workload w;
  Bounded all;
  TensorValues right;
};

Subject subject_of(const std::string& name, std::uint64_t seed) {
  Subject s{named_workload(name), {}, {}};
  const TensorValues inputs = random_inputs(s.w, seed);
  s.all = evaluate_bounded(s.w, inputs);
  const auto store = [&s](OpId id, TensorValues& v) {
    for (const Output& o : s.w.op(id).outputs)
      round_all(s.w.tensor(o.target.tensor).dtype, v[o.target.tensor.index()]);
  };
  s.right = evaluate(s.w, inputs, {.outputs_only = true, .after = store});
  return s;
}

/// Whether those values, stored in the tensor's type, are within the bounds.
bool accepted(const Subject& s, TensorId t, const std::vector<double>& values) {
  const Tensor& tensor = s.w.tensor(t);
  std::vector<std::byte> stored(values.size() * static_cast<std::size_t>(size_of(tensor.dtype)));
  encode_elements(tensor.dtype, values, stored.data());
  return compare(tensor.dtype, stored.data(), s.all.values[t.index()], s.all.bounds[t.index()])
             .worst <= 1;
}

/// How many of the single elements that were broken in one way were refused.
struct Tally {
  int broken = 0, refused = 0;
  double share() const { return broken == 0 ? 1 : double(refused) / broken; }
};

struct Found {
  Tally by_one, by_ten, zeroed, neighbour;
};

/// One element at a time, drawn among those that a fault changes: of values that are not negligible
/// beside the others (a thousandth of the root mean square), which an element may be by chance.
void break_elements(const Subject& s, TensorId t, std::mt19937_64& draw, Found& found) {
  const std::vector<double>& right = s.right[t.index()];
  double squares = 0;
  for (double x : right) squares += x * x;
  const double least = 1e-3 * std::sqrt(squares / static_cast<double>(right.size()));
  std::vector<double> values = right;
  for (int i = 0; i < 60; ++i) {
    const std::size_t at = draw() % right.size(), beside = (at + 1) % right.size();
    const double x = right[at];
    if (std::abs(x) <= least) continue;
    const auto with = [&](double wrong, Tally& tally) {
      values[at] = wrong;
      ++tally.broken;
      tally.refused += accepted(s, t, values) ? 0 : 1;
      values[at] = x;
    };
    with(x * 1.01, found.by_one);
    with(x * 1.1, found.by_ten);
    with(0, found.zeroed);
    if (std::abs(right[beside] - x) > 0.1 * std::abs(x)) with(right[beside], found.neighbour);
  }
}

/// Parts of a tensor by 1 % and exchanged: the last row, a tile of 8 by 8 in a corner, everything.
std::vector<std::string> parts_accepted(const Subject& s, TensorId t) {
  const Tensor& tensor = s.w.tensor(t);
  const std::vector<double>& right = s.right[t.index()];
  const std::size_t n = right.size();
  const auto columns = tensor.shape.empty() ? 1 : static_cast<std::size_t>(tensor.shape.back());
  const auto in_tile = [&](std::size_t i) {
    return i % columns + 8 >= columns && i / columns + 8 >= n / columns;
  };
  const auto in_row = [&](std::size_t i) { return i + columns >= n; };
  const auto everywhere = [](std::size_t) { return true; };
  std::vector<std::string> passed;
  const auto with = [&](const char* name, auto inside, auto wrong) {
    std::vector<double> values = right;
    for (std::size_t i = 0; i < n; ++i)
      if (inside(i)) values[i] = wrong(i);
    if (values != right && accepted(s, t, values)) passed.push_back(tensor.name + ": " + name);
  };
  const auto scaled = [&](std::size_t i) { return right[i] * 1.01; };
  const auto zero = [](std::size_t) { return 0.0; };
  const auto shifted = [&](std::size_t i) { return right[(i + columns + 1) % n]; };
  with("a row by 1 %", in_row, scaled);
  with("a tile by 1 %", in_tile, scaled);
  with("all by 1 %", everywhere, scaled);
  with("a row of zeros", in_row, zero);
  with("a tile of zeros", in_tile, zero);
  with("a tile of other elements", in_tile, shifted);
  with("everything moved", everywhere, shifted);
  return passed;
}

/// Shares of single elements that must be refused. In 16 bits a right kernel's own roundings of
/// intermediates (0.05 % and 0.4 % each) hide 1 % of many elements, and of a few that come out of
/// large terms more.
struct Least {
  double by_one, by_ten, zeroed, neighbour;
};
const std::map<std::string, Least> kLeast = {{"f64", {1, 1, 1, 1}},
                                             {"f32", {1, 1, 1, 1}},
                                             {"f16", {0.8, 0.98, 0.99, 0.99}},
                                             {"bf16", {0.2, 0.85, 0.97, 0.97}}};

class EveryBuiltin : public testing::TestWithParam<const char*> {};

TEST_P(EveryBuiltin, RightIsAcceptedAndWrongIsRefused) {
  const std::string dtype = GetParam();
  const bool narrow = dtype == "f16" || dtype == "bf16";
  std::mt19937_64 draw(7);
  Found all;
  int parts = 0;
  for (const auto& [family, sizes] : kSizes)
    for (const std::string& size : sizes) {
      std::string name = family;
      name.append(":").append(size).append(",dtype=").append(dtype);
      SCOPED_TRACE(name);
      const Subject s = subject_of(name, 5);
      Found found;
      std::vector<std::string> passed;
      for (TensorId t : s.w.outputs()) {
        EXPECT_TRUE(accepted(s, t, s.right[t.index()])) << s.w.tensor(t).name;
        break_elements(s, t, draw, found);
        for (const std::string& p : parts_accepted(s, t)) passed.push_back(p);
      }
      std::cout << formatted(
          "{:75} 1 %: {:4.0f} %, 10 %: {:4.0f} %, zero: {:4.0f} %, neighbour: {:4.0f} % "
          "refused{}\n",
          name, 100 * found.by_one.share(), 100 * found.by_ten.share(), 100 * found.zeroed.share(),
          100 * found.neighbour.share(), passed.empty() ? "" : "; accepted: " + join(passed));
      for (const auto tally : {&Found::by_one, &Found::by_ten, &Found::zeroed, &Found::neighbour}) {
        (all.*tally).broken += (found.*tally).broken;
        (all.*tally).refused += (found.*tally).refused;
      }
      parts += static_cast<int>(passed.size());
      // 1 % is within what storing intermediates in 16 bits may do; anything coarser is not.
      for (const std::string& p : passed) EXPECT_TRUE(narrow && p.ends_with("by 1 %")) << p;
    }
  std::cout << formatted(
      "{}: 1 % {:.2f} %, 10 % {:.2f} %, zero {:.2f} %, neighbour {:.2f} % refused, {} parts "
      "accepted\n",
      dtype, 100 * all.by_one.share(), 100 * all.by_ten.share(), 100 * all.zeroed.share(),
      100 * all.neighbour.share(), parts);
  const Least least = kLeast.at(dtype);
  EXPECT_GE(all.by_one.share(), least.by_one);
  EXPECT_GE(all.by_ten.share(), least.by_ten);
  EXPECT_GE(all.zeroed.share(), least.zeroed);
  EXPECT_GE(all.neighbour.share(), least.neighbour);
}
INSTANTIATE_TEST_SUITE_P(All, EveryBuiltin, testing::Values("f16", "bf16", "f32", "f64"),
                         [](const auto& info) { return std::string(info.param); });

/// Among a million results of f16 rows, those that a right kernel rounds furthest from exact.
TEST(Mutations, ManyRightRowsAreAccepted) {
  const Subject s = subject_of("attention:heads=8,m=1024,l=1024,k=128,n=128,dtype=f16", 6);
  for (TensorId t : s.w.outputs()) EXPECT_TRUE(accepted(s, t, s.right[t.index()]));
}

/// A constant is what f32 has of it, and what is infinite must be.
TEST(Mutations, ConstantsAreRoundedAndInfinitiesHeld) {
  for (const char* constant : {"0.1", "-1e30", "-inf"}) {
    SCOPED_TRACE(constant);
    const Workload w = workload_from_yaml(
        "name: chosen\nloops: {m: 40, l: 33}\noperators:\n  - \"s: S[m,l] = select(lt(B[m,l], 0), "
        "A[m,l], " +
            std::string(constant) + ")\"\n",
        "test");
    const TensorValues inputs = random_inputs(w, 3);
    const Bounded all = evaluate_bounded(w, inputs);
    const std::size_t s = w.find_tensor("S")->index();
    std::vector<float> stored(all.values[s].begin(), all.values[s].end());
    const auto worst = [&] {
      return compare(DType::f32, reinterpret_cast<const std::byte*>(stored.data()), all.values[s],
                     all.bounds[s])
          .worst;
    };
    EXPECT_LE(worst(), 1);
    const std::vector<double>& b = inputs[w.find_tensor("B")->index()];
    const auto at = static_cast<std::size_t>(
        std::ranges::find_if(b, [](double x) { return x >= 0; }) - b.begin());
    const float right = stored[at];
    stored[at] =
        std::isinf(right) ? -3e38F : std::nextafter(std::nextafter(right, 1.0F), 1.0F) * 1.00001F;
    EXPECT_GT(worst(), 1);
    stored[at] = std::numeric_limits<float>::infinity();
    EXPECT_GT(worst(), 1);
  }
}

TEST(Mutations, EveryFamilyIsBroken) {
  std::set<std::string> listed;
  for (const auto& entry : kSizes) listed.insert(entry.first);
  for (const BuiltinWorkload& b : builtin_workloads())
    if (b.name.find('/') == std::string::npos) {
      EXPECT_EQ(listed.erase(b.name), 1U) << b.name;
    }
  EXPECT_TRUE(listed.empty()) << *listed.begin();
}

}  // namespace
}  // namespace tilewright
