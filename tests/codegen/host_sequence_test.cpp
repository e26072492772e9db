// Launches of the host one after the other: the working memory that they share.
#include "codegen/common/host_sequence.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace tilewright::codegen {
namespace {

/// Needs so much working memory a thread, and keeps what it is given.
class Scratched final : public TargetKernel {
 public:
  Scratched(std::int64_t bytes, int threads) : bytes_(bytes), threads_(threads) {}
  bool needs(TensorId) const override { return false; }
  std::optional<Reason> write(TensorId, const void*) override { return std::nullopt; }
  std::optional<Reason> read(TensorId, void*) override { return std::nullopt; }
  Result<double> run() override { return 0.0; }
  int threads() const override { return threads_; }
  std::int64_t scratch_bytes() const override { return bytes_; }
  void share_scratch(std::shared_ptr<void> memory, std::int64_t bytes) override {
    memory_ = std::move(memory), stride_ = bytes;
  }
  std::unique_ptr<BoundKernel> bound() override {
    struct Bound final : BoundKernel {
      explicit Bound(Scratched& kernel) : of(kernel), memory(kernel.memory_) {}
      void run(int thread, int, int) override {  // all of its own part
        EXPECT_EQ(memory, of.memory_) << "bound before the memory was shared";
        auto* const mine = static_cast<unsigned char*>(memory.get()) + thread * of.stride_;
        for (std::int64_t i = 0; i < of.bytes_; ++i) mine[i] = 1;
      }
      void place(TensorId, void*) override {}
      Scratched& of;
      std::shared_ptr<void> memory;
    };
    return std::make_unique<Bound>(*this);
  }
  std::shared_ptr<void> memory_;
  std::int64_t bytes_, stride_ = 0;
  int threads_;
};

TEST(HostSequence, LaunchesShareTheirWorkingMemory) {
  auto sequence = host_sequence(nullptr);
  ASSERT_TRUE(sequence);
  LaunchSequence& s = **sequence;
  Scratched small(4096, 1), large(10000, 2), none(0, 1), last(30000, 2);
  for (Scratched* k : {&small, &large, &none, &small}) ASSERT_FALSE(s.add(*k, {}));
  ASSERT_TRUE(s.run(0, 4));
  EXPECT_EQ(small.memory_, large.memory_);
  EXPECT_GE(large.stride_, 10000) << "threads lie apart";
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large.memory_.get()) % 4096, 0u);
  EXPECT_EQ(large.stride_ % 4096, 0);
  // A launch that is added later needs more: the ones before have it, too.
  ASSERT_FALSE(s.add(last, {}));
  ASSERT_TRUE(s.run(0, 5));
  EXPECT_EQ(small.memory_, last.memory_);
  EXPECT_GE(small.stride_, 30000);
}

}  // namespace
}  // namespace tilewright::codegen
