# The shared library, and the files with which other projects find it and the programs.
include(CMakePackageConfigHelpers)
set(SLUICE_MINOR_VERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

# The library's own symbols are hidden, and so are those of all static libraries in it: a program may use other
# versions of them.
add_library(sluice_shared SHARED $<TARGET_OBJECTS:sluice_client>)
set_target_properties(sluice_shared PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME sluice EXPORT_NAME client
  VERSION ${PROJECT_VERSION} SOVERSION ${SLUICE_MINOR_VERSION}
  LINK_DEPENDS ${PROJECT_SOURCE_DIR}/client/symbols.map)
target_link_libraries(sluice_shared PRIVATE sluice_client)
target_link_options(sluice_shared PRIVATE LINKER:--version-script=${PROJECT_SOURCE_DIR}/client/symbols.map)
target_compile_features(sluice_shared INTERFACE cxx_std_20)
install(TARGETS sluice_shared EXPORT SluiceTargets LIBRARY DESTINATION lib INCLUDES DESTINATION include)
install(DIRECTORY include/sluice DESTINATION include FILES_MATCHING PATTERN "*.h")

install(EXPORT SluiceTargets NAMESPACE Sluice:: DESTINATION lib/cmake/Sluice)
configure_package_config_file(cmake/SluiceConfig.cmake.in ${PROJECT_BINARY_DIR}/SluiceConfig.cmake
  INSTALL_DESTINATION lib/cmake/Sluice NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/SluiceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/SluiceConfig.cmake ${PROJECT_BINARY_DIR}/SluiceConfigVersion.cmake
  DESTINATION lib/cmake/Sluice)
configure_file(cmake/sluice.pc.in ${PROJECT_BINARY_DIR}/sluice.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/sluice.pc DESTINATION lib/pkgconfig)
