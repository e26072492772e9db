# What find_package(tilewright) finds. The wheel takes the component "python" only.
include(CMakePackageConfigHelpers)
set(PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/tilewright)
install(EXPORT tilewright NAMESPACE tilewright:: FILE tilewright-targets.cmake
  DESTINATION ${PACKAGE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tilewright-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tilewright-config-version.cmake
  ${PROJECT_SOURCE_DIR}/cmake/tilewright-config.cmake ${PROJECT_SOURCE_DIR}/cmake/Dependencies.cmake
  DESTINATION ${PACKAGE_DIR})
foreach(folder core models simulator codegen profilers harness experiments)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder}
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tilewright FILES_MATCHING PATTERN "*.h")
endforeach()
# What was recorded on GPUs: reproduce looks for it beside the program.
include(Recordings)
install(FILES ${TILEWRIGHT_RECORDINGS} DESTINATION ${CMAKE_INSTALL_DATADIR}/tilewright/results)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
