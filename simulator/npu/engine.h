// The event loop: cores, their pipes and queues, flags, the shared way to memory.
#pragma once

#include <deque>
#include <limits>
#include <memory>
#include <set>

#include "simulator/npu/bandwidth.h"
#include "simulator/npu/findings.h"
#include "simulator/npu/shadow.h"
#include "simulator/npu/units.h"

namespace tilewright::npu {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

/// A flag between two pipes of a core.
struct Flag {
  bool set = false;
  std::int64_t time = 0;                 ///< when it is, or will be
  std::array<Clock, kPipes> clock = {};  ///< what whoever waits for it has then seen
  Clock waited = 0;                      ///< of the waiting pipe, at the last wait
  int setter = 0;                        ///< statement
};

struct PipeState {
  std::deque<Instruction> queue;
  std::int64_t free = 0;                ///< when it may start the next
  std::int64_t done = 0;                ///< when all it has started is there
  std::int64_t counted = 0;             ///< until when its time is accounted for
  bool transferring = false;            ///< from or to GM: `free` is not known yet
  std::int64_t began = 0, fastest = 0;  ///< of the transfer: begin, and cycles without sharing
  const Template* current = nullptr;
  PipeTimes times;
};

/// One AI core. All its state; the engine moves it.
struct Core {
  Core(const Code& code, const Machine& machine, int id, std::int64_t events);

  int id;
  std::int64_t block = -1;
  std::uint32_t phase = 0;  ///< grid barriers passed
  Scalars scalars;
  std::array<PipeState, kPipes> pipes;  ///< pipes[0], S: only free, counted and times are used
  std::vector<Flag> flags;
  Clocks clocks;
  std::array<std::vector<std::byte>, kMemories> memory;
  std::vector<LocalShadow> shadows;
  Bases bases;
  std::vector<float> room;  ///< the cube's panels
  Work work;

  // What holds the scalar unit up.
  enum class Hold : std::uint8_t { none, queue, flag, barrier, grid, finish, over };
  Hold hold = Hold::none;
  Instruction held = {};
  bool arrived = false;  ///< at the grid barrier

  PipeState& pipe(Pipe p) { return pipes[static_cast<std::size_t>(p)]; }
};

class Engine {
 public:
  Engine(const Program& program, const Machine& machine, TensorData& data,
         const EmulatorOptions& options);
  Report run();

 private:
  struct Event {
    std::int64_t time;
    int core;
    friend auto operator<=>(const Event&, const Event&) = default;
  };

  // engine.cpp
  void prepare_memory(TensorData& data);
  void poke(int core, std::int64_t time) { events_.insert({time, core}); }
  void start_block(Core& c, std::int64_t now);
  void progress(Core& c, std::int64_t now);
  bool scalar_step(Core& c, std::int64_t now);
  bool scalar_issue(Core& c, Instruction i, std::int64_t now);
  bool release_scalar(Core& c, std::int64_t now);
  bool finish_block(Core& c, std::int64_t now);
  bool arrive(Core& c, std::int64_t now);
  void resume(Core& c, std::int64_t now, std::int64_t& cause);
  void spend(Core& c, std::int64_t now);
  void push(Core& c, Instruction i, std::int64_t now);
  bool is_drained(Core& c, std::int64_t now);
  void end_transfers(double now);
  void report_deadlock(Core& c);
  void report_unwritten();
  Report finish();

  // execute.cpp
  bool pipe_step(Core& c, Pipe p, std::int64_t now);
  void set_flag(Core& c, Pipe p, const Instruction& i, std::int64_t now);
  bool wait_flag(Core& c, Pipe p, const Instruction& i, std::int64_t now);
  Flag* flag(Core& c, const Instruction& i);
  void execute(Core& c, Pipe p, const Instruction& i, std::int64_t now);
  void start_transfer(Core& c, Pipe p, const Instruction& i, std::int64_t now);
  void count_copy(const Instruction& i, std::int64_t elements, std::int64_t moved);
  void check_touches(Core& c, Pipe p, const Instruction& i);
  void account(Core& c, Pipe p, std::int64_t ready, std::int64_t now, std::int64_t& cause,
               int statement);
  double dram_part(const Instruction& i, std::int64_t moved);
  void span(const Core& c, Pipe p, int statement, std::int64_t begin, std::int64_t end,
            bool waiting);
  const Object& object(int index) const { return code_.objects()[static_cast<std::size_t>(index)]; }

  const Program& program_;
  const NpuCore& npu_;
  const EmulatorOptions options_;
  Code code_;
  std::vector<std::unique_ptr<Core>> cores_;
  std::vector<std::unique_ptr<GlobalShadow>> global_;  ///< by object; null for inputs and buffers
  std::vector<bool> from_dram_;                        ///< lines of GM that the L2 has had
  std::int64_t line_bytes_ = 128;
  double clock_hz_ = 0;
  SharedBandwidth shared_;
  std::set<Event> events_;
  std::int64_t end_ = 0;
  bool stopped_ = false;  ///< by the limit
  std::map<std::tuple<int, int, int>, PathBytes> paths_;
  FindingCollector findings_;
  Report report_;
};

}  // namespace tilewright::npu
