#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod abi;
mod call;
mod export;
#[cfg(all(test, unix))]
mod header;
#[cfg(feature = "load")]
mod load;

pub use export::KernelSetInFile;

#[cfg(feature = "load")]
device_kernels::entry_points! {
    /// Kernel sets in files: `device_plugin::Plugins::install` finds them beside backends.
    #[distributed_slice(device_plugin::group::FILE_GROUPS)]
    pub static KERNELS_IN_FILES: device_plugin::group::FileGroupDescriptor =
        device_plugin::group::FileGroupDescriptor::new("device_kernels", || Ok(Box::new(load::KernelsInFiles)));
}

/// The backend of a set, as [`device_kernels::kernel_sets`] says.
fn backend_of(set: &str) -> &str {
    set.split_once("__").map_or(set, |(backend, _)| backend)
}

#[cfg(all(test, feature = "load"))]
mod tests {
    use device_kernels::{Coverage, DType};

    use crate::export::row;
    use crate::load::coverage;

    #[test]
    fn each_limit_of_a_coverage_crosses_into_a_program() {
        let add = || Coverage::of("add");
        let types = [DType::BF16, DType::Bool];
        let all = add().dtypes(types).contiguous().arrays_only().max_rank(3).max_elements(9);
        let others = [add().dtypes(types), add().max_rank(3), add().max_elements(9)];
        for one in [add(), add().contiguous(), add().arrays_only(), all].into_iter().chain(others) {
            assert_eq!(coverage(row(&one)).unwrap(), Some(one));
        }
    }

    #[test]
    fn a_row_with_an_unknown_flag_is_not_used() {
        let mut unknown = *row(&Coverage::of("add"));
        unknown.flags |= 4;
        assert_eq!(coverage(&unknown).unwrap(), None);
    }
}
