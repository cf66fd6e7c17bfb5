// SPDX-License-Identifier: Apache-2.0
// own_loop: a plain LibTorch training loop. The lines that end in `// +` make it distributed.
//
// On one machine, with the programs of build/release/bin in PATH, in three terminals (or with & in
// one):
//
//   sluice-server --job examples/own-loop.yaml --shard 0
//   own_loop examples/own-loop.yaml 127.0.0.1:7070 0
//   own_loop examples/own-loop.yaml 127.0.0.1:7070 1
//
// A model with BatchNorm needs nothing more: its running statistics are averaged too, at intervals
// (docs/checkpoints.md, Buffers). At the end, both workers print the same hash of the parameters.
// examples/CMakeLists.txt shows which libraries to link.
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "job/file/job_file.h"           // +
#include "worker/rpc/remote_client.h"    // +
#include "worker/torch/data_parallel.h"  // +

namespace {

// Sluice does not throw. Its calls return a Status that states the problem and the remedy.
void OrExit(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "own_loop: %s\n", std::string(status.message()).c_str());
  std::exit(1);
}

template <typename T>
T OrExit(absl::StatusOr<T> result) {
  OrExit(result.status());
  return *std::move(result);
}

}  // namespace

int main(int argc, char** argv) {
  uint32_t rank = 0;
  if (argc != 4 || !absl::SimpleAtoi(argv[3], &rank)) {
    std::fprintf(stderr, "usage: own_loop JOB.yaml HOST:PORT RANK\n");
    return 2;
  }
  const sluice::job::JobSpec job = OrExit(sluice::job::LoadJob({argv[1], {}, false}));  // +

  at::set_num_threads(1);  // Workers on one machine share its cores.
  torch::manual_seed(job.seed);
  torch::nn::Sequential model(torch::nn::Linear(8, 64), torch::nn::Tanh(),
                              torch::nn::Linear(64, 64), torch::nn::Tanh(),
                              torch::nn::Linear(64, 1));
  torch::optim::SGD optimizer(
      model->parameters(),
      torch::optim::SGDOptions(job.optimizer.lr).momentum(job.optimizer.momentum));

  const auto client =
      sluice::worker::MakeRemoteClient(sluice::worker::OptionsFromJob(job, argv[2], rank));  // +
  const auto parallel = OrExit(sluice::worker::DataParallel::Join(*model, client.get()));    // +
  torch::manual_seed(1000 + rank);  // Each worker draws its own data.                           +

  for (uint64_t step = 1; step <= job.training.steps; ++step) {
    const at::Tensor inputs = torch::randn({job.training.batch_size_per_worker, 8});
    const at::Tensor targets = inputs.sin().sum(/*dim=*/1, /*keepdim=*/true);
    optimizer.zero_grad();
    const at::Tensor loss = torch::mse_loss(model->forward(inputs), targets);
    loss.backward();                  // Encodes and sends gradients while it runs.
    OrExit(parallel->Synchronize());  // Now .grad holds the mean over all workers.               +
    optimizer.step();
    if (step % 100 == 0) {
      std::printf("step %llu: loss %.4f\n", static_cast<unsigned long long>(step),
                  loss.item<double>());
    }
  }

  std::printf("parameters %s\n", absl::BytesToHexString(parallel->ParametersSha256()).c_str());
  sluice::worker::Session* const session = parallel->session();                 // +
  session->ReportParameters(job.training.steps, parallel->ParametersSha256());  // +
  OrExit(session->Leave());                                                     // +
}
