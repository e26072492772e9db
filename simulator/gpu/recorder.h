// The access stream of a schedule as lists of what blocks ask of L2.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/plan/stream.h"
#include "simulator/gather_walk.h"
#include "simulator/gpu/block_list.h"
#include "simulator/gpu/grid.h"
#include "simulator/scratchpad.h"

namespace tilewright::gpu {

/// Of one block, while it runs.
struct Rates {
  double bytes = 1;                ///< a second, from L2
  std::vector<double> operations;  ///< a second, by operator
};

/// Boundaries of a machine that data cross by software's doing, and L2 on the way.
class Routes {
 public:
  struct Route {
    std::vector<std::size_t> boundaries;
    bool cache = false;  ///< L2 is asked
  };
  struct Both {
    Route in, out;
  };
  explicit Routes(const Schedule& s);
  const Both& of(int kernel, BufferId b) const {
    return routes_[static_cast<std::size_t>(kernel)][b.index()];
  }
  /// Of what a kernel's computes read by other tensors' values.
  const Route& of_gathers(int kernel) const { return gathers_[static_cast<std::size_t>(kernel)]; }
  /// "OUTER/INNER" by index.
  std::vector<std::string> names() const;

 private:
  Route route(LevelId from, LevelId to);
  const Machine& m_;
  std::map<std::pair<LevelId, LevelId>, std::size_t> boundaries_;  // (outer, inner)
  std::vector<std::vector<Both>> routes_;                          // by kernel, buffer
  std::vector<Route> gathers_;                                     // by kernel
};

/// A grid of whose blocks some were passed over does not go on as those that were walked do.
struct Uneven {
  int kernel = 0;
};

/// Walks kernels and hands over lists of blocks that may run side by side: a kernel, or what lies
/// between two barriers of the grid.
class Recorder {
 public:
  /// `walked` of the blocks were met by the walk; 0: a part of what one block does alone.
  using Runner = std::function<void(int kernel, const BlockList& blocks, std::int64_t walked)>;
  /// `walk_all`, by kernel: passes over no block. `seed`: of the values that gathers are indexed
  /// by.
  Recorder(const Schedule& s, const AddressMap& map, const Routes& routes, std::vector<Rates> rates,
           std::vector<bool> walk_all, std::uint64_t seed, Runner run);
  /// Throws Uneven, before anything of that kernel is handed over.
  void walk();

 private:
  std::int64_t steer(const LoopPoint& p);
  void apply(const AccessEvent& e);
  void begin(const AccessEvent& e);
  void own(const AccessEvent& e);
  void enter(std::int64_t block);
  void close_block();
  void barrier(const AccessEvent& e);
  void hand_over();
  void keep_places(const AccessEvent& e);
  bool skips() const { return grid_ && !walk_all_[static_cast<std::size_t>(event_->kernel)]; }
  void moved(const Movement& m);
  void touch(const Stream& stream, int kernel, BufferId b, const Box& box, const Box* tiles);
  void cross(const Routes::Route& r, TensorId t, std::int64_t elements, bool inward);
  void zero(const AccessEvent& e);
  void compute(const AccessEvent& e);
  void gather(const AccessEvent& e);
  bool in_cache(const AccessEvent& e) const;
  Draft& draft() { return *current_; }

  const Schedule& s_;
  const Workload& w_;
  const Machine& m_;
  const AddressMap& map_;
  const Routes& routes_;
  std::vector<Rates> rates_;  // by kernel
  std::vector<bool> walk_all_;
  Runner run_;
  GatherWalk gathers_;

  BufferContents contents_;
  const AccessEvent* event_ = nullptr;
  std::optional<Grid> grid_;  // of this kernel
  std::int64_t block_ = 0;
  Draft* current_ = nullptr;
  using Part = std::pair<std::int64_t, std::int64_t>;  // barriers that it has passed, block
  std::map<Part, Draft> drafts_;                       // in order of dispatch
  std::map<std::int64_t, std::int64_t> passed_;        // by block
  /// A buffer's blocks by instance, and the last that came.
  struct Owners {
    std::unordered_map<std::int64_t, std::int64_t> by_instance;
    std::int64_t instance = -1, block = -1;
  };
  std::vector<Owners> owners_;  // by buffer
  BlockList list_;
  std::vector<std::vector<std::int64_t>> where_;  // by block of list_, with grid_
  std::vector<std::int64_t> place_;               // of the block being recorded, with grid_
  // As of the block's last event, where L2 has buffers of the plan's: the walk goes on before a
  // block's end is told.
  bool keeps_places_ = false;
  std::vector<Box> tiles_;
  std::vector<std::int64_t> instances_;
};

}  // namespace tilewright::gpu
