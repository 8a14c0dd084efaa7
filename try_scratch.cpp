#include <ATen/ATen.h>
#include <chrono>
#include <iostream>
#include "tegula/tensor/dtensor.h"
#include "tegula/tensor/factories.h"
#include "tegula/comm/world.h"
#include "tegula/comm/comm_log.h"
#include "tegula/dispatch/guards.h"
using namespace tegula;
template <class F> double us(F f, int n = 20000) {
  for (int i = 0; i < 200; ++i) f();
  double best = 1e9;
  for (int r = 0; r < 7; ++r) {
    auto t = std::chrono::steady_clock::now();
    for (int i = 0; i < n / 7; ++i) f();
    best = std::min(best, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - t).count() / (n / 7));
  }
  return best;
}
int main() {
  World world = World::alone();
  DeviceMesh mesh = world.mesh({{"tp", 1}});
  at::Tensor a = at::rand({8, 8}), b = at::rand({8, 8}), w = at::rand({8, 8}), bias = at::rand({8});
  auto d = [&](const at::Tensor& t, Placement p) { return distribute_tensor(t, mesh, {p}); };
  at::Tensor A = d(a, Shard(0)), B = d(b, Shard(0)), W = d(w, Replicate()), Bias = d(bias, Replicate());
  at::Tensor lw = at::rand({8}), Lw = d(lw, Replicate());
  auto row = [&](const char* name, auto f, auto g) {
    double p = us(f), t = us(g);
    printf("%-12s plain %.3f tegula %.3f over %.3f\n", name, p, t, t - p);
  };
  row("add", [&] { at::add(a, b); }, [&] { at::add(A, B); });
  row("mul", [&] { at::mul(a, b); }, [&] { at::mul(A, B); });
  row("mul scalar", [&] { at::mul(a, 2.0); }, [&] { at::mul(A, 2.0); });
  row("mm", [&] { at::mm(a, w); }, [&] { at::mm(A, W); });
  row("addmm", [&] { at::addmm(bias, a, w); }, [&] { at::addmm(Bias, A, W); });
  row("relu", [&] { at::relu(a); }, [&] { at::relu(A); });
  row("sum", [&] { at::sum(a, 1); }, [&] { at::sum(A, 1); });
  row("softmax", [&] { at::softmax(a, 1); }, [&] { at::softmax(A, 1); });
  row("view", [&] { a.view({64}); }, [&] { A.view({64}); });
  row("transpose", [&] { a.transpose(0, 1); }, [&] { A.transpose(0, 1); });
  row("detach", [&] { a.detach(); }, [&] { A.detach(); });
  row("add_", [&] { a.add_(b); }, [&] { A.add_(B); });
  row("layer_norm", [&] { at::layer_norm(a, {8}, lw, lw); }, [&] { at::layer_norm(A, {8}, Lw, Lw); });
  row("cat", [&] { at::cat({a, b}, 1); }, [&] { at::cat({A, B}, 1); });
  World fake = World::fake(16);
  DeviceMesh m4 = fake.mesh({{"a", 2}, {"b", 2}, {"c", 2}, {"d", 2}});
  int n = 8;
  for (int axes : {1, 2, 4}) {
    DeviceMesh m = axes == 4 ? m4 : axes == 2 ? fake.mesh({{"a", 2}, {"b", 2}}) : fake.mesh({{"a", 2}});
    Placements ps(axes, Replicate()); ps[0] = Shard(0); if (axes > 1) ps[1] = Shard(1);
    double add = 0, mm = 0; 
    for (int i = 0; i < 300; ++i, n += 2) {
      at::Tensor X = tegula::zeros({n, n}, m, ps, at::kFloat), Y = tegula::zeros({n, n}, m, ps, at::kFloat);
      Placements rs = ps; if (axes > 1) rs[1] = Replicate();
      Placements ks = ps; ks[0] = Replicate();
      at::Tensor L = tegula::zeros({n, 8}, m, rs, at::kFloat), Rr = tegula::zeros({8, n}, m, ks, at::kFloat);
      auto t = std::chrono::steady_clock::now();
      auto z = at::add(X, Y);
      auto t2 = std::chrono::steady_clock::now();
      auto z2 = at::mm(L, Rr);
      auto t3 = std::chrono::steady_clock::now();
      if (i >= 20) { add += std::chrono::duration<double, std::micro>(t2 - t).count() / 280; mm += std::chrono::duration<double, std::micro>(t3 - t2).count() / 280; }
    }
    printf("cold %d axes add %.1f mm %.1f us\n", axes, add, mm);
  }
}
