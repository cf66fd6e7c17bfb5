// SPDX-License-Identifier: Apache-2.0
#include "sluice/session.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/log.h"
#include "client/conversions.h"
#include "client/saved_compressor.h"
#include "client/transport.h"
#include "client/typed_mean.h"
#include "job/file/job_file.h"
#include "net/grpc/transport.h"
#include "server/shard/shard_parameters.h"
#include "worker/core/bundle_encoder.h"
#include "worker/core/job_client.h"
#include "worker/local/local_session.h"
#include "worker/rpc/remote_client.h"

namespace sluice::client {
namespace {

// The shards of a process without servers.
class OwnShards final : public worker::ShardUpdates {
 public:
  OwnShards(server::UpdateRule rule, absl::Span<const uint32_t> counts)
      : parameters_(std::move(rule), counts) {}

  void Set(size_t chunk, absl::Span<const float> values) override {
    parameters_.Set(chunk, values);
  }
  absl::Span<const float> Update(size_t chunk, double rate,
                                 absl::Span<const float> gradient) override {
    parameters_.Update(chunk, rate, gradient);
    return parameters_.Owed(chunk);
  }
  void Publish(size_t chunk, absl::Span<const std::byte> frames) override {
    parameters_.Publish(chunk, frames);
  }

 private:
  server::ShardParameters parameters_;
};

absl::StatusOr<std::unique_ptr<worker::JobClient>> MakeLocalClient(const job::JobSpec& job) {
  worker::LocalSessionOptions options{.exchange = job.exchange};
  if (const auto optimizer = job::ShardOptimizer(job); optimizer.has_value()) {
    absl::StatusOr<server::UpdateRule> rule = server::UpdateRule::Create(*optimizer);
    if (!rule.ok()) return rule.status();
    options.make_updates = [rule = *std::move(rule)](absl::Span<const uint32_t> counts) {
      return std::make_unique<OwnShards>(rule, counts);
    };
  }
  return worker::MakeLocalClient(std::move(options));
}

absl::StatusOr<std::unique_ptr<worker::JobClient>> MakeClient(const SessionOptions& options,
                                                              const job::JobSpec& job) {
  if (options.coordinator.empty()) return MakeLocalClient(job);
  const Logger logger = ToLogger(absl::StrCat("worker-", options.rank), options.log);
  absl::StatusOr<std::shared_ptr<const net::Transport>> transport =
      OpenTransport({.tls_cert = options.tls_cert,
                     .tls_key = options.tls_key,
                     .tls_ca = options.tls_ca,
                     .token_file = options.token_file},
                    logger);
  if (!transport.ok()) return transport.status();
  worker::RemoteSessionOptions remote =
      worker::OptionsFromJob(job, options.coordinator, options.rank);
  remote.server.join_timeout = absl::Seconds(options.join_timeout_seconds);
  remote.encode_threads = options.threads;
  remote.transport = *std::move(transport);
  remote.logger = logger;
  return worker::MakeRemoteClient(std::move(remote));
}

}  // namespace

struct Session::State {
  // Why there is no session: the error of Join, or that Join was not called.
  Status NotJoined() const {
    return FromStatus(join.ok() ? absl::FailedPreconditionError(
                                      "this worker has not joined the job: call Join first")
                                : join);
  }

  absl::Status CheckSizes(const std::vector<std::span<const float>>& parameters) const {
    if (parameters.size() != sizes.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(parameters.size(), " parameters for ", sizes.size(), " trained tensors"));
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (parameters[i].size() == sizes[i]) continue;
      return absl::InvalidArgumentError(absl::StrCat("parameter ", i, " has ", parameters[i].size(),
                                                     " elements, expected ", sizes[i]));
    }
    return absl::OkStatus();
  }

  std::unique_ptr<worker::JobClient> client;
  absl::Status join;                   // Why Join failed.
  worker::Session* session = nullptr;  // Null before Join.
  JobSummary job;
  float outer_rate = 0;  // With local steps, the rate of outer_optimizer.
  bool has_stepped = false;
  size_t first_buffer = 0;
  std::vector<size_t> sizes;  // Elements of each trained tensor.
  std::vector<float> mean;    // Scratch buffer for means that are rounded. As large as the largest.
};

Result<JobSummary> ReadJob(std::string_view text, std::string_view name) {
  const absl::StatusOr<job::JobSpec> job = job::LoadJobFromText(ToView(text), ToView(name), {});
  if (!job.ok()) return FromStatus(job.status());
  return Summarize(*job);
}

Result<std::unique_ptr<Session>> Session::Create(const SessionOptions& options) {
  if (options.threads < 1 || options.threads > 256) {
    return FromStatus(absl::InvalidArgumentError(
        absl::StrCat("threads is ", options.threads, ": give 1 to 256")));
  }
  const absl::StatusOr<job::JobSpec> job = job::LoadJobFromText(options.job, options.job_name, {});
  if (!job.ok()) return FromStatus(job.status());
  absl::StatusOr<std::unique_ptr<worker::JobClient>> client = MakeClient(options, *job);
  if (!client.ok()) return FromStatus(client.status());
  auto state = std::make_unique<State>();
  state->client = *std::move(client);
  state->job = Summarize(*job);
  if (state->job.sends_weights) state->outer_rate = static_cast<float>(job::ShardRate(*job, 0));
  return std::unique_ptr<Session>(new Session(std::move(state)));
}

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}
Session::~Session() = default;

Result<Joined> Session::Join(const std::vector<Tensor>& tensors,
                             std::string_view parameters_sha256) {
  const absl::StatusOr<worker::JoinedJob> joined =
      state_->client->Join(ToTable(tensors), ToView(parameters_sha256));
  if (!joined.ok()) {
    state_->join = joined.status();
    return FromStatus(joined.status());
  }
  state_->session = joined->session;
  if (state_->job.sends_weights) state_->session->SetRate(state_->outer_rate);
  const auto is_buffer = [](const Tensor& tensor) { return tensor.is_buffer; };
  state_->first_buffer = std::ranges::find_if(tensors, is_buffer) - tensors.begin();
  for (size_t i = 0; i < state_->first_buffer; ++i) {
    size_t elements = 1;
    for (const int64_t extent : tensors[i].shape) elements *= static_cast<size_t>(extent);
    state_->sizes.push_back(elements);
  }
  return FromJoin(joined->info);
}

Status Session::AgreeOnParameters(const std::vector<std::span<float>>& parameters) {
  if (state_->session == nullptr) return state_->NotJoined();
  std::vector<absl::Span<float>> spans;
  spans.reserve(parameters.size());
  for (const std::span<float> values : parameters) spans.emplace_back(values.data(), values.size());
  return FromStatus(state_->session->AgreeOnParameters(spans));
}

bool Session::BuffersDue() const {
  return state_->session != nullptr && state_->session->BuffersDue();
}

std::vector<TensorPart> Session::PartsDue() const {
  std::vector<TensorPart> parts;
  if (state_->session == nullptr) return parts;
  for (const protocol::TensorPart& part : state_->session->PartsDue()) {
    parts.push_back({.tensor = part.tensor, .offset = part.offset, .count = part.count});
  }
  return parts;
}

Status Session::SetWork(uint64_t samples, uint64_t steps) {
  if (state_->session == nullptr) return state_->NotJoined();
  state_->session->SetWork({.samples = samples, .steps = steps});
  return Status();
}

Status Session::Submit(uint32_t tensor, const Gradient& gradient) {
  if (state_->session == nullptr) return state_->NotJoined();
  return FromStatus(state_->session->Submit(tensor, ToView(gradient)));
}

Status Session::Skip() {
  if (state_->session == nullptr) return state_->NotJoined();
  return FromStatus(state_->session->Skip());
}

Result<std::optional<StepResult>> Session::WaitFor(double seconds) {
  if (state_->session == nullptr) return state_->NotJoined();
  const auto result = state_->session->WaitFor(absl::Seconds(seconds));
  if (!result.ok()) return FromStatus(result.status());
  if (!result->has_value()) return std::optional<StepResult>();
  state_->session->Report({.step = (*result)->step});
  state_->has_stepped = true;
  return std::optional<StepResult>(FromResult(**result));
}

Result<std::vector<ReadyTensor>> Session::WaitForTensors(double seconds) {
  if (state_->session == nullptr) return state_->NotJoined();
  const auto ready = state_->session->WaitForTensors(absl::Seconds(seconds));
  if (!ready.ok()) return FromStatus(ready.status());
  std::vector<ReadyTensor> tensors;
  tensors.reserve(ready->size());
  for (const auto& [tensor, has_mean] : *ready) tensors.push_back({tensor, has_mean});
  return tensors;
}

Status Session::Apply(uint32_t tensor, std::span<float> mean) {
  if (state_->session == nullptr) return state_->NotJoined();
  return FromStatus(state_->session->Apply(tensor, {mean.data(), mean.size()}));
}

Status Session::Apply(uint32_t tensor, const MeanTarget& target) {
  const bool is_float = target.type == ElementType::kFloat32;
  if (is_float && target.scale == 1) {
    return Apply(tensor, std::span<float>(static_cast<float*>(target.data), target.size));
  }
  if (tensor >= state_->first_buffer) {
    return FromStatus(absl::InvalidArgumentError(
        absl::StrCat("tensor ", tensor, " is a buffer: take its mean as float32 without a scale")));
  }
  std::vector<float>& mean = state_->mean;
  mean.resize(target.size);
  Status status = Apply(tensor, std::span<float>(mean));
  if (status.ok()) WriteMean(mean, target);
  return status;
}

Status Session::ApplyUpdate(uint32_t tensor, std::span<float> parameters) {
  if (state_->session == nullptr) return state_->NotJoined();
  return FromStatus(state_->session->ApplyUpdate(tensor, {parameters.data(), parameters.size()}));
}

Status Session::SaveCheckpoint(std::string_view state) {
  if (state_->session == nullptr) return state_->NotJoined();
  return FromStatus(state_->session->SaveCheckpoint(std::string(state), {}));
}

Result<std::string> Session::SaveCompressor(const std::vector<std::span<float>>& residuals) {
  if (state_->session == nullptr) return state_->NotJoined();
  const absl::StatusOr<worker::BundleEncoder*> encoder = state_->session->EncoderBetweenSteps();
  if (!encoder.ok()) return FromStatus(encoder.status());
  absl::StatusOr<std::string> rest = Separate((*encoder)->Save(), residuals);
  if (!rest.ok()) return FromStatus(rest.status());
  return *std::move(rest);
}

Status Session::RestoreCompressor(std::string_view rest,
                                  const std::vector<std::span<const float>>& residuals) {
  if (state_->session == nullptr) return state_->NotJoined();
  const absl::StatusOr<worker::BundleEncoder*> encoder = state_->session->EncoderBetweenSteps();
  if (!encoder.ok()) return FromStatus(encoder.status());
  if (state_->has_stepped) {
    return FromStatus(absl::FailedPreconditionError("the session has made a step already"));
  }
  absl::StatusOr<compress::SavedCompressor> saved = Combine(ToView(rest), residuals);
  if (!saved.ok()) return FromStatus(saved.status());
  return FromStatus((*encoder)->RestoreForNewShards(*std::move(saved)));
}

void Session::ReportParameters(uint64_t step, std::string_view sha256) {
  if (state_->session == nullptr) return;
  state_->session->ReportParameters(step, ToView(sha256));
}

bool Session::WantsWeights(uint64_t step, bool is_last) const {
  return state_->session != nullptr && state_->session->WantsWeights(step, is_last);
}

Status Session::PublishWeights(uint64_t step, const std::vector<std::span<const float>>& parameters,
                               bool is_last) {
  if (state_->session == nullptr) return state_->NotJoined();
  if (absl::Status fits = state_->CheckSizes(parameters); !fits.ok()) return FromStatus(fits);
  std::vector<absl::Span<const float>> spans;
  spans.reserve(parameters.size());
  for (const std::span<const float> values : parameters) {
    spans.emplace_back(values.data(), values.size());
  }
  state_->session->PublishWeights(step, spans, is_last);
  return Status();
}

Status Session::Leave() {
  if (state_->session == nullptr) return state_->NotJoined();
  return FromStatus(state_->session->Leave());
}

void Session::Abandon(std::string_view reason) { state_->client->Abandon(ToView(reason)); }

Figures Session::figures() const {
  const std::optional<worker::SessionFigures> figures = state_->client->figures();
  return figures.has_value() ? FromFigures(*figures) : Figures();
}

const JobSummary& Session::job() const { return state_->job; }

}  // namespace sluice::client
