//! Compares the types with `include/device_kernels.h`, by the C compiler: sizes, offsets and constants.

use std::mem::offset_of;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use device_kernels::DType;

use crate::abi::{self, Argument, Call, CallOption, Kernel, Kernels, Number, SetApi};

/// A program in C that compiles only if the header agrees with the types.
fn assertions() -> String {
    let mut text = "#include <stdint.h>\n#include \"device_kernels.h\"\n".to_owned();
    let mut check = |condition: String| {
        text.push_str(&format!("_Static_assert({condition}, \"disagrees\");\n"));
    };
    macro_rules! layout {
        ($type:ident = $name:literal { $($field:ident)* }) => {
            check(format!("sizeof({}) == {}", $name, size_of::<$type>()));
            $(check(format!("offsetof({}, {}) == {}", $name, stringify!($field), offset_of!($type, $field)));)*
            // A field that only one side has changes the size, as no type ends in padding.
        };
    }
    layout!(Number = "dk_number" { integer real dtype reserved });
    layout!(CallOption = "dk_option" { name values count });
    layout!(Argument = "dk_argument" { span shape strides offset dtype rank number });
    layout!(Call = "dk_call" {
        struct_size name options option_count inputs input_count outputs output_count
    });
    layout!(Kernel = "dk_kernel" { struct_size name max_rank max_elements dtypes flags });
    layout!(SetApi = "dk_set_api" { struct_size kernels kernel_count supports is_short launch });
    layout!(Kernels = "dk_kernels" { struct_size major minor set api });
    for (field, function) in [
        ("supports", "uint32_t (*)(void *, size_t, const dk_call *)"),
        ("is_short", "uint32_t (*)(void *, const dk_call *)"),
        ("launch", "uint32_t (*)(void *, void *, void *, const dk_call *, const dp_report *)"),
    ] {
        check(format!("_Generic(((dk_set_api *)0)->{field}, {function}: 1, default: 0)"));
    }
    for (dtype, number) in abi::DTYPES {
        check(format!("DK_{} == {number}", dtype.name().to_ascii_uppercase()));
    }
    check(format!("DEVICE_KERNELS_MAJOR == {} && DEVICE_KERNELS_MINOR == {}", abi::MAJOR, abi::MINOR));
    check(format!("DK_CONTIGUOUS == {} && DK_ARRAYS_ONLY == {}", abi::CONTIGUOUS, abi::ARRAYS_ONLY));
    text + "int main(void) { return 0; }\n"
}

fn compile(header: &str, text: &str, compiler: &[&str]) -> Result<(), String> {
    static NUMBER: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let folder = env::temp_dir().join(format!("device-kernels-plugin-{}-{number}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("device_kernels.h"), header).unwrap();
    let file = folder.join("assertions.c");
    fs::write(&file, text).unwrap();
    let backends = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/device-plugin/include");
    let output = Command::new(compiler[0])
        .args(&compiler[1..])
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I"])
        .arg(&folder)
        .arg("-I")
        .args([&backends, &file])
        .output()
        .unwrap_or_else(|error| panic!("the C compiler does not run: {error}"));
    fs::remove_dir_all(folder).unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

const HEADER: &str = include_str!("../include/device_kernels.h");
const C: &[&str] = &["cc", "-std=c11"];

#[test]
fn the_header_agrees_with_the_types_of_this_crate() {
    compile(HEADER, &assertions(), C).unwrap();
    assert_eq!(abi::DTYPES.map(|(dtype, _)| dtype), DType::ALL);
}

#[test]
fn the_header_is_valid_cpp() {
    let text = "#include \"device_kernels.h\"\nint main() { return 0; }\n";
    compile(HEADER, text, &["c++", "-std=c++17", "-x", "c++"]).unwrap();
}

#[test]
fn a_header_that_disagrees_does_not_compile() {
    for (from, to) in [
        ("    uint32_t dtype;\n    uint32_t rank;", "    uint32_t rank;\n    uint32_t dtype;"),
        ("DK_U8 = 7", "DK_U8 = 17"),
        ("    size_t offset;            /* in elements */\n", ""),
        ("(*is_short)(void *set, const dk_call *call)", "(*is_short)(void *set, void *call)"),
    ] {
        assert!(HEADER.contains(from), "{from}");
        let error = compile(&HEADER.replace(from, to), &assertions(), C).unwrap_err();
        assert!(error.contains("static assertion failed"), "{from}: {error}");
    }
}
