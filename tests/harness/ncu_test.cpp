// From plans to counted kernels: the command, a stand-in for ncu that starts it, and a stand-in for
// the driver (fake_cuda/) that says what was launched while it counted. nvcc is stood in for too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/base/toolchain.h"
#include "harness/measure_ncu.h"
#include "harness/verbs.h"
#include "tests/support/places.h"

namespace tilewright::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Prints a table after the tool's documentation: of every launch that the driver has seen, bytes
// that tell the settings of the cache control apart.
constexpr const char* kNcu = R"(#!/bin/sh
if [ "$1" = --query-metrics ]; then
  for m in dram__bytes_read dram__bytes_write l1tex__m_xbar2l1tex_read_bytes \
           l1tex__m_l1tex2xbar_write_bytes; do echo "$m  Counter byte text"; done
  exit 0
fi
[ "$TILEWRIGHT_FAKE_NCU" = broken ] && { echo "==ERROR== ERR_NVGPUCTRPERM"; exit 1; }
while [ $# -gt 0 ]; do
  case "$1" in
    --log-file) log=$2; shift 2 ;;
    --cache-control) [ "$2" = all ] && bytes=2,000 || bytes=1,000; shift 2 ;;
    --csv) shift ;;
    --*) shift 2 ;;
    *) break ;;
  esac
done
export TILEWRIGHT_FAKE_LAUNCHES="$log.launches"
: > "$TILEWRIGHT_FAKE_LAUNCHES"
"$@"; status=$?
{ echo '==PROF== Connected to process 1'
  printf '"ID","Kernel Name","Grid Size","dram__bytes_read.sum","dram__bytes_write.sum",'
  echo '"l1tex__m_xbar2l1tex_read_bytes.sum","l1tex__m_l1tex2xbar_write_bytes.sum"'
  echo '"","","","byte","byte","byte","byte"'
  while read -r name blocks; do
    echo "\"0\",\"$name(const void *)\",\"($blocks, 1, 1)\",\"$bytes\",\"7\",\"5,000\",\"8\""
  done < "$TILEWRIGHT_FAKE_LAUNCHES"
} > "$log"
exit $status
)";
constexpr const char* kNvcc = R"(#!/bin/sh
[ "$1" = --version ] && { echo "Cuda compilation tools, release 13.0, V13.0.88"; exit 0; }
echo built >> "$TILEWRIGHT_FAKE_BUILDS"
while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done
printf '\177ELF' > "$out"
)";

class Ncu : public testing::Test {
 protected:
  void SetUp() override {
    script("ncu", kNcu);
    script("nvcc", kNvcc);
    fs::create_symlink(test::in_build("tilewright"), path("tilewright"));
    const char* before = std::getenv("PATH");
    setenv("PATH", (folder_.path().string() + ":" + (before ? before : "")).c_str(), 1);
    setenv("LD_LIBRARY_PATH", test::in_build("tests/harness/fake_cuda").c_str(), 1);
    setenv("TILEWRIGHT_FAKE_CUDA", "any", 1);
    setenv("TILEWRIGHT_FAKE_BUILDS", path("builds").c_str(), 1);
    request_.subject = "gemm:m=40,n=24,k=33,dtype=f16";
    request_.machine = "h200";
    request_.threads = 2;
    request_.tree = "m/16@grid n/16@grid ( k/16 ( L.A L.B C.gemm ) S.C )";
    options_ = {.target = "cuda", .meter = "ncu"};
  }
  void script(const char* name, const char* text) {
    std::ofstream(path(name)) << text;
    fs::permissions(path(name), fs::perms::owner_all);
  }
  std::string path(const char* name) const { return (folder_.path() / name).string(); }
  std::string batch(const std::string& lines) const {
    std::ofstream(path("batch")) << lines;
    return path("batch");
  }
  std::int64_t builds() const {
    const std::string text = text_of(path("builds"));
    return std::count(text.begin(), text.end(), '\n');
  }

  TemporaryDirectory folder_;
  Request request_;
  MeasureOptions options_;
};

TEST_F(Ncu, MeasuresAPlan) {
  const Answer answer = measure(request_, options_);
  ASSERT_TRUE(answer.ok()) << answer.json.dump(1);
  EXPECT_EQ(answer.json["by"], "ncu");
  EXPECT_EQ(answer.json["source"], "measured");
  EXPECT_TRUE(answer.json["verified"]);
  const ordered_json& counted = answer.json["counted"];
  EXPECT_EQ(counted["all"]["launches"][0]["dram__bytes_read.sum"], 2000);
  EXPECT_EQ(counted["none"]["launches"][0]["dram__bytes_read.sum"], 1000);
  EXPECT_EQ(counted["all"]["traffic"][1]["boundary"], "L2/shared");
  EXPECT_EQ(counted["all"]["traffic"][1]["read_bytes"], 5000);
  // Blocks of 16 x 16 load 3 x 2 times whole rows of A and columns of B, edges clipped.
  EXPECT_EQ(answer.json["predicted"]["exact"]["read_bytes"], 2 * (2 * 40 * 33 + 3 * 33 * 24));
  EXPECT_EQ(answer.json["predicted"]["exact"]["written_bytes"], 2 * 40 * 24);
  EXPECT_EQ(answer.json["predicted"]["kernels"], 1);
  EXPECT_EQ(answer.json["predicted"]["each_kernel_once"]["read_bytes"], 2 * (40 * 33 + 33 * 24));
  EXPECT_EQ(answer.json["predicted"]["each_kernel_once"]["written_bytes"], 2 * 40 * 24);
  EXPECT_EQ(builds(), 1) << "the child builds again what was built";
}

TEST_F(Ncu, TellsTheKernelsOfABatchApart) {
  const Answer answer = measure_batch(request_, options_, batch(R"json({"name": "first"}
{"name": "wide", "tree": "m/16@grid ( k/16 ( L.A L.B C.gemm ) S.C )"}
{"name": "too large", "tiles": "m=4000"}
)json"),
                                      path("answers"));
  ASSERT_TRUE(answer.ok()) << answer.json.dump(1);
  const ordered_json& results = answer.json["results"];
  ASSERT_EQ(results.size(), 3U);
  EXPECT_EQ(results[0]["counted"]["all"]["launches"][0]["blocks"], 6);
  EXPECT_EQ(results[1]["counted"]["all"]["launches"][0]["blocks"], 3);
  EXPECT_EQ(results[1]["counted"]["none"]["launches"][0]["kernel"], "p1_0");
  EXPECT_THAT(results[2]["reason"].get<std::string>(), HasSubstr("4000"));
  EXPECT_EQ(builds(), 2);
  const std::string text = text_of(path("answers"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_THAT(answer.json["metrics_refused"].dump(),
              AllOf(HasSubstr("lts__"), HasSubstr("mem_dshared")));
}

TEST_F(Ncu, SaysWhatAnotherProgramThatLaunchesMustKnow) {
  request_.tree.reset();
  std::ofstream(path("plan.yaml")) << R"yaml(workload: "gemm-chain:m=40,n=24,k=33,l=16,dtype=f16"
machine: h200
kernels:
  - {tree: "m/16@grid l/16@grid ( k/16 ( L.A L.B C.gemm1 ) S.C )"}
  - {tree: "m/16@grid n/16@grid ( l/16 ( L.C L.D C.gemm2 ) S.E )"}
)yaml";
  request_.subject = path("plan.yaml");
  request_.target_options["cache"] = {path("cache")};
  Job job = job_of(request_, {.target = "cuda", .build_only = true});
  emit_job(job);
  add_predictions(job);
  build_job(job);
  ASSERT_FALSE(job.refusal) << *job.refusal;
  // C goes home and comes back.
  EXPECT_EQ(job.json["predicted"]["kernels"], 2);
  EXPECT_EQ(job.json["predicted"]["each_kernel_once"]["read_bytes"],
            2 * (40 * 33 + 33 * 16 + 40 * 16 + 16 * 24));
  EXPECT_EQ(job.json["predicted"]["each_kernel_once"]["written_bytes"], 2 * (40 * 16 + 40 * 24));
  EXPECT_EQ(job.json["launches"][0]["tensors"].size(), 3U);
  EXPECT_THAT(job.json["launches"][1]["tensors"], ::testing::UnorderedElementsAre("C", "D", "E"));
  EXPECT_EQ(job.json["tensor_elements"]["C"], 40 * 16);
  EXPECT_TRUE(fs::exists(job.json["cubin"].get<std::string>()));
}

TEST_F(Ncu, CountsNothingThatIsWrong) {
  setenv("TILEWRIGHT_FAKE_CUDA", "any,wrong", 1);
  const Answer answer = measure(request_, options_);
  EXPECT_FALSE(answer.ok());
  EXPECT_FALSE(answer.json.contains("counted"));
  EXPECT_THAT(answer.json["reason"].get<std::string>(), HasSubstr("verification failed"));
}

TEST_F(Ncu, SaysWhatTheToolSays) {
  setenv("TILEWRIGHT_FAKE_NCU", "broken", 1);
  const Answer answer = measure(request_, options_);
  unsetenv("TILEWRIGHT_FAKE_NCU");
  EXPECT_FALSE(answer.ok());
  EXPECT_THAT(answer.json["reason"].get<std::string>(), HasSubstr("ERR_NVGPUCTRPERM"));
}

TEST_F(Ncu, OfAnotherTargetIsRefused) {
  options_.target = "cpu";
  request_.tree.reset(), request_.order = "mnk", request_.machine = "host";
  const Answer answer = measure(request_, options_);
  EXPECT_THAT(answer.json["reason"].get<std::string>(), HasSubstr("target cuda"));
}

}  // namespace
}  // namespace tilewright::harness
