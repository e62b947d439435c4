//! Compares the types with `include/device_plugin.h`, using the C compiler: sizes, offsets and types of
//! fields, the parameters of functions, and the values of constants.

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::abi;

pub(super) struct Layout {
    pub(super) name: &'static str,
    pub(super) size: usize,
    pub(super) fields: Vec<Field>,
}

pub(super) struct Field {
    name: &'static str,
    offset: usize,
    size: usize,
    c_type: String,
}

impl Field {
    pub(super) fn new<T: CType>(name: &'static str, offset: usize) -> Self {
        Self { name, offset, size: size_of::<T>(), c_type: T::c_name() }
    }
}

/// A type with its name in C.
pub(super) trait CType {
    fn c_name() -> String;
}

macro_rules! c_types {
    ($($type:ty = $name:literal,)*) => {$(
        impl CType for $type {
            fn c_name() -> String {
                $name.to_owned()
            }
        }
    )*};
}

c_types! {
    () = "void",
    c_void = "void",
    i8 = "char",
    u8 = "uint8_t",
    u32 = "uint32_t",
    i32 = "int32_t",
    u64 = "uint64_t",
    usize = "size_t",
}

impl<T: CType> CType for *const T {
    fn c_name() -> String {
        let target = T::c_name();
        if target.ends_with('*') { format!("{target} const *") } else { format!("const {target} *") }
    }
}

impl<T: CType> CType for *mut T {
    fn c_name() -> String {
        format!("{} *", T::c_name())
    }
}

/// An array in a field decays to a pointer in `_Generic`.
impl<const N: usize> CType for [u8; N] {
    fn c_name() -> String {
        "uint8_t *".to_owned()
    }
}

macro_rules! functions {
    ($($argument:ident)*) => {
        impl<R: CType, $($argument: CType),*> CType for Option<unsafe extern "C" fn($($argument),*) -> R> {
            fn c_name() -> String {
                let arguments: Vec<String> = vec![$($argument::c_name()),*];
                format!("{} (*)({})", R::c_name(), arguments.join(", "))
            }
        }
    };
}

functions!(A);
functions!(A B);
functions!(A B C);
functions!(A B C D);
functions!(A B C D E);
functions!(A B C D E F);

const CONSTANTS: &[(&str, u64)] = &[
    ("DEVICE_PLUGIN_MAJOR", abi::MAJOR as u64),
    ("DEVICE_PLUGIN_MINOR", abi::MINOR as u64),
    ("DP_UNKNOWN", abi::UNKNOWN),
    ("DP_OK", abi::OK as u64),
    ("DP_OUT_OF_MEMORY", abi::OUT_OF_MEMORY as u64),
    ("DP_UNSUPPORTED", abi::UNSUPPORTED as u64),
    ("DP_UNAVAILABLE", abi::UNAVAILABLE as u64),
    ("DP_LOST", abi::LOST as u64),
    ("DP_INVALID", abi::INVALID as u64),
    ("DP_OTHER", abi::OTHER as u64),
    ("DP_DROPPED", abi::DROPPED as u64),
    ("DP_ABSENT", abi::ABSENT as u64),
    ("DP_KIND_OTHER", abi::KIND_OTHER as u64),
    ("DP_KIND_CPU", abi::KIND_CPU as u64),
    ("DP_KIND_GPU", abi::KIND_GPU as u64),
    ("DP_KIND_INTEGRATED_GPU", abi::KIND_INTEGRATED_GPU as u64),
    ("DP_KIND_ACCELERATOR", abi::KIND_ACCELERATOR as u64),
    ("DP_KIND_SIMULATED", abi::KIND_SIMULATED as u64),
    ("DP_SERIAL_STREAMS", abi::SERIAL_STREAMS as u64),
    ("DP_NO_TIMED_EVENTS", abi::NO_TIMED_EVENTS as u64),
    ("DP_PINNED_MEMORY", abi::PINNED_MEMORY as u64),
    ("DP_REUSE_NEVER", abi::REUSE_NEVER as u64),
    ("DP_REUSE_EXACT", abi::REUSE_EXACT as u64),
    ("DP_REUSE_ROUNDED", abi::REUSE_ROUNDED as u64),
    ("DP_REUSE_DIVIDED", abi::REUSE_DIVIDED as u64),
    ("DP_REUSE_LARGE", abi::REUSE_LARGE as u64),
    ("DP_FAIL_ALLOCATION", abi::FAIL_ALLOCATION as u64),
    ("DP_FAIL_COPY", abi::FAIL_COPY as u64),
    ("DP_LOSE_DEVICE", abi::LOSE_DEVICE as u64),
    ("DP_UNPLUG", abi::UNPLUG as u64),
    ("DP_SLOW", abi::SLOW as u64),
    ("DP_STALL", abi::STALL as u64),
    ("DP_LOG_OFF", log::LevelFilter::Off as u64),
    ("DP_LOG_ERROR", log::Level::Error as u64),
    ("DP_LOG_WARN", log::Level::Warn as u64),
    ("DP_LOG_INFO", log::Level::Info as u64),
    ("DP_LOG_DEBUG", log::Level::Debug as u64),
    ("DP_LOG_TRACE", log::Level::Trace as u64),
];

/// A program in C that compiles only if the header agrees with the types.
fn assertions() -> String {
    let mut text = "#include \"device_plugin.h\"\n".to_owned();
    let mut check = |condition: String, message: &str| {
        text.push_str(&format!("_Static_assert({condition}, \"{message}\");\n"));
    };
    for Layout { name, size, fields } in abi::types::layouts() {
        // A field in padding could not be distinguished from garbage by the size.
        let end = fields.last().map_or(0, |field| field.offset + field.size);
        assert_eq!(end, size, "{name} ends in padding");
        check(format!("sizeof({name}) == {size}"), name);
        for Field { name: field, offset, size, c_type } in fields {
            let at = format!("{name}.{field}");
            check(format!("offsetof({name}, {field}) == {offset}"), &at);
            check(format!("sizeof((({name} *)0)->{field}) == {size}"), &at);
            // The type itself, not one that converts to it.
            check(
                format!("_Generic((({name} *)0)->{field}, {c_type}: 1, default: 0)"),
                &format!("{at}: {c_type}"),
            );
        }
    }
    for (name, value) in CONSTANTS {
        check(format!("{name} == {value}u"), name);
    }
    let function = "const dp_plugin *(*)(const dp_host *, const dp_report *)";
    check(format!("_Generic(&{}, {function}: 1, default: 0)", abi::SYMBOL), abi::SYMBOL);
    text.push_str("int main(void) { return 0; }\n");
    text
}

/// The compiler that a variable names, for example for another processor, or the system's.
fn compiler(variable: &str, system: &str) -> String {
    env::var(variable).unwrap_or_else(|_| system.to_owned())
}

/// Compiles a text with the header, for its errors.
fn compile(compiler: &str, standard: &str, language: &str, header: &Path, text: &str) -> Result<(), String> {
    let file = header.join(format!("assertions.{language}"));
    fs::write(&file, text).unwrap();
    let output = Command::new(compiler)
        .args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I"])
        .args([header, &file])
        .output()
        .unwrap_or_else(|error| panic!("the C compiler `{compiler}` does not run: {error}"));
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

fn header() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/device_plugin.h");
    fs::read_to_string(path).unwrap()
}

/// A folder of its own with a header.
fn folder_with(name: &str, header: &str) -> PathBuf {
    let folder = env::temp_dir().join(format!("device-plugin-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("device_plugin.h"), header).unwrap();
    folder
}

fn compile_c(name: &str, header: &str) -> Result<(), String> {
    let folder = folder_with(name, header);
    let outcome = compile(&compiler("CC", "cc"), "-std=c11", "c", &folder, &assertions());
    fs::remove_dir_all(folder).unwrap();
    outcome
}

#[test]
fn the_header_agrees_with_the_types_of_this_crate() {
    compile_c("agrees", &header()).unwrap();
}

#[test]
fn a_status_has_its_name_of_the_header() {
    let names: Vec<_> = CONSTANTS.iter().map(|constant| constant.0).collect();
    let [first, last] =
        ["DP_OK", "DP_ABSENT"].map(|name| names.iter().position(|other| *other == name).unwrap());
    for (name, value) in &CONSTANTS[first..=last] {
        assert_eq!(abi::status_name(u32::try_from(*value).unwrap()), Some(*name));
    }
    assert_eq!(abi::status_name(abi::ABSENT + 1), None);
}

/// Each struct that begins with `struct_size` has one more member, as in a later minor version.
fn grown(header: &str) -> String {
    let mut structs = header.split("typedef struct ");
    let mut grown = structs.next().unwrap_or_default().to_owned();
    for rest in structs {
        let end = rest.find("\n} ").expect("a struct ends");
        let (body, behind) = rest.split_at(end);
        let more = if body.contains("{\n    size_t struct_size;") { "\n    size_t more;" } else { "" };
        grown += &format!("typedef struct {body}{more}{behind}");
    }
    grown
}

/// A list of members by position does not, with the flags that authors are told to use.
#[cfg(unix)]
#[test]
fn sources_in_c_compile_with_tables_that_have_grown() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = folder_with("grown", &grown(&header()));
    let kernels = repository.join("kernels/device-kernels-plugin/include/device_kernels.h");
    fs::write(folder.join("device_kernels.h"), grown(&fs::read_to_string(kernels).unwrap())).unwrap();
    let compile = |text: &str| compile(&compiler("CC", "cc"), "-std=c11", "c", &folder, text);
    for source in [
        "examples/custom-backend/c/myc.c",
        "examples/custom-backend/c/mycqueue.c",
        "tests/plugins/tests/tool/broken.c",
    ] {
        let source = repository.join(source);
        compile(&format!("#include \"{}\"\n", source.display())).unwrap();
    }
    let text =
        "#include \"device_plugin.h\"\nstatic const dp_option_spec LEVEL = {sizeof LEVEL, {0}, {0}};\n";
    let error = compile(&format!("{text}size_t size(void) {{ return LEVEL.struct_size; }}\n")).unwrap_err();
    assert!(error.contains("missing"), "{error}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_header_is_valid_cpp() {
    let folder = folder_with("cpp", &header());
    // Sets the size as the first rule says, because names in an initialiser are a warning there.
    let text = "#include \"device_plugin.h\"\n\
                int main() { dp_entry entry{}; entry.struct_size = sizeof entry; return entry.reserved ? 1 : 0; }\n";
    compile(&compiler("CXX", "c++"), "-std=c++17", "cpp", &folder, text).unwrap();
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_header_that_disagrees_does_not_compile() {
    let header = header();
    for (name, from, to) in [
        ("offset", "    uint32_t kind;\n    uint32_t flags;", "    uint32_t flags;\n    uint32_t kind;"),
        (
            "argument",
            "(*memory_info)(void *device, dp_memory_info *info",
            "(*memory_info)(void *device, void *info",
        ),
        ("result", "void (*free)(void *device", "uint32_t (*free)(void *device"),
        ("constant", "DP_LOST = 4", "DP_LOST = 5"),
        (
            "const",
            "const dp_span *destination, const void *source",
            "const dp_span *destination, void *source",
        ),
        ("size", "typedef struct dp_span {", "typedef struct dp_span {\n    size_t more;"),
        ("signed", "int32_t priority", "uint32_t priority"),
    ] {
        assert!(header.contains(from), "{name}");
        let error = compile_c(name, &header.replace(from, to)).unwrap_err();
        assert!(error.contains("static assertion failed"), "{name}: {error}");
    }
}
