// Where the sources and the build lie. Linked in, so that objects of tests are alike wherever the
// tree lies and ccache gives one checkout what another has compiled.
#pragma once

#include <string>

namespace tilewright::test {

extern const char kSourceFolder[], kBuildFolder[];

/// `path` from the top of the sources, or of the build, as an absolute path.
inline std::string in_sources(const std::string& path) { return kSourceFolder + ("/" + path); }
inline std::string in_build(const std::string& path) { return kBuildFolder + ("/" + path); }

}  // namespace tilewright::test
