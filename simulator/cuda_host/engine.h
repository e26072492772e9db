// The running of one launch: blocks of warps of fibers, and what the device functions do to them.
// The functions are grouped by file: threads.cpp (running, ending, waiting), barriers.cpp,
// clusters.cpp, mbarriers.cpp, memory.cpp (loads, stores, copies, atomics), tensor_copies.cpp,
// warp.cpp, matrix.cpp and warpgroup.cpp (collectives).
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "simulator/cuda_host/barrier_list.h"
#include "simulator/cuda_host/fiber.h"
#include "simulator/cuda_host/findings.h"
#include "simulator/cuda_host/global_memory.h"
#include "simulator/cuda_host/shared_shadow.h"
#include "simulator/vector_clocks.h"

namespace tilewright::cuda_host {

class Engine;
/// Where a box begins in its tensor, the innermost dimension first.
using BoxPlace = std::array<int, lowering::BoxMap::kMost>;

struct Block;

constexpr int kWarp = 32, kWarpgroup = 128;

enum class Wait : std::uint8_t {
  none,
  block,
  barrier,
  warp,
  mbarrier,
  grid,
  cluster,
  warpgroup,
  ended
};

enum class Collective : std::uint8_t {
  warp_sync,
  shuffle,
  ballot,
  ldmatrix,
  stmatrix,
  mma,
  wmma_load,
  wmma_load_sums,
  wmma_store_sums,
  wmma_multiply
};
std::string_view name_of(Collective c);

/// A 16-byte copy between its issue and its completion.
struct PendingCopy {
  std::int64_t offset;  ///< in shared memory
  Clock clock;
  int bytes;  ///< 4, 8 or 16
  std::array<unsigned char, 16> data;
};

/// A kernel's thread.
struct Fiber {
  Context context;
  Block* owner = nullptr;
  int index = 0;
  Wait wait = Wait::none;
  std::uint32_t wait_place = 0;
  std::int64_t wait_detail = 0;  ///< a barrier's id, an mbarrier's offset, a collective
  std::vector<PendingCopy> copies;
  std::vector<Clock> groups;     ///< of each committed group under way: its last copy's clock
  std::vector<Clock> stores;     ///< the same of store_box
  std::int64_t products = 0;     ///< groups of wgmma that it committed
  bool launches_ended = false;   ///< before its own
  bool registers_ready = false;  ///< wgmma_begin since sums last came to its registers
  int warp() const { return index / kWarp; }
  int lane() const { return index % kWarp; }
};

/// What a lane brings to a collective: pointers into its own frame, which stays while it waits.
struct Operand {
  void* out = nullptr;
  const void* in = nullptr;
  const void* in2 = nullptr;
  std::uint32_t value = 0, value2 = 0;
  std::uint32_t place = 0;
};

struct Warp {
  std::uint32_t members = 0, runnable = 0, ended = 0, arrived = 0;
  Collective kind = Collective::warp_sync;
  int variant = 0;
  std::uint32_t place = 0;
  std::array<Operand, kWarp> operands;
};

/// A left operand of wgmma in registers, four words a thread, which must stay as they are until it
/// has been waited for.
struct Fragments {
  std::array<const std::uint32_t*, kWarpgroup> of{};
  std::array<std::array<std::uint32_t, 4>, kWarpgroup> words{};
};

/// Sums of a warpgroup that nobody may look at: its threads' registers, and what will be in them.
struct SumsUnderWay {
  const float* of = nullptr;  ///< the first thread's
  int columns = 0, landed = 0;
  std::int64_t group = 0;                      ///< of the last product that adds to them
  std::array<float*, kWarpgroup> registers{};  ///< null: it has them
  std::vector<float> values = {};              ///< 64 rows of `columns`
  std::vector<Fragments> read = {};            ///< that their products read
  /// A thread's register as wgmma lays sums out.
  float& at(int thread, int i) {
    const int row = thread / kWarp * 16 + thread % kWarp / 4 + i / 2 % 2 * 8;
    return values[static_cast<std::size_t>(row * columns + i / 4 * 8 + thread % 4 * 2 + i % 2)];
  }
};
struct Warpgroup {
  int arrived = 0, what = 0;
  std::uint64_t detail = 0;
  std::uint32_t place = 0;
  std::array<float*, kWarpgroup> sums{};
  std::array<const std::uint32_t*, kWarpgroup> fragments{};
  std::vector<SumsUnderWay> under_way;
  Clock last = 0;             ///< of its products' reads, which are copies of its first thread
  std::vector<Clock> groups;  ///< that clock at each commit
  std::vector<float> left, right;
};

struct NamedBarrier {
  int expected = 0;
  std::vector<int> threads;
  std::vector<std::uint32_t> places;
};

struct MBarrier {
  std::int64_t offset = 0;
  std::uint32_t arrivals = 0, pending = 0;
  std::int64_t bytes = 0;  ///< expected and not come, or negative: come and not expected
  int maker = 0;
  bool known = false;  ///< to the TMA unit
  std::uint64_t phase = 0;
  Published arriving,
      complete;  ///< what arrivals had seen: of this phase, and of those that ended
  std::vector<std::pair<int, std::uint32_t>> waiting;  ///< thread and parity
  /// Of a cluster's other blocks, by rank: what their threads that arrived had seen there; and of
  /// those phases that ended.
  std::vector<std::pair<std::uint32_t, Published>> arriving_there, complete_there;
  std::vector<std::int64_t> waited_for;  ///< by thread: the last phase, -1 the one before the first
};

struct Block {
  Engine* engine = nullptr;
  std::uint32_t index = 0;
  int threads = 0, ended = 0, at_grid = 0, at_cluster = 0;
  /// Where another block of the cluster has read since they last met; 0: nowhere.
  std::uint32_t read_by_others = 0;
  bool stopped = false, paused = false;
  LazyMemory arena;  ///< red zone, shared memory, red zone
  std::int64_t arena_bytes = 0;
  unsigned char* shared = nullptr;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  std::vector<Warpgroup> groups;
  ClockVector fenced;  ///< by thread: the clock of its last shared_for_async
  std::vector<int> everyone;
  /// In a cluster there is one thread more: the other blocks', which have seen what this block's
  /// threads had when they last met.
  std::vector<int> everyone_and_others;
  std::array<NamedBarrier, 16> barriers;
  std::vector<MBarrier> mbarriers;
  Clocks clocks;
  SharedShadow shadow;
  Context home;  ///< whoever runs the block
};

class Engine {
 public:
  Engine(const Image& image, GlobalMemory& memory, FindingCollector& findings,
         const RunOptions& options)
      : image_(image),
        memory_(memory),
        findings_(findings),
        options_(options),
        random_(options.turns) {}
  /// Runs one launch. A reason where its stacks or shared memory cannot be had.
  std::optional<Reason> launch(const Launch& launch, std::span<const Tensor> tensors,
                               LaunchCounts& counts);
  std::int64_t blocks_stopped() const { return blocks_stopped_; }
  const BarrierList& barriers() const { return barriers_; }

  static const tw_device_api* api();
  std::uint32_t place_of(const void* address) const { return image_.place(address); }

  // -- the device functions, `place` the return address --
  void access(Fiber& f, const void* p, std::int64_t bytes, unsigned flags, std::uint32_t place);
  void block_sync(Fiber& f, std::uint32_t place);
  void barrier(Fiber& f, int id, int threads, std::uint32_t place);
  void grid_sync(Fiber& f, void* counter, std::uint32_t place);
  void warp_sync(Fiber& f, std::uint32_t place);
  std::uint32_t shuffle(Fiber& f, std::uint32_t bits, int how, int operand, std::uint32_t place);
  std::uint32_t ballot(Fiber& f, bool predicate, std::uint32_t place);
  void mbarrier_init(Fiber& f, void* p, std::uint32_t arrivals, std::uint32_t place);
  void mbarrier_arrive(Fiber& f, void* p, bool after_copies, std::uint32_t place);
  void mbarrier_wait(Fiber& f, void* p, std::uint32_t parity, std::uint32_t place);
  void cp_async(Fiber& f, void* to, const void* from, int bytes, int valid, std::uint32_t place);
  void cp_async_commit(Fiber& f);
  void cp_async_wait(Fiber& f, int groups, std::uint32_t place);
  void load_global(Fiber& f, void* to, const void* from, int bytes, std::uint32_t place);
  void store_global(Fiber& f, void* to, const void* from, int bytes, std::uint32_t place);
  void atomic_add(Fiber& f, void* p, std::uint32_t what, double x, std::uint32_t place);
  void ldmatrix4(Fiber& f, std::uint32_t* r, const void* row, bool transposed, std::uint32_t place);
  void stmatrix4_transposed(Fiber& f, void* row, const std::uint32_t* r, std::uint32_t place);
  void mma(Fiber& f, float* d, const std::uint32_t* a, std::uint32_t b0, std::uint32_t b1,
           bool bfloat, std::uint32_t place);
  void mma_tf32(Fiber& f, float* d, const std::uint32_t* a, std::uint32_t b0, std::uint32_t b1,
                std::uint32_t place);
  void wmma_load(Fiber& f, std::uint32_t* r, const void* p, int stride, bool is_b, bool transposed,
                 std::uint32_t place);
  void wmma_sums(Fiber& f, float* r, float* p, int stride, bool store, std::uint32_t place);
  void wmma_multiply(Fiber& f, float* s, const std::uint32_t* a, const std::uint32_t* b,
                     bool a_transposed, bool b_transposed, std::uint32_t place);
  void mbarriers_made(Fiber& f, std::uint32_t place);
  void mbarrier_arrive_expecting(Fiber& f, void* p, std::uint32_t bytes, std::uint32_t place);
  /// `rank`: of the instruction, which must be the map's.
  void load_box(Fiber& f, void* shared, const tw_box_map& map, void* mbarrier, const BoxPlace& at,
                std::uint32_t mask, int rank, std::uint32_t place);
  void mbarrier_arrive_of_block(Fiber& f, void* p, std::uint32_t rank, std::uint32_t place);
  void store_box(Fiber& f, const tw_box_map& map, const void* shared, const BoxPlace& at,
                 std::uint32_t place);
  void store_boxes_commit(Fiber& f);
  void store_boxes_read(Fiber& f, int groups, std::uint32_t place);
  void launches_ended(Fiber& f, std::uint32_t place);
  void shared_for_async(Fiber& f, std::uint32_t place);
  void wgmma_begin(Fiber& f, std::uint32_t place);
  /// `fragment`: the thread's words of the left operand, instead of descriptor `a`.
  void wgmma(Fiber& f, float* d, int columns, std::uint64_t a, const std::uint32_t* fragment,
             std::uint64_t b, bool add, int flags, std::uint32_t place);
  void wgmma_commit(Fiber& f, std::uint32_t place);
  void wgmma_wait(Fiber& f, int groups, std::uint32_t place);
  void cluster_sync(Fiber& f, std::uint32_t place);
  void load_of_block(Fiber& f, void* to, const void* shared, std::uint32_t rank,
                     std::uint32_t place);

 private:
  // -- threads.cpp --
  bool make_blocks(std::size_t count);
  void start(Block& block, std::uint32_t index, const Launch& launch);
  void start(Block& block, Fiber& f, unsigned char* stack, const Launch& launch);
  /// True where the block can go on, but others are to have their turn.
  bool run_until_stuck(Block& block);
  Fiber* next_of(Block& block);
  void give_way(Fiber& f);
  bool release_grid();
  /// Runs blocks_[0..count) until none goes on.
  void run_together(std::uint32_t count);
  bool finished(const Block& block) const { return block.stopped || block.ended == block.threads; }
  void leave(Block& block);
  void report_deadlock(Block& block);
  static void fiber_main(void* fiber);
  void finish(Fiber& f);
  void wait(Fiber& f, Wait kind, std::uint32_t place, std::int64_t detail);
  void resume_next(Fiber& f);
  void wake(Block& block, int thread);
  [[noreturn]] void stop(Fiber& f);

  // -- barriers.cpp --
  /// Notes that a thread comes to a barrier; whether it is to go past it.
  bool left_out(const char* kind, std::uint32_t place);
  void arrive(Fiber& f, int id, int threads, std::uint32_t place);
  bool release_cluster();
  void check_read_by_others(Fiber& f);
  void complete(Block& block, int id);
  void complete_without_ended(Block& block);
  // -- mbarriers.cpp --
  MBarrier* find_mbarrier(Fiber& f, void* p, std::uint32_t place, const char* what);
  void end_phase(Block& block, MBarrier& b);
  void learn_of_others(const MBarrier& b);
  MBarrier* find_mbarrier_of(Fiber& f, Block& there, std::int64_t offset, std::uint32_t place,
                             const char* what);
  void check_phase(Fiber& f, const MBarrier& b, std::int64_t meant, std::uint32_t place);
  // -- tensor_copies.cpp --
  void end_if_complete(Block& block, MBarrier& b);
  template <class F>
  static void each_row(const tw_box_map& map, const BoxPlace& at, const F& f);
  void check_beginning(Fiber& f, const tw_box_map& map, const BoxPlace& at, int rank,
                       std::uint32_t place);
  void load_box_into(Fiber& f, Block& block, std::int64_t to, std::int64_t arrives,
                     const tw_box_map& map, const BoxPlace& at, std::uint32_t place);
  void read_asynchronously(Fiber& f, std::int64_t offset, std::int64_t bytes, std::uint32_t place,
                           int component, Clock clock);
  void check_fenced(Fiber& f, std::int64_t offset, std::int64_t bytes, std::uint32_t place,
                    const char* does);
  // -- warpgroup.cpp --
  Warpgroup& group_of(Fiber& f, std::uint32_t place);
  bool meet_group(Fiber& f, int what, std::uint64_t detail, void* out, std::uint32_t place);
  void release_group(Fiber& f);
  void read_operand(Fiber& f, std::uint64_t bits, int outer, bool across, bool bfloat,
                    std::vector<float>& values, std::uint32_t place, Clock clock);
  void check_all_waited(Fiber& f);
  // -- memory.cpp --
  bool in_arena(const Block& b, std::uintptr_t p) const;
  /// The offset of [p, p+bytes) in shared memory, or -1 with a finding.
  std::int64_t shared_offset(Fiber& f, const void* p, std::int64_t bytes, std::int64_t alignment,
                             bool write, std::uint32_t place, const char* what);
  void check_shared(Fiber& f, std::int64_t offset, std::int64_t bytes, bool write,
                    std::uint32_t place, int component, Clock now);
  void read_shared(Fiber& f, std::int64_t offset, std::int64_t bytes, std::uint32_t place);
  void write_shared(Fiber& f, std::int64_t offset, std::int64_t bytes, std::uint32_t place);
  /// The region of [p, p+bytes), or -1 with a finding.
  int global_region(Fiber& f, const void* p, std::int64_t bytes, std::int64_t alignment, bool write,
                    std::uint32_t place, const char* what);
  void check_global(Fiber& f, int region, const void* p, std::int64_t bytes,
                    GlobalMemory::Kind kind, std::uint32_t place, int component, Clock now);
  void plain_shared(Fiber& f, const void* p, std::int64_t bytes, unsigned flags,
                    std::uint32_t place);
  void plain_global(Fiber& f, const void* p, std::int64_t bytes, unsigned flags,
                    std::uint32_t place);
  void land_copies(Fiber& f, Clock upto);
  // -- warp.cpp --
  /// Waits for the warp; true in the thread that came last, which does the work for all.
  bool meet(Fiber& f, Collective kind, int variant, const Operand& operand);
  void release(Fiber& f);

  /// Now and then looks at the clock: a launch past its limit is stopped here; where threads take
  /// turns, now and then another one goes on.
  void watch(Fiber& f, std::uint32_t place) {
    if (options_.turns != 0 && random_() % 8 == 0) give_way(f);
    if ((++watched_ & 0xffffu) == 0 && options_.max_seconds > 0) look_at_clock(f, place);
  }
  void look_at_clock(Fiber& f, std::uint32_t place);

  // -- findings, described only the first time --
  void report(const Fiber& f, Fault fault, std::uint32_t place, std::string what);
  void report_race(Fiber& f, Fault fault, std::uint32_t place, bool writes, bool by_copy,
                   std::uint32_t other_place, std::int64_t other_block, int other_component,
                   bool other_wrote, int object, std::int64_t offset);
  std::string object_name(int object) const;

  const Image& image_;
  GlobalMemory& memory_;
  FindingCollector& findings_;
  const RunOptions& options_;
  BarrierList barriers_;
  std::mt19937_64 random_;
  std::string kernel_;
  const Entry* entry_ = nullptr;
  std::vector<void*> arguments_;
  std::vector<tw_box_map> maps_;
  std::int64_t shared_bytes_ = 0;
  bool cooperative_ = false, early_ = false;
  bool went_to_others_ = false;  ///< a thread did what threads of another block may wait for
  std::uint32_t cluster_ = 1;
  std::uint32_t phase_ = 0;
  std::uint32_t grid_ = 1;
  LaunchCounts* counts_ = nullptr;
  std::unique_ptr<StackSlab> stacks_;
  std::size_t stacks_count_ = 0;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::int64_t blocks_stopped_ = 0;
  std::uint32_t watched_ = 0;
  std::chrono::steady_clock::time_point started_;
  bool late_ = false;
};

}  // namespace tilewright::cuda_host
