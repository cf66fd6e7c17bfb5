// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/member.h"

namespace sluice::server {
namespace {

struct Transition {
  MemberState from;
  MemberEvent event;
  MemberState to;
};

constexpr Transition kTransitions[] = {
    {MemberState::kVacant, MemberEvent::kSeated, MemberState::kJoining},
    {MemberState::kVacant, MemberEvent::kContinued, MemberState::kActive},
    {MemberState::kJoining, MemberEvent::kBegan, MemberState::kActive},
    {MemberState::kJoining, MemberEvent::kReturned, MemberState::kJoining},
    {MemberState::kJoining, MemberEvent::kExpired, MemberState::kLost},
    {MemberState::kJoining, MemberEvent::kGaveUp, MemberState::kLeaving},
    {MemberState::kJoining, MemberEvent::kLeft, MemberState::kLeft},
    {MemberState::kJoining, MemberEvent::kTermOver, MemberState::kJoining},
    {MemberState::kJoining, MemberEvent::kVacated, MemberState::kVacant},
    {MemberState::kActive, MemberEvent::kBegan, MemberState::kActive},
    {MemberState::kActive, MemberEvent::kReturned, MemberState::kActive},
    {MemberState::kActive, MemberEvent::kExpired, MemberState::kLost},
    {MemberState::kActive, MemberEvent::kGaveUp, MemberState::kLeaving},
    {MemberState::kActive, MemberEvent::kLeft, MemberState::kLeft},
    {MemberState::kActive, MemberEvent::kTermOver, MemberState::kJoining},
    {MemberState::kActive, MemberEvent::kVacated, MemberState::kVacant},
    {MemberState::kLost, MemberEvent::kBegan, MemberState::kActive},
    {MemberState::kLost, MemberEvent::kReturned, MemberState::kActive},
    {MemberState::kLost, MemberEvent::kGaveUp, MemberState::kGone},
    {MemberState::kLost, MemberEvent::kLeft, MemberState::kLeft},
    {MemberState::kLost, MemberEvent::kTermOver, MemberState::kJoining},
    {MemberState::kLost, MemberEvent::kVacated, MemberState::kVacant},
    {MemberState::kLeaving, MemberEvent::kBegan, MemberState::kLeaving},
    {MemberState::kLeaving, MemberEvent::kReturned, MemberState::kLeaving},
    {MemberState::kLeaving, MemberEvent::kExpired, MemberState::kGone},
    {MemberState::kLeaving, MemberEvent::kTermOver, MemberState::kJoining},
    {MemberState::kLeaving, MemberEvent::kVacated, MemberState::kVacant},
    {MemberState::kGone, MemberEvent::kBegan, MemberState::kGone},
    {MemberState::kGone, MemberEvent::kReturned, MemberState::kLeaving},
    {MemberState::kGone, MemberEvent::kTermOver, MemberState::kJoining},
    {MemberState::kGone, MemberEvent::kVacated, MemberState::kVacant},
    {MemberState::kLeft, MemberEvent::kBegan, MemberState::kLeft},
    {MemberState::kLeft, MemberEvent::kReturned, MemberState::kLeft},
    {MemberState::kLeft, MemberEvent::kLeft, MemberState::kLeft},
    {MemberState::kLeft, MemberEvent::kNeededAgain, MemberState::kActive},
    {MemberState::kLeft, MemberEvent::kTermOver, MemberState::kJoining},
    {MemberState::kLeft, MemberEvent::kVacated, MemberState::kVacant},
};

}  // namespace

absl::string_view ToString(MemberState state) {
  switch (state) {
    case MemberState::kVacant:
      return "vacant";
    case MemberState::kJoining:
      return "joining";
    case MemberState::kActive:
      return "active";
    case MemberState::kLost:
      return "lost";
    case MemberState::kLeaving:
      return "leaving";
    case MemberState::kGone:
      return "gone";
    case MemberState::kLeft:
      return "left";
  }
  return "unknown";
}

absl::string_view ToString(MemberEvent event) {
  switch (event) {
    case MemberEvent::kSeated:
      return "seated";
    case MemberEvent::kContinued:
      return "continued";
    case MemberEvent::kBegan:
      return "began";
    case MemberEvent::kReturned:
      return "returned";
    case MemberEvent::kExpired:
      return "lease expired";
    case MemberEvent::kGaveUp:
      return "gave up";
    case MemberEvent::kLeft:
      return "left";
    case MemberEvent::kNeededAgain:
      return "needed again";
    case MemberEvent::kTermOver:
      return "term over";
    case MemberEvent::kVacated:
      return "vacated";
  }
  return "unknown";
}

std::optional<MemberState> NextState(MemberState state, MemberEvent event) {
  for (const Transition& transition : kTransitions) {
    if (transition.from == state && transition.event == event) return transition.to;
  }
  return std::nullopt;
}

}  // namespace sluice::server
