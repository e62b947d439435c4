//! The threads that large calls are computed on.

use std::sync::LazyLock;

use rayon::{ThreadPool, ThreadPoolBuilder};

/// Threads of its own, as many as rayon has: a program may wait for a stream on all of rayon's, and would
/// wait forever if the stream needed one of them.
static THREADS: LazyLock<Option<ThreadPool>> = LazyLock::new(|| {
    let name = |number| format!("kernels {number}");
    let threads =
        ThreadPoolBuilder::new().num_threads(rayon::current_num_threads()).thread_name(name).build();
    threads.inspect_err(|error| log::warn!("kernels use rayon's threads, without their own: {error}")).ok()
});

/// Calls `work` on one of the threads, where rayon's iterators use the others too, and waits for it.
///
/// Never for a call that is short ([`Call::is_short`](device_kernels::Call::is_short)): the thread that
/// enqueues it computes it, and that may be one of rayon's. While it waited here, rayon would give it other
/// work, which may wait for this call.
pub(crate) fn on_all<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    #[cfg(test)]
    tests::USES.set(tests::USES.get() + 1);
    match &*THREADS {
        Some(threads) => threads.install(work),
        None => work(),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use device_kernels::short::{ELEMENTS, SORTED};
    use device_kernels::{
        Argument, Binary, Call, DType, Expression, Extremum, Layout, Operator, Reduction, Sorted, Unary,
        Update,
    };

    use crate::compute;

    thread_local! {
        /// How often this thread called `on_all`.
        pub(super) static USES: Cell<usize> = const { Cell::new(0) };
    }

    fn array(dtype: DType, shape: &[usize]) -> Argument {
        Argument::Array(dtype, Layout::contiguous(shape).unwrap())
    }

    /// How often the call uses the threads.
    fn uses(call: &Call) -> usize {
        let bytes = |(dtype, layout): &(DType, Layout)| vec![0; dtype.size() * layout.range().len()];
        let inputs: Vec<Vec<u8>> = (call.inputs().iter())
            .map(|input| input.array().map_or_else(Vec::new, |(dtype, layout)| bytes(&(dtype, *layout))))
            .collect();
        let inputs: Vec<Option<&[u8]>> = inputs.iter().map(|bytes| Some(&**bytes)).collect();
        let mut outputs: Vec<Vec<u8>> = call.outputs().iter().map(bytes).collect();
        let mut outputs: Vec<&mut [u8]> = outputs.iter_mut().map(|bytes| &mut **bytes).collect();
        USES.set(0);
        compute(call, &inputs, &mut outputs).unwrap();
        USES.get()
    }

    #[test]
    fn the_longest_short_calls_use_no_other_thread() {
        let dim = 0;
        let extremum = Extremum::Max;
        for dtype in [DType::F32, DType::F16, DType::F64, DType::I32, DType::I64, DType::U8] {
            let of = |operator: Operator, inputs: &[&[usize]], output: &[usize]| {
                let inputs: Vec<_> = inputs.iter().map(|shape| array(dtype, shape)).collect();
                Call::new(operator, &inputs, &[array(dtype, output)]).unwrap()
            };
            let indexed = |operator: Operator, first: Argument, second: Argument| {
                Call::new(operator, &[first, second], &[array(dtype, &[ELEMENTS])]).unwrap()
            };
            let values = || array(dtype, &[ELEMENTS]);
            let indices = || array(DType::I64, &[ELEMENTS]);
            let sorted = array(dtype, &[SORTED]);
            let sort = Operator::Sort { dim, descending: true, sorted: Sorted::Both };
            let mut calls = vec![
                Call::new(sort, &[sorted], &[sorted, array(DType::I64, &[SORTED])]).unwrap(),
                of(Operator::MatMul, &[&[32, 32], &[32, 32]], &[32, 32]),
                of(Operator::MatMul, &[&[4, 2048], &[2048, 4]], &[4, 4]),
                of(Operator::MatMul, &[&[64, 8, 8], &[64, 8, 8]], &[64, 8, 8]),
                of(Binary::Mul.into(), &[&[8, ELEMENTS / 8], &[ELEMENTS / 8]], &[8, ELEMENTS / 8]),
                of(Unary::Neg.into(), &[&[ELEMENTS]], &[ELEMENTS]),
                of(Operator::Reduce { reduction: Reduction::Sum, dims: [0].into() }, &[&[ELEMENTS]], &[1]),
                of(
                    Operator::Reduce { reduction: Reduction::Max, dims: [1].into() },
                    &[&[64, ELEMENTS / 64]],
                    &[64, 1],
                ),
                Call::new(Operator::ArgReduce { extremum, dim }, &[values()], &[array(DType::I64, &[1])])
                    .unwrap(),
                indexed(Operator::Gather { dim }, values(), indices()),
                indexed(Operator::IndexSelect { dim }, values(), indices()),
                indexed(Operator::Scatter { dim, update: Update::Add }, indices(), values()),
                indexed(Operator::IndexAssign { dim, update: Update::Add }, indices(), values()),
            ];
            let expression = Expression::build(|e| {
                let x = e.input(dtype);
                let difference = x - x.max([0]);
                e.output(difference * x + difference);
                e.output(x.sum([0]));
            });
            let outputs = [array(dtype, &[ELEMENTS / 2]), array(dtype, &[1])];
            calls.push(Call::new(expression.unwrap(), &[array(dtype, &[ELEMENTS / 2])], &outputs).unwrap());
            if dtype.is_float() {
                calls.push(of(Operator::Softmax { dim }, &[&[ELEMENTS]], &[ELEMENTS]));
                calls.push(of(Operator::LogSoftmax { dim: 1 }, &[&[ELEMENTS, 1]], &[ELEMENTS, 1]));
            }
            for call in &calls {
                assert!(call.is_short(), "{call}");
                assert_eq!(uses(call), 0, "{call}");
            }
            let long = of(Operator::MatMul, &[&[128, 128], &[128, 128]], &[128, 128]);
            assert!(!long.is_short());
            assert_eq!(uses(&long), 1, "{long}");
        }
    }
}
