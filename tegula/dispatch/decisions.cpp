// The idea: a key is a list of numbers. A spec is its id, which is never used again: a key cannot
// come to mean something else.
#include "tegula/dispatch/decisions.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tegula/base/hash.h"
#include "tegula/ops/families.h"

namespace tegula {
namespace {

// What a word, or the words after it, stand for.
enum Tag : std::uint64_t {
  kUndefined,
  kPlain,
  kRegular,
  kOther,
  kNone,
  kBool,
  kInt,
  kList,
  kDouble,
  kComplex,
  kText
};

std::uint64_t tagged(std::uint64_t value, Tag tag) { return value << 4U | tag; }

}  // namespace

CallKey::CallKey(const OpFacts& facts, const torch::jit::Stack& stack) {
  const std::size_t count = facts.kinds.size();
  const c10::IValue* arguments = stack.data() + (stack.size() - count);
  for (std::size_t index = 0; index < count && is_known_; ++index) {
    const c10::IValue& value = arguments[index];
    switch (facts.kinds[index]) {
      case ArgumentKind::Tensor:
        value.isTensor() ? add_tensor(value.toTensor()) : add_none();
        break;
      case ArgumentKind::TensorList:
        if (!value.isList()) {
          add_none();
          break;
        }
        add_count(value.toListRef().size());
        for (const c10::IValue& member : value.toListRef()) {
          member.isTensor() ? add_tensor(member.toTensor()) : add_none();
        }
        break;
      case ArgumentKind::Value:
        add_value(value);
        break;
      case ArgumentKind::Type:
        add_type(value);
        break;
    }
  }
}

void CallKey::add_tensor(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    words_.push_back(kUndefined);
    return;
  }
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (impl->key_set().has(c10::DispatchKey::PrivateUse3)) {
    const auto* payload = static_cast<const Payload*>(
        const_cast<c10::TensorImpl*>(impl)->get_backend_meta());  // NOLINT: it only reads
    if (payload == nullptr || payload->link() != nullptr) {
      is_known_ = false;
      return;
    }
    if (world_ == nullptr) {
      world_ = &payload->world();
    } else if (!(*world_ == payload->world())) {
      is_known_ = false;
      return;
    }
    specs_.push_back(&payload->spec());
    words_.push_back(tagged(payload->spec().id(),
                            payload->layout() == Payload::Layout::Regular ? kRegular : kOther));
    return;
  }
  if (impl->dim() != 0 || impl->layout() != c10::kStrided) {
    is_known_ = false;
    return;
  }
  const auto type = static_cast<std::uint64_t>(tensor.scalar_type());
  words_.push_back(tagged(type << 1U | (impl->is_wrapped_number() ? 1U : 0U), kPlain));
}

void CallKey::add_count(std::size_t members) { words_.push_back(tagged(members, kList)); }
void CallKey::add_flag(bool value) { words_.push_back(tagged(value ? 1 : 0, kBool)); }
void CallKey::add_none() { words_.push_back(kNone); }

void CallKey::add_integer(std::int64_t value) {
  words_.push_back(kInt);
  words_.push_back(static_cast<std::uint64_t>(value));
}

void CallKey::add_scalar(const at::Scalar& value) {
  words_.push_back(tagged(static_cast<std::uint64_t>(value.type()), kDouble));
}

void CallKey::add_value(const c10::IValue& value) {
  if (value.isInt()) {
    add_integer(value.toInt());
  } else if (value.isBool()) {
    add_flag(value.toBool());
  } else if (value.isNone()) {
    add_none();
  } else if (value.isList()) {
    add_count(value.toListRef().size());
    for (const c10::IValue& member : value.toListRef()) add_value(member);
  } else if (value.isString()) {
    words_.push_back(tagged(value.toStringRef().size(), kText));
    for (char c : value.toStringRef()) words_.push_back(static_cast<unsigned char>(c));
  } else if (value.isDevice()) {
    words_.push_back(kInt);
    words_.push_back(static_cast<std::uint64_t>(value.toDevice().type()));
  } else {
    is_known_ = false;
  }
}

void CallKey::add_type(const c10::IValue& value) {
  if (value.isDouble()) {
    words_.push_back(kDouble);
  } else if (value.isInt()) {
    words_.push_back(kInt);
  } else if (value.isBool()) {
    words_.push_back(kBool);
  } else if (value.isComplexDouble()) {
    words_.push_back(kComplex);
  } else if (value.isNone()) {
    words_.push_back(kNone);
  } else if (value.isList()) {
    words_.push_back(tagged(value.toListRef().size(), kList));
  } else {
    is_known_ = false;
  }
}

std::size_t Decisions::Hash::operator()(std::span<const std::uint64_t> words) const {
  Hasher hasher;
  for (std::uint64_t word : words) hasher.add(word);
  return hasher.result();
}

bool Decisions::Equal::operator()(std::span<const std::uint64_t> a,
                                  std::span<const std::uint64_t> b) const {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

void Decisions::forget_if_rules_changed() {
  const std::uint64_t version = rule_table().version();
  if (version == rules_version_) return;
  tables_.clear();
  rules_version_ = version;
}

std::shared_ptr<const Decision> Decisions::find(std::size_t op, const CallKey& key) {
  const std::lock_guard lock(mutex_);
  forget_if_rules_changed();
  if (op >= tables_.size()) return nullptr;
  const Table& table = tables_[op];
  const auto found = table.find(key.words());
  return found == table.end() ? nullptr : found->second.decision;
}

void Decisions::remember(std::size_t op, const CallKey& key,
                         std::shared_ptr<const Decision> decision) {
  const std::lock_guard lock(mutex_);
  forget_if_rules_changed();
  if (op >= tables_.size()) tables_.resize(op + 1);
  Table& table = tables_[op];
  if (table.size() >= kMostPerOp) table.clear();
  const std::span<const std::uint64_t> words = key.words();
  Entry entry{std::move(decision), {}};
  for (const DTensorSpec* spec : key.specs()) entry.specs.push_back(*spec);
  table.insert_or_assign(std::vector<std::uint64_t>(words.begin(), words.end()), std::move(entry));
}

void Decisions::forget() {
  const std::lock_guard lock(mutex_);
  tables_.clear();
}

}  // namespace tegula
