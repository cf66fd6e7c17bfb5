#include "cli/codecs.h"

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "compress/codec_table.h"

namespace sluice {

std::string FormatCodecTable() {
  std::string text = absl::StrFormat("%-11s %-16s %s\n", "codec", "example", "what it does");
  for (const CodecEntry& codec : Codecs()) {
    absl::StrAppendFormat(&text, "%-11s %-16s %s\n", codec.name, codec.example, codec.summary);
  }
  text +=
      "\nA spec is CODEC[:LEVEL,OPTIONS][+VALUES][/COMPENSATOR]. Values of sparse codecs: +fp16 "
      "+int8 "
      "+int4 +sign.\nCompensators: /ef feeds errors back (usual where a codec is biased), /noef "
      "drops them; `sluice codecs\n--support` shows what goes with what.\n"
      "In a job file: compression: {uplink: topk:1%+int4, downlink: topk:3%}\n";
  return text;
}

}  // namespace sluice
