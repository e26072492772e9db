#include "simulator/cuda_host/findings.h"

#include <algorithm>
#include <cstdlib>

#include "core/base/format.h"
#include "simulator/cuda_host/engine.h"

namespace tilewright::cuda_host {

std::string_view name_of(Fault fault) {
  switch (fault) {
    case Fault::out_of_bounds:
      return "out of bounds";
    case Fault::misaligned:
      return "misaligned";
    case Fault::uninitialised:
      return "uninitialised";
    case Fault::race:
      return "race";
    case Fault::block_race:
      return "race between blocks";
    case Fault::barrier_mismatch:
      return "barrier mismatch";
    case Fault::divergent:
      return "divergent";
    case Fault::deadlock:
      return "deadlock";
    case Fault::mbarrier_misuse:
      return "mbarrier misuse";
    case Fault::not_fenced:
      return "not fenced";
    case Fault::wgmma_misuse:
      return "wgmma misuse";
    case Fault::bad_argument:
      return "bad argument";
  }
  return "";
}

std::string described(const Place& place) {
  if (place.line == 0) return "?";
  if (place.caller_line == 0) return std::to_string(place.line);
  return formatted("{} of {} (from line {})", place.line, place.file, place.caller_line);
}

bool FindingCollector::seen_before(Fault fault, std::uint32_t place, std::uint32_t other_place,
                                   int object) {
  const auto at = index_.find({fault, place, other_place, object});
  if (at == index_.end()) return false;
  ++found_[at->second].count;
  return true;
}

void FindingCollector::add(RawFinding finding, int object) {
  const Key key{finding.fault, finding.place, finding.other_place, object};
  if (seen_before(finding.fault, finding.place, finding.other_place, object)) return;
  index_[key] = found_.size();
  found_.push_back(std::move(finding));
}

namespace {

using Lines = std::map<std::uint32_t, Place>;

Place line_of(const Lines& lines, std::uint32_t place) {
  const auto at = lines.find(place);
  return at == lines.end() ? Place{} : at->second;
}

/// Calls `found` with every place written as @123@ in `what`; what it returns stands there instead.
template <class F>
std::string with_lines(const std::string& what, F&& found) {
  std::string text;
  for (std::size_t i = 0; i < what.size();) {
    const std::size_t end = what[i] == '@' ? what.find('@', i + 1) : std::string::npos;
    if (end == std::string::npos) {
      text += what[i++];
      continue;
    }
    text += found(static_cast<std::uint32_t>(std::strtoul(what.c_str() + i + 1, nullptr, 10)));
    i = end + 1;
  }
  return text;
}

Finding in_words(const RawFinding& raw, const Lines& lines) {
  Finding f{.fault = raw.fault,
            .kernel = raw.kernel,
            .block = raw.block,
            .thread = raw.thread,
            .place = line_of(lines, raw.place),
            .other = line_of(lines, raw.other_place),
            .other_block = raw.other_block,
            .other_thread = raw.other_thread,
            .object = raw.object,
            .offset_bytes = raw.offset,
            .count = raw.count};
  f.text = formatted(
      "{}: {}, block {}, thread {}, line {}: {}", name_of(raw.fault), raw.kernel, raw.block,
      raw.thread, described(f.place),
      with_lines(raw.what, [&](std::uint32_t p) { return described(line_of(lines, p)); }));
  if (raw.other_place != 0)
    f.text +=
        formatted(", thread {}{} {} at line {}", raw.other_thread,
                  raw.other_block == raw.block ? "" : formatted(" of block {}", raw.other_block),
                  raw.other_what, described(f.other));
  if (!f.place.text.empty()) f.text += " | " + f.place.text;
  return f;
}

}  // namespace

void FindingCollector::finish(const Image& image, Report& report) const {
  std::vector<std::uint32_t> places;
  for (const RawFinding& raw : found_) {
    places.push_back(raw.place);
    if (raw.other_place != 0) places.push_back(raw.other_place);
    with_lines(raw.what, [&](std::uint32_t p) {
      places.push_back(p);
      return "";
    });
  }
  std::ranges::sort(places);
  places.erase(std::unique(places.begin(), places.end()), places.end());
  const Lines lines = image.lines(places);
  const bool known = std::ranges::any_of(lines, [](const auto& l) { return l.second.line != 0; });
  if (!places.empty() && !known)
    report.notes.push_back("lines are not known: addr2line is not on the PATH, or told nothing");
  std::map<std::tuple<Fault, std::string, Place, Place, std::string>, std::size_t> merged;
  for (const RawFinding& raw : found_) {
    Finding f = in_words(raw, lines);
    if (raw.if_lines_differ && f.place == f.other) continue;
    if (f.place.line != 0) {
      const auto [at, fresh] = merged.try_emplace({f.fault, f.kernel, f.place, f.other, f.object},
                                                  report.findings.size());
      if (!fresh) {
        if (at->second < report.findings.size()) report.findings[at->second].count += f.count;
        continue;
      }
    }
    if (static_cast<int>(report.findings.size()) < most_)
      report.findings.push_back(std::move(f));
    else
      ++report.findings_left_out;
  }
}

// ---- the engine's part
// ---------------------------------------------------------------------------

void Engine::report(const Fiber& f, Fault fault, std::uint32_t place, std::string what) {
  if (findings_.seen_before(fault, place, 0, -1)) return;
  findings_.add({.fault = fault,
                 .kernel = kernel_,
                 .block = f.owner->index,
                 .thread = f.index,
                 .place = place,
                 .what = std::move(what)},
                -1);
}

std::string Engine::object_name(int object) const {
  if (object == -2) return "shared memory";
  return object < 0 ? "" : memory_.regions()[static_cast<std::size_t>(object)].name;
}

void Engine::report_race(Fiber& f, Fault fault, std::uint32_t place, bool writes, bool by_copy,
                         std::uint32_t other_place, std::int64_t other_block, int other_component,
                         bool other_wrote, int object, std::int64_t offset) {
  if (findings_.seen_before(fault, place, other_place, object)) return;
  const Clocks& clocks = f.owner->clocks;
  const bool other_copy = clocks.is_copier(other_component);
  findings_.add(
      {.fault = fault,
       .kernel = kernel_,
       .block = f.owner->index,
       .thread = f.index,
       .place = place,
       .other_place = other_place,
       .other_block = other_block,
       .other_thread = clocks.thread_of(other_component),
       .other_what = other_copy ? (other_wrote ? "has a copy under way that writes it, issued"
                                               : "has a copy under way that reads it, issued")
                                : (other_wrote ? "wrote it" : "read it"),
       .object = object_name(object),
       .offset = offset,
       .what = formatted("{}{} byte {} of {} with nothing that orders it after the other access",
                         by_copy ? "a copy " : "", writes ? "writes" : "reads", offset,
                         object_name(object))},
      object);
}

}  // namespace tilewright::cuda_host
