// Arguments are asked for by kind; a rule that asks for another kind than the op has is our bug.
#include "tegula/rules/op_schema.h"

#include "tegula/base/error.h"
#include "tegula/base/text.h"

namespace tegula {
namespace {

template <class Kind>
const Kind& expect(const OpSchema& schema, std::size_t argument) {
  if (argument < schema.arguments.size()) {
    if (const Kind* value = std::get_if<Kind>(&schema.arguments[argument])) return *value;
  }
  throw InternalError("a rule reads an argument as another kind of value than it is")
      .fact("op", schema.op)
      .fact("argument", std::to_string(argument));
}

}  // namespace

bool OpSchema::is_none(std::size_t argument) const {
  return argument >= arguments.size() ||
         std::holds_alternative<argument::None>(arguments[argument]);
}

std::size_t OpSchema::tensor(std::size_t argument) const {
  return expect<argument::Tensor>(*this, argument).index;
}

argument::TensorList OpSchema::list(std::size_t argument) const {
  return expect<argument::TensorList>(*this, argument);
}

bool OpSchema::flag(std::size_t argument) const { return expect<bool>(*this, argument); }

std::int64_t OpSchema::integer(std::size_t argument) const {
  return expect<std::int64_t>(*this, argument);
}

const Ints& OpSchema::ints(std::size_t argument) const { return expect<Ints>(*this, argument); }

const std::string& OpSchema::text(std::size_t argument) const {
  return expect<argument::Text>(*this, argument).text;
}

std::string to_string(const OpSchema& schema) {
  std::vector<std::string> tensors;
  for (const auto& spec : schema.tensors) {
    tensors.push_back(spec ? to_string(spec->meta()) + " as " + to_string(spec->placements())
                           : "none");
  }
  return schema.op + "(" + join(tensors) + ")";
}

}  // namespace tegula
