#include "tegula/dispatch/op_errors.h"

#include <algorithm>
#include <exception>

#include "tegula/base/error.h"
#include "tegula/base/sentence.h"
#include "tegula/base/text.h"
#include "tegula/comm/recovery.h"
#include "tegula/dispatch/decision_cache.h"

namespace tegula::inner {
namespace {

template <class Family>
void name_op(Family& error, const std::string& op) {
  const auto& facts = error.facts();
  const bool is_named =
      std::any_of(facts.begin(), facts.end(), [](const auto& fact) { return fact.first == "op"; });
  if (!is_named) std::move(error).fact("op", op);
}

// What other ranks are told of the error, which gets to know its op. Another rank's error names its
// own.
std::string told(const std::string& op) {
  try {
    throw;
  } catch (const CommError& error) {
    return error.sentence();
  } catch (UsageError& error) {
    name_op(error, op);
  } catch (InternalError& error) {
    name_op(error, op);
  } catch (c10::Error& error) {
    std::string text = op + ": " + sentence_of(std::current_exception());
    error.add_context("in " + op);
    return text;
  } catch (...) {
  }
  return op + ": " + sentence_of(std::current_exception());
}

void note(const std::string& op, const DeviceMesh& mesh, const World& world) {
  const std::string text = told(op);
  const std::optional<std::int64_t> fiber = mesh.fiber_of(world.rank());
  if (fiber) comm::note_error(world, mesh.ranks(*fiber), text);
}

}  // namespace

void note_op_error(const Call& call) {
  if (call.has_dtensors()) note(call.text(), call.mesh(), call.world());
}

void note_op_error(const OperatorEntry& entry, const CallKey& key, const World& world) {
  const std::vector<DTensorSpec> specs = world.part<DecisionCache>().specs(entry.index, key);
  if (specs.empty()) return;
  std::vector<std::string> texts;
  for (const DTensorSpec& spec : specs) texts.push_back(to_string(spec));
  const auto widest = std::find_if(specs.begin(), specs.end(), [&](const DTensorSpec& candidate) {
    return std::all_of(specs.begin(), specs.end(), [&](const DTensorSpec& other) {
      return candidate.mesh().covers(other.mesh());
    });
  });
  note(entry.facts.name + "(" + join(texts) + ")",
       widest == specs.end() ? specs.front().mesh() : widest->mesh(), world);
}

}  // namespace tegula::inner
