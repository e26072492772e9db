// Nsight Compute's tables become launches, and launches bytes at the right boundaries.
//
// The tables are written by hand after the tool's documentation ("Nsight Compute CLI, CSV output"
// and "Metrics"): the machine that this was written on has no GPU to record from.
#include "profilers/ncu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/machine/machine.h"

namespace tilewright::profilers {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kTable =
    "==PROF== Connected to process 7 (/usr/bin/tilewright)\n"
    "==PROF== Profiling \"p0_0\" - 0: 0%....50%....100% - 4 passes\n"
    "==PROF== Disconnected from process 7\n"
    "\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Context\",\"Stream\","
    "\"Block Size\",\"Grid "
    "Size\",\"Device\",\"CC\",\"dram__bytes_read.sum\",\"dram__bytes_write.sum\","
    "\"gpu__time_duration.sum\",\"l1tex__m_l1tex2xbar_write_bytes.sum\","
    "\"l1tex__m_xbar2l1tex_read_bytes.sum\"\n"
    "\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"byte\",\"Kbyte\",\"usecond\","
    "\"byte\",\"byte\"\n"
    "\"0\",\"7\",\"tilewright\",\"127.0.0.1\",\"p0_0(const __half *, const __half "
    "*)\",\"1\",\"13\","
    "\"(256, 1, 1)\",\"(6, 1, "
    "1)\",\"0\",\"9.0\",\"1,048,576\",\"2.5\",\"12.25\",\"4096\",\"3,000,000\"\n"
    "\"1\",\"7\",\"tilewright\",\"127.0.0.1\",\"p0_1\",\"1\",\"13\","
    "\"(256, 1, 1)\",\"(1,024, 1, 1)\",\"0\",\"9.0\",\"24\",\"0\",\"0.75\",\"n/a\",\"8\"\n";

TEST(NcuTable, IsReadWithItsUnits) {
  const auto launches = ncu_launches(kTable);
  ASSERT_TRUE(launches) << launches.reason();
  ASSERT_EQ(launches->size(), 2U);
  const NcuLaunch& first = launches->front();
  EXPECT_EQ(first.kernel, "p0_0");
  EXPECT_EQ(first.blocks, 6);
  EXPECT_EQ(first.metrics.at("dram__bytes_read.sum"), 1048576);
  EXPECT_EQ(first.metrics.at("dram__bytes_write.sum"), 2500);
  EXPECT_DOUBLE_EQ(first.metrics.at("gpu__time_duration.sum"), 12.25e-6);
  EXPECT_EQ(first.metrics.at("l1tex__m_xbar2l1tex_read_bytes.sum"), 3000000);
  EXPECT_THAT(first.missing, ElementsAre());
  EXPECT_THAT(launches->back().missing, ElementsAre("l1tex__m_l1tex2xbar_write_bytes.sum"));
}

TEST(NcuTable, SaysWhyThereIsNone) {
  EXPECT_EQ(ncu_launches("").reason(), "ncu has printed no table");
  EXPECT_THAT(
      ncu_launches("==PROF== Connected\n==ERROR== ERR_NVGPUCTRPERM - The user does not have "
                   "permission to access NVIDIA GPU Performance Counters\n")
          .reason(),
      HasSubstr("ncu: ERR_NVGPUCTRPERM"));
  EXPECT_THAT(ncu_launches("\"ID\",\"Name\"\n").reason(), HasSubstr("Kernel Name"));
  EXPECT_THAT(ncu_launches("\"ID\",\"Kernel Name\"\n\"0\",\"a\",\"b\"\n").reason(),
              HasSubstr("a row of 3 cells under 2 names"));
  EXPECT_THAT(ncu_launches("\"ID\",\"Kernel Name\"\n\"0\",\"a\n").reason(),
              HasSubstr("not closed"));
}

TEST(NcuTable, NumbersAreWholeOrNone) {
  const auto value = [](const std::string& text) {
    const auto launches = ncu_launches(
        "\"ID\",\"Kernel Name\",\"dram__bytes_read.sum\"\n\"0\",\"k\",\"" + text + "\"\n");
    return launches && launches->front().metrics.contains("dram__bytes_read.sum")
               ? launches->front().metrics.at("dram__bytes_read.sum")
               : -1;
  };
  EXPECT_EQ(value("0"), 0);
  EXPECT_EQ(value("1,234,567.5"), 1234567.5);
  for (const char* text :
       {"", "n/a", "1,23", ",123", "12,3456", "1.2.3", "inf", "nan", "7 B", "1.5,000"})
    EXPECT_EQ(value(text), -1) << text;
}

TEST(NcuTable, KeepsOnlyWhatIsAskedFor) {
  const auto launches = ncu_launches(
      "\"ID\",\"Kernel "
      "Name\",\"device__attribute_l2\",\"dram__bytes_read.sum\",\"dram__bytes_read.avg\"\n"
      "\"0\",\"k\",\"7\",\"8\",\"9\"\n");
  ASSERT_TRUE(launches) << launches.reason();
  EXPECT_THAT(launches->front().metrics, ElementsAre(std::pair("dram__bytes_read.sum", 8.0)));
}

TEST(NcuLaunches, AreTheOnesThatWereEmittedInTheirOrder) {
  std::vector<NcuLaunch> all(4);
  all[0].kernel = "p1_0", all[1].kernel = "p11_0", all[2].kernel = "p1_1", all[3].kernel = "other";
  const std::vector<std::string> own = {"p1_0", "p1_1"}, reversed = {"p1_1", "p1_0"},
                                 absent = {"p2_0"};
  const auto found = ncu_launches_of(all, own);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->size(), 2U);
  EXPECT_THAT(ncu_launches_of(all, reversed).reason(), HasSubstr("p1_0 where p1_1 is launched"));
  EXPECT_THAT(ncu_launches_of(all, absent).reason(), HasSubstr("0 launches of its kernels"));
}

TEST(NcuTraffic, IsBetweenTheLevelsOfTheMachine) {
  const Machine h200 = named_machine("h200");
  auto launches = ncu_launches(kTable).value();
  const Traffic partial = ncu_traffic(launches, h200);
  EXPECT_EQ(partial.total("DRAM/L2").read, Bytes(1048600));
  EXPECT_EQ(partial.total("DRAM/L2").written, Bytes(2500));
  EXPECT_THAT(partial.unavailable.at("L2/shared"),
              HasSubstr("l1tex__m_l1tex2xbar_write_bytes.sum"));
  launches.pop_back();
  const Traffic whole = ncu_traffic(launches, h200);
  EXPECT_EQ(whole.total("L2/shared").read, Bytes(3000000));
  EXPECT_EQ(whole.total("L2/shared").written, Bytes(4096));
  EXPECT_EQ(whole.source, Source::measured);
  EXPECT_DOUBLE_EQ(*whole.seconds, 12.25e-6);
}

TEST(NcuTraffic, OfBlocksOfAClusterIsNotOfL2) {
  const auto launches = ncu_launches(
      "\"ID\",\"Kernel Name\",\"dram__bytes_read.sum\",\"dram__bytes_write.sum\","
      "\"l1tex__m_xbar2l1tex_read_bytes.sum\",\"l1tex__m_l1tex2xbar_write_bytes.sum\","
      "\"l1tex__m_xbar2l1tex_read_bytes_mem_dshared.sum\","
      "\"l1tex__m_l1tex2xbar_write_bytes_mem_dshared.sum\","
      "\"l1tex__m_xbar2l1tex_read_bytes_mem_dshared_op_ld.sum\"\n"
      "\"0\",\"k\",\"1\",\"2\",\"5000\",\"900\",\"1100\",\"800\",\"1000\"\n"
      "\"1\",\"k\",\"1\",\"2\",\"70\",\"9\",\"0\",\"0\",\"0\"\n");
  ASSERT_TRUE(launches) << launches.reason();
  const Traffic t = ncu_traffic(*launches, named_machine("h100"));
  EXPECT_EQ(t.total("L2/shared").read, Bytes(5070 - 1100));
  EXPECT_EQ(t.total("L2/shared").written, Bytes(909 - 800));
  EXPECT_EQ(t.total("cluster/shared").read, Bytes(1000));
  EXPECT_EQ(t.total("cluster/shared").written, Bytes(0));
}

TEST(NcuMetrics, AreFoundInWhatTheToolLists) {
  const auto listed = ncu_listed(
      "Device NVIDIA H200 (GH100)\n"
      "--------------------------- ---------- ---- -----------------------\n"
      "Metric Name                 Metric Type Unit Metric Description\n"
      "dram__bytes_read            Counter    byte # of bytes read from DRAM\n"
      "  lts__t_sectors_op_read    Counter    sector\n");
  EXPECT_THAT(listed, ElementsAre("dram__bytes_read", "lts__t_sectors_op_read"));
  const auto words = ncu_command("/bin/ncu", {.known = {"a__b.sum", "c__d.sum"}},
                                 CacheControl::none, "/tmp/log", {"child", "--count"});
  EXPECT_THAT(words, Contains("a__b.sum,c__d.sum"));
  EXPECT_THAT(words, Contains("none"));
  EXPECT_EQ(words.back(), "--count");
}

}  // namespace
}  // namespace tilewright::profilers
