//! What is counted of each operator, and what DEVICE_TORCH_FALLBACK says.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::expressions;
use crate::operators::TABLE;

/// What the CPU may do for a device that has no kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Policy {
    /// It computes.
    Allow = 0,
    /// It computes, with one warning for each operator.
    Warn = 1,
    /// Nothing: the operator is an error.
    Deny = 2,
}

/// What DEVICE_TORCH_FALLBACK says. The text is about an invalid value.
pub(crate) fn policy() -> &'static Result<Policy, String> {
    static POLICY: OnceLock<Result<Policy, String>> = OnceLock::new();
    POLICY.get_or_init(|| match env::var("DEVICE_TORCH_FALLBACK").unwrap_or_default().trim() {
        "" | "allow" => Ok(Policy::Allow),
        "warn" => Ok(Policy::Warn),
        "deny" => Ok(Policy::Deny),
        other => Err(format!("DEVICE_TORCH_FALLBACK is `{other}`, expected `allow`, `warn` or `deny`")),
    })
}

/// Calls that the CPU computed, by the name of the operator and PyTorch's number of the type.
static FALLBACKS: Mutex<BTreeMap<String, BTreeMap<i32, Count>>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Copy, Default)]
struct Count {
    calls: u64,
    nanoseconds: u64,
    bytes: u64,
}

/// Counts a call that the CPU computed: how long it took, and how many bytes were moved for it.
pub(crate) fn add_fallback(name: &str, dtype: i32, nanoseconds: u64, bytes: u64) {
    let mut fallbacks = FALLBACKS.lock();
    let types = match fallbacks.get_mut(name) {
        Some(types) => types,
        None => fallbacks.entry(name.to_owned()).or_default(),
    };
    let count = types.entry(dtype).or_default();
    count.calls += 1;
    count.nanoseconds += nanoseconds;
    count.bytes += bytes;
}

/// PyTorch's numbers of types end below it.
const TYPES: usize = 64;

/// Calls that kernels computed. Nothing locks, as there are many, from many threads.
struct NativeCounts(Vec<[(AtomicU64, AtomicU64); TYPES]>);

fn native_counts() -> &'static NativeCounts {
    static COUNTS: OnceLock<NativeCounts> = OnceLock::new();
    COUNTS.get_or_init(|| {
        NativeCounts(TABLE.iter().map(|_| std::array::from_fn(|_| Default::default())).collect())
    })
}

/// Counts a call that was enqueued as kernels, and how long that took.
pub(crate) fn add_native(operator: usize, dtype: i32, nanoseconds: u64) {
    let dtype = usize::try_from(dtype).unwrap_or(TYPES);
    if let Some((calls, time)) = native_counts().0.get(operator).and_then(|types| types.get(dtype)) {
        calls.fetch_add(1, Ordering::Relaxed);
        time.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

/// All counts: a line for each, of the name, `kernel`, `fused` or `cpu`, the type's number, calls,
/// nanoseconds, bytes, and how many operators one call computes, with tabs between them.
pub(crate) fn lines() -> String {
    let mut lines = expressions::lines();
    for (&(name, _), types) in TABLE.iter().zip(&native_counts().0) {
        for (dtype, (calls, nanoseconds)) in types.iter().enumerate() {
            let calls = calls.load(Ordering::Relaxed);
            let nanoseconds = nanoseconds.load(Ordering::Relaxed);
            if calls > 0 {
                let _ = writeln!(lines, "{name}\tkernel\t{dtype}\t{calls}\t{nanoseconds}\t0\t1");
            }
        }
    }
    for (name, types) in &*FALLBACKS.lock() {
        for (dtype, Count { calls, nanoseconds, bytes }) in types {
            let _ = writeln!(lines, "{name}\tcpu\t{dtype}\t{calls}\t{nanoseconds}\t{bytes}\t1");
        }
    }
    lines
}

/// Forgets all counts.
pub(crate) fn reset() {
    FALLBACKS.lock().clear();
    expressions::reset();
    for (calls, nanoseconds) in native_counts().0.iter().flatten() {
        calls.store(0, Ordering::Relaxed);
        nanoseconds.store(0, Ordering::Relaxed);
    }
}
