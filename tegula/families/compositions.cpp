// Operators that libtorch composes of others, where the composition needs help or none at all.
#include <map>
#include <set>

#include "tegula/families/families.h"

namespace tegula::inner::families {

void compositions(const c10::OperatorHandle& op, OperatorNotes& notes) {
  static const std::map<std::string, std::vector<std::size_t>> read_on_host = {
      {"aten::tensor_split.tensor_indices_or_sections", {1}},
      {"aten::ctc_loss.Tensor", {2, 3}},
      {"aten::_reshape_from_tensor", {1}},
      // how many sequences of a packed batch reach each step
      {"aten::lstm.data", {1}},
      {"aten::gru.data", {1}},
      {"aten::rnn_tanh.data", {1}},
      {"aten::rnn_relu.data", {1}},
      {"aten::_pad_packed_sequence", {1}},
      {"aten::_pack_padded_sequence_backward", {2}},
  };
  static const std::set<std::string> point_into_data = {
      "aten::quantile",
      "aten::quantile.scalar",
      "aten::nanquantile",
      "aten::nanquantile.scalar",
      "aten::_saturate_weight_to_fp16",
      "aten::_rowwise_prune",
      "aten::choose_qparams_optimized",
      "aten::fbgemm_linear_quantize_weight",
      "aten::_validate_sparse_coo_tensor_args",
  };
  // recurrent modules make the initial state themselves, plain
  static const std::set<std::string> take_plain_tensors = {
      "aten::lstm.input", "aten::gru.input", "aten::rnn_tanh.input", "aten::rnn_relu.input",
      "aten::lstm.data",  "aten::gru.data",  "aten::rnn_tanh.data",  "aten::rnn_relu.data",
      "aten::lstm_cell",  "aten::gru_cell",  "aten::rnn_tanh_cell",  "aten::rnn_relu_cell"};
  // called often
  static const std::set<std::string> stay_composed = {
      "aten::linear",
      "aten::matmul",
      "aten::layer_norm",
      "aten::softmax.int",
      "aten::reshape",
      "aten::flatten.using_ints",
      "aten::log_softmax.int",
      "aten::contiguous",
      "aten::chunk",
      "aten::narrow",
      "aten::view_as",
      "aten::expand_as",
      "aten::conv2d",
      "aten::max_pool2d",
      "aten::batch_norm",
      "aten::_batch_norm_impl_index",
      "aten::cross_entropy_loss",
      "aten::nll_loss_nd",
      "aten::nll_loss",
  };
  const std::string name = toString(op.operator_name());
  const auto found = read_on_host.find(name);
  if (found != read_on_host.end()) notes.read_on_host = found->second;
  notes.points_into_data = point_into_data.contains(name);
  notes.takes_plain_tensors = take_plain_tensors.contains(name);
  notes.stays_composed = stay_composed.contains(name);
}

}  // namespace tegula::inner::families
