# What core's headers and libraries need: read by the build and, installed beside the package's
# configuration, by find_package(tilewright).
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(fmt)
find_dependency(nlohmann_json)
find_dependency(Eigen3 NO_MODULE)
find_dependency(Boost)

# fmt's code is compiled into core (core/base/format.cpp), and only there: the command is one file.
add_library(tilewright::text INTERFACE IMPORTED)
target_include_directories(tilewright::text SYSTEM INTERFACE
  $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)

# For the same reason yaml-cpp comes from its static library. Debian's is not position-independent: a
# target that becomes a shared object sets the property TILEWRIGHT_SHARED_YAML and gets the shared one.
find_path(YAML_CPP_INCLUDE yaml-cpp/yaml.h)
find_library(YAML_CPP_STATIC NAMES libyaml-cpp.a)
find_library(YAML_CPP_SHARED NAMES libyaml-cpp.so)
mark_as_advanced(YAML_CPP_INCLUDE YAML_CPP_STATIC YAML_CPP_SHARED)
if(NOT YAML_CPP_INCLUDE OR NOT YAML_CPP_STATIC)
  message(FATAL_ERROR "tilewright needs yaml-cpp with its static library (Debian: libyaml-cpp-dev)")
endif()
add_library(tilewright::yaml INTERFACE IMPORTED)
target_include_directories(tilewright::yaml SYSTEM INTERFACE ${YAML_CPP_INCLUDE})
target_link_libraries(tilewright::yaml INTERFACE
  $<IF:$<BOOL:$<TARGET_PROPERTY:TILEWRIGHT_SHARED_YAML>>,${YAML_CPP_SHARED},${YAML_CPP_STATIC}>)

# ONNX files are read by protozero, which is headers only.
find_path(PROTOZERO_INCLUDE protozero/pbf_reader.hpp)
mark_as_advanced(PROTOZERO_INCLUDE)
if(NOT PROTOZERO_INCLUDE)
  message(FATAL_ERROR "tilewright needs protozero (Debian: libprotozero-dev)")
endif()
add_library(tilewright::protozero INTERFACE IMPORTED)
target_include_directories(tilewright::protozero SYSTEM INTERFACE ${PROTOZERO_INCLUDE})
