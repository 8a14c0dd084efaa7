#include "tests/testing/samples_indexing.h"

namespace tegula {
namespace {

void add_elements(std::vector<Sample>& samples) {
  const std::vector<Sample> more = {
      {"gather", "f64[4, 6, 5], 1, i64[4, 3, 5] in 0..5"},
      {"gather", "f64[4, 6], -1, i64[2, 3] in 0..5"},
      {"gather", "i64[7, 3], 0, i64[5, 3] in 0..6"},
      {"take", "f64[4, 6], i64[3, 5] in 0..23"},
      {"scatter.src", "f64[4, 6], 1, i64[4, 1] in 0..5, f64[4, 2]"},
      {"scatter.value", "f64[4, 6], 1, i64[4, 3] in 0..5, 0.7"},
      {"scatter.reduce", "f64[4, 6], 1, i64[4, 3] in 0..5, f64[4, 3], add"},
      {"scatter.value_reduce", "f64[4, 6], 1, i64[4, 3] in 0..5, 0.7, multiply"},
      {"scatter_add", "f64[4, 6], 1, i64[4, 3] in 0..5, f64[4, 3]"},
      {"scatter_add", "f64[4, 6], 0, i64[3, 5] in 0..3, f64[3, 6]"},
      {"scatter_reduce.two", "f64[4, 6], 1, i64[4, 3] in 0..5, f64[4, 3], amax"},
      {"scatter_reduce.two", "f64[4, 6], 1, i64[4, 3] in 0..5, f64[4, 3], mean, false"},
      {"put", "f64[4, 6], i64[3, 5] in 0..23, f64[3, 5], true"},
  };
  samples.insert(samples.end(), more.begin(), more.end());
}

void add_rows(std::vector<Sample>& samples) {
  const std::vector<Sample> more = {
      {"index_select", "f64[4, 6, 5], 1, i64[3] in 0..5"},
      {"index_select", "f64[4, 6], 0, i64[] in 0..3"},
      {"index_add", "f64[4, 6], 1, i64[3] in 0..5, f64[4, 3], alpha=2"},
      {"index_copy", "f64[4, 6, 5], 1, i64[1] in 0..5, f64[4, 1, 5]"},
      {"index_reduce", "f64[4, 6], 1, i64[3] in 0..5, f64[4, 3], amax"},
      {"index_fill.int_Scalar", "f64[4, 6], 1, i64[3] in 0..5, 0.7"},
      {"fill.Tensor", "f64[4, 6], f64[]"},
      {"index_fill.int_Tensor", "f64[4, 6], 1, i64[3] in 0..5, f64[]"},
  };
  samples.insert(samples.end(), more.begin(), more.end());
}

void add_indices_for_some_dims(std::vector<Sample>& samples) {
  for (const std::string op : {"index.Tensor", "_unsafe_index.Tensor"}) {
    samples.push_back({op, "f64[4, 6, 5], {none, i64[3] in 0..5}"});
  }
  const std::vector<Sample> more = {
      {"index.Tensor", "f64[4, 6, 5], {i64[3, 1] in 0..3, i64[2] in 0..5}"},
      {"index.Tensor", "f64[4, 6, 5], {i64[3] in 0..3, none, i64[3] in 0..4}"},
      {"index_put", "f64[4, 6, 5], {none, i64[3] in 0..5}, f64[4, 3, 5], true"},
      {"index_put", "f64[4, 6, 5], {i64[2, 1] in 0..3, i64[3] in 0..5}, f64[3, 1], true"},
      {"index_put", "f64[4, 6, 5], {none, i64[1] in 0..5}, f64[4, 1, 1], false"},
      {"_unsafe_index_put", "f64[4, 6, 5], {none, i64[3] in 0..5}, f64[4, 3, 5], true"},
      {"_index_put_impl", "f64[4, 6, 5], {none, i64[3] in 0..5}, f64[4, 3, 5], true"},
  };
  samples.insert(samples.end(), more.begin(), more.end());
}

void add_bags(std::vector<Sample>& samples) {
  samples.push_back({"_embedding_bag_per_sample_weights_backward",
                     "f64[2, 5], f64[7, 5], i64[4] in 0..6, i64[2] in 0..0, i64[4] in 0..1, 0"});
}

void add_searches(std::vector<Sample>& samples) {
  const std::vector<Sample> more = {
      {"searchsorted.Tensor", "f64[4, 5], f64[4, 6], sorter=i64[4, 5] in 0..4"},
  };
  samples.insert(samples.end(), more.begin(), more.end());
}

void add_parts_of_matrices(std::vector<Sample>& samples) {
  for (const std::string op : {"triu", "tril"}) {
    samples.push_back({op, "f64[3, 4, 6], 1"});
    samples.push_back({op, "f64[4, 6]"});
  }
  const std::vector<Sample> more = {
      {"diag_embed", "f64[3, 4], -1, 0, -1"},
      {"diagonal_backward", "f64[3, 4], [3, 4, 6], 1, 1, 2"},
      {"diagonal_backward", "f64[3, 4], [6, 3, 4], -1, 0, 2"},
      {"diagonal_scatter", "f64[3, 4, 6], f64[3, 4], 1, 1, 2"},
  };
  samples.insert(samples.end(), more.begin(), more.end());
}

void add_parts_of_dims(std::vector<Sample>& samples) {
  const std::vector<Sample> more = {
      {"slice_scatter", "f64[4, 6, 5], f64[4, 2, 5], 1, 1, 5, 2"},
      {"select_scatter", "f64[4, 6, 5], f64[4, 5], -2, 3"},
      {"unfold_backward", "f64[4, 2, 5, 3], [4, 6, 5], 1, 3, 2"},
      {"repeat", "f64[4, 6], [2, 1, 3]"},
      {"repeat", "f64[4, 6], [3, 2]"},
      {"repeat", "f64[5], [2, 2]"},
      {"flip", "f64[4, 6, 5], [1]"},
      {"roll", "f64[4, 6, 5], [2], [-2]"},
      {"linalg_cross", "f64[4, 3], f64[4, 3]"},
      {"linalg_cross", "f64[3, 4, 5], f64[3, 1, 5], dim=0"},
      {"_cdist_forward", "f64[2, 4, 3], f64[2, 6, 3], 2, none"},
      {"_cdist_forward", "f64[4, 3], f64[6, 3], 1, none"},
      {"_cdist_backward", "f64[2, 4, 6], f64[2, 4, 3], f64[2, 6, 3], 2, f64[2, 4, 6] in 1..2"},
  };
  samples.insert(samples.end(), more.begin(), more.end());
}

}  // namespace

void add_indexing_samples(std::vector<Sample>& samples) {
  add_elements(samples);
  add_rows(samples);
  add_indices_for_some_dims(samples);
  add_bags(samples);
  add_searches(samples);
  add_parts_of_matrices(samples);
  add_parts_of_dims(samples);
}

std::vector<Sample> indexing_edge_samples() {
  return {
      {"gather", "f64[4, 6], 1, i64[4, 0] in 0..5"},
      {"gather", "f64[4, 1], 1, i64[4, 3] in 0..0"},
      {"scatter_add", "f64[4, 6], 1, i64[4, 0] in 0..5, f64[4, 0]"},
      {"scatter_add", "i64[4, 6], 1, i64[4, 3] in 0..5, i64[4, 3]"},
      {"index_select", "f64[4, 6], 1, i64[0] in 0..5"},
      {"index_select", "i32[4, 6], -1, i32[5] in 0..5"},
      {"index_add", "f64[4, 6], 1, i64[0] in 0..5, f64[4, 0]"},
      {"index.Tensor", "f64[4, 6], {i64[] in 0..3}"},
      {"index.Tensor", "f64[4, 6], {i64[0] in 0..3}"},
      {"index.Tensor", "f64[2, 3, 4, 5], {none, i64[2] in 0..2, i64[2] in 0..3, none}"},
      {"index_put", "f64[4, 6], {i64[3] in 0..3}, f64[], true"},
      {"triu", "f64[4, 0]"},
      {"repeat", "f64[4, 6], [1, 0]"},
      {"repeat", "f64[], [3]"},
      {"flip", "f64[4, 6], []"},
      {"diag_embed", "f64[4]"},
  };
}

}  // namespace tegula
