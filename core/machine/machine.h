// Where to compute: memory levels, the paths between them, compute units. Every number of a machine
// file carries its source.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/units.h"
#include "core/machine/cache_behaviour.h"

namespace tilewright {

/// Who decides what a level holds.
enum class Managed : std::uint8_t { hardware, software };

/// Home is where whole tensors live (DRAM, global memory); registers are no default level of a
/// plan.
enum class LevelKind : std::uint8_t { home, cache, scratchpad, registers };

/// Kinds of parallel unit, outermost first. `machine`: one instance, shared by all.
enum class Unit : std::uint8_t { machine, grid, cluster, warp, lane, thread };
std::string_view name_of(Unit u);
std::string_view name_of(Managed m);
std::string_view name_of(LevelKind k);

struct Level {
  std::string name;
  LevelKind kind = LevelKind::cache;
  Managed managed = Managed::hardware;
  Bytes capacity;            ///< of one instance; 0 for home means unbounded
  BytesPerSecond bandwidth;  ///< from the next outer level into one instance; 0: unknown
  Bytes line{64};
  Bytes sector{64};               ///< equals line where the cache has none
  std::int64_t ways = 0;          ///< caches; 0: fully associative
  std::string policy = "lru";     ///< caches; see Replacement
  CacheBehaviour behaviour = {};  ///< caches
  DramRows rows = {};             ///< home
  Unit private_to = Unit::grid;   ///< which unit has an instance of its own
  std::int64_t instances = 1;     ///< in the whole machine
  /// Levels that can write into it, outer first. Empty: the level listed before it.
  std::vector<std::string> filled_by;
  std::string note;
  /// Source of each number, by field name ("capacity" -> "Intel SDM ...").
  std::map<std::string, std::string> sources;
  std::int64_t sets() const;  ///< caches: capacity / (line * ways)
  friend bool operator==(const Level&, const Level&) = default;
};

struct ComputeUnit {
  std::string name;  ///< "core", "SM", "cube", ...
  std::int64_t count = 1;
  double clock_hz = 0;                         ///< 0: unknown
  std::map<std::string, FlopsPerSecond> peak;  ///< whole machine, by dtype name, dense
  Bytes vector_width;                          ///< 0: none
  std::int64_t registers = 0;                  ///< vector registers of a core, 32-bit ones of an SM
  std::int64_t blocks = 1;                     ///< thread blocks that one can run at the same time
  double capability = 0;  ///< NVIDIA's compute capability, as 9.0: which instructions; 0: unknown
  /// Cycles until a warp's instruction of a class has its result, by instruction_classes().
  std::map<std::string, double> cycles = {};
  std::map<std::string, std::string> sources;
  friend bool operator==(const ComputeUnit&, const ComputeUnit&) = default;
};

/// One way that data takes into or out of an NPU core's buffers, and the pipe that moves it.
struct DataPath {
  std::string from, to;      ///< levels
  std::string pipe;          ///< "MTE1", "MTE2", "MTE3", "V" or "FIX"
  Bytes width;               ///< a clock, in one core
  std::int64_t startup = 0;  ///< cycles that the pipe spends on a transfer besides its bytes
  std::int64_t latency = 0;  ///< cycles until the last byte is there, when the pipe is free again
  std::map<std::string, std::string> sources;
  friend bool operator==(const DataPath&, const DataPath&) = default;
};

/// What emulating an NPU's cores takes besides levels and units; a machine file's `npu_core`.
/// Cycles are those of the unit named cube.
struct NpuCore {
  std::vector<DataPath> paths;
  BytesPerSecond shared_bandwidth;    ///< of the cache into all cores together
  std::int64_t issue_cycles = 1;      ///< of the scalar unit, for each instruction
  std::int64_t cube_startup = 0;      ///< cycles of a matrix instruction besides its fractals
  std::int64_t vector_startup = 0;    ///< cycles of a vector instruction besides its repeats
  std::int64_t slow_repeat = 1;       ///< cycles of a repeat of div, exp, log, sqrt, rsqrt, recip
  std::int64_t reduction_repeat = 1;  ///< cycles of a repeat of a reduction
  std::int64_t bank_groups = 1;       ///< of the Unified Buffer, interleaved by 32 bytes
  std::int64_t events = 8;            ///< flags between two pipes
  std::map<std::string, std::string> sources;
  friend bool operator==(const NpuCore&, const NpuCore&) = default;
};

/// Classes of a GPU's instructions that a machine file may give cycles of: "light" (an add, a
/// product, a comparison), "expensive" (exp, sqrt, a division), "shuffle", "shared", "global",
/// "barrier".
std::span<const std::string_view> instruction_classes();

/// Levels are listed outermost (home) first.
struct Machine {
  std::string name;
  std::string summary;
  std::string kind;  ///< "cpu", "gpu", "npu", "scratchpad", "cache"
  std::vector<Level> levels;
  std::vector<ComputeUnit> units;
  std::optional<NpuCore> npu_core = {};  ///< NPUs that the emulator knows
  /// The plan's default level where the innermost one would be the wrong choice (an NPU's sibling
  /// buffers); a machine file's `default_level`. Empty: the rule of default_level().
  std::string plan_level = {};
  std::map<std::string, std::string> sources;

  std::span<const Level> all() const { return levels; }
  const Level& level(LevelId id) const { return levels[id.index()]; }
  LevelId home() const { return LevelId(0); }
  /// By name, ignoring case; "dram" and "home" always find home.
  std::optional<LevelId> find(std::string_view name) const;
  /// A plan's default level: plan_level, else the innermost (last listed) that is not registers.
  LevelId default_level() const;
  /// The steps that data takes between two levels, each (from, to): the fewest, and among those
  /// the ones that most often go from a level into one that lists it in filled_by (the others are
  /// write-backs: out of a level into one that it lists). Empty when there is no such path or
  /// from == to. On a linear hierarchy the steps are the adjacent pairs.
  std::vector<std::pair<LevelId, LevelId>> path(LevelId from, LevelId to) const;
  /// "OUTER/INNER" for a step in either direction.
  std::string boundary(LevelId a, LevelId b) const;
  friend bool operator==(const Machine&, const Machine&) = default;
};

/// Throws InputError unless the machine has a home, first, and an on-chip level, unique names,
/// positive capacities, ways that divide, filled_by names that exist and a path to every level.
/// Level names are identifiers that do not end in x and digits (L.A@L1x2 means two copies at L1).
void check(const Machine& m, std::string_view where = "machine");

/// "scratchpad:4096B": one software-managed level L1 over DRAM; "scratchpad:4K,64K": several, L1
/// (the innermost) first. "cache:48K/12,1M/16,32M/16": LRU write-back caches with 64-byte lines, L1
/// first, SIZE/WAYS; without ways, fully associative. Sizes: B, K, M, G, and of scratchpads also
/// "1024e", elements of 4 bytes; none smaller than the one inside it. Every level is private to a
/// grid block, except the outermost of three or more caches, which the machine shares. Throws
/// InputError.
Machine parse_synthetic_machine(std::string_view spec);
/// A machine file. Throws InputError with the file's line.
Machine machine_from_yaml(std::string_view text, std::string_view where);
/// Reads back to the same value. A number without a source is written with the source "assumed",
/// since a file must give one.
std::string to_yaml(const Machine& m);

/// The same machine as `level` alone, software-managed, over home: what `exact` counts when the
/// level is a hardware cache that a model treats as a scratchpad. Its bandwidth is the least known
/// one on the way from home. Throws InputError where the level is home.
Machine as_scratchpad(const Machine& m, LevelId level);

/// Names of the machine files that the library carries, and the machine of that name: "host" is
/// detected, "scratchpad:..." and "cache:..." are made, a path ending in .yaml is read.
std::vector<std::string> machine_names();
Machine named_machine(std::string_view name);

}  // namespace tilewright
