// SPDX-License-Identifier: Apache-2.0
#include "net/http/http_request.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "net/http/content_policy.h"
#include "net/http/host_names.h"

namespace sluice::net {
namespace {

HttpRequest Taken(const std::string& text) {
  const auto parsed = ParseRequest(text);
  const auto* const request = std::get_if<HttpRequest>(&parsed);
  EXPECT_NE(request, nullptr) << text << std::get<HttpAnswer>(parsed).body;
  return request == nullptr ? HttpRequest() : *request;
}

// Returns the HTTP status of the refusal, or 0 if the request is accepted.
int Refused(const std::string& text) {
  const auto parsed = ParseRequest(text);
  const auto* const answer = std::get_if<HttpAnswer>(&parsed);
  return answer == nullptr ? 0 : answer->status;
}

TEST(HttpRequest, EndsWithAnEmptyLine) {
  const std::string text = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
  for (size_t seen = 0; seen < text.size(); ++seen) {
    EXPECT_FALSE(RequestSize(text.substr(0, text.size() - 1), seen).has_value()) << seen;
    EXPECT_EQ(RequestSize(text + "more", seen), text.size()) << seen;
  }
}

TEST(HttpRequest, IsAPathAndAHost) {
  const HttpRequest get = Taken("GET /metrics?x=/y HTTP/1.1\r\nAccept: *\r\nhOsT:  a:1 \r\n\r\n");
  EXPECT_FALSE(get.head);
  EXPECT_EQ(get.path, "/metrics");
  EXPECT_EQ(get.host, "a:1");
  EXPECT_TRUE(Taken("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").head);
  EXPECT_FALSE(Taken("GET / HTTP/1.0\r\n\r\n").host.has_value());
  EXPECT_EQ(Taken("GET /%2e%2e/ HTTP/1.0\r\nContent-Length: 0\r\n\r\n").path, "/%2e%2e/");
}

TEST(HttpRequest, AMalformedOneIsRefused) {
  const auto with_line = [](const std::string& line) {
    return Refused(absl::StrCat(line, "\r\nHost: a\r\n\r\n"));
  };
  for (const std::string line :
       {"", "GET", "GET /", "GET  HTTP/1.1", "GET * HTTP/1.1", "GET a HTTP/1.1", " / HTTP/1.1",
        "GET / x HTTP/1.1", "G\tT / HTTP/1.1", "GET /\x01 HTTP/1.1", "GET http://a/ HTTP/1.1"}) {
    EXPECT_EQ(with_line(line), 400) << line;
  }
  EXPECT_EQ(with_line(std::string("GET /\0 HTTP/1.1", 15)), 400);
  EXPECT_EQ(with_line("GET / HTTP/9.9"), 505);
  EXPECT_EQ(with_line("GET / HTTP/1.1 "), 400);
  for (const char* method : {"POST", "DELETE", "CONNECT", "get"}) {
    EXPECT_EQ(with_line(absl::StrCat(method, " / HTTP/1.1")), 405) << method;
  }
  const auto with_header = [](const std::string& header) {
    return Refused(absl::StrCat("GET / HTTP/1.1\r\nHost: a\r\n", header, "\r\n\r\n"));
  };
  for (const std::string header :
       {"Host: b", "x", ": y", "a b: c", " folded", "a : b", "a: \x1b", "a: b\nc: d"}) {
    EXPECT_EQ(with_header(header), 400) << header;
  }
  EXPECT_EQ(with_header("Content-Length: 5"), 413);
  EXPECT_EQ(with_header("transfer-encoding: chunked"), 413);
  EXPECT_EQ(Refused("GET / HTTP/1.1\r\nX: a\r\n\r\n"), 400) << "the Host header is missing";
}

TEST(HostNames, AHostIsANameWithoutItsPort) {
  EXPECT_EQ(HostName("Alpha:7071"), "alpha");
  EXPECT_EQ(HostName("alpha."), "alpha");
  EXPECT_EQ(HostName("[::1]:7071"), "::1");
  EXPECT_EQ(HostName("[::1"), "::1");
  EXPECT_EQ(HostName(""), "");
  EXPECT_EQ(HostName(":80"), "");
}

TEST(HostNames, ANameOfAnotherSiteIsNone) {
  const HostNames names({"Alpha", ".example.org", "", "::"});
  for (const char* name : {"127.0.0.1", "10.1.2.3", "::1", "fe80::1", "localhost", "alpha",
                           "a.example.org", "a.b.example.org"}) {
    EXPECT_TRUE(names.Allow(name)) << name;
  }
  for (const char* name :
       {"", "evil.example", "alpha.evil.example", "notexample.org", "example.org",
        "127.0.0.1.evil.example", "localhost.evil.example", "127.0.0.1@evil.example"}) {
    EXPECT_FALSE(names.Allow(name)) << name;
  }
}

TEST(ContentPolicy, NamesScriptsAndStylesByTheirHashes) {
  // Computed with: printf '' | openssl dgst -sha256 -binary | base64
  const std::string hash_of_nothing = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='";
  const std::string policy = PolicyOf("<style></style><script></script><script>1</script>");
  EXPECT_NE(policy.find("; style-src " + hash_of_nothing + ";"), std::string::npos) << policy;
  EXPECT_NE(policy.find("; script-src " + hash_of_nothing + " 'sha256-"), std::string::npos);
  EXPECT_EQ(policy.find("unsafe"), std::string::npos);
  EXPECT_NE(PolicyOf("none").find("script-src 'none'; style-src 'none';"), std::string::npos);
}

}  // namespace
}  // namespace sluice::net
