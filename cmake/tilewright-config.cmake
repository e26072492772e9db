# find_package(tilewright): tilewright::core, ::models, ::simulator, ::codegen, ::profilers and ::harness. Headers are
# included as in the sources: #include "core/workload/workload.h".
include(${CMAKE_CURRENT_LIST_DIR}/Dependencies.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/tilewright-targets.cmake)
