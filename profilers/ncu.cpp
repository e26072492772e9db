#include "profilers/ncu.h"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "core/base/format.h"
#include "core/base/toolchain.h"

namespace tilewright::profilers {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kDramRead = "dram__bytes_read.sum";
constexpr std::string_view kDramWritten = "dram__bytes_write.sum";
constexpr std::string_view kIntoSm = "l1tex__m_xbar2l1tex_read_bytes.sum";
constexpr std::string_view kOutOfSm = "l1tex__m_l1tex2xbar_write_bytes.sum";
constexpr std::string_view kSeconds = "gpu__time_duration.sum";
// Of these, what comes from and goes to the shared memory of other blocks of a cluster, and what
// loads bring of that (barriers and copies aside). Tools for GPUs without clusters have none.
constexpr std::string_view kFromBlocks = "l1tex__m_xbar2l1tex_read_bytes_mem_dshared.sum";
constexpr std::string_view kToBlocks = "l1tex__m_l1tex2xbar_write_bytes_mem_dshared.sum";
constexpr std::string_view kLoadedFromBlocks =
    "l1tex__m_xbar2l1tex_read_bytes_mem_dshared_op_ld.sum";

// All that comes into an SM: by loads, by cp.async and by the TMA unit, whose boxes count whole,
// and what the blocks of a cluster read of one another.
constexpr std::string_view kMetrics[] = {
    kDramRead,
    kDramWritten,
    kIntoSm,
    kOutOfSm,
    kFromBlocks,
    kToBlocks,
    kLoadedFromBlocks,
    "lts__t_sectors_op_read.sum",
    "lts__t_sectors_op_write.sum",
    "lts__t_sectors_op_read_lookup_hit.sum",
    "lts__t_sectors_srcunit_tex_op_read.sum",
    "lts__t_sectors_srcunit_tex_op_write.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    kSeconds,
};

std::string_view base_of(std::string_view metric) { return metric.substr(0, metric.find('.')); }

/// One line of comma-separated values: quotes hold commas, a doubled quote is one. A Reason where a
/// quote is not closed.
Result<std::vector<std::string>> cells_of(std::string_view line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"')
      cells.back() += line[++i];
    else if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      cells.emplace_back();
    else if (c != '\r')
      cells.back() += c;
  }
  if (quoted) return Reason{"ncu's table has a quote that is not closed"};
  return cells;
}

/// "1,234,567.5": commas only between thousands, before the point.
std::optional<double> number_of(std::string_view text) {
  std::string digits;
  const std::size_t whole = std::min(text.find_first_of(".eE"), text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ',') {
      digits += text[i];
      continue;
    }
    if (i == 0 || i >= whole || (whole - i) % 4 != 0) return std::nullopt;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

/// What a unit is in bytes or seconds; 1 for what is counted.
double scale_of(std::string_view unit) {
  static const std::map<std::string_view, double> scales = {
      {"Kbyte", 1e3},    {"Mbyte", 1e6},    {"Gbyte", 1e9}, {"Tbyte", 1e12}, {"nsecond", 1e-9},
      {"usecond", 1e-6}, {"msecond", 1e-3}, {"ns", 1e-9},   {"us", 1e-6},    {"ms", 1e-3}};
  const auto at = scales.find(unit);
  return at == scales.end() ? 1 : at->second;
}

/// "(48, 1, 1)" or "48": the product.
std::int64_t blocks_of(std::string_view text) {
  std::int64_t product = 1;
  bool any = false;
  for (std::size_t at = 0; (at = text.find_first_of("0123456789", at)) != std::string_view::npos;) {
    std::int64_t n = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), n);
    if (error != std::errc() || n <= 0 || n > (std::int64_t{1} << 40) / product) return 0;
    product *= n;
    any = true;
    at = static_cast<std::size_t>(end - text.data());
  }
  return any ? product : 0;
}

/// Where the columns are.
struct Columns {
  std::size_t kernel = 0, grid = 0;
  bool has_grid = false;
  std::vector<std::string> names;
  std::vector<double> scales;
};

Result<NcuLaunch> launch_of(const std::vector<std::string>& cells, const Columns& columns) {
  if (cells.size() != columns.names.size())
    return Reason{formatted("ncu's table has a row of {} cells under {} names", cells.size(),
                            columns.names.size())};
  NcuLaunch launch;
  launch.kernel = cells[columns.kernel].substr(0, cells[columns.kernel].find('('));
  if (columns.has_grid) launch.blocks = blocks_of(cells[columns.grid]);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    // Other columns are attributes of the device and of the launch, and rollups nobody asked for.
    if (std::ranges::find(kMetrics, std::string_view(columns.names[i])) == std::end(kMetrics))
      continue;
    const auto value = number_of(cells[i]);
    if (value)
      launch.metrics[columns.names[i]] = *value * columns.scales[i];
    else
      launch.missing.push_back(columns.names[i]);
  }
  return launch;
}

std::string first_error(std::string_view text) {
  for (const std::string_view mark : {"==ERROR==", "==WARNING=="}) {
    const std::size_t at = text.find(mark);
    if (at == std::string_view::npos) continue;
    const std::string_view line = text.substr(at + mark.size());
    const std::size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string_view::npos) continue;
    return std::string(
        line.substr(begin, std::min<std::size_t>(line.find('\n', begin) - begin, 300)));
  }
  return "";
}

/// The names and the units; the index of the first row in `next`.
Result<Columns> columns_of(std::span<const std::string_view> lines, std::size_t& next) {
  std::size_t at = 0;
  while (at < lines.size() && !lines[at].starts_with("\"ID\",")) ++at;
  if (at == lines.size()) return Reason{"ncu has printed no table"};
  Result<std::vector<std::string>> names = cells_of(lines[at]);
  if (!names) return Reason{names.reason()};
  Columns columns{.names = std::move(names).value()};
  const auto find = [&](std::string_view name) {
    return static_cast<std::size_t>(std::find(columns.names.begin(), columns.names.end(), name) -
                                    columns.names.begin());
  };
  columns.kernel = find("Kernel Name");
  columns.grid = find("Grid Size");
  columns.has_grid = columns.grid < columns.names.size();
  if (columns.kernel == columns.names.size())
    return Reason{"ncu's table has no column Kernel Name"};
  next = at + 1;
  columns.scales.assign(columns.names.size(), 1);
  if (next >= lines.size()) return columns;
  const auto units = cells_of(lines[next]);
  if (!units) return Reason{units.reason()};
  // The line of units has none for the launch's number.
  if (units->size() != columns.names.size() || !units->front().empty()) return columns;
  for (std::size_t i = 0; i < units->size(); ++i) columns.scales[i] = scale_of((*units)[i]);
  ++next;
  return columns;
}

/// The boundary between two levels by their kinds: home and the first cache; that cache and what
/// fills from it; between the blocks of clusters.
struct Boundaries {
  std::string memory, chip, blocks;
};
Boundaries boundaries_of(const Machine& m) {
  Boundaries b;
  const auto steps = m.path(m.home(), m.default_level());
  if (steps.empty()) return b;
  if (steps.size() > 1) b.memory = m.boundary(steps.front().first, steps.front().second);
  b.chip = m.boundary(steps.back().first, steps.back().second);
  b.blocks = "cluster/" + m.level(steps.back().second).name;
  return b;
}

std::optional<std::int64_t> sum_of(std::span<const NcuLaunch> launches, std::string_view metric) {
  double sum = 0;
  for (const NcuLaunch& l : launches) {
    const auto at = l.metrics.find(std::string(metric));
    if (at == l.metrics.end()) return std::nullopt;
    sum += at->second;
  }
  if (launches.empty() || !(std::abs(sum) < 9e18)) return std::nullopt;
  return static_cast<std::int64_t>(std::llround(sum));
}

/// Whether the driver sees a GPU for the tool to count on.
std::optional<Reason> device_missing() {
  // By the loader's own paths, then where containers and WSL mount it. It stays open: it has state.
  void* library = nullptr;
  for (const char* name :
       {"libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"})
    if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Reason{"no NVIDIA driver here (libcuda.so.1 is not found)"};
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDeviceGetCount"));
  int devices = 0;
  if (init == nullptr || count == nullptr || init(0) != 0 || count(&devices) != 0 || devices == 0)
    return Reason{"the NVIDIA driver here sees no device"};
  return std::nullopt;
}

class Ncu : public Meter {
 public:
  Result<Measurement> measure(const BuiltKernel& kernel, const Machine& machine) override {
    if (kernel.counted.empty()) return Reason{"ncu counts kernels of target cuda"};
    const fs::path ncu = find_ncu();
    const Result<NcuMetrics> metrics = ncu_available(ncu);
    if (!metrics) return Reason{metrics.reason()};
    Measurement m;
    for (const CacheControl control : {CacheControl::none, CacheControl::all}) {
      const auto all = ncu_count(ncu, *metrics, control, kernel.counted);
      if (!all) return Reason{all.reason()};
      const auto own = ncu_launches_of(*all, kernel.symbols);
      if (!own) return Reason{own.reason()};
      m.traffic = ncu_traffic(*own, machine);
      for (const std::string& metric : metrics->known)
        if (const auto sum = sum_of(*own, metric))
          m.counters.emplace_back(formatted("{} (cache control {})", metric, name_of(control)),
                                  static_cast<double>(*sum));
    }
    m.notes.push_back(
        "the traffic is that of cache control all: before each kernel caches are flushed");
    for (const std::string& name : metrics->refused)
      m.notes.push_back("this version of ncu has no metric " + name);
    m.command = join(ncu_command(ncu, *metrics, CacheControl::all, "LOG", kernel.counted), " ");
    return m;
  }
};

}  // namespace

std::string_view name_of(CacheControl c) { return c == CacheControl::all ? "all" : "none"; }

Result<std::vector<NcuLaunch>> ncu_launches(std::string_view text) {
  const std::vector<std::string_view> lines = lines_of(text);
  std::size_t next = 0;
  const Result<Columns> columns = columns_of(lines, next);
  if (!columns) {
    const std::string said = first_error(text);
    return Reason{said.empty() ? columns.reason() : "ncu: " + said};
  }
  std::vector<NcuLaunch> launches;
  for (; next < lines.size(); ++next) {
    if (lines[next].empty() || lines[next] == "\r" || lines[next].starts_with("==")) continue;
    const auto cells = cells_of(lines[next]);
    if (!cells) return Reason{cells.reason()};
    Result<NcuLaunch> launch = launch_of(*cells, *columns);
    if (!launch) return Reason{launch.reason()};
    launches.push_back(std::move(launch).value());
  }
  return launches;
}

std::set<std::string> ncu_listed(std::string_view text) {
  std::set<std::string> names;
  for (std::string_view line : lines_of(text)) {
    const std::size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string_view::npos) continue;
    line = line.substr(begin);
    const std::string_view word = line.substr(0, line.find_first_of(" \t\r"));
    if (word.find("__") != std::string_view::npos) names.emplace(word);
  }
  return names;
}

fs::path find_ncu() {
  if (const fs::path found = find_program("ncu"); !found.empty()) return found;
  std::vector<fs::path> folders;
  if (const char* home = std::getenv("CUDA_HOME"); home && *home) folders.emplace_back(home);
  folders.emplace_back("/usr/local/cuda");
  for (const fs::path& folder : folders)
    if (const fs::path found = find_program((folder / "bin" / "ncu").string()); !found.empty())
      return found;
  return {};
}

Result<NcuMetrics> ncu_available(const fs::path& ncu) {
  const TemporaryDirectory folder;
  if (folder.path().empty()) return Reason{"no temporary directory"};
  const fs::path out = folder.path() / "metrics";
  const auto why = run_program({ncu.string(), "--query-metrics"}, out, {"LC_ALL=C"});
  const std::string text = text_of(out);
  const std::set<std::string> listed = ncu_listed(text);
  NcuMetrics metrics;
  for (const std::string_view metric : kMetrics)
    (listed.contains(std::string(base_of(metric))) ? metrics.known : metrics.refused)
        .emplace_back(metric);
  if (!metrics.known.empty()) return metrics;
  if (const std::string said = first_error(text); !said.empty()) return Reason{"ncu: " + said};
  return Reason{why ? why->text
                    : "ncu --query-metrics lists none of the metrics that are asked for"};
}

std::vector<std::string> ncu_command(const fs::path& ncu, const NcuMetrics& metrics,
                                     CacheControl control, const fs::path& log,
                                     const std::vector<std::string>& child) {
  std::vector<std::string> words = {ncu.string(),
                                    "--csv",
                                    "--page",
                                    "raw",
                                    "--print-units",
                                    "base",
                                    "--log-file",
                                    log.string(),
                                    "--profile-from-start",
                                    "off",
                                    "--clock-control",
                                    "none",
                                    "--cache-control",
                                    std::string(name_of(control)),
                                    "--metrics",
                                    join(metrics.known, ",")};
  words.insert(words.end(), child.begin(), child.end());
  return words;
}

Result<std::vector<NcuLaunch>> ncu_count(const fs::path& ncu, const NcuMetrics& metrics,
                                         CacheControl control,
                                         const std::vector<std::string>& child) {
  const TemporaryDirectory folder;
  if (folder.path().empty()) return Reason{"no temporary directory"};
  const fs::path log = folder.path() / "log", said = folder.path() / "said";
  // One line a number, whatever the user's language has between thousands.
  const auto why = run_program(ncu_command(ncu, metrics, control, log, child), said, {"LC_ALL=C"});
  Result<std::vector<NcuLaunch>> launches = ncu_launches(text_of(log));
  if (launches && !launches->empty()) return launches;  // some of many plans may have failed
  if (why) return Reason{why->text + (launches ? "" : "; " + launches.reason())};
  if (!launches) return launches;
  return Reason{"ncu has counted no kernel"};
}

Result<std::vector<NcuLaunch>> ncu_launches_of(std::span<const NcuLaunch> all,
                                               std::span<const std::string> symbols) {
  std::vector<NcuLaunch> own;
  for (const NcuLaunch& l : all)
    if (std::find(symbols.begin(), symbols.end(), l.kernel) != symbols.end()) own.push_back(l);
  if (own.size() != symbols.size())
    return Reason{formatted("ncu has counted {} launches of its kernels, and it has {}", own.size(),
                            symbols.size())};
  for (std::size_t i = 0; i < own.size(); ++i)
    if (own[i].kernel != symbols[i])
      return Reason{"ncu has counted " + own[i].kernel + " where " + symbols[i] + " is launched"};
  return own;
}

Traffic ncu_traffic(std::span<const NcuLaunch> launches, const Machine& machine) {
  Traffic t;
  t.source = Source::measured;
  t.by = "ncu";
  t.machine = machine.name;
  const Boundaries at = boundaries_of(machine);
  const auto add = [&](const std::string& boundary, std::string_view in, std::string_view out,
                       std::int64_t less_in, std::int64_t less_out) {
    if (boundary.empty()) return;
    const auto read = sum_of(launches, in), written = sum_of(launches, out);
    if (!read || !written) {
      t.unavailable[boundary] =
          "ncu has no value of " + std::string(read ? out : in) + " for every kernel";
      return;
    }
    t.entries.push_back({.tensor = "total",
                         .boundary = boundary,
                         .read = Bytes(*read - less_in),
                         .written = Bytes(*written - less_out)});
  };
  add(at.memory, kDramRead, kDramWritten, 0, 0);
  // What blocks of a cluster exchange does not come from L2.
  add(at.chip, kIntoSm, kOutOfSm, sum_of(launches, kFromBlocks).value_or(0),
      sum_of(launches, kToBlocks).value_or(0));
  if (const auto loaded = sum_of(launches, kLoadedFromBlocks); loaded.value_or(0) > 0)
    t.entries.push_back(
        {.tensor = "total", .boundary = at.blocks, .read = Bytes(*loaded), .written = Bytes(0)});
  double seconds = 0;
  for (const NcuLaunch& l : launches) {
    const auto found = l.metrics.find(std::string(kSeconds));
    seconds = found == l.metrics.end() ? NAN : seconds + found->second;
  }
  if (seconds > 0) t.seconds = seconds;
  return t;
}

Availability ncu_here() {
  static const std::optional<Reason> no_device = device_missing();
  const fs::path ncu = find_ncu();
  if (ncu.empty())
    return {.reason =
                "no ncu (NVIDIA Nsight Compute) on the PATH, in $CUDA_HOME/bin or in "
                "/usr/local/cuda/bin"};
  if (no_device) return {.reason = no_device->text};
  return {.usable = true, .detail = ncu.string() + "; counts kernels of target cuda"};
}
std::unique_ptr<Meter> make_ncu() { return std::make_unique<Ncu>(); }

}  // namespace tilewright::profilers
