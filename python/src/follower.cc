// SPDX-License-Identifier: Apache-2.0
#include "python/src/follower.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "python/src/errors.h"
#include "python/src/gil.h"
#include "python/src/log_queue.h"
#include "sluice/follower.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace sluice::python {
namespace {

// (name, shape, bytes)
using FollowedRow = std::tuple<std::string, std::vector<int64_t>, size_t>;

class Follower {
 public:
  explicit Follower(client::FollowerOptions options) {
    options.log = [log = log_](client::LogLevel level, std::string_view component,
                               std::string_view text) { log->Add(level, component, text); };
    follower_ = OrRaise(WithoutGil([&] { return client::Follower::Create(options); }));
  }
  // The follower's threads do not exist in a forked process, so waiting for them to end would take
  // forever.
  ~Follower() {
    if (getpid() != process_) {
      (void)new std::shared_ptr<client::Follower>(std::move(follower_));
    } else {
      Close();
    }
  }

  std::optional<client::FollowedVersion> Next() {
    return OrRaise(WithoutGil([&] { return follower_->Next(); }));
  }
  // Any thread may call the next two functions.
  void Interrupt() {
    std::shared_ptr<client::Follower> follower = follower_;
    if (follower == nullptr) return;
    WithoutGil([&] {
      follower->Interrupt();
      follower.reset();
    });
  }
  void Close() {
    std::shared_ptr<client::Follower> follower = std::move(follower_);
    WithoutGil([&] { follower.reset(); });
  }
  std::vector<LogQueue::Line> TakeLog() { return log_->Take(); }

 private:
  const pid_t process_ = getpid();
  const std::shared_ptr<LogQueue> log_ = std::make_shared<LogQueue>();
  std::shared_ptr<client::Follower> follower_;  // The GIL guards it. Null after Close.
};

std::vector<FollowedRow> RowsOf(const client::FollowedVersion& version) {
  std::vector<FollowedRow> rows;
  rows.reserve(version.tensors.size());
  for (const client::FollowedTensor& tensor : version.tensors) {
    rows.emplace_back(tensor.name, tensor.shape, tensor.bytes);
  }
  return rows;
}

// Copies the tensors of a version to `address`, one after another.
void CopyTo(const client::FollowedVersion& version, uintptr_t address) {
  WithoutGil([&] {
    auto* to = reinterpret_cast<std::byte*>(address);
    for (const client::FollowedTensor& tensor : version.tensors) {
      std::memcpy(to, tensor.data, tensor.bytes);
      to += tensor.bytes;
    }
  });
}

}  // namespace

void BindFollower(nb::module_& m) {
  nb::class_<client::FollowedVersion>(m, "FollowedVersion")
      .def_ro("step", &client::FollowedVersion::step)
      .def_ro("term", &client::FollowedVersion::term)
      .def_ro("changed", &client::FollowedVersion::changed)
      .def_ro("received_bytes", &client::FollowedVersion::received_bytes)
      .def("rows", &RowsOf)
      .def("copy_to", &CopyTo, "address"_a);
  nb::class_<Follower>(m, "Follower")
      .def(
          "__init__",
          [](Follower* self, const std::string& address, int type, double patience,
             const std::string& token_file, const std::string& tls_cert, const std::string& tls_key,
             const std::string& tls_ca) {
            new (self) Follower({.address = address,
                                 .type = static_cast<client::ElementType>(type),
                                 .patience_seconds = patience,
                                 .token_file = token_file,
                                 .tls_cert = tls_cert,
                                 .tls_key = tls_key,
                                 .tls_ca = tls_ca,
                                 .log = {}});
          },
          "address"_a, "type"_a, "patience"_a, "token_file"_a = "", "tls_cert"_a = "",
          "tls_key"_a = "", "tls_ca"_a = "")
      .def("next", &Follower::Next)
      .def("interrupt", &Follower::Interrupt)
      .def("close", &Follower::Close)
      .def("take_log", &Follower::TakeLog);
}

}  // namespace sluice::python
