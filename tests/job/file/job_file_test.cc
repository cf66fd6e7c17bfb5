// SPDX-License-Identifier: Apache-2.0
#include "job/file/job_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "sluice/v1/job.pb.h"
#include "tests/job/file/job_text_samples.h"

namespace sluice::job {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

JobSpec MustLoad(const absl::StatusOr<JobSpec>& job) {
  EXPECT_TRUE(job.ok()) << job.status();
  return job.value_or(JobSpec());
}

TEST(JobFile, FillsInDefaults) {
  const JobSpec job = MustLoad(Load(kLeastJob));
  EXPECT_EQ(job.exchange.mode, job::Mode::kSync);
  EXPECT_EQ(job.workers, 1u);
  EXPECT_EQ(job.shards, 1u);
  EXPECT_THAT(job.model.hidden, ElementsAre(128));
  EXPECT_EQ(job.training.epochs, 0u);
  EXPECT_EQ(job.training.steps, 5u);
  EXPECT_EQ(job.training.gradient_accumulation_steps, 1u);
  EXPECT_EQ(job.optimizer.name, "sgd");
  EXPECT_EQ(job.lr_schedule.name, "constant");
  EXPECT_EQ(job.training.device, "auto");
  EXPECT_EQ(job.training.gpus_per_worker, 1u);
  EXPECT_EQ(job.training.encode_location, job::EncodeLocation::kDevice);
  EXPECT_EQ(job.exchange.compression.uplink, compress::CodecSpec());
  EXPECT_EQ(job.exchange.membership, job::Membership::kFixed);
  EXPECT_EQ(job.output, "");
  EXPECT_FALSE(job.checkpoint.enabled());
  EXPECT_TRUE(job.metrics_enabled);
  EXPECT_NE(job.hash, 0u);
}

TEST(JobFile, ReadsRelays) {
  EXPECT_FALSE(MustLoad(Load(kLeastJob)).relays.enabled());
  const std::vector<std::string> set = {"workers=3", "relays={workers: [2, 1], uplink: int8}"};
  const JobSpec job = MustLoad(Load(kLeastJob, set));
  EXPECT_THAT(job.relays.workers, ElementsAre(2, 1));
  EXPECT_EQ(ToString(job.relays.uplink), "int8");
  EXPECT_EQ(ToString(MustLoad(Load(kLeastJob, set, true)).relays.uplink), "none");
  EXPECT_NE(job.hash, MustLoad(Load(kLeastJob, {"workers=3"})).hash);
}

TEST(JobFile, AQuorumHasNoReplay) {
  const JobSpec job =
      MustLoad(LoadLeastAnd("workers: 4\nquorum: 3\ngrace: 20ms\ncheckpoint: {dir: a}\n"));
  EXPECT_EQ(job.exchange.quorum, 3u);
  EXPECT_EQ(job.exchange.straggler_timeout, absl::Milliseconds(20));
  EXPECT_EQ(job.checkpoint.replay_limit, 0u);
  EXPECT_THAT(WhyNoReplay(job), HasSubstr("quorum"));
  EXPECT_EQ(WhyNoReplay(MustLoad(Load(kLeastJob))), "");
  // A quorum must be refused with codecs whose receivers keep a memory for each worker.
  for (const char* uplink : {"lsh", "int8/ef21", "qsgd:4/diana"}) {
    const std::string text =
        absl::StrCat("workers: 4\nquorum: 3\ncompression: {uplink: \"", uplink, "\"}\n");
    EXPECT_THAT(std::string(LoadLeastAnd(text).status().message()),
                HasSubstr("may have no contribution from a worker"))
        << uplink;
  }
  EXPECT_TRUE(LoadLeastAnd("workers: 4\nquorum: 3\ncompression: {uplink: intsum:4}\n").ok());
  EXPECT_THAT(std::string(LoadLeastAnd("workers: 4\nquorum: 5\n").status().message()),
              HasSubstr("is 5 of 4 workers"));
}

TEST(JobFile, DefaultsAreThoseOfTheStructs) {
  const JobSpec job = MustLoad(Load(kLeastJob));
  const ServerSpec server;
  EXPECT_EQ(job.server.lease_timeout, server.lease_timeout);
  EXPECT_EQ(job.server.heartbeat_interval, server.heartbeat_interval);
  EXPECT_EQ(job.server.join_timeout, server.join_timeout);
  EXPECT_EQ(job.server.connect_timeout, server.connect_timeout);
  EXPECT_EQ(job.server.window_bytes, server.window_bytes);
  EXPECT_EQ(job.server.max_memory, server.max_memory);
  EXPECT_EQ(job.server.port, server.port);
  EXPECT_EQ(job.server.http_port, server.http_port);
  EXPECT_EQ(job.server.rejoin_timeout, server.rejoin_timeout);
  EXPECT_EQ(job.server.stall_timeout, server.stall_timeout);
  const JobSpec with_checkpoints = MustLoad(LoadLeastAnd("checkpoint: {dir: a}\n"));
  const protocol::CheckpointSpec checkpoint;
  EXPECT_EQ(with_checkpoints.checkpoint.dir, "a");
  EXPECT_EQ(with_checkpoints.checkpoint.interval, checkpoint.interval);
  EXPECT_EQ(with_checkpoints.checkpoint.keep, checkpoint.keep);
  EXPECT_EQ(with_checkpoints.checkpoint.store, checkpoint.store);
  EXPECT_EQ(job.exchange.buffer_sync_interval, JobSpec().exchange.buffer_sync_interval);
  const protocol::CompressionSpec compression;
  EXPECT_EQ(job.exchange.compression.min_elements, compression.min_elements);
  EXPECT_EQ(job.exchange.compression.layout.chunk_elements, compression.layout.chunk_elements);
  EXPECT_EQ(job.exchange.compression.layout.bundle_elements,
            1u << 18);  // The minimal job has codec none.
  const JobSpec adam = MustLoad(Load(kLeastJob, {"optimizer={name: adam, lr: 0.1}"}));
  const OptimizerSpec optimizer;
  EXPECT_EQ(adam.optimizer.beta1, optimizer.beta1);
  EXPECT_EQ(adam.optimizer.beta2, optimizer.beta2);
  EXPECT_EQ(adam.optimizer.eps, optimizer.eps);
}

TEST(JobFile, ModelsTakeTheirKeys) {
  const ModelSpec usual;
  const JobSpec text =
      MustLoad(Load(kLeastJob, {"model={name: char_gpt}", "data={format: synthetic_text}"}));
  EXPECT_EQ(text.model.layers, usual.layers);
  EXPECT_EQ(text.model.heads, usual.heads);
  EXPECT_EQ(text.model.width, usual.width);
  EXPECT_EQ(text.model.dropout, usual.dropout);
  const JobSpec larger = MustLoad(
      Load(kLeastJob, {"model={name: char_gpt, layers: 6, heads: 8, width: 64, dropout: 0.1}",
                       "data={format: synthetic_text}"}));
  EXPECT_EQ(larger.model.layers, 6u);
  EXPECT_EQ(larger.model.heads, 8u);
  EXPECT_EQ(larger.model.width, 64u);
  EXPECT_EQ(larger.model.dropout, 0.1);
  EXPECT_EQ(MustLoad(Load(kLeastJob, {"model={name: resnet18}"})).model.stem, "auto");
  EXPECT_EQ(MustLoad(Load(kLeastJob, {"model={name: resnet50, stem: cifar}"})).model.stem, "cifar");
  EXPECT_TRUE(
      MustLoad(Load(kLeastJob, {"model={name: vgg16, batch_norm: true}"})).model.batch_norm);
}

TEST(JobFile, ReadsEverySection) {
  const JobSpec job = MustLoad(Load(kFullJob));
  EXPECT_EQ(job.name, "full-1.0");
  EXPECT_EQ(job.workers, 4u);
  EXPECT_EQ(job.shards, 2u);
  EXPECT_THAT(job.model.hidden, ElementsAre(64, 32));
  EXPECT_EQ(job.data.path, "/data/a b");
  EXPECT_EQ(job.data.train_images, "x.gz");
  EXPECT_EQ(job.data.test_labels, "t10k-labels-idx1-ubyte.gz");
  EXPECT_EQ(job.data.limit, 1000u);
  EXPECT_EQ(job.training.epochs, 3u);
  EXPECT_TRUE(job.optimizer.nesterov);
  EXPECT_EQ(job.optimizer.weight_decay, 1e-4);
  EXPECT_EQ(job.lr_schedule.warmup_steps, 10u);
  EXPECT_EQ(job.seed, 7u);
  EXPECT_EQ(job.exchange.compression.seed, 7u);
  EXPECT_EQ(ToString(job.exchange.compression.uplink), "topk:1%+int4");
  EXPECT_EQ(ToString(job.exchange.compression.downlink), "topk:3%+int4");
  ASSERT_EQ(job.exchange.compression.overrides.size(), 2u);
  EXPECT_FALSE(job.exchange.compression.overrides[0].downlink.has_value());
  EXPECT_EQ(ToString(*job.exchange.compression.overrides[1].downlink), "int8/noef");
  EXPECT_EQ(job.exchange.compression.layout.chunk_elements, 16384u);
  EXPECT_TRUE(job.checkpoint.enabled());
  EXPECT_EQ(job.checkpoint.dir, "/ckpt/a b");
  EXPECT_EQ(job.checkpoint.interval, 50u);
  EXPECT_EQ(job.checkpoint.keep, 3u);
  EXPECT_EQ(job.exchange.buffer_sync_interval, 40u);
  EXPECT_EQ(job.output, "results");
  EXPECT_EQ(job.server.lease_timeout, absl::Seconds(5));
  EXPECT_EQ(job.server.heartbeat_interval, absl::Milliseconds(500));
  EXPECT_EQ(job.server.join_timeout, absl::Minutes(2));
  EXPECT_EQ(job.server.connect_timeout, absl::Milliseconds(250));
  EXPECT_EQ(job.server.window_bytes, 1000000u);
  EXPECT_EQ(job.server.http_port, 0u);
  EXPECT_EQ(job.server.rejoin_timeout, absl::Hours(1));
  EXPECT_FALSE(job.metrics_enabled);
}

TEST(JobFile, ReadsDataOfEveryFormat) {
  const auto data = [](const std::string& section) {
    // The custom model takes both images and text.
    return MustLoad(Load(kLeastJob, {"model={name: custom}", absl::StrCat("data=", section)})).data;
  };
  const DataSpec folder = data(
      "{format: image_folder, path: a, image_size: 64, random_resized_crop: 0.08, flip: true, "
      "mean: [0.5, 0, 1e-3], std: [1, 2, 3]}");
  EXPECT_EQ(folder.train_folder, "train");
  EXPECT_EQ(folder.test_folder, "val");
  EXPECT_EQ(folder.image_size, 64u);
  EXPECT_EQ(folder.random_resized_crop, 0.08);
  EXPECT_TRUE(folder.flip);
  EXPECT_THAT(folder.mean, ElementsAre(0.5, 0, 1e-3));
  EXPECT_THAT(folder.std, ElementsAre(1, 2, 3));
  EXPECT_EQ(data("{format: cifar100, path: a, labels: coarse}").labels, "coarse");
  EXPECT_EQ(data("{format: cifar10, path: a, crop_padding: 4}").crop_padding, 4u);
  const DataSpec text = data("{format: text, path: a.txt, level: byte, validation_fraction: 0}");
  EXPECT_EQ(text.level, "byte");
  EXPECT_EQ(text.context, DataSpec().context);
  EXPECT_FALSE(text.has_test_data());
  EXPECT_TRUE(data("{format: synthetic_text}").has_test_data());
  EXPECT_FALSE(data("{format: custom}").has_test_data());
}

TEST(JobFile, DataKeysBelongToTheirFormats) {
  const auto problem = [](const std::string& section) {
    return Problem(Load(kLeastJob, {absl::StrCat("data=", section)}));
  };
  EXPECT_THAT(problem("{format: synthetic, context: 3}"), HasSubstr("synthetic takes no context"));
  EXPECT_THAT(problem("{format: text, path: a, flip: true}"), HasSubstr("text takes no flip"));
  EXPECT_THAT(problem("{format: cifar10}"), HasSubstr("data.path: missing"));
  EXPECT_THAT(problem("{format: cifar, path: a}"), HasSubstr("did you mean 'cifar10'?"));
  EXPECT_THAT(problem("{format: text, path: a, level: word}"), HasSubstr("unknown level 'word'"));
  EXPECT_THAT(problem("{format: synthetic, mean: 0.5}"), HasSubstr("must be a list"));
  EXPECT_THAT(problem("{format: synthetic, std: [0.5, 0]}"),
              HasSubstr("data.std[1]: must be above 0"));
  EXPECT_THAT(problem("{format: image_folder, path: a, image_size: 4}"), HasSubstr("8 to 1024"));
}

TEST(JobFile, TextsAreUtf8BecauseMessagesCarryThem) {
  EXPECT_EQ(Problem(LoadLeastAnd("output: /data/\xc3\xa9t\xc3\xa9\n")), "");
  const std::string problem = Problem(LoadLeastAnd("output: /data/\xe9t\xe9\n"));
  EXPECT_THAT(problem, AllOf(HasSubstr("job.yaml:7:9: output: must be text in UTF-8, found "),
                             Not(HasSubstr("\xe9"))));
}

TEST(JobFile, TakesAnchors) {
  const JobSpec job = MustLoad(LoadLeastAnd("compression: {uplink: &c topk:1%, downlink: *c}\n"));
  EXPECT_EQ(ToString(job.exchange.compression.downlink), "topk:1%");
}

TEST(JobFile, ResolvedTextLoadsToTheSameJob) {
  const std::string folder = absl::StrCat(
      "name: a\nmodel: {name: mlp}\nbatch_size_per_worker: 1\nsteps: 1\noptimizer: {lr: 1}\n",
      "data: {format: image_folder, path: a, mean: [0.1, 1e-7, -3], std: [1, 2, 3]}\n");
  for (const absl::string_view text : {kLeastJob, kFullJob, absl::string_view(folder)}) {
    for (const bool dense : {false, true}) {
      const absl::StatusOr<std::string> resolved =
          ResolvedJobTextFromText(text, "job.yaml", {"", {}, dense});
      ASSERT_TRUE(resolved.ok()) << resolved.status();
      EXPECT_EQ(MustLoad(Load(*resolved)).hash, MustLoad(Load(text, {}, dense)).hash);
      EXPECT_EQ(*ResolvedJobTextFromText(*resolved, "again", {}), *resolved);
      EXPECT_EQ(MustLoad(Load(*resolved)).output, MustLoad(Load(text, {}, dense)).output);
    }
  }
}

TEST(JobFile, HashCoversWhatProcessesMustAgreeOn) {
  std::set<uint64_t> hashes = {MustLoad(Load(kFullJob)).hash};
  for (const char* set : {"name=other",
                          "workers=5",
                          "shards=3",
                          "model.hidden=[64]",
                          "seed=8",
                          "optimizer.lr=0.4",
                          "data.limit=999",
                          "compression.uplink=topk:2%+int4",
                          "compression.overrides=[]",
                          "compression.chunk_bytes=32KiB",
                          "server.lease_timeout=6s",
                          "epochs=4",
                          "steps=4",
                          "checkpoint.interval=60",
                          "checkpoint.keep=1",
                          "buffer_sync_interval=7",
                          "server.rejoin_timeout=5m",
                          "precision=bf16",
                          "label_smoothing=0.1",
                          "ema_decay=0.9"}) {
    EXPECT_TRUE(hashes.insert(MustLoad(Load(kFullJob, {set})).hash).second) << set;
  }
  for (const char* set :
       {"output=elsewhere", "server.port=1", "server.http_port=2", "data.path=/mnt",
        "data.prefetch=0", "checkpoint.dir=/mnt", "baseline.optimizer.lr=3", "device=auto",
        "gpus_per_worker=2", "encode_location=host", "log_interval=3"}) {
    EXPECT_FALSE(hashes.insert(MustLoad(Load(kFullJob, {set})).hash).second) << set;
  }
  EXPECT_TRUE(hashes.insert(MustLoad(Load(kFullJob, {}, true)).hash).second);
}

TEST(JobFile, ACommandReplacesModelAndData) {
  const std::string text = "name: mine\ncommand: [python, train.py, --lr, 0.1]\n";
  const auto load = [](const std::string& job, const std::vector<std::string>& set) {
    return *LoadLaunchJobFromText(job, "job.yaml", {.path = {}, .set = set});
  };
  const LaunchJob job = load(text, {});
  EXPECT_THAT(job.command, ElementsAre("python", "train.py", "--lr", "0.1"));
  EXPECT_EQ(job.spec.model.name, "custom");
  EXPECT_EQ(job.spec.data.format, job::DataFormat::kCustom);
  // Machines may have the program in different folders.
  EXPECT_EQ(load(text, {"command=[/opt/python, train.py]"}).spec.hash, job.spec.hash);
  // The launcher passes a command on as JSON.
  const LaunchJob json = load(text, {R"(command=["sh", "-c", "echo \"a: é\"\necho $1", ""])"});
  EXPECT_THAT(json.command, ElementsAre("sh", "-c", "echo \"a: é\"\necho $1", ""));
  EXPECT_EQ(load(json.text, {}).command, json.command);
}

TEST(JobFileSet, ReplacesScalarsListsAndSections) {
  const JobSpec job =
      MustLoad(Load(kFullJob, {"optimizer={name: rmsprop, lr: 1e-3}", "model.hidden=[5]", "seed=1",
                               "seed=2", "compression.uplink=int8"}));
  EXPECT_EQ(job.optimizer.name, "rmsprop");
  EXPECT_EQ(job.optimizer.momentum, 0);
  EXPECT_THAT(job.model.hidden, ElementsAre(5));
  EXPECT_EQ(job.seed, 2u);
  EXPECT_EQ(ToString(job.exchange.compression.uplink), "int8");
}

TEST(JobFileSet, TheDelayedMomentumIsAWordOrANumber) {
  EXPECT_EQ(MustLoad(Load(kFullJob)).optimizer.delayed_momentum, std::nullopt);
  const auto with = [](const char* value) {
    return MustLoad(Load(kFullJob, {absl::StrCat("optimizer.delayed_momentum=", value)})).optimizer;
  };
  EXPECT_EQ(with("auto").delayed_momentum, std::nullopt);
  EXPECT_EQ(with("0.25").delayed_momentum, 0.25);
  EXPECT_EQ(with("0").delayed_momentum, 0.0);
}

TEST(JobFileSet, StepsAndEpochsStandForEachOther) {
  const JobSpec job = MustLoad(Load(kFullJob, {"steps=9"}));
  EXPECT_EQ(job.training.steps, 9u);
  EXPECT_EQ(job.training.epochs, 0u);
  EXPECT_EQ(MustLoad(Load(kLeastJob, {"epochs=2"})).training.steps, 0u);
}

TEST(JobFileSet, NamesTheArgument) {
  EXPECT_THAT(Problem(Load(kLeastJob, {"optimizer.lrr=1"})),
              AllOf(StartsWith("--set optimizer.lrr=1: unknown key 'lrr'"),
                    HasSubstr("did you mean 'lr'")));
  EXPECT_THAT(Problem(Load(kLeastJob, {"seed"})), HasSubstr("must be key=value"));
  EXPECT_THAT(Problem(Load(kLeastJob, {"seed="})), HasSubstr("--set seed=: seed: has no value"));
  EXPECT_THAT(Problem(Load(kLeastJob, {"seed.x=1"})), HasSubstr("seed has no keys"));
  EXPECT_THAT(Problem(Load(kLeastJob, {"seed=[1"})), HasSubstr("not YAML"));
  EXPECT_THAT(Problem(Load(kLeastJob, {"checkpoint.interval=9"})),
              HasSubstr("--set checkpoint.interval=9: checkpoint.dir: missing"));
  EXPECT_THAT(Problem(Load(kLeastJob, {"workers=0"})), HasSubstr("must be 1 to 1024, found 0"));
  EXPECT_THAT(Problem(Load(kLeastJob, {"..=1"})), HasSubstr("unknown key ''"));
}

TEST(JobFileDense, SendsEverythingExactly) {
  const JobSpec dense = MustLoad(Load(kFullJob, {}, true));
  EXPECT_EQ(dense.exchange.compression.uplink, compress::CodecSpec());
  EXPECT_EQ(dense.exchange.compression.downlink, compress::CodecSpec());
  const protocol::TensorInfo bias = {"fc.bias", {3}, {}, protocol::DType::kFloat32};
  for (const protocol::Direction direction :
       {protocol::Direction::kUplink, protocol::Direction::kDownlink}) {
    EXPECT_EQ(protocol::SpecForTensor(dense.exchange.compression, bias, direction),
              compress::CodecSpec());
  }
  EXPECT_EQ(dense.exchange.compression.layout.chunk_elements, 16384u);
}

TEST(JobFile, BundlesAreSmallerWhereACodecIsDense) {
  const auto bundle = [](const std::string& up, const std::string& down) {
    const JobSpec job =
        MustLoad(Load(kLeastJob, {"compression.uplink=" + up, "compression.downlink=" + down}));
    return job.exchange.compression.layout.bundle_elements * sizeof(float);
  };
  EXPECT_EQ(bundle("topk:1%", "ternary:0.5"), 4u << 20);
  EXPECT_EQ(bundle("int8", "int8"), 2u << 20);
  EXPECT_EQ(bundle("int4", "topk:1%"), 2u << 20);
  EXPECT_EQ(bundle("topk:1%", "fp16"), 2u << 20);
  EXPECT_EQ(bundle("int8", "none"), 1u << 20);
}

TEST(JobFileDense, AppliesTheBaseline) {
  const JobSpec dense = MustLoad(Load(kFullJob, {}, true));
  EXPECT_EQ(dense.optimizer.lr, 0.1);
  EXPECT_EQ(dense.optimizer.momentum, 0.9);
  // This key was not given in the baseline, so it keeps the job's value.
  EXPECT_EQ(dense.optimizer.weight_decay, 1e-4);
  EXPECT_TRUE(dense.optimizer.nesterov);
  EXPECT_EQ(dense.lr_schedule.name, "constant");
  // The baseline has a different schedule, which starts from its own defaults.
  EXPECT_EQ(dense.lr_schedule.warmup_steps, 0u);
  EXPECT_EQ(MustLoad(Load(kFullJob)).optimizer.lr, 0.5);
  const JobSpec off =
      MustLoad(Load(kFullJob, {"baseline.optimizer={nesterov: false, weight_decay: 0}"}, true));
  EXPECT_FALSE(off.optimizer.nesterov);
  EXPECT_EQ(off.optimizer.weight_decay, 0);
}

TEST(JobFileDense, BaselineIsCheckedInEveryRun) {
  EXPECT_THAT(Problem(LoadLeastAnd("baseline:\n  optimizer:\n    beta1: 0.8\n")),
              HasSubstr("job.yaml:9:5: baseline.optimizer.beta1: sgd takes no beta1"));
  EXPECT_THAT(Problem(LoadLeastAnd("baseline: {optimizer: {name: adam}}\n")),
              HasSubstr("baseline.optimizer.lr: missing"));
}

TEST(JobFile, AProgramOfTheUsersBringsModelDataAndLength) {
  // JSON is also valid YAML.
  const absl::string_view text =
      R"({"name": "mine", "workers": 2, "compression": {"uplink": "int8"}})";
  const JobSpec job = MustLoad(Load(text));
  EXPECT_EQ(job.model.name, "custom");
  EXPECT_EQ(job.data.format, job::DataFormat::kCustom);
  EXPECT_EQ(job.workers, 2u);
  EXPECT_EQ(job.training.steps, 0u);
  EXPECT_EQ(ToString(job.exchange.compression.uplink), "int8");
  // The resolved text must load to the same job.
  const absl::StatusOr<std::string> resolved = ResolvedJobTextFromText(text, "job.yaml", {});
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(MustLoad(Load(*resolved)).hash, job.hash);
  EXPECT_EQ(MustLoad(Load("name: mine\nmodel: {name: custom}\ndata: {format: custom}\n")).name,
            "mine");
  EXPECT_THAT(Problem(Load("name: mine\nmodel: {name: mlp}\n")), HasSubstr("data.format: missing"));
}

TEST(JobFile, ExamplesLoad) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SLUICE_EXAMPLES)) {
    if (entry.path().extension() != ".yaml") continue;
    ++count;
    for (const bool dense : {false, true}) {
      const JobSpec job = MustLoad(LoadJob({entry.path().string(), {}, dense}));
      EXPECT_THAT(JobWarnings(job), ElementsAre()) << entry.path();
    }
  }
  EXPECT_GE(count, 1);
}

// Checks that the page lists every key of the schema and of its sections.
void ExpectDocumented(const google::protobuf::Descriptor& section, const std::string& page) {
  for (int i = 0; i < section.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& key = *section.field(i);
    // A matcher would print the whole page, so the test uses find.
    EXPECT_NE(page.find(absl::StrCat("`", key.name(), "`")), std::string::npos) << key.full_name();
    if (key.message_type() != nullptr) ExpectDocumented(*key.message_type(), page);
  }
}

TEST(JobFile, EveryKeyIsDocumented) {
  std::ifstream file(SLUICE_JOB_FILE_PAGE);
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  ExpectDocumented(*v1::JobSpec::descriptor(), page);
}

TEST(JobFile, ATextThatBeginsWithACommaIsRefused) {
  EXPECT_THAT(Problem(LoadJobFromText(",a", "job.yaml", {})), HasSubstr("job.yaml:1:1: "));
}

TEST(JobFile, SaysWhichFileCannotBeRead) {
  EXPECT_THAT(Problem(LoadJob({"no/such/job.yaml", {}, false})), HasSubstr("no/such/job.yaml"));
  EXPECT_THAT(Problem(LoadJob({SLUICE_EXAMPLES, {}, false})), HasSubstr("cannot read"));
}

}  // namespace
}  // namespace sluice::job
