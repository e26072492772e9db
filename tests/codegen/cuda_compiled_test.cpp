// Every family of emitted CUDA kernels through NVIDIA's compiler: all compile for sm_80 and sm_90a,
// and ptxas is given no address of shared memory that a loop steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>

#include "codegen/cuda/build.h"
#include "core/base/toolchain.h"
#include "core/machine/machine.h"
#include "core/workload/text.h"
#include "tests/codegen/cuda_families.h"

namespace tilewright {
namespace {

using testing::family_cases;
using testing::FamilyCase;
using testing::products_of_a_row;
using testing::schedule_of;

/// Registers of a kernel in PTX that have an address of its shared memory, are stepped by a loop,
/// and from which others were computed before that loop: ptxas takes those to move along. Of the
/// address itself, which PTX makes anew wherever it is used, every step.
std::vector<std::string> stepped_addresses(const std::string& ptx) {
  std::vector<std::string> lines, found;
  std::istringstream text(ptx);
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  const auto words_of = [](std::string line) {
    std::ranges::replace(line, ',', ' ');
    std::ranges::replace(line, ';', ' ');
    std::istringstream in(line);
    std::vector<std::string> words(5);
    for (std::string& w : words) in >> w;
    return words;
  };
  std::map<std::string, std::size_t> labels;
  for (std::size_t i = 0; i < lines.size(); ++i)
    if (lines[i].starts_with("$L")) labels[lines[i].substr(0, lines[i].find(':'))] = i;
  /// Where the loop around a line begins: what the next jump back goes to.
  const auto loop_of = [&](std::size_t line) {
    for (std::size_t i = line; i < lines.size(); ++i) {
      const std::size_t at = lines[i].find("$L");
      if (lines[i].find("bra") == std::string::npos || at == std::string::npos) continue;
      const auto label = labels.find(lines[i].substr(at, lines[i].find(';') - at));
      if (label != labels.end() && label->second < line) return label->second;
    }
    return std::size_t{0};
  };
  const char* const makes[] = {"add.", "mov.", "mad.", "sub.", "or.", "xor.", "and."};
  std::string kernel;
  std::set<std::string> roots;
  std::map<std::string, std::vector<std::size_t>> addresses;  // what is computed from each, where
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto words = words_of(lines[i]);
    if (lines[i].find(".entry") != std::string::npos) {
      addresses.clear(), roots.clear();
      kernel = lines[i];
    }
    if (words[0].starts_with("mov.") && words[2].starts_with("memory")) {
      addresses[words[1]], roots.insert(words[1]);
    } else if (words[0].starts_with("add.") && words[1] == words[2] &&
               addresses.contains(words[1])) {
      const std::size_t loop = loop_of(i);
      if (roots.contains(words[1]) ||
          std::ranges::any_of(addresses[words[1]], [&](std::size_t at) { return at < loop; }))
        found.push_back(kernel + ": " + lines[i]);
    } else if (std::ranges::any_of(makes, [&](const char* m) { return words[0].starts_with(m); })) {
      for (std::size_t from : {2, 3, 4})
        if (addresses.contains(words[from])) {
          addresses[words[from]].push_back(i);
          addresses[words[1]];
        }
    }
  }
  return found;
}

TEST(CudaFamilies, SteppedAddressesAreFound) {
  EXPECT_EQ(stepped_addresses(".visible .entry k(\n mov.u32 \t%r1, memory_begin;\n"
                              " add.s32 \t%r2, %r1, 16;\n add.s32 \t%r1, %r1, 64;\n")
                .size(),
            1);
  const std::string loop =
      ".visible .entry k(\n mov.u32 \t%r1, memory_begin;\n add.s32 \t%r2, %r1, %r9;\n";
  const std::string step = " add.s32 \t%r2, %r2, 64;\n @%p1 bra \t$L__BB0_1;\n";
  const std::string other = " add.s32 \t%r3, %r2, 128;\n";
  EXPECT_EQ(stepped_addresses(loop + other + "$L__BB0_1:\n" + step).size(), 1);
  EXPECT_EQ(stepped_addresses(loop + "$L__BB0_1:\n" + other + step).size(), 0);
  const std::string multiplied = " mad.lo.s32 \t%r3, %r8, 128, %r2;\n";
  EXPECT_EQ(stepped_addresses(loop + multiplied + "$L__BB0_1:\n" + step).size(), 1);
}

/// A tile without dimensions, of which nothing is kept.
std::string scalar_that_slides() {
  const auto w = std::make_shared<const Workload>(workload_from_yaml(
      "name: scalar\nloops: {i: 32, j: 8}\noperators: ['D[i,j] = a[i] + b[]']\n", "test"));
  Kernel kernel{.name = "scalar", .tree = parse_tree("i/4@grid j/2 ( C.D )")};
  kernel.flags["b"].sliding = true;
  const auto s =
      resolve({.kernels = {kernel}}, w, std::make_shared<const Machine>(named_machine("a100")));
  EXPECT_TRUE(s) << s.reason();
  const auto source = cuda::emit(*s, {.prefix = "scalar"});
  EXPECT_TRUE(source) << source.reason();
  EXPECT_NE(source->text.find("keep_shared<0>"), std::string::npos);
  return source->text;
}

/// One call of the compiler for both: its front end takes most of the time.
TEST(CudaFamilies, CompileForBothArchitecturesAndStepNoAddress) {
  const std::filesystem::path nvcc = cuda::find_nvcc();
  if (nvcc.empty()) GTEST_SKIP() << "SKIPPED: no nvcc";
  const TemporaryDirectory folder;
  for (const auto& h : cuda::device_headers()) std::ofstream(folder.path() / h.name) << h.text;
  std::ofstream file(folder.path() / "all.cu");
  std::vector<FamilyCase> all = family_cases();
  all.push_back(products_of_a_row());
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].options.prefix = "k" + std::to_string(i);
    auto source = cuda::emit(schedule_of(all[i]), all[i].options);
    ASSERT_TRUE(source) << all[i].name << ": " << source.reason();
    file << source->text;
  }
  file << scalar_that_slides();
  file.close();
  const std::string dir = folder.path().string();
  const auto failed = run_program({nvcc.string(),
                                   "-std=c++17",
                                   "-O3",
                                   "-w",
                                   "-lineinfo",
                                   "-I",
                                   dir,
                                   "-gencode",
                                   "arch=compute_80,code=sm_80",
                                   "-gencode",
                                   "arch=compute_90a,code=sm_90a",
                                   "-Xptxas",
                                   "-v",
                                   "--keep",
                                   "--keep-dir",
                                   dir,
                                   "-fatbin",
                                   "-o",
                                   dir + "/all.fatbin",
                                   dir + "/all.cu"},
                                  folder.path() / "log");
  ASSERT_FALSE(failed) << failed->text;
  const auto figures = cuda::figures_from_ptxas(text_of(folder.path() / "log"));
  EXPECT_GE(figures.size(), 2 * all.size());
  std::int64_t spilled = 0;
  for (const auto& k : figures) spilled += k.spill_store_bytes;
  std::cout << figures.size() << " kernels, " << spilled << " bytes of registers spilled in all\n";
  const std::string ptx = text_of(folder.path() / "all.compute_90a.ptx");
  EXPECT_GT(ptx.size(), 100000u);
  EXPECT_THAT(stepped_addresses(ptx), ::testing::IsEmpty());
}

}  // namespace
}  // namespace tilewright
