// SPDX-License-Identifier: Apache-2.0
#include "cli/debug_bundle.h"

#include <grpcpp/grpcpp.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "app/stop_signals.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "cli/bundle/archive.h"
#include "cli/bundle/contents.h"
#include "cli/bundle/log_tails.h"
#include "cli/bundle/metrics_client.h"
#include "cli/launch/quantity.h"
#include "cli/launch/status_client.h"
#include "cli/why.h"
#include "job/file/job_file.h"
#include "net/grpc/transport.h"

namespace sluice::cli {
namespace {

constexpr char kFolder[] = "sluice-debug";  // In the archive.

void CollectStatus(const StatusOptions& options, BundleContents* contents) {
  if (!options.security.token_file.empty()) {
    contents->secrets().AddFile(ReadSecretFile(options.security.token_file));
  }
  const auto miss = [&](const absl::Status& why) {
    contents->Miss(absl::StrCat("status.json and why.txt (", options.coordinator, ")"),
                   std::string(why.message()));
  };
  absl::StatusOr<std::shared_ptr<const net::Transport>> transport =
      net::Transport::Open(options.security, Logger("status"));
  if (!transport.ok()) return miss(transport.status());
  StatusClient client(options.coordinator, *std::move(transport));
  client.Ask(kStatusTimeout);
  absl::StatusOr<v1::GetStatusReply> answer = absl::UnavailableError("no answer");
  client.WaitForStatus(kStatusTimeout + absl::Seconds(1), &answer);
  if (!answer.ok()) return miss(answer.status());
  if (const std::optional<std::string> json = StatusJson(*answer, /*line=*/false)) {
    contents->Add("status.json", absl::StrCat(*json, "\n"));
  }
  contents->Add("why.txt", absl::StrCat(ExplainJob(*answer), "\n"));
}

std::string VersionText(const std::string& version, absl::Time now) {
  utsname system{};
  ::uname(&system);
  rlimit descriptors{};
  ::getrlimit(RLIMIT_NOFILE, &descriptors);
  std::array<char, 64> library{};
  ::confstr(_CS_GNU_LIBC_VERSION, library.data(), library.size());
  const double page = static_cast<double>(::sysconf(_SC_PAGESIZE));
  return absl::StrCat(
      "sluice ", version, "\ntime ",
      absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", now, absl::UTCTimeZone()), "\nsystem ", system.sysname,
      " ", system.release, " ", system.machine, "\nlibraries ", library.data(), ", gRPC ",
      grpc::Version(), "\nfile descriptors ", DescriptorLimit(), " of at most ",
      descriptors.rlim_max == RLIM_INFINITY ? "unlimited" : absl::StrCat(descriptors.rlim_max),
      "\nprocessors ", ::sysconf(_SC_NPROCESSORS_ONLN), "\nmemory ",
      FormatBytes(page * static_cast<double>(::sysconf(_SC_PHYS_PAGES))), ", available ",
      FormatBytes(page * static_cast<double>(::sysconf(_SC_AVPHYS_PAGES))), "\n");
}

// Adds the job as Sluice understands it, so that comments and unknown keys stay out. Arguments of
// the user's own program may be secrets.
void CollectJob(const std::string& path, BundleContents* contents) {
  job::LoadJobOptions options{.path = path, .set = {}};
  absl::StatusOr<job::LaunchJob> job = job::LoadLaunchJob(options);
  if (job.ok() && !job->command.empty()) {
    options.set.push_back("command=[left-out-of-the-bundle]");
    job = job::LoadLaunchJob(options);
  }
  if (job.ok()) return contents->Add("job.yaml", absl::StrCat(job->text, "\n"));
  // The message may quote the file.
  contents->Miss(absl::StrCat("job.yaml (", path, ")"),
                 absl::IsInvalidArgument(job.status())
                     ? absl::StrCat("is not a job file: `sluice validate ", path, "` says why")
                     : std::string(job.status().message()));
}

std::string FileNameOf(absl::string_view address) {
  std::string name(address);
  for (char& c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-') c = '_';
  }
  return name;
}

void CollectMetrics(size_t number, const std::string& address, BundleContents* contents) {
  absl::StatusOr<std::string> text = FetchMetrics(address, {});
  if (text.ok()) {
    contents->Add(absl::StrCat("metrics/", number, "-", FileNameOf(address), ".txt"),
                  *std::move(text));
  } else {
    contents->Miss(absl::StrCat("metrics of ", address), std::string(text.status().message()));
  }
}

void Describe(const std::string& path, const BundleContents& contents, Console* console) {
  std::error_code ignored;
  const double size = static_cast<double>(std::filesystem::file_size(path, ignored));
  console->Say(absl::StrCat("wrote ", path, " (", FormatBytes(size), ") with these files:"));
  for (const BundleContents::Entry& file : contents.Files()) {
    console->Say(
        absl::StrCat("  ", file.name, "  ", FormatBytes(static_cast<double>(file.text.size()))));
  }
  if (!contents.missing().empty()) console->Say("not in it, as missing.txt says:");
  for (const std::string& line : contents.missing()) console->Say(absl::StrCat("  ", line));
  console->Say(
      "Tokens, keys and unknown keys of the job file are left out, but names of machines, paths "
      "and whatever scripts log are not. Look at it before you send it.");
}

class DebugBundle {
 public:
  DebugBundle(const DebugBundleOptions& options, app::StopSignals* signals)
      : options_(options), signals_(*signals), console_(options.status.console) {}

  int Make() {
    const absl::Time now = absl::Now();
    const std::string path =
        options_.output.empty()
            ? absl::FormatTime("sluice-debug-%Y%m%d-%H%M%S.tar.gz", now, absl::UTCTimeZone())
            : options_.output;
    absl::StatusOr<NewFile> out = NewFile::Create(path);
    if (!out.ok()) return Fail(out.status());
    contents_.Add("version.txt", VersionText(options_.version, now));
    Collect();
    if (Stopped()) return 128 + *signal_;
    absl::Status status = WriteArchive(
        contents_.Files(),
        {.name = kFolder,
         .temporary_folder = options_.temporary_folder,
         .environment = options_.environment},
        [this] { return Stopped(); }, &*out);
    if (signal_.has_value()) return 128 + *signal_;
    if (status.ok()) status = out->Keep();
    if (!status.ok()) return Fail(status);
    Describe(path, contents_, &console_);
    return 0;
  }

 private:
  int Fail(const absl::Status& why) {
    console_.Error(why.message());
    return 1;
  }

  bool Stopped() {
    if (!signal_.has_value()) signal_ = signals_.Take();
    return signal_.has_value();
  }

  // Each part takes a few seconds at most, and a signal ends the collection between two parts.
  void Collect() {
    CollectStatus(options_.status, &contents_);
    size_t files_left = kLogFilesMax;
    for (size_t i = 0; i < options_.log_folders.size() && !Stopped(); ++i) {
      CollectLogs(options_.log_folders[i], absl::StrCat("logs-", i + 1), &files_left, &contents_);
    }
    for (size_t i = 0; i < options_.metrics.size() && !Stopped(); ++i) {
      CollectMetrics(i + 1, options_.metrics[i], &contents_);
    }
    if (!options_.job_path.empty()) CollectJob(options_.job_path, &contents_);
  }

  const DebugBundleOptions& options_;
  app::StopSignals& signals_;
  Console console_;
  BundleContents contents_;
  std::optional<int> signal_;
};

}  // namespace

int MakeDebugBundle(const DebugBundleOptions& options) {
  // Must run before any thread starts.
  absl::StatusOr<app::StopSignals> signals = app::StopSignals::Catch();
  if (!signals.ok()) {
    Console(options.status.console).Error(signals.status().message());
    return 1;
  }
  return DebugBundle(options, &*signals).Make();
}

}  // namespace sluice::cli
