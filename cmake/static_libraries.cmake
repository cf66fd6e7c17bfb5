# SPDX-License-Identifier: Apache-2.0
# With SLUICE_STATIC: static libraries in all imported targets that Debian's CMake packages point to shared libraries. The
# programs then need only glibc and libgcc at run time. All of these are position-independent (scripts/grpc.sh).

function(sluice_link_statically target file)
  if(NOT EXISTS ${file})
    message(FATAL_ERROR "${target}: there is no static library ${file}. Run scripts/setup.sh --grpc, or set SLUICE_STATIC to OFF.")
  endif()
  get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
  foreach(configuration ${configurations})
    set_target_properties(${target} PROPERTIES IMPORTED_LOCATION_${configuration} ${file})
  endforeach()
endfunction()

# This loop covers all Abseil targets, because they depend on each other.
get_property(imported DIRECTORY PROPERTY IMPORTED_TARGETS)
foreach(target ${imported})
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "SHARED_LIBRARY" AND (target MATCHES "^absl::" OR target STREQUAL "yaml-cpp"))
    get_target_property(location ${target} LOCATION)
    get_filename_component(name ${location} NAME)
    string(REGEX REPLACE "[.]so[.0-9]*$" ".a" name ${name})
    sluice_link_statically(${target} ${grpc_lib}/${name})
  endif()
endforeach()
sluice_link_statically(hwy::hwy ${grpc_lib}/libhwy.a)
sluice_link_statically(prometheus-cpp::core ${grpc_lib}/libprometheus-cpp-core.a)
