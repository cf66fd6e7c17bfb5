#include "cli/codecs.h"

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "compress/codec_table.h"

namespace sluice {

std::string FormatCodecTable() {
  std::string text = absl::StrFormat("%-9s %-16s %s\n", "codec", "example", "what it does");
  for (const CodecEntry& codec : Codecs()) {
    absl::StrAppendFormat(&text, "%-9s %-16s %s\n", codec.name, codec.example, codec.summary);
  }
  text +=
      "\nA spec is CODEC[:LEVEL][+VALUES][/noef]; /noef drops what a codec leaves out instead of "
      "sending it later.\nIn a job file: compression: {uplink: topk:1%+int4, downlink: topk:3%}\n";
  return text;
}

}  // namespace sluice
