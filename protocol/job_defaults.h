// SPDX-License-Identifier: Apache-2.0
// Defaults of the keys of job files, from proto/sluice/v1/job.proto, in bytes, durations and the
// units of the keys. tools/make_job_defaults.py writes this file.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace sluice::protocol::defaults {

// JobSpec.
inline constexpr uint32_t kWorkers = 1;
inline constexpr uint32_t kShards = 1;
inline constexpr uint32_t kGradientAccumulationSteps = 1;
inline constexpr char kDevice[] = "auto";
inline constexpr uint64_t kBufferSyncInterval = 100;
inline constexpr uint64_t kLogInterval = 10;
inline constexpr uint32_t kGpusPerWorker = 1;

// FollowersSpec.
inline constexpr uint64_t kFollowersEvery = 1;
inline constexpr uint32_t kFollowersMaxConnected = 64;

// GuardSpec.
inline constexpr double kGuardLimit = 4;

// ControlSpec.
inline constexpr double kControlOverlap = 0.7;
inline constexpr double kControlTolerance = 0.5;

// ModelSpec.
inline constexpr char kModelStem[] = "auto";
inline constexpr uint32_t kModelLayers = 4;
inline constexpr uint32_t kModelHeads = 4;
inline constexpr uint32_t kModelWidth = 128;

// DataSpec.
inline constexpr char kDataTrainImages[] = "train-images-idx3-ubyte.gz";
inline constexpr char kDataTrainLabels[] = "train-labels-idx1-ubyte.gz";
inline constexpr char kDataTestImages[] = "t10k-images-idx3-ubyte.gz";
inline constexpr char kDataTestLabels[] = "t10k-labels-idx1-ubyte.gz";
inline constexpr char kDataLabels[] = "fine";
inline constexpr char kDataTrainFolder[] = "train";
inline constexpr char kDataTestFolder[] = "val";
inline constexpr uint32_t kDataImageSize = 224;
inline constexpr char kDataLevel[] = "char";
inline constexpr uint32_t kDataContext = 128;
inline constexpr double kDataValidationFraction = 0.1;
inline constexpr uint32_t kDataPrefetch = 2;

// OptimizerSpec.
inline constexpr char kOptimizerName[] = "sgd";
inline constexpr double kOptimizerBeta1 = 0.9;
inline constexpr double kOptimizerBeta2 = 0.999;
inline constexpr double kOptimizerEps = 1e-8;
inline constexpr double kOptimizerAlpha = 0.99;
inline constexpr char kOptimizerDelayedMomentum[] = "auto";

// LrScheduleSpec.
inline constexpr char kLrScheduleName[] = "constant";
inline constexpr double kLrScheduleGamma = 0.1;
inline constexpr double kLrScheduleWarmupFraction = 0.3;

// CompressionSpec.
inline constexpr uint32_t kCompressionMinElements = 1024;
inline constexpr uint64_t kCompressionChunkBytes = 262144;

// CheckpointSpec.
inline constexpr uint64_t kCheckpointInterval = 1000;
inline constexpr uint32_t kCheckpointKeep = 2;
inline constexpr uint64_t kCheckpointReplayLimit = 1073741824;

// ServerSpec.
inline constexpr absl::Duration kServerLeaseTimeout = absl::Seconds(10);
inline constexpr absl::Duration kServerHeartbeatInterval = absl::Seconds(1);
inline constexpr absl::Duration kServerJoinTimeout = absl::Seconds(60);
inline constexpr absl::Duration kServerConnectTimeout = absl::Seconds(20);
inline constexpr uint64_t kServerWindowBytes = 16777216;
inline constexpr uint64_t kServerMaxMemory = 8589934592;
inline constexpr uint32_t kServerPort = 7070;
inline constexpr uint32_t kServerHttpPort = 7071;
inline constexpr absl::Duration kServerRejoinTimeout = absl::Minutes(10);
inline constexpr absl::Duration kServerStallTimeout = absl::Hours(1);

// MetricsSpec.
inline constexpr bool kMetricsEnabled = true;

}  // namespace sluice::protocol::defaults
