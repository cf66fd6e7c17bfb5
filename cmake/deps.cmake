# The only find_package calls of the project. scripts/setup.sh installs the packages.

find_package(absl REQUIRED)
find_package(Protobuf REQUIRED)  # Debian ships no CMake config for it, so this uses module mode.
find_package(gRPC REQUIRED)
find_package(ZLIB REQUIRED)
find_package(PNG REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(hwy REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(prometheus-cpp REQUIRED)
find_program(SLUICE_GRPC_PLUGIN grpc_cpp_plugin REQUIRED)
find_library(SLUICE_TURBOJPEG turbojpeg REQUIRED)
if(SLUICE_TESTS)
  find_package(GTest REQUIRED)
endif()
if(SLUICE_TORCH)
  find_package(LibTorch REQUIRED MODULE)
endif()
