// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/run_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/rpc/await.h"

namespace sluice::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

PersistRun Record(uint32_t term) {
  PersistRun persist;
  persist.record.term = term;
  return persist;
}

PersistRun LastRecord() {
  PersistRun persist = Record(1);
  persist.record.finished = true;
  return persist;
}

WriteCheckpoint Manifest(uint64_t step) {
  WriteCheckpoint write;
  write.manifest.step = step;
  return write;
}

// A disk that fails as a test says, and a clock that stands still unless a test advances it.
class RunWriterTest : public ::testing::Test {
 protected:
  RunWriterTest() {
    const Logger logger("test",
                        {.sink = [this](LogLevel, absl::string_view, absl::string_view text) {
                          MutexLock lock(&mutex_);
                          lines_.emplace_back(text);
                        }});
    writer_ = std::make_unique<RunWriter>(
        [this](const RunWrite&) { return Attempt(); },
        RunWriter::Listener{.written = [this](const RunWrite& write,
                                              const absl::Status& status) { Ended(write, status); },
                            .retries =
                                [this] {
                                  MutexLock lock(&mutex_);
                                  ++retries_;
                                }},
        &clock_, logger);
  }
  // The writer stops before the other members are gone.
  ~RunWriterTest() override { writer_.reset(); }

  absl::Status Attempt() {
    MutexLock lock(&mutex_);
    attempts_.push_back(clock_.Now());
    while (blocked_) unblocked_.Wait(&mutex_);
    if (failures_.empty()) return absl::OkStatus();
    absl::Status failure = failures_.front();
    if (failures_.size() > 1 || !fails_forever_) failures_.pop_front();
    return failure;
  }
  void Ended(const RunWrite& write, const absl::Status& status) {
    std::optional<RunWrite> next;
    {
      MutexLock lock(&mutex_);
      ended_.push_back(status);
      kinds_.push_back(write.index());
      if (!next_.empty()) {
        next = next_.front();
        next_.pop_front();
      }
    }
    if (next.has_value()) writer_->Write(*std::move(next));
  }
  void Fail(std::deque<absl::Status> failures) {
    MutexLock lock(&mutex_);
    failures_ = std::move(failures);
  }
  void FailForever(absl::Status failure) {
    MutexLock lock(&mutex_);
    failures_ = {std::move(failure)};
    fails_forever_ = true;
  }
  void Block(bool blocked) {
    MutexLock lock(&mutex_);
    blocked_ = blocked;
    unblocked_.SignalAll();
  }
  std::vector<absl::Time> attempts() {
    MutexLock lock(&mutex_);
    return attempts_;
  }
  std::vector<absl::Status> ended() {
    MutexLock lock(&mutex_);
    return ended_;
  }
  size_t retries() {
    MutexLock lock(&mutex_);
    return retries_;
  }
  std::vector<std::string> lines() {
    MutexLock lock(&mutex_);
    return lines_;
  }
  void AwaitEnded(size_t count) {
    AwaitThat([&] { return ended().size() == count; });
  }
  // Lets time pass until `count` writes have ended. The time passes no faster than on a real clock,
  // because the writer also sleeps on a real clock and would notice the end of its pause late.
  void PassTimeUntilEnded(size_t count) {
    AwaitThat([&] {
      clock_.Advance(absl::Milliseconds(1));
      return ended().size() == count;
    });
  }

  SimulatedClock clock_;
  Mutex mutex_;
  CondVar unblocked_;
  bool blocked_ ABSL_GUARDED_BY(mutex_) = false;
  bool fails_forever_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<absl::Status> failures_ ABSL_GUARDED_BY(mutex_);  // Results of the next attempts.
  std::deque<RunWrite> next_ ABSL_GUARDED_BY(mutex_);          // Writes that the listener begins.
  std::vector<absl::Time> attempts_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::Status> ended_ ABSL_GUARDED_BY(mutex_);
  std::vector<size_t> kinds_ ABSL_GUARDED_BY(mutex_);  // Indices of the ended writes.
  size_t retries_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<RunWriter> writer_;
};

TEST_F(RunWriterTest, TheCurrentWriteIsDescribed) {
  Block(true);
  PersistRun record = Record(3);
  record.record.generation = 2;
  writer_->Write(record);
  clock_.Advance(absl::Seconds(5));
  EXPECT_EQ(writer_->NowAtDisk(),
            (protocol::DiskWait{.what = "the record of term 3, generation 2 (run.json)",
                                .lasts = absl::Seconds(5)}));
  Block(false);
  AwaitEnded(1);
  EXPECT_EQ(writer_->NowAtDisk(), protocol::DiskWait());
  EXPECT_THAT(ended(), ElementsAre(absl::OkStatus()));
  EXPECT_THAT(lines(), IsEmpty()) << "a write that succeeds at once needs no line";
}

TEST_F(RunWriterTest, TheListenerMayBeginTheNextWrite) {
  {
    MutexLock lock(&mutex_);
    next_ = {Manifest(4), DropCheckpoint{2}};
  }
  writer_->Write(Record(1));
  AwaitEnded(3);
  MutexLock lock(&mutex_);
  EXPECT_THAT(kinds_, ElementsAre(RunWrite(Record(1)).index(), RunWrite(Manifest(4)).index(),
                                  RunWrite(DropCheckpoint{2}).index()));
  EXPECT_EQ(attempts_.size(), 3u);
}

TEST_F(RunWriterTest, ARecordIsRetriedUntilItIsDurable) {
  Fail({absl::UnavailableError("the disk is full"), absl::UnavailableError("it is still full"),
        absl::DataLossError("it is damaged")});
  writer_->Write(Record(3));
  PassTimeUntilEnded(1);
  EXPECT_THAT(ended(), ElementsAre(absl::OkStatus()));
  EXPECT_EQ(attempts().size(), 4u);
  EXPECT_EQ(retries(), 2u) << "an error of the same kind is no news";
  EXPECT_THAT(lines(),
              ElementsAre(HasSubstr("cannot be written: the disk is full"),
                          HasSubstr("cannot be written: it is damaged"),
                          "the record of term 3 (run.json) is written; the job continues"));
}

TEST_F(RunWriterTest, TheTroubleIsKnownWhileARecordIsRetried) {
  FailForever(absl::UnavailableError("the disk is full"));
  writer_->Write(Record(3));
  AwaitThat([&] { return retries() == 1; });
  EXPECT_EQ(writer_->NowAtDisk().what, "the record of term 3 (run.json)");
  EXPECT_EQ(writer_->NowAtDisk().trouble, "the disk is full");
}

TEST_F(RunWriterTest, ThePauseDoublesWithEachRetry) {
  Fail({absl::UnavailableError("x"), absl::UnavailableError("x"), absl::UnavailableError("x")});
  writer_->Write(Record(3));
  PassTimeUntilEnded(1);
  const std::vector<absl::Time> at = attempts();
  ASSERT_EQ(at.size(), 4u);
  EXPECT_GE(at[1] - at[0], absl::Milliseconds(100));
  EXPECT_GE(at[2] - at[1], absl::Milliseconds(200));
  EXPECT_GE(at[3] - at[2], absl::Milliseconds(400));
}

TEST_F(RunWriterTest, AnErrorIsNewsForEachRecord) {
  Fail({absl::UnavailableError("x")});
  writer_->Write(Record(3));
  PassTimeUntilEnded(1);
  Fail({absl::UnavailableError("x")});
  writer_->Write(Record(4));
  PassTimeUntilEnded(2);
  EXPECT_EQ(retries(), 2u);
}

TEST_F(RunWriterTest, NoWriteIsRetriedOnceTheJobHasEnded) {
  FailForever(absl::UnavailableError("the disk is full"));
  writer_->Write(Record(3));
  AwaitThat([&] { return retries() == 1; });
  writer_->StopRetrying();  // The pause does not pass, because the clock stands still.
  AwaitEnded(1);
  EXPECT_TRUE(absl::IsUnavailable(ended()[0]));
  EXPECT_EQ(attempts().size(), 1u);
  writer_->Write(Record(4));
  AwaitThat([&] { return ended().size() == 2 || retries() == 2; });
  EXPECT_EQ(retries(), 1u) << "the writer does not announce a retry";
  EXPECT_EQ(attempts().size(), 2u);
}

TEST_F(RunWriterTest, OnlyRecordsThatTheJobNeedsAreRetried) {
  FailForever(absl::UnavailableError("the disk is full"));
  size_t count = 0;
  for (const RunWrite& write :
       {RunWrite(LastRecord()), RunWrite(Manifest(4)), RunWrite(DropCheckpoint{2})}) {
    writer_->Write(write);
    ++count;
    AwaitThat([&] { return ended().size() == count || retries() > 0; });
    ASSERT_EQ(retries(), 0u) << "write " << count;
    EXPECT_TRUE(absl::IsUnavailable(ended().back()));
  }
  EXPECT_EQ(attempts().size(), count);
}

TEST_F(RunWriterTest, AFolderOfAnotherCoordinatorIsNotTriedAgain) {
  Fail({absl::FailedPreconditionError("another coordinator has written"),
        absl::InvalidArgumentError("the record cannot be stored")});
  for (const size_t count : {1, 2}) {
    writer_->Write(Record(3));
    AwaitThat([&] { return ended().size() == count || retries() > 0; });
    ASSERT_EQ(retries(), 0u);
    EXPECT_FALSE(ended().back().ok());
  }
  EXPECT_EQ(attempts().size(), 2u);
}

TEST_F(RunWriterTest, AWriteThatHasBegunIsFinishedBeforeTheWriterIsGone) {
  Block(true);
  writer_->Write(Record(3));
  AwaitThat([&] { return !attempts().empty(); });
  std::thread unblock([&] { Block(false); });
  writer_.reset();
  unblock.join();
  EXPECT_THAT(ended(), ElementsAre(absl::OkStatus()));
}

TEST_F(RunWriterTest, ARecordThatCannotBeWrittenDoesNotKeepTheProcess) {
  FailForever(absl::UnavailableError("the disk is full"));
  writer_->Write(Record(3));
  AwaitThat([&] { return retries() == 1; });
  writer_.reset();
  ASSERT_EQ(ended().size(), 1u);
  EXPECT_TRUE(absl::IsUnavailable(ended()[0]));
}

}  // namespace
}  // namespace sluice::server
