#include "tegula/base/exception_text.h"

#include "tegula/base/error.h"

namespace tegula::inner {

std::string sentence_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return error.sentence();
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return text.substr(0, text.find('\n'));
  } catch (...) {
    return "something that is no exception was thrown";
  }
}

}  // namespace tegula::inner
