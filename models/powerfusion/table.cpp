// GIRs of kernels before and after each round of rewriting, as text.
#include <cctype>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/format.h"
#include "core/base/shown.h"
#include "models/tables.h"

namespace tilewright::powerfusion {
namespace {

using nlohmann::ordered_json;
using namespace shown;

constexpr std::size_t kMostKernels = 12;  // more of them are counted, and in --json
constexpr std::size_t kMostWords = 8;     // of a list; the rest are counted
// Instructions of a GIR up to which each round has all of them; above, those that it leaves as they
// are are counted where there are several, but for the last round.
constexpr std::size_t kWholeRounds = 24, kLeftAlone = 4;

std::string joined(const ordered_json& words, const char* between) {
  std::string out;
  const std::size_t most = words.size() > kMostWords + 1 ? kMostWords : words.size();
  for (std::size_t i = 0; i < most; ++i)
    out += (i == 0 ? "" : between) + words[i].get<std::string>();
  if (most < words.size()) out += formatted("{}{} more", between, words.size() - most);
  return out;
}

/// The text with names in the order in which it has them: equal where kernels differ in those
/// alone.
std::string without_names(const std::string& text) {
  static const std::set<std::string> kWords = {"move",   "ew",     "bcast", "reduce", "transpose",
                                               "sync",   "lane",   "warp",  "shared", "dram",
                                               "block",  "device", "swap",  "merge",  "null",
                                               "before", "after",  "one",   "read"};
  std::map<std::string, std::size_t> names;
  std::string out, word;
  const auto end = [&] {
    if (word.empty()) return;
    const bool name = std::isalpha(static_cast<unsigned char>(word.front())) != 0 || word[0] == '_';
    out += name && !kWords.contains(word)
               ? formatted("n{}", names.try_emplace(word, names.size()).first->second)
               : word;
    word.clear();
  };
  for (char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.') {
      word += c;
      continue;
    }
    end();
    out += c;
  }
  end();
  return out;
}

/// The instructions of a GIR's text, with slices as "A(shared, 4, 8, 784)" instead of their
/// numbers.
std::vector<std::string> instructions(const std::string& gir) {
  std::map<std::string, std::string> slices;
  std::vector<std::string> out;
  std::istringstream lines(gir);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first, word;
    words >> first;
    if (first == "slice") {
      std::string name, tensor;
      words >> name >> tensor;
      const std::size_t begin = line.find('('), end = line.find(')', begin);
      if (begin != std::string::npos && end != std::string::npos)
        slices[name] = tensor + line.substr(begin, end + 1 - begin);
      continue;
    }
    if (first.empty() || line.find(" -> ") == std::string::npos) continue;
    std::string said = first;
    while (words >> word) {
      const auto slice = slices.find(word);
      said += " " + (slice == slices.end() ? word : slice->second);
    }
    out.push_back(said);
  }
  return out;
}

/// All instructions, those that `before` has not marked with +; `fold`: runs of others counted.
std::string marked(const std::vector<std::string>& now, const std::vector<std::string>& before,
                   bool fold) {
  const std::set<std::string> had(before.begin(), before.end());
  std::string out;
  for (std::size_t i = 0; i < now.size();) {
    std::size_t end = i;
    while (end < now.size() && had.contains(now[end])) ++end;
    if (fold && end - i >= kLeftAlone) {
      out += formatted("    ... {} as they were\n", end - i);
      i = end;
      continue;
    }
    if (end == i) {
      out += (before.empty() ? "    " : "  + ") + now[i++] + "\n";
      continue;
    }
    for (; i < end; ++i) out += "    " + now[i] + "\n";
  }
  return out;
}

/// Bytes that a document has as a real number.
std::string whole(const ordered_json& bytes) {
  return grouped(static_cast<std::int64_t>(bytes.get<double>()));
}

std::string part_text(const ordered_json& part) {
  const ordered_json& syncs = part["syncs"];
  std::string out = formatted(
      "  {} units; {} gOperators before, {} after; DRAM bytes {} before, {} after; syncs left: {} "
      "of "
      "warps, {} of blocks, {} of the device\n",
      text(part, "units"), text(part, "gops_before"), text(part, "gops"),
      whole(part["dram_bytes_before"]), whole(part["dram_bytes"]), text(syncs, "warp"),
      text(syncs, "block"), text(syncs, "device"));
  std::vector<std::string> before = instructions(part["gir_before"].get<std::string>());
  out += "  before\n" + marked(before, {}, false);
  const bool large = before.size() > kWholeRounds;
  for (const ordered_json& r : part["rewrites"]) {
    std::vector<std::string> now = instructions(r["gir"].get<std::string>());
    out += formatted("  {} ({})\n", text(r, "rule"), joined(r["done"], "; ")) +
           marked(now, before, large && &r != &part["rewrites"].back());
    before = std::move(now);
  }
  return out;
}

std::string explained(const ordered_json& j) {
  if (!j.contains("kernels_by_class")) return "";
  std::string out = heading(j) + "\n";
  out += formatted(
      "{} kernels of memory, {} of computation; {} B moved, unfused {}, at least {}; {} us "
      "predicted\n",
      text(j["kernels_by_class"], "memory"), text(j["kernels_by_class"], "computation"),
      text(j, "volume_bytes"), text(j, "unfused_bytes"), text(j, "compulsory_bytes"),
      microseconds(j["seconds"]));
  out +=
      "A slice is tensor(tier, num, width, stride). + marks what a round of rewriting changed.\n";
  // What a kernel's parts are but for names, and which kernel was shown with them.
  std::map<std::string, std::string> shown;
  std::size_t left = 0;
  for (const ordered_json& k : j["kernels"]) {
    if (!k.contains("parts")) continue;
    std::string parts;
    for (const ordered_json& p : k["parts"]) parts += part_text(p);
    const std::string form = without_names(parts);
    const auto first = shown.find(form);
    if (first == shown.end() && shown.size() == kMostKernels) {
      ++left;
      continue;
    }
    out += formatted("\n{}: {}; {} us\n", text(k, "name"), joined(k["operators"], " "),
                     microseconds(k["seconds"]));
    if (!k["without_units"].is_null())
      out += formatted("  without units: {}\n", text(k, "without_units"));
    out += first == shown.end() ? parts : formatted("  as {}, with other names\n", first->second);
    if (first == shown.end()) shown.emplace(form, text(k, "name"));
  }
  if (left > 0) out += formatted("\nand {} more kernels (--json has them)\n", left);
  return out;
}

}  // namespace

ModelTable table() { return {.explained = explained}; }

}  // namespace tilewright::powerfusion
