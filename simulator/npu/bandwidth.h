// How cores share the way to the L2, and the L2 the way to DRAM: a fluid that takes the fair share.
#pragma once

#include <cstdint>
#include <vector>

namespace tilewright::npu {

/// Transfers under way, each at a rate that changes only when one begins or ends. Rates are
/// max-min fair: all grow alike until a transfer reaches its own width, or DRAM is used up (which
/// stops those that need it), or the L2 is. Deterministic: no rate depends on an order.
class SharedBandwidth {
 public:
  struct Transfer {
    int core = 0;
    int pipe = 0;
    double left = 0;   ///< bytes
    double width = 0;  ///< most bytes a cycle
    double dram = 0;   ///< part of its bytes that DRAM must give, 0 to 1
    double rate = 0;
  };

  /// Bytes a cycle for all together; 0: no limit.
  SharedBandwidth(double l2, double dram) : l2_(l2), dram_(dram) {}

  /// Moves everything on to that cycle; not backwards.
  void advance(double to);
  void add(Transfer t);
  /// When the next transfer ends if none begins; infinity where there is none.
  double next_end() const;
  /// Takes out those that have ended by now, in the order in which they were added.
  std::vector<Transfer> take_ended();
  bool empty() const { return transfers_.empty(); }

 private:
  void share();

  double l2_, dram_;
  double now_ = 0;
  std::vector<Transfer> transfers_;
};

}  // namespace tilewright::npu
