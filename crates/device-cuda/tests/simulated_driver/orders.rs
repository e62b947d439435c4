//! Injected results: which call of which function returns which code.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

use parking_lot::Mutex;

/// The injected result of a call.
#[derive(Clone, Copy)]
pub(crate) enum Order {
    /// It does nothing, and returns the code.
    Refuse(u32),
    /// It returns the code, whatever it has done.
    Tell(u32),
}

struct Ordered {
    function: String,
    calls: RangeInclusive<u64>,
    order: Order,
}

static ORDERED: LazyLock<Vec<Ordered>> = LazyLock::new(|| {
    let refused = ordered("SIMULATED_CUDA_REFUSE", Order::Refuse);
    refused.into_iter().chain(ordered("SIMULATED_CUDA_TELL", Order::Tell)).collect()
});

fn ordered(variable: &str, order: impl Fn(u32) -> Order) -> Option<Ordered> {
    let text = std::env::var(variable).ok()?;
    let (function, rest) = text.split_once(':').expect("it has the form function:code@call");
    let (code, calls) = rest.split_once('@').expect("it has the form function:code@call");
    let (first, last) = calls.split_once('-').unwrap_or((calls, calls));
    let [first, last] = [first, last].map(|call| call.parse().expect("the number of a call"));
    let order = order(code.parse().expect("a code"));
    Some(Ordered { function: function.to_owned(), calls: first..=last, order })
}

/// Counts a call of a function that has injected results.
pub(crate) fn next(function: &str) -> Option<Order> {
    static CALLS: Mutex<Option<HashMap<String, u64>>> = Mutex::new(None);
    let ordered = ORDERED.iter().find(|ordered| ordered.function == function)?;
    let mut calls = CALLS.lock();
    let call = calls.get_or_insert_default().entry(function.to_owned()).or_default();
    *call += 1;
    ordered.calls.contains(call).then_some(ordered.order)
}

pub(crate) fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some()
}
