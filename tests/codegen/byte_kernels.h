// Kernels whose sums are of whole numbers of 8 bits, held against the reference.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/workload/reference/elements.h"
#include "tests/codegen/kernel_support.h"

namespace tilewright {

/// Runs the kernel on inputs of `seed`. Its outputs are those of the reference to the bit; where a
/// sum is `rounded` to 8 bits afterwards, one in a hundred may differ by one.
inline void expect_whole_numbers(const Workload& w, const cpu::Source& source, cpu::Kernel& kernel,
                                 std::uint64_t seed, bool rounded) {
  TensorValues values = random_inputs(w, seed);
  std::vector<std::vector<char>> arrays;
  std::vector<void*> pointers;
  for (std::size_t t = 0; t < w.tensors().size(); ++t) {
    const Tensor& tensor = w.tensors()[t];
    arrays.emplace_back(static_cast<std::size_t>(tensor.bytes().value));
    if (w.is_input(TensorId(t))) encode_elements(tensor.dtype, values[t], arrays.back().data());
  }
  for (auto& a : arrays) pointers.push_back(a.data());
  std::vector<char> kept(static_cast<std::size_t>(source.kept_bytes));
  if (!kept.empty()) kernel.prepare(pointers, kept.data());
  kernel.run(pointers, kept.empty() ? nullptr : kept.data());
  const TensorValues reference = evaluate(w, values);
  for (TensorId t : w.outputs()) {
    const auto& want = reference[t.index()];
    const auto got = decode_elements(w.tensor(t).dtype, arrays[t.index()].data(), want.size());
    // Sums below 2^24 are exact; what is rounded afterwards may fall the other way.
    std::size_t differ = 0;
    for (std::size_t e = 0; e < want.size(); ++e) {
      ASSERT_LE(std::abs(got[e] - want[e]), rounded ? 1 : 0) << "element " << e;
      differ += got[e] != want[e] ? 1 : 0;
    }
    EXPECT_LE(differ, want.size() / 100);
  }
}

}  // namespace tilewright
