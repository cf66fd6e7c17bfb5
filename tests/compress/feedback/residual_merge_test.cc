// SPDX-License-Identifier: Apache-2.0
#include "compress/feedback/residual_merge.h"

#include <cmath>

#include "compress/aggregator.h"
#include "compress/feedback/difference.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace sluice::compress {
namespace {

using ::testing::HasSubstr;

constexpr size_t kCompressorMeanCount = 512;
constexpr uint32_t kRows = 16;
constexpr uint32_t kOld = 3;

std::vector<ChunkConfig> Chunks(const std::string& spec) {
  return {{.count = kCompressorMeanCount,
           .spec = *ParseCodecSpec(spec),
           .id = 4,
           .tensor = 0,
           .rows = kRows},
          {.count = kCompressorMeanCount,
           .spec = *ParseCodecSpec(spec),
           .id = 5,
           .tensor = 1,
           .rows = kRows}};
}

// Senders of two chunks, and the receiver of the first chunk.
struct Cluster {
  Cluster(const std::string& spec, uint32_t ranks)
      : chunks(Chunks(spec)), receiver(MakeAggregator(chunks[0], ranks)) {
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      senders.emplace_back(chunks, Compressor::Options{.seed = 9, .sender = rank});
    }
  }
  // Runs a step and returns the published mean of the first chunk.
  std::vector<float> Step(uint64_t step) {
    std::vector<std::vector<std::byte>> frames(senders.size());
    std::vector<float> sum(kCompressorMeanCount);
    for (uint32_t rank = 0; rank < senders.size(); ++rank) {
      for (size_t chunk = 0; chunk < 2; ++chunk) {
        std::vector<std::byte> frame;
        const auto gradient = HeavyTailed(kCompressorMeanCount, step * 100 + rank * 10 + chunk);
        EXPECT_TRUE(senders[rank].Encode(chunk, step, gradient, &frame).ok());
        if (chunk == 0) frames[rank] = std::move(frame);
      }
      senders[rank].EndStep(step);
      const absl::Status valid = receiver->Validate(rank, frames[rank]);
      EXPECT_TRUE(valid.ok()) << valid;
      receiver->Add(std::vector<SenderFrame>{{rank, frames[rank]}}, absl::MakeSpan(sum));
    }
    receiver->Close(static_cast<uint32_t>(senders.size()), absl::MakeSpan(sum));
    return sum;
  }

  std::vector<ChunkConfig> chunks;
  std::unique_ptr<Aggregator> receiver;
  std::vector<Compressor> senders;
};

absl::StatusOr<SavedCompressor> MeanOf(const std::vector<Compressor>& senders, uint32_t rank) {
  ResidualMerge mean;
  for (uint32_t old = 0; old < senders.size(); ++old) {
    const absl::Status added = mean.Add(senders[old].Save(), old == rank % senders.size());
    if (!added.ok()) return added;
  }
  return mean.Take();
}

std::vector<SavedCompressor> SavedOf(const std::vector<Compressor>& senders) {
  std::vector<SavedCompressor> saved;
  for (const Compressor& sender : senders) saved.push_back(sender.Save());
  return saved;
}

double MeanAt(const std::vector<SavedCompressor>& saved, size_t chunk, const std::string& name,
              size_t i) {
  double sum = 0;
  for (const SavedCompressor& one : saved) sum += one.chunks[chunk].state.at(name)[i];
  return sum / static_cast<double>(saved.size());
}

class ResidualMergeTest : public ::testing::TestWithParam<const char*> {};

// Decreases and increases the number of senders. For each list and element of the state, the mean
// over the new senders must equal the mean over the old ones, and the receiver's own memory, if it
// has one, must stay valid.
TEST_P(ResidualMergeTest, WhatIsOwedOnAverageStays) {
  Cluster old(GetParam(), kOld);
  for (uint64_t step = 1; step <= 5; ++step) old.Step(step);
  for (const uint32_t ranks : {1u, 2u, 5u}) {
    Cluster now(GetParam(), ranks);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const absl::StatusOr<SavedCompressor> saved = MeanOf(old.senders, rank);
      ASSERT_TRUE(saved.ok()) << saved.status();
      const absl::Status restored = now.senders[rank].Restore(*saved);
      ASSERT_TRUE(restored.ok()) << restored;
    }
    const std::vector<StateField> fields = now.receiver->State();
    const absl::Status received =
        RestoreFields(WithoutSenders(SaveFields(old.receiver->State()), fields), fields);
    ASSERT_TRUE(received.ok()) << received;
    const std::vector<SavedCompressor> before = SavedOf(old.senders);
    const std::vector<SavedCompressor> after = SavedOf(now.senders);
    for (size_t chunk = 0; chunk < 2; ++chunk) {
      for (const auto& [name, values] : before[0].chunks[chunk].state) {
        if (name == kCodecState) continue;
        for (size_t i = 0; i < values.size(); ++i) {
          const double wanted = MeanAt(before, chunk, name, i);
          EXPECT_NEAR(MeanAt(after, chunk, name, i), wanted, 1e-6 * std::abs(wanted) + 1e-8)
              << name << " " << i;
        }
      }
    }
    for (uint64_t step = 6; step <= 8; ++step) {
      for (const float x : now.Step(step)) ASSERT_TRUE(std::isfinite(x));
    }
  }
}

// New receivers know nothing of earlier frames. Only what they need not know may continue.
TEST_P(ResidualMergeTest, ReceiversThatStartAnewGetTheResidual) {
  Cluster old(GetParam(), 2), now(GetParam(), 2), fresh(GetParam(), 2);
  for (uint64_t step = 1; step <= 5; ++step) old.Step(step);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const SavedCompressor initial = now.senders[rank].Save();
    const absl::Status restored =
        now.senders[rank].Restore(ForNewReceivers(old.senders[rank].Save(), initial));
    ASSERT_TRUE(restored.ok()) << restored;
    const SavedCompressor after = now.senders[rank].Save();
    for (size_t chunk = 0; chunk < 2; ++chunk) {
      EXPECT_EQ(now.senders[rank].residual(chunk), old.senders[rank].residual(chunk));
      for (const char* name : {kCodecState, "memory"}) {
        EXPECT_EQ(after.chunks[chunk].state.contains(name),
                  initial.chunks[chunk].state.contains(name));
        if (!after.chunks[chunk].state.contains(name)) continue;
        EXPECT_EQ(after.chunks[chunk].state.at(name), initial.chunks[chunk].state.at(name));
      }
    }
  }
  const std::vector<float> mean = now.Step(6);
  if (HasMemory(old.chunks[0].spec.compensator.id)) {
    EXPECT_EQ(mean, fresh.Step(6));
  }
}

INSTANTIATE_TEST_SUITE_P(Specs, ResidualMergeTest,
                         ::testing::Values("topk:5%+int4/ef", "topk:5%/dgc:0.9", "int8/ef21",
                                           "qsgd:4/diana", "intsum:4", "powersgd:2", "lsh", "none"),
                         [](const auto& test) {
                           std::string name;
                           for (const char c : std::string(test.param)) {
                             if (std::isalnum(static_cast<unsigned char>(c)) != 0)
                               name.push_back(c);
                           }
                           return name;
                         });

// Tests the conservation law across a change in the number of senders: sent values plus residuals
// must equal the sum of all gradients.
TEST(CompressorMeanLaw, NothingIsLostOrDoubled) {
  const std::vector<ChunkConfig> chunks = Chunks("topk:5%/ef");
  std::vector<double> gradients(kCompressorMeanCount), published(kCompressorMeanCount);
  const auto step = [&](std::vector<Compressor>* senders, uint64_t number) {
    for (uint32_t rank = 0; rank < senders->size(); ++rank) {
      std::vector<std::byte> frame;
      const auto gradient = HeavyTailed(kCompressorMeanCount, number * 100 + rank);
      ASSERT_TRUE((*senders)[rank].Encode(0, number, gradient, &frame).ok());
      (*senders)[rank].EndStep(number);
      const std::vector<float> decoded = Decode(frame, kCompressorMeanCount);
      const double share = 1.0 / static_cast<double>(senders->size());
      for (size_t i = 0; i < kCompressorMeanCount; ++i) {
        gradients[i] += share * gradient[i];
        published[i] += share * decoded[i];
      }
    }
  };
  std::vector<Compressor> old, now;
  for (uint32_t rank = 0; rank < kOld; ++rank)
    old.emplace_back(chunks, Compressor::Options{9, rank});
  for (uint64_t number = 1; number <= 20; ++number) step(&old, number);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    now.emplace_back(chunks, Compressor::Options{9, rank});
    ASSERT_TRUE(now.back().Restore(*MeanOf(old, rank)).ok());
  }
  for (uint64_t number = 21; number <= 40; ++number) step(&now, number);
  double owed_most = 0;
  for (size_t i = 0; i < kCompressorMeanCount; ++i) {
    double owed = 0;
    for (const Compressor& sender : now) owed += sender.residual(0)[i] / 2.0;
    owed_most = std::max(owed_most, std::abs(owed));
    EXPECT_NEAR(published[i] + owed, gradients[i], 2e-5) << i;
  }
  EXPECT_GT(owed_most, 1e-3) << "otherwise the law would be trivial";
}

// A rank that has nothing to send does not take up a plan yet.
TEST(CompressorMean, RanksMayHaveTakenUpDifferentPlans) {
  Cluster old("topk:5%/ef", 2);
  old.Step(1);
  const CodecSpec other = *ParseCodecSpec("int8/ef");
  ASSERT_TRUE(old.senders[1].Recode(std::vector<CodecSpec>{other, other}).ok());
  for (const uint32_t rank : {0u, 1u}) {
    const absl::StatusOr<SavedCompressor> saved = MeanOf(old.senders, rank);
    ASSERT_TRUE(saved.ok()) << saved.status();
    EXPECT_EQ(saved->chunks[0].config.spec.codec, rank == 0 ? CodecId::kTopK : CodecId::kInt8);
    const float mean = (old.senders[0].residual(0)[3] + old.senders[1].residual(0)[3]) / 2;
    EXPECT_EQ(saved->chunks[0].state.at("residual")[3], mean);
  }
}

TEST(CompressorMeanErrors, OtherChunksAndNothingAtAll) {
  EXPECT_EQ(ResidualMerge().Take().status().code(), absl::StatusCode::kFailedPrecondition);
  ResidualMerge mean;
  ASSERT_TRUE(mean.Add(Compressor(Chunks("topk:5%/ef"), {}).Save(), false).ok());
  const absl::Status other = mean.Add(Compressor(Chunks("topk:5%/noef"), {}).Save(), true);
  EXPECT_THAT(std::string(other.message()), HasSubstr("different chunks"));
}

}  // namespace
}  // namespace sluice::compress
