// Reverse-mode derivatives of scalar code in double: run a template on Var, then ask for the gradient.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace longspan::reference {

class Tape {
 public:
  // Node = f(first, second) with these partial derivatives; parents are earlier nodes, −1 is none.
  int64_t Push(int64_t first, double d_first, int64_t second, double d_second) {
    nodes_.push_back({first, second, d_first, d_second});
    return static_cast<int64_t>(nodes_.size()) - 1;
  }
  // d node / d every node so far.
  std::vector<double> GradientOf(int64_t node) const {
    std::vector<double> gradient(nodes_.size());
    gradient[static_cast<size_t>(node)] = 1;
    for (size_t i = nodes_.size(); i-- > 0;) {
      const Node& n = nodes_[i];
      if (n.first >= 0) gradient[static_cast<size_t>(n.first)] += n.d_first * gradient[i];
      if (n.second >= 0) gradient[static_cast<size_t>(n.second)] += n.d_second * gradient[i];
    }
    return gradient;
  }

 private:
  struct Node {
    int64_t first, second;
    double d_first, d_second;
  };
  std::vector<Node> nodes_;
};

// A double that remembers on its tape where it came from; without a tape a constant.
struct Var {
  double value = 0;
  Tape* tape = nullptr;
  int64_t node = -1;

  Var() = default;
  explicit Var(double v) : value(v) {}
  Var(double v, Tape& t) : value(v), tape(&t), node(t.Push(-1, 0, -1, 0)) {}
  Var(double v, const Var& a, double da, const Var& b, double db) : value(v), tape(a.tape ? a.tape : b.tape) {
    if (tape) node = tape->Push(a.node, da, b.node, db);
  }

  friend Var operator+(const Var& a, const Var& b) { return {a.value + b.value, a, 1, b, 1}; }
  friend Var operator-(const Var& a, const Var& b) { return {a.value - b.value, a, 1, b, -1}; }
  friend Var operator*(const Var& a, const Var& b) { return {a.value * b.value, a, b.value, b, a.value}; }
  friend Var operator/(const Var& a, const Var& b) {
    return {a.value / b.value, a, 1 / b.value, b, -a.value / (b.value * b.value)};
  }
  Var& operator+=(const Var& b) { return *this = *this + b; }
  friend Var exp(const Var& a) { return {std::exp(a.value), a, std::exp(a.value), Var(), 0}; }
  friend Var log(const Var& a) { return {std::log(a.value), a, 1 / a.value, Var(), 0}; }
  friend Var tanh(const Var& a) {
    const double t = std::tanh(a.value);
    return {t, a, 1 - t * t, Var(), 0};
  }
  friend Var sqrt(const Var& a) { return {std::sqrt(a.value), a, 0.5 / std::sqrt(a.value), Var(), 0}; }
  friend double real(const Var& a) { return a.value; }
};

}  // namespace longspan::reference
