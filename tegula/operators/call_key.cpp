// The idea: every value is one word or a few, and the first says what follows, so that no two lists
// of arguments give the same words.
#include "tegula/operators/call_key.h"

#include <ATen/ATen.h>
#include <c10/core/AutogradState.h>

#include "tegula/payload/guards.h"
#include "tegula/payload/payload.h"

namespace tegula::inner {
namespace {

// What a word, or the words after it, stand for.
enum Tag : std::uint64_t {
  kUndefined,
  kPlainNumber,
  kPlain,
  kRegular,
  kOther,
  kLink,
  kNone,
  kBool,
  kInt,
  kList,
  kNumber,
  kText,
  kGenerator,
  kPolicies,
  kRow,
};

std::uint64_t tagged(std::uint64_t value, Tag tag) { return value << 4U | tag; }

Tag tag_of(const Payload& payload) {
  if (payload.link() != nullptr) return kLink;
  switch (payload.layout()) {
    case Payload::Layout::Regular:
      return kRegular;
    case Payload::Layout::Other:
      return kOther;
  }
  return kOther;
}

std::uint64_t modes() {
  const c10::AutogradState& state = c10::AutogradState::get_tls_state();
  return static_cast<std::uint64_t>(c10::get_default_dtype_as_scalartype()) << 2U |
         (state.get_grad_mode() ? 2U : 0U) | (state.get_inference_mode() ? 1U : 0U);
}

}  // namespace

CallKey::CallKey() { words_.push_back(modes()); }

CallKey::CallKey(const OpFacts& facts, Arguments arguments) : CallKey() {
  for (std::size_t index = 0; index < facts.kinds.size() && is_known_; ++index) {
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
  const Payload* payload = payload_in(tensor);
  if (payload == nullptr) {
    add_plain(tensor);
    return;
  }
  if (world_ == nullptr) {
    world_ = &payload->world();
  } else if (!(*world_ == payload->world())) {
    is_known_ = false;
    return;
  }
  const c10::DispatchKeySet keys = tensor.key_set();
  const std::uint64_t bits = (keys.has(c10::DispatchKey::Conjugate) ? 2U : 0U) |
                             (keys.has(c10::DispatchKey::Negative) ? 1U : 0U);
  words_.push_back(tagged(payload->spec().id() << 2U | bits, tag_of(*payload)));
  if (const Link* link = payload->link(); link != nullptr && link->is_row()) {
    // what is written to it is written to tiles of its base
    words_.push_back(tagged(link->base->spec().id(), kRow));
    words_.push_back(static_cast<std::uint64_t>(link->row->dim));
  }
  if (payload->policies()) words_.push_back(tagged(payload->policies()->id, kPolicies));
}

void CallKey::add_plain(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const auto type = static_cast<std::uint64_t>(tensor.scalar_type());
  if (impl->layout() != c10::kStrided || impl->key_set().has(c10::DispatchKey::PrivateUse3)) {
    is_known_ = false;
  } else if (impl->dim() == 0) {
    has_plain_tensor_ = has_plain_tensor_ || !impl->is_wrapped_number();
    words_.push_back(tagged(type << 1U | (impl->is_wrapped_number() ? 1U : 0U), kPlainNumber));
  } else if (!ImplicitReplication::is_on() && !is_small_plain(tensor)) {
    is_known_ = false;
  } else {
    has_plain_tensor_ = true;
    words_.push_back(tagged(type << 8U | static_cast<std::uint64_t>(impl->dim()), kPlain));
    for (const std::int64_t size : tensor.sizes())
      words_.push_back(static_cast<std::uint64_t>(size));
    for (const std::int64_t one : tensor.strides())
      words_.push_back(static_cast<std::uint64_t>(one));
  }
}

void CallKey::add_count(std::size_t members) { words_.push_back(tagged(members, kList)); }
void CallKey::add_flag(bool value) { words_.push_back(tagged(value ? 1 : 0, kBool)); }
void CallKey::add_none() { words_.push_back(kNone); }

void CallKey::add_integer(std::int64_t value) {
  words_.push_back(kInt);
  words_.push_back(static_cast<std::uint64_t>(value));
}

void CallKey::add_text(std::string_view text) {
  words_.push_back(tagged(text.size(), kText));
  for (const char c : text) words_.push_back(static_cast<unsigned char>(c));
}

void CallKey::add_number(at::ScalarType type) {
  words_.push_back(tagged(static_cast<std::uint64_t>(type), kNumber));
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
    add_text(value.toStringView());
  } else if (value.isDevice()) {
    add_integer(static_cast<std::int64_t>(value.toDevice().type()));
  } else {
    give_up();
  }
}

void CallKey::add_type(const c10::IValue& value) {
  if (value.isDouble()) {
    add_number(at::kDouble);
  } else if (value.isInt()) {
    add_number(at::kLong);
  } else if (value.isBool()) {
    add_number(at::kBool);
  } else if (value.isComplexDouble()) {
    add_number(at::kComplexDouble);
  } else if (value.isNone()) {
    add_none();
  } else if (value.isList()) {
    add_count(value.toListRef().size());
  } else if (value.isGenerator()) {
    words_.push_back(kGenerator);
  } else {
    give_up();
  }
}

}  // namespace tegula::inner
