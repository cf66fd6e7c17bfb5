// SPDX-License-Identifier: Apache-2.0
#include "job/file/job_checks.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "compress/codec_spec.h"
#include "compress/codec_table.h"
#include "job/file/control_checks.h"
#include "job/file/job_conversion.h"
#include "job/file/mode_checks.h"
#include "job/file/own_program.h"
#include "job/file/schema.h"
#include "job/file/yaml_mapper.h"
#include "job/file/yaml_source.h"
#include "job/support.h"
#include "protocol/compression_plan.h"

namespace sluice::job {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr size_t kMaxJobName = 64;

// Holds the data that all checks share.
class JobValidator {
 public:
  JobValidator(const Places& places, bool own_program, Problems* problems)
      : places_(places), own_program_(own_program), problems_(problems) {}

  void Fail(absl::string_view path, absl::string_view what) {
    problems_->Add(places_.Find(path), absl::StrCat(path, ": ", what));
  }
  void CompleteSection(const std::string& path, Message* section);
  void CheckBaseline(const v1::JobSpec& given);
  void CheckJob(const v1::JobSpec& job);

 private:
  void CompleteKey(const std::string& path, const std::string& kind, const FieldDescriptor& field,
                   Message* section);
  void WriteDefault(const std::string& path, const FieldDescriptor& field, Message* section);

  void CheckName(const std::string& name);
  void CheckLength(const v1::JobSpec& job);
  void CheckDevice(absl::string_view device);
  void CheckGpus(const v1::JobSpec& job);
  void CheckWidth(const v1::ModelSpec& model);
  void CheckModelTakesData(const v1::JobSpec& job);
  void CheckOptimizer(absl::string_view path, const v1::OptimizerSpec& optimizer);
  void CheckMembership(const v1::JobSpec& job);
  void CheckRelays(const v1::JobSpec& job);
  void CheckTogether(const v1::JobSpec& job);
  void CheckText(absl::string_view path, absl::string_view text);
  void CheckSupport(const v1::JobSpec& job);

  const Places& places_;
  const bool own_program_;
  Problems* const problems_;
};

bool IsPresent(const Message& section, const FieldDescriptor& field) {
  const Reflection& reflection = *section.GetReflection();
  return field.is_repeated() ? reflection.FieldSize(section, &field) > 0
                             : reflection.HasField(section, &field);
}

// Returns the keys that a section of this kind takes, as " (adam takes: lr, ...)", or an empty
// string if the kind takes no keys.
std::string KeysOfKind(const Descriptor& section, absl::string_view kind) {
  std::vector<std::string> keys;
  for (int i = 1; i < section.field_count(); ++i) {
    if (AcceptsKey(*section.field(i), kind)) keys.push_back(section.field(i)->name());
  }
  if (keys.empty()) return "";
  return absl::StrCat(" (", kind, " takes: ", absl::StrJoin(keys, ", "), ")");
}

void JobValidator::CompleteSection(const std::string& path, Message* section) {
  const Descriptor& keys = *section->GetDescriptor();
  for (int i = 0; i < keys.field_count(); ++i) {
    const FieldDescriptor& field = *keys.field(i);
    const std::string kind = i == 0 ? "" : SectionKind(*section);
    CompleteKey(JoinPath(path, field.name()), kind, field, section);
  }
}

void JobValidator::CompleteKey(const std::string& path, const std::string& kind,
                               const FieldDescriptor& field, Message* section) {
  const Reflection& reflection = *section->GetReflection();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    const bool is_section =
        !field.options().HasExtension(v1::not_yet) &&
        (!field.options().GetExtension(v1::if_given) || reflection.HasField(*section, &field));
    if (field.is_repeated()) {
      for (int i = 0; i < reflection.FieldSize(*section, &field); ++i) {
        CompleteSection(absl::StrCat(path, "[", i, "]"),
                        reflection.MutableRepeatedMessage(section, &field, i));
      }
    } else if (is_section) {
      CompleteSection(path, reflection.MutableMessage(section, &field));
    }
    return;
  }
  if (!AcceptsKey(field, kind)) {
    // An unknown kind has already been reported.
    if (IsPresent(*section, field) && !kind.empty()) {
      Fail(path, absl::StrCat(kind, " takes no ", field.name(), "; remove it",
                              KeysOfKind(*section->GetDescriptor(), kind)));
    }
  } else if (!IsPresent(*section, field)) {
    WriteDefault(path, field, section);
  }
}

void JobValidator::WriteDefault(const std::string& path, const FieldDescriptor& field,
                                Message* section) {
  if (field.options().GetExtension(v1::needed) && !(own_program_ && IsTheProgramsOwn(path))) {
    const std::string problem = WordProblem(field, "");
    const size_t known = problem.find("known: ");
    Fail(path,
         known == problem.npos ? "missing" : absl::StrCat("missing; ", problem.substr(known)));
  }
  if (!field.options().HasExtension(v1::default_value)) return;
  const absl::StatusOr<YAML::Node> value =
      ParseYaml(field.options().GetExtension(v1::default_value), "default");
  const YamlSource source = YamlSource::Argument("default");
  Places places("default");
  Problems problems;
  if (value.ok()) YamlMapper(&source, &places, &problems).MapKey(*value, path, field, section);
  Check(value.ok() && problems.empty(), "a default of the schema is a value the schema takes");
}

std::string KindOrDefault(const Message& section) {
  const std::string kind = SectionKind(section);
  const FieldDescriptor& first = *section.GetDescriptor()->field(0);
  return kind.empty() ? first.options().GetExtension(v1::default_value) : kind;
}

// Applies `changes` to `*section`. If `changes` name a different kind, the section is cleared
// first.
void Overlay(const Message& changes, Message* section) {
  const bool names_kind = !SectionKind(changes).empty();
  if (names_kind && KindOrDefault(changes) != KindOrDefault(*section)) section->Clear();
  section->MergeFrom(changes);
}

void ApplyBaseline(v1::JobSpec* job) {
  const v1::BaselineSpec& baseline = job->baseline();
  if (baseline.has_optimizer()) Overlay(baseline.optimizer(), job->mutable_optimizer());
  if (baseline.has_lr_schedule()) Overlay(baseline.lr_schedule(), job->mutable_lr_schedule());
}

void SwitchCompressionOff(v1::CompressionSpec* compression) {
  compression->clear_overrides();
  compression->set_uplink("none");
  compression->set_downlink("none");
  compression->set_min_elements(0);
}

void JobValidator::CheckBaseline(const v1::JobSpec& given) {
  v1::JobSpec dense = given;
  ApplyBaseline(&dense);
  CompleteSection("baseline.optimizer", dense.mutable_optimizer());
  CompleteSection("baseline.lr_schedule", dense.mutable_lr_schedule());
  CheckOptimizer("baseline.optimizer", dense.optimizer());
}

void JobValidator::CheckName(const std::string& name) {
  const size_t bad =
      name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.");
  if (bad != name.npos || name.size() > kMaxJobName) {
    Fail("name", absl::StrCat("may hold letters, digits, '-', '_' and '.', at most ", kMaxJobName,
                              "; found ", ShowText(name)));
  }
}

void JobValidator::CheckLength(const v1::JobSpec& job) {
  if (job.has_epochs() && job.has_steps()) {
    Fail("steps", "epochs is also given; give only one of them");
  } else if (!job.has_epochs() && !job.has_steps() && !own_program_) {
    Fail("epochs", "missing; give epochs (passes over the data) or steps");
  }
}

void JobValidator::CheckDevice(absl::string_view device) {
  if (device == "auto" || device == "cpu" || device == "cuda") return;
  uint32_t index = 0;
  if (absl::ConsumePrefix(&device, "cuda:") && absl::SimpleAtoi(device, &index) && index < 1024) {
    return;
  }
  Fail("device", absl::StrCat("must be auto, cpu, cuda or cuda:N with N below 1024, found ",
                              ShowText(device)));
}

void JobValidator::CheckGpus(const v1::JobSpec& job) {
  if (job.gpus_per_worker() <= job.gradient_accumulation_steps()) return;
  Fail("gpus_per_worker",
       absl::StrCat("is ", job.gpus_per_worker(), ", but a step has ",
                    job.gradient_accumulation_steps(),
                    " passes for them to share: set gradient_accumulation_steps to at least as "
                    "many"));
}

void JobValidator::CheckWidth(const v1::ModelSpec& model) {
  if (!model.has_heads() || !model.has_width() || model.heads() == 0) return;
  if (model.width() % model.heads() == 0) return;
  Fail("model.width", absl::StrCat("must be a multiple of model.heads, ", model.heads(), "; found ",
                                   model.width()));
}

// The files determine the image size, and the model asks for the size when it is created.
void JobValidator::CheckModelTakesData(const v1::JobSpec& job) {
  const std::string& model = job.model().name();
  const std::string& format = job.data().format();
  const std::optional<DataFormat> known = FindByName<DataFormat>(format);
  if (model.empty() || !known || model == "custom" || *known == DataFormat::kCustom) return;
  const bool is_text = IsText(*known);
  const bool takes_text = model == "char_gpt";
  if (is_text == takes_text) return;
  Fail("model.name", takes_text ? absl::StrCat(model, " takes text, and data.format ", format,
                                               " has images; use format text or synthetic_text, or "
                                               "an image model such as resnet20")
                                : absl::StrCat(model, " takes images, and data.format ", format,
                                               " has text; use model char_gpt, or image data"));
}

void JobValidator::CheckOptimizer(absl::string_view path, const v1::OptimizerSpec& optimizer) {
  if (optimizer.nesterov() && optimizer.momentum() == 0) {
    Fail(JoinPath(path, "nesterov"), "needs a momentum above 0");
  }
  double delayed = 0;
  const bool is_number = absl::SimpleAtod(optimizer.delayed_momentum(), &delayed);
  if (is_number ? !(delayed >= 0 && delayed < 1) : optimizer.delayed_momentum() != "auto") {
    Fail(JoinPath(path, "delayed_momentum"),
         absl::StrCat("must be auto or a number of at least 0 and below 1, found ",
                      ShowText(optimizer.delayed_momentum())));
  }
  if (FindByName<UpdateLocation>(optimizer.location()) != UpdateLocation::kShards) return;
  if (optimizer.name() == "muon") {
    Fail(JoinPath(path, "name"),
         "muon needs whole matrices, of which each shard has only parts; use location: workers");
  }
  for (const auto& [key, limit] : {std::pair("clip_norm", optimizer.clip_norm()),
                                   std::pair("clip_value", optimizer.clip_value())}) {
    if (limit == 0) continue;
    Fail(JoinPath(path, key),
         "limits the mean gradient, which no worker has when the optimizer runs on the shards; "
         "remove it, or use location: workers");
  }
}

void JobValidator::CheckMembership(const v1::JobSpec& job) {
  if (FindByName<Membership>(job.membership()) != Membership::kElastic) {
    for (const auto& [name, given] : {std::pair("min_workers", job.has_min_workers()),
                                      std::pair("max_workers", job.has_max_workers())}) {
      if (given) Fail(name, "is a key of membership elastic; remove it");
    }
    return;
  }
  if (job.min_workers() > job.workers()) {
    Fail("min_workers",
         absl::StrCat("is ", job.min_workers(), ", and only ", job.workers(), " begin (workers)"));
  }
  if (job.has_max_workers() && job.max_workers() < job.workers()) {
    Fail("max_workers",
         absl::StrCat("is ", job.max_workers(), ", and ", job.workers(), " begin (workers)"));
  }
  if (!job.has_checkpoint() || job.checkpoint().replay_limit() == 0) {
    Fail("membership",
         "elastic needs a `checkpoint` section with a replay_limit above 0: newcomers begin with "
         "the newest checkpoint and replay the results since then");
  }
}

// Returns the query for the whole job, without a codec. The words of the job are known names.
SupportQuery QueryOf(const v1::JobSpec& job) {
  const Mode mode = *FindByName<Mode>(job.mode());
  const UpdateLocation on = *FindByName<UpdateLocation>(job.optimizer().location());
  return {.mode = mode,
          .rule = RuleOf(mode, on, job.optimizer().name()),
          .membership = *FindByName<Membership>(job.membership()),
          .codec = {},
          .quorum = job.quorum() > 0,
          .plans = ConvertControl(job.control()).makes_plans(),
          .relays = job.has_relays(),
          .guard = ConvertGuard(job).on(),
          .merges = !ConvertMerge(job).plain()};
}

void JobValidator::CheckRelays(const v1::JobSpec& job) {
  if (!job.has_relays()) return;
  uint64_t workers = 0;
  for (const uint32_t behind : job.relays().workers()) workers += behind;
  if (job.relays().workers_size() == 0) {
    Fail("relays.workers",
         "missing; give the number of workers behind each relay, such as [2, 2], or remove relays");
  } else if (workers != job.workers()) {
    Fail("relays.workers", absl::StrCat("has ", workers, " workers behind ",
                                        job.relays().workers_size(), " relays, and the job has ",
                                        job.workers(), " (workers); all workers are behind one"));
  }
  SupportQuery query = QueryOf(job);
  query.quorum = job.has_quorum();
  const absl::string_view refusal = RelaysRefusal(query);
  if (!refusal.empty()) Fail("relays", refusal);
}

void JobValidator::CheckTogether(const v1::JobSpec& job) {
  const FailAt fail = [this](absl::string_view path, absl::string_view what) { Fail(path, what); };
  CheckMode(job, fail);
  CheckMembership(job);
  CheckControl(job, fail);
  CheckRelays(job);
  CheckWidth(job.model());
  CheckModelTakesData(job);
  CheckOptimizer("optimizer", job.optimizer());
  const v1::ServerSpec& server = job.server();
  if (server.heartbeat_interval() * 2 > server.lease_timeout()) {
    Fail("server.heartbeat_interval",
         "must be at most half of server.lease_timeout, because otherwise one late heartbeat ends "
         "the lease");
  }
  if (server.port() != 0 && server.port() == server.http_port()) {
    Fail("server.http_port", absl::StrCat("is server.port, ", server.port(), ", too"));
  }
  for (int i = 0; i < job.compression().overrides_size(); ++i) {
    const v1::CompressionOverride& entry = job.compression().overrides(i);
    if (entry.has_uplink() || entry.has_downlink()) continue;
    Fail(absl::StrCat("compression.overrides[", i, "]"), "needs uplink, downlink or both");
  }
}

void JobValidator::CheckText(absl::string_view path, absl::string_view text) {
  const bool control = std::any_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(c));
  });
  if (control || text.size() > 4096) {
    Fail(path, absl::StrCat("must be at most 4096 printable characters, found ", ShowText(text)));
  }
}

void JobValidator::CheckSupport(const v1::JobSpec& job) {
  struct Use {
    std::string path;
    std::string codec;
    protocol::Direction direction;
  };
  std::vector<Use> uses = {
      {"compression.uplink", job.compression().uplink(), protocol::Direction::kUplink},
      {"compression.downlink", job.compression().downlink(), protocol::Direction::kDownlink}};
  if (job.has_relays()) {
    uses.push_back({"relays.uplink", job.relays().uplink(), protocol::Direction::kUplink});
  }
  for (int i = 0; i < job.compression().overrides_size(); ++i) {
    const v1::CompressionOverride& entry = job.compression().overrides(i);
    const std::string path = absl::StrCat("compression.overrides[", i, "]");
    if (entry.has_uplink()) {
      uses.push_back({path + ".uplink", entry.uplink(), protocol::Direction::kUplink});
    }
    if (entry.has_downlink()) {
      uses.push_back({path + ".downlink", entry.downlink(), protocol::Direction::kDownlink});
    }
  }
  std::set<std::string> told;
  SupportQuery query = QueryOf(job);
  bool sparse = false;
  for (const Use& use : uses) {
    const absl::StatusOr<compress::CodecSpec> codec = compress::ParseCodecSpec(use.codec);
    Check(codec.ok(), "the mapper keeps canonical codec specs");
    query.codec = *codec;
    query.direction = use.direction;
    const SupportAnswer answer = FindSupport(query);
    sparse = sparse || protocol::IsSparse(codec->codec);
    const bool omits = use.direction == protocol::Direction::kUplink &&
                       compress::TraitsOf(codec->codec, codec->options).sparse;
    if (omits && job.merge_alpha() > 0 && told.insert("merge_alpha").second) {
      Fail(
          "merge_alpha",
          absl::StrCat("keeps a part of each change in a worker's parameters, and ", use.codec,
                       " keeps the elements that it omits in a residual, so these would count "
                       "twice; remove it, or use an uplink codec that sends every element (int4)"));
    }
    const std::string key = answer.key.empty() ? use.path : std::string(answer.key);
    if (answer.support == Support::kBuilt || !told.insert(key).second) continue;
    Fail(key, answer.key.empty() ? absl::StrCat(use.codec, ": ", answer.reason)
                                 : std::string(answer.reason));
  }
  if (!sparse && FindByName<PolicyKind>(job.control().policy()) == PolicyKind::kSchedule) {
    Fail("control.policy",
         "schedule sets the density of topk and topk_exact, but compression uses neither");
  }
}

void JobValidator::CheckJob(const v1::JobSpec& job) {
  CheckName(job.name());
  CheckLength(job);
  CheckDevice(job.device());
  CheckGpus(job);
  CheckTogether(job);
  CheckText("data.path", job.data().path());
  CheckText("output", job.output());
  CheckText("checkpoint.dir", job.checkpoint().dir());
  if (job.has_checkpoint() && job.checkpoint().has_dir() && job.checkpoint().dir().empty()) {
    Fail("checkpoint.dir", "is empty; name a folder, or remove the section");
  }
  for (const v1::CompressionOverride& entry : job.compression().overrides()) {
    CheckText("compression.overrides", entry.tensors());
  }
  CheckSupport(job);
}

}  // namespace

void CompleteJob(bool dense, const Places& places, v1::JobSpec* job, Problems* problems) {
  JobValidator completer(places, CompleteOwnProgram(job), problems);
  const v1::JobSpec given = *job;
  job->clear_baseline();
  completer.CompleteSection("", job);
  completer.CheckJob(*job);
  if (!problems->empty()) return;
  completer.CheckBaseline(given);
  if (dense && problems->empty()) {
    *job = given;
    ApplyBaseline(job);
    job->clear_baseline();
    SwitchCompressionOff(job->mutable_compression());
    if (job->has_relays()) job->mutable_relays()->set_uplink("none");
    job->clear_control();
    completer.CompleteSection("", job);
  }
}

}  // namespace sluice::job
