#include "simulator/gpu/gpu.h"

#include <algorithm>
#include <array>
#include <exception>
#include <limits>
#include <thread>
#include <utility>

#include "simulator/gpu/dispatch.h"
#include "simulator/gpu/recorder.h"
#include "simulator/set_shares.h"

namespace tilewright::gpu {

namespace {

constexpr std::int64_t kReserved = 1024;  // shared memory of each block that the system takes
constexpr double kUnknownRate = 64e9;     // an SM's bytes a second where the machine file has none

constexpr std::array<std::pair<BlockOrder, std::string_view>, 3> kOrders{
    {{BlockOrder::timed, "timed"},
     {BlockOrder::lockstep, "lockstep"},
     {BlockOrder::serial, "serial"}}};

const Level* cache_of(const Machine& m) {
  const Level* found = nullptr;
  for (std::size_t l = 1; l < m.levels.size(); ++l) {
    const Level& level = m.levels[l];
    if (level.managed == Managed::software) continue;
    if (found != nullptr || level.private_to != Unit::machine) return nullptr;
    found = &level;
  }
  return found;
}

/// The level that a block's tiles lie in: one instance an SM.
const Level* shared_of(const Machine& m) {
  for (const Level& l : m.levels)
    if (l.managed == Managed::software && l.private_to == Unit::grid) return &l;
  return nullptr;
}

class Simulation {
 public:
  Simulation(const Schedule& s, const Options& options, std::vector<bool> walk_all)
      : s_(s),
        options_(options),
        m_(*s.machine),
        tensors_(s.workload->tensors().size()),
        sms_(m_.units.empty() ? 1 : m_.units.front().count),
        geometry_(geometry()),
        map_(s, options.layout),
        routes_(s),
        walk_all_(std::move(walk_all)),
        bytes_(routes_.names().size(), std::vector<Moved>(tensors_)),
        operations_(s.workload->operators().size(), -1) {
    check(geometry_);
    if (map_.end() > L2::kMostLines * geometry_.line.value)
      throw InputError({.field = "workload",
                        .value = s.workload->name(),
                        .problem = "has tensors that end beyond what L2's lines are counted to",
                        .accepted = "tensors that end below " +
                                    std::to_string(L2::kMostLines * geometry_.line.value) +
                                    " bytes"});
    for (int t = 0; t < options.threads; ++t)
      l2_.emplace_back(geometry_, static_cast<int>(tensors_), options.seed,
                       L2Share{.index = t, .count = options.threads});
    more_.assign(l2_.size(), std::vector<L2::Moved>(tensors_));
    set_up_kernels();
  }

  Simulated run() {
    Recorder(s_, map_, routes_, rates_, walk_all_, options_.seed,
             [this](int kernel, const BlockList& blocks, std::int64_t walked) {
               run_list(kernel, blocks, walked);
             })
        .walk();
    return {.traffic = traffic(),
            .sms = sms_,
            .partitions = geometry_.partitions,
            .kernels = std::move(kernels_)};
  }

 private:
  struct Moved {
    std::int64_t read = 0, written = 0;
  };

  L2Geometry geometry() const {
    const Level& l = *cache_of(m_);
    return {.capacity = l.capacity,
            .ways = l.ways,
            .line = l.line,
            .sector = l.sector,
            .policy = l.policy,
            .partitions = options_.partitions,
            .index = options_.index};
  }

  /// Blocks of an SM, and what each of them gets of it.
  void set_up_kernels() {
    const Level* const shared = shared_of(m_);
    std::int64_t fit = Options::kMostBlocks;
    if (shared != nullptr) {
      const auto use = memory_use(s_);
      const auto found = use.find(shared->name);
      const std::int64_t bytes = kReserved + (found == use.end() ? 0 : found->second.value);
      fit = std::clamp<std::int64_t>(shared->capacity.value / bytes, 1, fit);
    }
    const std::int64_t per_sm = options_.blocks_per_sm.value_or(fit);
    const double bytes =
        shared != nullptr && shared->bandwidth.value > 0 ? shared->bandwidth.value : kUnknownRate;
    for (const ScheduledKernel& k : s_.kernels) {
      kernels_.push_back({.blocks = k.blocks,
                          .blocks_per_sm = per_sm,
                          .resident = std::min(sms_ * per_sm, k.blocks),
                          .walked = 0,
                          .simulated = 0});
      if (k.co_resident) kernels_.back().resident = k.blocks;
      Rates& rates = rates_.emplace_back();
      rates.bytes = bytes / static_cast<double>(per_sm);
      for (const Operator& op : s_.workload->operators())
        rates.operations.push_back(operations_a_second(op) / static_cast<double>(sms_ * per_sm));
    }
  }

  /// At the machine's peak, two flops an operation; unknown: as if they took no time.
  double operations_a_second(const Operator& op) const {
    if (m_.units.empty()) return std::numeric_limits<double>::infinity();
    const Tensor& out = s_.workload->tensor(op.outputs.front().target.tensor);
    const auto& peak = m_.units.front().peak;
    const auto found = peak.find(std::string(name_of(out.dtype)));
    return found == peak.end() ? std::numeric_limits<double>::infinity() : found->second.value / 2;
  }

  void run_list(int kernel, const BlockList& blocks, std::int64_t walked) {
    KernelRun& k = kernels_[static_cast<std::size_t>(kernel)];
    k.walked = std::max(k.walked, std::max<std::int64_t>(walked, 1));
    Dispatch how{.order = options_.order,
                 .sms = sms_,
                 .resident = k.resident,
                 .partitions = geometry_.partitions,
                 .jitter = options_.jitter,
                 .seed = options_.seed + 0x10001 * static_cast<std::uint64_t>(kernel)};
    if (options_.sample_waves != 0) how.limit = options_.sample_waves * k.resident;
    const std::int64_t ran = how.limit == 0 ? blocks.size() : std::min(how.limit, blocks.size());
    k.simulated = std::max(k.simulated, ran);
    in_parallel([&](std::size_t t) {
      std::vector<std::vector<L2::Moved>> marks;
      dispatch(blocks, how, l2_[t], [&] { marks.push_back(l2_[t].moved()); });
      if (ran < blocks.size()) extend(more_[t], marks, ran - how.limit / 2, blocks.size() - ran);
    });
    add_up(blocks);
  }

  /// What `sampled` blocks moved between two marks stands for `others` more.
  static void extend(std::vector<L2::Moved>& more, const std::vector<std::vector<L2::Moved>>& marks,
                     std::int64_t sampled, std::int64_t others) {
    const double times = static_cast<double>(others) / static_cast<double>(sampled);
    for (std::size_t i = 0; i < more.size(); ++i)
      for (std::int64_t L2::Moved::*const count :
           {&L2::Moved::hits, &L2::Moved::misses, &L2::Moved::read, &L2::Moved::written}) {
        const std::int64_t moved = marks[1][i].*count - marks[0][i].*count;
        more[i].*count += static_cast<std::int64_t>(static_cast<double>(moved) * times + 0.5);
      }
  }

  template <class F>
  void in_parallel(F&& f) {
    std::vector<std::exception_ptr> failed(l2_.size());
    std::vector<std::thread> others;
    const auto guarded = [&](std::size_t t) {
      try {
        f(t);
      } catch (...) {
        failed[t] = std::current_exception();
      }
    };
    for (std::size_t t = 1; t < l2_.size(); ++t) others.emplace_back(guarded, t);
    guarded(0);
    for (std::thread& t : others) t.join();
    for (const auto& e : failed)
      if (e) std::rethrow_exception(e);
  }

  /// What software moves and computes, of all blocks, whether they ran or not.
  void add_up(const BlockList& blocks) {
    const std::vector<std::int64_t> counts = blocks.counts();
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const Shape& shape = blocks.shapes()[i];
      for (const auto& [crossing, bytes] : shape.bytes) {
        Moved& moved = bytes_[crossing.boundary][crossing.tensor.index()];
        (crossing.inward ? moved.read : moved.written) += counts[i] * bytes;
      }
      for (std::size_t o = 0; o < shape.operations.size(); ++o)
        if (shape.operations[o] >= 0)
          operations_[o] =
              std::max<std::int64_t>(operations_[o], 0) + counts[i] * shape.operations[o];
    }
  }

  void put(Traffic& t, TrafficEntry&& e) const {
    if (!is_zero(e)) t.entries.push_back(std::move(e));
  }

  /// Across L2's outer boundary.
  std::vector<CacheCount> counts() const {
    std::vector<CacheCount> sum(tensors_);
    for (std::size_t t = 0; t < l2_.size(); ++t) {
      const std::vector<CacheCount> one = l2_[t].counts();
      for (std::size_t i = 0; i < tensors_; ++i) {
        const L2::Moved& more = more_[t][i];
        sum[i].hits += one[i].hits + more.hits;
        sum[i].misses += one[i].misses + more.misses;
        sum[i].read += one[i].read + Bytes(more.read);
        sum[i].written += one[i].written + Bytes(more.written);
        sum[i].resident_dirty += one[i].resident_dirty;
      }
    }
    return sum;
  }

  Traffic traffic() const {
    Traffic t{.source = Source::simulated,
              .by = "gpu",
              .machine = m_.name,
              .counts = {.write_allocate = true, .write_back = true, .prefetch = false}};
    const auto path = m_.path(m_.home(), *m_.find(cache_of(m_)->name));
    const std::string outer = m_.boundary(path.back().first, path.back().second);
    const std::vector<CacheCount> counted = counts();
    const auto& all = s_.workload->tensors();
    for (std::size_t i = 0; i < all.size(); ++i)
      put(t, {.tensor = all[i].name,
              .boundary = outer,
              .read = counted[i].read,
              .written = counted[i].written,
              .hits = counted[i].hits,
              .misses = counted[i].misses,
              .resident_dirty = counted[i].resident_dirty});
    const std::vector<std::string> names = routes_.names();
    for (std::size_t b = 0; b < names.size(); ++b)
      for (std::size_t i = 0; i < all.size(); ++i)
        put(t, {.tensor = all[i].name,
                .boundary = names[b],
                .read = Bytes(bytes_[b][i].read),
                .written = Bytes(bytes_[b][i].written)});
    t.memory = memory_use(s_);
    for (std::size_t o = 0; o < operations_.size(); ++o)
      if (operations_[o] >= 0)
        t.operations[s_.workload->operators()[o].name] = Operations(operations_[o]);
    return t;
  }

  const Schedule& s_;
  const Options& options_;
  const Machine& m_;
  std::size_t tensors_;
  std::int64_t sms_;
  L2Geometry geometry_;
  AddressMap map_;
  Routes routes_;
  std::vector<bool> walk_all_;
  std::vector<Rates> rates_;                  // by kernel
  std::vector<KernelRun> kernels_;            // by kernel
  std::vector<L2> l2_;                        // by thread
  std::vector<std::vector<L2::Moved>> more_;  // by thread, tensor: of blocks that did not run
  std::vector<std::vector<Moved>> bytes_;     // by boundary, tensor
  std::vector<std::int64_t> operations_;
};

}  // namespace

std::string_view name_of(BlockOrder o) {
  for (const auto& [order, name] : kOrders)
    if (order == o) return name;
  return "";
}

std::optional<BlockOrder> block_order_from_name(std::string_view name) {
  for (const auto& [order, known] : kOrders)
    if (known == name) return order;
  return std::nullopt;
}

bool simulates(const Machine& m) { return m.kind == "gpu" && cache_of(m) != nullptr; }

Simulated simulate_blocks(const Schedule& schedule, const Options& options) {
  if (!simulates(*schedule.machine))
    throw InputError({.field = "machine",
                      .value = schedule.machine->name,
                      .problem = "is not a GPU with one cache that its SMs share",
                      .accepted = "a machine of kind gpu with an L2, such as h200"});
  std::vector<bool> walk_all;  // where values say what is read, no block repeats its neighbour
  for (const ScheduledKernel& k : schedule.kernels)
    walk_all.push_back(options.walk_all || has_gathers(*schedule.workload, k));
  for (;;) {
    try {
      return Simulation(schedule, options, walk_all).run();
    } catch (const Uneven& u) {
      walk_all[static_cast<std::size_t>(u.kernel)] = true;
    }
  }
}

}  // namespace tilewright::gpu
