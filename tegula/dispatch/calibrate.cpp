// The idea: an all-gather of a few bytes gives the latency of an axis, one of some MiB its
// bandwidth; the slowest rank counts. What the first rank has measured or read travels to all
// others, so that equal models are a matter of course.
#include "tegula/dispatch/calibrate.h"

#include <ATen/ATen.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iomanip>
#include <limits>
#include <sstream>

#include "tegula/dispatch/decision_cache.h"
#include "tegula/payload/local_call.h"
#include "tegula/plan/redistribute_planner.h"

namespace tegula {

using namespace inner;

namespace {

constexpr std::int64_t kFew = 16;                      // floats
constexpr std::int64_t kMany = std::int64_t{2} << 20;  // floats: 8 MiB
constexpr const char* kHeading = "tegula costs 1";

// Microseconds, the least of several runs.
double time_of(int runs, const std::function<void()>& body) {
  double best = 1e12;
  for (int run = 0; run <= runs; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    body();
    const std::chrono::duration<double, std::micro> spent =
        std::chrono::steady_clock::now() - begin;
    if (run > 0) best = std::min(best, spent.count());
  }
  return std::max(best, 0.01);
}

double gigabytes_per_second(std::int64_t bytes, double microseconds) {
  return static_cast<double>(bytes) / microseconds / 1000;
}

// Numbers of a model: the copy's bandwidth, then latency and bandwidth per axis.
using Figures = std::vector<double>;

double copy_bandwidth() {
  const at::Tensor from = at::zeros({kMany}, at::kFloat);
  const at::Tensor to = at::empty_like(from);
  return gigabytes_per_second(kMany * 4, time_of(5, [&] { to.copy_(from); }));
}

LinkCost cost_along(const Group& group) {
  const at::Tensor few = at::zeros({kFew}, at::kFloat);
  const at::Tensor many = at::zeros({kMany}, at::kFloat);
  const double latency = time_of(200, [&] { group.all_gather(few, 0); });
  const double long_time = time_of(5, [&] { group.all_gather(many, 0); });
  const std::int64_t sent = kMany * 4 * (group.size() - 1);
  return {latency, gigabytes_per_second(sent, std::max(long_time - latency, 0.01))};
}

Figures measured(const World& world, const DeviceMesh& mesh) {
  Figures figures{copy_bandwidth()};
  for (std::size_t axis = 0; axis < mesh.ndim(); ++axis) {
    LinkCost cost;
    if (mesh.axes()[axis].size > 1) cost = cost_along(world.group(mesh, axis));
    figures.push_back(cost.latency_us);
    figures.push_back(cost.gb_per_s);
  }
  return figures;
}

CostModel model_of(const Figures& figures, const DeviceMesh& mesh) {
  std::map<std::string, LinkCost> by_axis;
  LinkCost usual;
  for (std::size_t axis = 0; axis < mesh.ndim(); ++axis) {
    usual = {figures[1 + 2 * axis], figures[2 + 2 * axis]};
    by_axis[mesh.axes()[axis].name] = usual;
  }
  return CostModel::calibrated(usual, figures[0], by_axis);
}

// The first rank's figures on all ranks: along one axis after the other.
Figures from_first_rank(const Figures& mine, const World& world, const DeviceMesh& mesh) {
  at::Tensor sent = at::tensor(at::ArrayRef<double>(mine), at::kDouble);
  for (std::size_t axis = 0; axis < mesh.ndim(); ++axis) {
    if (mesh.axes()[axis].size > 1) sent = world.group(mesh, axis).broadcast(sent, 0);
  }
  return {sent.const_data_ptr<double>(), sent.const_data_ptr<double>() + sent.numel()};
}

// A file with figures of several meshes, one per line: "dp=2, tp=4: 8.1 3.2 5.0 ...".
std::string label_of(const DeviceMesh& mesh) {
  std::string label;
  for (const MeshAxis& axis : mesh.axes()) {
    label += (label.empty() ? "" : ", ") + axis.name + "=" + std::to_string(axis.size) +
             (axis.backend.name.empty() ? "" : "@" + axis.backend.name);
  }
  return label;
}

Figures kept_figures(const DeviceMesh& mesh) {
  std::ifstream file(costs_file());
  std::string line;
  if (!file || !std::getline(file, line) || line != kHeading) return {};
  while (std::getline(file, line)) {
    const std::size_t colon = line.rfind(':');
    if (colon == std::string::npos || line.substr(0, colon) != label_of(mesh)) continue;
    std::istringstream numbers(line.substr(colon + 1));
    Figures figures;
    for (double number = 0; numbers >> number;) figures.push_back(number);
    const bool is_sound = std::all_of(figures.begin(), figures.end(),
                                      [](double number) { return number > 0 && number < 1e9; });
    if (is_sound && figures.size() == 1 + 2 * mesh.ndim()) return figures;
  }
  return {};
}

// Beside the figures of other meshes; written elsewhere first, so that readers never see half a
// file. It does not matter if there is no room for it.
void keep_figures(const DeviceMesh& mesh, const Figures& figures) {
  const std::filesystem::path path = costs_file();
  if (path.empty()) return;
  std::ostringstream text;
  text << kHeading << '\n';
  std::ifstream file(path);
  std::string line;
  if (file && std::getline(file, line) && line == kHeading) {
    while (std::getline(file, line)) {
      if (!line.starts_with(label_of(mesh) + ":")) text << line << '\n';
    }
  }
  // all digits: what is read back is the model that was measured
  text << std::setprecision(std::numeric_limits<double>::max_digits10) << label_of(mesh) << ':';
  for (double number : figures) text << ' ' << number;
  text << '\n';
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  const std::filesystem::path fresh = path.string() + "." + std::to_string(getpid());
  std::ofstream(fresh) << text.str();
  std::filesystem::rename(fresh, path, ignored);
}

bool is_first(const World& world, const DeviceMesh& mesh) {
  const std::optional<Coordinate> at = mesh.coordinate_of(world.rank());
  return at && std::all_of(at->begin(), at->end(), [](std::int64_t place) { return place == 0; });
}

}  // namespace

std::filesystem::path costs_file() {
  if (const char* given = std::getenv("TEGULA_COSTS")) return given;
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const std::string name = "costs-" + std::string(host.data());
  if (const char* cache = std::getenv("XDG_CACHE_HOME")) {
    return std::filesystem::path(cache) / "tegula" / name;
  }
  if (const char* home = std::getenv("HOME")) {
    return std::filesystem::path(home) / ".cache" / "tegula" / name;
  }
  return {};
}

CostModel measure_costs(const World& world, const DeviceMesh& mesh) {
  const BelowAutograd below;
  if (!mesh.coordinate_of(world.rank())) return {};
  return model_of(from_first_rank(measured(world, mesh), world, mesh), mesh);
}

CostModel use_measured_costs(const World& world, const DeviceMesh& mesh) {
  const BelowAutograd below;
  if (!mesh.coordinate_of(world.rank())) return {};
  // all zeros: nothing kept
  Figures figures(1 + 2 * mesh.ndim(), 0);
  if (is_first(world, mesh)) {
    if (const Figures kept = kept_figures(mesh); !kept.empty()) figures = kept;
  }
  figures = from_first_rank(figures, world, mesh);
  if (figures.front() == 0) {
    figures = from_first_rank(measured(world, mesh), world, mesh);
    if (is_first(world, mesh)) keep_figures(mesh, figures);
  }
  const CostModel model = model_of(figures, mesh);
  world.part<RedistributePlanner>().set_cost_model(model);
  world.part<DecisionCache>().forget();
  return model;
}

}  // namespace tegula
