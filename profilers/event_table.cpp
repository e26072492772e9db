#include "profilers/event_table.h"

#include <algorithm>
#include <charconv>

#include "core/base/document.h"

namespace tilewright::profilers {
namespace {

std::int64_t code_of(const Field& f, std::int64_t most) {
  const std::string text = f.value().text;
  std::int64_t n = -1;
  if (text.starts_with("0x")) {
    const auto [stop, error] = std::from_chars(text.data() + 2, text.data() + text.size(), n, 16);
    if (error != std::errc() || stop != text.data() + text.size()) n = -1;
  }
  if (n < 0 || n > most) f.fail("is not a code", "a hexadecimal number, 0x00 and so on");
  return n;
}

std::vector<Event> events_of(const Field& list) {
  std::vector<Event> events;
  for (const auto& [name, f] : list.entries()) {
    f.only({"event", "umask", "source"});
    events.push_back({.name = name,
                      .code = code_of(f.at("event"), 0xFFF),
                      .umask = code_of(f.at("umask"), 0xFF),
                      .source = f.at("source").text()});
  }
  return events;
}

std::optional<Formula> formula_of(const Field& boundary, const char* key,
                                  const std::vector<Event>& events) {
  const auto f = boundary.get(key);
  if (!f) return std::nullopt;
  Formula formula(f->text(), f->where());
  for (const std::string& name : formula.names())
    if (std::ranges::find(events, name, &Event::name) == events.end())
      f->fail("uses " + name + ", which is not an event of the table", "events that are listed");
  return formula;
}

BoundaryFormulas boundary_of(const Field& f, const std::vector<Event>& events) {
  f.only({"cache", "read", "written", "note"});
  BoundaryFormulas b{.cache = static_cast<int>(f.at("cache").integer(1, 8)),
                     .read = formula_of(f, "read", events),
                     .written = formula_of(f, "written", events)};
  if (const auto note = f.get("note")) b.note = note->text();
  if ((!b.read || !b.written) && b.note.empty())
    f.fail("lacks a formula and does not say why", "read and written, or a note");
  return b;
}

}  // namespace

std::uint64_t Event::config() const {
  const auto select = static_cast<std::uint64_t>(code), mask = static_cast<std::uint64_t>(umask);
  return (select & 0xFF) | mask << 8 | (select & 0xF00) << 24;
}

const Event& EventTable::event(const std::string& wanted) const {
  const auto at = std::ranges::find(events, wanted, &Event::name);
  TW_CHECK(at != events.end(), "formulas only use events of their table");
  return *at;
}

EventTable event_table_from_yaml(std::string_view text, std::string_view where) {
  const DocumentValue document = read_yaml(text, where);
  const Field f(document, std::string(where));
  f.only({"name", "vendor", "family", "models", "checked", "events", "boundaries"});
  EventTable table{.name = f.at("name").text(),
                   .vendor = f.at("vendor").text(),
                   .family = f.at("family").integer(0, 0xFFFF),
                   .checked = f.at("checked").text(),
                   .events = events_of(f.at("events"))};
  if (const auto models = f.get("models"))
    for (const Field& m : models->items()) table.models.push_back(m.integer(0, 0xFFFF));
  for (const Field& b : f.at("boundaries").items())
    table.boundaries.push_back(boundary_of(b, table.events));
  return table;
}

const std::vector<EventTable>& event_tables() {
  static const std::vector<EventTable> tables = [] {
    std::vector<EventTable> all;
    for (const EventFile& file : event_files())
      all.push_back(event_table_from_yaml(file.text, std::string(file.name) + ".yaml"));
    return all;
  }();
  return tables;
}

ProcessorId processor_id(std::string_view cpuinfo) {
  ProcessorId id;
  const auto value = [&](std::string_view key) -> std::string_view {
    for (std::size_t at = 0; at < cpuinfo.size();) {
      const std::size_t end = std::min(cpuinfo.find('\n', at), cpuinfo.size());
      const std::string_view line = cpuinfo.substr(at, end - at);
      const std::size_t colon = line.find(':');
      if (colon != std::string_view::npos &&
          line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1) == key && colon > 0)
        return line.substr(std::min(colon + 2, line.size()));
      at = end + 1;
    }
    return {};
  };
  const auto number = [&](std::string_view key) {
    const std::string_view text = value(key);
    std::int64_t n = -1;
    std::from_chars(text.begin(), text.end(), n);
    return n;
  };
  id.vendor = value("vendor_id");
  id.family = number("cpu family");
  id.model = number("model");
  return id;
}

const EventTable* table_for(const ProcessorId& id) {
  for (const EventTable& t : event_tables())
    if (t.vendor == id.vendor && t.family == id.family &&
        (t.models.empty() || std::ranges::find(t.models, id.model) != t.models.end()))
      return &t;
  return nullptr;
}

}  // namespace tilewright::profilers
