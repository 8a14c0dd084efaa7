#include "tegula/comm/shm/store.h"

#include <c10/util/Exception.h>

namespace tegula::inner::shm {
namespace {

std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }
std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

BoardStore::BoardStore(std::shared_ptr<Board> board, std::string prefix, std::vector<int> members,
                       std::uint32_t epoch)
    : board_(std::move(board)),
      prefix_(std::move(prefix)),
      members_(std::move(members)),
      epoch_(epoch) {}

c10::intrusive_ptr<c10d::Store> BoardStore::clone() {
  return c10::make_intrusive<BoardStore>(board_, prefix_, members_, epoch_);
}

void BoardStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  board_->set(prefix_ + key, text_of(value));
}

std::vector<uint8_t> BoardStore::compareSet(const std::string& key,
                                            const std::vector<uint8_t>& expected,
                                            const std::vector<uint8_t>& desired) {
  return bytes_of(board_->compare_set(prefix_ + key, text_of(expected), text_of(desired)));
}

std::vector<uint8_t> BoardStore::get(const std::string& key) {
  wait({key}, timeout_);
  return bytes_of(board_->get(prefix_ + key).value_or(""));
}

int64_t BoardStore::add(const std::string& key, int64_t value) {
  return board_->add(prefix_ + key, value);
}
bool BoardStore::deleteKey(const std::string& key) { return board_->remove(prefix_ + key); }
int64_t BoardStore::getNumKeys() { return board_->key_count(); }

bool BoardStore::check(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    if (!board_->get(prefix_ + key)) return false;
  }
  return true;
}

void BoardStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

// Ends early if the world is broken or has lost a member, who may be the one to set the key.
void BoardStore::wait(const std::vector<std::string>& keys,
                      const std::chrono::milliseconds& timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    const std::uint32_t seen = board_->version();
    if (check(keys)) return;
    if (board_->fault(epoch_).raised()) throw board_->fault(epoch_).error();
    for (int rank : members_) {
      if (rank == board_->joined_as()) continue;
      const Presence presence = board_->presence(rank);
      const bool is_gone = presence == Presence::Dead || presence == Presence::Left;
      // asked again: it may have set the key and left since
      TORCH_CHECK(!is_gone || check(keys), "rank ", rank, " of this host ",
                  presence == Presence::Dead ? "died" : "left");
    }
    TORCH_CHECK(timeout == kNoTimeout || std::chrono::steady_clock::now() < deadline,
                "timed out waiting for a key of another rank: ", keys.front());
    board_->wait_for_change(seen, std::chrono::milliseconds(20));
  }
}

}  // namespace tegula::inner::shm
