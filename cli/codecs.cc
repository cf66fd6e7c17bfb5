// SPDX-License-Identifier: Apache-2.0
#include "cli/codecs.h"

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "compress/codec_table.h"
#include "nlohmann/json.hpp"

namespace sluice::cli {

std::string FormatCodecTable() {
  std::string text = absl::StrFormat("%-11s %-16s %s\n", "codec", "example", "what it does");
  for (const compress::CodecEntry& codec : compress::Codecs()) {
    absl::StrAppendFormat(&text, "%-11s %-16s %s\n", codec.name, codec.example, codec.summary);
  }
  text +=
      "\nA spec is CODEC[:LEVEL,OPTIONS][+VALUES][/COMPENSATOR]. Values of sparse codecs: +fp16 "
      "+int8 "
      "+int4 +sign.\nCompensators: /ef feeds errors back (usual for biased codecs), /noef drops "
      "them; `sluice codecs\n--support` shows which combinations work.\nPositions of topk, "
      "topk_exact, threshold and ternary use the smallest coding, 8.1 / 4.7 bits at\n1 % / 10 %, "
      "less if they cluster. An option selects another: index=rice 8.1 / 4.7, index=packed\n8.7 / "
      "5.0, index=bytes 8.7 / 8.0 and twice as fast to read, index=bitmap 102 / 10. The "
      "decoded\nvalues are the same.\n"
      "In a job file: compression: {uplink: topk:1%+int4, downlink: topk:3%}\n";
  return text;
}

std::string CodecTableJson() {
  nlohmann::ordered_json codecs = nlohmann::ordered_json::array();
  for (const compress::CodecEntry& entry : compress::Codecs()) {
    const absl::StatusOr<compress::CodecSpec> spec = compress::ParseCodecSpec(entry.example);
    Check(spec.ok(), "examples are specs");
    nlohmann::ordered_json compensators;
    for (const compress::CompensatorId id : compress::Compensators()) {
      const absl::string_view refusal = compress::CompensatorRefusal(entry.id, spec->options, id);
      const bool usual = id == compress::UsualCompensator(entry.id, spec->options);
      compensators[std::string(compress::CompensatorName(id))] = !refusal.empty()
                                                                     ? std::string(refusal)
                                                                 : usual ? "usual"
                                                                         : "yes";
    }
    const absl::string_view downlink = compress::DownlinkRefusal(*spec);
    codecs.push_back({{"name", std::string(entry.name)},
                      {"example", std::string(entry.example)},
                      {"compensators", compensators},
                      {"downlink", downlink.empty() ? "yes" : std::string(downlink)}});
  }
  return codecs.dump(2) + "\n";
}

}  // namespace sluice::cli
