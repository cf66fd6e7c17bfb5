// SPDX-License-Identifier: Apache-2.0
// Trains a linear model in a job of two workers, through the installed library. `sluice run` starts
// each worker with the job, its rank and the servers in the environment.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "sluice/session.h"

namespace {

constexpr int kInputs = 20;
constexpr float kRate = 0.05f;

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

[[noreturn]] void Exit(const sluice::client::Status& status) {
  std::fprintf(stderr, "train: %s\n", status.message.c_str());
  std::exit(1);
}

}  // namespace

int main() {
  std::stringstream job;
  job << std::ifstream(Variable("SLUICE_JOB")).rdbuf();
  sluice::client::SessionOptions options;
  options.job = job.str();
  options.coordinator = Variable("SLUICE_COORDINATOR");
  options.token_file = Variable("SLUICE_TOKEN_FILE");
  options.rank = static_cast<uint32_t>(std::atoi(Variable("RANK").c_str()));
  auto created = sluice::client::Session::Create(options);
  if (!created.ok()) Exit(created.status());
  sluice::client::Session& session = **created;

  std::vector<float> weights(kInputs), gradient(kInputs);
  const std::string same(32, 0);  // All workers start with zeros, and so with the same hash.
  const auto joined = session.Join({{.name = "weights", .shape = {kInputs}}}, same);
  if (!joined.ok()) Exit(joined.status());
  std::mt19937 random(options.rank);  // Each worker has its own samples.
  std::normal_distribution<float> normal;
  float error = 0;
  for (int step = 1; step <= 200; ++step) {
    float inputs[kInputs];
    error = 0;
    for (int i = 0; i < kInputs; ++i) {
      inputs[i] = normal(random);
      error += (weights[i] - static_cast<float>(i)) *
               inputs[i];  // The true weights are 0, 1, 2 and so on.
    }
    for (int i = 0; i < kInputs; ++i) gradient[i] = error * inputs[i];
    const auto sent = session.Submit(0, {.data = gradient.data(), .size = gradient.size()});
    if (!sent.ok()) Exit(sent);
    for (bool open = true; open;) {
      const auto result = session.WaitFor(1);
      if (!result.ok()) Exit(result.status());
      open = !result->has_value();
    }
    const auto applied = session.Apply(0, std::span<float>(gradient));
    if (!applied.ok()) Exit(applied);
    for (int i = 0; i < kInputs; ++i) weights[i] -= kRate * gradient[i];
  }
  const auto figures = session.figures();
  const auto left = session.Leave();
  if (!left.ok()) Exit(left);
  float distance = 0;
  for (int i = 0; i < kInputs; ++i) distance += std::abs(weights[i] - static_cast<float>(i));
  std::ofstream(Variable("OUT") + Variable("RANK"))
      << (distance < 1 ? "trained" : "not trained: " + std::to_string(distance))
      << (figures.bytes_up > 0 ? " with servers" : " alone");
}
