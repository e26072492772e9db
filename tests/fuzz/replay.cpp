// Runs every kept input of a folder through a fuzz target, with any compiler: a regression test of
// what fuzzing has found. Fails where there is none, where one takes over a second of processor
// time, and where the target lets anything but InputError out.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"

int main(int argc, char** argv) {
  if (argc != 2) return std::fputs("usage: replay FOLDER\n", stderr), 2;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1]))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  int failed = files.empty() ? 1 : 0;
  for (const auto& path : files) {
    std::ifstream in(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const std::clock_t begin = std::clock();
    try {
      tilewright::fuzz::one(text);
    } catch (const std::exception& e) {
      std::printf("%s: %s\n", path.c_str(), e.what());
      ++failed;
    }
    const double seconds = double(std::clock() - begin) / CLOCKS_PER_SEC;
    if (seconds > 1) std::printf("%s: %.1f s\n", path.c_str(), seconds), ++failed;
  }
  std::printf("%zu inputs, %d failed\n", files.size(), failed);
  return failed == 0 ? 0 : 1;
}
