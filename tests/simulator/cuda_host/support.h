// What the tests of simulator/cuda_host share: kernels from files beside this one, built once a
// program, tensors from vectors, and lines by what stands on them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/toolchain.h"
#include "simulator/cuda_host/cuda_host.h"
#include "simulator/cuda_host/device/tilewright_half.h"
#include "tests/support/places.h"

namespace tilewright::cuda_host {

inline std::string contents(const std::string& path) {
  std::ifstream in(test::in_sources(path));
  EXPECT_TRUE(in) << path;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

inline Header device_header() {
  return {"tilewright_device.h", contents("codegen/cuda/device/tilewright_device.h")};
}

/// A .cu file of this folder, built for the kernels that it names in `names`.
struct Built {
  std::string text;
  Module module;

  Built(const std::string& file, const std::vector<std::string>& names,
        std::vector<Header> headers = {})
      : text(contents("tests/simulator/cuda_host/" + file)) {
    headers.push_back(device_header());
    auto result = Module::build(
        {.file_name = file, .text = text, .headers = std::move(headers), .kernels = names});
    EXPECT_TRUE(result) << (result ? "" : result.reason());
    if (result) module = *result;
  }
  /// The number of the one line that has `marker` in it.
  int line(const std::string& marker) const {
    std::istringstream in(text);
    int number = 0, found = 0;
    for (std::string line; std::getline(in, line);) {
      ++number;
      if (line.find(marker) == std::string::npos) continue;
      EXPECT_EQ(found, 0) << marker << " stands on two lines";
      found = number;
    }
    EXPECT_NE(found, 0) << marker << " stands on no line";
    return found;
  }
};

template <class T>
Tensor tensor(const std::string& name, std::vector<T>& data, bool initialised = true) {
  return {.name = name,
          .data = data.data(),
          .bytes = static_cast<std::int64_t>(data.size() * sizeof(T)),
          .element_bytes = static_cast<int>(sizeof(T)),
          .initialised = initialised};
}

inline std::string texts(const Report& report) {
  std::string all;
  for (const Finding& f : report.findings) all += f.text + "\n";
  for (const std::string& n : report.notes) all += n + "\n";
  return all;
}

/// f16 in [-1, 1], seeded.
inline std::vector<std::uint16_t> random_f16(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<std::uint16_t> all(count);
  for (auto& x : all) x = tw_half::f16_of_float(uniform(random));
  return all;
}

}  // namespace tilewright::cuda_host
