// SPDX-License-Identifier: Apache-2.0
// _sluice: the client library's module for Python. Python passes tensors as addresses, so the
// module does not link PyTorch; the package python/sluice checks the tensors first. Every call that
// may wait releases the GIL.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "python/src/errors.h"
#include "python/src/follower.h"
#include "python/src/gil.h"
#include "python/src/log_queue.h"
#include "sluice/codec.h"
#include "sluice/session.h"
#include "sluice/status.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace sluice::python {
namespace {

// (name, shape, strides in elements, element type, whether the tensor is a buffer)
using TensorRow = std::tuple<std::string, std::vector<int64_t>, std::vector<int64_t>, int, bool>;
using FloatArray = nb::ndarray<const float, nb::device::cpu, nb::c_contig>;

std::string_view ToView(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

std::span<float> SpanAt(uintptr_t address, size_t elements) {
  return {reinterpret_cast<float*>(address), elements};
}

std::vector<std::span<float>> SpansAt(const std::vector<std::tuple<uintptr_t, size_t>>& places) {
  std::vector<std::span<float>> spans;
  spans.reserve(places.size());
  for (const auto& [address, elements] : places) spans.push_back(SpanAt(address, elements));
  return spans;
}

nb::bytes ToBytes(const std::vector<std::byte>& frames) {
  return nb::bytes(frames.data(), frames.size());
}

std::span<const std::byte> BytesOf(const nb::bytes& bytes) {
  return {reinterpret_cast<const std::byte*>(bytes.c_str()), bytes.size()};
}

class Session {
 public:
  explicit Session(client::SessionOptions options) {
    options.log = [log = log_](client::LogLevel level, std::string_view component,
                               std::string_view text) { log->Add(level, component, text); };
    session_ = OrRaise(WithoutGil([&] { return client::Session::Create(options); }));
  }
  // The session's threads do not exist in a forked process, so waiting for them to end would take
  // forever.
  ~Session() {
    if (getpid() != process_) (void)session_.release();
  }

  client::Joined Join(const std::vector<TensorRow>& rows, const nb::bytes& sha256) {
    std::vector<client::Tensor> tensors;
    tensors.reserve(rows.size());
    for (const auto& [name, shape, strides, type, is_buffer] : rows) {
      tensors.push_back({.name = name,
                         .shape = shape,
                         .strides = strides,
                         .type = static_cast<client::ElementType>(type),
                         .is_buffer = is_buffer});
    }
    const std::string_view hash = ToView(sha256);
    return OrRaise(WithoutGil([&] { return session_->Join(tensors, hash); }));
  }
  void AgreeOnParameters(const std::vector<std::tuple<uintptr_t, size_t>>& places) {
    const std::vector<std::span<float>> spans = SpansAt(places);
    OrRaise(WithoutGil([&] { return session_->AgreeOnParameters(spans); }));
  }
  bool BuffersDue() const {
    return WithoutGil([&] { return session_->BuffersDue(); });
  }
  std::vector<std::tuple<uint32_t, uint64_t, uint64_t>> PartsDue() const {
    std::vector<std::tuple<uint32_t, uint64_t, uint64_t>> parts;
    for (const auto& [tensor, offset, count] : WithoutGil([&] { return session_->PartsDue(); })) {
      parts.emplace_back(tensor, offset, count);
    }
    return parts;
  }
  void Submit(uint32_t tensor, uintptr_t address, size_t elements, int type, float scale) {
    const client::Gradient gradient{.data = reinterpret_cast<const void*>(address),
                                    .size = elements,
                                    .type = static_cast<client::ElementType>(type),
                                    .scale = scale};
    OrRaise(WithoutGil([&] { return session_->Submit(tensor, gradient); }));
  }
  void SetWork(uint64_t samples, uint64_t steps) {
    OrRaise(WithoutGil([&] { return session_->SetWork(samples, steps); }));
  }
  void Skip() {
    OrRaise(WithoutGil([&] { return session_->Skip(); }));
  }
  std::optional<client::StepResult> WaitFor(double seconds) {
    return OrRaise(WithoutGil([&] { return session_->WaitFor(seconds); }));
  }
  std::vector<std::tuple<uint32_t, bool>> WaitForTensors(double seconds) {
    std::vector<std::tuple<uint32_t, bool>> tensors;
    for (const auto& [tensor, has_mean] :
         OrRaise(WithoutGil([&] { return session_->WaitForTensors(seconds); }))) {
      tensors.emplace_back(tensor, has_mean);
    }
    return tensors;
  }
  void Apply(uint32_t tensor, uintptr_t address, size_t elements, int type, float scale) {
    const client::MeanTarget target{.data = reinterpret_cast<void*>(address),
                                    .size = elements,
                                    .type = static_cast<client::ElementType>(type),
                                    .scale = scale};
    OrRaise(WithoutGil([&] { return session_->Apply(tensor, target); }));
  }
  void ApplyUpdate(uint32_t tensor, uintptr_t address, size_t elements) {
    OrRaise(WithoutGil([&] { return session_->ApplyUpdate(tensor, SpanAt(address, elements)); }));
  }
  void SaveCheckpoint(const nb::bytes& state) {
    const std::string_view bytes = ToView(state);
    OrRaise(WithoutGil([&] { return session_->SaveCheckpoint(bytes); }));
  }
  nb::bytes SaveCompressor(const std::vector<std::tuple<uintptr_t, size_t>>& places) {
    const std::vector<std::span<float>> residuals = SpansAt(places);
    const std::string rest =
        OrRaise(WithoutGil([&] { return session_->SaveCompressor(residuals); }));
    return nb::bytes(rest.data(), rest.size());
  }
  void RestoreCompressor(const nb::bytes& rest,
                         const std::vector<std::tuple<uintptr_t, size_t>>& places) {
    const std::string_view bytes = ToView(rest);
    const std::vector<std::span<float>> spans = SpansAt(places);
    const std::vector<std::span<const float>> residuals(spans.begin(), spans.end());
    OrRaise(WithoutGil([&] { return session_->RestoreCompressor(bytes, residuals); }));
  }
  bool WantsWeights(uint64_t step, bool is_last) const {
    return session_->WantsWeights(step, is_last);
  }
  void PublishWeights(uint64_t step, const std::vector<std::tuple<uintptr_t, size_t>>& places,
                      bool is_last) {
    const std::vector<std::span<float>> spans = SpansAt(places);
    const std::vector<std::span<const float>> parameters(spans.begin(), spans.end());
    OrRaise(WithoutGil([&] { return session_->PublishWeights(step, parameters, is_last); }));
  }
  void ReportParameters(uint64_t step, const nb::bytes& sha256) {
    const std::string_view hash = ToView(sha256);
    WithoutGil([&] { session_->ReportParameters(step, hash); });
  }
  void Leave() {
    OrRaise(WithoutGil([&] { return session_->Leave(); }));
  }
  void Abandon(const std::string& reason) {
    WithoutGil([&] { session_->Abandon(reason); });
  }
  // Ends the session's threads. The GIL is released, because these threads may have to wait for
  // each other.
  void Close() {
    WithoutGil([&] { session_.reset(); });
  }
  client::Figures figures() const {
    return WithoutGil([&] { return session_->figures(); });
  }
  const client::JobSummary& job() const { return session_->job(); }
  std::vector<LogQueue::Line> TakeLog() { return log_->Take(); }

 private:
  const pid_t process_ = getpid();
  const std::shared_ptr<LogQueue> log_ = std::make_shared<LogQueue>();
  std::unique_ptr<client::Session> session_;
};

void BindValues(nb::module_& m) {
  nb::class_<client::JobSummary>(m, "JobSummary")
      .def_ro("name", &client::JobSummary::name)
      .def_ro("mode", &client::JobSummary::mode)
      .def_ro("workers", &client::JobSummary::workers)
      .def_ro("shards", &client::JobSummary::shards)
      .def_ro("uplink", &client::JobSummary::uplink)
      .def_ro("downlink", &client::JobSummary::downlink)
      .def_ro("shards_update", &client::JobSummary::shards_update)
      .def_ro("sends_weights", &client::JobSummary::sends_weights)
      .def_ro("local_steps", &client::JobSummary::local_steps)
      .def_ro("outer_optimizer", &client::JobSummary::outer_optimizer)
      .def_ro("outer_lr", &client::JobSummary::outer_lr)
      .def_ro("outer_momentum", &client::JobSummary::outer_momentum)
      .def_ro("fragments", &client::JobSummary::fragments)
      .def_ro("fragment_delay", &client::JobSummary::fragment_delay)
      .def_ro("merge_alpha", &client::JobSummary::merge_alpha)
      .def_ro("merge_weights", &client::JobSummary::merge_weights)
      .def_ro("checkpoints", &client::JobSummary::checkpoints)
      .def_ro("waits_for_all", &client::JobSummary::waits_for_all);
  nb::class_<client::Joined>(m, "Joined")
      .def_ro("rank", &client::Joined::rank)
      .def_ro("world_size", &client::Joined::world_size)
      .def_ro("first_step", &client::Joined::first_step)
      .def_ro("restored_step", &client::Joined::restored_step)
      .def_prop_ro("restored",
                   [](const client::Joined& joined) {
                     return nb::bytes(joined.restored.data(), joined.restored.size());
                   })
      .def_ro("parameters_agree", &client::Joined::parameters_agree);
  nb::class_<client::StepResult>(m, "StepResult")
      .def_ro("step", &client::StepResult::step)
      .def_ro("n_min", &client::StepResult::n_min)
      .def_ro("n_max", &client::StepResult::n_max)
      .def_ro("bundles", &client::StepResult::bundles)
      .def_ro("bundles_skipped_here", &client::StepResult::bundles_skipped_here)
      .def_ro("first_skipped_tensor", &client::StepResult::first_skipped_tensor)
      .def_ro("without_mean", &client::StepResult::without_mean)
      .def_ro("buffers_averaged", &client::StepResult::buffers_averaged)
      .def_ro("checkpoint_due", &client::StepResult::checkpoint_due)
      .def_ro("staleness", &client::StepResult::staleness)
      .def_ro("steps_behind", &client::StepResult::steps_behind);
  nb::class_<client::Figures>(m, "Figures")
      .def_ro("step", &client::Figures::step)
      .def_ro("steps", &client::Figures::steps)
      .def_ro("bytes_up", &client::Figures::bytes_up)
      .def_ro("bytes_down", &client::Figures::bytes_down)
      .def_ro("dense_bytes", &client::Figures::dense_bytes)
      .def_ro("skipped_bundles", &client::Figures::skipped_bundles)
      .def_ro("encode_seconds", &client::Figures::encode_seconds)
      .def_ro("decode_seconds", &client::Figures::decode_seconds)
      .def_ro("exposed_seconds", &client::Figures::exposed_seconds);
}

void BindSession(nb::module_& m) {
  nb::class_<Session>(m, "Session")
      .def(
          "__init__",
          [](Session* self, const std::string& job, const std::string& job_name,
             const std::string& coordinator, uint32_t rank, double join_timeout,
             const std::string& token_file, const std::string& tls_cert, const std::string& tls_key,
             const std::string& tls_ca, uint32_t threads) {
            new (self) Session({.job = job,
                                .job_name = job_name,
                                .coordinator = coordinator,
                                .rank = rank,
                                .join_timeout_seconds = join_timeout,
                                .threads = threads,
                                .token_file = token_file,
                                .tls_cert = tls_cert,
                                .tls_key = tls_key,
                                .tls_ca = tls_ca,
                                .log = {}});
          },
          "job"_a, "job_name"_a, "coordinator"_a, "rank"_a, "join_timeout"_a, "token_file"_a = "",
          "tls_cert"_a = "", "tls_key"_a = "", "tls_ca"_a = "", "threads"_a = 1)
      .def("join", &Session::Join, "tensors"_a, "parameters_sha256"_a)
      .def("agree_on_parameters", &Session::AgreeOnParameters, "places"_a)
      .def("buffers_due", &Session::BuffersDue)
      .def("parts_due", &Session::PartsDue)
      .def("set_work", &Session::SetWork, "samples"_a, "steps"_a)
      .def("submit", &Session::Submit, "tensor"_a, "address"_a, "elements"_a, "type"_a, "scale"_a)
      .def("skip", &Session::Skip)
      .def("wait_for", &Session::WaitFor, "seconds"_a)
      .def("wait_for_tensors", &Session::WaitForTensors, "seconds"_a)
      .def("apply", &Session::Apply, "tensor"_a, "address"_a, "elements"_a, "type"_a, "scale"_a)
      .def("apply_update", &Session::ApplyUpdate, "tensor"_a, "address"_a, "elements"_a)
      .def("save_checkpoint", &Session::SaveCheckpoint, "state"_a)
      .def("save_compressor", &Session::SaveCompressor, "places"_a)
      .def("restore_compressor", &Session::RestoreCompressor, "rest"_a, "places"_a)
      .def("wants_weights", &Session::WantsWeights, "step"_a, "is_last"_a)
      .def("publish_weights", &Session::PublishWeights, "step"_a, "places"_a, "is_last"_a)
      .def("report_parameters", &Session::ReportParameters, "step"_a, "sha256"_a)
      .def("leave", &Session::Leave)
      .def("abandon", &Session::Abandon, "reason"_a)
      .def("close", &Session::Close)
      .def("figures", &Session::figures)
      .def("job", &Session::job, nb::rv_policy::copy)
      .def("take_log", &Session::TakeLog);
}

void BindCodecs(nb::module_& m) {
  nb::class_<client::CodecInfo>(m, "CodecInfo")
      .def_ro("name", &client::CodecInfo::name)
      .def_ro("example", &client::CodecInfo::example)
      .def_ro("summary", &client::CodecInfo::summary);
  m.def("codecs", &client::Codecs);
  m.def(
      "canonical_spec",
      [](const std::string& spec) { return OrRaise(client::CanonicalSpec(spec)); }, "spec"_a);
  m.def(
      "momentum_with",
      [](const std::string& uplink, const std::string& downlink, double momentum) {
        return OrRaise(client::MomentumWith(uplink, downlink, momentum));
      },
      "uplink"_a, "downlink"_a, "momentum"_a);
  m.def(
      "decoded_size",
      [](const nb::bytes& frames) { return OrRaise(client::DecodedSize(BytesOf(frames))); },
      "frames"_a);
  m.def(
      "decode_add",
      [](const nb::bytes& frames, uintptr_t address, size_t elements) {
        const std::span<const std::byte> bytes = BytesOf(frames);
        OrRaise(WithoutGil([&] { return client::DecodeAdd(bytes, SpanAt(address, elements)); }));
      },
      "frames"_a, "address"_a, "elements"_a);
  nb::class_<client::Codec>(m, "Codec")
      .def_static(
          "create",
          [](const std::string& spec, const std::vector<int64_t>& shape, uint64_t seed,
             uint32_t sender) { return OrRaise(client::Codec::Create(spec, shape, seed, sender)); },
          "spec"_a, "shape"_a, "seed"_a, "sender"_a)
      .def(
          "encode",
          [](client::Codec& codec, const FloatArray& gradient) {
            const std::span<const float> values(gradient.data(), gradient.size());
            return ToBytes(OrRaise(WithoutGil([&] { return codec.Encode(values); })));
          },
          "gradient"_a)
      .def(
          "residual",
          [](const client::Codec& codec, uintptr_t address, size_t elements) {
            const std::vector<float> residual = codec.Residual();
            const std::span<float> to = SpanAt(address, elements);
            for (size_t i = 0; i < to.size() && i < residual.size(); ++i) to[i] = residual[i];
          },
          "address"_a, "elements"_a)
      .def_prop_ro("spec", &client::Codec::spec);
}

}  // namespace
}  // namespace sluice::python

NB_MODULE(_sluice, m) {
  // If the user keeps an exception, the objects in its frames stay alive too. They are not leaks.
  nb::set_leak_warnings(false);
  sluice::python::BindValues(m);
  sluice::python::BindSession(m);
  sluice::python::BindCodecs(m);
  sluice::python::BindFollower(m);
  m.def(
      "read_job",
      [](const std::string& text, const std::string& name) {
        return sluice::python::OrRaise(sluice::client::ReadJob(text, name));
      },
      "text"_a, "name"_a);
}
