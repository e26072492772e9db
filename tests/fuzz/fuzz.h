// What a fuzz target is: one function that gives bytes to a parser. The parser may refuse them by
// InputError and do nothing else wrong: any other exception, a crash, a second of processor time or
// half a gigabyte for a small input is a defect. What is printed parses back to the same value.
#pragma once

#include <string_view>

#include "core/ir/error.h"

namespace tilewright::fuzz {

/// Each target defines it; declared here for the two drivers (libFuzzer's and the plain one).
void one(std::string_view input);

/// Calls f, which may refuse its input.
template <class F>
void refusable(F&& f) {
  try {
    f();
  } catch (const InputError&) {
  }
}

}  // namespace tilewright::fuzz
