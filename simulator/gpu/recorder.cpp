#include "simulator/gpu/recorder.h"

#include <algorithm>

#include "core/base/error.h"

namespace tilewright::gpu {

namespace {

/// Pieces that are kept at once: some 3 GB.
constexpr std::size_t kMostPieces = 50'000'000;
/// A block that runs alone hands over what it has done after so many.
constexpr std::size_t kAlone = 1'000'000;

bool by_software(const Machine& m, LevelId l) { return m.level(l).managed == Managed::software; }

}  // namespace

Routes::Routes(const Schedule& s) : m_(*s.machine) {
  for (const ScheduledKernel& k : s.kernels) {
    auto& of_kernel = routes_.emplace_back();
    for (const Buffer& b : k.buffers)
      of_kernel.push_back(
          {.in = route(b.outer_level, b.level), .out = route(b.level, b.outer_level)});
    gathers_.push_back(has_gathers(*s.workload, k) ? route(m_.home(), k.level) : Route{});
  }
}

Routes::Route Routes::route(LevelId from, LevelId to) {
  Route r;
  for (const auto& [a, b] : m_.path(from, to)) {
    if (by_software(m_, std::max(a, b))) {
      const std::pair key(std::min(a, b), std::max(a, b));
      r.boundaries.push_back(boundaries_.try_emplace(key, boundaries_.size()).first->second);
    }
    for (const LevelId l : {a, b}) r.cache = r.cache || (l != m_.home() && !by_software(m_, l));
  }
  return r;
}

std::vector<std::string> Routes::names() const {
  std::vector<std::string> all(boundaries_.size());
  for (const auto& [levels, at] : boundaries_) all[at] = m_.boundary(levels.first, levels.second);
  return all;
}

Recorder::Recorder(const Schedule& s, const AddressMap& map, const Routes& routes,
                   std::vector<Rates> rates, std::vector<bool> walk_all, std::uint64_t seed,
                   Runner run)
    : s_(s),
      w_(*s.workload),
      m_(*s.machine),
      map_(map),
      routes_(routes),
      rates_(std::move(rates)),
      walk_all_(std::move(walk_all)),
      run_(std::move(run)),
      gathers_(w_, seed),
      contents_(s, [this](const Movement& m) { moved(m); }) {}

void Recorder::walk() {
  tilewright::walk(
      s_, [this](const AccessEvent& e) { apply(e); },
      [this](const LoopPoint& p) { return steer(p); });
}

std::int64_t Recorder::steer(const LoopPoint& p) {
  if (!grid_) return p.next;
  return grid_->steer(p, !walk_all_[static_cast<std::size_t>(p.kernel)]);
}

void Recorder::apply(const AccessEvent& e) {
  event_ = &e;
  switch (e.kind) {
    case AccessKind::kernel_begin:
      return begin(e);
    case AccessKind::zero:
      return zero(e);
    case AccessKind::kernel_end:
      close_block();
      return hand_over();
    case AccessKind::sync:
      return barrier(e);
    case AccessKind::drop:
      return contents_.apply(e);
    default:
      break;
  }
  if (current_ == nullptr || e.block != block_) {
    if (grid_) close_block();
    enter(e.block);
  }
  if (keeps_places_) keep_places(e);
  if (e.buffer.valid() && !grid_) own(e);
  contents_.apply(e);
  if (e.kind == AccessKind::compute) return compute(e);
  if (e.kind == AccessKind::gather) return gather(e);
  if (!in_cache(e)) return;
  const L2::Touch write = e.initialises ? L2::Touch::write : L2::Touch::update;
  if (e.kind == AccessKind::read)
    touch({e.node, e.buffer, e.tensor, L2::Touch::read}, e.kernel, e.buffer, e.box, e.tiles);
  else if (e.kind == AccessKind::update)
    touch({e.node, e.buffer, e.tensor, write}, e.kernel, e.buffer, e.box, e.tiles);
}

/// Blocks come to an instance again and again in turn: most of the time the last one says it.
void Recorder::own(const AccessEvent& e) {
  Owners& of = owners_[e.buffer.index()];
  if (of.instance == e.instance && of.block == e.block) return;
  of.instance = e.instance;
  of.block = e.block;
  of.by_instance[e.instance] = e.block;
}

void Recorder::begin(const AccessEvent& e) {
  const ScheduledKernel& k = s_.kernels[static_cast<std::size_t>(e.kernel)];
  grid_ = Grid::of(m_, k);
  list_ = {};
  where_.clear();
  owners_.assign(k.buffers.size(), {});
  drafts_.clear();
  passed_.clear();
  current_ = nullptr;
  block_ = 0;
  keeps_places_ = std::any_of(k.buffers.begin(), k.buffers.end(),
                              [&](const Buffer& b) { return !by_software(m_, b.level); });
  contents_.apply(e);
}

void Recorder::keep_places(const AccessEvent& e) {
  const std::size_t n = s_.kernels[static_cast<std::size_t>(e.kernel)].buffers.size();
  tiles_.assign(e.tiles, e.tiles + n);
  instances_.assign(e.instances, e.instances + n);
}

void Recorder::enter(std::int64_t block) {
  block_ = block;
  current_ = &drafts_[{passed_[block], block}];
  if (grid_) place_ = grid_->here();
  if (current_->shape.operations.empty())
    current_->shape.operations.assign(w_.operators().size(), -1);
}

/// Rule 10 at the end of a block, or of the kernel where blocks are not visited one by one.
void Recorder::close_block() {
  if (grid_ && current_ == nullptr) return;
  const AccessEvent* const now = event_;
  AccessEvent end = *now;
  end.kind = AccessKind::kernel_end;
  if (keeps_places_ && grid_) {
    end.tiles = tiles_.data();
    end.instances = instances_.data();
  }
  event_ = &end;
  contents_.apply(end);
  end.kind = AccessKind::kernel_begin;
  contents_.apply(end);
  event_ = now;
  if (!grid_) return;
  where_.push_back(place_);
  list_.add(std::move(*current_));
  drafts_.clear();
  current_ = nullptr;
}

/// Inside a grid loop each block comes to the barrier by itself; outside, all have come.
void Recorder::barrier(const AccessEvent& e) {
  const ScheduledKernel& k = s_.kernels[static_cast<std::size_t>(e.kernel)];
  if (k.node(e.node).scope != Unit::machine) return;
  bool inside = false;
  for (NodeId n = e.node; n.valid(); n = k.node(n).parent)
    inside = inside || (k.node(n).kind == NodeKind::loop && k.node(n).binding == Binding::grid);
  if (!inside) return hand_over();
  ++passed_[e.block];
  current_ = nullptr;
}

void Recorder::hand_over() {
  const int kernel = event_->kernel;
  std::int64_t phase = drafts_.empty() ? 0 : drafts_.begin()->first.first;
  for (auto& [part, draft] : drafts_) {
    if (part.first != phase) {
      run_(kernel, list_, list_.size());
      list_.clear_blocks();
      phase = part.first;
    }
    list_.add(std::move(draft));
  }
  drafts_.clear();
  current_ = nullptr;
  const std::int64_t walked = list_.size();
  if (skips() && grid_->skips()) {
    std::optional<BlockList> all = grid_->all(list_, where_);
    if (!all) throw Uneven{kernel};
    list_ = std::move(*all);
  }
  if (list_.size() != 0) run_(kernel, list_, walked);
  list_ = {};
  where_.clear();
}

void Recorder::compute(const AccessEvent& e) {
  std::int64_t& count = draft().shape.operations[e.op.index()];
  count = std::max<std::int64_t>(count, 0) + e.operations;
  const double rate = rates_[static_cast<std::size_t>(e.kernel)].operations[e.op.index()];
  draft().compute(static_cast<double>(e.operations) / rate);
}

bool Recorder::in_cache(const AccessEvent& e) const {
  if (!e.buffer.valid()) return true;
  const ScheduledKernel& k = s_.kernels[static_cast<std::size_t>(e.kernel)];
  return !by_software(m_, k.buffer(e.buffer).level);
}

void Recorder::gather(const AccessEvent& e) {
  const ScheduledKernel& k = s_.kernels[static_cast<std::size_t>(e.kernel)];
  const Routes::Route& in = routes_.of_gathers(e.kernel);
  cross(in, e.tensor, e.elements, true);
  if (!in.cache) return;
  gathers_.each(k, e, [&](const Box& box) {
    touch({e.node, BufferId(), e.tensor, L2::Touch::read}, e.kernel, BufferId(), box, e.tiles);
  });
}

/// A software-managed buffer's movement, in the block whose buffer it is.
void Recorder::moved(const Movement& m) {
  const Buffer& b = s_.kernels[static_cast<std::size_t>(m.kernel)].buffer(m.buffer);
  if (event_->kind == AccessKind::kernel_end && !grid_) {
    const auto& owners = owners_[m.buffer.index()].by_instance;
    const auto owner = owners.find(m.instance);
    enter(owner == owners.end() ? 0 : owner->second);
  }
  const Routes::Both& both = routes_.of(m.kernel, m.buffer);
  const Routes::Route& r = m.inward ? both.in : both.out;
  cross(r, b.tensor, m.box.size(), m.inward);
  if (!r.cache) return;
  const L2::Touch out = b.atomic ? L2::Touch::update : L2::Touch::write;
  const NodeId node = event_->kind == AccessKind::kernel_end ? NodeId(0) : event_->node;
  touch({node, m.buffer, b.tensor, m.inward ? L2::Touch::read : out}, m.kernel, b.outer, m.box,
        m.tiles);
}

void Recorder::cross(const Routes::Route& r, TensorId t, std::int64_t elements, bool inward) {
  for (const std::size_t b : r.boundaries)
    draft().shape.bytes[{.boundary = b, .tensor = t, .inward = inward}] +=
        elements * size_of(w_.tensor(t).dtype);
}

void Recorder::touch(const Stream& stream, int kernel, BufferId b, const Box& box,
                     const Box* tiles) {
  const double rate = rates_[static_cast<std::size_t>(kernel)].bytes;
  const auto run = [&](std::int64_t address, std::int64_t bytes) {
    draft().touch(stream, address, bytes, rate);
  };
  if (const BufferId array = map_.array_of(kernel, b); array.valid())
    map_.packed_runs(kernel, array, tiles[array.index()], box, run);
  else
    map_.runs(stream.tensor, box, run);
  const std::size_t pieces = draft().shape.pieces.size();
  if (pieces > kAlone && s_.kernels[static_cast<std::size_t>(kernel)].blocks == 1) {
    const std::int64_t block = block_;
    Draft part = std::exchange(draft(), Draft{});
    draft().shape.operations.assign(w_.operators().size(), -1);
    BlockList alone;
    alone.add(std::move(part));
    run_(kernel, alone, 0);
    block_ = block;
  }
  if (pieces > kMostPieces)
    throw InputError({.field = "plan",
                      .value = w_.name(),
                      .problem = "has blocks that make too many accesses to be kept",
                      .accepted = "more blocks, larger tiles, or --cores 1 (one after the other)"});
}

/// A tensor that blocks add to is written whole before they start, the way that its stores go.
void Recorder::zero(const AccessEvent& e) {
  const ScheduledKernel& k = s_.kernels[static_cast<std::size_t>(e.kernel)];
  for (std::size_t b = 0; b < k.buffers.size(); ++b) {
    if (!k.buffers[b].atomic || k.buffers[b].tensor != e.tensor) continue;
    enter(-1);
    const Routes::Route& out = routes_.of(e.kernel, BufferId(b)).out;
    cross(out, e.tensor, e.box.size(), false);
    if (out.cache || !by_software(m_, k.buffers[b].level))
      touch({e.node, BufferId(b), e.tensor, L2::Touch::write}, e.kernel, k.buffers[b].outer, e.box,
            e.tiles);
    BlockList alone;
    alone.add(std::move(draft()));
    drafts_.clear();
    current_ = nullptr;
    run_(e.kernel, alone, 0);
  }
}

}  // namespace tilewright::gpu
