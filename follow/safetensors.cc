// SPDX-License-Identifier: Apache-2.0
#include "follow/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/text.h"

namespace sluice::follow {
namespace {

using compress::ElementType;
using nlohmann::json;

constexpr size_t kAlignment = 8;
constexpr absl::string_view kMetadata = "__metadata__";
// Longer names of types are cut in errors.
constexpr size_t kShownTypeMax = 40;
// A header has objects of tensors, which have arrays.
constexpr int kDepthMax = 3;

constexpr struct {
  ElementType type;
  absl::string_view name;
} kTypes[] = {{ElementType::kFloat32, "F32"},
              {ElementType::kBfloat16, "BF16"},
              {ElementType::kFloat16, "F16"}};

absl::Status RefuseFile(absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat("the safetensors file ", problem));
}

absl::Status RefuseTensor(absl::string_view name, absl::string_view problem) {
  return RefuseFile(absl::StrCat("has a tensor `", EscapeControls(name), "` ", problem));
}

// Parses the JSON. Refuses deep nesting and repeated keys, which the parser would overwrite.
absl::StatusOr<json> ParseHeader(absl::string_view text) {
  std::set<std::string> names, fields;
  bool too_deep = false;
  std::optional<std::string> repeated;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    too_deep |= depth > kDepthMax;
    if (event == json::parse_event_t::object_start && depth == 1) fields.clear();
    if (event == json::parse_event_t::key) {
      const std::string& key = parsed.get_ref<const std::string&>();
      if (!(depth == 1 ? names : fields).insert(key).second) repeated = key;
    }
    return !too_deep;
  };
  json header = json::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
  if (too_deep) return RefuseFile("has a header with too many levels");
  if (repeated.has_value()) {
    return RefuseFile(absl::StrCat("has the key `", EscapeControls(*repeated), "` twice"));
  }
  if (header.is_discarded() || !header.is_object())
    return RefuseFile("has a header that is not JSON");
  return header;
}

// Never throws. Bytes that are not UTF-8 become U+FFFD.
std::string ToText(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/false,
                    nlohmann::ordered_json::error_handler_t::replace);
}

struct Entry {
  NamedShape tensor;
  ElementType type;
  uint64_t begin;
  uint64_t end;
};

absl::StatusOr<ElementType> ReadType(const std::string& name, const json& value) {
  if (value.is_string()) {
    for (const auto& known : kTypes) {
      if (known.name == value.get_ref<const std::string&>()) return known.type;
    }
  }
  return RefuseTensor(
      name, absl::StrCat("of type ", EscapeControls(ToText(value)).substr(0, kShownTypeMax),
                         ", but patches need tensors that are all BF16, all F16 or "
                         "all F32: convert it, or keep it in another file"));
}

// Returns true and sets `*numbers` if `value` is an array of at most `most` unsigned integers.
bool ReadNumbers(const json& value, size_t most, std::vector<uint64_t>* numbers) {
  if (!value.is_array() || value.size() > most) return false;
  for (const json& number : value) {
    if (!number.is_number_unsigned()) return false;
    numbers->push_back(number.get<uint64_t>());
  }
  return true;
}

absl::StatusOr<Entry> ReadEntry(const std::string& name, const json& value) {
  const auto field = [&](const char* key) -> const json* {
    const auto found = value.find(key);
    return found == value.end() ? nullptr : &*found;
  };
  if (!value.is_object() || value.size() != 3 || field("dtype") == nullptr ||
      field("shape") == nullptr || field("data_offsets") == nullptr) {
    return RefuseTensor(name, "without exactly the fields dtype, shape and data_offsets");
  }
  const absl::StatusOr<ElementType> type = ReadType(name, *field("dtype"));
  if (!type.ok()) return type.status();
  Entry entry{.tensor = {.name = name, .shape = {}}, .type = *type, .begin = 0, .end = 0};
  std::vector<uint64_t> offsets;
  if (!ReadNumbers(*field("shape"), kRankMax, &entry.tensor.shape)) {
    return RefuseTensor(name,
                        absl::StrCat("whose shape is not a list of at most ", kRankMax, " sizes"));
  }
  if (!ReadNumbers(*field("data_offsets"), 2, &offsets) || offsets.size() != 2) {
    return RefuseTensor(name, "whose data_offsets are not two numbers");
  }
  entry.begin = offsets[0];
  entry.end = offsets[1];
  const absl::StatusOr<uint64_t> elements = ElementsOf(entry.tensor);
  if (!elements.ok()) return elements.status();
  if (entry.begin > entry.end || entry.end - entry.begin != *elements * BytesOf(entry.type)) {
    return RefuseTensor(name, absl::StrCat("at bytes ", entry.begin, " to ", entry.end,
                                           ", which do not fit its ", *elements, " elements"));
  }
  return entry;
}

bool IsMetadata(const json& value) {
  return value.is_object() &&
         std::all_of(value.begin(), value.end(), [](const json& text) { return text.is_string(); });
}

absl::StatusOr<std::vector<Entry>> ReadEntries(const json& header) {
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadata) {
      if (!IsMetadata(value)) return RefuseFile("has metadata that is not text");
      continue;
    }
    absl::StatusOr<Entry> entry = ReadEntry(name, value);
    if (!entry.ok()) return entry.status();
    if (!entries.empty() && entries.front().type != entry->type) {
      return RefuseTensor(
          name, absl::StrCat("of type ", SafetensorsTypeName(entry->type), " and others of type ",
                             SafetensorsTypeName(entries.front().type),
                             ", but a patch has one type: convert them"));
    }
    entries.push_back(*std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.tensor.name) < std::tie(b.begin, b.end, b.tensor.name);
  });
  return entries;
}

}  // namespace

absl::string_view SafetensorsTypeName(ElementType type) {
  for (const auto& known : kTypes) {
    if (known.type == type) return known.name;
  }
  return "";
}

std::string FormatSafetensorsHeader(absl::Span<const SafetensorsEntry> entries,
                                    const SafetensorsMetadata& metadata) {
  nlohmann::ordered_json described = {{"format", "pt"}};
  for (const auto& [name, value] : metadata) described[name] = value;
  // The entries are joined as text, because an ordered JSON object searches all of its keys for
  // each new one.
  std::string text = absl::StrCat("{\"", kMetadata, "\":", ToText(described));
  uint64_t begin = 0;
  for (const SafetensorsEntry& entry : entries) {
    const nlohmann::ordered_json fields = {{"dtype", entry.type},
                                           {"shape", entry.shape},
                                           {"data_offsets", {begin, begin + entry.bytes}}};
    absl::StrAppend(&text, ",", ToText(entry.name), ":", ToText(fields));
    begin += entry.bytes;
  }
  text += "}";
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  const uint64_t size = text.size();
  std::string file(sizeof(size), '\0');
  std::memcpy(file.data(), &size, sizeof(size));
  return file + text;
}

std::string FormatSafetensorsHeader(const TensorLayout& layout, ElementType type,
                                    const SafetensorsMetadata& metadata) {
  std::vector<SafetensorsEntry> entries;
  for (const NamedShape& tensor : layout) {
    uint64_t bytes = BytesOf(type);
    for (const uint64_t size : tensor.shape) bytes *= size;
    entries.push_back({.name = tensor.name,
                       .type = std::string(SafetensorsTypeName(type)),
                       .shape = tensor.shape,
                       .bytes = bytes});
  }
  return FormatSafetensorsHeader(entries, metadata);
}

absl::StatusOr<SafetensorsModel> ParseSafetensors(absl::Span<const std::byte> file) {
  ByteReader reader(file);
  const auto header_bytes = reader.Read<uint64_t>();
  if (!reader.ok()) {
    return RefuseFile(absl::StrCat("has ", file.size(), " bytes, which is too short for a header"));
  }
  if (header_bytes > kSafetensorsHeaderMax || header_bytes > reader.remaining()) {
    return RefuseFile(absl::StrCat("announces a header of ", header_bytes,
                                   " bytes, but the file has ", reader.remaining(),
                                   " more bytes and headers have at most ", kSafetensorsHeaderMax,
                                   ": is it another kind of file?"));
  }
  const absl::Span<const std::byte> bytes = reader.ReadBytes(static_cast<size_t>(header_bytes));
  const absl::StatusOr<json> header =
      ParseHeader({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!header.ok()) return header.status();
  absl::StatusOr<std::vector<Entry>> entries = ReadEntries(*header);
  if (!entries.ok()) return entries.status();
  SafetensorsModel model;
  model.weights_at = sizeof(uint64_t) + bytes.size();
  uint64_t end = 0;
  for (Entry& entry : *entries) {
    if (entry.begin != end) {
      return RefuseTensor(entry.tensor.name, absl::StrCat("that begins at byte ", entry.begin,
                                                          " of the values, not at ", end));
    }
    end = entry.end;
    model.type = entry.type;
    model.layout.push_back(std::move(entry.tensor));
  }
  if (end != reader.remaining()) {
    return RefuseFile(absl::StrCat("has ", reader.remaining(),
                                   " bytes of values, but its tensors take ", end,
                                   ": is it complete?"));
  }
  if (const absl::StatusOr<uint64_t> checked = CheckLayout(model.layout); !checked.ok()) {
    return checked.status();
  }
  return model;
}

}  // namespace sluice::follow
