// Errors: one sentence, the facts, a hint.
//
//   tegula: cannot shard dim 3 of a tensor with 2 dims
//     spec    f32[8, 6] on (tp=4) as [S(3)]
//     hint    dims are 0 ... 1, or -2 ... -1 from the end
//
// Three families, by what the caller should do: UsageError (fix the call), CommError (a peer or a
// link failed), InternalError (a bug in Tegula; please report it). Throw one like this:
//
//   throw UsageError("cannot ...").fact("spec", spec).hint("...");
#pragma once

#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace tegula {

class Error : public std::exception {
 public:
  explicit Error(std::string sentence);

  // The whole message, as shown above.
  const char* what() const noexcept override { return message_.c_str(); }

  const std::string& sentence() const { return sentence_; }
  const std::vector<std::pair<std::string, std::string>>& facts() const { return facts_; }
  const std::string& hint() const { return hint_; }

 protected:
  void add_fact(std::string name, std::string value);
  void set_hint(std::string text);

 private:
  void compose();

  std::string sentence_;
  std::vector<std::pair<std::string, std::string>> facts_;
  std::string hint_;
  std::string message_;
};

// Lets `throw Family("...").fact(...).hint(...)` throw a Family, not a sliced Error.
template <class Family>
class ErrorFamily : public Error {
 public:
  using Error::Error;
  using Error::hint;

  Family&& fact(std::string name, std::string value) && {
    add_fact(std::move(name), std::move(value));
    return static_cast<Family&&>(*this);
  }
  Family&& hint(std::string text) && {
    set_hint(std::move(text));
    return static_cast<Family&&>(*this);
  }
};

class UsageError final : public ErrorFamily<UsageError> {
 public:
  using ErrorFamily::ErrorFamily;
};

class CommError final : public ErrorFamily<CommError> {
 public:
  using ErrorFamily::ErrorFamily;
};

class InternalError final : public ErrorFamily<InternalError> {
 public:
  using ErrorFamily::ErrorFamily;
};

}  // namespace tegula
