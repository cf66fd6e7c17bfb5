// SPDX-License-Identifier: Apache-2.0
// EF21 (Richtarik et al. 2021) and DIANA (Mishchenko et al. 2019): senders encode the difference
// between their gradient and a memory that the receiver knows. Sender s of S, per element and step:
//
//   c = codec(gradient - m_s);  m_s = m_s + alpha * decoded(c)
//
// The receiver holds m, the mean of all S memories, including those of senders that do not
// contribute. With n contributors:
//
//   EF21   m = m + sum(decoded) / S, and the receiver publishes m; alpha is 1. It is for codecs
//          that contract. EF21 passes them a residual and then discards it, because without a
//          residual some codecs are unbiased instead of minimising the error.
//
//   DIANA  The receiver publishes m + sum(decoded) / n and then sets m = m + alpha * sum(decoded)
//          / S. It is for unbiased codecs, without a residual: the published value is unbiased.
//          alpha comes from the spec, or is 1 / (1 + VarianceBound), the largest value for which
//          theory guarantees that memories converge.
//
// A sender that does not take part in a step does not move its memory. With EF21, that memory
// counts as the sender's contribution (partial participation, Fatkhullin et al. 2021). With DIANA,
// the contributors represent the absent senders, so the published value stays unbiased if absence
// is random.
//
// Conservation: m equals the mean of all m_s, within fp32 rounding. Sender and receiver round
// separately, so rounding errors add up over the steps: about 1e-7 of an element's size for each
// frame that changes the element, in random directions. No values are owed, so there is no
// residual. If a frame is refused permanently, the sender must undo it (ReturnFrame). If a frame is
// added, the sender's memory must include it.
//
// State: 4 bytes per element at the sender and 4 at the receiver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "compress/aggregator.h"
#include "compress/codec_spec.h"
#include "compress/feedback/compensator.h"

namespace sluice::compress {

// Returns true for ef21 and diana. The functions below accept only specs with one of these
// compensators.
bool HasMemory(CompensatorId compensator);

// Returns alpha.
float MemoryStepSize(const CodecSpec& spec);

std::unique_ptr<Compensator> MakeDifference(const CodecSpec& spec, size_t count);

// `inner` computes the mean of the differences.
std::unique_ptr<Aggregator> MakeDifferenceAggregator(const CodecSpec& spec, size_t count,
                                                     uint32_t senders,
                                                     std::unique_ptr<Aggregator> inner);

}  // namespace sluice::compress
