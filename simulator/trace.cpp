#include "simulator/trace.h"

#include <charconv>
#include <istream>

#include "core/base/error.h"
#include "simulator/trace_binary.h"

namespace tilewright {

namespace {

constexpr std::size_t kMostLine = 4096;
constexpr std::int64_t kDinBytes = 4;

[[noreturn]] void fail(std::string_view where, std::int64_t line, std::string_view text,
                       const char* problem, const char* accepted) {
  throw InputError({.where = std::string(where) + ":" + std::to_string(line),
                    .field = "trace",
                    .value = std::string(text.substr(0, 60)),
                    .problem = problem,
                    .accepted = accepted});
}

std::string_view word(std::string_view& text) {
  const std::size_t begin = std::min(text.find_first_not_of(" \t\r"), text.size());
  const std::size_t end = std::min(text.find_first_of(" \t\r", begin), text.size());
  const std::string_view w = text.substr(begin, end - begin);
  text.remove_prefix(end);
  return w;
}

bool number(std::string_view text, int base, std::int64_t& value) {
  if (base == 16 && (text.starts_with("0x") || text.starts_with("0X"))) text.remove_prefix(2);
  std::uint64_t read = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), read, base);
  value = static_cast<std::int64_t>(read);
  return error == std::errc() && end == text.data() + text.size() && read <= kMostAddress;
}

/// f(number, line) for each line of text that is not empty.
template <class F>
void each_line(std::istream& in, std::string_view where, F&& f) {
  std::string line;
  for (std::int64_t n = 1; std::getline(in, line); ++n) {
    if (line.size() > kMostLine) fail(where, n, line, "is too long a line", "at most 4096 bytes");
    std::string_view text = line;
    while (!text.empty() && (text.back() == '\r' || text.back() == ' ')) text.remove_suffix(1);
    if (!text.empty()) f(n, text);
  }
}

class Teller {
 public:
  Teller(TraceSummary& summary, const TraceSink& sink) : summary_(summary), sink_(sink) {}
  void operator()(std::int64_t address, std::int64_t bytes, bool write) {
    ++(write ? summary_.writes : summary_.reads);
    const Stream one{.address = address, .bytes = bytes, .write = write};
    sink_({&one, 1}, 1);
  }

 private:
  TraceSummary& summary_;
  const TraceSink& sink_;
};

void read_din(std::istream& in, std::string_view where, TraceSummary& summary, Teller tell,
              const FetchSink& fetch) {
  each_line(in, where, [&](std::int64_t n, std::string_view text) {
    std::string_view rest = text;
    const std::string_view label = word(rest);
    std::int64_t address = 0;
    if (label != "0" && label != "1" && label != "2")
      fail(where, n, text, "has no such label", "0 read, 1 write or 2 fetch, and an address");
    if (!number(word(rest), 16, address))
      fail(where, n, text, "has no address", "a hexadecimal number up to 2^52");
    if (label != "2") return tell(address, kDinBytes, label == "1");
    ++summary.fetches;
    if (fetch) fetch(address, kDinBytes);
  });
}

void read_lackey(std::istream& in, std::string_view where, TraceSummary& summary, Teller tell,
                 const FetchSink& fetch) {
  each_line(in, where, [&](std::int64_t n, std::string_view text) {
    if (text.starts_with("==") || text.starts_with("--")) return;
    std::string_view rest = text;
    const std::string_view kind = word(rest), place = word(rest);
    const std::size_t comma = place.find(',');
    std::int64_t address = 0, bytes = 0;
    if (kind.size() != 1 || std::string_view("ILSM").find(kind[0]) == std::string_view::npos ||
        comma == std::string_view::npos || !number(place.substr(0, comma), 16, address) ||
        !number(place.substr(comma + 1), 10, bytes) || bytes < 1 || bytes > INT32_MAX)
      fail(where, n, text, "is not an access", "I, L, S or M, then ADDRESS,SIZE");
    if (kind == "I") {
      ++summary.fetches;
      if (fetch) fetch(address, bytes);
      return;
    }
    if (kind != "S") tell(address, bytes, false);
    if (kind != "L") tell(address, bytes, true);
  });
}

/// The first bytes, which stay where they are.
std::string beginning_of(std::istream& in) {
  std::string first(256, '\0');
  const auto start = in.tellg();
  in.read(first.data(), static_cast<std::streamsize>(first.size()));
  first.resize(static_cast<std::size_t>(in.gcount()));
  in.clear();
  in.seekg(start);
  return first;
}

}  // namespace

std::string_view name_of(TraceFormat f) {
  switch (f) {
    case TraceFormat::din:
      return "din";
    case TraceFormat::lackey:
      return "lackey";
    case TraceFormat::tilewright:
      return "tilewright";
  }
  return "tilewright";
}

TraceFormat trace_format(std::string_view beginning, std::string_view where) {
  if (beginning.starts_with(kTraceMagic)) return TraceFormat::tilewright;
  const std::size_t at = beginning.find_first_not_of(" \t\r\n");
  if (at != std::string_view::npos) {
    const char c = beginning[at];
    if (c >= '0' && c <= '2') return TraceFormat::din;
    if (c == '=' || c == '-' || std::string_view("ILSM").find(c) != std::string_view::npos)
      return TraceFormat::lackey;
  }
  throw InputError({.where = std::string(where),
                    .field = "trace",
                    .value = at == std::string_view::npos ? "nothing" : "its first bytes",
                    .problem = "are of no format known",
                    .accepted = "din, lackey, or what --save-trace writes"});
}

std::vector<std::string> trace_tensors(std::istream& in, std::string_view where) {
  if (trace_format(beginning_of(in), where) != TraceFormat::tilewright) return {"trace"};
  const auto start = in.tellg();
  std::vector<std::string> names = read_binary_header(in, where);
  in.clear();
  in.seekg(start);
  return names;
}

TraceSummary read_trace(std::istream& in, std::string_view where, const TraceSink& sink,
                        const FetchSink& fetch) {
  TraceSummary summary{.format = trace_format(beginning_of(in), where), .tensors = {"trace"}};
  switch (summary.format) {
    case TraceFormat::din:
      read_din(in, where, summary, Teller(summary, sink), fetch);
      break;
    case TraceFormat::lackey:
      read_lackey(in, where, summary, Teller(summary, sink), fetch);
      break;
    case TraceFormat::tilewright:
      read_binary(in, where, summary, sink);
      break;
  }
  if (in.bad())
    throw InputError({.where = std::string(where),
                      .field = "trace",
                      .problem = "could not be read to its end",
                      .accepted = "a readable file"});
  return summary;
}

}  // namespace tilewright
