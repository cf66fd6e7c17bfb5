// SPDX-License-Identifier: Apache-2.0
// Conversions between the client library's public types and the types of the layers below.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/log.h"
#include "job/job_spec.h"
#include "protocol/tensor_table.h"
#include "sluice/session.h"
#include "sluice/status.h"
#include "worker/core/gradient_view.h"
#include "worker/core/session.h"

namespace sluice::client {

Status FromStatus(const absl::Status& status);
inline absl::string_view ToView(std::string_view text) { return {text.data(), text.size()}; }

protocol::TensorTable ToTable(const std::vector<Tensor>& tensors);
worker::GradientView ToView(const Gradient& gradient);
JobSummary Summarize(const job::JobSpec& job);
Joined FromJoin(const worker::JoinInfo& info);
StepResult FromResult(const worker::StepResult& result);
Figures FromFigures(const worker::SessionFigures& figures);
// Returns a logger that writes to `sink`, or to stderr if `sink` is not set.
Logger ToLogger(std::string component, const LogSink& sink);

}  // namespace sluice::client
