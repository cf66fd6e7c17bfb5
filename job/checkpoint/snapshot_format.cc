#include "job/checkpoint/snapshot_format.h"

namespace sluice {}  // namespace sluice
