// A network that is loaded once and called on memory of the caller's.
#include "harness/loaded_network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <thread>
#include <vector>

namespace tilewright::harness {
namespace {

constexpr int kRows = 64, kColumns = 48;

/// Two launches or more that read what a call is given: one sums rows of it, another joins it with
/// that.
std::unique_ptr<LoadedNetwork> loaded(int threads) {
  auto network =
      LoadedNetwork::load({.subject = "called",
                           .machine = "host",
                           .subject_text = "name: called\nloops: {i: 64, j: 48}\noperators:\n"
                                           "  - \"s[i] += x[i,j]\"\n  - \"t[j] += x[i,j] * s[i]\"\n"
                                           "  - \"y: y[i,j] = x[i,j] + s[i] * t[j]\"\n",
                           .model = "unfused",
                           .threads = threads},
                          true);
  if (!network) throw std::runtime_error(network.reason());
  return std::move(network).value();
}

/// Calls it on memory of its own, of small whole numbers, so that sums are exact; whether all is
/// right.
bool right(LoadedNetwork& network, int seed) {
  std::vector<float> x(kRows * kColumns), y(x.size(), NAN), s(kRows, 0), t(kColumns, 0);
  for (std::size_t at = 0; at < x.size(); ++at)
    x[at] = static_cast<float>((static_cast<int>(at) * 7 + seed * 13) % 5 - 2);
  const std::array<void*, 1> given{x.data()}, made{y.data()};
  if (network.run(given, made)) return false;
  for (std::size_t at = 0; at < x.size(); ++at) s[at / kColumns] += x[at];
  for (std::size_t at = 0; at < x.size(); ++at) t[at % kColumns] += x[at] * s[at / kColumns];
  for (std::size_t at = 0; at < x.size(); ++at)
    if (y[at] != x[at] + s[at / kColumns] * t[at % kColumns]) return false;
  return true;
}

TEST(LoadedNetwork, EachCallReadsAndWritesWhereItIsTold) {
  for (const int threads : {1, 2}) {
    const auto network = loaded(threads);
    EXPECT_GE(network->launches(), 2u);
    for (int call = 0; call < 5; ++call) EXPECT_TRUE(right(*network, call)) << threads << call;
  }
}

/// Networks on as many threads share helpers, and one network may be called from anywhere.
TEST(LoadedNetwork, CallsFromSeveralThreadsWaitForOneAnother) {
  const auto one = loaded(2), other = loaded(2);
  std::array<int, 4> wrong{};
  std::vector<std::thread> callers;
  for (std::size_t c = 0; c < wrong.size(); ++c)
    callers.emplace_back([&, c] {
      for (int call = 0; call < 100; ++call)
        wrong[c] += !right(c % 2 == 0 ? *one : *other, static_cast<int>(c) * 100 + call);
    });
  for (std::thread& c : callers) c.join();
  EXPECT_EQ(wrong, (std::array<int, 4>{}));
}

}  // namespace
}  // namespace tilewright::harness
