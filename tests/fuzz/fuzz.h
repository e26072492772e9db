// What a fuzz target is: one function that gives bytes to a parser. The parser may refuse them by
// InputError and do nothing else wrong: any other exception, a crash, a second of processor time or
// half a gigabyte for a small input is a defect. What is printed parses back to the same value.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/workload/workload.h"

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

/// Asks a workload everything that is computed from its sizes: none may leave 64 bits.
inline void use(const Workload& w) {
  w.compulsory_bytes();
  w.flops();
  for (std::size_t i = 0; i < w.operators().size(); ++i) {
    const OpId op(i);
    w.operations(op);
    std::vector<Interval> whole;
    for (LoopId l : w.op(op).loops) whole.push_back({0, w.loop(l).extent});
    for (const Access& a : w.op(op).inputs) footprint(w, w.op(op), a, whole);
    for (const Output& o : w.op(op).outputs) footprint(w, w.op(op), o.target, whole);
  }
}

}  // namespace tilewright::fuzz
