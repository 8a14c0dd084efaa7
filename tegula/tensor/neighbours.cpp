// The idea: ghost cells are intervals of a dim that a rank wants (redistribute/dim_exchange.h), one
// dim after the other, so that what is fetched along the first is there to be fetched along the
// second: corners need no neighbours of their own.
#include "tegula/tensor/neighbours.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <set>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/comm/comm_log.h"
#include "tegula/gradient/differentiable.h"
#include "tegula/operators/call.h"
#include "tegula/redistribute/dim_exchange.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula {

using namespace inner;

namespace {

const Payload& payload_here(const at::Tensor& x, const char* function) {
  const Payload* payload = payload_in(x);
  if (!payload) {
    throw UsageError(std::string(function) + " needs a DTensor")
        .fact("tensor", described(x))
        .hint("make one with distribute_tensor or from_local");
  }
  if (!payload->coordinate()) {
    throw UsageError(std::string(function) + " is for the ranks of the mesh")
        .fact("tensor", to_string(payload->spec()))
        .fact("rank", std::to_string(payload->world().rank()))
        .hint("ask mesh.coordinate_of(world.rank()) first");
  }
  return *payload;
}

// So that sizes with their ghost cells, and the bytes of these, can be counted.
constexpr std::int64_t kWidest = std::int64_t{1} << 48;

// Dims, counted from the front.
std::vector<std::int64_t> checked_dims(const at::Tensor& x, std::vector<std::int64_t> dims,
                                       const std::vector<HaloWidth>& widths) {
  std::set<std::int64_t> seen;
  bool is_right = dims.size() == widths.size();
  for (std::int64_t& dim : dims) {
    const bool exists = dim >= -x.dim() && dim < x.dim();
    if (dim < 0) dim += x.dim();
    is_right = is_right && exists && seen.insert(dim).second;
  }
  for (const HaloWidth& width : widths) {
    is_right = is_right && std::min(width.before, width.after) >= 0 &&
               std::max(width.before, width.after) <= kWidest;
  }
  if (is_right) return dims;
  throw UsageError("halo needs different dims of the tensor, and two widths for each")
      .fact("tensor", described(x))
      .fact("dims", bracketed(dims))
      .fact("widths", std::to_string(widths.size()))
      .hint(
          "halo(x, {0, 1}, {{1, 1}, {2, 0}}, boundary): 1 cell on both sides of dim 0, 2 before "
          "dim 1");
}

void check_can_fill(const DTensorSpec& spec, std::int64_t dim, const HaloWidth& width,
                    Boundary boundary) {
  const DimCut& cut = spec.dim_cuts()[static_cast<std::size_t>(dim)];
  if (cut.most_intervals() > 1) {
    throw UsageError("halo needs tiles that are one run of cells")
        .fact("tensor", to_string(spec))
        .fact("dim", std::to_string(dim))
        .hint("redistribute to an even cut of the dim first");
  }
  if (can_continue({-width.before, cut.size() + width.before + width.after}, cut.size(),
                   boundary)) {
    return;
  }
  throw UsageError("the tensor is too small for ghost cells of this kind")
      .fact("tensor", to_string(spec))
      .fact("dim", std::to_string(dim))
      .fact("widths",
            std::to_string(width.before) + " before, " + std::to_string(width.after) + " after")
      .hint("Reflect needs widths below the dim's size, Periodic and Nearest a dim with elements");
}

DimExchange ghost_cells(const Payload& payload, std::int64_t dim, const HaloWidth& width,
                        Boundary boundary) {
  check_can_fill(payload.spec(), dim, width, boundary);
  const DimCut& cut = payload.spec().dim_cuts()[static_cast<std::size_t>(dim)];
  return {payload.world(), payload.spec(), dim, [&](const Coordinate& at) {
            const Interval own = cut.intervals(at).front();
            return continued({own.begin - width.before, own.size + width.before + width.after},
                             cut.size(), boundary);
          }};
}

void check_lists(const at::Tensor& rows, const Group& group,
                 const std::vector<at::Tensor>& send_lists) {
  if (payload_in(rows) || rows.dim() == 0) {
    throw UsageError("exchange sends rows of a plain tensor")
        .fact("tensor", described(rows))
        .hint("exchange(x, send_lists) sends those of a DTensor's tile");
  }
  bool is_right = static_cast<int>(send_lists.size()) == group.size();
  for (const at::Tensor& list : send_lists) {
    if (!list.defined()) continue;
    is_right = is_right && !payload_in(list) && list.dim() == 1 && list.scalar_type() == at::kLong;
    is_right = is_right && (list.numel() == 0 || (list.min().item<std::int64_t>() >= 0 &&
                                                  list.max().item<std::int64_t>() < rows.size(0)));
  }
  if (is_right) return;
  throw UsageError("exchange needs a list of rows for each rank of the group")
      .fact("rows", std::to_string(rows.size(0)))
      .fact("ranks", std::to_string(group.size()))
      .fact("lists", std::to_string(send_lists.size()))
      .hint("a list is an int64 tensor with one dim; its numbers are rows, from 0 on");
}

Group group_that_cuts_rows(const Payload& payload) {
  const DTensorSpec& spec = payload.spec();
  if (spec.ndim() == 0 || !spec.dim_cuts()[0].is_cut() || payload.link()) {
    throw UsageError("exchange needs a tensor whose dim 0 is cut")
        .fact("tensor", to_string(spec))
        .hint("exchange(to_local(x), group, send_lists) sends rows among any ranks");
  }
  return group_along(payload.world(), spec.mesh(), spec.dim_cuts()[0]);
}

}  // namespace

at::Tensor halo(const at::Tensor& x, const std::vector<std::int64_t>& dims,
                const std::vector<HaloWidth>& widths, Boundary boundary) {
  const DTensorSpec spec = with_reductions_done(payload_here(x, "halo").spec());
  const std::vector<std::int64_t> counted = checked_dims(x, dims, widths);
  const CommLabel label("halo");
  const at::Tensor paid = move_to(x, spec, CallMode::Sync, {});
  const PayloadPtr payload = payload_of(paid);
  const auto exchanges = std::make_shared<std::vector<DimExchange>>();
  for (std::size_t k = 0; k < counted.size(); ++k) {
    exchanges->push_back(ghost_cells(*payload, counted[k], widths[k], boundary));
  }
  const at::Tensor tile = unwrap_tile(paid, payload->spec());
  return apply_linear(
      tile,
      [exchanges](const at::Tensor& own) {
        const CommLabel forward("halo");
        at::Tensor result = own;
        for (const DimExchange& one : *exchanges) result = one.fetch(result, 0);
        return result.is_alias_of(own) ? result.clone() : result;
      },
      [exchanges](const at::Tensor& grad) {
        const CommLabel backward("gradient of halo");
        at::Tensor result = grad;
        for (auto one = exchanges->rbegin(); one != exchanges->rend(); ++one) {
          result = one->add_up(result);
        }
        return result.is_alias_of(grad) ? result.clone() : result;
      });
}

Arrived exchange(const at::Tensor& rows, const Group& group,
                 const std::vector<at::Tensor>& send_lists) {
  check_lists(rows, group, send_lists);
  std::vector<at::Tensor> lists{at::empty({0}, at::kLong)};
  Group::Sizes sent;
  for (const at::Tensor& list : send_lists) {
    if (list.defined()) lists.push_back(list);
    sent.push_back(list.defined() ? list.numel() : 0);
  }
  const CommLabel label("exchange");
  const at::Tensor counts = group.all_to_all(at::tensor(sent, at::kLong), 0, 0);
  const std::int64_t* first = counts.const_data_ptr<std::int64_t>();
  const Group::Sizes received(first, first + counts.numel());
  at::Tensor arrived = apply_linear(
      rows.index_select(0, at::cat(lists)),
      [=](const at::Tensor& picked) {
        const CommLabel forward("exchange");
        return group.all_to_all(picked, 0, 0, sent, received);
      },
      [=](const at::Tensor& grad) {
        const CommLabel backward("gradient of exchange");
        return group.all_to_all(grad, 0, 0, received, sent);
      });
  return {std::move(arrived), received};
}

Arrived exchange(const at::Tensor& x, const std::vector<at::Tensor>& send_lists) {
  const Payload& payload = payload_here(x, "exchange");
  const Group group = group_that_cuts_rows(payload);
  return exchange(unwrap_tile(x, with_reductions_done(payload.spec())), group, send_lists);
}

}  // namespace tegula
