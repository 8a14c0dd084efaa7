#include "tegula/rules/rule_text.h"

#include <string>

#include "tegula/base/error.h"

namespace tegula {

RuleForm parse_rule(std::string_view text) {
  try {
    return inner::rule_text::Reader(text).read();
  } catch (const char* sentence) {  // what the compiler would say
    throw UsageError(sentence)
        .fact("rule", std::string(text))
        .hint("for example \"mk * kn -> mn\"; rules/rule_text.h says what a rule may be");
  }
}

}  // namespace tegula
