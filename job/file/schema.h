// The schema of job files as the messages' descriptors tell it: keys, words and limits, in words
// for a person.
#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace sluice::job {

// "a.b"; `path` may be empty.
std::string JoinPath(absl::string_view path, absl::string_view key);

// "the job" for the top, else the path.
std::string SectionName(absl::string_view path);

const google::protobuf::FieldDescriptor* FindKey(const google::protobuf::Descriptor& section,
                                                 absl::string_view key);

// "unknown key 'lr_shedule' in the job; did you mean 'lr_schedule'? known keys: name, mode, ...".
std::string UnknownKey(const google::protobuf::Descriptor& section, absl::string_view path,
                       absl::string_view key);

// Why a key with the option not_yet is refused.
std::string NotYet(const google::protobuf::FieldDescriptor& field, absl::string_view path);

// The word of the section's first key (`name`, `format`), which decides what others it takes.
std::string SectionKind(const google::protobuf::Message& section);

// Whether sections of this kind take the key (option only_for).
bool TakesKey(const google::protobuf::FieldDescriptor& field, absl::string_view kind);

// What the words of the field's options refuse; empty if nothing.
std::string WordProblem(const google::protobuf::FieldDescriptor& field, absl::string_view word);

// What the limits of the field's options refuse; empty if nothing.
std::string RangeProblem(const google::protobuf::FieldDescriptor& field, double value);

// Quoted, escaped and cut to what fits a line.
std::string ShowText(absl::string_view text);

}  // namespace sluice::job
