//! Convolutions and their gradients.

use device_kernels::Conv2d;

use super::{Array, for_each_index};
use crate::element::round;
use crate::expect::Expect;
use crate::tolerance::{Terms, rounding};

/// Calls a function with the places in the output, the images and the weights of each product. The place in
/// the images is `None` in the padding.
fn for_each_product(
    conv: Conv2d,
    images: &[usize],
    weights: &[usize],
    out: &[usize],
    mut each: impl FnMut(&[usize], Option<&[usize]>, &[usize]),
) {
    let [maps, depth, kernel_height, kernel_width] = [weights[0], weights[1], weights[2], weights[3]];
    let maps_of_group = maps / conv.groups;
    for_each_index(out, |at| {
        let group = at[1] / maps_of_group;
        for_each_index(&[depth, kernel_height, kernel_width], |of_weights| {
            // Where it is in the images, behind the padding at their start.
            let y = at[2] * conv.stride[0] + of_weights[1] * conv.dilation[0];
            let x = at[3] * conv.stride[1] + of_weights[2] * conv.dilation[1];
            let inside = |place: usize, axis: usize| {
                place.checked_sub(conv.padding[axis]).filter(|&place| place < images[2 + axis])
            };
            let image =
                inside(y, 0).zip(inside(x, 1)).map(|(y, x)| [at[0], group * depth + of_weights[0], y, x]);
            let weight = [at[1], of_weights[0], of_weights[1], of_weights[2]];
            each(at, image.as_ref().map(|image| &image[..]), &weight);
        });
    });
}

fn place(index: &[usize], shape: &[usize]) -> usize {
    index.iter().zip(shape).fold(0, |place, (index, size)| place * size + index)
}

/// Adds the product of an image's element, or of the padding's zero, with a number.
fn add_product(terms: &mut Terms, images: &Array, image: Option<&[usize]>, number: f64) {
    match image {
        Some(image) => terms.add(images.at(image).as_f64() * number),
        None if !number.is_finite() => terms.add(f64::NAN),
        None => {}
    }
}

fn sums(out: &Array, add: impl FnOnce(&mut Vec<Terms>)) -> Vec<Expect> {
    let mut terms = vec![Terms::NONE; out.values.len()];
    add(&mut terms);
    terms.iter().map(|terms| Expect::Near(terms.sum, terms.error_in(out.dtype))).collect()
}

pub(super) fn conv2d(conv: Conv2d, inputs: &[&Array], out: &Array) -> Vec<Expect> {
    let images = inputs[0];
    let weights = inputs[1];
    let mut terms = vec![Terms::NONE; out.values.len()];
    for_each_product(conv, &images.shape, &weights.shape, &out.shape, |at, image, weight| {
        add_product(&mut terms[place(at, &out.shape)], images, image, weights.at(weight).as_f64());
    });
    let mut expected = Vec::new();
    for_each_index(&out.shape, |at| {
        let terms = &mut terms[place(at, &out.shape)];
        let mut rounded = 0.0;
        if let Some(bias) = inputs.get(2) {
            // It may be added to a sum that was rounded to the type of the output.
            if round(out.dtype, terms.sum) != terms.sum {
                rounded = rounding(out.dtype, terms.sum);
            }
            terms.add(bias.at(&[at[1]]).as_f64());
        }
        expected.push(Expect::Near(terms.sum, terms.error_in(out.dtype) + rounded));
    });
    expected
}

pub(super) fn input_grad(conv: Conv2d, grad: &Array, weights: &Array, out: &Array) -> Vec<Expect> {
    sums(out, |terms| {
        for_each_product(conv, &out.shape, &weights.shape, &grad.shape, |at, image, weight| {
            let Some(image) = image else { return };
            terms[place(image, &out.shape)].add(grad.at(at).as_f64() * weights.at(weight).as_f64());
        });
    })
}

pub(super) fn weight_grad(conv: Conv2d, images: &Array, grad: &Array, out: &Array) -> Vec<Expect> {
    sums(out, |terms| {
        for_each_product(conv, &images.shape, &out.shape, &grad.shape, |at, image, weight| {
            add_product(&mut terms[place(weight, &out.shape)], images, image, grad.at(at).as_f64());
        });
    })
}

#[cfg(test)]
mod tests {
    use device_kernels::DType;

    use super::*;
    use crate::element::Value;

    fn array(shape: &[usize], values: &[f64]) -> Array {
        let values = values.iter().map(|&value| Value::Float(value)).collect();
        Array { dtype: DType::F32, shape: shape.to_vec(), values }
    }

    fn likely(expected: &[Expect]) -> Vec<f64> {
        expected.iter().map(|expect| expect.likely().unwrap().as_f64()).collect()
    }

    #[test]
    fn a_row_is_convolved() {
        let row = array(&[1, 1, 1, 4], &[1.0, 2.0, 3.0, 4.0]);
        let weights = array(&[1, 1, 1, 2], &[10.0, 1.0]);
        let out = |n| array(&[1, 1, 1, n], &vec![0.0; n]);
        assert_eq!(likely(&conv2d(Conv2d::default(), &[&row, &weights], &out(3))), [12.0, 23.0, 34.0]);
        let conv = Conv2d { stride: [1, 2], padding: [0, 1], dilation: [1, 2], groups: 1 };
        // The padded row is 0 1 2 3 4 0, and the weights are two apart.
        assert_eq!(likely(&conv2d(conv, &[&row, &weights], &out(2))), [2.0, 24.0]);
        let bias = array(&[1], &[100.0]);
        assert_eq!(likely(&conv2d(conv, &[&row, &weights, &bias], &out(2))), [102.0, 124.0]);
    }

    #[test]
    fn gradients_go_back_to_where_the_products_came_from() {
        let conv = Conv2d::default();
        let grad = array(&[1, 1, 1, 3], &[1.0, 10.0, 100.0]);
        let weights = array(&[1, 1, 1, 2], &[2.0, 3.0]);
        let row = array(&[1, 1, 1, 4], &[1.0, 2.0, 3.0, 4.0]);
        assert_eq!(likely(&input_grad(conv, &grad, &weights, &row)), [2.0, 23.0, 230.0, 300.0]);
        assert_eq!(likely(&weight_grad(conv, &row, &grad, &weights)), [321.0, 432.0]);
    }

    #[test]
    fn each_group_has_its_own_channels() {
        let images = array(&[1, 2, 1, 1], &[5.0, 7.0]);
        let weights = array(&[2, 1, 1, 1], &[10.0, 100.0]);
        let conv = Conv2d { groups: 2, ..Conv2d::default() };
        assert_eq!(likely(&conv2d(conv, &[&images, &weights], &images)), [50.0, 700.0]);
    }
}
