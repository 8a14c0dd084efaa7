// Recurrent nets: libtorch composes them of products and gates, step by step. Their first state is
// usually made by the module, the same on all ranks; it follows the batch, or else the first step
// would bring the batch to the state. Layers of LSTMs in single or half precision libtorch leaves
// to a library of its own, which has to have the batch whole; they are composed here.
#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "tegula/families/families.h"
#include "tegula/families/totals.h"
#include "tegula/gradient/differentiable.h"
#include "tegula/operators/call.h"
#include "tegula/payload/guards.h"
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

// (input [b, ...], state [b, ...], weights of input, of state, bias of input?, of state?): what
// comes of the input is added to what comes of the state, in place. If gates of the input alone are
// cut, those of the state follow.
Values arranged_cell(const Call& call) {
  Values arguments = with_state_following(call, 0, 0);
  const auto is_alone = [&](std::size_t index) {
    return is_given(arguments[index]) && is_spread(arguments[index].toTensor());
  };
  if (is_spread(arguments[0].toTensor()) || !is_given(arguments[4]) || !is_given(arguments[5]) ||
      is_alone(3) || is_alone(5)) {
    return arguments;
  }
  for (const std::size_t leader : {std::size_t{2}, std::size_t{4}}) {
    const at::Tensor& gates = arguments[leader].toTensor();
    if (is_spread(gates) && is_cut(gates, 0)) {
      arguments[5] = follow_batch(arguments[5].toTensor(), 0, gates, 0);
    }
  }
  return arguments;
}

// LSTM ------------------------------------------------------------------------------------------

struct LstmState {
  at::Tensor hidden, cell;  // [b, ...]
};

// Of one layer in one direction.
struct LstmWeights {
  at::Tensor of_input, of_hidden;
  std::optional<at::Tensor> input_bias, hidden_bias;
};

LstmState lstm_step(const at::Tensor& input_gates, const LstmState& before,
                    const LstmWeights& weights) {
  const at::Tensor gates =
      input_gates + at::linear(before.hidden, weights.of_hidden, weights.hidden_bias);
  const std::vector<at::Tensor> parts = gates.chunk(4, 1);
  const at::Tensor cell = parts[1].sigmoid() * before.cell + parts[0].sigmoid() * parts[2].tanh();
  return {parts[3].sigmoid() * cell.tanh(), cell};
}

// x [t, b, ...] to the hidden states of all steps; `state` becomes the last one.
at::Tensor lstm_layer(const at::Tensor& x, LstmState& state, const LstmWeights& weights,
                      bool backwards) {
  std::vector<at::Tensor> steps = at::linear(x, weights.of_input, weights.input_bias).unbind(0);
  if (backwards) std::reverse(steps.begin(), steps.end());
  for (at::Tensor& step : steps) {
    state = lstm_step(step, state, weights);
    step = state.hidden;
  }
  if (backwards) std::reverse(steps.begin(), steps.end());
  return at::stack(steps, 0);
}

// (input, [hidden, cell], parameters, has_biases, num_layers, dropout, train, bidirectional,
// batch_first)
Values lstm(Arguments a) {
  const ImplicitReplication own_tensors;  // the module's first state
  const bool batch_first = a[8].toBool();
  at::Tensor x = batch_first ? a[0].toTensor().transpose(0, 1) : a[0].toTensor();
  std::vector<at::Tensor> first;
  for (const c10::IValue& state : a[1].toListRef()) {
    first.push_back(follow_batch(state.toTensor(), 1, x, 1));
  }
  const std::vector<at::Tensor> parameters = a[2].toTensorVector();
  const std::size_t per_layer = a[3].toBool() ? 4 : 2;
  std::vector<at::Tensor> hidden, cells;
  for (std::int64_t layer = 0; layer < a[4].toInt(); ++layer) {
    std::vector<at::Tensor> outputs;
    for (const bool backwards : {false, true}) {
      if (backwards && !a[7].toBool()) continue;
      const at::Tensor* of = &parameters[hidden.size() * per_layer];
      LstmWeights weights{of[0], of[1], {}, {}};
      if (per_layer == 4) weights = {of[0], of[1], of[2], of[3]};
      const auto index = static_cast<std::int64_t>(hidden.size());
      LstmState state{first[0].select(0, index), first[1].select(0, index)};
      outputs.push_back(lstm_layer(x, state, weights, backwards));
      hidden.push_back(state.hidden);
      cells.push_back(state.cell);
    }
    x = outputs.size() == 1 ? outputs[0] : at::cat(outputs, 2);
    const bool is_last = layer + 1 == a[4].toInt();
    if (!is_last && a[5].toDouble() > 0) x = at::dropout(x, a[5].toDouble(), a[6].toBool());
  }
  return {batch_first ? x.transpose(0, 1) : x, at::stack(hidden, 0), at::stack(cells, 0)};
}

// Where the batch alone is cut, and no layer projects its state.
Recipe make_lstm(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& input = a[0].toTensor();
  const Payload* payload = payload_in(input);
  if (!payload || payload->link() || input.dim() != 3 || payload->spec().is_partial()) {
    return nullptr;
  }
  const std::size_t batch = a[8].toBool() ? 0 : 1;
  for (std::size_t dim = 0; dim < 3; ++dim) {
    if (payload->spec().dim_cuts()[dim].is_cut() != (dim == batch)) return nullptr;
  }
  const std::size_t layers = static_cast<std::size_t>(a[4].toInt()) * (a[7].toBool() ? 2 : 1);
  return a[2].toListRef().size() == layers * (a[3].toBool() ? 4 : 2) && input.size(1 - batch) > 0
             ? lstm
             : nullptr;
}

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
  static const std::map<std::string, MakeRecipe> recipes = {
      {"aten::unsafe_split.Tensor", make_split<split>},
      {"aten::unsafe_split_with_sizes", make_split<split_with_sizes>},
      {"aten::lstm.input", make_lstm},
  };
  const std::string name = toString(op.operator_name());
  if (const auto found = arranged.find(name); found != arranged.end()) {
    notes.arranged = found->second;
  }
  if (const auto found = recipes.find(name); found != recipes.end()) {
    notes.decomposition = found->second;
  }
}

}  // namespace tegula::inner::families
