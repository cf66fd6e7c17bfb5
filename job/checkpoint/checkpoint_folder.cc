#include "job/checkpoint/checkpoint_folder.h"

namespace sluice {}  // namespace sluice
