#include "tegula/comm/group_state.h"

#include "tegula/comm/lane.h"

namespace tegula::inner::comm {

GroupState::Carrier& GroupState::carrier() {
  const std::string& lane = Lane::current();
  Carrier* const main = lane.empty() ? main_.load(std::memory_order_acquire) : nullptr;
  return main != nullptr ? *main : new_carrier(lane);
}

bool GroupState::has_engine() {
  const std::string& lane = Lane::current();
  if (lane.empty()) return main_.load(std::memory_order_acquire) != nullptr;
  const std::lock_guard<std::mutex> lock(mutex_);
  return carriers_.contains(lane);
}

GroupState::Carrier& GroupState::new_carrier(const std::string& lane) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<Carrier>& place = carriers_[lane];
  if (!place) {
    if (!make_engine) {
      throw CommError("the world of this group is gone")
          .fact("group", name)
          .hint("keep the World as long as its groups are used");
    }
    auto made = std::make_unique<Carrier>();
    made->engine = make_engine(lane, timeout);
    place = std::move(made);
    if (lane.empty()) main_.store(place.get(), std::memory_order_release);
  }
  return *place;
}

std::vector<std::shared_ptr<Engine>> GroupState::engines() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<Engine>> all;
  for (const auto& [lane, carrier] : carriers_) {
    if (carrier) all.push_back(carrier->engine);
  }
  return all;
}

void GroupState::retire_engines(const CommError& error) {
  for (const std::shared_ptr<Engine>& engine : engines()) engine->abort(error);
  std::map<std::string, std::unique_ptr<Carrier>> retired;
  const std::lock_guard<std::mutex> lock(mutex_);
  main_.store(nullptr, std::memory_order_release);
  retired.swap(carriers_);
}

}  // namespace tegula::inner::comm
