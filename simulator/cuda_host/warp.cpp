// Collectives: a warp's threads meet, and the last to come does the work for all.
#include "core/base/format.h"
#include "simulator/cuda_host/engine.h"

namespace tilewright::cuda_host {

std::string_view name_of(Collective c) {
  switch (c) {
    case Collective::warp_sync:
      return "warp_sync";
    case Collective::shuffle:
      return "a shuffle";
    case Collective::ballot:
      return "ballot";
    case Collective::ldmatrix:
      return "ldmatrix";
    case Collective::stmatrix:
      return "stmatrix";
    case Collective::mma:
      return "mma";
    case Collective::wmma_load:
      return "a wmma load";
    case Collective::wmma_load_sums:
      return "wmma_load_sums";
    case Collective::wmma_store_sums:
      return "wmma_store_sums";
    case Collective::wmma_multiply:
      return "wmma_multiply";
  }
  return "";
}

bool Engine::meet(Fiber& f, Collective kind, int variant, const Operand& operand) {
  watch(f, operand.place);
  const bool whole =
      kind != Collective::warp_sync && kind != Collective::shuffle && kind != Collective::ballot;
  if (whole && f.owner->warps[static_cast<std::size_t>(f.warp())].members != ~0u) {
    report(f, Fault::divergent, operand.place,
           formatted("comes to {} in a warp of {} threads: it takes 32", name_of(kind),
                     f.owner->threads % kWarp));
    stop(f);
  }
  Warp& w = f.owner->warps[static_cast<std::size_t>(f.warp())];
  if (w.arrived == 0) {
    w.kind = kind;
    w.variant = variant;
    w.place = operand.place;
  } else if (w.kind != kind || w.variant != variant) {
    report(f, Fault::divergent, operand.place,
           formatted("comes to {} while others of its warp are in {} at line @{}@", name_of(kind),
                     name_of(w.kind), w.place));
    stop(f);
  } else if (w.place != operand.place &&
             !findings_.seen_before(Fault::divergent, operand.place, w.place, -1)) {
    findings_.add(
        {.fault = Fault::divergent,
         .kernel = kernel_,
         .block = f.owner->index,
         .thread = f.index,
         .place = operand.place,
         .other_place = w.place,
         .other_block = f.owner->index,
         .other_thread = f.warp() * kWarp,
         .other_what = "waits",
         .what = formatted("comes to {} where others of its warp come to another", name_of(kind)),
         .if_lines_differ = true},
        -1);
  }
  w.arrived |= 1u << f.lane();
  w.operands[static_cast<std::size_t>(f.lane())] = operand;
  if ((w.arrived | w.ended) != w.members) {
    wait(f, Wait::warp, operand.place, static_cast<std::int64_t>(kind));
    return false;
  }
  if (w.ended != 0) {
    report(f, Fault::divergent, operand.place,
           formatted("is in {} while others of its warp have ended", name_of(kind)));
    stop(f);
  }
  return true;
}

void Engine::release(Fiber& f) {
  Block& b = *f.owner;
  Warp& w = b.warps[static_cast<std::size_t>(f.warp())];
  w.arrived = 0;
  w.runnable = w.members;
  for (int lane = 0; lane < kWarp; ++lane)
    if ((w.members >> lane & 1u) != 0)
      b.fibers[static_cast<std::size_t>(f.warp() * kWarp + lane)].wait = Wait::none;
}

void Engine::warp_sync(Fiber& f, std::uint32_t place) {
  if (left_out("warp_sync", place)) return;
  if (!meet(f, Collective::warp_sync, 0, {.place = place})) return;
  std::vector<int> members;
  const Warp& w = f.owner->warps[static_cast<std::size_t>(f.warp())];
  for (int lane = 0; lane < kWarp; ++lane)
    if ((w.members >> lane & 1u) != 0) members.push_back(f.warp() * kWarp + lane);
  if (options_.list_barriers)
    for (const int t : members)
      barriers_.meet(place, w.operands[static_cast<std::size_t>(t % kWarp)].place);
  f.owner->clocks.meet(members);
  ++counts_->warp_syncs;
  release(f);
}

std::uint32_t Engine::shuffle(Fiber& f, std::uint32_t bits, int how, int operand,
                              std::uint32_t place) {
  std::uint32_t result = bits;
  if (!meet(f, Collective::shuffle, how,
            {.out = &result,
             .value = bits,
             .value2 = static_cast<std::uint32_t>(operand),
             .place = place}))
    return result;
  const Warp& w = f.owner->warps[static_cast<std::size_t>(f.warp())];
  for (std::uint32_t lane = 0; lane < kWarp; ++lane) {
    if ((w.members >> lane & 1u) == 0) continue;
    const Operand& o = w.operands[lane];
    std::uint32_t from = how == TW_SHUFFLE_XOR    ? lane ^ (o.value2 & 31u)
                         : how == TW_SHUFFLE_DOWN ? lane + (o.value2 & 31u)
                                                  : o.value2 & 31u;
    if (from >= kWarp) from = lane;  // shuffle_down past the end: one's own
    if ((w.members >> from & 1u) == 0) {
      report(f, Fault::divergent, place,
             formatted("shuffles from lane {}, which its warp does not have", from));
      continue;
    }
    *static_cast<std::uint32_t*>(o.out) = w.operands[from].value;
  }
  ++counts_->shuffles;
  release(f);
  return result;
}

std::uint32_t Engine::ballot(Fiber& f, bool predicate, std::uint32_t place) {
  std::uint32_t result = 0;
  if (!meet(f, Collective::ballot, 0, {.out = &result, .value = predicate, .place = place}))
    return result;
  const Warp& w = f.owner->warps[static_cast<std::size_t>(f.warp())];
  std::uint32_t votes = 0;
  for (int lane = 0; lane < kWarp; ++lane)
    if ((w.members >> lane & 1u) != 0 && w.operands[static_cast<std::size_t>(lane)].value != 0)
      votes |= 1u << lane;
  for (int lane = 0; lane < kWarp; ++lane)
    if ((w.members >> lane & 1u) != 0)
      *static_cast<std::uint32_t*>(w.operands[static_cast<std::size_t>(lane)].out) = votes;
  ++counts_->shuffles;
  release(f);
  return result;
}

}  // namespace tilewright::cuda_host
