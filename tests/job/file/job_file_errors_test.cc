// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "job/file/job_file.h"
#include "tests/job/file/job_text_samples.h"

namespace sluice::job {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Returns the error for kLeastJob with more lines. kLeastJob has 6 lines, so `lines` starts at line
// 7.
std::string ProblemOf(absl::string_view lines) { return Problem(LoadLeastAnd(lines)); }

TEST(JobFileErrors, MisspeltKeysGetTheNearest) {
  EXPECT_THAT(ProblemOf("lr_shedule: {name: cosine}\n"),
              AllOf(HasSubstr("job.yaml:7:1: unknown key 'lr_shedule'"),
                    HasSubstr("did you mean 'lr_schedule'")));
  EXPECT_THAT(
      ProblemOf("compression:\n  up_link: none\n"),
      AllOf(HasSubstr("job.yaml:8:3: unknown key 'up_link'"), HasSubstr("did you mean 'uplink'")));
  EXPECT_THAT(ProblemOf("compression:\n  overrides:\n  - tensor: a\n"),
              HasSubstr("job.yaml:9:5: unknown key 'tensor' in compression.overrides[0]"));
  EXPECT_THAT(ProblemOf("colour: red\n"), AllOf(HasSubstr("known keys"), Not(HasSubstr("mean"))));
}

TEST(JobFileErrors, TypesAreStrict) {
  EXPECT_THAT(ProblemOf("workers: \"4\"\n"),
              AllOf(HasSubstr("job.yaml:7:10: workers: "), HasSubstr("found the text '4'")));
  EXPECT_THAT(ProblemOf("workers: 2.5\n"), HasSubstr("whole number, 0 or more, found '2.5'"));
  EXPECT_THAT(ProblemOf("workers: -1\n"), HasSubstr("found '-1'"));
  EXPECT_THAT(ProblemOf("workers: [1]\n"), HasSubstr("single value, found a list"));
  EXPECT_THAT(ProblemOf("seed: 18446744073709551616\n"), HasSubstr("seed: must be a whole"));
  EXPECT_THAT(ProblemOf("compression: none\n"),
              AllOf(HasSubstr("job.yaml:7:14: compression: "),
                    HasSubstr("section with keys, found 'none'")));
  EXPECT_THAT(ProblemOf("metrics: {enabled: yes}\n"), HasSubstr("must be true or false"));
  EXPECT_THAT(ProblemOf("lr_schedule: {name: cosine, final_lr: .inf}\n"), HasSubstr("a number"));
  EXPECT_THAT(ProblemOf("lr_schedule: {name: cosine, final_lr: nan}\n"), HasSubstr("a number"));
  EXPECT_THAT(ProblemOf("compression: {min_elements: 4294967296}\n"), HasSubstr("4294967295"));
  EXPECT_THAT(ProblemOf("compression: {overrides: {a: b}}\n"), HasSubstr("must be a list"));
  EXPECT_THAT(ProblemOf("seed:\n"), HasSubstr("seed: has no value"));
  EXPECT_THAT(ProblemOf("[1, 2]: 3\n"), HasSubstr("must be a word"));
}

TEST(JobFileErrors, UnitsAreStrict) {
  EXPECT_THAT(
      ProblemOf("server: {lease_timeout: 10 parsecs}\n"),
      AllOf(HasSubstr("job.yaml:7:25: server.lease_timeout: "), HasSubstr("a duration like 10s")));
  EXPECT_THAT(ProblemOf("server: {window_bytes: 16mib}\n"), HasSubstr("256KiB or 1MB"));
  EXPECT_THAT(ProblemOf("server: {window_bytes: 10s}\n"), HasSubstr("number of bytes"));
  EXPECT_THAT(ProblemOf("server: {window_bytes: 0.1B}\n"), HasSubstr("whole number of bytes"));
  EXPECT_THAT(ProblemOf("compression: {bundle_bytes: 16MiB}\n"),
              HasSubstr("must be 1KiB to 8MiB, found 16MiB"));
  EXPECT_THAT(ProblemOf("server: {lease_timeout: 10ms}\n"), HasSubstr("must be 0.1s to 86400s"));
}

TEST(JobFileErrors, CodecsPointAtTheCharacter) {
  EXPECT_THAT(ProblemOf("compression:\n  uplink: topk:1%+int5\n"),
              AllOf(HasSubstr("job.yaml:8:11: compression.uplink: "),
                    HasSubstr("\n  topk:1%+int5\n          ^")));
  EXPECT_THAT(
      ProblemOf("compression: {uplink: {codec: topk, level: 1%}}\n"),
      AllOf(HasSubstr("job.yaml:7:23: compression.uplink"), HasSubstr("a codec on one line")));
  EXPECT_THAT(ProblemOf("compression: {uplink: [topk]}\n"), HasSubstr("must be a codec"));
}

TEST(JobFileErrors, KeysAreGivenOnce) {
  EXPECT_THAT(ProblemOf("seed: 1\nseed: 2\n"),
              AllOf(HasSubstr("job.yaml:8:1: key 'seed'"), HasSubstr("first at job.yaml:7:1")));
}

TEST(JobFileErrors, WorkersThatComeAndGo) {
  constexpr absl::string_view kElastic =
      "membership: elastic\nmin_workers: 1\nmax_workers: 4\ncheckpoint: {dir: /tmp/c}\n";
  EXPECT_EQ(ProblemOf(kElastic), "");
  EXPECT_EQ(ProblemOf(absl::StrCat(kElastic, "mode: ssp\nstaleness: 2\n")), "");
  EXPECT_EQ(ProblemOf(absl::StrCat(kElastic, "mode: local_sgd\nlocal_steps: 4\n")), "");
  EXPECT_THAT(ProblemOf("membership: elastic\n"), HasSubstr("needs a `checkpoint` section"));
  EXPECT_EQ(ProblemOf(absl::StrCat(kElastic, "quorum: 1\n")), "");
  EXPECT_THAT(ProblemOf(absl::StrCat(kElastic, "compression: {uplink: int8/ef21}\n")),
              HasSubstr("another worker may take a rank"));
}

TEST(JobFileErrors, ModesThatDoNotWait) {
  EXPECT_EQ(ProblemOf("mode: async\nstaleness_aware_lr: true\n"), "");
  EXPECT_EQ(ProblemOf("mode: ssp\nstaleness: 2\n"), "");
  EXPECT_THAT(ProblemOf("mode: ssp\n"), HasSubstr("staleness: missing; mode ssp needs it"));
  EXPECT_THAT(ProblemOf("mode: async\nstaleness: 2\n"), HasSubstr("is a key of mode ssp"));
  EXPECT_THAT(ProblemOf("staleness_aware_lr: true\n"),
              AllOf(HasSubstr("staleness_aware_lr: "), HasSubstr("modes async and ssp")));
  EXPECT_THAT(ProblemOf("mode: async\ncompression: {uplink: 'intsum:4'}\n"),
              HasSubstr("exponents from the last step's"));
}

TEST(JobFileErrors, DevicesAreNamedOrNumbered) {
  for (const char* good : {"auto", "cpu", "cuda", "cuda:0", "cuda:7"}) {
    EXPECT_EQ(ProblemOf(absl::StrCat("device: ", good, "\n")), "") << good;
  }
  for (const char* bad : {"gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:1024", "CPU", ""}) {
    EXPECT_THAT(ProblemOf(absl::StrCat("device: '", bad, "'\n")),
                AllOf(HasSubstr("device: must be auto"), HasSubstr("cuda or cuda:N")))
        << bad;
  }
}

TEST(JobFileErrors, GpusHavePassesToShare) {
  EXPECT_EQ(ProblemOf("gpus_per_worker: 4\ngradient_accumulation_steps: 6\n"), "");
  EXPECT_THAT(ProblemOf("gpus_per_worker: 4\ngradient_accumulation_steps: 3\n"),
              AllOf(HasSubstr("gpus_per_worker: is 4"), HasSubstr("a step has 3 passes"),
                    HasSubstr("set gradient_accumulation_steps")));
  EXPECT_THAT(ProblemOf("gpus_per_worker: 0\n"), HasSubstr("gpus_per_worker"));
}

TEST(JobFileErrors, WordsGetTheNearest) {
  EXPECT_THAT(ProblemOf("mode: synk\n"), AllOf(HasSubstr("job.yaml:7:7: mode: unknown mode 'synk'"),
                                               HasSubstr("did you mean 'sync'? known: ")));
  EXPECT_THAT(ProblemOf("lr_schedule: {name: cosin}\n"), HasSubstr("did you mean 'cosine'"));
}

TEST(JobFileErrors, NamesWhatIsMissing) {
  const std::string problem = Problem(Load("workers: 2\nmodel: {}\n"));
  for (const char* key :
       {"name", "model.name", "data.format", "batch_size_per_worker", "optimizer.lr", "epochs"}) {
    EXPECT_THAT(problem, HasSubstr(absl::StrCat(key, ": missing")));
  }
  EXPECT_THAT(Problem(Load(kLeastJob, {"data={format: idx}"})), HasSubstr("data.path: missing"));
  EXPECT_THAT(ProblemOf("lr_schedule: {name: step}\n"), HasSubstr("step_size: missing"));
  EXPECT_THAT(ProblemOf("checkpoint: {interval: 9}\n"), HasSubstr("checkpoint.dir: missing"));
  EXPECT_THAT(ProblemOf("checkpoint: {}\n"), HasSubstr("checkpoint.dir: missing"));
  EXPECT_THAT(ProblemOf("checkpoint: {dir: ''}\n"), HasSubstr("checkpoint.dir: is empty"));
}

TEST(JobFileErrors, WhatDoesNotGoTogether) {
  EXPECT_THAT(ProblemOf("epochs: 1\n"), HasSubstr("give only one of them"));
  EXPECT_THAT(Problem(Load(kLeastJob, {"optimizer={name: adam, lr: 1, momentum: 0.5}"})),
              AllOf(HasSubstr("adam takes no momentum"), HasSubstr("remove it (adam takes: lr")));
  EXPECT_THAT(Problem(Load(kLeastJob, {"model={name: simple_cnn, hidden: [2]}"})),
              HasSubstr("simple_cnn takes no hidden"));
  EXPECT_THAT(Problem(Load(kLeastJob, {"model={name: resnet20, stem: cifar}"})),
              HasSubstr("resnet20 takes no stem"));
  EXPECT_THAT(Problem(Load(kLeastJob, {"model={name: char_gpt, heads: 6}"})),
              AllOf(HasSubstr("model.width: "), HasSubstr("model.heads, 6; found 128")));
  EXPECT_THAT(Problem(Load(kLeastJob, {"optimizer.nesterov=true"})), HasSubstr("momentum above 0"));
  for (const char* clip : {"clip_norm", "clip_value"}) {
    EXPECT_THAT(Problem(Load(kLeastJob, {"optimizer.location=shards",
                                         absl::StrCat("optimizer.", clip, "=1")})),
                HasSubstr(absl::StrCat("optimizer.", clip, ": limits the mean gradient")));
  }
  EXPECT_THAT(ProblemOf("server: {lease_timeout: 1s}\n"),
              HasSubstr("at most half of server.lease_timeout"));
  EXPECT_THAT(ProblemOf("server: {http_port: 7070}\n"), HasSubstr("is server.port, 7070, too"));
  EXPECT_THAT(ProblemOf("compression: {overrides: [{tensors: a}]}\n"), HasSubstr("needs uplink"));
  EXPECT_THAT(Problem(Load(kLeastJob, {"model.hidden=[]"})), HasSubstr("empty list"));
  EXPECT_THAT(Problem(Load(kLeastJob, {"name=a b"})), HasSubstr("may hold letters"));
}

TEST(JobFileErrors, ACommandComesWithoutModelAndData) {
  EXPECT_THAT(ProblemOf("command: [python, train.py]\n"),
              AllOf(HasSubstr(": model: the program of"), HasSubstr(": data: the program of")));
  EXPECT_THAT(Problem(Load("name: a\ncommand: ['']\n")), HasSubstr("the first entry is empty"));
  EXPECT_THAT(Problem(Load("name: a\ncommand: [\"b\\0\"]\n")), HasSubstr("a zero byte"));
}

TEST(JobFileErrors, RelaysHaveAllWorkersAndCodecsThatAddUp) {
  const std::string relays = "relays={workers: [2, 1], uplink: int8}";
  EXPECT_EQ(Problem(Load(kLeastJob, {"workers=3", relays})), "");
  EXPECT_THAT(Problem(Load(kLeastJob, {"workers=3", relays, "followers.every=1"})),
              AllOf(HasSubstr("followers: "), HasSubstr("relays do not forward them")));
  EXPECT_EQ(Problem(Load(kLeastJob, {"workers=3", "followers.every=1"})), "");
  EXPECT_THAT(Problem(Load(kLeastJob, {"workers=4", relays})),
              AllOf(HasSubstr("relays.workers: has 3 workers"), HasSubstr("the job has 4")));
  EXPECT_THAT(Problem(Load(kLeastJob, {"workers=4", "relays={uplink: int8}"})),
              HasSubstr("relays.workers: missing"));
  EXPECT_THAT(Problem(Load(kLeastJob, {"workers=2", "relays={workers: [2, 0]}"})),
              HasSubstr("must be"));
  EXPECT_EQ(Problem(Load(kLeastJob, {"workers=3", relays, "mode=async"})), "");
  EXPECT_EQ(Problem(Load(kLeastJob, {"workers=3", relays, "optimizer.location=shards"})), "");
  EXPECT_EQ(Problem(Load(kLeastJob, {"workers=3", relays, "mode=local_sgd", "local_steps=4"})), "");
  EXPECT_THAT(Problem(Load(kLeastJob, {"workers=3", relays, "quorum=2"})),
              HasSubstr("relays: a relay forwards one sum"));
  for (const char* codec : {"powersgd:2", "lsh", "topk:1%/ef21", "signsgd"}) {
    EXPECT_THAT(
        Problem(Load(kLeastJob, {"workers=3", relays, absl::StrCat("compression.uplink=", codec)})),
        HasSubstr("compression.uplink: "))
        << codec;
  }
  EXPECT_THAT(Problem(Load(kLeastJob, {"workers=3", "relays={workers: [3], uplink: signsgd}"})),
              HasSubstr("relays.uplink: "));
}

TEST(JobFileErrors, ModelsTakeTextOrImages) {
  for (const char* model :
       {"mlp", "simple_cnn", "resnet20", "resnet18", "resnet50", "vgg16", "custom"}) {
    const std::string set = absl::StrCat("model={name: ", model, "}");
    for (const char* images : {"synthetic", "synthetic_cifar"}) {
      EXPECT_EQ(Problem(Load(kLeastJob, {set, absl::StrCat("data={format: ", images, "}")})), "");
    }
    const std::string problem = Problem(Load(kLeastJob, {set, "data={format: synthetic_text}"}));
    if (absl::string_view(model) == "custom") {
      EXPECT_EQ(problem, "");
    } else {
      EXPECT_THAT(problem, AllOf(HasSubstr(absl::StrCat("model.name: ", model, " takes images")),
                                 HasSubstr("use model char_gpt")));
    }
  }
  const std::string gpt = "model={name: char_gpt}";
  for (const char* text : {"text, path: a.txt", "synthetic_text", "custom"}) {
    EXPECT_EQ(Problem(Load(kLeastJob, {gpt, absl::StrCat("data={format: ", text, "}")})), "");
  }
  for (const char* images : {"idx", "cifar10", "cifar100", "image_folder"}) {
    const std::string set = absl::StrCat("data={format: ", images, ", path: a}");
    EXPECT_THAT(
        Problem(Load(kLeastJob, {gpt, set})),
        AllOf(HasSubstr("model.name: char_gpt takes text"),
              HasSubstr(absl::StrCat("data.format ", images)), HasSubstr("use format text")));
  }
  // If the wrong text is in the file, the error must name its place in the file.
  const std::string job =
      "name: a\nmodel:\n  name: vgg16\ndata: {format: text, path: b}\n"
      "batch_size_per_worker: 8\nsteps: 5\noptimizer: {lr: 0.1}\n";
  EXPECT_THAT(Problem(Load(job)), HasSubstr("job.yaml:3:3: model.name: vgg16 takes images"));
  // Only the misspelling must be reported.
  EXPECT_THAT(Problem(Load(kLeastJob, {"model={name: char_gtp}"})), Not(HasSubstr("takes")));
}

TEST(JobFileErrors, LimitsHold) {
  for (const char* set : {"workers=0",
                          "workers=1025",
                          "shards=0",
                          "shards=257",
                          "batch_size_per_worker=0",
                          "steps=0",
                          "epochs=0",
                          "optimizer.lr=0",
                          "optimizer.lr=-1",
                          "optimizer.momentum=1",
                          "optimizer.momentum=-0.1",
                          "optimizer.delayed_momentum=1",
                          "optimizer.delayed_momentum=-1",
                          "optimizer.delayed_momentum=never",
                          "optimizer.delayed_momentum=nan",
                          "server.port=65536",
                          "gradient_accumulation_steps=0",
                          "checkpoint={dir: a, interval: 0}",
                          "checkpoint={dir: a, keep: 0}",
                          "buffer_sync_interval=0",
                          "server.rejoin_timeout=0"}) {
    EXPECT_THAT(Problem(Load(kLeastJob, {set})), HasSubstr("must be")) << set;
  }
}

TEST(JobFileErrors, TellsSeveralAtOnce) {
  const std::string problem = ProblemOf("workers: x\nshards: y\nseeds: 1\n");
  EXPECT_THAT(problem, AllOf(HasSubstr("job.yaml:7:10"), HasSubstr("job.yaml:8:9"),
                             HasSubstr("job.yaml:9:1")));
  std::string many;
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&many, "k", i, ": 1\n");
  EXPECT_THAT(ProblemOf(many), HasSubstr("and more problems"));
  EXPECT_LT(ProblemOf(many).size(), 20000u);
}

TEST(JobFileErrors, NotYamlIsToldWithItsPlace) {
  EXPECT_THAT(Problem(Load("name: [\n")), HasSubstr("not YAML"));
  EXPECT_THAT(Problem(Load("a: 1\n\tb: 2\n")), HasSubstr("job.yaml:2:"));
  EXPECT_THAT(Problem(Load("")), HasSubstr("found nothing"));
  EXPECT_THAT(Problem(Load("text")), HasSubstr("a section with keys"));
  EXPECT_THAT(ProblemOf("---\na: 1\n"), HasSubstr("second YAML document"));
  EXPECT_THAT(Problem(Load(std::string("\x7F"
                                       "ELF\0\0",
                                       6))),
              HasSubstr("not a text file"));
  EXPECT_THAT(Problem(Load(std::string(kMaxJobFileSize + 1, ' '))), HasSubstr("limit is 1048576"));
}

TEST(JobFileErrors, NestingIsLimited) {
  EXPECT_THAT(Problem(Load(std::string(100000, '['))), HasSubstr("nested too deep"));
  EXPECT_THAT(Problem(Load(std::string(100000, '{'))), HasSubstr("nested too deep"));
  std::string dashes;
  for (int i = 0; i < 100000; ++i) dashes += "- ";
  EXPECT_THAT(Problem(Load(dashes)), HasSubstr("nested too deep"));
  EXPECT_NE(Problem(Load("&x\nname: a\nmodel: *x\nbaseline: {optimizer: *x}\n")), "");
}

// No mutated file may crash the loader, and every accepted job must be complete.
TEST(JobFileErrors, MutatedFilesNeverCrash) {
  constexpr absl::string_view kPieces = "[]{}:,-*&!|>'\"%@#?\n\t \\0123456789eE.+/~\xC3\xFF";
  int accepted = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    CounterRandom random(seed);
    std::string text(kFullJob);
    for (uint64_t edits = 1 + random.Below(3); edits > 0; --edits) {
      const size_t at = random.Below(text.size());
      const size_t length = std::min<size_t>(random.Below(8), text.size() - at);
      const absl::string_view before = absl::string_view(text).substr(0, at);
      const absl::string_view after = absl::string_view(text).substr(at);
      const absl::string_view piece = kPieces.substr(random.Below(kPieces.size()), 1);
      const absl::string_view copy =
          absl::string_view(text).substr(random.Below(text.size()), length);
      switch (random.Below(4)) {
        case 0:
          text = absl::StrCat(before, piece, after.substr(1));
          break;
        case 1:
          text = absl::StrCat(before, after.substr(length));
          break;
        case 2:
          text = absl::StrCat(before, copy, after);
          break;
        default:
          text = absl::StrCat(before, piece, after);
      }
      if (text.empty()) break;
    }
    const absl::StatusOr<JobSpec> job = Load(text, {}, seed % 2 == 0);
    if (!job.ok()) {
      EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(job.status().message()), HasSubstr("job.yaml"));
      continue;
    }
    ++accepted;
    EXPECT_GE(job->workers, 1u);
    EXPECT_NE(job->training.epochs > 0, job->training.steps > 0);
  }
  // If no job were accepted, the mutations would not reach the checks after parsing.
  EXPECT_GT(accepted, 50);
}

TEST(JobFileErrors, ControlIsStrict) {
  const std::string topk = "compression: {uplink: topk:1%}\n";
  const auto problem = [&](absl::string_view control) {
    return ProblemOf(absl::StrCat(topk, "control: ", control, "\n"));
  };
  EXPECT_EQ(problem("{policy: fixed}"), "");
  EXPECT_EQ(problem("{policy: schedule, schedule: constant, dense_steps: 5, end: 0.02}"), "");
  EXPECT_THAT(problem("{policy: guess}"), HasSubstr("known: fixed, schedule"));
  EXPECT_THAT(problem("{policy: fixed, start: 0.1}"),
              HasSubstr("control.start: fixed takes no start; remove it"));
  EXPECT_THAT(problem("{policy: schedule}"),
              HasSubstr("control.schedule: missing; known: constant"));
  EXPECT_THAT(problem("{policy: schedule, schedule: exponential, end: 0.1, steps: 9, stages: 3}"),
              HasSubstr("control.start: missing; schedule exponential needs it"));
  EXPECT_THAT(problem("{policy: schedule, schedule: constant, end: 0.1, stages: 3}"),
              HasSubstr("control.stages: schedule constant takes none; remove it"));
  EXPECT_THAT(problem("{policy: schedule, schedule: constant, end: 0}"),
              HasSubstr("control.end: must be above 0"));
  EXPECT_THAT(problem("{policy: schedule, schedule: cyclic, start: 0.5, end: 0.1, steps: 9, "
                      "stages: 3}"),
              AllOf(HasSubstr("6 stages in 9 steps"), HasSubstr("use from 1 to 4")));
  EXPECT_THAT(problem("{policy: schedule, schedule: piecewise, pieces: [{from: 1, density: 0.5}]}"),
              HasSubstr("the first from step 0"));
  EXPECT_THAT(problem("{policy: schedule, schedule: constant, dense_steps: 1, end: 0.5}"),
              HasSubstr("1 dense step"));
  EXPECT_EQ(problem("{policy: bandwidth}"), "");
  EXPECT_EQ(problem("{policy: bandwidth, candidates: ['topk:1%+int4', fp16], "
                    "step_time: 80ms, overlap: 0.5}"),
            "");
  EXPECT_THAT(
      problem("{policy: bandwidth, candidates: [powersgd:2]}"),
      AllOf(HasSubstr("control.candidates[0]: powersgd:2: "), HasSubstr("no plan can choose it")));
  EXPECT_THAT(problem("{policy: bandwidth, candidates: [int4/noef]}"),
              HasSubstr("`compression` sets the compensator"));
  EXPECT_THAT(problem("{policy: bandwidth, candidates: [int4, int4]}"),
              HasSubstr("control.candidates[1]: int4 is given twice"));
  EXPECT_THAT(problem("{policy: bandwidth, candidates: [int5]}"), HasSubstr("int5"));
  EXPECT_THAT(problem("{policy: bandwidth, candidates: []}"), HasSubstr("is an empty list"));
  EXPECT_THAT(problem("{policy: bandwidth, overlap: 1.5}"),
              AllOf(HasSubstr("control.overlap: must be above 0"), HasSubstr("at most 1")));
  EXPECT_THAT(problem("{policy: bandwidth, step_time: 0}"),
              HasSubstr("control.step_time: must be above 0"));
  EXPECT_EQ(problem("{policy: auto}"), "");
  EXPECT_EQ(problem("{policy: auto, candidates: [none, int8], overlap: 0.5}"), "");
  EXPECT_THAT(problem("{policy: auto, step_time: 80ms}"),
              HasSubstr("control.step_time: auto takes no step_time; remove it"));
  EXPECT_THAT(problem("{policy: auto, candidates: [powersgd:2]}"), HasSubstr("no plan can choose"));
  EXPECT_THAT(problem("{policy: bandwidth, schedule: constant}"),
              HasSubstr("control.schedule: bandwidth takes no schedule; remove it"));
  EXPECT_THAT(problem("{policy: schedule, schedule: constant, end: 0.1, overlap: 0.5}"),
              HasSubstr("control.overlap: schedule takes no overlap; remove it"));
}

TEST(JobFileErrors, AccuracyNeedsAReferenceAndOneDensity) {
  const auto problem = [&](absl::string_view control, absl::string_view compression,
                           absl::string_view more = "") {
    return ProblemOf(absl::StrCat("compression: ", compression, "\ncontrol: {policy: accuracy",
                                  control, "}\n", more));
  };
  const std::string points =
      ", reference_points: [{step: 10, accuracy: 0.5}, {step: 20, accuracy: 0.8}]";
  const std::string topk = "{uplink: 'topk:1%+int4', downlink: 'topk:1%'}";
  EXPECT_EQ(problem(points, topk), "");
  EXPECT_EQ(problem(points, "{uplink: 'topk:1%', downlink: fp16}"), "");
  EXPECT_THAT(problem("", topk), HasSubstr("control.reference: missing; give the scalars.csv"));
  EXPECT_THAT(problem(absl::StrCat(points, ", reference: a.csv"), topk),
              HasSubstr("control.reference: is given together with reference_points"));
  EXPECT_THAT(problem(", reference: ''", topk), HasSubstr("control.reference: is empty"));
  EXPECT_THAT(problem(", reference: /no/such/scalars.csv", topk),
              HasSubstr("control.reference: cannot open /no/such/scalars.csv"));
  EXPECT_THAT(
      problem(", reference_points: [{step: 10, accuracy: 0.5}, {step: 10, accuracy: 0.8}]", topk),
      AllOf(HasSubstr("control.reference_points: point 1"), HasSubstr("(step 10, 80 %)")));
  EXPECT_THAT(problem(", reference_points: [{step: 10, accuracy: 80}]", topk),
              HasSubstr("must be 0 to 1, found 80"));
  EXPECT_THAT(problem(absl::StrCat(points, ", tolerance: 0"), topk),
              AllOf(HasSubstr("control.tolerance: must be above 0"), HasSubstr("at most 100")));
  EXPECT_THAT(
      problem(points, "{uplink: int8, downlink: 'topk:1%'}"),
      AllOf(HasSubstr("control.policy: accuracy sets"), HasSubstr("compression.uplink is int8")));
  EXPECT_THAT(problem(points, "{uplink: 'topk:1%', downlink: 'topk:3%'}"),
              HasSubstr("begins with topk:1% up and topk:3% down"));
  EXPECT_THAT(problem(points, topk, "mode: local_sgd\nlocal_steps: 4\n"),
              HasSubstr("control.policy: accuracy compares tests by training steps"));
  EXPECT_THAT(problem(absl::StrCat(points, ", candidates: [int8]"), topk),
              HasSubstr("control.candidates: accuracy takes no candidates; remove it"));
  EXPECT_THAT(ProblemOf("control: {policy: bandwidth, tolerance: 1}\n"),
              HasSubstr("control.tolerance: bandwidth takes no tolerance; remove it"));
}

TEST(JobFileErrors, PlansGoWithWhatTheyCanChange) {
  const std::string control = "control: {policy: schedule, schedule: constant, end: 0.02}\n";
  EXPECT_THAT(ProblemOf(control), HasSubstr("control.policy: schedule sets the density of topk"));
  EXPECT_THAT(ProblemOf(absl::StrCat("compression: {uplink: topk:1%/ef21}\n", control)),
              HasSubstr("compression.uplink: topk:1%/ef21: a job with compression plans"));
  for (const char* kind : {"quorum: 1", "mode: async", "mode: ssp\nstaleness: 1",
                           "membership: elastic\ncheckpoint: {dir: c}"}) {
    EXPECT_EQ(ProblemOf(absl::StrCat("workers: 2\n", kind, "\ncompression: {uplink: topk:1%}\n",
                                     control)),
              "")
        << kind;
  }
  const std::string bandwidth = "control: {policy: bandwidth}\n";
  EXPECT_EQ(ProblemOf(bandwidth), "");
  EXPECT_THAT(ProblemOf(absl::StrCat("compression: {uplink: topk:1%/ef21}\n", bandwidth)),
              HasSubstr("compression.uplink: topk:1%/ef21: a job with compression plans"));
  EXPECT_EQ(ProblemOf(absl::StrCat("workers: 4\nrelays: {workers: [2, 2]}\n", bandwidth)), "");
}

}  // namespace
}  // namespace sluice::job
