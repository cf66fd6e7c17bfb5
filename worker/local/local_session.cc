// SPDX-License-Identifier: Apache-2.0
#include "worker/local/local_session.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "compress/aggregator.h"
#include "compress/compressor.h"
#include "compress/frame.h"
#include "protocol/layout.h"
#include "worker/core/bundle_encoder.h"

namespace sluice::worker {
namespace {

absl::Span<const std::byte> BytesOf(const std::string& frame) {
  return {reinterpret_cast<const std::byte*>(frame.data()), frame.size()};
}

double SecondsSince(absl::Time begin) { return absl::ToDoubleSeconds(absl::Now() - begin); }

absl::Status GaveUp(absl::string_view reason) {
  return absl::CancelledError(absl::StrCat("this worker gave up: ", reason));
}

std::vector<compress::ChunkConfig> DownlinkConfigs(const LocalSessionOptions& options,
                                                   const protocol::TensorTable& table,
                                                   const protocol::Layout& layout) {
  std::vector<compress::ChunkConfig> configs = protocol::ChunkConfigs(
      options.exchange.compression, table, layout, protocol::Direction::kDownlink);
  // As on a shard, the values that workers lack are the only residual of an update.
  for (size_t chunk = 0; chunk < configs.size() && options.make_updates; ++chunk) {
    if (layout.chunks[chunk].tensor >= protocol::TrainedTensors(table)) continue;
    configs[chunk].spec.compensator = {.id = compress::CompensatorId::kNone};
  }
  return configs;
}

struct Coding {
  Coding(const LocalSessionOptions& options, const protocol::TensorTable& its_table,
         protocol::Layout its_layout)
      : table(its_table),
        layout(std::move(its_layout)),
        encoder(table, layout, options.exchange.compression, /*rank=*/0),
        downlink(DownlinkConfigs(options, table, layout),
                 {.seed = options.exchange.compression.seed,
                  .sender = compress::Compressor::kShardSender,
                  .owes_lossless = true}),
        published(layout.chunks.size()),
        gradients(table.size()) {
    for (const compress::ChunkConfig& config : protocol::ChunkConfigs(
             options.exchange.compression, table, layout, protocol::Direction::kUplink)) {
      aggregators.push_back(compress::MakeAggregator(config, /*senders=*/1));
    }
    if (!options.make_updates) return;
    std::vector<uint32_t> counts;
    for (const protocol::Chunk& chunk : layout.chunks) {
      counts.push_back(chunk.tensor < protocol::TrainedTensors(table) ? chunk.count : 0);
    }
    updates = options.make_updates(counts);
  }

  const protocol::TensorTable table;
  const protocol::Layout layout;
  BundleEncoder encoder;
  compress::Compressor downlink;
  std::vector<std::unique_ptr<compress::Aggregator>> aggregators;  // By chunk.
  std::unique_ptr<ShardUpdates> updates;  // Null if workers' optimizers do the updates.
  std::vector<std::string> published;     // By chunk; empty without a mean.
  std::vector<GradientView> gradients;    // By tensor, of the open step.
};

class LocalSession final : public Session {
 public:
  LocalSession(const LocalSessionOptions& options, const protocol::TensorTable& table,
               protocol::Layout layout)
      : options_(options), coding_(options, table, std::move(layout)) {}

  // Returns true if the shards do the updates.
  bool shards_update() const { return coding_.updates != nullptr; }
  absl::Status AgreeOnParameters(absl::Span<const absl::Span<float>> parameters) override;
  bool BuffersDue() const override {
    return protocol::TrainedTensors(coding_.table) < coding_.table.size() &&
           step_ % options_.exchange.buffer_sync_interval == 0;
  }
  std::vector<protocol::TensorPart> PartsDue() const override {
    return protocol::PartsDue(coding_.layout, protocol::TrainedTensors(coding_.table), step_);
  }
  absl::Status Submit(uint32_t tensor, const GradientView& gradient) override;
  absl::Status Skip() override;
  void SetRate(float rate) override { rate_ = rate; }
  absl::StatusOr<StepResult> Wait() override;
  absl::Status Apply(uint32_t tensor, absl::Span<float> mean) override;
  absl::Status ApplyScaled(uint32_t tensor, float scale, absl::Span<float> values) override;
  absl::Status ApplyUpdate(uint32_t tensor, absl::Span<float> parameters) override {
    return AddResult(tensor, /*as_update=*/true, parameters);
  }
  absl::Status SaveCheckpoint(std::string, std::vector<CheckpointFile>) override {
    return absl::FailedPreconditionError("a process that is alone takes no checkpoints");
  }
  absl::StatusOr<BundleEncoder*> EncoderBetweenSteps() override;
  void Report(const Progress& progress) override {
    MutexLock lock(&mutex_);
    figures_.progress = progress;
  }
  void ReportParameters(uint64_t, absl::string_view) override {}
  TrafficCounters traffic() const override {
    MutexLock lock(&mutex_);
    return figures_.traffic;
  }
  std::optional<SessionFigures> figures() const override {
    MutexLock lock(&mutex_);
    return figures_;
  }
  absl::Status Leave() override { return Ready(); }
  void Abandon(absl::string_view reason) override {
    MutexLock lock(&mutex_);
    if (status_.ok()) status_ = GaveUp(reason);
  }

 private:
  absl::Status Ready() const {
    MutexLock lock(&mutex_);
    return status_;
  }
  // As Ready, and also fails if the shards' updates have no parameters yet.
  absl::Status MayBegin() const;
  absl::Status CheckSubmitted() const;
  // Returns whether the open step exchanges the bundle.
  bool IsDue(const protocol::Bundle& bundle) const {
    if (bundle.buffers) return BuffersDue();
    return protocol::IsFragmentDue(coding_.layout.fragments, bundle.fragment, step_);
  }
  absl::Status AddResult(uint32_t tensor, bool as_update, absl::Span<float> values);
  absl::Status Exchange(uint32_t bundle, StepResult* result);
  absl::Status Publish(const protocol::Bundle& bundle, const EncodedBundle& encoded);
  void Count(double encode_seconds, uint64_t bytes_up, uint64_t bytes_down);

  const LocalSessionOptions options_;
  Coding coding_;
  uint64_t step_ = 1;    // The open step, or the next one if none is open.
  float rate_ = 0;       // The shards' learning rate.
  bool agreed_ = false;  // AgreeOnParameters was called.
  bool skips_ = false;
  bool has_result_ = false;
  mutable Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  SessionFigures figures_ ABSL_GUARDED_BY(mutex_);
};

absl::Status LocalSession::AgreeOnParameters(absl::Span<const absl::Span<float>> parameters) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  agreed_ = true;
  if (coding_.updates == nullptr) return absl::OkStatus();
  for (size_t tensor = 0; tensor < coding_.table.size(); ++tensor) {
    if (tensor < parameters.size() &&
        parameters[tensor].size() == coding_.table[tensor].elements()) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("the parameters lack ", coding_.table[tensor].name, ", or its size differs"));
  }
  for (size_t id = 0; id < coding_.layout.chunks.size(); ++id) {
    const protocol::Chunk& chunk = coding_.layout.chunks[id];
    if (chunk.tensor >= protocol::TrainedTensors(coding_.table)) continue;
    coding_.updates->Set(id, parameters[chunk.tensor].subspan(chunk.offset, chunk.count));
  }
  return absl::OkStatus();
}

absl::Status LocalSession::MayBegin() const {
  absl::Status status = Ready();
  if (!status.ok() || agreed_ || coding_.updates == nullptr) return status;
  return absl::FailedPreconditionError(
      "the shards do the updates in this job, and have no parameters: call AgreeOnParameters "
      "before the first step");
}

absl::Status LocalSession::Submit(uint32_t tensor, const GradientView& gradient) {
  if (absl::Status status = MayBegin(); !status.ok()) return status;
  if (tensor >= coding_.table.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no tensor ", tensor, ", only ", coding_.table.size()));
  }
  const protocol::TensorInfo& info = coding_.table[tensor];
  if (gradient.size != info.elements()) {
    return absl::InvalidArgumentError(absl::StrCat("the gradient of ", info.name, " has ",
                                                   gradient.size, " elements, wanted ",
                                                   info.elements()));
  }
  if (skips_ || coding_.gradients[tensor].data != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(info.name, " was submitted or skipped already in step ", step_));
  }
  if (info.role == protocol::TensorRole::kBuffer && !BuffersDue()) {
    return absl::InvalidArgumentError(
        absl::StrCat("buffer ", info.name, " was submitted in step ", step_,
                     ", in which buffers are not averaged: ask BuffersDue first"));
  }
  coding_.gradients[tensor] = gradient;
  has_result_ = false;
  return absl::OkStatus();
}

absl::Status LocalSession::Skip() {
  if (absl::Status status = MayBegin(); !status.ok()) return status;
  skips_ = true;
  has_result_ = false;
  return absl::OkStatus();
}

absl::StatusOr<BundleEncoder*> LocalSession::EncoderBetweenSteps() {
  if (absl::Status status = Ready(); !status.ok()) return status;
  const std::vector<GradientView>& gradients = coding_.gradients;
  const bool open = skips_ || std::any_of(gradients.begin(), gradients.end(),
                                          [](const GradientView& g) { return g.data != nullptr; });
  if (open) return absl::FailedPreconditionError(absl::StrCat("step ", step_, " is open"));
  return &coding_.encoder;
}

absl::Status LocalSession::CheckSubmitted() const {
  if (skips_) return absl::OkStatus();
  for (const protocol::Chunk& chunk : coding_.layout.chunks) {
    if (coding_.gradients[chunk.tensor].data != nullptr) continue;
    if (!IsDue(coding_.layout.bundles[0][chunk.bundle])) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "Wait was called in step ", step_, " before ", coding_.table[chunk.tensor].name,
        " was submitted: submit zeros for a tensor that has no gradient"));
  }
  return absl::OkStatus();
}

absl::StatusOr<StepResult> LocalSession::Wait() {
  if (absl::Status status = Ready(); !status.ok()) return status;
  if (absl::Status status = CheckSubmitted(); !status.ok()) return status;
  const absl::Time started = absl::Now();
  StepResult result;
  result.step = step_;
  result.n_min = 1;
  result.buffers_averaged = BuffersDue() && !skips_;
  const std::vector<protocol::Bundle>& bundles = coding_.layout.bundles[0];
  std::vector<bool> has_mean(coding_.table.size(), false);
  for (uint32_t bundle = 0; bundle < bundles.size(); ++bundle) {
    if (!IsDue(bundles[bundle]) || (bundles[bundle].buffers && skips_)) continue;
    if (absl::Status status = Exchange(bundle, &result); !status.ok()) return status;
  }
  for (size_t chunk = 0; chunk < coding_.published.size(); ++chunk) {
    if (!coding_.published[chunk].empty()) has_mean[coding_.layout.chunks[chunk].tensor] = true;
  }
  for (uint32_t tensor = 0; tensor < protocol::TrainedTensors(coding_.table); ++tensor) {
    if (!has_mean[tensor]) result.without_mean.push_back(tensor);
  }
  coding_.downlink.EndStep(step_);
  std::fill(coding_.gradients.begin(), coding_.gradients.end(), GradientView());
  skips_ = false;
  has_result_ = true;
  ++step_;
  MutexLock lock(&mutex_);
  ++figures_.traffic.steps;
  figures_.progress.step = result.step;
  figures_.dense_bytes += sizeof(float) * protocol::TrainedElements(coding_.table);
  figures_.skipped_bundles += result.bundles_skipped_here;
  figures_.traffic.exposed_seconds += SecondsSince(started);
  return result;
}

absl::Status LocalSession::Exchange(uint32_t bundle, StepResult* result) {
  const protocol::Bundle& place = coding_.layout.bundles[0][bundle];
  const auto& bundles = coding_.layout.bundles[0];
  EncodeTask task;
  task.step = step_;
  task.bundle = bundle;
  task.nothing = skips_;
  task.chunks = place.chunks;
  task.last_of_step =
      std::none_of(bundles.begin() + bundle + 1, bundles.end(),
                   [this](const protocol::Bundle& b) { return !b.buffers && IsDue(b); });
  std::vector<std::string> published;
  for (const uint32_t id : place.chunks) {
    const protocol::Chunk& chunk = coding_.layout.chunks[id];
    const GradientView& gradient = coding_.gradients[chunk.tensor];
    task.gradients.push_back(skips_ ? GradientView() : gradient.Part(chunk.offset, chunk.count));
    published.push_back(std::move(coding_.published[id]));
    coding_.published[id].clear();
  }
  if (!published.front().empty()) task.published = published;
  const absl::Time started = absl::Now();
  const EncodedBundle encoded = coding_.encoder.Encode(task);
  if (!encoded.failure.ok()) return encoded.failure;
  Count(SecondsSince(started), 0, 0);
  ++result->bundles;
  if (encoded.skipped || skips_) {
    result->n_min = 0;
    if (skips_) return absl::OkStatus();
    if (result->bundles_skipped_here++ == 0) {
      result->first_skipped_tensor = coding_.table[encoded.skipped_tensor].name;
    }
    return absl::OkStatus();
  }
  result->n_max = 1;
  return Publish(place, encoded);
}

// Processes the frames as a shard with a single worker does.
absl::Status LocalSession::Publish(const protocol::Bundle& bundle, const EncodedBundle& encoded) {
  std::vector<float> sum;
  uint64_t up = 0, down = 0;
  for (size_t i = 0; i < bundle.chunks.size(); ++i) {
    const uint32_t id = bundle.chunks[i];
    compress::Aggregator& aggregator = *coding_.aggregators[id];
    sum.assign(coding_.layout.chunks[id].count, 0);
    const compress::SenderFrame frame{.sender = 0, .frame = BytesOf(encoded.frames[i])};
    absl::Status status = aggregator.Validate(0, frame.frame);
    if (!status.ok()) return status;
    aggregator.Add({&frame, 1}, absl::MakeSpan(sum));
    aggregator.Close(1, absl::MakeSpan(sum));
    absl::Span<const float> result = sum;
    const bool is_update = coding_.updates != nullptr && !bundle.buffers;
    if (is_update) {
      status = coding_.downlink.Check(id, sum);
      if (!status.ok()) return status;
      result = coding_.updates->Update(id, rate_, sum);
    }
    std::vector<std::byte> encoded_result;
    status = coding_.downlink.Encode(id, step_, result, &encoded_result);
    if (!status.ok()) return status;
    coding_.downlink.Observe(id, encoded_result);
    aggregator.AppendShared(&encoded_result);
    if (is_update) coding_.updates->Publish(id, encoded_result);
    coding_.published[id].assign(reinterpret_cast<const char*>(encoded_result.data()),
                                 encoded_result.size());
    up += frame.frame.size();
    down += encoded_result.size();
  }
  Count(0, up, down);
  return absl::OkStatus();
}

void LocalSession::Count(double encode_seconds, uint64_t bytes_up, uint64_t bytes_down) {
  MutexLock lock(&mutex_);
  figures_.traffic.encode_seconds += encode_seconds;
  figures_.traffic.bytes_up += bytes_up;
  figures_.traffic.bytes_down += bytes_down;
}

absl::Status LocalSession::Apply(uint32_t tensor, absl::Span<float> mean) {
  return AddResult(tensor, /*as_update=*/false, mean);
}

// A mean replaces `values`, and an update is added to them.
absl::Status LocalSession::AddResult(uint32_t tensor, bool as_update, absl::Span<float> values) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  if (!has_result_) return absl::FailedPreconditionError("Apply was called before Wait");
  if (tensor >= coding_.table.size() || values.size() != coding_.table[tensor].elements()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no tensor ", tensor, " of ", values.size(), " elements"));
  }
  const bool is_buffer = coding_.table[tensor].role == protocol::TensorRole::kBuffer;
  if (absl::Status status = CheckTaken(as_update, coding_.updates != nullptr && !is_buffer);
      !status.ok()) {
    return status;
  }
  const absl::Time started = absl::Now();
  const std::vector<protocol::Chunk>& chunks = coding_.layout.chunks;
  const auto first = std::find_if(chunks.begin(), chunks.end(),
                                  [tensor](const auto& chunk) { return chunk.tensor == tensor; });
  for (auto id = static_cast<size_t>(first - chunks.begin());
       id < chunks.size() && chunks[id].tensor == tensor; ++id) {
    const protocol::Chunk& chunk = chunks[id];
    const absl::Span<float> part = values.subspan(chunk.offset, chunk.count);
    if (coding_.published[id].empty() && is_buffer) continue;
    if (!as_update) std::fill(part.begin(), part.end(), 0.0f);
    // Results of earlier steps stay for the encoder, which observes them later.
    const bool of_step =
        is_buffer || protocol::IsFragmentDue(coding_.layout.fragments, chunk.fragment, step_ - 1);
    if (coding_.published[id].empty() || !of_step) continue;
    absl::Status status = compress::DecodeAddFrames(BytesOf(coding_.published[id]), part);
    if (!status.ok()) return status;
  }
  MutexLock lock(&mutex_);
  figures_.traffic.decode_seconds += SecondsSince(started);
  return absl::OkStatus();
}

absl::Status LocalSession::ApplyScaled(uint32_t tensor, float scale, absl::Span<float> values) {
  std::vector<float> mean(values.size());
  if (absl::Status status = Apply(tensor, absl::MakeSpan(mean)); !status.ok()) return status;
  for (size_t i = 0; i < mean.size(); ++i) values[i] += scale * mean[i];
  return absl::OkStatus();
}

class LocalClient final : public JobClient {
 public:
  explicit LocalClient(LocalSessionOptions options) : options_(std::move(options)) {}

  absl::StatusOr<JoinedJob> Join(const protocol::TensorTable& table, absl::string_view) override {
    MutexLock lock(&mutex_);
    if (!join_status_.ok()) return join_status_;
    if (session_ != nullptr) return absl::FailedPreconditionError("this worker has joined already");
    const protocol::CompressionSpec& compression = options_.exchange.compression;
    absl::StatusOr<protocol::Layout> layout = protocol::BuildLayout(
        table, /*shards=*/1, compression.layout, protocol::WholeRows(compression, table));
    if (!layout.ok()) return join_status_ = layout.status();
    session_ = std::make_unique<LocalSession>(options_, table, *std::move(layout));
    return JoinedJob{
        .info = {.rank = 0, .world_size = 1, .parameters_agree = !session_->shards_update()},
        .session = session_.get()};
  }
  void Abandon(absl::string_view reason) override {
    MutexLock lock(&mutex_);
    if (session_ != nullptr) return session_->Abandon(reason);
    if (join_status_.ok()) join_status_ = GaveUp(reason);
  }
  std::optional<SessionFigures> figures() const override {
    MutexLock lock(&mutex_);
    return session_ == nullptr ? std::nullopt : session_->figures();
  }

 private:
  const LocalSessionOptions options_;
  mutable Mutex mutex_;
  absl::Status join_status_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<LocalSession> session_ ABSL_GUARDED_BY(mutex_);  // Null before Join.
};

}  // namespace

std::unique_ptr<JobClient> MakeLocalClient(LocalSessionOptions options) {
  return std::make_unique<LocalClient>(std::move(options));
}

}  // namespace sluice::worker
