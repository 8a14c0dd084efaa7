#include "tegula/base/sentence.h"

#include "tegula/base/error.h"

namespace tegula::inner {

std::string sentence_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return known.sentence();
  } catch (const std::exception& other) {
    const std::string text = other.what();
    return text.substr(0, text.find('\n'));
  } catch (...) {
    return "something that is no exception was thrown";
  }
}

}  // namespace tegula::inner
