// EF21 (Richtarik et al. 2021) and DIANA (Mishchenko et al. 2019): senders encode how far their
// gradient is from a memory that the receiver knows. Sender s of S, per element and step:
//
//   c = codec(gradient - m_s);  m_s = m_s + alpha * decoded(c)
//
// The receiver holds m, the mean of all S memories, whatever their number. Of n contributors:
//
//   EF21   m = m + sum(decoded) / S, and m is the mean that it publishes; alpha is 1. For codecs
//   that
//          contract, which EF21 calls with a residual that it throws away, so that those that have
//          a choice take the least error.
//   DIANA  m + sum(decoded) / n is published; then m = m + alpha * sum(decoded) / S. For unbiased
//          codecs, called without a residual: what is published is unbiased. alpha is the spec's,
//          or 1 / (1 + VarianceBound), the largest for which theory promises that memories settle.
//
// A sender that takes no part in a step does not move its memory. With EF21 it counts with that
// (partial participation, Fatkhullin et al. 2021); with DIANA those that are there speak for it, so
// that what is published stays unbiased if who is absent is chance.
//
// Conservation: m equals the mean of all m_s, within fp32 rounding, which adds up over the steps,
// as both ends round by themselves: some 1e-7 of an element's size for each frame that moves it, in
// random directions. Nothing is owed, so there is no residual. A frame that was refused for good
// has to be taken back; one that is added must come from a sender whose memory has moved by it.
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

// True for ef21 and diana. The rest is for specs with one of them.
bool HasMemory(CompensatorId compensator);

// alpha.
float MemoryStepSize(const CodecSpec& spec);

std::unique_ptr<Compensator> MakeDifference(const CodecSpec& spec, size_t count);

// `inner` makes the mean of the differences.
std::unique_ptr<Aggregator> MakeDifferenceAggregator(const CodecSpec& spec, size_t count,
                                                     uint32_t senders,
                                                     std::unique_ptr<Aggregator> inner);

}  // namespace sluice::compress
