// Recurrent nets whose batch is cut: steps communicate nothing, and they learn as on one rank.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>
#include <stdexcept>

#include "tegula/comm/comm_log.h"
#include "tegula/payload/guards.h"
#include "tegula/tensor/module.h"
#include "tests/tensor/as_plain.h"
#include "tests/tensor/environment_variable.h"

namespace tegula {
namespace recurrent_test {

constexpr std::int64_t kWords = 11, kWidth = 6, kState = 7;

struct LanguageModel : torch::nn::Module {
  torch::nn::Embedding words{register_module("words", torch::nn::Embedding(kWords, kWidth))};
  torch::nn::LSTM lstm{register_module(
      "lstm",
      torch::nn::LSTM(torch::nn::LSTMOptions(kWidth, kState).num_layers(2).batch_first(true)))};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(kState, kWords))};

  explicit LanguageModel(at::ScalarType type) {
    to(type);
    const at::NoGradGuard guard;
    std::uint64_t seed = 1;
    for (at::Tensor& parameter : parameters()) {
      parameter.copy_(numbers(parameter.sizes(), ++seed) * 0.3);
    }
  }

  at::Tensor loss(const at::Tensor& text, const at::Tensor& next) {
    const auto [out, state] = lstm(words(text));
    return at::cross_entropy_loss(head(out).reshape({-1, kWords}), next.reshape({-1}));
  }
};

// The losses of three steps.
std::vector<double> losses(LanguageModel& model, const at::Tensor& text, const at::Tensor& next) {
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.5));
  std::vector<double> losses;
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = model.loss(text, next);
    loss.backward();
    optimizer.step();
    const at::NoGradGuard guard;
    losses.push_back((is_dtensor(loss) ? full_tensor(loss) : loss).item<double>());
  }
  return losses;
}

at::Tensor some_text(std::int64_t sequences, std::int64_t phase) {
  return (at::arange(sequences * 5, at::kLong) * 7 + phase).remainder(kWords).view({sequences, 5});
}

void expect_no_collectives_but_gradients_and_the_loss(at::ScalarType type, double tolerance) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");  // paranoid mode communicates, too
  for (const std::int64_t sequences : {4, 3}) {
    const at::Tensor text = some_text(sequences, 1);
    const at::Tensor next = some_text(sequences, 3);
    LanguageModel plain(type);
    const std::vector<double> want = losses(plain, text, next);
    run_impatient(2, [&](const World& world) {
      const DeviceMesh mesh = world.mesh({{"dp", 2}});
      LanguageModel model(type);
      distribute_module(model, mesh, [](const std::string&, const at::Tensor&) {
        return Placements{Replicate()};
      });
      const auto placed = [&](const at::Tensor& whole) {
        return distribute_tensor(whole, mesh, {Shard(0)});
      };
      const at::Tensor cut_text = placed(text);
      const at::Tensor cut_next = placed(next);
      const CommLog log(world);
      const StrictMode strict;
      const std::vector<double> got = losses(model, cut_text, cut_next);
      for (std::size_t step = 0; step < want.size(); ++step) {
        if (std::abs(got[step] - want[step]) > tolerance) throw std::runtime_error("another loss");
      }
      const std::set<std::string> known = {"gradient of a leaf", "full_tensor",
                                           "aten::nll_loss_forward"};
      for (const CommEntry& entry : log.entries()) {
        if (!known.contains(entry.op)) throw std::runtime_error(to_string(entry));
      }
    });
  }
}

TEST(Recurrent, ALanguageModelLearnsWithNoCollectivesButGradientsAndTheLoss) {
  expect_no_collectives_but_gradients_and_the_loss(at::kDouble, 1e-12);
}

// libtorch leaves its layers to another library.
TEST(Recurrent, ALanguageModelOfFloatsLearnsWithNoCollectivesButGradientsAndTheLoss) {
  expect_no_collectives_but_gradients_and_the_loss(at::kFloat, 1e-5);
}

// Parameters of one layer after the input: as at::lstm and its like take them.
Tensors with_parameters(std::int64_t gates) {
  return {leaf({5, 3, kWidth}), leaf({gates * kState, kWidth}, 2),
          leaf({gates * kState, kState}, 3), leaf({gates * kState}, 4), leaf({gates * kState}, 5)};
}

Tensors parameters_in(const Tensors& t) { return {t.begin() + 1, t.begin() + 5}; }

at::Tensor no_state() { return at::zeros({1, 3, kState}, at::kDouble); }

TEST(Recurrent, LayersAreAsOnPlainTensorsHoweverTheyAreCut) {
  expect_as_plain(with_parameters(4), [](const Tensors& t) {
    const auto [out, h, c] = at::lstm(t[0], {no_state(), no_state()}, parameters_in(t), true, 1,
                                      0.0, true, false, false);
    return Tensors{out, h, c};
  });
  expect_as_plain(with_parameters(3), [](const Tensors& t) {
    const auto [out, h] =
        at::gru(t[0], no_state(), parameters_in(t), true, 1, 0.0, true, false, false);
    return Tensors{out, h};
  });
  expect_as_plain(with_parameters(1), [](const Tensors& t) {
    const auto [out, h] =
        at::rnn_tanh(t[0], no_state(), parameters_in(t), true, 1, 0.0, true, false, false);
    return Tensors{out, h};
  });
}

TEST(Recurrent, CellsAreAsOnPlainTensorsHoweverTheyAreCut) {
  const Tensors inputs = {leaf({5, kWidth}), leaf({5, kState}, 6), leaf({3 * kState, kWidth}, 2),
                          leaf({3 * kState, kState}, 3)};
  expect_as_plain(inputs, [](const Tensors& t) {
    return Tensors{at::gru_cell(t[0], t[1], t[2], t[3], {}, {})};
  });
}

TEST(Recurrent, PackedSequencesAreAsOnPlainTensors) {
  expect_as_plain(with_parameters(4),
                  [](const Tensors& t) {
                    const at::Tensor lengths = at::tensor({5, 4, 2}, at::kLong);
                    const auto [data, batch_sizes] =
                        at::_pack_padded_sequence(t[0], lengths, false);
                    const auto [out, h, c] = at::lstm(data, batch_sizes, {no_state(), no_state()},
                                                      parameters_in(t), true, 1, 0.0, true, false);
                    return Tensors{out, h, c};
                  },
                  {.draws = 2});
}

}  // namespace recurrent_test
}  // namespace tegula
