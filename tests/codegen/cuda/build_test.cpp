// Source to cubin: ptxas' figures, nvcc, NVRTC, the cache, and what is said where there is no
// driver.
#include "codegen/cuda/build.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "codegen/cuda/driver.h"
#include "core/base/toolchain.h"
#include "core/lowering/gpu/block_rules.h"
#include "tests/codegen/cuda/hand_written.h"
#include "tests/support/places.h"

namespace tilewright::cuda {
namespace {

using test::hand_written_gemm;
using testing::HasSubstr;
using testing::StartsWith;

// Recorded from nvcc 13.0.88 -Xptxas -v: two kernels, one of which calls a function that is not
// inlined, one of which spills. By hand: the function's own numbers, zero there, so that taking
// them for a kernel's would show.
constexpr const char* kSm90a = R"(ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'plain' for 'sm_90a'
ptxas info    : Function properties for plain
    160 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 34 registers, used 1 barriers, 160 bytes cumulative stack size, 2048 bytes smem
ptxas info    : Compile time = 23.440 ms
ptxas info    : Function properties for _Z6helperPKfi
    24 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Compiling entry function 'spills' for 'sm_90a'
ptxas info    : Function properties for spills
    1144 bytes stack frame, 1224 bytes spill stores, 1280 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 1144 bytes cumulative stack size
ptxas info    : Compile time = 27.830 ms
)";
constexpr const char* kSm80 = R"(ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'plain' for 'sm_80'
ptxas info    : Function properties for plain
    160 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 160 bytes cumulative stack size, 2048 bytes smem, 364 bytes cmem[0]
ptxas info    : Compile time = 13.162 ms
)";

TEST(Ptxas, RecordedOutput) {
  const auto k = figures_from_ptxas(kSm90a);
  ASSERT_EQ(k.size(), 2u);
  EXPECT_EQ(k[0], (KernelFigures{.symbol = "plain",
                                 .registers = 34,
                                 .stack_bytes = 160,
                                 .static_shared_bytes = 2048,
                                 .barriers = 1}));
  EXPECT_EQ(k[1], (KernelFigures{.symbol = "spills",
                                 .registers = 32,
                                 .stack_bytes = 1144,
                                 .spill_store_bytes = 1224,
                                 .spill_load_bytes = 1280,
                                 .barriers = 1}));
  const auto older = figures_from_ptxas(kSm80);
  ASSERT_EQ(older.size(), 1u);
  EXPECT_EQ(older[0].registers, 40);
  EXPECT_EQ(older[0].constant_bytes, 364);
}

TEST(Ptxas, AnythingElseIsPassedOver) {
  EXPECT_TRUE(figures_from_ptxas("").empty());
  EXPECT_TRUE(figures_from_ptxas("Used 3 registers\n 8 bytes stack frame").empty());
  EXPECT_TRUE(figures_from_ptxas("Compiling entry function 'unfinished").empty());
  // Every prefix of real output is read without going past its end.
  const std::string_view whole = kSm90a;
  for (std::size_t n = 0; n <= whole.size(); ++n)
    EXPECT_LE(figures_from_ptxas(std::string(whole.substr(0, n))).size(), 2u);
}

TEST(Headers, AreTheFilesByteForByte) {
  std::size_t there = 0;
  const std::string folder = tilewright::test::in_sources("codegen/cuda/device");
  for (const auto& file : std::filesystem::directory_iterator(folder))
    there += file.path().filename().string().starts_with("tilewright_") ? 1 : 0;
  ASSERT_EQ(device_headers().size(), there);
  for (const DeviceHeader& h : device_headers()) {
    const std::string text = text_of(folder + "/" + std::string(h.name));
    ASSERT_FALSE(text.empty()) << h.name;
    EXPECT_EQ(h.text, text) << h.name;
    EXPECT_EQ(h.text.data()[h.text.size()], '\0');
  }
}

// Kernels of blocks are priced by how many elements a copy takes at once.
TEST(Headers, ElementsAtOnceAreThoseOfThePrices) {
  bool found = false;
  const std::string line =
      "#define TW_ELEMENTS_AT_ONCE " + std::to_string(lowering::kElementsAtOnce) + "\n";
  for (const DeviceHeader& h : device_headers())
    found |= h.text.find(line) != std::string_view::npos;
  EXPECT_TRUE(found) << line;
}

TEST(Architecture, ByComputeCapability) {
  EXPECT_EQ(architecture_of(9, 0), "sm_90a");
  EXPECT_EQ(architecture_of(8, 0), "sm_80");
  EXPECT_EQ(architecture_of(8, 6), "sm_80");
  EXPECT_THROW(build(hand_written_gemm(16, 16, 16), {.architecture = "sm_80 -o x"}), InputError);
  EXPECT_THROW(build(hand_written_gemm(16, 16, 16), {.architecture = ""}), InputError);
}

class Builders : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string builder = GetParam();
    if (builder == "nvcc" && find_nvcc().empty()) GTEST_SKIP() << "no nvcc here";
    if (builder == "nvrtc" && !nvrtc_version()) GTEST_SKIP() << nvrtc_version().reason();
  }
};

TEST_P(Builders, BuildsForBothArchitectures) {
  for (const char* architecture : {"sm_80", "sm_90a"}) {
    const auto b =
        build(hand_written_gemm(40, 24, 33), {.architecture = architecture, .builder = GetParam()});
    ASSERT_TRUE(b) << b.reason();
    EXPECT_THAT(b->cubin, StartsWith("\x7f"
                                     "ELF"));
    EXPECT_THAT(b->builder, HasSubstr(std::string(GetParam()) == "nvcc" ? "nvcc " : "NVRTC "));
    ASSERT_EQ(b->kernels.size(), 1u) << architecture;
    EXPECT_EQ(b->kernels[0].symbol, "gemm");
    EXPECT_GT(b->kernels[0].registers, 8);
    EXPECT_EQ(b->kernels[0].spill_store_bytes, 0);
    EXPECT_GT(b->seconds, 0);
  }
}

TEST_P(Builders, AnErrorIsItsFirstLine) {
  Source wrong = hand_written_gemm(16, 16, 16);
  wrong.text += "extern \"C\" __global__ void bad() { undeclared(); }\n";
  const auto b = build(wrong, {.builder = GetParam()});
  ASSERT_FALSE(b);
  EXPECT_THAT(b.reason(), HasSubstr("undeclared"));
  EXPECT_EQ(b.reason().find('\n'), std::string::npos);
}

TEST_P(Builders, TheCacheGivesTheSameBack) {
  const TemporaryDirectory folder;
  const BuildOptions options{.builder = GetParam(), .cache = folder.path()};
  const auto first = build(hand_written_gemm(32, 32, 32), options);
  const auto again = build(hand_written_gemm(32, 32, 32), options);
  const auto other = build(hand_written_gemm(32, 32, 48), options);
  ASSERT_TRUE(first && again && other);
  EXPECT_EQ(again->seconds, 0);
  EXPECT_GT(other->seconds, 0);
  EXPECT_EQ(again->cubin, first->cubin);
  EXPECT_EQ(again->builder, first->builder);
  EXPECT_EQ(again->kernels, first->kernels);
  EXPECT_NE(other->cubin, first->cubin);
}

INSTANTIATE_TEST_SUITE_P(All, Builders, testing::Values("nvcc", "nvrtc"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Driver, SaysWhyThereIsNoDevice) {
  const auto device = Device::open();
  if (device) GTEST_SKIP() << "there is a device here: " << device.value()->info().name;
  EXPECT_THAT(device.reason(), testing::ContainsRegex("driver|device"));
  EXPECT_EQ(Device::describe().reason(), device.reason());
}

TEST(Driver, Versions) {
  EXPECT_EQ(version_text(13000), "13.0");
  EXPECT_EQ(version_text(12040), "12.4");
}

}  // namespace
/// An ELF file with sections of these names and sizes.
std::string elf_of(const std::vector<std::pair<std::string, std::uint64_t>>& sections) {
  std::string names(1, '\0');
  std::vector<Elf64_Shdr> heads(1 + sections.size());
  for (std::size_t i = 0; i < sections.size(); ++i) {
    heads[1 + i].sh_name = static_cast<Elf64_Word>(names.size());
    heads[1 + i].sh_size = sections[i].second;
    names += sections[i].first + '\0';
  }
  heads[0].sh_offset = sizeof(Elf64_Ehdr);
  Elf64_Ehdr head{};
  std::memcpy(head.e_ident, ELFMAG, SELFMAG);
  head.e_ident[EI_CLASS] = ELFCLASS64;
  head.e_shoff = sizeof head + names.size();
  head.e_shnum = static_cast<Elf64_Half>(heads.size());
  head.e_shstrndx = 0;
  std::string text(reinterpret_cast<const char*>(&head), sizeof head);
  text += names;
  text.append(reinterpret_cast<const char*>(heads.data()), heads.size() * sizeof heads[0]);
  return text + std::string(4096, '\0');
}

TEST(CodeBytes, AreOfTheKernelsSections) {
  const std::string cubin =
      elf_of({{".text.first", 512}, {".nv.info", 900}, {".text.second", 128}});
  EXPECT_EQ(code_bytes(cubin), 640);
  EXPECT_EQ(code_bytes(elf_of({{".text", 512}})), 0);
  EXPECT_EQ(code_bytes("no file of this kind"), 0);
  for (std::size_t n = 0; n + 4096 < cubin.size(); ++n)
    EXPECT_EQ(code_bytes(cubin.substr(0, n)), 0) << n;
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {  // whatever stands there, it is read within the file
    std::string other = cubin;
    for (int j = 0; j < 4; ++j) other[random() % 600] = static_cast<char>(random());
    EXPECT_GE(code_bytes(other), 0);
  }
}

}  // namespace tilewright::cuda
