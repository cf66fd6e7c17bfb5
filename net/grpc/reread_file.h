// SPDX-License-Identifier: Apache-2.0
// RereadFile: the content of a settings file that is read at every use, which is once per call or
// stream. While the file cannot be used, its last content stays valid. Thread-safe.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "base/mutex.h"

namespace sluice::net {

template <typename Content>
class RereadFile {
 public:
  // Reads and checks a file.
  using Reader = absl::StatusOr<Content> (*)(const std::string& path);

  // `content` is the file's content now.
  RereadFile(std::string path, Reader reader, Content content, Logger logger)
      : path_(std::move(path)),
        reader_(reader),
        logger_(std::move(logger)),
        content_(std::move(content)) {}

  Content Read() {
    absl::StatusOr<Content> content = reader_(path_);
    MutexLock lock(&mutex_);
    if (!content.ok() && !told_) {
      logger_.Warning(content.status().message(),
                      "; the previous content of the file stays in use");
    }
    told_ = !content.ok();
    if (content.ok()) content_ = *std::move(content);
    return content_;
  }

 private:
  const std::string path_;
  const Reader reader_;
  const Logger logger_;
  Mutex mutex_;
  Content content_ ABSL_GUARDED_BY(mutex_);
  // True after a log line has reported that the file cannot be used.
  bool told_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice::net
