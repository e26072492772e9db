// Prints the rates of the simulator, a line each: name, million accesses a second of processor
// time, and the counts that it must not be wrong about. Gates nothing.
#include <cstdio>
#include <string>

#include "tests/simulator/rates.h"

namespace {

using namespace tilewright::rates;

void print(const Rate& r) {
  std::printf("%-46s %9.1f M/s   misses", r.name.c_str(), r.per_second() * 1e-6);
  for (const auto m : r.misses) std::printf(" %lld", static_cast<long long>(m));
  if (!r.written.empty()) std::printf("   written back");
  for (const auto w : r.written) std::printf(" %lld", static_cast<long long>(w));
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

/// With a policy's name, its rows only.
int main(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";
  if (only.empty() || only == "lru")
    for (const int tensors : {3, 1}) {
      for (const int leading : {528, 512})
        for (const Telling t : {Telling::singles, Telling::ranges, Telling::streams})
          print(gemm(leading, t, tensors));
      print(random_accesses(tensors));
    }
  for (const char* policy :
       {"fifo", "random", "tree_plru", "bit_plru", "srrip", "brrip", "qlru_h11_m1_r0_u0"}) {
    if (!only.empty() && only != policy) continue;
    for (const int leading : {528, 512})
      for (const Telling t : {Telling::singles, Telling::ranges})
        print(gemm(leading, t, 3, policy));
    print(random_accesses(3, policy));
  }
  if (only.empty() || only == "distances")
    for (const Telling t : {Telling::singles, Telling::streams}) print(gemm_distances(528, t));
}
