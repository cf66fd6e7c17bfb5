# SPDX-License-Identifier: Apache-2.0
# gRPC of the folder SLUICE_GRPC_PREFIX instead of Debian's. With SLUICE_STATIC, all other libraries are static, too.
# A program names the source files of its checks, but not the folder in which it was built.
add_compile_options(-ffile-prefix-map=${PROJECT_SOURCE_DIR}=.)
get_filename_component(SLUICE_GRPC_PREFIX ${SLUICE_GRPC_PREFIX} ABSOLUTE BASE_DIR ${PROJECT_SOURCE_DIR})
set(grpc_lib ${SLUICE_GRPC_PREFIX}/lib)
foreach(file libgrpc++.a libhwy.a libprometheus-cpp-core.a)
  if(NOT EXISTS ${grpc_lib}/${file})
    message(FATAL_ERROR "${grpc_lib} has no ${file}: run scripts/setup.sh --grpc, or unset SLUICE_GRPC_PREFIX")
  endif()
endforeach()
if(SLUICE_STATIC)
  include(static_libraries)
endif()

find_library(SLUICE_CARES cares REQUIRED)
find_library(SLUICE_RE2 re2 REQUIRED)
# This part states which libraries each archive of gRPC 1.56 uses. The archives are imported targets, because the linker needs
# each archive before those that it uses, and CMake knows this order only of targets.
function(sluice_grpc_archive target name)
  add_library(${target} STATIC IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${grpc_lib}/lib${name}.a)
  target_include_directories(${target} SYSTEM INTERFACE ${SLUICE_GRPC_PREFIX}/include)
  target_link_libraries(${target} INTERFACE ${ARGN})
endfunction()
sluice_grpc_archive(sluice_address_sorting address_sorting)
sluice_grpc_archive(sluice_upb upb)
sluice_grpc_archive(sluice_gpr gpr
  absl::any_invocable absl::base absl::cord absl::core_headers absl::flags absl::flags_marshalling absl::memory absl::optional
  absl::random_random absl::status absl::str_format absl::strings absl::synchronization absl::time absl::variant Threads::Threads)
sluice_grpc_archive(sluice_grpc_core grpc
  sluice_gpr sluice_upb sluice_address_sorting
  absl::bind_front absl::cleanup absl::flat_hash_map absl::flat_hash_set absl::function_ref absl::hash absl::inlined_vector
  absl::span absl::statusor absl::type_traits absl::utility
  ${SLUICE_RE2} ${SLUICE_CARES} OpenSSL::SSL OpenSSL::Crypto ZLIB::ZLIB)
sluice_grpc_archive(gRPC::grpc++ grpc++ sluice_grpc_core protobuf::libprotobuf)
sluice_grpc_archive(gRPC::grpc++_reflection grpc++_reflection gRPC::grpc++)
