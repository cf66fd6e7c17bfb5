// SPDX-License-Identifier: Apache-2.0
// HttpAnswer: the answer of an HttpServer to a request. HttpPages: the function that makes the
// answers.
#pragma once

#include <functional>
#include <string>

namespace sluice::net {

struct HttpAnswer {
  int status = 200;
  const char* type = "text/plain; charset=utf-8";
  std::string body{};
  // The Content-Security-Policy header. If it is empty, a browser loads and runs nothing.
  std::string policy{};
};

// Makes the answer for a path. An HttpServer calls the function for /livez, /readyz and /startupz
// on a different thread than for other paths.
using HttpPages = std::function<HttpAnswer(const std::string& path)>;

}  // namespace sluice::net
