// What software-managed buffers hold, and what has to move when they are touched.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "core/plan/schedule.h"
#include "core/plan/stream.h"

namespace tilewright {

/// `box` of a buffer's tensor moves between the buffer and the next outer one (or home).
struct Movement {
  int kernel = 0;
  BufferId buffer;
  std::int64_t instance = 0;  ///< which one of the buffer's
  Box box;
  bool inward = true;
  const Box* tiles = nullptr;  ///< by BufferId: current tile of every fixed buffer
};

/// Rules 8 to 12 of design/plan.md over the access stream, for the buffers at levels that software
/// manages; other buffers are left to the reader of the stream.
class BufferContents {
 public:
  using Mover = std::function<void(const Movement&)>;
  BufferContents(const Schedule& s, Mover move);

  /// Takes the events of walk(), in order. Cost: constant, but for kernel_end (every instance
  /// kept). Memory: the instances that the walk may come back to, and those with values still to be
  /// written.
  void apply(const AccessEvent& e);

  /// What a buffer holds now.
  struct Held {
    BufferId buffer;
    std::int64_t instance = 0;
    Box box;
    bool changed = false;  ///< still to be written
  };
  /// Of the kernel that runs, by buffer and instance. Cost: one look at each instance kept.
  std::vector<Held> held() const;

 private:
  struct State {
    std::int64_t instance = 0;
    Box held;
    bool valid = false;
    bool changed = false;
    std::int64_t outer_instance =
        0;  // of the outer buffer, when this one was last filled or written
  };
  /// A buffer's instances; the last one used is found without a look-up.
  struct Instances {
    std::unordered_map<std::int64_t, State> all;  // references to its elements stay valid
    std::int64_t last_key = -1;
    State* last = nullptr;
  };

  const Buffer& buffer(BufferId b) const { return kernel_->buffer(b); }
  bool managed(BufferId b) const { return b.valid() && managed_[b.index()]; }
  State& state(BufferId b, std::int64_t instance);
  void leave(BufferId b, State& st);
  bool visited_once(BufferId b) const;

  void begin(int kernel);
  void load(BufferId b, std::int64_t instance, const Box& tile);
  void drop(BufferId b, std::int64_t instance);
  void update(BufferId b, std::int64_t instance, const Box& tile, bool initialises);
  void read_back(BufferId b, State& st);
  void write(BufferId b, State& st);
  void store(BufferId b, std::int64_t instance, bool initialises);
  void replace(BufferId b, State& st, const Box& tile);
  void end();
  void move(BufferId b, const State& st, const Box& box, bool inward);

  const Schedule& s_;
  Mover move_;
  const ScheduledKernel* kernel_ = nullptr;
  const AccessEvent* event_ = nullptr;  // the one being applied
  std::vector<bool> managed_;           // by buffer
  std::vector<Instances> instances_;    // by buffer
  std::vector<bool> visited_once_;      // by buffer: the walk comes back to none of its instances
  bool order_free_ = false;             // no cache sees in which order tiles are written
};

}  // namespace tilewright
