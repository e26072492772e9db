// What several tests of the emulator share: data in and out, findings as text.
#pragma once

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/machine/machine.h"
#include "core/npu/assembly.h"
#include "simulator/npu/emulator.h"
#include "simulator/npu/half.h"
#include "tests/support/npu_programs.h"

namespace tilewright::npu {

inline const Machine& ascend() {
  static const Machine machine = named_machine("ascend910");
  return machine;
}

inline std::vector<std::byte> encoded(const std::vector<float>& values, DType type) {
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(size_of(type)));
  store_elements(values.data(), type, bytes.data(), values.size());
  return bytes;
}

inline std::vector<float> decoded(const std::vector<std::byte>& bytes, DType type) {
  std::vector<float> values(bytes.size() / static_cast<std::size_t>(size_of(type)));
  load_elements(bytes.data(), type, values.data(), values.size());
  return values;
}

/// Multiples of 1/8 between -4 and 4: sums of products of a few thousand are exact in f32.
inline std::vector<float> random_values(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(n);
  for (float& v : values) v = static_cast<float>(static_cast<int>(random() % 65) - 32) / 8;
  return values;
}

/// Every input filled with random_values.
inline TensorData random_inputs(const Program& p, unsigned seed) {
  TensorData data;
  for (const Tensor& t : p.tensors) {
    if (t.role != Role::input) continue;
    data[t.name] = encoded(random_values(static_cast<std::size_t>(t.elements()), seed++), t.type);
  }
  return data;
}

inline std::string findings_text(const Report& r) {
  std::string text;
  for (const Finding& f : r.findings) text += f.text + "\n";
  return text;
}

}  // namespace tilewright::npu
