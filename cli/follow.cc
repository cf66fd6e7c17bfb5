// SPDX-License-Identifier: Apache-2.0
#include "cli/follow.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "app/exit_codes.h"
#include "app/signal_watch.h"
#include "base/clock.h"
#include "base/log.h"
#include "cli/follow_output.h"
#include "follow/rpc/follower.h"
#include "follow/sha256.h"
#include "net/grpc/transport.h"
#include "protocol/checkpoint/durable_file.h"

namespace sluice::cli {
namespace {

constexpr char kModelName[] = "/model.safetensors";
constexpr absl::Duration kGrace = absl::Seconds(10);

// Runs a shell command and waits for it. Fails if it cannot be started or does not exit with 0.
absl::Status RunShell(const std::string& command, const std::vector<std::string>& variables) {
  std::vector<std::string> environment = variables;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  std::vector<char*> pointers;
  pointers.reserve(environment.size() + 1);
  for (std::string& entry : environment) pointers.push_back(entry.data());
  pointers.push_back(nullptr);
  std::string shell = "/bin/sh", flag = "-c", text = command;
  std::array<char*, 4> arguments = {shell.data(), flag.data(), text.data(), nullptr};
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);  // This process blocks signals, which the command must not inherit.
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t pid = 0;
  const int error =
      ::posix_spawn(&pid, "/bin/sh", nullptr, &attributes, arguments.data(), pointers.data());
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat("/bin/sh does not start: ", std::strerror(error)));
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::UnknownError(WIFEXITED(status)
                                ? absl::StrCat("it exited with ", WEXITSTATUS(status))
                                : absl::StrCat("signal ", WTERMSIG(status), " ended it"));
}

// Writes the versions of a follower.
class Writer {
 public:
  Writer(const FollowCommand& command, const Logger& logger)
      : command_(command),
        logger_(logger),
        model_path_(absl::StrCat(command.output, kModelName)),
        patches_(command.patches, command.anchor_every) {}

  absl::Status Open() {
    if (absl::Status made = protocol::MakeFolder(command_.output); !made.ok()) return made;
    protocol::RemoveUnfinished(model_path_);
    return command_.patches.empty() ? absl::OkStatus() : patches_.Open();
  }

  absl::Status Write(const follow::TensorLayout& layout, const follow::Follower::Version& version) {
    const ModelVersion model{.version = version.version,
                             .type = command_.type,
                             .layout = &layout,
                             .weights = version.weights};
    if (absl::Status written = WriteModel(model_path_, model); !written.ok()) return written;
    std::string patch;
    if (!command_.patches.empty()) {
      if (absl::Status added = patches_.Add(model); !added.ok()) return added;
      patch = absl::StrCat(command_.patches, "/", patches_.newest());
    }
    logger_.Info("version ", follow::ToString(version.version), ": ", version.applied.bytes,
                 " bytes received for ", version.weights.size(), " bytes of weights, ",
                 version.applied.anchors, version.applied.anchors == 1 ? " anchor" : " anchors");
    if (command_.exec.empty()) return absl::OkStatus();
    const absl::Status ran =
        RunShell(command_.exec, {absl::StrCat("SLUICE_VERSION=", version.version.step),
                                 absl::StrCat("SLUICE_MODEL=", model_path_),
                                 absl::StrCat("SLUICE_PATCH=", patch)});
    if (!ran.ok()) {
      logger_.Warning("--exec failed after version ", follow::ToString(version.version), ": ",
                      ran.message());
    }
    return absl::OkStatus();
  }

 private:
  const FollowCommand& command_;
  const Logger& logger_;
  const std::string model_path_;
  PatchFolder patches_;
};

int Fail(const absl::Status& why, const Logger& logger) {
  logger.Error(why.message());
  return absl::IsUnavailable(why) ? app::kExitLostPeers : app::kExitFailed;
}

// Writes versions until the job ends.
absl::Status WriteVersions(const FollowCommand& command, const Logger& logger,
                           follow::Follower* follower) {
  Writer writer(command, logger);
  if (absl::Status opened = writer.Open(); !opened.ok()) return opened;
  if (absl::Status connected = follower->Connect(); !connected.ok()) return connected;
  logger.Info("follows job ", follower->job().job, " with ", NameOf(command.type), ", ",
              follower->job().shards(), follower->job().shards() == 1 ? " shard" : " shards");
  for (;;) {
    const absl::StatusOr<std::optional<follow::Follower::Version>> version = follower->Next();
    if (!version.ok()) return version.status();
    if (!version->has_value()) {
      logger.Info("the job has finished");
      return absl::OkStatus();
    }
    const absl::Status written = writer.Write(follower->model(), **version);
    if (!written.ok() || command.once) return written;
  }
}

}  // namespace

int Follow(const FollowCommand& command) {
  app::BlockStopSignals();
  const Logger logger("follow", command.log.OptionsFor(""));
  const absl::StatusOr<std::shared_ptr<const net::Transport>> transport =
      net::Transport::Open(command.security, logger);
  if (!transport.ok()) {
    logger.Error(transport.status().message());
    return app::kExitUsage;
  }
  if (const std::string warning = (*transport)->WarningFor(command.address); !warning.empty()) {
    logger.Warning(warning);
  }
  const SteadyClock clock;
  follow::Follower follower({.address = command.address,
                             .type = command.type,
                             .transport = *transport,
                             .patience = command.patience},
                            &clock, logger);
  const app::SignalWatch watch([&](int) { follower.Cancel(); }, kGrace);
  const absl::Status status = WriteVersions(command, logger, &follower);
  if (watch.received() != 0) return app::kExitSignal + watch.received();
  return status.ok() ? app::kExitFinished : Fail(status, logger);
}

}  // namespace sluice::cli
