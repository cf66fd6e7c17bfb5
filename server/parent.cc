// SPDX-License-Identifier: Apache-2.0
#include "server/parent.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "job/file/job_file.h"

namespace sluice::server {

absl::StatusOr<std::string> ReadJobText(int fd) {
  constexpr char kEnd[] = "\n...\n";
  std::string text;
  // The loop reads byte by byte, because it must not consume input after the job.
  for (char byte = 0; !absl::EndsWith(text, kEnd);) {
    const ssize_t got = ::read(fd, &byte, 1);
    if (got == 0) return text;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot read the job from standard input: ", std::strerror(errno)));
    }
    text += byte;
    if (text.size() > job::kMaxJobFileSize) {
      return absl::InvalidArgumentError(absl::StrCat("the job on standard input has more than ",
                                                     job::kMaxJobFileSize,
                                                     " bytes; a line `...` ends a job"));
    }
  }
  return text;
}

bool HasEnded(int fd) {
  for (;;) {
    pollfd input = {.fd = fd, .events = POLLIN, .revents = 0};
    if (::poll(&input, 1, 0) <= 0 || input.revents == 0) return false;
    char dropped[512];
    const ssize_t got = ::read(fd, dropped, sizeof(dropped));
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) return true;
  }
}

}  // namespace sluice::server
