# SPDX-License-Identifier: Apache-2.0
# What other projects link: one shared library (component `library`), and in component `development` its headers, the
# static libraries with internal headers, the sources for LibTorch, and the files for find_package and pkg-config.
# CMAKE_INSTALL_LIBDIR is the folder of the libraries below the prefix.
include(CMakePackageConfigHelpers)
set(SLUICE_MINOR_VERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(CMAKE_INSTALL_LIBDIR lib CACHE STRING "The folder of libraries below the prefix")
set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Sluice)

# The library's own symbols are hidden, and so are those of all static libraries in it: a program may use other
# versions of them.
add_library(sluice_shared SHARED $<TARGET_OBJECTS:sluice_client>)
set_target_properties(sluice_shared PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME sluice EXPORT_NAME client
  VERSION ${PROJECT_VERSION} SOVERSION ${SLUICE_MINOR_VERSION}
  LINK_DEPENDS ${PROJECT_SOURCE_DIR}/client/symbols.map)
target_link_libraries(sluice_shared PRIVATE sluice_client)
target_link_options(sluice_shared PRIVATE LINKER:--version-script=${PROJECT_SOURCE_DIR}/client/symbols.map LINKER:--as-needed)
target_compile_features(sluice_shared INTERFACE cxx_std_20)
install(TARGETS sluice_shared EXPORT SluiceClientTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development INCLUDES DESTINATION include)
install(DIRECTORY include/sluice DESTINATION include COMPONENT development FILES_MATCHING PATTERN "*.h")

# sluice_install_static(COMPONENT NAME...): the static libraries of a component of find_package(Sluice).
function(sluice_install_static component)
  set(export Sluice_${component}_targets)
  foreach(name ${ARGN})
    set_target_properties(sluice_${name} PROPERTIES EXPORT_NAME ${name})
    target_compile_features(sluice_${name} INTERFACE cxx_std_20)
    get_target_property(sets sluice_${name} INTERFACE_HEADER_SETS)
    if(sets)
      set(headers FILE_SET HEADERS DESTINATION include/sluice COMPONENT development)
    else()
      set(headers)
    endif()
    install(TARGETS sluice_${name} EXPORT ${export} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development ${headers})
  endforeach()
  install(EXPORT ${export} NAMESPACE Sluice:: DESTINATION ${config_folder} COMPONENT development)
endfunction()
sluice_install_static(compress base compress)
install(FILES examples/compress_alone.cc DESTINATION share/sluice/examples COMPONENT development)
# DataParallel needs a Session, and a Session over the network needs all of these. Other projects link the system's gRPC
# with these libraries, so they must have been compiled with it.
if(NOT SLUICE_GRPC_PREFIX)
  sluice_install_static(torch
    follow follow_rpc job job_file net_grpc proto protocol protocol_checkpoint protocol_wire worker_core worker_restore worker_rpc)
  install(DIRECTORY ${PROJECT_BINARY_DIR}/proto/gen/sluice DESTINATION include/sluice COMPONENT development
    FILES_MATCHING PATTERN "*.h")
  # LibTorch's C++ interface differs between its versions, so another project compiles these sources with its own LibTorch.
  install(DIRECTORY worker/torch DESTINATION share/sluice/source/worker COMPONENT development
    FILES_MATCHING PATTERN "*.h" PATTERN "*.cc")
  install(FILES examples/own_loop.cc DESTINATION share/sluice/examples COMPONENT development)
  install(FILES cmake/SluiceTorch.cmake cmake/FindLibTorch.cmake DESTINATION ${config_folder} COMPONENT development)
endif()

install(EXPORT SluiceClientTargets NAMESPACE Sluice:: DESTINATION ${config_folder} COMPONENT development)
configure_package_config_file(cmake/SluiceConfig.cmake.in ${PROJECT_BINARY_DIR}/SluiceConfig.cmake
  INSTALL_DESTINATION ${config_folder} NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/SluiceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
cmake_path(RELATIVE_PATH PROJECT_BINARY_DIR BASE_DIRECTORY ${PROJECT_BINARY_DIR}/${CMAKE_INSTALL_LIBDIR}/pkgconfig OUTPUT_VARIABLE SLUICE_PREFIX_OF_PC)
configure_file(cmake/sluice.pc.in ${PROJECT_BINARY_DIR}/sluice.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/SluiceConfig.cmake ${PROJECT_BINARY_DIR}/SluiceConfigVersion.cmake
  DESTINATION ${config_folder} COMPONENT development)
install(FILES ${PROJECT_BINARY_DIR}/sluice.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
