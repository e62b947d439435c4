//! Kernels of the user's.

use std::fs;

use crate::{Run, compute};

/// Runs the program with a file of this content.
fn with_source(device: &str, text: &str) -> Run {
    with_source_and_size(device, text, "33x17x65")
}

fn with_source_and_size(device: &str, text: &str, size: &str) -> Run {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kernels.txt");
    fs::write(&path, text).unwrap();
    compute(&["--device", device, "--source", path.to_str().unwrap(), "--size", size], &[])
}

/// The built-in kernels, changed. Each change is a piece of the text and its replacement.
#[cfg(any(feature = "cuda", feature = "opencl", feature = "wgpu"))]
fn changed(text: &str, (piece, other): (&str, &str)) -> String {
    assert!(text.contains(piece), "{piece:?} in {text}");
    text.replace(piece, other)
}

/// The tests of a user's kernels, in any language.
#[cfg(any(feature = "cuda", feature = "opencl", feature = "wgpu"))]
struct Changes<'a> {
    backend: &'a str,
    language: &'a str,
    text: &'a str,
    /// It does not compile any more, and the compiler's log has the last of the three in it.
    malformed: ((&'a str, &'a str), &'a str),
    /// `matmul` is called otherwise.
    renamed: (&'a str, &'a str),
    /// The last element is not written.
    left_out: (&'a str, &'a str),
    /// Computes something else, each.
    wrong: &'a [(&'a str, &'a str)],
    /// `matmul` computes something else, each: without a term, zero, and infinity.
    wrong_product: [(&'a str, &'a str); 3],
}

#[cfg(any(feature = "cuda", feature = "opencl", feature = "wgpu"))]
impl Changes<'_> {
    fn are_reported(&self) {
        let Some(_) = device_conformance::device_or_skip(self.backend) else { return };
        let unchanged = with_source(self.backend, self.text);
        assert_eq!(
            unchanged.stdout.matches("as on the cpu, in every bit").count(),
            2,
            "{}",
            unchanged.stderr
        );

        let (malformed, log) = self.malformed;
        let run = with_source(self.backend, &changed(self.text, malformed));
        run.fails_with(&format!("kernels.txt` does not compile as {}\ncaused by: ", self.language));
        run.fails_with(log);

        let run = with_source(self.backend, &changed(self.text, self.renamed));
        run.fails_with("kernels.txt` does not compile as ");
        run.fails_with("matmul");
        let run = with_source(self.backend, "");
        run.fails_with("kernels.txt` does not compile as ");

        // It is not taken for what was in the memory before.
        let run = with_source(self.backend, &changed(self.text, self.left_out));
        run.fails_with("error: the result is wrong: element 999 is NaN and on the cpu ");
        run.fails_with("; 1 of 1000 elements differ");
        for &wrong in self.wrong {
            let run = with_source(self.backend, &changed(self.text, wrong));
            run.fails_with("error: the result is wrong: element ");
        }
        // However long the sums are.
        for size in ["3x17x5", "2x60000x2", "1x9000000x1"] {
            for wrong in self.wrong_product {
                let run = with_source_and_size(self.backend, &changed(self.text, wrong), size);
                run.fails_with("error: the result is wrong: element 0 is ");
                assert!(run.stdout.contains("matmul"), "the product is wrong: {}", run.stdout);
            }
        }
    }
}

#[test]
#[cfg(feature = "opencl")]
fn opencl_c() {
    Changes {
        backend: "opencl",
        language: "OpenCL C",
        text: include_str!("../../src/kernels/opencl.cl"),
        malformed: (("float sum = 0.0f", "float sum = no_such_name"), "no_such_name"),
        renamed: ("void matmul", "void multiply"),
        left_out: ("if (i < len)", "if (i + 1 < len)"),
        wrong: &[("[a_start + i] + b", "[a_start + i] - b")],
        wrong_product: [
            ("k = 0", "k = 1"),
            ("[product_start + i] = sum", "[product_start + i] = 0.0f"),
            ("[product_start + i] = sum", "[product_start + i] = INFINITY"),
        ],
    }
    .are_reported();
}

#[test]
#[cfg(feature = "wgpu")]
fn wgsl() {
    Changes {
        backend: "wgpu",
        language: "WGSL",
        text: include_str!("../../src/kernels/wgpu.wgsl"),
        malformed: (("var sum = 0.0", "var sum = no_such_name"), "no_such_name"),
        renamed: ("fn matmul", "fn multiply"),
        left_out: ("if i < arguments.len", "if i + 1 < arguments.len"),
        wrong: &[("[arguments.a_start + i] + b", "[arguments.a_start + i] - b")],
        wrong_product: [
            ("k = arguments.start", "k = max(arguments.start, 1u)"),
            ("= sum;", "= 0.0;"),
            // It is refused as a constant.
            ("= sum;", "= 3e38 * f32(arguments.inner);"),
        ],
    }
    .are_reported();
}

#[test]
#[cfg(feature = "cuda")]
fn ptx() {
    Changes {
        backend: "cuda",
        language: "PTX",
        text: include_str!("../../src/kernels/cuda.ptx"),
        malformed: (("add.rn.f32      %x, %x, %y", "add.rn.f32      %x, %x, %no_such_name"), "no_such_name"),
        renamed: (".entry matmul", ".entry multiply"),
        left_out: ("setp.ge.u32     %done", "sub.u32 %len, %len, 1;\nsetp.ge.u32 %done"),
        wrong: &[("add.rn.f32", "sub.rn.f32"), ("add.u64         %a, %a, 4;", "add.u64 %a, %a, 0;")],
        wrong_product: [
            // Not the last term.
            ("setp.ne.u32     %more, %inner, 0", "setp.gt.u32 %more, %inner, 1"),
            ("st.global.f32   [%product], %total", "st.global.f32 [%product], 0f00000000"),
            ("st.global.f32   [%product], %total", "st.global.f32 [%product], 0f7F800000"),
        ],
    }
    .are_reported();
}

#[test]
#[cfg(feature = "opencl")]
fn a_missing_kernel_is_an_error_with_the_kernels_there_are() {
    let Some(_) = device_conformance::device_or_skip("opencl") else { return };
    let text = include_str!("../../src/kernels/opencl.cl");
    let run = with_source("opencl", &changed(text, ("void add", "void sum")));
    run.fails_with("the program has no kernel `add`; it has ");
    assert!(
        run.stderr.contains("it has sum, matmul") || run.stderr.contains("it has matmul, sum"),
        "{}",
        run.stderr
    );
    with_source("opencl", "").fails_with("the program has no kernel `add`; it has none");
}

/// A kernel that takes other arguments than it is given.
#[test]
#[cfg(feature = "opencl")]
fn other_arguments_are_an_error_that_names_the_one() {
    let Some(_) = device_conformance::device_or_skip("opencl") else { return };
    let text = include_str!("../../src/kernels/opencl.cl");
    let run = with_source("opencl", &changed(text, ("uint len)\n", "char len)\n")));
    run.fails_with("argument 6 of `add`: CL_INVALID_ARG_SIZE");
    let run = with_source("opencl", &changed(text, ("    uint len)\n", "    uint len, uint more)\n")));
    run.fails_with("clEnqueueNDRangeKernel: CL_INVALID_KERNEL_ARGS");
}

#[test]
fn a_device_whose_kernels_are_rust_compiles_no_text() {
    for device in ["cpu", "openreg"] {
        let run = with_source(device, "kernel void add() {}");
        run.fails_with("kernels.txt` cannot be compiled for `");
        run.fails_with("whose kernels are Rust");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_with_its_name() {
    let run = compute(&["--source", "no-such-file.cl"], &[]);
    run.fails_with("error: cannot read no-such-file.cl\ncaused by: ");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kernels.spv");
    fs::write(&path, [0x03, 0x02, 0x23, 0x07, 0xff]).unwrap();
    compute(&["--source", path.to_str().unwrap()], &[]).fails_with("valid UTF-8");
}
