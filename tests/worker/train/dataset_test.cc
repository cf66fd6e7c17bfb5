// SPDX-License-Identifier: Apache-2.0
#include "worker/data/dataset.h"

#include <torch/torch.h>

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/temporary_folder.h"
#include "worker/data/batch_stream.h"

namespace sluice::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Datasets MustOpen(const job::DataSpec& spec) {
  absl::StatusOr<Datasets> data = OpenDatasets(spec, /*with_test=*/true);
  EXPECT_TRUE(data.ok()) << data.status();
  return data.value_or(Datasets{});
}

Batch MustMake(const Dataset& data, const std::vector<uint32_t>& samples, EpochKey epoch = {}) {
  absl::StatusOr<Batch> batch = data.MakeBatch(samples, epoch);
  EXPECT_TRUE(batch.ok()) << batch.status();
  return batch.value_or(Batch{});
}

// Two images of 1 × 2 pixels: 0 255 with class 4, and 51 102 with class 7.
job::DataSpec IdxSpec(const std::string& folder) {
  constexpr char kImages[] = "\0\0\x08\x03\0\0\0\2\0\0\0\1\0\0\0\2\0\xFF\x33\x66";
  constexpr char kLabels[] = "\0\0\x08\x01\0\0\0\2\4\7";
  WriteText(folder + "/images", absl::string_view(kImages, sizeof kImages - 1));
  WriteText(folder + "/labels", absl::string_view(kLabels, sizeof kLabels - 1));
  job::DataSpec spec;
  spec.format = job::DataFormat::kIdx;
  spec.path = folder;
  spec.train_images = "images";
  spec.train_labels = "labels";
  return spec;
}

TEST(Dataset, PixelsAreNormalizedAndInOrder) {
  const TemporaryFolder folder;
  job::DataSpec spec = IdxSpec(folder.path());
  spec.mean = {0.5};
  spec.std = {0.25};
  const Datasets data = MustOpen(spec);
  EXPECT_EQ(data.test, nullptr);  // test_images is empty.
  const Batch batch = MustMake(*data.training, {1, 0});
  EXPECT_TRUE(torch::allclose(batch.inputs,
                              torch::tensor({-1.2f, -0.4f, -2.0f, 2.0f}).reshape({2, 1, 1, 2})));
  EXPECT_TRUE(torch::equal(batch.targets, torch::tensor({7, 4}, torch::kLong)));
}

TEST(Dataset, EachChannelHasItsOwnMean) {
  job::DataSpec spec;
  spec.format = job::DataFormat::kSyntheticCifar;
  spec.limit = 50;
  const Datasets data = MustOpen(spec);
  EXPECT_EQ(data.training->shape(), (SampleShape{3, 32, 32, 0, 10}));
  EXPECT_EQ(data.test->shape(), data.training->shape());
  std::vector<uint32_t> all(50);
  for (uint32_t i = 0; i < 50; ++i) all[i] = i;
  const at::Tensor inputs = MustMake(*data.training, all).inputs.to(torch::kDouble);
  EXPECT_EQ(inputs.sizes(), (std::vector<int64_t>{50, 3, 32, 32}));
  EXPECT_LT(inputs.mean({0, 2, 3}).abs().max().item<double>(), 1e-4);
  EXPECT_LT((inputs.var({0, 2, 3}, /*unbiased=*/false) - 1).abs().max().item<double>(), 1e-4);
}

TEST(Dataset, TextIsTokensAndWhatFollows) {
  const TemporaryFolder folder;
  WriteText(folder.path() + "/a.txt",
            "abcabcabcabcabcabcab"
            "cabc");
  job::DataSpec spec;
  spec.format = job::DataFormat::kText;
  spec.path = folder.path() + "/a.txt";
  spec.context = 4;
  spec.validation_fraction = 0.25;
  const Datasets data = MustOpen(spec);
  EXPECT_EQ(data.training->shape(), (SampleShape{0, 0, 0, 4, 3}));
  EXPECT_EQ(data.training->size(), 3u);
  EXPECT_EQ(data.test->size(), 1u);
  const Batch batch = MustMake(*data.training, {0, 2}, {.seed = 1, .epoch = 5});
  EXPECT_EQ(batch.inputs.sizes(), (std::vector<int64_t>{2, 4}));
  EXPECT_TRUE(torch::equal(batch.targets, (batch.inputs + 1).remainder(3)));
  // The test samples come from the last six characters, "abcabc".
  EXPECT_TRUE(
      torch::equal(MustMake(*data.test, {0}).inputs, torch::tensor({{0, 1, 2, 0}}, torch::kLong)));
  spec.level = "byte";
  EXPECT_EQ(MustOpen(spec).training->shape().classes, 256u);
  spec.validation_fraction = 0;
  EXPECT_EQ(MustOpen(spec).test, nullptr);
  spec.validation_fraction = 0.1;
  EXPECT_THAT(std::string(OpenDatasets(spec, true).status().message()),
              AllOf(HasSubstr("/a.txt: the validation part"), HasSubstr("too few")));
  EXPECT_TRUE(OpenDatasets(spec, false).ok());
}

TEST(Dataset, SyntheticTextNeedsNoFile) {
  job::DataSpec spec;
  spec.format = job::DataFormat::kSyntheticText;
  spec.limit = 100;
  const Datasets data = MustOpen(spec);
  EXPECT_EQ(data.training->size(), 100u);
  EXPECT_EQ(data.training->shape().context, 128u);
  EXPECT_LT(data.training->shape().classes, 64u);
}

class BatchStreamTest : public ::testing::Test {
 protected:
  BatchStreamTest() {
    job::DataSpec spec;
    spec.format = job::DataFormat::kSyntheticCifar;
    spec.limit = 50;
    spec.crop_padding = 4;
    spec.flip = true;
    data_ = MustOpen(spec).training;
  }
  // Returns all batches from `first_step` on, one tensor after the other.
  std::vector<at::Tensor> Batches(uint64_t first_step, uint32_t prefetch, uint64_t epoch = 3) {
    const ShardSampler sampler(
        {.samples = 50, .ranks = 3, .rank = 1, .batch_size = 2, .passes_per_step = 3, .seed = 9});
    BatchStream stream(data_.get(), &sampler,
                       {.epoch = {.seed = 9, .epoch = epoch},
                        .first_step = first_step,
                        .end_step = sampler.steps_per_epoch(),
                        .passes_per_step = 3,
                        .prefetch = prefetch});
    std::vector<at::Tensor> batches;
    for (uint64_t step = first_step; step < sampler.steps_per_epoch(); ++step) {
      for (uint32_t pass = 0; pass < 3 && stream.SamplesOf(step, pass) > 0; ++pass) {
        absl::StatusOr<Batch> batch = stream.Next();
        EXPECT_TRUE(batch.ok()) << batch.status();
        EXPECT_EQ(batch->inputs.size(0), static_cast<int64_t>(stream.SamplesOf(step, pass)));
        batches.push_back(batch->inputs);
      }
    }
    EXPECT_EQ(stream.Next().status().code(), absl::StatusCode::kOutOfRange);
    return batches;
  }
  static void ExpectEqual(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(torch::equal(a[i], b[i])) << i;
  }

  std::shared_ptr<const Dataset> data_;
};

TEST_F(BatchStreamTest, IsTheSameWithAndWithoutAThread) {
  const std::vector<at::Tensor> alone = Batches(0, 0);
  EXPECT_EQ(alone.size(), 9u);  // 17 samples, two per batch.
  for (const uint32_t prefetch : {1u, 2u, 20u}) ExpectEqual(Batches(0, prefetch), alone);
  EXPECT_FALSE(torch::equal(Batches(0, 0, /*epoch=*/4)[0], alone[0]));
}

TEST_F(BatchStreamTest, GoesOnFromAnyStep) {
  const std::vector<at::Tensor> whole = Batches(0, 2);
  ExpectEqual(Batches(1, 2), {whole.begin() + 3, whole.end()});
  ExpectEqual(Batches(2, 2), {whole.begin() + 6, whole.end()});
  EXPECT_TRUE(Batches(3, 2).empty());
}

// Fails at sample 5, and throws at sample 6.
class Failing final : public Dataset {
 public:
  uint32_t size() const override { return 8; }
  SampleShape shape() const override { return {}; }
  absl::StatusOr<Batch> MakeBatch(absl::Span<const uint32_t> samples, EpochKey) const override {
    if (samples[0] == 5) return absl::DataLossError("x.png: truncated");
    TORCH_CHECK(samples[0] != 6, "no memory");
    return Batch{torch::zeros({1}), torch::zeros({1})};
  }
};

TEST(BatchStream, ErrorsComeInTheirPlace) {
  const Failing data;
  const ShardSampler sampler({.samples = 8, .seed = 1});
  for (const uint32_t prefetch : {0u, 3u}) {
    BatchStream stream(&data, &sampler, {.epoch = {}, .end_step = 8, .prefetch = prefetch});
    const std::vector<uint32_t> dealt = sampler.Deal(0);
    for (const uint32_t sample : dealt) {
      const absl::StatusOr<Batch> batch = stream.Next();
      if (batch.ok()) {
        EXPECT_TRUE(sample != 5 && sample != 6);
        continue;
      }
      EXPECT_THAT(std::string(batch.status().message()),
                  HasSubstr(sample == 5 ? "x.png: truncated" : "making a batch: no memory"));
      break;
    }
    EXPECT_EQ(stream.Next().status().code(), absl::StatusCode::kOutOfRange);
  }
}

}  // namespace
}  // namespace sluice::worker
