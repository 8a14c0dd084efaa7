#include "tegula/comm/shm/offer.h"

#include "tegula/comm/shm/rounds.h"

namespace tegula::inner::shm {

using comm::Region;

Offer::Offer(Channel& channel, std::span<const Region> to) : channel_(channel), to_(to) {
  Bytes bytes = 0;
  for (const Region& region : to) bytes += region.bytes();
  // Smaller results are in no block: no need to look.
  const bool may_be_in_blocks = channel.blocks() != nullptr && bytes >= kWorthOffering;
  Destination* destination = channel.my_destinations();
  for (const Region& region : to) {
    *destination = {{}, region.run, region.stride, region.runs};
    if (may_be_in_blocks && region.bytes() > 0) {
      destination->spot = channel.blocks()->spot_of(region.base).value_or(Spot{});
      is_open_ = is_open_ || destination->spot.block != 0;
    }
    ++destination;
  }
}

Offer::~Offer() {
  if (!is_open_) return;
  for (const Region& region : to_) channel_.blocks()->retire(region.base);
}

bool Offer::is_mutual() {
  const int n = channel_.size();
  for (int member = 0; member < n; ++member) {
    for (int from = 0; from < n; ++from) {
      const Destination& wanted = channel_.destinations_of(member)[from];
      if (wanted.spot.block == 0 && wanted.run * wanted.runs > 0) {
        is_open_ = false;
        return false;
      }
    }
  }
  for (int member = 0; member < n; ++member) {
    const Destination& wanted = channel_.destinations_of(member)[channel_.index()];
    Region place{nullptr, wanted.run, wanted.stride, wanted.runs};
    if (member == channel_.index()) {
      place = to_[static_cast<std::size_t>(member)];
    } else if (wanted.spot.block != 0) {
      areas_.push_back(channel_.blocks()->map(wanted.spot));
      place.base = areas_.back()->memory + wanted.spot.offset;
    }
    places_.push_back(place);
  }
  return true;
}

void Offer::close() {
  channel_.meet();
  channel_.advance();
  is_open_ = false;
}

}  // namespace tegula::inner::shm
