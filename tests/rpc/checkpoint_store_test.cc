// SPDX-License-Identifier: Apache-2.0
// Tests the transfer of checkpoint parts to a server's disk and back, over real connections.
#include "server/rpc/checkpoint_store.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/crc32c.h"
#include "base/mutex.h"
#include "protocol/wire/common_messages.h"
#include "server/rpc/guarded_port.h"
#include "server/rpc/part_fetch.h"
#include "tests/rpc/await.h"
#include "tests/rpc/host_fixture.h"
#include "worker/core/session.h"
#include "worker/rpc/store_client.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kName[] = "worker-0-term-0.state";

class CheckpointStoreTest : public HostFixture {
 protected:
  CheckpointStoreTest() {
    job_.checkpoint.store = protocol::CheckpointStore::kShards;
    host_ = MakeHost();
    const absl::Status started = host_->Start(StartOf(0, 0));
    Check(started.ok(), started.message());
    TakeCheckpoint(10);
    Serve({.shard = 0, .dir = job_.checkpoint.dir, .part_bytes_max = 8 << 20, .transfers_max = 2});
  }
  ~CheckpointStoreTest() override { server_->Shutdown(); }

  std::string Folder() const { return protocol::PartsFolder(job_.checkpoint, 0); }
  void Serve(server::CheckpointStore::Options options) {
    options.on_member = [this](const std::string& peer) {
      MutexLock lock(&mutex_);
      members_.push_back(peer);
    };
    store_ = std::make_unique<server::CheckpointStore>(std::move(options), host_.get(),
                                                       net::Transport::Plain(), Logger("test"));
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(store_.get());
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
    stub_ = v1::CheckpointStore::NewStub(
        grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()));
  }
  std::unique_ptr<worker::StoreClient> Client(const protocol::Sender& sender) {
    return std::make_unique<worker::StoreClient>(
        worker::StoreClient::Options{.sender = sender,
                                     .shards = {{address_, 5}},
                                     .backoff_min = absl::Milliseconds(1),
                                     .backoff_max = absl::Milliseconds(9),
                                     .clock = &clock_});
  }
  // Runs the job until the shard has taken its own part of the checkpoint after `step`.
  void TakeCheckpoint(uint64_t step) {
    Check(host_->NameCheckpoint(step).ok(), "shard 0 names a checkpoint");
    while (next_step_ <= step) host_->Handle(/*stream=*/1, WorkOf(0, next_step_++));
    Check(AwaitPart().step == step, "the shard takes the checkpoint");
  }
  static v1::PutPartRequest First(const protocol::Sender& sender, const std::string& name,
                                  const std::string& bytes) {
    v1::PutPartRequest first;
    protocol::SenderToProto(sender, first.mutable_sender());
    protocol::PartToProto({.term = sender.term,
                           .step = 10,
                           .name = name,
                           .bytes = bytes.size(),
                           .checksum = Crc32c(bytes),
                           .error = {}},
                          first.mutable_part());
    return first;
  }
  // Returns the answer to a request that Sluice's own client would not send.
  grpc::Status PutRaw(const v1::PutPartRequest& first, const std::string& bytes) {
    grpc::ClientContext context;
    v1::PutPartReply reply;
    const auto writer = stub_->PutPart(&context, &reply);
    writer->Write(first);
    v1::PutPartRequest message;
    message.set_content(bytes);
    writer->Write(message);
    writer->WritesDone();
    return writer->Finish();
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    std::error_code none;
    for (const auto& entry :
         std::filesystem::directory_iterator(protocol::StepFolder(Folder(), 10), none)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with("shard-")) names.push_back(name);
    }
    return names;
  }

  uint64_t next_step_ = 1;
  std::unique_ptr<server::ShardHost> host_;
  std::unique_ptr<server::CheckpointStore> store_;
  std::unique_ptr<grpc::Server> server_;
  Mutex mutex_;
  std::vector<std::string> members_ ABSL_GUARDED_BY(mutex_);
  std::string address_;
  std::unique_ptr<v1::CheckpointStore::Stub> stub_;
};

// A call to the store must make its connection a member. Otherwise the server would end the
// connection of a worker that sends a large part.
TEST_F(CheckpointStoreTest, ACallMakesItsConnectionThatOfAMember) {
  const std::string bytes(1 << 20, 'b');
  ASSERT_TRUE(Client(SenderOf(0))->Put(10, kName, bytes).ok());
  MutexLock lock(&mutex_);
  ASSERT_EQ(members_.size(), 1u);
  EXPECT_THAT(members_[0], testing::StartsWith("ipv4:127.0.0.1:"));
}

// Until the server has begun the call, the client may send no more bytes than a stranger. It must
// still send the part only once.
TEST_F(CheckpointStoreTest, APartIsSentOnceToAServerThatIsSlowToBegin) {
  const auto port = server::GuardedPort::Open("127.0.0.1:0", {.members = 8, .members_per_peer = 8},
                                              std::chrono::milliseconds(7000), Logger("test"));
  ASSERT_TRUE(port.ok()) << port.status();
  std::atomic<int> calls = 0;
  const auto be_slow = [&](const std::string& peer) {
    if (++calls == 1) absl::SleepFor(absl::Milliseconds(300));
    (*port)->Admit(peer);
  };
  server::CheckpointStore store({.shard = 0, .dir = job_.checkpoint.dir, .on_member = be_slow},
                                host_.get(), net::Transport::Plain(), Logger("test"));
  grpc::ServerBuilder builder;
  (*port)->AddTo(&builder, net::Transport::Plain());
  builder.RegisterService(&store);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  (*port)->Start();
  address_ = absl::StrCat("127.0.0.1:", (*port)->port());
  const std::string bytes(6 << 20, 'b');
  const absl::StatusOr<protocol::CheckpointPart> part = Client(SenderOf(0))->Put(10, kName, bytes);
  EXPECT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(calls, 1);
  (*port)->Stop();
  server->Shutdown();
}

TEST_F(CheckpointStoreTest, GivesBackWhatItWasGiven) {
  const auto client = Client(SenderOf(0));
  for (const size_t size : {size_t{0}, size_t{1}, size_t{(3 << 20) + 17}}) {
    std::string bytes(size, 'x');
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 31 >> 3);
    const absl::StatusOr<protocol::CheckpointPart> part = client->Put(10, kName, bytes);
    ASSERT_TRUE(part.ok()) << part.status();
    EXPECT_EQ(part->bytes, size);
    EXPECT_TRUE(protocol::VerifyPart(Folder(), *part).ok())
        << "the file must match the reported part";
    const absl::StatusOr<std::string> back = client->Get(*part, absl::Seconds(100));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_TRUE(*back == bytes) << size;
  }
  EXPECT_THAT(Files(), testing::SizeIs(3)) << "existing files are never changed";
  EXPECT_EQ(client->Put(10, kName, "")->file, "");
  EXPECT_THAT(Files(), testing::SizeIs(3)) << "a repeated part adds no file";
}

TEST_F(CheckpointStoreTest, WhoDoesNotHoldTheRankIsRefused) {
  for (int which = 0; which < 3; ++which) {
    protocol::Sender sender = SenderOf(which == 0 ? 1 : 0);
    if (which == 1) sender.incarnation = 101;
    if (which == 2) sender.job_uid = kHostJob + 1;
    const std::string name = protocol::WorkerPartName(0, sender.term);
    const auto put = Client(sender)->Put(10, name, "bytes");
    EXPECT_EQ(put.status().code(), absl::StatusCode::kFailedPrecondition) << put.status();
    const auto get = Client(sender)->Get(
        {.term = sender.term, .step = 10, .name = name, .error = {}}, absl::Seconds(100));
    EXPECT_TRUE(worker::IsRollback(get.status())) << get.status();
  }
  EXPECT_THAT(Files(), IsEmpty());
}

TEST_F(CheckpointStoreTest, PartsOfOthersAndPathsAreRefused) {
  for (const char* name : {"worker-1-term-0.state", "worker-0-term-1.state", "shard-0-term-0.state",
                           "../x", "manifest.json", "x.unfinished", ""}) {
    const auto put = Client(SenderOf(0))->Put(10, name, "bytes");
    EXPECT_EQ(put.status().code(), absl::StatusCode::kInvalidArgument) << name << put.status();
  }
  EXPECT_EQ(PutRaw(First(SenderOf(0), std::string(300, 'a'), "bytes"), "bytes").error_code(),
            grpc::StatusCode::INVALID_ARGUMENT)
      << "a name is not cut";
  EXPECT_THAT(Files(), IsEmpty());
  EXPECT_TRUE(Client(SenderOf(0))->Put(10, "parameters.pt", "bytes").ok());
}

TEST_F(CheckpointStoreTest, OnlyPartsOfNamedStepsAreStored) {
  const auto put = [&](uint64_t step) {
    v1::PutPartRequest first = First(SenderOf(0), kName, "bytes");
    first.mutable_part()->set_step(step);
    return PutRaw(first, "bytes").error_code();
  };
  EXPECT_EQ(put(11), grpc::StatusCode::ABORTED) << "it may be named later";
  EXPECT_EQ(put(uint64_t{1} << 60), grpc::StatusCode::ABORTED);
  EXPECT_EQ(put(9), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(put(10), grpc::StatusCode::OK);
  TakeCheckpoint(20);
  EXPECT_EQ(put(10), grpc::StatusCode::OK) << "the worker may be slow";
  EXPECT_EQ(put(20), grpc::StatusCode::OK);
  TakeCheckpoint(30);
  EXPECT_EQ(put(10), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(protocol::ListCheckpoints(Folder())->size(), 3u);
}

TEST_F(CheckpointStoreTest, OnlyRankZeroWritesFilesForPeople) {
  for (const uint32_t rank : {0u, 1u}) {
    protocol::Sender sender = SenderOf(0);
    sender.rank = rank;
    EXPECT_EQ(PutRaw(First(sender, "parameters.pt", "bytes"), "bytes").error_code(),
              rank == 0 ? grpc::StatusCode::OK : grpc::StatusCode::INVALID_ARGUMENT);
  }
}

TEST_F(CheckpointStoreTest, WhatDoesNotArriveWholeLeavesNothing) {
  const std::string bytes = "some bytes";
  EXPECT_EQ(PutRaw(First(SenderOf(0), kName, bytes), "some bytez").error_code(),
            grpc::StatusCode::ABORTED);
  EXPECT_EQ(PutRaw(First(SenderOf(0), kName, bytes), "some").error_code(),
            grpc::StatusCode::ABORTED);
  EXPECT_EQ(PutRaw(First(SenderOf(0), kName, bytes), bytes + bytes).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  const std::string large((1 << 20) + 1, 'x');
  EXPECT_EQ(PutRaw(First(SenderOf(0), kName, large), large).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT)
      << "the message exceeds the limit";
  EXPECT_THAT(Files(), IsEmpty());
  EXPECT_TRUE(PutRaw(First(SenderOf(0), kName, bytes), bytes).ok());
}

TEST_F(CheckpointStoreTest, HasLimits) {
  const absl::StatusOr<protocol::CheckpointPart> large =
      Client(SenderOf(0))->Put(10, kName, std::string((8 << 20) + 1, 'x'));
  EXPECT_THAT(std::string(large.status().message()), HasSubstr("a shard stores at most"));
  // Two transfers have begun and are stalled. The third must fail with a request to retry until one
  // of them ends.
  grpc::ClientContext contexts[2];
  v1::PutPartReply replies[2];
  std::unique_ptr<grpc::ClientWriter<v1::PutPartRequest>> writers[2];
  const std::string bytes = "some bytes";
  for (int i = 0; i < 2; ++i) {
    writers[i] = stub_->PutPart(&contexts[i], &replies[i]);
    ASSERT_TRUE(writers[i]->Write(First(SenderOf(0), absl::StrCat("slow-", i), bytes)));
  }
  AwaitThat([&] { return Files().size() >= 2; });
  EXPECT_EQ(PutRaw(First(SenderOf(0), kName, bytes), bytes).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  TakeCheckpoint(20);
  const auto client = Client(SenderOf(0));
  absl::StatusOr<protocol::CheckpointPart> third = absl::UnknownError("");
  std::thread waits([&] { third = client->Put(20, kName, bytes); });
  contexts[0].TryCancel();
  EXPECT_FALSE(writers[0]->Finish().ok());
  waits.join();
  EXPECT_TRUE(third.ok()) << third.status();
  contexts[1].TryCancel();
  EXPECT_FALSE(writers[1]->Finish().ok());
}

TEST_F(CheckpointStoreTest, ARankAndCallsWithoutAPartHaveLimitsOfTheirOwn) {
  server_->Shutdown();
  Serve({.shard = 0, .dir = job_.checkpoint.dir});
  const std::string bytes = "some bytes";
  grpc::ClientContext contexts[2];
  v1::PutPartReply replies[2];
  std::unique_ptr<grpc::ClientWriter<v1::PutPartRequest>> writers[2];
  for (int i = 0; i < 2; ++i) {
    writers[i] = stub_->PutPart(&contexts[i], &replies[i]);
    ASSERT_TRUE(writers[i]->Write(First(SenderOf(0), absl::StrCat("slow-", i), bytes)));
  }
  AwaitThat([&] { return Files().size() >= 2; });
  const grpc::Status third = PutRaw(First(SenderOf(0), kName, bytes), bytes);
  EXPECT_EQ(third.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(third.error_message(), HasSubstr("rank 0 has 2 parts"));
  for (int i = 0; i < 2; ++i) {
    contexts[i].TryCancel();
    EXPECT_FALSE(writers[i]->Finish().ok());
  }
  server_->Shutdown();
  Serve({.shard = 0, .dir = job_.checkpoint.dir, .unnamed_max = 0});
  const grpc::Status unnamed = PutRaw(First(SenderOf(0), kName, bytes), bytes);
  EXPECT_EQ(unnamed.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(unnamed.error_message(), HasSubstr("have not named their part"));
}

// A server asks for the states of other numbers of shards before any shard runs.
TEST_F(CheckpointStoreTest, AServerReadsPartsOfItsOwnRun) {
  const std::string bytes(3 << 20, 's');
  const auto write = [&](uint32_t server) {
    const std::string folder = protocol::PartsFolder(job_.checkpoint, server);
    auto part = protocol::WritePart(folder, 0, 20, protocol::ShardPartName(server, 0), bytes);
    Check(part.ok(), part.status().message());
    part->server = server;
    return *part;
  };
  const auto fetch = [&](const protocol::CheckpointPart& part, uint64_t job_uid = kHostJob) {
    return server::FetchPart(*net::Transport::Plain(), {part, address_}, job_uid);
  };
  const protocol::CheckpointPart own = write(0);
  host_.reset();  // No fence applies.
  EXPECT_EQ(*fetch(own), bytes);
  EXPECT_TRUE(absl::IsFailedPrecondition(fetch(own, kHostJob + 1).status()));
  const protocol::CheckpointPart former = write(1);
  EXPECT_TRUE(absl::IsNotFound(fetch(former).status())) << "the run of its parts is unknown";
  ASSERT_TRUE(protocol::WriteRunRecord(protocol::PartsFolder(job_.checkpoint, 1),
                                       {.job_name = "test", .job_uid = kHostJob})
                  .ok());
  EXPECT_EQ(*fetch(former), bytes);
  protocol::CheckpointPart other = former;
  other.checksum ^= 1;
  EXPECT_TRUE(absl::IsDataLoss(fetch(other).status()));
  other.bytes -= 1;
  EXPECT_TRUE(absl::IsNotFound(fetch(other).status()));
  std::ofstream(protocol::PartsFolder(job_.checkpoint, 1) + "/run.json") << "damaged";
  EXPECT_TRUE(absl::IsFailedPrecondition(fetch(former).status()));
  other.name = "../run.json";
  EXPECT_FALSE(fetch(other).ok());
  server_->Shutdown();
  EXPECT_TRUE(absl::IsUnavailable(fetch(own).status()));
}

TEST_F(CheckpointStoreTest, CallsThatStallEnd) {
  for (const bool named : {false, true}) {
    server_->Shutdown();
    Serve({.shard = 0,
           .dir = job_.checkpoint.dir,
           .first_patience = named ? absl::Hours(1) : absl::Milliseconds(20),
           .patience = absl::Milliseconds(20)});
    grpc::ClientContext context;
    v1::PutPartReply reply;
    const auto writer = stub_->PutPart(&context, &reply);
    if (named) writer->Write(First(SenderOf(0), kName, "some bytes"));
    const grpc::Status ended = writer->Finish();
    EXPECT_EQ(ended.error_code(), grpc::StatusCode::ABORTED);
    EXPECT_THAT(ended.error_message(), HasSubstr("no message for 20ms"));
  }
}

TEST_F(CheckpointStoreTest, ReadersThatAcceptNothingEnd) {
  server_->Shutdown();
  Serve({.shard = 0,
         .dir = job_.checkpoint.dir,
         .transfers_of_rank_max = 1,
         .patience = absl::Milliseconds(200)});
  const auto client = Client(SenderOf(0));
  const std::string bytes(16 << 20, 'x');  // More than a connection carries ahead of its reader.
  const absl::StatusOr<protocol::CheckpointPart> part = client->Put(10, kName, bytes);
  ASSERT_TRUE(part.ok()) << part.status();
  v1::GetPartRequest request;
  protocol::SenderToProto(SenderOf(0), request.mutable_sender());
  protocol::PartToProto(*part, request.mutable_part());
  grpc::ClientContext context;
  const auto stalled = stub_->GetPart(&context, request);
  stalled->WaitForInitialMetadata();
  // The rank may read one part at a time, so this succeeds once the stalled call has ended.
  const absl::StatusOr<std::string> got = client->Get(*part, absl::Minutes(1));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, bytes);
  v1::GetPartReply reply;
  while (stalled->Read(&reply)) continue;
  const grpc::Status ended = stalled->Finish();
  EXPECT_EQ(ended.error_code(), grpc::StatusCode::ABORTED) << ended.error_message();
}

TEST_F(CheckpointStoreTest, DamageOnItsDiskIsNamed) {
  const auto client = Client(SenderOf(0));
  const absl::StatusOr<protocol::CheckpointPart> part =
      client->Put(10, kName, "some bytes of a state");
  ASSERT_TRUE(part.ok()) << part.status();
  const std::string path = protocol::PartPath(Folder(), *part);
  std::ofstream(path) << "some bytez of a state";
  absl::Status lost = client->Get(*part, absl::Seconds(100)).status();
  EXPECT_EQ(lost.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(lost.message()), HasSubstr(absl::StrCat(kName, " of shard 0 at ")));
  for (const char* cut : {"some", "some bytes of a state and more"}) {
    std::ofstream(path) << cut;
    EXPECT_EQ(client->Get(*part, absl::Seconds(100)).status().code(), absl::StatusCode::kDataLoss);
  }
  std::filesystem::remove(path);
  lost = client->Get(*part, absl::Seconds(100)).status();
  EXPECT_EQ(lost.code(), absl::StatusCode::kDataLoss) << lost;
}

TEST_F(CheckpointStoreTest, EndsWithItsSession) {
  host_->Suspend(1, "the job goes back");
  const auto client = Client(SenderOf(0));
  absl::Status status;
  std::thread waits([&] { status = client->Put(10, kName, "bytes").status(); });
  client->Cancel();
  waits.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
}

TEST_F(CheckpointStoreTest, FoldersOfOtherRunsAreLeftAlone) {
  protocol::StartShard other = StartOf(0, 0);
  other.job_uid = kHostJob + 1;
  const auto host = MakeHost();
  const absl::Status started = host->Start(other);
  EXPECT_EQ(started.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(started.message()), HasSubstr("holds parts of another run"));
}

TEST_F(CheckpointStoreTest, RemovesWhatIsNotToStay) {
  const auto client = Client(SenderOf(0));
  for (const uint64_t step : {10, 20, 30, 40}) {
    if (step > 10) TakeCheckpoint(step);
    ASSERT_TRUE(client->Put(step, kName, "bytes").ok());
  }
  host_->KeepCheckpoints({10, 30}, 31);
  EXPECT_THAT(*protocol::ListCheckpoints(Folder()), testing::ElementsAre(10, 30, 40));
}

}  // namespace
}  // namespace sluice
