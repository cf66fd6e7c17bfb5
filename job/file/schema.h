// SPDX-License-Identifier: Apache-2.0
// The schema of job files, read from the descriptors of the messages. The functions describe keys,
// words and limits for a person.
#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "job/file/key_type.h"

namespace sluice::job {

// A list in a job file has at most this many entries.
inline constexpr size_t kMaxListEntries = 1000;

// Returns the type of the key's value. For a list, returns the type of each entry.
KeyType TypeOf(const google::protobuf::FieldDescriptor& field);

// Returns the path "a.b" for "a" and "b". `path` may be empty.
std::string JoinPath(absl::string_view path, absl::string_view key);

// Returns "the job" for the top level, and otherwise the path.
std::string SectionName(absl::string_view path);

// Returns the field with this name. A field also matches under its name in the last release (option
// old_name). Returns null if no field matches.
const google::protobuf::FieldDescriptor* FindKey(const google::protobuf::Descriptor& section,
                                                 absl::string_view key);

// Returns "'optimizer.on' is now called 'optimizer.location'; release 0.3 no longer reads the old
// name", or an empty string if `key` is the field's current name.
std::string OldNameWarning(const google::protobuf::FieldDescriptor& field, absl::string_view path,
                           absl::string_view key);

// Returns, for example, "unknown key 'lr_shedule' in the job; did you mean 'lr_schedule'? known
// keys: name, mode, ...".
std::string UnknownKey(const google::protobuf::Descriptor& section, absl::string_view path,
                       absl::string_view key);

// Returns the reason for refusing a key with the option not_yet.
std::string NotYet(const google::protobuf::FieldDescriptor& field, absl::string_view path);

// Returns the value of the section's first key (`name` or `format`). This value decides which other
// keys the section takes.
std::string SectionKind(const google::protobuf::Message& section);

// Returns true if sections of this kind take the key (option only_for).
bool AcceptsKey(const google::protobuf::FieldDescriptor& field, absl::string_view kind);

// Returns the words that the field accepts. An empty list means that it accepts any text.
std::vector<absl::string_view> KnownWords(const google::protobuf::FieldDescriptor& field);

// Returns the reason why `word` is not among the field's known words, or an empty string if the
// field accepts it.
std::string WordProblem(const google::protobuf::FieldDescriptor& field, absl::string_view word);

// Returns the field's limits, for example "above 0 and at most 1", or an empty string if it has
// none.
std::string RangeText(const google::protobuf::FieldDescriptor& field);

// Returns the reason why `value` is outside the field's limits, or an empty string if the field
// accepts it.
std::string RangeProblem(const google::protobuf::FieldDescriptor& field, double value);

// Returns the text in quotes, escaped and shortened to fit a line.
std::string ShowText(absl::string_view text);

}  // namespace sluice::job
