// SPDX-License-Identifier: Apache-2.0
// The JSON Schema of job files, with which editors complete and check them.
#pragma once

#include <string>

namespace sluice::cli {

// Returns a schema of draft 2020-12, made from the schema that the loader uses. It refuses no file
// that the loader accepts. Of the rules that compare keys with one another, it contains only those
// about the kind of a section, about keys that a section needs, and about `epochs` and `steps`.
std::string JobSchemaJson();

}  // namespace sluice::cli
