//! CUDA C++: the same texts, with definitions in front.

use crate::Recipe;

/// Definitions of what the texts use of OpenCL C, for any compiler of C++. Tests have others' behind them.
const COMMON: &str = include_str!("preludes/common.h");

/// What differs from one compiler to the other, for NVRTC.
const NVRTC: &str = include_str!("preludes/cuda.h");

/// The options that make functions the device's, and leave out two warnings: of variables that are not used,
/// and of the directives for OpenCL.
const OPTIONS: [&str; 3] = ["--device-as-default-execution-space", "--std=c++17", "--diag-suppress=161,177"];

/// A text in CUDA C++, for NVRTC and without any header, with one kernel of the name `run`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaText {
    /// What is compiled.
    pub source: String,
    /// How, besides the architecture.
    pub options: Vec<&'static str>,
}

/// The axes that the groups of a launch are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupAxes {
    /// As the [step](crate::Step) has them. CUDA has at most 65,535 groups on the second and the third axis.
    All,
    /// All groups are on the first. The kernel has two parameters more, of type `unsigned`, before all
    /// others: how many groups there are in the direction of the first axis, and of the second.
    First,
}

impl Recipe {
    /// The program in CUDA C++.
    #[must_use]
    pub fn cuda_text(&self, axes: GroupAxes) -> CudaText {
        let text = self.text();
        let mut options = Vec::from(OPTIONS);
        // The directive is OpenCL's. A text with it is rounded after each operation.
        if text.contains("FP_CONTRACT OFF") {
            options.push("--fmad=false");
        }
        if axes == GroupAxes::First {
            options.push("--define-macro=GROUPS_ON_ONE_AXIS");
        }
        CudaText { source: format!("{COMMON}#line 1 \"cuda.h\"\n{NVRTC}#line 1 \"run.cl\"\n{text}"), options }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Plan, Traits};

    #[test]
    fn texts_that_are_rounded_after_each_operation_have_no_fused_multiply_adds() {
        let traits = Traits { doubles: true, groups: true, units: 8 };
        let mut found = [0, 0];
        for call in device_kernels_conformance::calls() {
            let Some(plan) = Plan::of(&call, traits, &[]) else { continue };
            for step in plan.steps {
                let rounded = step.recipe.text().contains("#pragma OPENCL FP_CONTRACT OFF");
                let options = step.recipe.cuda_text(GroupAxes::All).options;
                assert_eq!(options.contains(&"--fmad=false"), rounded, "{:?}", step.recipe);
                found[usize::from(rounded)] += 1;
            }
        }
        assert!(found.iter().all(|&count| count > 10), "{found:?}");
    }
}
