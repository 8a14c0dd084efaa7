// Rules of your own: how an operator is carried out on DTensors.
//
//   register_sharding("my::op", "mk * kn -> mn");          which dims belong together
//
//   register_sharding("my::rows", [](const OpSchema& call) -> std::optional<Signature> {
//     static constexpr RuleText by_rows = "~nd! -> nd";     what depends on the arguments
//     if (call.integer(1) != 1) return std::nullopt;        none: not for this call
//     return signature_of(by_rows.form(), call);
//   });
//
//   register_decomposition("my::softmax", [](const std::vector<c10::IValue>& arguments) {
//     return std::vector<c10::IValue>{...};                 other ops on DTensors
//   });
//
// All ranks register the same before they call the op. The last registration counts, also for an
// operator that Tegula knows; what was decided before no longer does. In-place and out= forms
// follow their plain form. A rule is believed: prove it in a test (testing/verify_rule.h). How to
// write one: rules/rule_text.h, rules/signature.h.
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <string>
#include <vector>

#include "tegula/rules/rule_table.h"

namespace tegula {

// UsageError: libtorch knows no such operator; one that a rule cannot place (a view, one that draws
// random numbers, one that libtorch composes of others, which are asked themselves).
void register_sharding(const std::string& op, RuleText text, Trait trait = Trait::None);
void register_sharding(const std::string& op, SignatureOf rule);
// A text that is known only when the program runs; UsageError if it is no rule.
void register_sharding_text(const std::string& op, const std::string& text,
                            Trait trait = Trait::None);

// Gets the op's arguments as they are, in the order of its signature, and gives its results. Below
// autograd: the op's own gradient stays. UsageError as above, but that it may draw; when called,
// if it gives another number of results than the op has, or calls its own operator without end.
using Decompose = std::function<std::vector<c10::IValue>(const std::vector<c10::IValue>&)>;
void register_decomposition(const std::string& op, Decompose decomposition);

}  // namespace tegula
