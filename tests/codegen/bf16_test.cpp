// Tensors of 16 bits, and of several types, in emitted kernels: converted as tiles are copied,
// computed in f32 or, where one is, in f64.
#include <gmock/gmock.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <random>

#include "core/workload/reference/elements.h"
#include "models/exact/exact.h"
#include "tests/codegen/kernel_support.h"
#include "tests/support/worked.h"

namespace tilewright {
namespace {

using ::testing::HasSubstr;

struct Case {
  std::string workload, tree, tiles;
};

Schedule schedule_of(const Case& c, const std::shared_ptr<const Machine>& machine) {
  auto w = std::make_shared<const Workload>(c.workload.find('\n') == std::string::npos
                                                ? named_workload(c.workload)
                                                : workload_from_yaml(c.workload, "test"));
  Kernel k{.tree = parse_tree(c.tree)};
  if (!c.tiles.empty()) k.tiles = parse_tiles(c.tiles);
  auto s = resolve(Plan{.kernels = {k}}, w, machine);
  if (!s.ok()) throw std::runtime_error(s.reason());
  return std::move(s).value();
}

/// Arrays by TensorId, as their types store them; `values` are changed to what the arrays hold.
std::vector<std::vector<char>> encoded(const Workload& w, TensorValues& values) {
  std::vector<std::vector<char>> arrays;
  for (std::size_t t = 0; t < w.tensors().size(); ++t) {
    const Tensor& tensor = w.tensors()[t];
    const auto count = static_cast<std::size_t>(tensor.elements().value);
    arrays.emplace_back(static_cast<std::size_t>(tensor.bytes().value));
    fill_with_nan(tensor.dtype, count, arrays.back().data());
    if (!w.is_input(TensorId(t))) continue;
    encode_elements(tensor.dtype, values[t], arrays.back().data());
    values[t] = decode_elements(tensor.dtype, arrays.back().data(), count);
  }
  return arrays;
}

/// The largest relative error over the outputs, and the bytes that were counted where they are.
double run(const Workload& w, cpu::Kernel& kernel, std::vector<TrafficEntry>* counted = nullptr) {
  TensorValues values = random_inputs(w, 3);
  auto arrays = encoded(w, values);
  std::vector<void*> pointers;
  for (auto& a : arrays) pointers.push_back(a.data());
  if (counted != nullptr)
    *counted = kernel.run_counted(pointers).value();
  else
    kernel.run(pointers);
  const TensorValues reference = evaluate(w, values);
  double worst = 0;
  for (TensorId t : w.outputs()) {
    const std::vector<double> got =
        decode_elements(w.tensor(t).dtype, arrays[t.index()].data(), reference[t.index()].size());
    worst = std::max(worst, relative_error(std::span<const double>(got), reference[t.index()]));
  }
  return worst;
}

/// Operands of three types, looked-up rows of a fourth, and a result of its own; what stays on chip
/// may be of any.
constexpr const char* kMixed =
    "name: mixed\ndtype: f32\nloops: {i: 21, j: 37, k: 19}\n"
    "tensors: {table: [50, 37], ids: [21]}\n"
    "dtypes: {A: f16, B: bf16, ids: i32, table: bf16, D: f16}\noperators:\n"
    "  - \"product: C[i,j] += A[i,k] * B[k,j]\"\n"
    "  - \"after: D[i,j] = relu(C[i,j]) + bias[j] + table[ids[i],j]\"\n";

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"gemm-chain:m=37,n=29,k=19,l=45,dtype=bf16", "m n ( l ( k ( C.gemm1 ) C.gemm2 ) )",
       "m=16,n=29,k=19,l=17"},
      {"attention:m=24,l=40,k=16,n=16,online=1,dtype=bf16",
       "m ( l ( k ( C.qk ) C.rowmax C.exp C.rescale n ( C.pv ) C.rowsum ) n ( C.divide ) )",
       "m=8,l=16,k=16,n=16"},
      {"conv-chain:ic=4,h=15,w=18,oc1=6,oc2=5,st1=2,st2=1,k1=3,k2=1,dtype=bf16",
       "h w ( C.conv1 C.conv2 )", "h=3,w=9"},
      {"name: a\ndtype: bf16\nloops: {i: 9, j: 40}\noperators: [\"z[i] += x[i,j]\"]\n",
       "j/20@grid ( C.z S.z!atomic )", ""},
      {"gemm-chain:m=37,n=29,k=19,l=45,dtype=f16", "m n ( l ( k ( C.gemm1 ) C.gemm2 ) )",
       "m=16,n=29,k=19,l=17"},
      {"name: a\ndtype: f16\nloops: {i: 9, j: 40}\noperators: [\"z[i] max= x[i,j]\"]\n",
       "j/20@grid ( C.z S.z!atomic )", ""},
      {kMixed, "i/8 j/16 ( k/19 ( C.product ) C.after )", ""},
      {"name: b\ndtype: bf16\nloops: {i: 9, j: 40}\ndtypes: {x: f64, w: f32}\n"
       "operators: [\"z[i] += x[i,j] * w[j]\"]\n",
       "i/4 j/20 ( C.z )", ""},
  };
  return all;
}

std::vector<cpu::Isa> isas_of_bf16() {
  std::vector<cpu::Isa> isas = testing::isas_here();
  if (cpu::host_runs(cpu::Isa::avx512_bf16)) isas.push_back(cpu::Isa::avx512_bf16);
  return isas;
}

TEST(Bfloat16, ComputesAndCountsEveryKind) {
  const auto machine = testing::worked_machine("scratchpad:1M");
  std::vector<cpu::Source> sources;
  std::vector<Schedule> schedules;
  for (const Case& c : cases())
    for (cpu::Isa isa : isas_of_bf16()) {
      const bool count = isa == cpu::Isa::generic;
      schedules.push_back(schedule_of(c, count ? machine : testing::cached(*machine)));
      auto source =
          cpu::emit(schedules.back(),
                    {.isa = isa, .count = count, .prefix = "k" + std::to_string(sources.size())});
      ASSERT_TRUE(source.ok()) << source.reason();
      EXPECT_THAT(source->notes, ::testing::Contains(HasSubstr("converted")));
      sources.push_back(std::move(source).value());
    }
  auto kernels = cpu::build_all(sources, {.optimisation = "-O0"});
  ASSERT_TRUE(kernels.ok()) << kernels.reason();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    std::vector<TrafficEntry> counted;
    const bool counts = !sources[i].boundaries.empty();
    const double error =
        run(*schedules[i].workload, kernels.value()[i], counts ? &counted : nullptr);
    // An output is rounded once, or once a block that adds to it: half a unit in 2^8 or 2^11 each.
    const Workload& w = *schedules[i].workload;
    const bool half = w.tensor(w.outputs().front()).dtype == DType::f16;
    const bool most = w.name() == "a" && half;  // a maximum is one of the elements
    EXPECT_LT(error, half ? 0x1p-11 : 0x1p-8) << w.name() << " " << cpu::name_of(sources[i].isa);
    if (most) {
      EXPECT_EQ(error, 0) << cpu::name_of(sources[i].isa);
    } else {
      EXPECT_GT(error, half ? 0x1p-15 : 0x1p-12) << "nothing was rounded";
    }
    if (counts) {
      EXPECT_EQ(testing::table(counted), testing::table(exact(schedules[i]).entries));
    }
  }
}

/// Every f16 comes back as it was, and floats become the nearest, whatever they are.
TEST(Float16, ConvertsAsTheReferenceDoes) {
  constexpr std::size_t kAll = 1 << 16;
  const Schedule s = schedule_of(
      {"name: c\ndtype: f16\nloops: {i: 65536}\ndtypes: {x: f32}\noperators: [\"y[i] = x[i]\", "
       "\"z[i] = v[i]\"]\n",
       "i/1000 ( C.y C.z )", ""},
      testing::worked_machine("cache:1M/16"));
  const Workload& w = *s.workload;
  std::mt19937 random(16);
  std::vector<float> x(kAll);
  std::vector<std::uint16_t> v(kAll), y(kAll), z(kAll), wanted(kAll);
  for (std::size_t i = 0; i < kAll; ++i) {
    v[i] = static_cast<std::uint16_t>(i);
    // Random exponents around what f16 has, and halfway between two of its values.
    const std::uint32_t near = (0x33000000u + (random() % 0x15000000u)) | (random() & 0x80000000u);
    const std::uint32_t bits = i % 4 == 0 ? (near & ~0x1fffu) | 0x1000u : near;
    std::memcpy(&x[i], &bits, sizeof bits);
  }
  std::vector<void*> pointers(w.tensors().size());
  for (const auto& [name, data] : std::map<std::string, void*>{
           {"x", x.data()}, {"v", v.data()}, {"y", y.data()}, {"z", z.data()}})
    pointers[w.find_tensor(name)->index()] = data;
  encode_elements(DType::f16, std::vector<double>(x.begin(), x.end()), wanted.data());
  for (const cpu::Isa isa : testing::isas_here()) {
    const auto source = cpu::emit(s, {.isa = isa});
    ASSERT_TRUE(source.ok()) << source.reason();
    // Rows by instructions wherever there are vectors; 1000 is no multiple of theirs.
    EXPECT_EQ(source->text.find("cvtph_ps") != std::string::npos, isa != cpu::Isa::generic);
    auto kernel = cpu::build(*source, {});
    ASSERT_TRUE(kernel.ok()) << kernel.reason();
    std::ranges::fill(y, 0xffff), std::ranges::fill(z, 0xffff);
    kernel.value().run(pointers);
    EXPECT_EQ(y, wanted) << cpu::name_of(isa);
    for (std::size_t i = 0; i < kAll; ++i)
      if ((i & 0x7fff) <= 0x7c00)
        ASSERT_EQ(z[i], v[i]) << cpu::name_of(isa);
      else
        ASSERT_GT(z[i] & 0x7fff, 0x7c00) << cpu::name_of(isa);  // NaN
  }
}

TEST(Bfloat16, ProductsTakePairsWhereTheInstructionSetHasThem) {
  const Case c{"gemm-chain:m=37,n=29,k=19,l=45,dtype=bf16",
               "m n ( l ( k ( C.gemm1 ) C.gemm2 ) )", "m=16,n=29,k=19,l=17"};
  const Schedule s = schedule_of(c, testing::worked_machine("cache:1M/16"));
  const auto source = cpu::emit(s, {.isa = cpu::Isa::avx512_bf16});
  ASSERT_TRUE(source.ok()) << source.reason();
  EXPECT_EQ(source->isa, cpu::Isa::avx512_bf16);
  EXPECT_NE(source->text.find("pairs(Keep{})"), std::string::npos);
  // Both right operands come from home: they are paired once for each tile that is held.
  EXPECT_NE(source->text.find(".is(t_B_L1.held"), std::string::npos);
  EXPECT_NE(source->text.find(".is(t_D_L1.held"), std::string::npos);
  EXPECT_THAT(source->notes, ::testing::Contains(HasSubstr("multiplied as pairs of bf16")));
  const auto plain = cpu::emit(s, {.isa = cpu::Isa::avx512});
  ASSERT_TRUE(plain.ok()) << plain.reason();
  EXPECT_EQ(plain->text.find("dpbf16"), std::string::npos);
  // Of other types it is avx512.
  const Case f32{"gemm-chain:m=37,n=29,k=19,l=45", c.tree, c.tiles};
  const Schedule single = schedule_of(f32, testing::worked_machine("cache:1M/16"));
  EXPECT_EQ(cpu::emit(single, {.isa = cpu::Isa::avx512_bf16})->text.find("dpbf16"),
            std::string::npos);
  if (!cpu::host_runs(cpu::Isa::avx512_bf16))
    GTEST_SKIP() << "this processor has no AVX512-BF16: emitted, not run";
  EXPECT_EQ(cpu::host_isa(DType::bf16), cpu::Isa::avx512_bf16);
  EXPECT_NE(cpu::host_isa(), cpu::Isa::avx512_bf16);
}

}  // namespace
}  // namespace tilewright
