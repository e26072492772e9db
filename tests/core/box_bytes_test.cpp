// What copies of boxes bring into the SMs, beside what an H100 counted of drawn kernels
// (experiments/gpu/hopper_bytes).
#include "core/lowering/gpu/box_bytes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "core/workload/text.h"
#include "tests/support/places.h"

namespace tilewright::lowering {
namespace {

Schedule schedule_of(const std::string& name) {
  const std::size_t kind = name.find(": ") + 2, space = name.find(' ', kind),
                    cluster = name.find(" cluster ", space);
  Kernel k{.name = "k", .tree = parse_tree(name.substr(space + 1, cluster - space - 1))};
  if (cluster != std::string::npos) k.launch.cluster = std::stoi(name.substr(cluster + 9));
  auto s =
      resolve({.kernels = {k}},
              std::make_shared<const Workload>(named_workload(name.substr(kind, space - kind))),
              std::make_shared<const Machine>(named_machine("h100")));
  if (!s) throw std::runtime_error(s.reason() + name);
  return std::move(s).value();
}

TEST(BoxBytes, AreThoseThatWereCounted) {
  std::ifstream file(test::in_sources("experiments/results/h100-hopper-bytes.json"));
  int equal = 0, alone = 0, rows = 0;
  const auto document = nlohmann::json::parse(file);
  for (const auto& row : document["rows"]) {
    if (!row.contains("metrics")) continue;
    const std::string metric = "l1tex__m_xbar2l1tex_read_bytes", name = row["name"];
    const double counted = row["metrics"][metric + ".sum"].get<double>() -
                           row["metrics"][metric + "_mem_dshared.sum"].get<double>();
    const auto bytes = box_bytes(schedule_of(name));
    ASSERT_TRUE(bytes) << bytes.reason() << "\n" << name;
    ++rows;
    const bool same = static_cast<double>(*bytes) == counted;
    equal += same;
    if (!row["name"].get<std::string>().starts_with("shared operands")) {
      ++alone;
      EXPECT_EQ(static_cast<double>(*bytes), counted) << name;
    }
    EXPECT_NEAR(static_cast<double>(*bytes) / counted, 1, 0.025) << name;
    if (!same && std::getenv("TILEWRIGHT_SHOW") != nullptr)
      std::cout << name << ": " << *bytes << " and " << counted << "\n";
  }
  EXPECT_EQ(rows, 100);
  EXPECT_EQ(alone, 75);
  // One of the clusters that were counted shares its operands in another way now.
  EXPECT_GE(equal, 95);
}

TEST(BoxBytes, AreOfBoxesAlone) {
  const auto bytes = box_bytes(
      schedule_of("of: gemm:m=64,n=64,k=40,dtype=f32 m/64@grid n/64@grid ( k/40 ( C.gemm ) S.C )"));
  EXPECT_FALSE(bytes) << "f32 is no operand of wgmma";
}

}  // namespace
}  // namespace tilewright::lowering
