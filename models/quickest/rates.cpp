#include <algorithm>

#include "core/base/format.h"
#include "core/lowering/byte_products.h"
#include "core/machine/assumed_speed.h"
#include "core/machine/written.h"
#include "core/workload/expr.h"
#include "models/quickest/quickest.h"

namespace tilewright::quickest {
namespace {

// Assumed where a machine file says nothing; `calibrate` measures each. The values lie between
// those of a Zen 4 and of an Emerald Rapids.
constexpr double kVectorBytes = 32;
constexpr double kFma = 1;  // cycles of a vector's multiply-add
constexpr double kLight = 0.5, kExpensive = 12, kCopy = 5, kCall = 1, kRegion = 3600, kCopyRow = 8,
                 kVisit = 0.7, kReread = 57, kTap = 1.4, kTapApart = 1.9, kLightOne = 0.4,
                 kExpensiveOne = 7, kLibraryOne = 30, kDivide = 7, kPart = 0.7, kJoin = 6.5,
                 kDram = 400, kL3 = 240, kWidenF16 = 1.5, kWidenBf16 = 1.7, kNarrowF16 = 1,
                 kNarrowBf16 = 4, kPair = 3.8, kQuad = 2.8;
/// Of the multiply-adds that a processor begins, those that kernels reach (0.95 and 0.76 on those
/// two).
constexpr double kReached = 0.85;

double find_cycles(const ComputeUnit& u, const std::string& name, double standard,
                   std::vector<std::string>& assumed) {
  const auto known = u.cycles.find(name);
  if (known != u.cycles.end()) return known->second;
  assumed.push_back(formatted("cycles of {}: {}", name, standard));
  return standard;
}

/// The type that products of a workload are computed in.
DType computed_in(DType type) { return type == DType::f64 ? DType::f64 : DType::f32; }

void add_caches(const Machine& m, const ComputeUnit& u, Rates& r) {
  const LevelId home = m.home();
  for (std::size_t i = m.levels.size(); i-- > 1;) {
    const Level& l = m.levels[i];
    if (l.kind != LevelKind::cache && l.kind != LevelKind::scratchpad) continue;
    CacheRate c;
    const LevelId id(i);
    const auto path = m.path(home, id);
    c.boundary = path.empty() ? l.name : m.boundary(path.back().first, id);
    const bool shared = l.private_to < Unit::grid;
    const double instances = static_cast<double>(std::max<std::int64_t>(1, l.instances));
    const double sharers = shared ? std::max(1.0, r.threads / instances) : 1.0;
    c.capacity = static_cast<double>(l.capacity.value) / sharers;
    c.line = static_cast<double>(l.line.value);
    c.ways = l.kind == LevelKind::cache ? l.ways : 0;
    c.sets = c.ways > 0 ? l.sets() : 0;
    const bool from_home = !path.empty() && path.back().first == home;
    c.core = 1 / l.bandwidth.value;
    // One core keeps fewer lines in flight than memory could bring to all of them.
    if (const auto stream = u.cycles.find("stream"); from_home && stream != u.cycles.end())
      c.core = stream->second * r.cycle / c.line;
    if (shared) c.all = 1 / (l.bandwidth.value * std::min<double>(instances, r.threads));
    if (const auto source = l.sources.find("bandwidth");
        source != l.sources.end() && source->second.starts_with(kAssumedSource))
      r.assumed.push_back(formatted("bandwidth {}: {}", c.boundary,
                                    source->second.substr(std::string(kAssumedSource).size())));
    c.write = 2 * c.core;
    const LevelId outer = path.empty() ? home : path.back().first;
    if (const auto known = u.cycles.find(key_of_writing(m, outer)); known != u.cycles.end())
      c.write = known->second * r.cycle / c.line;
    if (from_home) {
      const auto known = u.cycles.find(kWritingPastCaches);
      r.write_past = known != u.cycles.end() ? known->second * r.cycle / c.line : c.core;
    }
    r.caches.push_back(std::move(c));
  }
}

}  // namespace

Result<Rates> rates_of(const Question& q) {
  if (const std::string& kind = q.machine->kind;
      kind != "cpu" && kind != "cache" && kind != "scratchpad")
    return Reason{formatted("{} is not a processor", q.machine->name)};
  const auto machine = with_assumed_speed(q.machine);
  const Machine& m = *machine;
  Rates r;
  r.threads = q.threads;
  const DType type = computed_in(q.workload->dtype());
  r.element = size_of(type);
  static const ComputeUnit kUnknown;
  const ComputeUnit& u = m.units.empty() ? kUnknown : m.units.front();
  double clock = u.clock_hz;
  if (clock <= 0) {
    clock = kAssumedClock;
    r.assumed.push_back(formatted("clock: {} GHz", clock * 1e-9));
  }
  r.cycle = 1 / clock;
  double vector = static_cast<double>(u.vector_width.value);
  if (q.needs.register_tile) vector = static_cast<double>(q.needs.register_tile->lanes * r.element);
  if (vector <= 0) {
    vector = kVectorBytes;
    r.assumed.push_back(formatted("vectors: {} bytes", vector));
  }
  r.lanes = std::max<std::int64_t>(1, static_cast<std::int64_t>(vector) / r.element);
  const auto peak = u.peak.find(std::string(name_of(type)));
  if (peak != u.peak.end()) {
    r.fma = 2.0 * static_cast<double>(r.lanes) *
            static_cast<double>(std::max<std::int64_t>(1, u.count)) / peak->second.value;
  } else {
    r.fma = r.cycle * find_cycles(u, "fma", kFma, r.assumed) / kReached;
  }
  r.light = r.cycle * find_cycles(u, "light", kLight, r.assumed);
  // Files without it say of an operation and of a store the same.
  const auto store = u.cycles.find("store");
  r.store = store != u.cycles.end() ? r.cycle * store->second : r.light;
  r.expensive = r.cycle * find_cycles(u, "expensive", kExpensive, r.assumed);
  r.light_one = r.cycle * find_cycles(u, "light_one", kLightOne, r.assumed);
  r.expensive_one = r.cycle * find_cycles(u, "expensive_one", kExpensiveOne, r.assumed);
  r.library_one = r.cycle * find_cycles(u, "library_one", kLibraryOne, r.assumed);
  r.divide = r.cycle * find_cycles(u, "divide", kDivide, r.assumed);
  r.part = r.cycle * find_cycles(u, "part", kPart, r.assumed);
  r.join = r.cycle * find_cycles(u, "join", kJoin, r.assumed);
  r.copy = r.cycle * find_cycles(u, "copy", kCopy, r.assumed);
  // Some 10 cycles on a Xeon with AMX.
  constexpr double kTurn = 2;  // lines that are packed
  const auto turn = u.cycles.find("turn");
  r.turn = turn != u.cycles.end() ? r.cycle * turn->second : kTurn * r.copy;
  r.copy_row = r.cycle * find_cycles(u, "copy_row", kCopyRow, r.assumed);
  const auto has = [&q](auto is) {
    return std::ranges::any_of(q.workload->tensors(), [&](const Tensor& t) { return is(t.dtype); });
  };
  if (has([](DType t) { return t == DType::f16; })) {
    r.widen_f16 = r.cycle * find_cycles(u, "widen_f16", kWidenF16, r.assumed);
    r.narrow_f16 = r.cycle * find_cycles(u, "narrow_f16", kNarrowF16, r.assumed);
  }
  if (has([](DType t) { return t == DType::bf16 || is_integer(t); })) {  // integers about as bf16
    r.widen_bf16 = r.cycle * find_cycles(u, "widen_bf16", kWidenBf16, r.assumed);
    r.narrow_bf16 = r.cycle * find_cycles(u, "narrow_bf16", kNarrowBf16, r.assumed);
  }
  // Products take pairs where all is bf16 and the processor has instructions for it, as its file
  // says (codegen/cpu/emit.cpp).
  if (const auto pairs = u.peak.find("bf16");
      pairs != u.peak.end() && type == DType::f32 &&
      !has([](DType t) { return t != DType::bf16 && !is_integer(t); })) {
    r.fma_pairs = 4.0 * static_cast<double>(r.lanes) *
                  static_cast<double>(std::max<std::int64_t>(1, u.count)) / pairs->second.value;
    r.pair = r.cycle * find_cycles(u, "pair", kPair, r.assumed);
  }
  // Products of i8 take several steps at once, as codegen/cpu/emit_together.cpp has it.
  if (const auto bytes = u.peak.find("i8"); bytes != u.peak.end() && type == DType::f32 &&
                                            r.fma_pairs == 0 && multiplies_bytes(*q.workload)) {
    r.bytes_steps = steps_of_bytes(r.lanes * static_cast<std::int64_t>(r.element));
    r.fma_bytes = 2.0 * r.bytes_steps * static_cast<double>(r.lanes) *
                  static_cast<double>(std::max<std::int64_t>(1, u.count)) / bytes->second.value;
    r.quad = r.cycle * find_cycles(u, "quad", kQuad, r.assumed);
    constexpr double kFasterThanVectors = 0.4;  // cycles
    r.tiles = r.bytes_steps == 4 && r.fma_bytes < kFasterThanVectors * r.cycle;
  }
  r.visit = r.cycle * find_cycles(u, "visit", kVisit, r.assumed);
  r.reread = r.cycle * find_cycles(u, "reread", kReread, r.assumed);
  r.tap = r.cycle * find_cycles(u, "tap", kTap, r.assumed);
  r.tap_apart = r.cycle * find_cycles(u, "tap_apart", kTapApart, r.assumed);
  r.call = r.cycle * find_cycles(u, "call", kCall, r.assumed);
  r.latency = r.cycle * find_cycles(u, "dram", kDram, r.assumed);
  r.last_cache = r.cycle * find_cycles(u, "l3", kL3, r.assumed);
  r.region = r.cycle * find_cycles(u, "region", kRegion, r.assumed);
  if (const auto more = u.cycles.find("region_thread"); more != u.cycles.end())
    r.region += r.cycle * more->second * std::max(0, r.threads - 2);
  // Blocks of as many accumulators as registers allow (Chimera, section V-B, lists them).
  constexpr std::int64_t kFew = 16, kMany = 32;
  const bool many =
      u.registers >= kMany ||
      (q.needs.register_tile && q.needs.register_tile->rows * q.needs.register_tile->vectors > 16);
  r.registers = many ? kMany : kFew;
  const auto blocks = register_blocks(r.registers);
  r.micro_kernels.assign(blocks.begin(), blocks.end());
  add_caches(m, u, r);
  return r;
}

}  // namespace tilewright::quickest
