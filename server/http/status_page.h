// The status page of a view: plain HTML that reloads itself; every text in it is escaped.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "server/http/http_view.h"

namespace sluice {

std::string StatusPage(const HttpView& view);

std::string EscapeHtml(absl::string_view text);

}  // namespace sluice
