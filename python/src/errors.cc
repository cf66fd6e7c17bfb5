// SPDX-License-Identifier: Apache-2.0
#include "python/src/errors.h"

#include <array>

namespace nb = nanobind;

namespace sluice::python {
namespace {

constexpr std::array<const char*, 17> kCodes = {
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
};

}  // namespace

void Raise(const client::Status& status) {
  const auto number = static_cast<size_t>(status.code);
  const char* const code = number < kCodes.size() ? kCodes[number] : "UNKNOWN";
  const nb::object type = nb::module_::import_("sluice._errors")
                              .attr(status.rollback ? "RollbackError" : "SluiceError");
  const nb::object error =
      type(nb::str(status.message.c_str(), status.message.size()), nb::arg("code") = code);
  PyErr_SetObject(type.ptr(), error.ptr());
  throw nb::python_error();
}

}  // namespace sluice::python
