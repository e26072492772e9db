// The timeline of a run: as a trace for Perfetto, and as a picture.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/format.h"
#include "core/npu/assembly.h"
#include "simulator/npu/emulator.h"

namespace tilewright::npu {
namespace {

using nlohmann::ordered_json;

void number(const std::vector<Statement>& body, std::vector<std::string>& lines) {
  for (const Statement& s : body) {
    lines.push_back(to_line(s));
    if (const auto* loop = std::get_if<Loop>(&s.action)) number(loop->body, lines);
    if (const auto* branch = std::get_if<Branch>(&s.action)) {
      number(branch->then, lines);
      number(branch->otherwise, lines);
    }
  }
}

/// Lines of statements by number, from 1.
std::vector<std::string> lines_of(const Program& program) {
  std::vector<std::string> lines(1);
  number(program.body, lines);
  return lines;
}

std::string first_word(const std::string& line) { return line.substr(0, line.find(' ')); }

ordered_json name_event(const char* what, int process, int thread, const std::string& name) {
  return {
      {"name", what}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

std::string escaped(const std::string& text) {
  std::string r;
  for (const char c : text) {
    if (c == '<')
      r += "&lt;";
    else if (c == '>')
      r += "&gt;";
    else if (c == '&')
      r += "&amp;";
    else
      r += c;
  }
  return r;
}

// Okabe and Ito, by pipe.
constexpr const char* kColours[kPipes] = {"#6e6e6e", "#009E73", "#D55E00", "#56B4E9",
                                          "#0072B2", "#E69F00", "#CC79A7"};

}  // namespace

std::string trace_json(const Report& report, const Program& program) {
  const std::vector<std::string> lines = lines_of(program);
  ordered_json events = ordered_json::array();
  for (int c = 0; c < report.cores; ++c) {
    events.push_back(name_event("process_name", c, 0, "core " + std::to_string(c)));
    for (int p = 0; p < kPipes; ++p) {
      events.push_back(name_event("thread_name", c, p, std::string(name_of(static_cast<Pipe>(p)))));
    }
  }
  for (const Span& s : report.timeline) {
    const std::string& line = lines[static_cast<std::size_t>(s.statement)];
    const std::string name = line.empty() ? "end of block" : first_word(line);
    events.push_back({{"name", s.waiting ? "wait: " + name : name},
                      {"ph", "X"},
                      {"pid", s.core},
                      {"tid", static_cast<int>(s.pipe)},
                      {"ts", s.begin},
                      {"dur", s.end - s.begin},
                      {"args", {{"statement", s.statement}, {"block", s.block}, {"line", line}}}});
  }
  ordered_json json = {{"kind", "npu timeline"},
                       {"program", program.name},
                       {"cycles", report.cycles.value},
                       {"displayTimeUnit", "ns"},
                       {"traceEvents", std::move(events)}};
  return json.dump() + "\n";
}

std::string timeline_svg(const Report& report, const Program& program, int core) {
  constexpr int kWidth = 1200, kLeft = 60, kRow = 26, kTop = 30;
  const std::vector<std::string> lines = lines_of(program);
  const double scale = static_cast<double>(kWidth - kLeft - 10) /
                       static_cast<double>(std::max<std::int64_t>(1, report.cycles.value));
  std::vector<int> row(kPipes, -1);
  int rows = 0;
  for (int p = 0; p < kPipes; ++p) {
    const bool used =
        std::any_of(report.timeline.begin(), report.timeline.end(), [&](const Span& s) {
          return s.core == core && static_cast<int>(s.pipe) == p && !s.waiting;
        });
    if (used) row[static_cast<std::size_t>(p)] = rows++;
  }
  const int height = kTop + rows * kRow + 10;
  std::string out = formatted(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"white\"/>\n<text x=\"{}\" y=\"18\">{}, core {}: {} cycles, simulated; hatched: "
      "waiting</text>\n<defs><pattern id=\"w\" width=\"4\" height=\"4\" "
      "patternUnits=\"userSpaceOnUse\"><path d=\"M0 4 L4 0\" stroke=\"#bbb\"/></pattern></defs>\n",
      kWidth, height, kLeft, escaped(program.name.empty() ? "program" : program.name), core,
      report.cycles.value);
  for (int p = 0; p < kPipes; ++p) {
    const int r = row[static_cast<std::size_t>(p)];
    if (r < 0) continue;
    out += formatted("<text x=\"8\" y=\"{}\">{}</text>\n", kTop + r * kRow + 16,
                     name_of(static_cast<Pipe>(p)));
  }
  for (const Span& s : report.timeline) {
    const auto p = static_cast<std::size_t>(s.pipe);
    if (s.core != core || row[p] < 0) continue;
    out += formatted(
        "<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"><title>{}: {} "
        "({} to {})</title></rect>\n",
        kLeft + static_cast<double>(s.begin) * scale, kTop + row[p] * kRow,
        std::max(0.3, static_cast<double>(s.end - s.begin) * scale), kRow - 6,
        s.waiting ? "url(#w)" : kColours[p], s.statement,
        escaped(lines[static_cast<std::size_t>(s.statement)]), s.begin, s.end);
  }
  return out + "</svg>\n";
}

}  // namespace tilewright::npu
