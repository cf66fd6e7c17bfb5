// SPDX-License-Identifier: Apache-2.0
#include "planning/estimate/machine_figures.h"

#include <cmath>
#include <limits>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "compress/codec_table.h"
#include "nlohmann/json.hpp"

namespace sluice::planning {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;
constexpr double kFigureMax = 1e6;  // No figure in its unit is larger.
constexpr size_t kCodecsMax = 1000;

// A figure of the machine, by its key in the file.
struct Key {
  absl::string_view name;
  double MachineFigures::*figure;
};
constexpr Key kKeys[] = {
    {"step_ms", &MachineFigures::step_ms},
    {"bundle_us", &MachineFigures::bundle_us},
    {"tensor_us", &MachineFigures::tensor_us},
    {"worker_ns_per_byte", &MachineFigures::worker_ns},
    {"shard_ns_per_byte", &MachineFigures::shard_ns},
};
struct CodecKey {
  absl::string_view name;
  double CodecFigures::*figure;
};
constexpr CodecKey kCodecKeys[] = {
    {"bits", &CodecFigures::bits},
    {"encode_ns", &CodecFigures::encode_ns},
    {"add_ns", &CodecFigures::add_ns},
};

compress::CodecSpec WithoutCompensator(compress::CodecSpec spec) {
  spec.compensator = {.id = compress::UsualCompensator(spec.codec, spec.options)};
  return spec;
}

// Returns the figures for a level that was not measured, from those of the nearest level of the
// same codec.
std::optional<CodecFigures> ScaledFigures(const MachineFigures& machine,
                                          const compress::CodecSpec& spec) {
  compress::CodecPrice (*const price)(const compress::CodecSpec&) =
      compress::FindCodec(spec.codec).facts.price;
  if (price == nullptr) return std::nullopt;
  const compress::CodecPrice wanted = price(spec);
  CodecFigures scaled{.bits = wanted.bits, .encode_ns = wanted.encode_ns, .add_ns = wanted.add_ns};
  double nearest = std::numeric_limits<double>::infinity();
  for (const auto& [text, figures] : machine.codecs) {
    const absl::StatusOr<compress::CodecSpec> measured = compress::ParseCodecSpec(text);
    if (!measured.ok() || measured->codec != spec.codec) continue;
    const compress::CodecPrice known = price(*measured);
    const double distance = std::abs(std::log(known.bits / wanted.bits));
    if (distance >= nearest) continue;
    nearest = distance;
    scaled = {.bits = wanted.bits * figures.bits / known.bits,
              .encode_ns = wanted.encode_ns * figures.encode_ns / known.encode_ns,
              .add_ns = wanted.add_ns * figures.add_ns / known.add_ns};
  }
  return scaled;
}

absl::Status WrongFigure(absl::string_view key, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("machine figures: ", key, " ", what));
}

absl::StatusOr<double> FigureOf(const Json& object, absl::string_view where,
                                absl::string_view key) {
  const std::string path = absl::StrCat(where, key);
  const auto found = object.find(std::string(key));
  if (found == object.end()) return WrongFigure(path, "is missing");
  if (!found->is_number()) return WrongFigure(path, "is not a number");
  const double value = found->get<double>();
  if (value >= 0 && value <= kFigureMax) return value;
  return WrongFigure(path, absl::StrCat("is ", value, "; it must be from 0 to ", kFigureMax));
}

absl::Status ReadCodecs(const Json& codecs, MachineFigures* machine) {
  if (!codecs.is_object()) return WrongFigure("codecs", "is not an object");
  if (codecs.size() > kCodecsMax) {
    return WrongFigure("codecs", absl::StrCat("has more than ", kCodecsMax, " entries"));
  }
  for (const auto& [text, entry] : codecs.items()) {
    const absl::StatusOr<compress::CodecSpec> spec = compress::ParseCodecSpec(text);
    if (!spec.ok()) return WrongFigure("codecs", spec.status().message());
    const std::string where = absl::StrCat("codecs.", text, ".");
    if (!entry.is_object()) return WrongFigure(absl::StrCat("codecs.", text), "is not an object");
    CodecFigures& figures = machine->codecs[compress::ToString(*spec)];
    for (const CodecKey& key : kCodecKeys) {
      const absl::StatusOr<double> value = FigureOf(entry, where, key.name);
      if (!value.ok()) return value.status();
      figures.*key.figure = *value;
    }
  }
  return absl::OkStatus();
}

}  // namespace

MachineFigures UsualFigures() {
  return {.cores = 2,
          .step_ms = 1,
          .bundle_us = 150,
          .tensor_us = 3.7,
          .worker_ns = 0.45,
          .shard_ns = 0.4,
          .codecs = {{"none", {32.01, 0.35, 0.40}},
                     {"fp16", {16.01, 0.50, 0.35}},
                     {"bf16", {16.01, 0.50, 0.35}},
                     {"int8", {8.07, 0.66, 0.30}},
                     {"int4", {4.07, 0.62, 0.30}},
                     {"int2", {2.07, 0.60, 0.30}},
                     {"sign", {1.02, 0.60, 0.30}},
                     {"ternary:0.5", {0.66, 1.7, 0.65}},
                     {"ternary:0.7", {0.40, 1.5, 0.40}},
                     {"topk:0.1%+int4", {0.018, 0.50, 0.03}},
                     {"topk:1%+int4", {0.119, 0.57, 0.11}},
                     {"topk:3%+int4", {0.296, 0.57, 0.28}},
                     {"topk:10%+int4", {0.836, 0.95, 0.7}}}};
}

absl::StatusOr<CodecFigures> FiguresOf(const MachineFigures& machine,
                                       const compress::CodecSpec& spec) {
  const compress::CodecSpec plain = WithoutCompensator(spec);
  const auto found = machine.codecs.find(compress::ToString(plain));
  if (found != machine.codecs.end()) return found->second;
  if (const auto scaled = ScaledFigures(machine, plain); scaled.has_value()) return *scaled;
  const std::string text = compress::ToString(plain);
  return absl::InvalidArgumentError(
      absl::StrCat("the bytes and the speed of ", text,
                   " are not known; measure them with --calibrate FILE --spec ", text,
                   ", and pass the file with --figures"));
}

std::string MachineFiguresJson(const MachineFigures& machine) {
  Json codecs = Json::object();
  for (const auto& [spec, figures] : machine.codecs) {
    Json& entry = codecs[spec];
    for (const CodecKey& key : kCodecKeys) entry[std::string(key.name)] = figures.*key.figure;
  }
  Json file = {{"schema", kSchema}, {"cores", machine.cores}};
  for (const Key& key : kKeys) file[std::string(key.name)] = machine.*key.figure;
  file["codecs"] = codecs;
  return file.dump(2) + "\n";
}

absl::StatusOr<MachineFigures> ParseMachineFigures(absl::string_view text) {
  const Json file = Json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!file.is_object()) return WrongFigure("the file", "is not a JSON object");
  const absl::StatusOr<double> schema = FigureOf(file, "", "schema");
  if (!schema.ok()) return schema.status();
  if (*schema != kSchema) {
    return WrongFigure("schema", absl::StrCat("is ", *schema, "; this version reads ", kSchema));
  }
  MachineFigures machine;
  const absl::StatusOr<double> cores = FigureOf(file, "", "cores");
  if (!cores.ok()) return cores.status();
  if (*cores < 1) return WrongFigure("cores", "is below 1");
  machine.cores = static_cast<uint32_t>(*cores);
  for (const Key& key : kKeys) {
    const absl::StatusOr<double> value = FigureOf(file, "", key.name);
    if (!value.ok()) return value.status();
    machine.*key.figure = *value;
  }
  const auto codecs = file.find("codecs");
  if (codecs == file.end()) return WrongFigure("codecs", "is missing");
  if (absl::Status status = ReadCodecs(*codecs, &machine); !status.ok()) return status;
  return machine;
}

}  // namespace sluice::planning
