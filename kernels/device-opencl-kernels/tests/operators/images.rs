use device_kernels::{Conv2d, DType, Layout, Operator, Pool2d};

use super::support::{
    Array, FLOATS, assert_close, compute, device, indices, place, rounded, those_of, values,
};

/// A small array on the host.
#[derive(Clone)]
struct Host {
    layout: Layout,
    elements: Vec<f64>,
}

impl Host {
    fn new(dtype: DType, shape: &[usize], seed: u64) -> Self {
        let layout = Layout::contiguous(shape).unwrap();
        Self { layout, elements: values(dtype, layout.len(), seed) }
    }

    fn zeros(shape: &[usize]) -> Self {
        let layout = Layout::contiguous(shape).unwrap();
        Self { layout, elements: vec![0.0; layout.len()] }
    }

    fn at(&self, index: [usize; 4]) -> f64 {
        self.elements[place(&self.layout, &index)]
    }

    fn add(&mut self, index: [usize; 4], value: f64) {
        let place = place(&self.layout, &index);
        self.elements[place] += value;
    }

    /// On the device, one element after the other.
    fn in_order(&self, device: device_registry::Device, dtype: DType) -> Array {
        Array::with_layout(device, dtype, self.layout, &self.elements)
    }

    /// On the device, with the last two dimensions in the other order in memory and one of them reversed.
    fn to_device(&self, device: device_registry::Device, dtype: DType) -> Array {
        let &[a, b, c, d] = self.layout.shape() else { unreachable!() };
        let view = Layout::contiguous([b, a, d, c]).unwrap().permute([1, 0, 3, 2]).unwrap().flip(2).unwrap();
        let mut elements = vec![0.0; self.elements.len()];
        for index in indices(view.shape()) {
            elements[place(&view, &index)] = self.elements[place(&self.layout, &index)];
        }
        Array::with_layout(device, dtype, view, &elements)
    }
}

/// The place of a window's element in the image, if it is in it.
fn inside(at: usize, stride: usize, k: usize, dilation: usize, padding: usize, size: usize) -> Option<usize> {
    (at * stride + k * dilation).checked_sub(padding).filter(|&place| place < size)
}

/// Calls `product` with the indices of each product of a convolution: of images, weights and output.
fn each_product(
    conv: Conv2d,
    [images, weights, out]: [&[usize]; 3],
    mut product: impl FnMut([usize; 4], [usize; 4], [usize; 4]),
) {
    for at in indices(out) {
        for w in indices(&weights[1..]) {
            let (y, x) = (
                inside(at[2], conv.stride[0], w[1], conv.dilation[0], conv.padding[0], images[2]),
                inside(at[3], conv.stride[1], w[2], conv.dilation[1], conv.padding[1], images[3]),
            );
            if let (Some(y), Some(x)) = (y, x) {
                let group = at[1] / (out[1] / conv.groups);
                let channel = group * weights[1] + w[0];
                product([at[0], channel, y, x], [at[1], w[0], w[1], w[2]], [at[0], at[1], at[2], at[3]]);
            }
        }
    }
}

#[test]
fn convolutions_and_their_gradients() {
    let Some(device) = device() else { return };
    let options = [
        (Conv2d::default(), [2, 3, 8, 9], [4, 3, 3, 2]),
        (Conv2d { stride: [2, 1], padding: [1, 2], ..Conv2d::default() }, [1, 2, 7, 8], [5, 2, 3, 3]),
        (
            Conv2d { dilation: [2, 3], padding: [2, 0], groups: 2, ..Conv2d::default() },
            [2, 4, 9, 9],
            [6, 2, 2, 3],
        ),
        (
            Conv2d { stride: [3, 2], padding: [1, 1], dilation: [1, 2], groups: 3 },
            [2, 3, 10, 11],
            [3, 1, 3, 3],
        ),
        // Large enough for products of matrices; rows that are longer than a panel, and shorter.
        (Conv2d { padding: [1, 1], ..Conv2d::default() }, [1, 6, 7, 40], [8, 6, 3, 3]),
        (Conv2d { padding: [1, 1], ..Conv2d::default() }, [3, 16, 14, 14], [20, 16, 3, 3]),
        (
            Conv2d { stride: [2, 3], padding: [2, 1], dilation: [2, 1], groups: 2 },
            [2, 12, 17, 19],
            [14, 6, 3, 2],
        ),
    ];
    for dtype in those_of(FLOATS) {
        for (conv, of_images, of_weights) in options {
            let images = Host::new(dtype, &of_images, 1);
            let weights = Host::new(dtype, &of_weights, 2);
            let size = |axis: usize| {
                let reach = (of_weights[2 + axis] - 1) * conv.dilation[axis] + 1;
                (of_images[2 + axis] + 2 * conv.padding[axis] - reach) / conv.stride[axis] + 1
            };
            let of_out = [of_images[0], of_weights[0], size(0), size(1)];
            let grad = Host::new(dtype, &of_out, 3);
            let bias = values(dtype, of_out[1], 4);
            let shapes = [&of_images[..], &of_weights, &of_out];
            let mut expected = [Host::zeros(&of_out), Host::zeros(&of_images), Host::zeros(&of_weights)];
            each_product(conv, shapes, |image, weight, out| {
                expected[0].add(out, images.at(image) * weights.at(weight));
                expected[1].add(image, grad.at(out) * weights.at(weight));
                expected[2].add(weight, images.at(image) * grad.at(out));
            });
            for ordered in [true, false] {
                let put = |host: &Host| match ordered {
                    true => host.in_order(device, dtype),
                    false => host.to_device(device, dtype),
                };
                let [x, w, g] = [&images, &weights, &grad].map(put);
                let calls = [
                    (Operator::Conv2d(conv), [&x, &w]),
                    (Operator::Conv2dInputGrad(conv), [&g, &w]),
                    (Operator::Conv2dWeightGrad(conv), [&x, &g]),
                ];
                for ((operator, inputs), mut expected) in calls.into_iter().zip(expected.clone()) {
                    let scale = expected.elements.iter().fold(1.0_f64, |a, b| a.max(b.abs()));
                    let check = |found: &[f64], expected: &[f64]| {
                        println!("{operator} {dtype}");
                        let scaled = |x: &[f64]| x.iter().map(|x| 2.0 + x / scale).collect::<Vec<_>>();
                        assert_close(dtype, &scaled(found), &scaled(expected), 8.0);
                    };
                    let out = put(&Host::zeros(expected.layout.shape()));
                    let inputs = inputs.map(Array::operand);
                    check(&compute(device, operator, &inputs, &[&out]), &expected.elements);
                    if let Operator::Conv2d(_) = operator {
                        let third = Array::new(device, dtype, &[bias.len()], &bias);
                        let inputs = [inputs[0], inputs[1], third.operand()];
                        for index in indices(&of_out) {
                            expected.add(index.clone().try_into().unwrap(), bias[index[1]]);
                        }
                        check(&compute(device, operator, &inputs, &[&out]), &expected.elements);
                    }
                }
            }
        }
    }
}

fn pools() -> Vec<(Pool2d, [usize; 4], [usize; 2])> {
    let pool = |kernel, stride, padding, dilation| Pool2d { kernel, stride, padding, dilation };
    vec![
        (Pool2d::new([2, 2]), [2, 3, 6, 8], [3, 4]),
        (pool([3, 2], [2, 1], [1, 1], [1, 1]), [1, 2, 7, 5], [4, 6]),
        (pool([2, 3], [1, 2], [1, 2], [3, 2]), [2, 1, 9, 9], [8, 5]),
        // A last window that ends behind the padding.
        (pool([3, 3], [2, 2], [0, 1], [1, 1]), [1, 2, 8, 8], [4, 5]),
    ]
}

/// The places of a window in the image.
fn window(pool: &Pool2d, [y, x]: [usize; 2], [height, width]: [usize; 2]) -> Vec<[usize; 2]> {
    indices(&pool.kernel)
        .iter()
        .filter_map(|k| {
            let y = inside(y, pool.stride[0], k[0], pool.dilation[0], pool.padding[0], height)?;
            Some([y, inside(x, pool.stride[1], k[1], pool.dilation[1], pool.padding[1], width)?])
        })
        .collect()
}

#[test]
fn the_largest_of_windows() {
    let Some(device) = device() else { return };
    for (dtype, to) in [
        (DType::F32, DType::I64),
        (DType::F16, DType::I32),
        (DType::BF16, DType::U32),
        (DType::I32, DType::I32),
        (DType::U8, DType::I64),
    ] {
        for (pool, of_images, [height, width]) in pools() {
            let mut images = Host::new(dtype, &of_images, 1);
            if dtype.is_float() {
                images.elements[7] = f64::NAN;
            }
            let shape = [of_images[0], of_images[1], height, width];
            let mut expected = (Vec::new(), Vec::new());
            for index in indices(&shape) {
                let places = window(&pool, [index[2], index[3]], [of_images[2], of_images[3]]);
                let at = |[y, x]: [usize; 2]| images.at([index[0], index[1], y, x]);
                let best = places
                    .iter()
                    .copied()
                    .reduce(|a, b| if at(b) > at(a) || (at(b).is_nan() && !at(a).is_nan()) { b } else { a });
                let best = best.unwrap();
                expected.0.push(at(best));
                expected.1.push((best[0] * of_images[3] + best[1]) as f64);
            }
            let x = images.to_device(device, dtype);
            let out = Host::zeros(&shape).to_device(device, dtype);
            let places = Array::sevens(device, to, &shape);
            let operator = Operator::MaxPool2d(pool);
            let found = compute(device, operator, &[x.operand()], &[&out, &places]);
            assert_close(dtype, &found, &expected.0, 0.0);
            let stream = device.create_stream().unwrap();
            assert_eq!(places.read(&stream), expected.1, "{operator} {dtype}");
            let alone = Array::sevens(device, dtype, &shape);
            assert_close(dtype, &compute(device, operator, &[x.operand()], &[&alone]), &expected.0, 0.0);

            if dtype.is_float() {
                let grad = Host::new(dtype, &shape, 2);
                let mut sums = Host::zeros(&of_images);
                for index in indices(&shape) {
                    let place = expected.1[super_place(&shape, &index)] as usize;
                    let to = [index[0], index[1], place / of_images[3], place % of_images[3]];
                    sums.add(to, grad.at(index.clone().try_into().unwrap()));
                }
                let g = grad.to_device(device, dtype);
                let out = Host::zeros(&of_images).to_device(device, dtype);
                let operator = Operator::MaxPool2dGrad(pool);
                let found = compute(device, operator, &[g.operand(), places.operand()], &[&out]);
                assert_close(dtype, &found, &sums.elements, 4.0);
            }
        }
    }
}

fn super_place(shape: &[usize], index: &[usize]) -> usize {
    place(&Layout::contiguous(shape).unwrap(), index)
}

#[test]
fn means_of_windows() {
    let Some(device) = device() else { return };
    for dtype in those_of(FLOATS) {
        for (pool, of_images, [height, width]) in pools() {
            for count_padding in [false, true] {
                let shape = [of_images[0], of_images[1], height, width];
                let (images, grad) = (Host::new(dtype, &of_images, 1), Host::new(dtype, &shape, 2));
                let (mut means, mut sums) = (Host::zeros(&shape), Host::zeros(&of_images));
                for index in indices(&shape) {
                    let places = window(&pool, [index[2], index[3]], [of_images[2], of_images[3]]);
                    let counted = |axis: usize| {
                        let end = of_images[2 + axis] + 2 * pool.padding[axis];
                        let place = |k| index[2 + axis] * pool.stride[axis] + k * pool.dilation[axis];
                        (0..pool.kernel[axis]).filter(|&k| place(k) < end).count()
                    };
                    let count = if count_padding { counted(0) * counted(1) } else { places.len() };
                    let at: [usize; 4] = index.clone().try_into().unwrap();
                    for [y, x] in places {
                        means.add(at, images.at([at[0], at[1], y, x]) / count as f64);
                        sums.add([at[0], at[1], y, x], grad.at(at) / count as f64);
                    }
                }
                let [x, g] = [&images, &grad].map(|host| host.to_device(device, dtype));
                let out = Host::zeros(&shape).to_device(device, dtype);
                let operator = Operator::AvgPool2d { pool, count_padding };
                let found = compute(device, operator, &[x.operand()], &[&out]);
                println!("{operator} {dtype}");
                let expected: Vec<f64> = means.elements.iter().map(|&x| rounded(dtype, x)).collect();
                assert_close(dtype, &found, &expected, 64.0);
                let out = Host::zeros(&of_images).to_device(device, dtype);
                let operator = Operator::AvgPool2dGrad { pool, count_padding };
                let found = compute(device, operator, &[g.operand()], &[&out]);
                assert_close(dtype, &found, &sums.elements, 64.0);
            }
        }
    }
}

#[test]
fn means_of_windows_that_adapt() {
    let Some(device) = device() else { return };
    for dtype in those_of(FLOATS) {
        for (of_images, [height, width]) in
            [([2, 3, 7, 10], [3, 4]), ([1, 2, 5, 5], [1, 1]), ([1, 1, 3, 4], [7, 9]), ([1, 2, 6, 6], [6, 3])]
        {
            let shape = [of_images[0], of_images[1], height, width];
            let (images, grad) = (Host::new(dtype, &of_images, 1), Host::new(dtype, &shape, 2));
            let (mut means, mut sums) = (Host::zeros(&shape), Host::zeros(&of_images));
            for index in indices(&shape) {
                let range = |axis: usize| {
                    let (i, size, count) = (index[2 + axis], of_images[2 + axis], shape[2 + axis]);
                    i * size / count..((i + 1) * size).div_ceil(count)
                };
                let at: [usize; 4] = index.clone().try_into().unwrap();
                let count = (range(0).len() * range(1).len()) as f64;
                for y in range(0) {
                    for x in range(1) {
                        means.add(at, images.at([at[0], at[1], y, x]) / count);
                        sums.add([at[0], at[1], y, x], grad.at(at) / count);
                    }
                }
            }
            let [x, g] = [&images, &grad].map(|host| host.to_device(device, dtype));
            let out = Host::zeros(&shape).to_device(device, dtype);
            let found = compute(device, Operator::AdaptiveAvgPool2d, &[x.operand()], &[&out]);
            println!("{dtype} {of_images:?} {shape:?}");
            assert_close(dtype, &found, &means.elements, 64.0);
            let out = Host::zeros(&of_images).to_device(device, dtype);
            let found = compute(device, Operator::AdaptiveAvgPool2dGrad, &[g.operand()], &[&out]);
            assert_close(dtype, &found, &sums.elements, 64.0);
        }
    }
}
