// Operators that PyTorch calls on each device but the CPU, which has none of them: as others, of the device.

#include "compositions.h"

#include <ATen/ATen.h>

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

bool is_given(const OptionalTensor& tensor) { return tensor.has_value() && tensor->defined(); }

// --- Cells of recurrent networks, which PyTorch calls fused on each device that is not the CPU ---

Tensor with_bias(const Tensor& gates, const OptionalTensor& bias) {
  return is_given(bias) ? gates + *bias : gates;
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell(
    const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx, const OptionalTensor& input_bias,
    const OptionalTensor& hidden_bias) {
  const auto gates = (with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias)).chunk(4, 1);
  const auto cy = gates[1].sigmoid() * cx + gates[0].sigmoid() * gates[2].tanh();
  return {gates[3].sigmoid() * cy.tanh(), cy, at::empty({0}, cx.options())};
}

std::tuple<Tensor, Tensor> gru_cell(
    const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx, const OptionalTensor& input_bias,
    const OptionalTensor& hidden_bias) {
  const auto input = with_bias(input_gates, input_bias).chunk(3, 1);
  const auto hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const auto reset = (input[0] + hidden[0]).sigmoid();
  const auto update = (input[1] + hidden[1]).sigmoid();
  const auto candidate = (input[2] + reset * hidden[2]).tanh();
  return {candidate + update * (hx - candidate), at::empty({0}, hx.options())};
}

// --- Batch normalization over several processes, each of which has a part of the batch ---

// Elements of half the precision are summed in f32.
Tensor wide(const Tensor& tensor) {
  return c10::isReducedFloatingType(tensor.scalar_type()) ? tensor.to(at::kFloat) : tensor;
}

// One number for each channel, beside the elements: the channels are the second dimension.
Tensor of_channels(const Tensor& numbers, const Tensor& elements) {
  at::DimVector shape(elements.dim(), 1);
  shape[1] = elements.size(1);
  return numbers.reshape(shape);
}

// The sum of each channel.
Tensor sum_of_channels(const Tensor& elements) {
  at::DimVector others;
  for (int64_t dim = 0; dim < elements.dim(); ++dim) {
    if (dim != 1) others.push_back(dim);
  }
  return elements.sum(others);
}

// The mean of each channel, and one divided by its deviation.
std::tuple<Tensor, Tensor> batch_norm_stats(const Tensor& input, double epsilon) {
  const auto elements = wide(input);
  const auto count = static_cast<double>(elements.numel()) / static_cast<double>(elements.size(1));
  const auto mean = sum_of_channels(elements) / count;
  const auto variance = sum_of_channels((elements - of_channels(mean, elements)).square()) / count;
  return {mean, (variance + epsilon).rsqrt()};
}

Tensor batch_norm_elements(
    const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias, const Tensor& mean,
    const Tensor& scale, double) {
  auto result = (wide(input) - of_channels(mean, input)) * of_channels(scale, input);
  if (is_given(weight)) result = result * of_channels(*weight, input);
  if (is_given(bias)) result = result + of_channels(*bias, input);
  return result.to(input.scalar_type());
}

// Of the statistics of all parts, a row for each, and how many elements of a channel each part has.
std::tuple<Tensor, Tensor> gathered_statistics(
    const Tensor& means, const Tensor& scales, const OptionalTensor& running_mean, const OptionalTensor& running_variance,
    double momentum, double epsilon, const Tensor& counts) {
  const auto weights = counts.to(means.scalar_type()).reshape({-1, 1});
  const auto count = weights.sum();
  const auto mean = (means * weights).sum(0) / count;
  const auto variances = scales.square().reciprocal() - epsilon;
  const auto variance = ((variances + (means - mean).square()) * weights).sum(0) / count;
  if (is_given(running_mean)) running_mean->mul_(1 - momentum).add_(mean, momentum);
  // PyTorch keeps the estimate for all elements that there could be.
  if (is_given(running_variance)) running_variance->mul_(1 - momentum).add_(variance * (count / (count - 1)), momentum);
  return {mean, (variance + epsilon).rsqrt()};
}

std::tuple<Tensor, Tensor> batch_norm_gather_stats_with_counts(
    const Tensor&, const Tensor& means, const Tensor& scales, const OptionalTensor& running_mean,
    const OptionalTensor& running_variance, double momentum, double epsilon, const Tensor& counts) {
  return gathered_statistics(means, scales, running_mean, running_variance, momentum, epsilon, counts);
}

std::tuple<Tensor, Tensor> batch_norm_gather_stats(
    const Tensor&, const Tensor& means, const Tensor& scales, const OptionalTensor& running_mean,
    const OptionalTensor& running_variance, double momentum, double epsilon, int64_t count) {
  const auto counts = at::full({means.size(0)}, static_cast<double>(count), means.options());
  return gathered_statistics(means, scales, running_mean, running_variance, momentum, epsilon, counts);
}

// The sums of the gradient, and of it times the elements around their mean; the gradients of weight and bias.
std::tuple<Tensor, Tensor, Tensor, Tensor> batch_norm_backward_reduce(
    const Tensor& grad, const Tensor& input, const Tensor& mean, const Tensor& scale, const OptionalTensor& weight,
    bool of_input, bool of_weight, bool of_bias) {
  const auto wide_grad = wide(grad);
  const auto sum = sum_of_channels(wide_grad);
  const auto product = sum_of_channels(wide_grad * (wide(input) - of_channels(mean, input)));
  const auto like_weight = [&](const Tensor& tensor) {
    return is_given(weight) ? tensor.to(weight->scalar_type()) : tensor;
  };
  return {
      of_input ? sum : Tensor(), of_input ? product : Tensor(), of_weight ? like_weight(product * scale) : Tensor(),
      of_bias ? like_weight(sum) : Tensor()};
}

// `weight * scale * (grad - mean(grad) - x * mean(grad * x))`, with the normalized elements `x`.
Tensor batch_norm_backward_elements(
    const Tensor& grad, const Tensor& input, const Tensor& mean, const Tensor& scale, const OptionalTensor& weight,
    const Tensor& sum, const Tensor& product, const Tensor& counts) {
  const auto count = counts.to(mean.scalar_type()).sum();
  const auto centered = wide(input) - of_channels(mean, input);
  const auto slope = of_channels(scale.square() * product / count, input);
  auto result = (wide(grad) - of_channels(sum / count, input) - centered * slope) * of_channels(scale, input);
  if (is_given(weight)) result = result * of_channels(*weight, input);
  return result.to(input.scalar_type());
}

// --- Dropout, whose kernel of the CPU would draw from the CPU's generator and not from the device's ---

std::tuple<Tensor, Tensor> dropout(const Tensor& self, double probability, std::optional<bool> train) {
  const auto options = self.options().dtype(at::kBool);
  if (!train.value_or(true) || probability == 0) return {self.clone(), at::ones_like(self, options)};
  const auto mask = at::empty_like(self, options).bernoulli_(1 - probability);
  return {self * mask * (probability == 1 ? 0 : 1 / (1 - probability)), mask};
}

// --- Automatic mixed precision: gradients of a scaled loss ---

void unscale(at::TensorList gradients, Tensor& found_infinite, const Tensor& inverse_scale) {
  for (const auto& gradient : gradients) {
    const auto is_finite = gradient.isfinite().all();
    found_infinite.copy_(at::where(is_finite, found_infinite, at::ones_like(found_infinite)));
    gradient.mul_(inverse_scale);
  }
}

} // namespace

void register_compositions(torch::Library& device, torch::Library& autograd) {
  for (auto* library : {&device, &autograd}) {
    library->impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
    library->impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  }
  device.impl("native_dropout", TORCH_FN(dropout));
  device.impl("_amp_foreach_non_finite_check_and_unscale_", TORCH_FN(unscale));
  device.impl("batch_norm_stats", TORCH_FN(batch_norm_stats));
  device.impl("batch_norm_elemt", TORCH_FN(batch_norm_elements));
  device.impl("batch_norm_gather_stats", TORCH_FN(batch_norm_gather_stats));
  device.impl("batch_norm_gather_stats_with_counts", TORCH_FN(batch_norm_gather_stats_with_counts));
  device.impl("batch_norm_backward_reduce", TORCH_FN(batch_norm_backward_reduce));
  device.impl("batch_norm_backward_elemt", TORCH_FN(batch_norm_backward_elements));
}
