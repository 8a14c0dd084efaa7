// Meshes over a world's ranks. A mesh is a value and makes no connections; a group along one of its
// axes is made when it is first asked for, by its members alone.
#include <c10/core/Device.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <charconv>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/comm/world_state.h"

namespace tegula {

using namespace inner;

namespace {

void check_fits(const DeviceMesh& mesh, const World& world) {
  for (std::int64_t rank : mesh.ranks()) {
    if (rank < world.size()) continue;
    throw UsageError("the world has no rank " + std::to_string(rank) + " for this mesh")
        .fact("mesh", to_string(mesh))
        .fact("world", counted(world.size(), "rank", "ranks"))
        .hint("start more ranks, or make the mesh smaller");
  }
}

// A name that libtorch knows, of a device that it was built for and that is there.
bool has_device(const std::string& name) {
  try {
    const c10::DeviceType type = c10::Device(name).type();
    return c10::impl::hasDeviceGuardImpl(type) &&
           c10::impl::getDeviceGuardImpl(type)->deviceCount() > 0;
  } catch (const c10::Error&) {
    return false;
  }
}

void check_device(const DeviceMesh& mesh, const comm::WorldState& world) {
  const std::string& device = mesh.device_type();
  if (device == "cpu") return;
  if (device == "meta") {
    if (world.board == nullptr) return;
    throw UsageError("a mesh of \"meta\" has shapes only, and this world's ranks are real")
        .fact("mesh", to_string(mesh))
        .hint("make the world by World::fake(size)");
  }
  if (has_device(device)) return;
  throw UsageError("this libtorch has no device " + in_quotes(device))
      .fact("mesh", to_string(mesh))
      .hint("make the mesh of \"cpu\", or use a libtorch and a host that have the device");
}

std::chrono::milliseconds seconds_in(const std::string& text, const MeshAxis& axis) {
  constexpr std::int64_t kMost = 1'000'000'000;  // 30 years; clocks count nanoseconds in 63 bits
  std::int64_t seconds = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (code == std::errc() && end == text.data() + text.size() && seconds > 0 && seconds <= kMost) {
    return std::chrono::seconds(seconds);
  }
  throw UsageError("axis " + in_quotes(axis.name) +
                   " asks for a timeout that is no number of seconds")
      .fact("timeout", text)
      .hint("write it as a whole number, at most " + std::to_string(kMost) + ": " + axis.name +
            "=" + std::to_string(axis.size) + "@gloo{timeout=30}");
}

GroupOptions options_of(const DeviceMesh& mesh, std::size_t index) {
  const MeshAxis& axis = mesh.axes()[index];
  GroupOptions options{axis.name + " of " + to_string(mesh), axis.backend.name, std::nullopt};
  for (const auto& [key, value] : axis.backend.options) {
    if (key != "timeout") {
      throw UsageError("axis " + in_quotes(axis.name) +
                       " asks for an option that no backend has: " + in_quotes(key))
          .fact("mesh", to_string(mesh))
          .hint("the options are: timeout");
    }
    options.timeout = seconds_in(value, axis);
  }
  return options;
}

std::vector<int> members_of(const DeviceMesh& mesh, std::size_t axis, int rank) {
  const std::optional<std::vector<std::int64_t>> members = mesh.group_of(rank, axis);
  if (members) return {members->begin(), members->end()};
  throw UsageError("rank " + std::to_string(rank) +
                   " is not in the mesh and has no group along its axes")
      .fact("mesh", to_string(mesh))
      .hint("ask mesh.coordinate_of(world.rank()) first");
}

}  // namespace

DeviceMesh World::mesh(std::vector<MeshAxis> axes, std::vector<std::int64_t> ranks) const {
  return mesh(DeviceMesh(std::move(axes), std::move(ranks)));
}

DeviceMesh World::mesh(const DeviceMesh& mesh) const {
  check_fits(mesh, *this);
  check_device(mesh, state());
  return mesh.with_owner(head_);
}

World World::of(const DeviceMesh& mesh) {
  if (!mesh.owner()) {
    throw UsageError("the mesh belongs to no world, so nobody knows which rank is asking")
        .fact("mesh", to_string(mesh))
        .hint("make it with world.mesh(...)");
  }
  return World(std::static_pointer_cast<comm::WorldHead>(mesh.owner()));
}

Group World::group(const DeviceMesh& mesh, std::string_view axis) const {
  return group(mesh, mesh.axis_index(axis));
}

Group World::group(const DeviceMesh& mesh, std::size_t axis) const {
  comm::KnownMesh* known = state().meshes.find_or_add(mesh);
  if (known != nullptr && axis < known->groups.size()) {
    const auto* made = known->groups[axis].load(std::memory_order_acquire);
    if (made != nullptr && (*made)->has_engine()) return Group(*made);
  }
  const std::vector<int> members = members_of(mesh, axis, rank());
  const std::shared_ptr<comm::GroupState>* group =
      comm::find_or_make_group(state(), members, options_of(mesh, axis), mesh.axes()[axis].name);
  if (known != nullptr) known->groups[axis].store(group, std::memory_order_release);
  return Group(*group);
}

}  // namespace tegula
