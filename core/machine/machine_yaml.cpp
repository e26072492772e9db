// Machine files: YAML in which every number is {value: ..., source: ...}.
#include <algorithm>
#include <array>

#include "core/base/document.h"
#include "core/base/error.h"
#include "core/machine/machine.h"

namespace tilewright {
namespace {

/// What else may have cycles: a load until it is there from L2 or DRAM, from one block given out to
/// the next, of a block and of a kernel besides their own instructions, of a barrier of all blocks
/// and for each of them.
/// Those who need them have defaults.
/// Beside instruction classes. Of GPUs: latencies, what launches and barriers take, and a product
/// of a warpgroup (64 x 256 x 16). Of processors: latencies by level, and what `calibrate` measures
/// of kernels (docs/formats.md).
constexpr std::array<std::string_view, 43> kOfKernels = {"l2",
                                                         "l3",
                                                         "dram",
                                                         "dispatch",
                                                         "block",
                                                         "launch",
                                                         "library",
                                                         "copy",
                                                         "call",
                                                         "fma",
                                                         "grid_barrier",
                                                         "grid_barrier_block",
                                                         "launch_together",
                                                         "region",
                                                         "region_thread",
                                                         "stream",
                                                         "take_over",
                                                         "write_l2",
                                                         "write_l3",
                                                         "write_dram",
                                                         "write_past",
                                                         "copy_row",
                                                         "visit",
                                                         "reread",
                                                         "tap",
                                                         "tap_apart",
                                                         "turn",
                                                         "store",
                                                         "light_one",
                                                         "expensive_one",
                                                         "library_one",
                                                         "divide",
                                                         "part",
                                                         "join",
                                                         "widen_f16",
                                                         "widen_bf16",
                                                         "narrow_f16",
                                                         "narrow_bf16",
                                                         "pair",
                                                         "quad",
                                                         "wgmma",
                                                         "launch_unit",
                                                         "launch_code"};

constexpr std::array kUnits = {Unit::machine, Unit::grid, Unit::cluster,
                               Unit::warp,    Unit::lane, Unit::thread};
constexpr std::array kKinds = {LevelKind::home, LevelKind::cache, LevelKind::scratchpad,
                               LevelKind::registers};
constexpr std::array kManaged = {Managed::hardware, Managed::software};
constexpr std::array kInclusions = {Inclusion::non_inclusive, Inclusion::inclusive,
                                    Inclusion::exclusive, Inclusion::victim};
constexpr std::array kWrites = {WriteHit::back, WriteHit::through};
constexpr std::array kWriteMisses = {WriteMiss::fetch, WriteMiss::validate, WriteMiss::around};
constexpr std::array kIndices = {Index::modulo, Index::folded, Index::slices};
constexpr std::array kPrefetches = {PrefetchKind::next_line, PrefetchKind::adjacent,
                                    PrefetchKind::stride};
constexpr std::int64_t kMaxCycles = 1'000'000;
const std::vector<std::string> kMachineKinds = {"cpu", "gpu", "npu", "scratchpad", "cache"};

template <class T, std::size_t N>
T named(const Field& field, const std::array<T, N>& all) {
  const std::string text = field.text();
  std::vector<std::string> names;
  for (T t : all) {
    if (name_of(t) == text) return t;
    names.emplace_back(name_of(t));
  }
  field.fail("is not accepted", join(names));
}

/// Lines of what was read, by the names that check() gives fields, so that its errors have a line.
using Lines = std::map<std::string, int>;

/// The value of {value: V, source: S}, with its source noted under `key`.
Field number(const Field& field, const std::string& key,
             std::map<std::string, std::string>& sources) {
  if (!field.is_map()) field.fail("is a number without a source", "{value: ..., source: \"...\"}");
  field.only({"value", "source"});
  const Field source = field.at("source");
  std::string text = source.text();
  if (text.empty()) source.fail("is not a source", "where the number is from, or the word assumed");
  sources[key] = std::move(text);
  return field.at("value");
}

Bytes size_in(const Field& field) {
  const bool scalar = field.value().kind != DocumentValue::Kind::list && !field.is_map();
  const auto bytes = scalar ? parse_bytes(field.value().text) : std::nullopt;
  if (!bytes) field.fail("is not a size", "a number of bytes such as 48K, 1M or 4096B");
  return *bytes;
}

double quantity(const Field& field, std::string_view unit) {
  const bool scalar = field.value().kind != DocumentValue::Kind::list && !field.is_map();
  const auto value = scalar ? parse_quantity(field.value().text, unit) : std::nullopt;
  if (!value) {
    field.fail("is not a number of " + std::string(unit),
               "a positive number such as 1.5 G" + std::string(unit));
  }
  return *value;
}

std::vector<Prefetch> read_prefetchers(const Field& f) {
  std::vector<Prefetch> all;
  for (const Field& item : f.items()) {
    item.only({"kind", "degree"});
    std::map<std::string, std::string> source;
    Prefetch p{.kind = named(item.at("kind"), kPrefetches)};
    if (const auto degree = item.get("degree")) {
      p.degree = number(*degree, "degree", source).integer(1, INT64_MAX);
      p.source = source["degree"];
    }
    all.push_back(std::move(p));
  }
  return all;
}

Level read_level(const Field& f, bool first, Lines& lines) {
  f.only({"name",       "kind",      "managed",   "capacity",  "bandwidth",     "line",
          "sector",     "ways",      "policy",    "inclusion", "clean_victims", "write",
          "write_miss", "index",     "slices",    "prefetch",  "row_buffer",    "banks",
          "private_to", "instances", "filled_by", "note"});
  Level level;
  level.name = f.at("name").text();
  level.kind = named(f.at("kind"), kKinds);
  level.managed = level.kind == LevelKind::cache ? Managed::hardware : Managed::software;
  level.private_to = first ? Unit::machine : Unit::grid;
  const std::string prefix = "level " + level.name;
  lines.emplace(prefix, f.line());
  const auto note_line = [&](const char* key) {
    const auto field = f.get(key);
    if (field) lines.emplace(prefix + ": " + key, field->line());
    return field;
  };
  const auto read = [&](const char* key, auto&& assign) {
    if (const auto field = note_line(key)) assign(number(*field, key, level.sources));
  };
  read("capacity", [&](const Field& v) { level.capacity = size_in(v); });
  read("bandwidth", [&](const Field& v) { level.bandwidth = BytesPerSecond(quantity(v, "B/s")); });
  read("line", [&](const Field& v) { level.line = level.sector = size_in(v); });
  read("sector", [&](const Field& v) { level.sector = size_in(v); });
  read("ways", [&](const Field& v) { level.ways = v.integer(0, INT64_MAX); });
  read("instances", [&](const Field& v) { level.instances = v.integer(1, INT64_MAX); });
  if (const auto v = note_line("managed")) level.managed = named(*v, kManaged);
  if (const auto v = note_line("policy")) level.policy = v->text();
  CacheBehaviour& b = level.behaviour;
  if (const auto v = note_line("inclusion")) b.inclusion = named(*v, kInclusions);
  if (const auto v = note_line("write")) b.write = named(*v, kWrites);
  if (const auto v = note_line("write_miss")) b.write_miss = named(*v, kWriteMisses);
  if (const auto v = note_line("index")) b.index = named(*v, kIndices);
  if (const auto v = note_line("prefetch")) b.prefetch = read_prefetchers(*v);
  read("clean_victims", [&](const Field& v) { b.clean_victims = v.real(); });
  read("slices", [&](const Field& v) { b.slices = v.integer(1, INT64_MAX); });
  read("row_buffer", [&](const Field& v) { level.rows.row_bytes = size_in(v).value; });
  read("banks", [&](const Field& v) { level.rows.banks = v.integer(1, INT64_MAX); });
  if (const auto v = note_line("private_to")) level.private_to = named(*v, kUnits);
  if (const auto v = note_line("note")) level.note = v->text();
  if (const auto v = note_line("filled_by")) {
    for (const Field& item : v->items()) level.filled_by.push_back(item.text());
  }
  if (level.kind != LevelKind::home && !f.get("capacity")) f.at("capacity");
  return level;
}

ComputeUnit read_unit(const Field& f, Lines& lines) {
  f.only({"name", "count", "clock", "peak", "vector_width", "registers", "blocks", "capability",
          "cycles"});
  ComputeUnit unit;
  unit.name = f.at("name").text();
  const std::string prefix = "unit " + unit.name;
  lines.emplace(prefix, f.line());
  const auto read = [&](const char* key, auto&& assign) {
    const auto field = f.get(key);
    if (!field) return;
    lines.emplace(prefix + ": " + key, field->line());
    assign(number(*field, key, unit.sources));
  };
  read("count", [&](const Field& v) { unit.count = v.integer(1, INT64_MAX); });
  read("clock", [&](const Field& v) { unit.clock_hz = quantity(v, "Hz"); });
  read("vector_width", [&](const Field& v) { unit.vector_width = size_in(v); });
  read("registers", [&](const Field& v) { unit.registers = v.integer(0, INT64_MAX); });
  read("blocks", [&](const Field& v) { unit.blocks = v.integer(1, 1 << 20); });
  read("capability", [&](const Field& v) {
    unit.capability = v.real();
    if (!(unit.capability >= 1 && unit.capability < 100))
      v.fail("is not a compute capability", "a number as 9.0");
  });
  if (const auto cycles = f.get("cycles")) {
    const auto classes = instruction_classes();
    std::vector<std::string> known(classes.begin(), classes.end());
    known.insert(known.end(), kOfKernels.begin(), kOfKernels.end());
    for (const auto& [name, field] : cycles->entries()) {
      if (std::ranges::find(known, name) == known.end())
        field.fail("is not a class of instructions", join(known));
      const Field v = number(field, "cycles." + name, unit.sources);
      unit.cycles[name] = v.real();
      if (!(unit.cycles[name] > 0)) v.fail("is not a number of cycles", "a positive number");
    }
  }
  if (const auto peak = f.get("peak")) {
    lines.emplace(prefix + ": peak", peak->line());
    for (const auto& [type, field] : peak->entries()) {
      if (!dtype_from_name(type) && type != "tf32") {
        field.fail("is the peak of no element type", "f16, bf16, f32, tf32, f64, i8 or i32");
      }
      const Field v = number(field, "peak." + type, unit.sources);
      unit.peak[type] = FlopsPerSecond(quantity(v, "FLOP/s"));
    }
  }
  return unit;
}

DataPath read_path(const Field& f, const std::string& prefix, Lines& lines) {
  f.only({"from", "to", "pipe", "width", "startup", "latency"});
  DataPath path;
  path.from = f.at("from").text();
  path.to = f.at("to").text();
  path.pipe = f.at("pipe").text();
  lines.emplace(prefix, f.line());
  path.width = size_in(number(f.at("width"), "width", path.sources));
  const auto cycles = [&](const char* key, std::int64_t& to) {
    if (const auto v = f.get(key)) to = number(*v, key, path.sources).integer(0, kMaxCycles);
  };
  cycles("startup", path.startup);
  cycles("latency", path.latency);
  return path;
}

/// The scalar entries of npu_core, by key, with the least that each may be.
struct CoreEntry {
  const char* key;
  std::int64_t NpuCore::*value;
  std::int64_t least, most;
};
constexpr CoreEntry kCoreEntries[] = {
    {"issue_cycles", &NpuCore::issue_cycles, 0, kMaxCycles},
    {"cube_startup", &NpuCore::cube_startup, 0, kMaxCycles},
    {"vector_startup", &NpuCore::vector_startup, 0, kMaxCycles},
    {"slow_repeat", &NpuCore::slow_repeat, 1, kMaxCycles},
    {"reduction_repeat", &NpuCore::reduction_repeat, 1, kMaxCycles},
    {"bank_groups", &NpuCore::bank_groups, 1, 1024},
    {"events", &NpuCore::events, 1, 64},
};

NpuCore read_npu_core(const Field& f, Lines& lines) {
  f.only({"paths", "shared_bandwidth", "issue_cycles", "cube_startup", "vector_startup",
          "slow_repeat", "reduction_repeat", "bank_groups", "events"});
  NpuCore core;
  lines.emplace("npu_core", f.line());
  for (const Field& path : f.at("paths").items()) {
    const std::string prefix = "npu_core: path " + std::to_string(core.paths.size());
    core.paths.push_back(read_path(path, prefix, lines));
  }
  core.shared_bandwidth = BytesPerSecond(
      quantity(number(f.at("shared_bandwidth"), "shared_bandwidth", core.sources), "B/s"));
  for (const CoreEntry& entry : kCoreEntries) {
    if (const auto v = f.get(entry.key)) {
      core.*entry.value = number(*v, entry.key, core.sources).integer(entry.least, entry.most);
    }
  }
  return core;
}

/// Line of the longest known part of a field's name: "level L2: ways", else "level L2", else 0.
int line_of(const Lines& lines, std::string field) {
  while (!field.empty()) {
    if (const auto it = lines.find(field); it != lines.end()) return it->second;
    const std::size_t cut = field.rfind(": ");
    if (cut == std::string::npos) break;
    field.resize(cut);
  }
  return 0;
}

// Writing -----------------------------------------------------------------------------------------

class Writer {
 public:
  void key(int indent, std::string_view name, std::string_view value) {
    out_.append(static_cast<std::size_t>(indent), ' ');
    out_ += name;
    out_ += ": ";
    out_ += value;
    out_ += '\n';
  }
  void text(int indent, std::string_view name, std::string_view value) {
    if (!value.empty()) key(indent, name, yaml_scalar(value));
  }
  /// {value: V, source: S}, left out where it is the default and has no source.
  void number(int indent, const std::string& name, const std::string& value, bool is_default,
              const std::map<std::string, std::string>& sources, const std::string& source_key) {
    const auto source = sources.find(source_key);
    if (source == sources.end() && is_default) return;
    const std::string from = source == sources.end() ? "assumed" : source->second;
    key(indent, name, "{value: " + value + ", source: " + yaml_scalar(from) + "}");
  }
  void line(std::string_view text) { out_ += std::string(text) + "\n"; }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

void write_prefetchers(Writer& w, const std::vector<Prefetch>& all) {
  if (!all.empty()) w.line("    prefetch:");
  for (const Prefetch& p : all) {
    std::string line = "      - {kind: " + std::string(name_of(p.kind));
    if (p.degree != 1 || !p.source.empty()) {
      line += ", degree: {value: " + std::to_string(p.degree) +
              ", source: " + yaml_scalar(p.source.empty() ? "assumed" : p.source) + "}";
    }
    w.line(line + "}");
  }
}

void write_behaviour(Writer& w, const Level& l) {
  const CacheBehaviour& b = l.behaviour;
  const CacheBehaviour plain;
  const auto word = [&](const char* key, auto value, auto usual) {
    if (value != usual) w.key(4, key, name_of(value));
  };
  word("inclusion", b.inclusion, plain.inclusion);
  w.number(4, "clean_victims", shortest(b.clean_victims), b.clean_victims == plain.clean_victims,
           l.sources, "clean_victims");
  word("write", b.write, plain.write);
  word("write_miss", b.write_miss, plain.write_miss);
  word("index", b.index, plain.index);
  w.number(4, "slices", std::to_string(b.slices), b.slices == 1, l.sources, "slices");
  write_prefetchers(w, b.prefetch);
  w.number(4, "row_buffer", to_text(Bytes(l.rows.row_bytes)), l.rows.row_bytes == 0, l.sources,
           "row_buffer");
  w.number(4, "banks", std::to_string(l.rows.banks), l.rows.banks == 1, l.sources, "banks");
}

void write_level(Writer& w, const Level& l, bool first) {
  w.line("  - name: " + yaml_scalar(l.name));
  w.key(4, "kind", name_of(l.kind));
  const Managed implied = l.kind == LevelKind::cache ? Managed::hardware : Managed::software;
  if (l.managed != implied) w.key(4, "managed", name_of(l.managed));
  const auto number = [&](const char* name, const std::string& value, bool is_default) {
    w.number(4, name, value, is_default, l.sources, name);
  };
  number("capacity", to_text(l.capacity), l.kind == LevelKind::home && l.capacity == Bytes(0));
  number("bandwidth", quantity_text(l.bandwidth.value, "B/s"), l.bandwidth.value == 0);
  number("line", to_text(l.line), l.line == Bytes(64));
  number("sector", to_text(l.sector), l.sector == l.line);
  number("ways", std::to_string(l.ways), l.ways == 0);
  w.text(4, "policy", l.policy == "lru" ? "" : l.policy);
  write_behaviour(w, l);
  if (l.private_to != (first ? Unit::machine : Unit::grid)) {
    w.key(4, "private_to", name_of(l.private_to));
  }
  number("instances", std::to_string(l.instances), l.instances == 1);
  if (!l.filled_by.empty()) {
    std::vector<std::string> names;
    for (const std::string& name : l.filled_by) names.push_back(yaml_scalar(name));
    w.key(4, "filled_by", "[" + join(names) + "]");
  }
  w.text(4, "note", l.note);
}

void write_unit(Writer& w, const ComputeUnit& u) {
  w.line("  - name: " + yaml_scalar(u.name));
  const auto number = [&](const char* name, const std::string& value, bool is_default) {
    w.number(4, name, value, is_default, u.sources, name);
  };
  number("count", std::to_string(u.count), u.count == 1);
  number("clock", quantity_text(u.clock_hz, "Hz"), u.clock_hz == 0);
  number("vector_width", to_text(u.vector_width), u.vector_width == Bytes(0));
  number("registers", std::to_string(u.registers), u.registers == 0);
  number("blocks", std::to_string(u.blocks), u.blocks == 1);
  number("capability", shortest(u.capability), u.capability == 0);
  if (!u.peak.empty()) {
    w.line("    peak:");
    for (const auto& [type, rate] : u.peak) {
      w.number(6, type, quantity_text(rate.value, "FLOP/s"), false, u.sources, "peak." + type);
    }
  }
  if (!u.cycles.empty()) {
    w.line("    cycles:");
    for (const auto& [name, cycles] : u.cycles)
      w.number(6, name, shortest(cycles), false, u.sources, "cycles." + name);
  }
}

/// {value: V, source: S}, inside a line.
std::string sourced(const std::string& value, const std::map<std::string, std::string>& sources,
                    const std::string& key) {
  const auto source = sources.find(key);
  return "{value: " + value +
         ", source: " + yaml_scalar(source == sources.end() ? "assumed" : source->second) + "}";
}

void write_npu_core(Writer& w, const NpuCore& core) {
  w.line("npu_core:");
  w.line("  paths:");
  for (const DataPath& p : core.paths) {
    w.line("    - from: " + yaml_scalar(p.from));
    w.text(6, "to", p.to);
    w.text(6, "pipe", p.pipe);
    w.key(6, "width", sourced(to_text(p.width), p.sources, "width"));
    w.number(6, "startup", std::to_string(p.startup), p.startup == 0, p.sources, "startup");
    w.number(6, "latency", std::to_string(p.latency), p.latency == 0, p.sources, "latency");
  }
  w.key(
      2, "shared_bandwidth",
      sourced(quantity_text(core.shared_bandwidth.value, "B/s"), core.sources, "shared_bandwidth"));
  const NpuCore plain;
  for (const CoreEntry& entry : kCoreEntries) {
    w.number(2, entry.key, std::to_string(core.*entry.value),
             core.*entry.value == plain.*entry.value, core.sources, entry.key);
  }
}

}  // namespace

std::span<const std::string_view> instruction_classes() {
  static constexpr std::array<std::string_view, 6> kClasses = {"light",  "expensive", "shuffle",
                                                               "shared", "global",    "barrier"};
  return kClasses;
}

Machine machine_from_yaml(std::string_view text, std::string_view where) {
  const DocumentValue document = read_yaml(text, where);
  const Field f(document, std::string(where));
  f.only({"name", "summary", "kind", "default_level", "levels", "units", "npu_core", "sources"});
  Machine m;
  Lines lines;
  m.name = f.at("name").text();
  if (const auto v = f.get("summary")) m.summary = v->text();
  const Field kind = f.at("kind");
  m.kind = kind.text();
  if (std::find(kMachineKinds.begin(), kMachineKinds.end(), m.kind) == kMachineKinds.end()) {
    kind.fail("is not a kind of machine", join(kMachineKinds));
  }
  if (const auto v = f.get("default_level")) {
    m.plan_level = v->text();
    lines.emplace("default_level", v->line());
  }
  const Field levels = f.at("levels");
  lines.emplace("levels", levels.line());
  for (const Field& level : levels.items()) {
    const std::size_t i = m.levels.size();
    lines.emplace("level " + std::to_string(i), level.line());
    m.levels.push_back(read_level(level, i == 0, lines));
    if (i > 0 && m.levels.back().filled_by.empty()) {
      m.levels.back().filled_by = {m.levels[i - 1].name};
    }
  }
  if (const auto units = f.get("units")) {
    lines.emplace("units", units->line());
    for (const Field& unit : units->items()) m.units.push_back(read_unit(unit, lines));
  }
  if (const auto core = f.get("npu_core")) m.npu_core = read_npu_core(*core, lines);
  if (const auto sources = f.get("sources")) {
    for (const auto& [key, v] : sources->entries()) m.sources[key] = v.text();
  }
  try {
    check(m, "");
  } catch (const InputError& e) {
    const int line = line_of(lines, e.parts().field);
    throw e.located(line > 0 ? std::string(where) + ":" + std::to_string(line)
                             : std::string(where));
  }
  return m;
}

std::string to_yaml(const Machine& m) {
  Writer w;
  w.text(0, "name", m.name);
  w.text(0, "summary", m.summary);
  w.text(0, "kind", m.kind);
  w.text(0, "default_level", m.plan_level);
  w.line("levels:");
  for (std::size_t i = 0; i < m.levels.size(); ++i) write_level(w, m.levels[i], i == 0);
  if (!m.units.empty()) w.line("units:");
  for (const ComputeUnit& u : m.units) write_unit(w, u);
  if (m.npu_core) write_npu_core(w, *m.npu_core);
  if (!m.sources.empty()) w.line("sources:");
  for (const auto& [key, source] : m.sources) {
    w.key(2, yaml_scalar(key), source.empty() ? "\"\"" : yaml_scalar(source));
  }
  return w.take();
}

}  // namespace tilewright
