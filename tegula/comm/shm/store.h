// A board's table of keys as a c10d::Store, by which other engines' groups find each other on one
// host without a server.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>
#include <string>
#include <vector>

#include "tegula/comm/shm/board.h"

namespace tegula::inner::shm {

// Newer libtorch asks a store for clone(); where it does not, the base here does.
template <class Store>
concept HasClone = requires(Store& store) { store.clone(); };

template <class Store>
struct ClonedStore : Store {
  virtual c10::intrusive_ptr<c10d::Store> clone() = 0;
};
template <HasClone Store>
struct ClonedStore<Store> : Store {};

class BoardStore final : public ClonedStore<c10d::Store> {
 public:
  // Keys are kept apart from others' by the prefix. `members` are the ranks on the board that set
  // them: a wait ends with an error if one of these is gone, or with the epoch's fault.
  BoardStore(std::shared_ptr<Board> board, std::string prefix, std::vector<int> members,
             std::uint32_t epoch);

  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

 private:
  std::shared_ptr<Board> board_;
  std::string prefix_;
  std::vector<int> members_;
  std::uint32_t epoch_;
};

}  // namespace tegula::inner::shm
