//! A library in memory whose functions are jumps into this program: ONNX Runtime takes a provider as the path
//! of a library, and a program is none.
//!
//! The library is the least that a loader of ELF takes: two symbols, the code of both, and no relocation. The
//! layout is from the System V ABI, "Object Files" and "Program Loading and Dynamic Linking".

#[cfg(target_os = "linux")]
pub(crate) use linux::path;

/// The path of the library.
#[cfg(not(target_os = "linux"))]
pub(crate) fn path() -> Result<std::path::PathBuf, String> {
    Err("a library in memory is for Linux alone: build the shared library, and register its path".into())
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::File;
    use std::io::{Error, Write as _};
    use std::os::fd::{AsRawFd as _, FromRawFd as _};
    use std::path::PathBuf;
    use std::sync::OnceLock;

    use crate::registration::{CreateEpFactories, ReleaseEpFactory};

    /// The path of the library, which stays open as long as the process runs.
    pub(crate) fn path() -> Result<PathBuf, String> {
        static FILE: OnceLock<Result<File, String>> = OnceLock::new();
        let functions = [
            ("CreateEpFactories", CreateEpFactories as *const () as u64),
            ("ReleaseEpFactory", ReleaseEpFactory as *const () as u64),
        ];
        let open = || in_memory(&functions).map_err(|error| format!("no library in memory: {error}"));
        FILE.get_or_init(open).as_ref().map(path_of).map_err(Clone::clone)
    }

    fn path_of(file: &File) -> PathBuf {
        format!("/proc/self/fd/{}", file.as_raw_fd()).into()
    }

    fn in_memory(functions: &[(&str, u64)]) -> Result<File, Error> {
        let bytes = library(functions);
        // SAFETY: the name is a text, and the descriptor is this function's own.
        let mut file = unsafe {
            // Linux may refuse files without this flag, which it does not know before 6.3.
            let create = |flags| libc::memfd_create(c"device-ort".as_ptr(), libc::MFD_CLOEXEC | flags);
            let mut descriptor = create(libc::MFD_EXEC);
            if descriptor < 0 && Error::last_os_error().raw_os_error() == Some(libc::EINVAL) {
                descriptor = create(0);
            }
            if descriptor < 0 {
                return Err(Error::last_os_error());
            }
            File::from_raw_fd(descriptor)
        };
        file.write_all(&bytes)?;
        Ok(file)
    }

    /// The code of a jump to an address, which is 32 bytes long.
    #[cfg(target_arch = "x86_64")]
    fn jump(address: u64) -> Vec<u8> {
        // endbr64; movabs rax, address; jmp rax
        let mut code = vec![0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0xb8];
        code.extend(address.to_le_bytes());
        code.extend([0xff, 0xe0]);
        code.resize(JUMP, 0xcc);
        code
    }

    /// The code of a jump to an address, which is 32 bytes long.
    #[cfg(target_arch = "aarch64")]
    fn jump(address: u64) -> Vec<u8> {
        // bti c; ldr x16, the address below; br x16
        let mut code: Vec<u8> = [0xd503_245f_u32, 0x5800_0070, 0xd61f_0200, 0]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        code.extend(address.to_le_bytes());
        code.resize(JUMP, 0);
        code
    }

    const JUMP: usize = 32;
    #[cfg(target_arch = "x86_64")]
    const MACHINE: u16 = 62;
    #[cfg(target_arch = "aarch64")]
    const MACHINE: u16 = 183;

    /// The size of the largest pages: the dynamic section is on a page of its own, as loaders write to it.
    const PAGE: u64 = 0x1_0000;

    /// Numbers one after the other, in the order of bytes of the machine.
    #[derive(Default)]
    struct Bytes(Vec<u8>);

    impl Bytes {
        fn halves(&mut self, numbers: &[u16]) {
            self.0.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
        }

        fn words(&mut self, numbers: &[u32]) {
            self.0.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
        }

        fn longs(&mut self, numbers: &[u64]) {
            self.0.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
        }

        /// Pads to a multiple of 16, and returns the place.
        fn align(&mut self) -> u64 {
            self.0.resize(self.0.len().next_multiple_of(16), 0);
            self.0.len() as u64
        }
    }

    /// A shared library with these functions.
    fn library(functions: &[(&str, u64)]) -> Vec<u8> {
        const HEADER: u64 = 64;
        const SEGMENTS: u64 = 4;
        let mut all = Bytes::default();
        all.0.resize((HEADER + SEGMENTS * 56) as usize, 0);

        let hash = all.align();
        // One bucket, whose chain has all symbols.
        let count = functions.len() as u32;
        all.words(&[1, count + 1, 1, 0]);
        all.words(&(1..=count).map(|at| if at == count { 0 } else { at + 1 }).collect::<Vec<_>>());

        let code = all.align();
        for (_, address) in functions {
            all.0.extend(jump(*address));
        }

        let names = all.align();
        all.0.push(0);
        let mut places = Vec::new();
        for (name, _) in functions {
            places.push(all.0.len() as u64 - names);
            all.0.extend(name.as_bytes());
            all.0.push(0);
        }
        let names_len = all.0.len() as u64 - names;

        let symbols = all.align();
        all.longs(&[0, 0, 0]);
        for (at, place) in places.into_iter().enumerate() {
            all.words(&[place as u32]);
            // A global function, in some section.
            all.0.extend([0x12, 0]);
            all.halves(&[1]);
            all.longs(&[code + (at * JUMP) as u64, JUMP as u64]);
        }

        let dynamic = all.align();
        // The tables of hashes, names and symbols, the length of the names, and the size of a symbol.
        all.longs(&[4, hash, 5, names, 6, symbols, 10, names_len, 11, 24, 0, 0]);
        let end = all.0.len() as u64;

        let mut header =
            Bytes(vec![0x7f, b'E', b'L', b'F', 2, if cfg!(target_endian = "little") { 1 } else { 2 }, 1]);
        header.0.resize(16, 0);
        // A shared library of version 1 without an entry, whose segments are behind this header.
        header.halves(&[3, MACHINE]);
        header.words(&[1]);
        header.longs(&[0, HEADER, 0]);
        header.words(&[0]);
        header.halves(&[HEADER as u16, 56, SEGMENTS as u16, 64, 0, 0]);
        let mut segment = |kind: u32, rights: u32, from: u64, address: u64, len: u64, align: u64| {
            header.words(&[kind, rights]);
            header.longs(&[from, address, address, len, len, align]);
        };
        const READ: u32 = 4;
        const WRITE: u32 = 2;
        const EXECUTE: u32 = 1;
        segment(1, READ | EXECUTE, 0, 0, dynamic, PAGE);
        segment(1, READ | WRITE, dynamic, PAGE + dynamic, end - dynamic, PAGE);
        segment(2, READ | WRITE, dynamic, PAGE + dynamic, end - dynamic, 8);
        // The stack is not executable.
        segment(0x6474_e551, READ | WRITE, 0, 0, 0, 16);
        all.0[..header.0.len()].copy_from_slice(&header.0);
        all.0
    }

    #[cfg(test)]
    mod tests {
        use std::ffi::{CString, c_int};

        use super::*;

        extern "C" fn doubled(number: c_int) -> c_int {
            2 * number
        }

        extern "C" fn tripled(number: c_int) -> c_int {
            3 * number
        }

        #[test]
        fn a_library_in_memory_jumps_into_the_program() {
            let functions =
                [("doubled", doubled as *const () as u64), ("tripled", tripled as *const () as u64)];
            let file = in_memory(&functions).unwrap();
            let name = CString::new(path_of(&file).to_str().unwrap()).unwrap();
            // SAFETY: the functions are of this type.
            let found = unsafe {
                let library = libc::dlopen(name.as_ptr(), libc::RTLD_NOW);
                assert!(!library.is_null(), "{:?}", std::ffi::CStr::from_ptr(libc::dlerror()));
                ["doubled", "tripled"].map(|name| {
                    let name = CString::new(name).unwrap();
                    let function = libc::dlsym(library, name.as_ptr());
                    std::mem::transmute::<*mut libc::c_void, extern "C" fn(c_int) -> c_int>(function)(7)
                })
            };
            assert_eq!(found, [14, 21]);
        }
    }
}
