#include "codegen/cuda/shared_kernels.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string_view>

namespace tilewright::cuda {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Calls `word` with every identifier of a C++ text, `other` with what is between; comments are
/// left out. Numbers are no identifiers, whatever letters they end with.
void split(std::string_view text, const std::function<void(std::string_view)>& word,
           const std::function<void(std::string_view)>& other) {
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at + 1;
    if (text.substr(at, 2) == "//") {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    if (is_letter(text[at]) || is_digit(text[at]))
      while (end < text.size() && (is_letter(text[end]) || is_digit(text[end]))) ++end;
    (is_letter(text[at]) ? word : other)(text.substr(at, end - at));
    at = end;
  }
}

const std::set<std::string_view>& device_words() {
  static const std::set<std::string_view> words = [] {
    std::set<std::string_view> all = {"static_cast", "reinterpret_cast", "const_cast"};
    for (const DeviceHeader& header : device_headers())
      split(
          header.text, [&](std::string_view w) { all.insert(w); }, [](std::string_view) {});
    return all;
  }();
  return words;
}

bool is_made(std::string_view word) {
  return word.front() != '_' && word.find('_') != std::string_view::npos &&
         !device_words().contains(word);
}

}  // namespace

std::string without_names(const std::string& text) {
  std::string plain;
  std::map<std::string_view, std::size_t> met;
  split(
      text,
      [&](std::string_view w) {
        if (is_made(w))
          plain += "@" + std::to_string(met.emplace(w, met.size()).first->second);
        else
          plain += w;
      },
      [&](std::string_view other) { plain += other; });
  return plain;
}

bool SharedKernels::share(KernelText& kernel) {
  Key key = {without_names(kernel.text)};
  std::vector<std::string> symbols;
  for (const Launch& l : kernel.launches) {
    key.push_back(std::to_string(l.threads) + " " + std::to_string(l.shared_bytes) + " " +
                  std::to_string(l.cluster));
    symbols.push_back(l.symbol);
  }
  const auto [earlier, fresh] = known_.emplace(std::move(key), std::move(symbols));
  if (fresh) return false;
  for (std::size_t i = 0; i < kernel.launches.size(); ++i)
    kernel.launches[i].symbol = earlier->second[i];
  return true;
}

}  // namespace tilewright::cuda
