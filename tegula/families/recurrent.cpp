// Recurrent nets: libtorch composes them of products and gates, step by step. Their first state is
// usually made by the module, the same on all ranks; it follows the batch, or else the first step
// would bring the batch to the state.
#include <ATen/ATen.h>

#include <map>

#include "tegula/families/families.h"
#include "tegula/gradient/differentiable.h"
#include "tegula/operators/call.h"
#include "tegula/spec/view_draft.h"

namespace tegula::inner::families {
namespace {

// A state that every rank has whole, its batch dim cut as the input's is. Nothing is sent.
at::Tensor follow_batch(const at::Tensor& state, std::int64_t dim, const at::Tensor& input,
                        std::int64_t batch) {
  const PayloadPtr leader = payload_of(input);
  const bool fits =
      state.dim() > dim && input.dim() > batch && state.size(dim) == input.size(batch);
  if (!leader || leader->link() || !fits) return state;
  if (!payload_in(state) && state.requires_grad()) return state;
  const at::Tensor whole =
      payload_in(state) ? state : replicated(state, leader->spec().mesh(), leader->world());
  const DTensorSpec spec = payload_in(whole)->spec();
  if (!spec.is_replicated() || payload_in(whole)->link() || !(spec.mesh() == leader->spec().mesh()))
    return state;
  ViewDraft draft(spec);
  draft.cut(dim, leader->spec().dim_cuts()[static_cast<std::size_t>(batch)].axes());
  return move_to(whole, draft.finish(spec.meta()), CallMode::Sync, {});
}

Values with_state_following(const Call& call, std::int64_t dim, std::int64_t batch) {
  Values arguments = call.arguments();
  const at::Tensor input = arguments[0].toTensor();
  arguments[1] = with_tensors(arguments[1], [&](int, const at::Tensor& state) {
    return follow_batch(state, dim, input, batch);
  });
  return arguments;
}

// (input [t, b, ...] or [b, t, ...], state [layers, b, ...], ..., batch_first)
Values arranged_layers(const Call& call) {
  return with_state_following(call, 1, call.arguments().back().toBool() ? 0 : 1);
}

// (input [b, ...], state [b, ...], ...)
Values arranged_cell(const Call& call) { return with_state_following(call, 0, 0); }

// Gates are split off in a way that autograd sees as new tensors: they may be written one by one.
Values as_new_tensors(const std::vector<at::Tensor>& views) {
  c10::List<at::Tensor> parts;
  for (const at::Tensor& view : views) {
    const PayloadPtr part = payload_of(view);
    parts.push_back(outer_tensor(part->tile(), part->spec(), part->world(), part->layout()));
  }
  return {parts};
}

Values split(Arguments a) {
  return as_new_tensors(at::split(a[0].toTensor(), a[1].toInt(), a[2].toInt()));
}
Values split_with_sizes(Arguments a) {
  return as_new_tensors(at::split_with_sizes(a[0].toTensor(), a[1].toIntVector(), a[2].toInt()));
}

bool is_cut(const at::Tensor& tensor, std::int64_t dim) {
  const std::int64_t wrapped = dim < 0 ? dim + tensor.dim() : dim;
  return payload_in(tensor)->spec().dim_cuts()[static_cast<std::size_t>(wrapped)].is_cut();
}

template <Values (*run)(Arguments)>
Recipe make_split(const Call& call) {
  const at::Tensor& self = call.arguments()[0].toTensor();
  const Payload* payload = payload_in(self);
  if (!payload || payload->link() || self.dim() == 0) return nullptr;
  return is_cut(self, call.arguments()[2].toInt()) ? nullptr : run;
}

}  // namespace

void recurrent(const c10::OperatorHandle& op, OperatorNotes& notes) {
  static const std::map<std::string, Values (*)(const Call&)> arranged = {
      {"aten::lstm.input", arranged_layers},     {"aten::gru.input", arranged_layers},
      {"aten::rnn_tanh.input", arranged_layers}, {"aten::rnn_relu.input", arranged_layers},
      {"aten::lstm_cell", arranged_cell},        {"aten::gru_cell", arranged_cell},
      {"aten::rnn_tanh_cell", arranged_cell},    {"aten::rnn_relu_cell", arranged_cell},
  };
  static const std::map<std::string, MakeRecipe> splits = {
      {"aten::unsafe_split.Tensor", make_split<split>},
      {"aten::unsafe_split_with_sizes", make_split<split_with_sizes>},
  };
  const std::string name = toString(op.operator_name());
  if (const auto found = arranged.find(name); found != arranged.end()) {
    notes.arranged = found->second;
  }
  if (const auto found = splits.find(name); found != splits.end()) {
    notes.decomposition = found->second;
  }
}

}  // namespace tegula::inner::families
