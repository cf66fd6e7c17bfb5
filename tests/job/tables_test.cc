// SPDX-License-Identifier: Apache-2.0
// Tests the table of modes, the table of codecs, and the names of the job file's enumerations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "compress/codec_table.h"
#include "job/enums.h"
#include "job/modes.h"
#include "protocol/checkpoint_spec.h"

namespace sluice::job {
namespace {

// These concepts are false because rows that omit a field do not compile.
template <typename Key>
concept MayOmitNeeded = requires {
  Key{.name = "quorum"};
};
template <typename Key>
concept MayOmitNothing = requires {
  Key{.name = "quorum", .needed = false};
};
static_assert(MayOmitNothing<ModeKey> && !MayOmitNeeded<ModeKey>);
template <typename Row>
concept MayOmitLast = requires(Row row) {
  Row{.mode = row.mode,
      .name = row.name,
      .lockstep = true,
      .staleness_bounded = false,
      .local_steps = false,
      .workers_update = true,
      .relays = true,
      .keys = row.keys};
};
static_assert(!MayOmitLast<ModeTraits>);
template <typename Facts>
concept MayOmitGpu = requires(Facts facts) {
  Facts{.traits = facts.traits,
        .variance = facts.variance,
        .price = facts.price,
        .density_in_plans = false,
        .share_sent = facts.share_sent,
        .one_bit = false,
        .coarse = facts.coarse};
};
static_assert(!MayOmitGpu<compress::CodecFacts>);
static_assert(!std::is_default_constructible_v<compress::CodecEntry>);

template <typename Enum>
class NamesTest : public ::testing::Test {};
using Enumerations =
    ::testing::Types<Mode, Membership, UpdateLocation, OuterOptimizer, PolicyKind, Precision,
                     EncodeLocation, DataFormat, protocol::CheckpointStore>;
TYPED_TEST_SUITE(NamesTest, Enumerations);

TYPED_TEST(NamesTest, EachNameStandsForTheValueAtItsPlace) {
  size_t value = 0;
  for (const absl::string_view name : AllNames<TypeParam>()) {
    ASSERT_TRUE(FindByName<TypeParam>(name).has_value()) << name;
    EXPECT_EQ(static_cast<size_t>(*FindByName<TypeParam>(name)), value++) << name;
    EXPECT_EQ(NameOf(*FindByName<TypeParam>(name)), name);
  }
  EXPECT_FALSE(FindByName<TypeParam>("").has_value());
}

// A rule must always find a row, and a refusal must have a key and a reason.
TEST(Modes, CombinationsAreCompleteAndExplained) {
  for (const ModeTraits& mode : kModes) {
    bool any_rule = false;
    for (const ModeCombination& row : mode.combinations.value()) {
      any_rule |= row.rule.empty();
      const bool built = row.support.value() == Support::kBuilt;
      EXPECT_EQ(row.key.empty(), built) << mode.name.value();
      EXPECT_EQ(row.reason.empty(), built) << mode.name.value();
    }
    EXPECT_TRUE(any_rule) << mode.name.value();
  }
}

std::string Page(absl::string_view name) {
  std::ifstream file(absl::StrCat(SLUICE_DOCS, "/", name));
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::vector<absl::string_view> words =
      absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  return absl::StrJoin(words, " ");
}

TEST(Codecs, PagesListTheCodecsThatPlansMayChange) {
  std::vector<std::string> names;
  for (const compress::CodecEntry& entry : compress::Codecs()) {
    if (compress::MayChange(entry.id)) names.push_back(absl::StrCat("`", entry.name, "`"));
  }
  const std::string last = names.back();
  names.pop_back();
  const std::string list = absl::StrJoin(names, ", ");
  EXPECT_TRUE(Page("job-file.md").find(absl::StrCat(list, " and ", last)) != std::string::npos)
      << list;
  EXPECT_TRUE(Page("relay.md").find(absl::StrCat(list, " or ", last)) != std::string::npos) << list;
}

}  // namespace
}  // namespace sluice::job
