#include "harness/executed.h"

#include <algorithm>
#include <fstream>

#include "core/base/toolchain.h"
#include "harness/simulate_json.h"
#include "profilers/valgrind.h"
#include "simulator/trace.h"

namespace tilewright::harness {

using nlohmann::ordered_json;

namespace {

constexpr std::int64_t kTopOfArena = 0x58000000;  // working memory ends below

/// Whose an address is.
class Owners {
 public:
  explicit Owners(const profilers::BuiltKernel& k)
      : stack_(static_cast<int>(k.tensors.size()) + 1) {
    for (std::size_t t = 0; t < k.tensors.size(); ++t)
      if (k.tensors[t].address != 0)
        ranges_.push_back(
            {k.tensors[t].address, k.tensors[t].address + k.tensors[t].bytes, static_cast<int>(t)});
    ranges_.push_back({k.workspace, kTopOfArena, stack_ - 1});
  }
  int of(std::int64_t address) {
    if (address >= ranges_[last_].begin && address < ranges_[last_].end)
      return ranges_[last_].owner;
    for (std::size_t i = 0; i < ranges_.size(); ++i)
      if (address >= ranges_[i].begin && address < ranges_[i].end) return ranges_[last_ = i].owner;
    return stack_;
  }
  int count() const { return stack_ + 1; }

 private:
  struct Range {
    std::int64_t begin, end;
    int owner;
  };
  std::vector<Range> ranges_;
  std::size_t last_ = 0;
  int stack_;
};

/// Caches that tell after every access how often it went past the outermost one: their DRAM counts
/// requests. Every access is a read, so that no line is ever dirty. Instructions have a first cache
/// of their own, as large as the data's (that of a second core, which changes nothing for the
/// data), and share the last one.
class CleanCaches {
 public:
  explicit CleanCaches(std::vector<CacheGeometry> geometry)
      : shares_(geometry.size() > 1),
        caches_(shared_last(std::move(geometry)),
                {.cores = shares_ ? 2 : 1, .dram = {.row_bytes = 4096}}) {}
  /// `count`: within the kernel; what was touched before it is only there.
  void access(std::int64_t address, std::int64_t bytes, bool count, ExecutedMisses& to) {
    caches_.access(address, bytes, false);
    const std::int64_t now = caches_.dram().reads;
    if (count) to.clean += now - before_, to.accesses += now > before_ ? 1 : 0;
    before_ = now;
  }
  void fetch(std::int64_t address, std::int64_t bytes) {
    if (!shares_) return;
    caches_.on_core(1);
    caches_.access(address, bytes, false);
    caches_.on_core(0);
    before_ = caches_.dram().reads;
  }

 private:
  static std::vector<CacheGeometry> shared_last(std::vector<CacheGeometry> geometry) {
    geometry.back().shared = geometry.size() > 1;
    return geometry;
  }
  bool shares_;
  CacheHierarchy caches_;
  std::int64_t before_ = 0;
};

/// LRU of the same size, whatever else it does.
CacheGeometry plain(CacheGeometry g) {
  g.policy = "lru", g.behaviour = {}, g.shared = false, g.sector = Bytes(0);
  return g;
}

void read(const std::filesystem::path& file, const profilers::BuiltKernel& kernel,
          const CachesOf& of, Executed& out) {
  Owners owners(kernel);
  const auto markers = profilers::markers_of(kernel);
  CacheHierarchy caches(of.levels, owners.count());
  CleanCaches first({plain(of.levels.front())});
  std::optional<CleanCaches> last;
  if (of.levels.size() > 1)
    last.emplace(std::vector<CacheGeometry>{plain(of.levels.front()), plain(of.levels.back())});
  bool inside = false;
  std::ifstream in(file, std::ios::binary);
  read_trace(
      in, "lackey",
      [&](std::span<const Stream> streams, std::int64_t) {
        const Stream& s = streams.front();
        if (s.address == markers.begin || s.address == markers.end) {
          inside = s.address == markers.begin;
          return;
        }
        first.access(s.address, s.bytes, inside, out.first);
        if (last) last->access(s.address, s.bytes, inside, out.last);
        if (!inside) return;
        ++(s.write ? out.stores : out.loads);
        caches.access(s.address, s.bytes, s.write, owners.of(s.address));
      },
      [&](std::int64_t address, std::int64_t bytes) {
        if (last) last->fetch(address, bytes);
      });
  for (std::size_t c = 0; c < of.levels.size(); ++c) out.counts.push_back(caches.counts(c));
}

}  // namespace

Result<Executed> execute(const profilers::BuiltKernel& kernel, const Machine& machine) {
  const CachesOf of = caches_of(machine, "--executed");
  const TemporaryDirectory directory;
  const auto file = directory.path() / "trace";
  if (auto why = profilers::trace_execution(kernel, file)) return *why;
  Executed out{.boundaries = of.boundaries};
  for (const auto& t : kernel.tensors) out.owners.push_back(t.name);
  out.owners.insert(out.owners.end(), {"workspace", "stack"});
  out.first.boundary = of.boundaries.front();
  if (of.levels.size() > 1) out.last.boundary = of.boundaries.back();
  read(file, kernel, of, out);
  if (out.loads + out.stores == 0) return Reason{"the trace has no access of the kernel"};
  for (ExecutedMisses* m : {&out.first, &out.last})
    for (std::size_t c = 0; c < of.boundaries.size(); ++c)
      if (of.boundaries[c] == m->boundary)
        for (const CacheCount& n : out.counts[c]) m->lines += n.misses;
  return out;
}

std::vector<Cause> causes(const Executed& e, const ExecutedMisses& at, const Traffic& plan,
                          std::int64_t counted) {
  std::vector<Cause> all;
  const auto c =
      static_cast<std::size_t>(std::ranges::find(e.boundaries, at.boundary) - e.boundaries.begin());
  const std::size_t workspace = e.owners.size() - 2;
  const auto add = [&](std::string what, std::int64_t lines) {
    if (lines != 0) all.push_back({std::move(what), lines});
  };
  std::int64_t on_chip =
      0;  // what the plan keeps in arrays of its own, the kernel in its workspace
  for (std::size_t t = 0; t < workspace; ++t) {
    const std::int64_t planned = plan.at(e.owners[t], at.boundary).misses;
    const CacheCount& n = e.counts[c][t];
    if (n.hits + n.misses == 0)
      on_chip += planned;
    else
      add(e.owners[t] + ": the micro-kernels' order and edges, not tile by tile",
          n.misses - planned);
  }
  add("packed tiles and intermediates in the workspace", e.counts[c][workspace].misses - on_chip);
  add("stack: spilled registers, frames, constants", e.counts[c][workspace + 1].misses);
  add("nothing written back; instructions; warm lines; two plain caches", at.clean - at.lines);
  add("accesses across two lines that both miss, counted once", at.accesses - at.clean);
  add("not explained: what runs beside the kernel", counted - at.accesses);
  return all;
}

ordered_json executed_json(const Executed& e) {
  ordered_json json = {{"source", "simulated"},
                       {"by", "the addresses executed"},
                       {"loads", e.loads},
                       {"stores", e.stores},
                       {"traffic", ordered_json::array()}};
  for (std::size_t c = e.boundaries.size(); c-- > 0;)
    for (std::size_t o = 0; o < e.owners.size(); ++o) {
      const CacheCount& n = e.counts[c][o];
      if (n == CacheCount{}) continue;
      json["traffic"].push_back({{"tensor", e.owners[o]},
                                 {"boundary", e.boundaries[c]},
                                 {"read_bytes", n.read.value},
                                 {"written_bytes", n.written.value},
                                 {"hits", n.hits},
                                 {"misses", n.misses},
                                 {"resident_dirty_bytes", n.resident_dirty.value}});
    }
  return json;
}

}  // namespace tilewright::harness
