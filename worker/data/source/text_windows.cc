// SPDX-License-Identifier: Apache-2.0
#include "worker/data/source/text_windows.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/random.h"

namespace sluice::worker {
namespace {

constexpr uint64_t kMoveStream = 0x5457;  // Separates this use of the seed from others.

}  // namespace

absl::StatusOr<TextWindows> TextWindows::Create(std::shared_ptr<const TextTokens> text,
                                                size_t first, size_t last,
                                                const TextWindowsOptions& options,
                                                absl::string_view name) {
  const size_t tokens = last - first;
  // The last target is one token past the last window. Moving windows shift by less than `context`.
  const size_t needed = options.moving ? options.context - 1 : 0;
  const size_t windows = tokens > needed ? (tokens - 1 - needed) / options.context : 0;
  if (windows == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " has ", tokens, " tokens, too few for samples of ", options.context, " (at least ",
        options.context + needed + 1, " are needed); use a smaller data.context or a longer text"));
  }
  size_t size = std::min<size_t>(windows, std::numeric_limits<uint32_t>::max());
  if (options.limit > 0) size = std::min<size_t>(size, options.limit);
  return TextWindows(std::move(text), first, static_cast<uint32_t>(size), options);
}

void TextWindows::Read(uint32_t sample, EpochKey epoch, absl::Span<int64_t> inputs,
                       absl::Span<int64_t> targets) const {
  size_t begin = first_ + size_t{sample} * options_.context;
  if (options_.moving) {
    begin += CounterRandom(epoch.seed, kMoveStream, epoch.epoch).Below(options_.context);
  }
  const auto from = text_->tokens.begin() + static_cast<ptrdiff_t>(begin);
  std::copy_n(from, options_.context, inputs.begin());
  std::copy_n(from + 1, options_.context, targets.begin());
}

size_t ValidationBegin(size_t tokens, double fraction) {
  const auto validation = static_cast<size_t>(static_cast<double>(tokens) * fraction);
  return tokens - std::min(validation, tokens);
}

}  // namespace sluice::worker
