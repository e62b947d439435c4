//! The checks: a file for each group. Each has a function `checks` that lists them.

mod cache;
mod claims;
mod convolution;
mod custom;
mod elementwise;
mod expression;
mod indexing;
mod layout;
mod matmul;
mod pooling;
mod random;
mod reduce;
mod sort;
mod streams;

use std::sync::Arc;

use device_kernels::{Call, DType};

use crate::case::Case;
use crate::check::{Check, Drawn};
use crate::draw::Draw;

/// All checks, by group.
#[must_use]
pub fn checks() -> Vec<Arc<Check>> {
    let groups = [
        claims::checks(),
        elementwise::checks(),
        layout::checks(),
        reduce::checks(),
        expression::checks(),
        sort::checks(),
        matmul::checks(),
        indexing::checks(),
        convolution::checks(),
        pooling::checks(),
        random::checks(),
        streams::checks(),
        cache::checks(),
        custom::checks(),
    ];
    groups.into_iter().flatten().map(Arc::new).collect()
}

/// Calls of every operator, from the cases of all checks.
#[doc(hidden)]
#[must_use]
pub fn calls() -> Vec<Call> {
    checks().iter().flat_map(|check| check.calls()).collect()
}

pub(crate) const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::BF16, DType::F64];
pub(crate) const INTEGERS: [DType; 4] = [DType::I32, DType::I64, DType::U8, DType::U32];
pub(crate) const INDICES: [DType; 3] = [DType::I32, DType::I64, DType::U32];
pub(crate) const NUMBERS: [DType; 8] =
    [DType::F32, DType::F16, DType::BF16, DType::F64, DType::I32, DType::I64, DType::U8, DType::U32];

/// One way to draw cases.
pub(crate) fn drawn(draw: impl Fn(&mut Case, &mut Draw<'_>) + Send + Sync + 'static) -> Drawn {
    Box::new(draw)
}

/// A way to draw cases for each type.
pub(crate) fn for_each(
    dtypes: &[DType],
    draw: impl Fn(DType, &mut Case, &mut Draw<'_>) + Send + Sync + Clone + 'static,
) -> Vec<Drawn> {
    let of_type = |&dtype: &DType| {
        let draw = draw.clone();
        drawn(move |case, numbers| draw(dtype, case, numbers))
    };
    dtypes.iter().map(of_type).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use device_kernels::Operator;

    use super::*;

    #[test]
    fn every_operator_has_a_case() {
        let calls = calls();
        let called: BTreeSet<&str> = calls.iter().map(|call| call.operator().name()).collect();
        let missing: Vec<_> = Operator::names().filter(|name| !called.contains(name)).collect();
        assert!(missing.is_empty(), "no case calls {missing:?}");
    }

    #[test]
    fn cases_are_drawn_for_every_type() {
        let all =
            |is: fn(DType) -> bool| DType::ALL.into_iter().filter(|dtype| is(*dtype)).collect::<Vec<_>>();
        assert_eq!(all(DType::is_float), FLOATS);
        assert_eq!(all(DType::is_integer), INTEGERS);
        assert_eq!(all(DType::is_index), INDICES);
        assert_eq!(all(|dtype| dtype != DType::Bool), NUMBERS);
    }

    #[test]
    fn names_are_unique_and_have_a_group() {
        let mut names = BTreeSet::new();
        for check in checks() {
            assert!(check.name().split("::").all(|part| !part.is_empty()) && check.name().contains("::"));
            assert!(names.insert(check.name().to_owned()), "{} is there twice", check.name());
        }
    }

    #[test]
    fn the_readme_counts_the_checks_of_each_group() {
        let readme = include_str!("../../README.md");
        let mut groups: Vec<(String, usize)> = Vec::new();
        for check in checks() {
            let (group, _) = check.name().split_once("::").expect("it has a group");
            match groups.iter_mut().find(|(name, _)| name == group) {
                Some((_, count)) => *count += 1,
                None => groups.push((group.to_owned(), 1)),
            }
        }
        for (group, count) in groups {
            let row = format!("| `{group}` | {count} |");
            assert!(readme.contains(&row), "the readme lacks the row {row}");
        }
    }

    #[test]
    fn each_check_proves_one_sentence() {
        for check in checks() {
            let proves = check.proves();
            assert!(!proves.is_empty() && !proves.ends_with('.') && !proves.contains('\n'), "{proves}");
        }
    }
}
