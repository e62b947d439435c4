//! NVRTC, NVIDIA's compiler as a library, opened at run time.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::ptr;
use std::sync::OnceLock;

use device_registry::backend::{BackendError, LoadFailure};
use libloading::Library;

use crate::library::{Found, NotFound, Version, Wanted, function as get};

const WANTED: Wanted = Wanted {
    name: "NVRTC",
    variable: "DEVICE_CUDA_NVRTC",
    // The version 11.2 and each later 11 have one name.
    files: if cfg!(windows) {
        &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"]
    } else {
        &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"]
    },
    wheel: "nvidia-cuda-nvrtc",
};

const SUCCESS: c_int = 0;
const COMPILATION: c_int = 6;

/// The compiler, open.
pub(crate) struct Nvrtc {
    functions: Functions,
    /// Its version, such as 12.9.
    pub(crate) version: Version,
    /// The compute capabilities that it compiles for, such as 89 for 8.9, from the lowest up.
    architectures: Vec<c_int>,
}

type Program = *mut c_void;

/// The functions, with the types of the NVRTC reference, 11.2 to 13.0.
struct Functions {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int,
    count: unsafe extern "C" fn(*mut c_int) -> c_int,
    architectures: unsafe extern "C" fn(*mut c_int) -> c_int,
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    log: Bytes,
    binary: Bytes,
    ptx: Bytes,
    message: unsafe extern "C" fn(c_int) -> *const c_char,
}

/// Two functions: how many bytes there are, and the bytes.
struct Bytes {
    len: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    read: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
}

/// A function that has returned another code than success.
struct Failed {
    call: &'static str,
    message: String,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` of NVRTC returned {}", self.call, self.message)
    }
}

/// What a device computes with, such as 89 for the capability 8.9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Architecture {
    capability: c_int,
    /// Whether the compiler makes a binary for it. Otherwise it makes PTX, for the driver to compile.
    binary: bool,
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", if self.binary { "sm" } else { "compute" }, self.capability)
    }
}

impl Nvrtc {
    /// Opens the library permanently, if it is not open yet.
    ///
    /// # Errors
    ///
    /// If there is none, with what was tried and what to install.
    pub(crate) fn open() -> Result<&'static Self, LoadFailure> {
        static OPEN: OnceLock<Nvrtc> = OnceLock::new();
        if let Some(open) = OPEN.get() {
            return Ok(open);
        }
        let nvrtc: Self = WANTED.find().map_err(NotFound::into_failure)?;
        log::debug!("NVRTC {}.{} compiles the kernels of cuda", nvrtc.version.0, nvrtc.version.1);
        Ok(OPEN.get_or_init(|| nvrtc))
    }

    /// What to compile for on a device of this compute capability.
    ///
    /// # Errors
    ///
    /// If the compiler knows neither the capability nor one below.
    pub(crate) fn architecture(&self, major: i32, minor: i32) -> Result<Architecture, BackendError> {
        let capability = major * 10 + minor;
        let below = self.architectures.iter().rev().find(|&&known| known <= capability);
        let Some(&known) = below else {
            return Err(BackendError::unavailable(format_args!(
                "NVRTC {}.{} compiles for no device of compute capability {major}.{minor}; install an older one, \
                 and name it by {}",
                self.version.0, self.version.1, WANTED.variable
            )));
        };
        Ok(Architecture { capability: known, binary: known == capability })
    }

    /// Compiles a text to what the driver loads. Warnings are logged.
    ///
    /// # Errors
    ///
    /// The compiler's log if it rejects the text.
    pub(crate) fn compile(
        &self,
        source: &str,
        options: &[&str],
        architecture: Architecture,
    ) -> Result<Vec<u8>, BackendError> {
        let (image, log) = self.compile_with_log(source, options, architecture)?;
        if !log.is_empty() {
            log::warn!("NVRTC says of a kernel: {log}");
        }
        Ok(image)
    }

    fn compile_with_log(
        &self,
        source: &str,
        options: &[&str],
        architecture: Architecture,
    ) -> Result<(Vec<u8>, String), BackendError> {
        let no_zero =
            |text: String| CString::new(text).map_err(|_| BackendError::invalid("a text has a zero"));
        let source = no_zero(source.to_owned())?;
        let mut texts = vec![no_zero(format!("--gpu-architecture={architecture}"))?];
        for &option in options {
            texts.push(no_zero(option.to_owned())?);
        }
        let pointers: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
        let none = ptr::null();
        let mut program = Owned { of: &self.functions, program: ptr::null_mut() };
        // SAFETY: the texts end with zeros, there are no headers, and `program` is a place for one pointer.
        let created = unsafe {
            (self.functions.create)(&mut program.program, source.as_ptr(), c"run.cu".as_ptr(), 0, none, none)
        };
        let other = |failed: Failed| BackendError::other(failed.to_string());
        self.functions.outcome("nvrtcCreateProgram", created).map_err(other)?;
        // SAFETY: the program was created, and there are so many options.
        let compiled =
            unsafe { (self.functions.compile)(program.program, pointers.len() as c_int, pointers.as_ptr()) };
        let log = program.bytes("nvrtcGetProgramLog", &self.functions.log).map_err(other)?;
        let log = String::from_utf8_lossy(log.strip_suffix(b"\0").unwrap_or(&log)).into_owned();
        // A version that is about to leave a generation out says so each time.
        let lines: Vec<_> = log.lines().filter(|line| !line.contains("are deprecated")).collect();
        let log = lines.join("\n").trim().to_owned();
        match compiled {
            SUCCESS => {}
            COMPILATION => {
                return Err(BackendError::invalid(format_args!("NVRTC rejects the text of a kernel: {log}")));
            }
            _ => {
                let failed = self.functions.outcome("nvrtcCompileProgram", compiled);
                failed.map_err(|failed| BackendError::other(format_args!("{failed} {log}")))?;
            }
        }
        let of = if architecture.binary { &self.functions.binary } else { &self.functions.ptx };
        let call = if architecture.binary { "nvrtcGetCUBIN" } else { "nvrtcGetPTX" };
        Ok((program.bytes(call, of).map_err(other)?, log))
    }
}

impl Found for Nvrtc {
    fn look_up(library: &'static Library) -> Result<Self, String> {
        let functions = Functions::look_up(library).map_err(|missing| {
            format!("NVRTC is too old: its library has no `{missing}`; install 12 or newer")
        })?;
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: each is a place for one number.
        unsafe {
            functions
                .outcome("nvrtcVersion", (functions.version)(&mut major, &mut minor))
                .and_then(|()| functions.outcome("nvrtcGetNumSupportedArchs", (functions.count)(&mut count)))
        }
        .map_err(|failed| failed.to_string())?;
        let mut architectures = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: there are as many places as it has said.
        unsafe {
            functions.outcome("nvrtcGetSupportedArchs", (functions.architectures)(architectures.as_mut_ptr()))
        }
        .map_err(|failed| failed.to_string())?;
        architectures.sort_unstable();
        Ok(Self { functions, version: (major, minor), architectures })
    }

    fn version(&self) -> Version {
        self.version
    }
}

/// A program, destroyed when it is dropped.
struct Owned<'a> {
    of: &'a Functions,
    program: Program,
}

impl Owned<'_> {
    fn bytes(&self, call: &'static str, of: &Bytes) -> Result<Vec<u8>, Failed> {
        let mut len = 0;
        // SAFETY: the program was created, and `len` is a place for one number.
        self.of.outcome(call, unsafe { (of.len)(self.program, &mut len) })?;
        let mut bytes = vec![0; len];
        // SAFETY: the program was created, and there are as many bytes as it has said.
        self.of.outcome(call, unsafe { (of.read)(self.program, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        if !self.program.is_null() {
            // SAFETY: it was created once for this value. There is nothing to do about an error.
            unsafe { (self.of.destroy)(&mut self.program) };
        }
    }
}

impl Functions {
    /// The error is the name of the first that is missing.
    fn look_up(library: &'static Library) -> Result<Self, &'static str> {
        // SAFETY: the fields have the types that the reference gives the functions.
        unsafe {
            let bytes = |len, read| {
                Ok::<_, &'static str>(Bytes { len: get(library, len)?, read: get(library, read)? })
            };
            Ok(Self {
                version: get(library, "nvrtcVersion")?,
                count: get(library, "nvrtcGetNumSupportedArchs")?,
                architectures: get(library, "nvrtcGetSupportedArchs")?,
                create: get(library, "nvrtcCreateProgram")?,
                destroy: get(library, "nvrtcDestroyProgram")?,
                compile: get(library, "nvrtcCompileProgram")?,
                log: bytes("nvrtcGetProgramLogSize", "nvrtcGetProgramLog")?,
                binary: bytes("nvrtcGetCUBINSize", "nvrtcGetCUBIN")?,
                ptx: bytes("nvrtcGetPTXSize", "nvrtcGetPTX")?,
                message: get(library, "nvrtcGetErrorString")?,
            })
        }
    }

    fn outcome(&self, call: &'static str, code: c_int) -> Result<(), Failed> {
        if code == SUCCESS {
            return Ok(());
        }
        // SAFETY: it takes any number, and returns a constant text, or null for a code that it does not know.
        let text = unsafe { (self.message)(code) };
        let message = match text.is_null() {
            true => code.to_string(),
            // SAFETY: it is not null, and ends with a zero.
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
        };
        Err(Failed { call, message })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::env;

    use device_generated_kernels::{CudaText, GroupAxes, Plan, Traits};

    use super::*;

    /// Capabilities of five generations of GPUs.
    const CAPABILITIES: [(i32, i32); 5] = [(7, 0), (7, 5), (8, 0), (9, 0), (12, 0)];

    /// The compiler, or `None` where there is none, unless the environment says that one is needed.
    fn nvrtc_or_skip() -> Option<&'static Nvrtc> {
        match Nvrtc::open() {
            Ok(nvrtc) => Some(nvrtc),
            Err(failure) if env::var_os(WANTED.variable).is_none() => {
                eprintln!("skipped: {failure}");
                None
            }
            Err(failure) => panic!("{failure}"),
        }
    }

    /// The texts of the conformance suite's calls, with indices of each size and groups on each number of
    /// axes.
    fn texts() -> Vec<CudaText> {
        let traits = Traits { doubles: true, groups: true, units: 8 };
        let mut recipes = Vec::new();
        for call in device_kernels_conformance::calls() {
            // An array far from the beginning of its memory needs indices of 64 bits.
            for begins in [&[][..], &[1 << 40]] {
                let Some(plan) = Plan::of(&call, traits, begins) else { continue };
                recipes.extend(plan.steps.into_iter().map(|step| step.recipe));
            }
        }
        let mut seen = BTreeSet::new();
        let on_all = |place: usize| if place.is_multiple_of(8) { GroupAxes::First } else { GroupAxes::All };
        let texts = recipes.iter().enumerate().map(|(place, recipe)| recipe.cuda_text(on_all(place)));
        texts.filter(|text| seen.insert(text.source.clone())).collect()
    }

    #[test]
    fn texts_compile_for_each_generation_without_a_warning() {
        let Some(nvrtc) = nvrtc_or_skip() else { return };
        // All of them take minutes.
        let step = if env::var_os("DEVICE_CUDA_KERNELS_ALL_TEXTS").is_some() { 1 } else { 40 };
        let mut texts = texts();
        texts.sort_by(|one, other| one.source.cmp(&other.source));
        let mut compiled = 0;
        let mut longest = 0;
        for (major, minor) in CAPABILITIES {
            let Ok(architecture) = nvrtc.architecture(major, minor) else { continue };
            if architecture.capability != major * 10 + minor {
                continue;
            }
            for text in texts.iter().step_by(step) {
                let (image, log) = nvrtc
                    .compile_with_log(&text.source, &text.options, architecture)
                    .unwrap_or_else(|error| panic!("{architecture}: {error}\n{}", text.source));
                // A version that is about to leave a generation out says so each time.
                let warnings =
                    log.lines().filter(|line| !line.contains("are deprecated") && !line.is_empty());
                assert_eq!(warnings.collect::<Vec<_>>(), [""; 0], "{architecture}: {}", text.source);
                assert!(image.starts_with(b"\x7fELF"), "{architecture}: no binary");
                longest = longest.max(image.len());
                compiled += 1;
            }
        }
        let (major, minor) = nvrtc.version;
        println!("NVRTC {major}.{minor} made {compiled} binaries, the longest of {longest} bytes");
        assert!(compiled > 100, "only {compiled}");
    }

    #[test]
    fn a_text_that_is_rejected_is_an_error_with_the_log() {
        let Some(nvrtc) = nvrtc_or_skip() else { return };
        let architecture = nvrtc.architecture(8, 9).unwrap();
        let text = "extern \"C\" __global__ void run(int *p) { p[0] = no_such_name; }";
        let error = nvrtc.compile(text, &[], architecture).unwrap_err();
        assert!(error.to_string().contains("no_such_name"), "{error}");
        let error = nvrtc.compile("int one;\0", &[], architecture).unwrap_err();
        assert!(error.to_string().contains("a text has a zero"), "{error}");
        let error = nvrtc.compile("int one;", &["--no-such-option"], architecture).unwrap_err();
        assert!(error.to_string().contains("nvrtcCompileProgram"), "{error}");
    }

    #[test]
    fn a_newer_device_has_ptx_of_the_newest_known_capability_and_an_older_one_an_error() {
        let Some(nvrtc) = nvrtc_or_skip() else { return };
        let newest = *nvrtc.architectures.last().unwrap();
        let found = nvrtc.architecture(99, 0).unwrap();
        assert_eq!(found, Architecture { capability: newest, binary: false });
        assert_eq!(found.to_string(), format!("compute_{newest}"));
        let image = nvrtc.compile("extern \"C\" __global__ void run() {}", &[], found).unwrap();
        assert!(image.starts_with(b"//") && image.ends_with(b"\0"), "{}", String::from_utf8_lossy(&image));
        let error = nvrtc.architecture(1, 0).unwrap_err().to_string();
        assert!(error.contains("compute capability 1.0") && error.contains(WANTED.variable), "{error}");
    }
}
