# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` installs: the programs (component `programs`), sluice-worker with LibTorch (component `worker`), and
# libraries with the interface of include/sluice and internal ones (install_library). The installed tree may be moved, because
# nothing in it contains its own path.

set(SLUICE_PROGRAMS sluice sluice-server sluice-relay)
install(TARGETS ${SLUICE_PROGRAMS} RUNTIME DESTINATION bin COMPONENT programs)
if(SLUICE_TORCH)
  # The programs need only the system's libraries, except for LibTorch and what it brings.
  set_target_properties(sluice-worker PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/sluice")
  install(TARGETS sluice-worker RUNTIME DESTINATION bin COMPONENT worker)
  file(REAL_PATH ${LIBTORCH_ROOT}/lib libtorch)  # Installing a link would not install what it points to.
  install(DIRECTORY ${libtorch}/ DESTINATION lib/sluice COMPONENT worker USE_SOURCE_PERMISSIONS
    FILES_MATCHING PATTERN "*.so*" PATTERN "libtorch.so" EXCLUDE PATTERN "libtorch_python.so" EXCLUDE)
  list(APPEND SLUICE_PROGRAMS sluice-worker)
endif()

# Debian's static Abseil is not position-independent, so a static build has no shared library.
if(NOT SLUICE_STATIC)
  include(install_library)
endif()

# The built programs write the schema and the manual pages, so a cross-compiled tree has none.
if(NOT CMAKE_CROSSCOMPILING)
  set(SLUICE_JOB_SCHEMA ${PROJECT_BINARY_DIR}/share/job.schema.json)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/share)
  add_custom_command(OUTPUT ${SLUICE_JOB_SCHEMA}
    COMMAND sluice explain --schema > ${SLUICE_JOB_SCHEMA}
    DEPENDS sluice
    COMMENT "Writing the JSON Schema of job files")
  add_custom_target(job_schema ALL DEPENDS ${SLUICE_JOB_SCHEMA})
  install(FILES ${SLUICE_JOB_SCHEMA} DESTINATION share/sluice COMPONENT programs)

  set(SLUICE_MAN_PAGES ${SLUICE_PROGRAMS})
  list(TRANSFORM SLUICE_MAN_PAGES REPLACE "(.+)" "${PROJECT_BINARY_DIR}/share/man/\\1.1")
  add_custom_command(OUTPUT ${SLUICE_MAN_PAGES}
    COMMAND python3 ${PROJECT_SOURCE_DIR}/tools/make_man_pages.py ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${PROJECT_VERSION}
      ${PROJECT_BINARY_DIR}/share/man ${SLUICE_PROGRAMS}
    DEPENDS ${SLUICE_PROGRAMS} tools/make_man_pages.py tools/make_flags_page.py
    COMMENT "Writing the manual pages")
  add_custom_target(man_pages ALL DEPENDS ${SLUICE_MAN_PAGES})
  foreach(program page IN ZIP_LISTS SLUICE_PROGRAMS SLUICE_MAN_PAGES)
    set(component programs)
    if(program STREQUAL "sluice-worker")
      set(component worker)
    endif()
    install(FILES ${page} DESTINATION share/man/man1 COMPONENT ${component})
  endforeach()
endif()
install(DIRECTORY examples/ DESTINATION share/sluice/examples COMPONENT programs FILES_MATCHING PATTERN "*.yaml" PATTERN "python" EXCLUDE)
