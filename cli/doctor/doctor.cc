// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/doctor.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "app/exit_codes.h"
#include "cli/doctor/doctor_client.h"
#include "cli/doctor/doctor_service.h"
#include "cli/doctor/exchange_forecast.h"
#include "cli/doctor/findings.h"
#include "cli/doctor/server_port.h"

namespace sluice::cli {
namespace {

// Returns the exit code.
int Report(const absl::StatusOr<DoctorFindings>& findings, uint64_t parameters, Console* console) {
  if (!findings.ok()) {
    console->Say(
        FormatCheck({DoctorMark::kFailed, "reach", std::string(findings.status().message())}));
    return app::kExitFailed;
  }
  const std::vector<DoctorCheck> checks = ChecksOf(*findings);
  for (const DoctorCheck& check : checks) console->Say(FormatCheck(check));
  const std::vector<ForecastRow> forecast = ForecastExchange(*findings, parameters);
  if (!forecast.empty()) console->Say(absl::StrCat("\n", FormatForecast(forecast, parameters)));
  const bool failed = std::any_of(checks.begin(), checks.end(), [](const DoctorCheck& check) {
    return check.mark == DoctorMark::kFailed;
  });
  return failed ? app::kExitFailed : app::kExitFinished;
}

absl::StatusOr<DoctorFindings> Listen(const DoctorOptions& options, const DoctorMachine& here,
                                      const std::shared_ptr<const net::Transport>& transport,
                                      Console* console) {
  DoctorService service(here, transport, options.security.tls(), options.limits);
  const absl::StatusOr<std::unique_ptr<ServerPort>> port =
      ServerPort::Open(options.listen, *transport, &service);
  if (!port.ok()) return port.status();
  console->Say(absl::StrCat("listens on ", (*port)->address(),
                            "; run this on the other machine: sluice doctor --connect ",
                            (*port)->address()));
  return service.Wait(options.wait);
}

}  // namespace

int ExamineNetwork(const DoctorOptions& options) {
  Console console(options.console);
  absl::StatusOr<std::shared_ptr<const net::Transport>> transport =
      net::Transport::Open(options.security, Logger("doctor"));
  if (!transport.ok()) {
    console.Error(transport.status().message());
    return app::kExitUsage;
  }
  const std::string& address = options.connect.empty() ? options.listen : options.connect;
  const std::string warning = (*transport)->WarningFor(address);
  if (!warning.empty()) console.Warning(warning);
  const DoctorMachine here = {options.version, options.descriptors};
  const absl::StatusOr<DoctorFindings> findings =
      options.connect.empty()
          ? Listen(options, here, *transport, &console)
          : ExamineLink({options.connect, options.listen, here, options.limits}, **transport);
  if (absl::IsInvalidArgument(findings.status())) {
    console.Error(findings.status().message());
    return app::kExitUsage;
  }
  return Report(findings, options.parameters, &console);
}

}  // namespace sluice::cli
