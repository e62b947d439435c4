//! Wrong kernel sets, to prove that the suite catches them: a correct set, with one defect at a time.
//!
//! - `correct::CHECK` runs a check on the set without a defect. It passes.
//! - `nothing_is_computed::CHECK` runs a check on a set whose kernels do nothing. It fails.
//! - `DEFECT::caught_by::CHECK` runs a check on the set with the defect. It fails.
//! - `DEFECT::spares` runs a check of each group that the defect is not about. All pass.
//! - `in_parts::CHECK` runs a check of expressions on a linked set that has none. It passes.
//! - `every_defect_is_caught`: the table is complete.
//! - `the_readme_counts_the_defects`: and so is the README.

mod expression;
mod set;
mod sort;
mod survey;
mod table;
mod wrong;

use std::process::ExitCode;

use device_kernels::{KERNEL_SETS, KernelSetDescriptor};
use device_kernels_conformance::{Outcome, Subject, checks};
use device_registry::Device;
use libtest_mimic::{Arguments, Failed, Trial};

use crate::set::Set;
use crate::table::{Row, TABLE};
use crate::wrong::Wrong;

device_kernels::entry_points! {
    /// All kernels but expressions.
    #[distributed_slice(KERNEL_SETS)]
    static WITHOUT_EXPRESSIONS: KernelSetDescriptor =
        KernelSetDescriptor::new("cpu", expression::without_expressions);
}

/// A quick check of each group.
const PANEL: &[&str] = &[
    "unary::neg",
    "binary::xor",
    "compare::ge",
    "select::where",
    "copy::to_u32",
    "layout::in_place",
    "reduce::integers_wrap",
    "arg_reduce::max",
    "sort::sizes_of_0_and_1",
    "softmax::softmax",
    "expressions::rounding",
    "matmul::plain",
    "index::assign_replace",
    "conv::plain",
    "pooling::adaptive_avg",
    "random::integers",
    "cache::two_dtypes",
    "streams::two_streams",
];

fn main() -> ExitCode {
    hide_panics_of_kernels();
    if let Some(code) = survey::main() {
        return code;
    }
    let arguments = Arguments::from_args();
    let mut trials: Vec<Trial> = checks()
        .iter()
        .map(|check| {
            let name = check.name().to_owned();
            Trial::test(format!("correct::{name}"), move || passes(None, &name))
        })
        .collect();
    // A check that passes where nothing is computed compares nothing.
    let compares = |name: &&str| !name.starts_with("claims::");
    for check in checks().iter().map(|check| check.name()).filter(compares) {
        let check = check.to_owned();
        let name = format!("nothing_is_computed::{check}");
        trials.push(Trial::test(name, move || is_caught(Wrong::WritesNothing, &check)));
    }
    for row in TABLE {
        for &check in row.caught_by {
            let name = format!("{:?}::caught_by::{check}", row.wrong);
            trials.push(Trial::test(name, move || is_caught(row.wrong, check)));
        }
        trials.push(Trial::test(format!("{:?}::spares", row.wrong), move || spares(row)));
    }
    for check in checks().iter().filter(|check| check.name().starts_with("expressions::")) {
        let check = check.name().to_owned();
        trials.push(Trial::test(format!("in_parts::{check}"), move || passes_in_parts(&check)));
    }
    trials.push(Trial::test("every_defect_is_caught", every_defect_is_caught));
    trials.push(Trial::test("the_readme_counts_the_defects", the_readme_counts_the_defects));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A panic of a kernel is an error of the stream. Its messages would hide all others.
fn hide_panics_of_kernels() {
    let shown = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().name() != Some("cpu stream") {
            shown(panic);
        }
    }));
}

fn outcome(wrong: Option<Wrong>, name: &str) -> Result<Outcome, Failed> {
    let set: &'static Set = Box::leak(Box::new(Set::new(wrong)));
    outcome_of(&Subject::new(Device::cpu(), set), name)
}

fn outcome_of(subject: &Subject, name: &str) -> Result<Outcome, Failed> {
    let checks = checks();
    let check = checks.iter().find(|check| check.name() == name);
    let check = check.ok_or_else(|| format!("there is no check `{name}`"))?;
    Ok(check.run(subject))
}

fn passes_in_parts(check: &str) -> Result<(), Failed> {
    match outcome_of(&Subject::linked(Device::cpu())?.in_parts(), check)? {
        Outcome::Passed => Ok(()),
        other => Err(format!("{check} {other}").into()),
    }
}

fn passes(wrong: Option<Wrong>, check: &str) -> Result<(), Failed> {
    match outcome(wrong, check)? {
        Outcome::Passed => Ok(()),
        other => Err(format!("{check} {other}").into()),
    }
}

fn is_caught(wrong: Wrong, check: &str) -> Result<(), Failed> {
    match outcome(Some(wrong), check)? {
        Outcome::Failed(_) => Ok(()),
        other => Err(format!("expected the check to fail with this defect, found that it {other}").into()),
    }
}

fn spares(row: &Row) -> Result<(), Failed> {
    let may_fail = |check: &str| row.groups.iter().any(|group| check.starts_with(group));
    PANEL.iter().filter(|check| !may_fail(check)).try_for_each(|check| passes(Some(row.wrong), check))
}

fn every_defect_is_caught() -> Result<(), Failed> {
    let caught = |wrong: &&Wrong| TABLE.iter().any(|row| row.wrong == **wrong && !row.caught_by.is_empty());
    match Wrong::ALL.iter().find(|wrong| !caught(wrong)) {
        None => Ok(()),
        Some(wrong) => Err(format!("no check catches {wrong:?}").into()),
    }
}

fn the_readme_counts_the_defects() -> Result<(), Failed> {
    let count = format!("on {} wrong ones", Wrong::ALL.len());
    let is_there = include_str!("../../README.md").contains(&count);
    if is_there { Ok(()) } else { Err(format!("the readme lacks `{count}`").into()) }
}
