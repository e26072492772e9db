// What pipes do with the instructions at the head of their queues.
#include <algorithm>

#include "core/base/format.h"
#include "simulator/npu/engine.h"

namespace tilewright::npu {

void Engine::span(const Core& c, Pipe p, int statement, std::int64_t begin, std::int64_t end,
                  bool waiting) {
  if (!options_.timeline || end <= begin) return;
  report_.timeline.push_back({.core = c.id,
                              .pipe = p,
                              .statement = statement,
                              .block = c.block,
                              .begin = begin,
                              .end = end,
                              .waiting = waiting});
}

/// Time since the pipe was last accounted for: until `ready` it had nothing, from then on `cause`.
void Engine::account(Core& c, Pipe p, std::int64_t ready, std::int64_t now, std::int64_t& cause,
                     int statement) {
  PipeState& s = c.pipe(p);
  if (now <= s.counted) return;
  const std::int64_t from = std::clamp(ready, s.counted, now);
  s.times.empty += from - s.counted;
  cause += now - from;
  span(c, p, statement, from, now, true);
  s.counted = now;
}

Flag* Engine::flag(Core& c, const Instruction& i) {
  const std::int64_t event = i.v[0];
  if (event < 0 || event >= npu_.events) {
    findings_.refusal(out_of_range("event", event, 0, npu_.events - 1), c.block, i.of->statement);
    return nullptr;
  }
  const auto pair = static_cast<std::int64_t>(i.of->flag_from) * kPipes +
                    static_cast<std::int64_t>(i.of->flag_to);
  return &c.flags[static_cast<std::size_t>(pair * npu_.events + event)];
}

/// At once; the flag is up when all before it in the pipe is done.
void Engine::set_flag(Core& c, Pipe p, const Instruction& i, std::int64_t now) {
  Flag* const f = flag(c, i);
  if (f == nullptr) return;
  const Seen mine = c.clocks.seen(static_cast<int>(p));
  const auto waiter = static_cast<std::size_t>(i.of->flag_to);
  if ((f->set || f->waited > mine[waiter]) &&
      findings_.is_new(Fault::flag_overrun, i.of->statement, f->setter, -1)) {
    findings_.add(Fault::flag_overrun, c.block, i.of->statement, f->setter, -1, 0,
                  formatted("sets event {}, and nothing orders that after a wait for what set it "
                            "before",
                            i.v[0]));
  }
  f->set = true;
  f->time = std::max(now, c.pipe(p).done);
  for (std::size_t of = 0; of < kPipes; ++of) f->clock[of] = mine[of];
  f->setter = i.of->statement;
  poke(c.id, f->time);
}

bool Engine::wait_flag(Core& c, Pipe p, const Instruction& i, std::int64_t now) {
  Flag* const f = flag(c, i);
  if (f == nullptr) return true;
  if (!f->set || f->time > now) return false;
  c.clocks.join(static_cast<int>(p), f->clock.data());
  c.clocks.tick(static_cast<int>(p));
  f->set = false;
  f->waited = c.clocks.now(static_cast<int>(p));
  return true;
}

/// Starts the head of a pipe's queue if it can. False where there is nothing to do now.
bool Engine::pipe_step(Core& c, Pipe p, std::int64_t now) {
  PipeState& s = c.pipe(p);
  if (s.queue.empty() || s.transferring || s.free > now) return false;
  const Instruction i = s.queue.front();
  if (i.issued > now) {
    poke(c.id, i.issued);
    return false;
  }
  c.clocks.join(static_cast<int>(p), i.seen.data());
  switch (i.of->kind) {
    case Kind::wait_flag:
      if (!wait_flag(c, p, i, now)) return false;
      account(c, p, i.issued, now, s.times.flag[static_cast<std::size_t>(i.of->flag_from)],
              i.of->statement);
      break;
    case Kind::barrier:
      if (s.done > now) {
        poke(c.id, s.done);
        return false;
      }
      account(c, p, i.issued, now, s.times.barrier, i.of->statement);
      break;
    case Kind::set_flag:
      account(c, p, now, now, s.times.empty, i.of->statement);
      set_flag(c, p, i, now);
      break;
    default:
      account(c, p, now, now, s.times.empty, i.of->statement);
      execute(c, p, i, now);
  }
  s.queue.pop_front();
  return true;
}

void Engine::check_touches(Core& c, Pipe p, const Instruction& i) {
  const Seen mine = c.clocks.seen(static_cast<int>(p));
  const Actor actor{.block = c.block,
                    .pipe = p,
                    .statement = i.of->statement,
                    .now = mine[static_cast<std::size_t>(p)],
                    .seen = mine,
                    .phase = c.phase};
  for (const Touch& t : c.work.touches) {
    const Object& o = object(t.object);
    GlobalShadow* const global = global_[static_cast<std::size_t>(t.object)].get();
    if (o.memory == Memory::gm && global == nullptr) continue;  // inputs
    for (std::int64_t r = 0; r < t.count; ++r) {
      const std::int64_t at = t.start + r * t.stride;
      const auto conflict = global != nullptr ? global->touch(at, t.bytes, t.write, t.add, actor)
                                              : c.shadows[static_cast<std::size_t>(o.memory)].touch(
                                                    o.address + at, t.bytes, t.write, actor);
      if (conflict) findings_.conflict(*conflict, actor, t.object);
    }
  }
}

/// `elements` from one memory to another; `moved`: bytes that take time.
void Engine::count_copy(const Instruction& i, std::int64_t elements, std::int64_t moved) {
  const Object &to = object(i.of->objects[0]), &from = object(i.of->objects[1]);
  PathBytes& path = paths_[{to.tensor, static_cast<int>(from.memory), static_cast<int>(to.memory)}];
  ++path.transfers;
  path.elements += elements;
  path.read += Bytes(elements * from.element());
  path.written += Bytes(elements * to.element());
  path.moved += Bytes(moved);
}

/// The part of a read from GM whose lines the L2 has not had yet.
double Engine::dram_part(const Instruction& i, std::int64_t moved) {
  const Object& from = object(i.of->objects[1]);
  if (from.memory != Memory::gm || moved == 0) return 0;
  std::int64_t lines = 0;
  const std::int64_t size = from.element();
  for (std::int64_t r = 0; r < i.v[4]; ++r) {
    const std::int64_t start = from.address + (i.v[2] + r * i.v[3]) * size;
    const std::int64_t end = start + i.v[5] * size;
    for (std::int64_t l = start / line_bytes_; l * line_bytes_ < end; ++l) {
      if (from_dram_[static_cast<std::size_t>(l)]) continue;
      from_dram_[static_cast<std::size_t>(l)] = true;
      ++lines;
    }
  }
  report_.dram[code_.tensors()[static_cast<std::size_t>(from.tensor)]] +=
      Bytes(lines * line_bytes_);
  return std::min(1.0, static_cast<double>(lines * line_bytes_) / static_cast<double>(moved));
}

void Engine::start_transfer(Core& c, Pipe p, const Instruction& i, std::int64_t now) {
  PipeState& s = c.pipe(p);
  s.transferring = true;
  s.began = now;
  s.current = i.of;
  s.fastest = ceil_div(c.work.moved, i.of->path->width.value);
  shared_.advance(static_cast<double>(now));
  shared_.add({.core = c.id,
               .pipe = static_cast<int>(p),
               .left = static_cast<double>(c.work.moved),
               .width = static_cast<double>(i.of->path->width.value),
               .dram = dram_part(i, c.work.moved)});
}

void Engine::execute(Core& c, Pipe p, const Instruction& i, std::int64_t now) {
  PipeState& s = c.pipe(p);
  Work& work = c.work;
  work = Work{.touches = std::move(work.touches)};
  work.touches.clear();
  const auto& objects = code_.objects();
  std::optional<Refusal> bad;
  if (i.of->kind == Kind::copy)
    bad = plan_copy(objects, i, work);
  else if (i.of->kind == Kind::mad)
    bad = plan_mad(npu_, objects, i, work);
  else if (i.of->kind == Kind::move)
    bad = plan_move(npu_, objects, c.bases, i, work);
  else if (i.of->kind == Kind::put)
    bad = plan_put(npu_, objects, i, work);
  else
    bad = plan_vector(npu_, objects, i, work);
  if (bad) {
    findings_.refusal(*bad, c.block, i.of->statement);
    return;
  }
  c.clocks.tick(static_cast<int>(p));
  if (options_.check) check_touches(c, p, i);
  ++s.times.instructions;
  const bool does = !work.touches.empty();
  if (i.of->kind == Kind::copy) {
    if (does) do_copy(objects, c.bases, i);
    count_copy(i, i.v[4] * i.v[5], work.moved);
  } else if (does && i.of->kind == Kind::mad) {
    do_mad(objects, c.bases, i, c.room);
  } else if (does && i.of->kind == Kind::move) {
    do_move(objects, c.bases, i);
    if (work.moved > 0) count_copy(i, 1, work.moved);
  } else if (does && i.of->kind == Kind::put) {
    do_put(objects, c.bases, i);
  } else if (does) {
    do_vector(objects, c.bases, i);
  }
  report_.macs += work.macs;
  report_.useful_macs += work.useful_macs;
  s.times.bank += work.bank;
  const bool through_gm = i.of->kind == Kind::copy && work.moved > 0 &&
                          (object(i.of->objects[0]).memory == Memory::gm ||
                           object(i.of->objects[1]).memory == Memory::gm);
  if (through_gm) return start_transfer(c, p, i, now);
  s.free = now + work.cycles;
  s.done = std::max(s.done, s.free + work.latency);
  s.times.busy += work.cycles;
  s.counted = s.free;
  span(c, p, i.of->statement, now, s.free, false);
  poke(c.id, s.free);
}

}  // namespace tilewright::npu
