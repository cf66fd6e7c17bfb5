// HttpAnswer: the answer of an HttpServer to a request. HttpPages: the function that makes it.
#pragma once

#include <functional>
#include <string>

namespace sluice::net {

struct HttpAnswer {
  int status = 200;
  const char* type = "text/plain; charset=utf-8";
  std::string body{};
  std::string policy{};  // Content-Security-Policy; empty: a browser loads and runs nothing.
};

// An HttpServer calls it for /livez, /readyz and /startupz on another thread than for other paths.
using HttpPages = std::function<HttpAnswer(const std::string& path)>;

}  // namespace sluice::net
