#include "simulator/npu/engine.h"

#include <algorithm>
#include <cmath>

#include "core/base/format.h"

namespace tilewright::npu {
namespace {

constexpr std::byte kUnwritten{0xff};  ///< makes NaNs of what nothing has written
/// Cycles by which rounding may move the end of a transfer.
constexpr double kRounding = 1e-6;

/// check() has seen that it is there and has a clock.
const ComputeUnit& cube_of(const Machine& m) {
  const ComputeUnit* const cube = cube_unit(m);
  TW_CHECK(cube != nullptr, m.name);
  return *cube;
}

/// What GM is read and written through.
const Level& l2_of(const Machine& m) {
  const auto id = m.find(level_of(Memory::gm));
  TW_CHECK(id.has_value(), m.name);
  return m.level(*id);
}

}  // namespace

Core::Core(const Code& code, const Machine& machine, int number, std::int64_t events)
    : id(number), scalars(code), flags(static_cast<std::size_t>(kPipes * kPipes * events)) {
  for (int m = 0; m < kMemories; ++m) {
    const auto which = static_cast<Memory>(m);
    const auto level = machine.find(level_of(which));
    const std::int64_t capacity =
        which == Memory::gm || !level ? 0 : machine.level(*level).capacity.value;
    memory[static_cast<std::size_t>(m)].assign(static_cast<std::size_t>(capacity), kUnwritten);
    shadows.emplace_back(which, capacity);
  }
}

Engine::Engine(const Program& program, const Machine& machine, TensorData& data,
               const EmulatorOptions& options)
    : program_(program),
      npu_(*machine.npu_core),
      options_(options),
      code_(program, machine),
      line_bytes_(l2_of(machine).line.value),
      clock_hz_(cube_of(machine).clock_hz),
      shared_(npu_.shared_bandwidth.value / clock_hz_, l2_of(machine).bandwidth.value / clock_hz_),
      findings_(code_, options.most_findings) {
  prepare_memory(data);
  const std::int64_t cores = std::min(cube_of(machine).count, program.blocks);
  for (std::int64_t c = 0; c < cores; ++c) {
    cores_.push_back(std::make_unique<Core>(code_, machine, static_cast<int>(c), npu_.events));
    for (const Object& o : code_.objects()) {
      Core& core = *cores_.back();
      core.bases.push_back(o.memory == Memory::gm
                               ? data.at(o.name).data()
                               : core.memory[static_cast<std::size_t>(o.memory)].data() +
                                     o.address);
    }
  }
}

void Engine::prepare_memory(TensorData& data) {
  std::int64_t end = 0;
  for (const Object& o : code_.objects()) {
    global_.emplace_back();
    if (o.memory != Memory::gm) continue;
    end = std::max(end, o.address + o.bytes);
    auto& bytes = data[o.name];
    const bool given = bytes.size() == static_cast<std::size_t>(o.bytes);
    if (!given && (o.role == Role::input || !bytes.empty())) {
      throw InputError({.where = program_.name.empty() ? "program" : program_.name,
                        .field = o.name,
                        .value = std::to_string(bytes.size()) + " bytes",
                        .problem = "are not its elements",
                        .accepted = std::to_string(o.bytes) + " bytes"});
    }
    if (!given) bytes.assign(static_cast<std::size_t>(o.bytes), kUnwritten);
    if (o.role != Role::input && options_.check) {
      global_.back() = std::make_unique<GlobalShadow>(o.bytes, given);
    }
  }
  from_dram_.assign(static_cast<std::size_t>(end / line_bytes_ + 1), false);
}

void Engine::start_block(Core& c, std::int64_t now) {
  c.block = c.block < 0 ? c.id : c.block + static_cast<std::int64_t>(cores_.size());
  if (c.block >= program_.blocks) {
    c.hold = Core::Hold::over;
    return;
  }
  c.hold = Core::Hold::none;
  c.scalars.start(c.block, program_.blocks);
  c.clocks.reset(kPipes);
  for (LocalShadow& s : c.shadows) s.reset();
  std::fill(c.flags.begin(), c.flags.end(), Flag{});
  c.pipe(Pipe::scalar).free = now;
  poke(c.id, now);
}

/// The scalar unit has been busy with one statement.
void Engine::spend(Core& c, std::int64_t now) {
  PipeState& s = c.pipe(Pipe::scalar);
  s.free = now + npu_.issue_cycles;
  s.times.busy += npu_.issue_cycles;
  s.counted = s.free;
  poke(c.id, s.free);
}

void Engine::push(Core& c, Instruction i, std::int64_t now) {
  spend(c, now);
  i.issued = c.pipe(Pipe::scalar).free;
  const Seen seen = c.clocks.seen(static_cast<int>(Pipe::scalar));
  for (std::size_t p = 0; p < kPipes; ++p) i.seen[p] = seen[p];
  c.pipe(i.of->pipe).queue.push_back(i);
}

/// What held the scalar unit up is over.
void Engine::resume(Core& c, std::int64_t now, std::int64_t& cause) {
  PipeState& s = c.pipe(Pipe::scalar);
  account(c, Pipe::scalar, s.counted, now, cause, c.held.of == nullptr ? 0 : c.held.of->statement);
  c.hold = Core::Hold::none;
}

/// Whether all that was issued is executed and there; else comes back when it may be.
bool Engine::is_drained(Core& c, std::int64_t now) {
  std::int64_t last = now;
  for (const PipeState& s : c.pipes) {
    if (!s.queue.empty() || s.transferring) return false;
    last = std::max({last, s.free, s.done});
  }
  if (last > now) poke(c.id, last);
  return last == now;
}

bool Engine::arrive(Core& c, std::int64_t now) {
  c.arrived = true;
  const bool all =
      std::all_of(cores_.begin(), cores_.end(), [](const auto& o) { return o->arrived; });
  if (!all) return false;
  for (const auto& other : cores_) {
    other->arrived = false;
    ++other->phase;
    other->clocks.meet(std::array{0, 1, 2, 3, 4, 5, 6});
    resume(*other, now, other->pipe(Pipe::scalar).times.barrier);
    spend(*other, now);
  }
  return true;
}

bool Engine::finish_block(Core& c, std::int64_t now) {
  for (const Flag& f : c.flags) {
    if (!f.set || !findings_.is_new(Fault::flag_left, f.setter, 0, -1)) continue;
    findings_.add(Fault::flag_left, c.block, f.setter, 0, -1, 0,
                  "sets a flag that nothing has waited for at the end");
  }
  end_ = std::max(end_, now);
  resume(c, now, c.pipe(Pipe::scalar).times.barrier);
  start_block(c, now);
  return c.hold != Core::Hold::over;
}

/// Tries to go on where the scalar unit is held up.
bool Engine::release_scalar(Core& c, std::int64_t now) {
  PipeTimes& times = c.pipe(Pipe::scalar).times;
  switch (c.hold) {
    case Core::Hold::none:
      return true;
    case Core::Hold::over:
      return false;
    case Core::Hold::queue:
      if (c.pipe(c.held.of->pipe).queue.size() >= static_cast<std::size_t>(kQueue)) return false;
      resume(c, now, times.queue);
      push(c, c.held, now);
      return true;
    case Core::Hold::flag:
      if (!wait_flag(c, Pipe::scalar, c.held, now)) return false;
      resume(c, now, times.flag[static_cast<std::size_t>(c.held.of->flag_from)]);
      spend(c, now);
      return true;
    case Core::Hold::barrier:
      if (!is_drained(c, now)) return false;
      c.clocks.meet(std::array{0, 1, 2, 3, 4, 5, 6});
      resume(c, now, times.barrier);
      spend(c, now);
      return true;
    case Core::Hold::grid:
      return !c.arrived && is_drained(c, now) && arrive(c, now);
    case Core::Hold::finish:
      return is_drained(c, now) && finish_block(c, now);
  }
  return false;
}

bool Engine::scalar_issue(Core& c, Instruction i, std::int64_t now) {
  c.held = i;
  if (i.of->pipe != Pipe::scalar) {
    c.hold = Core::Hold::queue;
  } else if (i.of->kind == Kind::wait_flag) {
    c.hold = Core::Hold::flag;
  } else if (i.of->kind == Kind::set_flag) {
    set_flag(c, Pipe::scalar, i, now);
    spend(c, now);
  } else if (i.of->kind == Kind::move || i.of->kind == Kind::put) {
    account(c, Pipe::scalar, now, now, c.pipe(Pipe::scalar).times.empty, i.of->statement);
    execute(c, Pipe::scalar, i, now);
    if (c.pipe(Pipe::scalar).free <= now) spend(c, now);  // not executed
  } else if (i.of->scope == Barrier::Scope::pipe) {
    spend(c, now);
  } else {
    c.hold = i.of->scope == Barrier::Scope::all ? Core::Hold::barrier : Core::Hold::grid;
  }
  return release_scalar(c, now);
}

bool Engine::scalar_step(Core& c, std::int64_t now) {
  if (c.hold != Core::Hold::none) return release_scalar(c, now);
  if (c.pipe(Pipe::scalar).free > now) return false;
  const Step step = c.scalars.next();
  if (step.kind == Step::Kind::end) {
    c.hold = Core::Hold::finish;
    c.held = {};
    return release_scalar(c, now);
  }
  if (++report_.statements > options_.most_statements) {
    findings_.add(
        Fault::limit, c.block, step.statement, 0, -1, 0,
        formatted("comes after {} statements, the most allowed", options_.most_statements));
    stopped_ = true;
    return false;
  }
  if (step.kind == Step::Kind::fault) {
    if (findings_.is_new(Fault::arithmetic, step.statement, 0, -1)) {
      findings_.add(Fault::arithmetic, c.block, step.statement, 0, -1, 0,
                    step.problem + "; the block ends here");
    }
    c.hold = Core::Hold::finish;
    c.held = {};
    return release_scalar(c, now);
  }
  if (step.kind == Step::Kind::issue) return scalar_issue(c, step.instruction, now);
  spend(c, now);
  return true;
}

void Engine::progress(Core& c, std::int64_t now) {
  bool again = true;
  while (again && !stopped_) {
    again = scalar_step(c, now);
    for (int p = 1; p < kPipes; ++p) {
      while (pipe_step(c, static_cast<Pipe>(p), now)) again = true;
    }
  }
}

void Engine::end_transfers(double now) {
  shared_.advance(now);
  const auto cycle = static_cast<std::int64_t>(std::ceil(now - kRounding));
  for (const SharedBandwidth::Transfer& t : shared_.take_ended()) {
    Core& c = *cores_[static_cast<std::size_t>(t.core)];
    PipeState& s = c.pipes[static_cast<std::size_t>(t.pipe)];
    s.transferring = false;
    s.free = cycle + s.current->path->startup;
    s.done = std::max(s.done, s.free + s.current->path->latency);
    s.times.busy += s.free - s.began;
    s.times.bandwidth += std::max<std::int64_t>(0, cycle - s.began - s.fastest);
    s.counted = s.free;
    span(c, static_cast<Pipe>(t.pipe), s.current->statement, s.began, s.free, false);
    poke(c.id, s.free);
  }
}

Report Engine::run() {
  for (const auto& c : cores_) start_block(*c, 0);
  while (!stopped_) {
    const double ends = shared_.next_end();
    if (!events_.empty() && static_cast<double>(events_.begin()->time) < ends) {
      const Event e = *events_.begin();
      events_.erase(events_.begin());
      end_ = std::max(end_, e.time);
      progress(*cores_[static_cast<std::size_t>(e.core)], e.time);
    } else if (!shared_.empty()) {
      end_transfers(ends);
    } else {
      break;
    }
  }
  return finish();
}

void Engine::report_deadlock(Core& c) {
  const auto say = [&](const Instruction& i, const std::string& what) {
    const int statement = i.of == nullptr ? 0 : i.of->statement;
    if (!findings_.is_new(Fault::deadlock, statement, 0, -1)) return;
    findings_.add(Fault::deadlock, c.block, statement, 0, -1, 0, what);
  };
  const auto say_flag = [&](const Instruction& i) {
    say(i, formatted("waits for event {} of {}, which nothing sets any more", i.v[0],
                     name_of(i.of->flag_from)));
  };
  for (const PipeState& s : c.pipes) {
    if (!s.queue.empty() && s.queue.front().of->kind == Kind::wait_flag) say_flag(s.queue.front());
  }
  if (c.hold == Core::Hold::flag) say_flag(c.held);
  if (c.hold == Core::Hold::grid) say(c.held, "waits for blocks that never come to it");
}

void Engine::report_unwritten() {
  for (std::size_t o = 0; o < global_.size(); ++o) {
    const Object& object = code_.objects()[o];
    if (object.role != Role::output || global_[o] == nullptr) continue;
    const std::int64_t bytes = global_[o]->unwritten();
    const auto may = options_.unwritten.find(object.name);
    if (may != options_.unwritten.end() && bytes == may->second * object.element()) continue;
    if (bytes == 0 || !findings_.is_new(Fault::unwritten_output, 0, 0, static_cast<int>(o)))
      continue;
    const std::int64_t first = global_[o]->first_unwritten() / object.element();
    findings_.add(Fault::unwritten_output, 0, 0, 0, static_cast<int>(o), first,
                  formatted("ends with {} elements of {} that nothing has written, from {}[{}] on",
                            bytes / object.element(), object.name, object.name, first));
  }
}

Report Engine::finish() {
  bool over = true;
  for (const auto& c : cores_) {
    if (c->hold == Core::Hold::over) continue;
    over = false;
    if (!stopped_) report_deadlock(*c);
  }
  if (over) report_unwritten();
  report_.cycles = Cycles(end_);
  report_.seconds = static_cast<double>(end_) / clock_hz_;
  report_.cores = static_cast<int>(cores_.size());
  for (const auto& c : cores_) {
    std::array<PipeTimes, kPipes> all;
    for (std::size_t p = 0; p < all.size(); ++p) {
      PipeState& s = c->pipes[p];
      s.times.idle = std::max<std::int64_t>(0, end_ - s.counted);
      all[p] = s.times;
    }
    report_.pipes.push_back(all);
  }
  for (auto& [key, path] : paths_) {
    path.tensor = code_.tensors()[static_cast<std::size_t>(std::get<0>(key))];
    path.from = static_cast<Memory>(std::get<1>(key));
    path.to = static_cast<Memory>(std::get<2>(key));
    report_.paths.push_back(path);
  }
  std::stable_sort(report_.paths.begin(), report_.paths.end(),
                   [](const PathBytes& a, const PathBytes& b) { return a.tensor < b.tensor; });
  report_.findings = findings_.take();
  return std::move(report_);
}

double Report::cube_utilisation() const {
  const double most = static_cast<double>(cycles.value) * static_cast<double>(cores) *
                      static_cast<double>(kMacsPerCycle);
  return most > 0 ? static_cast<double>(macs) / most : 0;
}

PathBytes Report::path(const std::string& tensor, Memory from, Memory to) const {
  for (const PathBytes& p : paths) {
    if (p.tensor == tensor && p.from == from && p.to == to) return p;
  }
  return {.tensor = tensor, .from = from, .to = to};
}

Report emulate(const Program& program, const Machine& machine, TensorData& data,
               const EmulatorOptions& options) {
  check(program, machine);
  return Engine(program, machine, data, options).run();
}

}  // namespace tilewright::npu
