// SPDX-License-Identifier: Apache-2.0
#include "job/file/explanation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::job {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;

KeyExplanation Explained(absl::string_view path) {
  absl::StatusOr<KeyExplanation> key = ExplainKey(path);
  EXPECT_TRUE(key.ok()) << key.status();
  return key.ok() ? *std::move(key) : KeyExplanation();
}

TEST(Explanation, StatesDefaultWordsAndLimits) {
  const KeyExplanation workers = Explained("workers");
  EXPECT_EQ(workers.default_text, "1");
  EXPECT_EQ(workers.limits, "1 to 1024");
  EXPECT_EQ(workers.type, KeyType::kWhole);
  EXPECT_THAT(Explained("optimizer.location").words, ElementsAre("workers", "shards"));
  EXPECT_EQ(Explained("optimizer.lr").default_text, "required");
  EXPECT_EQ(Explained("optimizer.lr").limits, "above 0 and at most 10^6");
  EXPECT_EQ(Explained("optimizer.momentum").limits, "at least 0 and below 1");
  EXPECT_THAT(Explained("optimizer.momentum").taken_by, ElementsAre("sgd", "rmsprop"));
  EXPECT_EQ(Explained("server.window_bytes").limits, "64KiB to 4GiB");
  EXPECT_EQ(Explained("server.heartbeat_interval").limits, "0.01s to 3600s");
}

TEST(Explanation, TheUnitOfAKeyIsPartOfItsType) {
  EXPECT_EQ(Explained("").type, KeyType::kSection);
  EXPECT_EQ(Explained("optimizer.nesterov").type, KeyType::kBoolean);
  EXPECT_EQ(Explained("optimizer.lr").type, KeyType::kNumber);
  EXPECT_EQ(Explained("data.path").type, KeyType::kText);
  EXPECT_EQ(Explained("server.max_memory").type, KeyType::kBytes);
  EXPECT_EQ(Explained("server.lease_timeout").type, KeyType::kSeconds);
  EXPECT_EQ(Explained("control.candidates").type, KeyType::kCodec);
  EXPECT_EQ(Explained("control.pieces").type, KeyType::kSection);
}

TEST(Explanation, NotesCompleteWhatNumbersCannotSay) {
  EXPECT_EQ(Explained("max_workers").default_text, "`workers`");
  EXPECT_EQ(Explained("max_workers").limits, "1 to 1024; at least `workers`");
  EXPECT_EQ(Explained("model.hidden").limits, "each 1 to 1048576");
  EXPECT_TRUE(Explained("model.hidden").is_list);
}

TEST(Explanation, AKeyKeepsItsOldNameForOneRelease) {
  EXPECT_EQ(Explained("server.lease").path, "server.lease_timeout");
}

TEST(Explanation, KeysOfSections) {
  const absl::StatusOr<std::vector<KeyExplanation>> keys = ExplainKeysOf("control.pieces");
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_THAT(*keys, ElementsAre(Field(&KeyExplanation::path, "control.pieces.from"),
                                 Field(&KeyExplanation::path, "control.pieces.density")));
  EXPECT_EQ(ExplainKeysOf("workers").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Explanation, AnUnknownKeyIsAnErrorThatNamesTheNearest) {
  const absl::Status unknown = ExplainKey("optimizer.momentun").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(unknown.message(), AllOf(HasSubstr("optimizer"), HasSubstr("'momentum'")));
  EXPECT_EQ(ExplainKey("workers.none").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ExplainKey("optimizer.").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ExplainKey(".").status().code(), absl::StatusCode::kNotFound);
}

void ExpectMeanings(const std::string& path) {
  const absl::StatusOr<std::vector<KeyExplanation>> keys = ExplainKeysOf(path);
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_FALSE(keys->empty());
  for (const KeyExplanation& key : *keys) {
    EXPECT_NE(key.meaning, "") << key.path;
    if (key.type == KeyType::kSection) ExpectMeanings(key.path);
  }
}

TEST(Explanation, EveryKeyHasAMeaning) { ExpectMeanings(""); }

}  // namespace
}  // namespace sluice::job
