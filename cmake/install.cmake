# What `cmake --install` installs: the programs, and one shared library with the interface of include/sluice. The
# installed tree may be moved, because nothing in it contains its own path.
include(CMakePackageConfigHelpers)
set(SLUICE_MINOR_VERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

set(SLUICE_PROGRAMS sluice sluice-server sluice-relay)
if(SLUICE_TORCH)
  list(APPEND SLUICE_PROGRAMS sluice-worker)
endif()
# sluice-worker finds LibTorch in lib/sluice. The other programs need only the system's libraries.
if(SLUICE_TORCH)
  set_target_properties(sluice-worker PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/sluice")
endif()
install(TARGETS ${SLUICE_PROGRAMS} EXPORT SluiceTargets RUNTIME DESTINATION bin)

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

# The built programs write the schema and the manual pages, so a cross-compiled tree has none.
if(NOT CMAKE_CROSSCOMPILING)
  set(SLUICE_JOB_SCHEMA ${PROJECT_BINARY_DIR}/share/job.schema.json)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/share)
  add_custom_command(OUTPUT ${SLUICE_JOB_SCHEMA}
    COMMAND sluice explain --schema > ${SLUICE_JOB_SCHEMA}
    DEPENDS sluice
    COMMENT "Writing the JSON Schema of job files")
  add_custom_target(job_schema ALL DEPENDS ${SLUICE_JOB_SCHEMA})
  install(FILES ${SLUICE_JOB_SCHEMA} DESTINATION share/sluice)

  set(SLUICE_MAN_PAGES ${SLUICE_PROGRAMS})
  list(TRANSFORM SLUICE_MAN_PAGES REPLACE "(.+)" "${PROJECT_BINARY_DIR}/share/man/\\1.1")
  add_custom_command(OUTPUT ${SLUICE_MAN_PAGES}
    COMMAND python3 ${PROJECT_SOURCE_DIR}/tools/make_man_pages.py ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${PROJECT_VERSION}
      ${PROJECT_BINARY_DIR}/share/man ${SLUICE_PROGRAMS}
    DEPENDS ${SLUICE_PROGRAMS} tools/make_man_pages.py tools/make_flags_page.py
    COMMENT "Writing the manual pages")
  add_custom_target(man_pages ALL DEPENDS ${SLUICE_MAN_PAGES})
  install(FILES ${SLUICE_MAN_PAGES} DESTINATION share/man/man1)
endif()
install(DIRECTORY examples/ DESTINATION share/sluice/examples FILES_MATCHING PATTERN "*.yaml" PATTERN "python" EXCLUDE)
