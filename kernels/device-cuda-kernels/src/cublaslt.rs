//! cuBLASLt, NVIDIA's library for products of matrices, opened at run time.
//!
//! Names, numbers and types of arguments are from its reference (12.9), and from the headers of 12.9 and
//! 13.10. Matrices are *column-major* there: neighbours of a column are neighbours in memory.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use device_cuda::cudarc::driver::sys::CUstream;
use device_registry::backend::BackendError;
use libloading::Library;

use crate::library::{Found, Version, Wanted, function as get};

pub(crate) const WANTED: Wanted = Wanted {
    name: "cuBLASLt",
    variable: "DEVICE_CUDA_CUBLASLT",
    files: if cfg!(windows) {
        &["cublasLt64_13.dll", "cublasLt64_12.dll", "cublasLt64_11.dll"]
    } else {
        &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", "libcublasLt.so"]
    },
    wheel: "nvidia-cublas",
};

const SUCCESS: c_int = 0;
const NOT_SUPPORTED: c_int = 15;

/// The most memory that a product has beside its arrays.
pub(crate) const WORKSPACE: u64 = 32 << 20;

/// Before it, the library had errors that frameworks go around (PyTorch has this limit too).
const OLDEST: Version = (11, 4);

// Attributes of a product.
const TRANSPOSED: [c_int; 2] = [3, 4];
const EPILOGUE: c_int = 7;
const BIAS: c_int = 8;
/// In [`EPILOGUE`]: a number for each row is added.
const ADD_BIAS: u32 = 4;

// Attributes of a matrix.
const BATCH_COUNT: c_int = 5;
const BATCH_STRIDE: c_int = 6;

// Attributes of a preference.
const MOST_WORKSPACE: c_int = 1;
const REDUCTIONS: c_int = 3;
const ALIGNMENTS: [c_int; 4] = [5, 6, 7, 8];
/// In [`REDUCTIONS`]: parts of a sum are added in the type that is computed with. In the output's type, sums
/// of `f16` would be rounded for each part.
const IN_COMPUTE_TYPE: u32 = 2;

type Handle = *mut c_void;
type Descriptor = *mut c_void;
type Set = unsafe extern "C" fn(Descriptor, c_int, *const c_void, usize) -> c_int;
type Destroy = unsafe extern "C" fn(Descriptor) -> c_int;

/// The library, open.
pub(crate) struct CublasLt {
    functions: Functions,
    version: Version,
}

struct Functions {
    create: unsafe extern "C" fn(*mut Handle) -> c_int,
    destroy: unsafe extern "C" fn(Handle) -> c_int,
    message: unsafe extern "C" fn(c_int) -> *const c_char,
    create_product: unsafe extern "C" fn(*mut Descriptor, c_int, c_int) -> c_int,
    set_product: Set,
    destroy_product: Destroy,
    create_matrix: unsafe extern "C" fn(*mut Descriptor, c_int, u64, u64, i64) -> c_int,
    set_matrix: Set,
    destroy_matrix: Destroy,
    create_preference: unsafe extern "C" fn(*mut Descriptor) -> c_int,
    set_preference: Set,
    destroy_preference: Destroy,
    heuristic: unsafe extern "C" fn(
        Handle,
        Descriptor,
        Descriptor,
        Descriptor,
        Descriptor,
        Descriptor,
        Descriptor,
        c_int,
        *mut Heuristic,
        *mut c_int,
    ) -> c_int,
    multiply: unsafe extern "C" fn(
        Handle,
        Descriptor,
        *const c_void,
        *const c_void,
        Descriptor,
        *const c_void,
        Descriptor,
        *const c_void,
        *const c_void,
        Descriptor,
        *mut c_void,
        Descriptor,
        *const Algorithm,
        *mut c_void,
        usize,
        CUstream,
    ) -> c_int,
}

/// How the library computes a product, in a form of its own.
type Algorithm = [u64; 8];

/// What the library answers about an algorithm.
#[repr(C)]
#[derive(Default)]
struct Heuristic {
    algorithm: Algorithm,
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

/// What is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Number {
    F16,
    BF16,
    F32,
    /// `f32`, whose factors may be rounded to the 11 bits of TensorFloat-32.
    TF32,
    F64,
}

impl Number {
    /// The type of the matrices.
    fn data(self) -> c_int {
        match self {
            Self::F32 | Self::TF32 => 0,
            Self::F64 => 1,
            Self::F16 => 2,
            Self::BF16 => 14,
        }
    }

    /// The type of factors of the whole product.
    fn scale(self) -> c_int {
        c_int::from(self == Self::F64)
    }

    /// The type that is computed with.
    fn compute(self) -> c_int {
        match self {
            Self::F16 | Self::BF16 | Self::F32 => 68,
            Self::TF32 => 77,
            Self::F64 => 70,
        }
    }
}

/// A column-major matrix, and how far it is to the same one of the next product, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Matrix {
    pub(crate) rows: i64,
    pub(crate) columns: i64,
    /// From one column to the next.
    pub(crate) leading: i64,
    pub(crate) stride: i64,
}

/// What is added to a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Bias {
    None,
    /// A number for each row.
    Rows,
    Matrix(Matrix),
}

/// `batch` products of two matrices, each as it is or transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Product {
    pub(crate) number: Number,
    pub(crate) factors: [Matrix; 2],
    pub(crate) transposed: [bool; 2],
    pub(crate) bias: Bias,
    pub(crate) out: Matrix,
    pub(crate) batch: i32,
}

/// What a product may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Limits {
    /// All arrays begin at multiples of so many bytes.
    pub(crate) alignment: u32,
    /// The most bytes beside the arrays.
    pub(crate) workspace: u64,
}

/// Where the arrays of a product are, on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pointers {
    pub(crate) factors: [u64; 2],
    /// Of [`Bias`], or the output where there is none.
    pub(crate) bias: u64,
    pub(crate) out: u64,
}

impl Found for CublasLt {
    fn look_up(library: &'static Library) -> Result<Self, String> {
        // SAFETY: the fields have the types that the reference gives the functions.
        let looked_up = unsafe {
            let version = get(library, "cublasLtGetVersion");
            let version = version.map(|version: unsafe extern "C" fn() -> usize| version());
            version.and_then(|version| Ok((version, Functions::look_up(library)?)))
        };
        let (version, functions) = looked_up
            .map_err(|missing| format!("its version of cuBLASLt is too old: it has no `{missing}`"))?;
        // As 120901 for 12.9.1.
        let version = ((version / 10_000) as c_int, (version / 100 % 100) as c_int);
        if version < OLDEST {
            return Err(format!("it is of {}.{}: 11.4 or newer is needed", version.0, version.1));
        }
        Ok(Self { functions, version })
    }

    fn version(&self) -> Version {
        self.version
    }
}

impl Functions {
    /// # Safety
    ///
    /// It is cuBLASLt.
    unsafe fn look_up(library: &'static Library) -> Result<Self, &'static str> {
        // SAFETY: the fields have the types that the reference gives the functions.
        unsafe {
            Ok(Self {
                create: get(library, "cublasLtCreate")?,
                destroy: get(library, "cublasLtDestroy")?,
                message: get(library, "cublasLtGetStatusString")?,
                create_product: get(library, "cublasLtMatmulDescCreate")?,
                set_product: get(library, "cublasLtMatmulDescSetAttribute")?,
                destroy_product: get(library, "cublasLtMatmulDescDestroy")?,
                create_matrix: get(library, "cublasLtMatrixLayoutCreate")?,
                set_matrix: get(library, "cublasLtMatrixLayoutSetAttribute")?,
                destroy_matrix: get(library, "cublasLtMatrixLayoutDestroy")?,
                create_preference: get(library, "cublasLtMatmulPreferenceCreate")?,
                set_preference: get(library, "cublasLtMatmulPreferenceSetAttribute")?,
                destroy_preference: get(library, "cublasLtMatmulPreferenceDestroy")?,
                heuristic: get(library, "cublasLtMatmulAlgoGetHeuristic")?,
                multiply: get(library, "cublasLtMatmul")?,
            })
        }
    }

    fn outcome(&self, call: &'static str, code: c_int) -> Result<(), BackendError> {
        if code == SUCCESS {
            return Ok(());
        }
        // SAFETY: it takes any number, and returns a constant text.
        let text = unsafe { (self.message)(code) };
        let message = match text.is_null() {
            true => String::new(),
            // SAFETY: it is not null, and ends with a zero.
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
        };
        Err(BackendError::other(format_args!("`{call}` returned {code}: {message}")))
    }

    fn matrix(&self, matrix: Matrix, product: &Product) -> Result<Owned, BackendError> {
        let mut owned = Owned::new(self.set_matrix, self.destroy_matrix);
        let Matrix { rows, columns, leading, stride } = matrix;
        // SAFETY: there is a place for a descriptor.
        let created = unsafe {
            let data = product.number.data();
            (self.create_matrix)(&mut owned.descriptor, data, rows as u64, columns as u64, leading)
        };
        self.outcome("cublasLtMatrixLayoutCreate", created)?;
        let count = owned.set(BATCH_COUNT, product.batch);
        self.outcome("cublasLtMatrixLayoutSetAttribute", count)?;
        self.outcome("cublasLtMatrixLayoutSetAttribute", owned.set(BATCH_STRIDE, stride))?;
        Ok(owned)
    }

    fn product(&self, product: &Product) -> Result<Owned, BackendError> {
        let mut owned = Owned::new(self.set_product, self.destroy_product);
        let number = product.number;
        // SAFETY: there is a place for a descriptor.
        let created =
            unsafe { (self.create_product)(&mut owned.descriptor, number.compute(), number.scale()) };
        self.outcome("cublasLtMatmulDescCreate", created)?;
        for (attribute, transposed) in TRANSPOSED.into_iter().zip(product.transposed) {
            let set = owned.set(attribute, c_int::from(transposed));
            self.outcome("cublasLtMatmulDescSetAttribute", set)?;
        }
        if product.bias == Bias::Rows {
            self.outcome("cublasLtMatmulDescSetAttribute", owned.set(EPILOGUE, ADD_BIAS))?;
        }
        Ok(owned)
    }

    fn preference(&self, limits: Limits) -> Result<Owned, BackendError> {
        let mut owned = Owned::new(self.set_preference, self.destroy_preference);
        // SAFETY: there is a place for a descriptor.
        let created = unsafe { (self.create_preference)(&mut owned.descriptor) };
        self.outcome("cublasLtMatmulPreferenceCreate", created)?;
        let mut codes =
            vec![owned.set(MOST_WORKSPACE, limits.workspace), owned.set(REDUCTIONS, IN_COMPUTE_TYPE)];
        codes.extend(ALIGNMENTS.map(|attribute| owned.set(attribute, limits.alignment)));
        codes.into_iter().try_for_each(|code| self.outcome("cublasLtMatmulPreferenceSetAttribute", code))?;
        Ok(owned)
    }
}

/// A descriptor, destroyed when it is dropped.
struct Owned {
    descriptor: Descriptor,
    set: Set,
    destroy: Destroy,
}

// SAFETY: a descriptor is data in memory of the library, without anything of a thread.
unsafe impl Send for Owned {}

impl Owned {
    /// Without a descriptor yet.
    fn new(set: Set, destroy: Destroy) -> Self {
        Self { descriptor: ptr::null_mut(), set, destroy }
    }

    /// Sets an attribute, of the type that the reference gives it.
    fn set<T: Copy>(&self, attribute: c_int, value: T) -> c_int {
        // SAFETY: the descriptor was created. The library compares the size with the attribute's.
        unsafe { (self.set)(self.descriptor, attribute, ptr::from_ref(&value).cast(), size_of::<T>()) }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if !self.descriptor.is_null() {
            // SAFETY: it was created once for this value. There is nothing to do about an error.
            unsafe { (self.destroy)(self.descriptor) };
        }
    }
}

/// The library on one device. It is created and dropped with the device's context current.
pub(crate) struct OnDevice {
    library: &'static CublasLt,
    handle: Handle,
}

// SAFETY: the reference allows calls from several threads with one handle.
unsafe impl Send for OnDevice {}
// SAFETY: likewise.
unsafe impl Sync for OnDevice {}

impl OnDevice {
    /// In the context that is current to this thread.
    pub(crate) fn create(library: &'static CublasLt) -> Result<Self, BackendError> {
        let mut handle = ptr::null_mut();
        // SAFETY: there is a place for a handle.
        let created = unsafe { (library.functions.create)(&mut handle) };
        library.functions.outcome("cublasLtCreate", created)?;
        Ok(Self { library, handle })
    }

    /// How the library computes a product within these limits. `None` if it does not.
    pub(crate) fn choose(&self, product: &Product, limits: Limits) -> Result<Option<Chosen>, BackendError> {
        let functions = &self.library.functions;
        let described = functions.product(product)?;
        if product.bias == Bias::Rows {
            // The library looks at its alignment only.
            let set = described.set(BIAS, limits.alignment as usize);
            functions.outcome("cublasLtMatmulDescSetAttribute", set)?;
        }
        let [a, b] = product.factors;
        let (a, b) = (functions.matrix(a, product)?, functions.matrix(b, product)?);
        let out = functions.matrix(product.out, product)?;
        let bias = match product.bias {
            Bias::Matrix(matrix) => Some(functions.matrix(matrix, product)?),
            Bias::None | Bias::Rows => None,
        };
        let preference = functions.preference(limits)?;
        let mut found = Heuristic::default();
        let mut count = 0;
        // SAFETY: all descriptors were created, and there is a place for one answer.
        let code = unsafe {
            let [product, a, b, out, preference] =
                [&described, &a, &b, &out, &preference].map(|owned| owned.descriptor);
            let bias = bias.as_ref().map_or(out, |bias| bias.descriptor);
            (functions.heuristic)(
                self.handle,
                product,
                a,
                b,
                bias,
                out,
                preference,
                1,
                &mut found,
                &mut count,
            )
        };
        if code == NOT_SUPPORTED || (code == SUCCESS && (count == 0 || found.state != SUCCESS)) {
            return Ok(None);
        }
        functions.outcome("cublasLtMatmulAlgoGetHeuristic", code)?;
        let Heuristic { algorithm, workspace, .. } = found;
        Ok(Some(Chosen { product: *product, described, a, b, bias, out, algorithm, workspace }))
    }

    /// Enqueues a product.
    ///
    /// # Errors
    ///
    /// The library's refusal.
    ///
    /// # Safety
    ///
    /// The context is current, and the stream of it. The matrices at the pointers are memory of it, which
    /// stays until the work is done; so many bytes of memory as it [needs](Chosen::workspace) are at
    /// `workspace`. The pointers are multiples of the alignment that was chosen for.
    pub(crate) unsafe fn multiply(
        &self,
        chosen: &Chosen,
        pointers: Pointers,
        workspace: u64,
        stream: CUstream,
    ) -> Result<(), BackendError> {
        let functions = &self.library.functions;
        let at = |address: u64| ptr::without_provenance_mut::<c_void>(address as usize);
        let beta = f64::from(u8::from(chosen.bias.is_some()));
        let doubles = [1.0_f64, beta];
        let floats = doubles.map(|scale| scale as f32);
        let scales: [*const c_void; 2] = match chosen.product.number {
            Number::F64 => [0, 1].map(|place| ptr::from_ref(&doubles[place]).cast()),
            _ => [0, 1].map(|place| ptr::from_ref(&floats[place]).cast()),
        };
        if chosen.product.bias == Bias::Rows {
            let set = chosen.described.set(BIAS, at(pointers.bias));
            functions.outcome("cublasLtMatmulDescSetAttribute", set)?;
        }
        let (bias, bias_at) = match &chosen.bias {
            Some(bias) => (bias, pointers.bias),
            None => (&chosen.out, pointers.out),
        };
        // SAFETY: the descriptors were created, and the caller promises the rest.
        let code = unsafe {
            (functions.multiply)(
                self.handle,
                chosen.described.descriptor,
                scales[0],
                at(pointers.factors[0]),
                chosen.a.descriptor,
                at(pointers.factors[1]),
                chosen.b.descriptor,
                scales[1],
                at(bias_at),
                bias.descriptor,
                at(pointers.out),
                chosen.out.descriptor,
                &chosen.algorithm,
                at(workspace),
                chosen.workspace,
                stream,
            )
        };
        functions.outcome("cublasLtMatmul", code)
    }
}

impl Drop for OnDevice {
    fn drop(&mut self) {
        // SAFETY: it was created once for this value. There is nothing to do about an error.
        unsafe { (self.library.functions.destroy)(self.handle) };
    }
}

/// A product with its descriptors, and how it is computed. It is for one thread at a time.
pub(crate) struct Chosen {
    product: Product,
    described: Owned,
    a: Owned,
    b: Owned,
    /// Of a [matrix](Bias::Matrix).
    bias: Option<Owned>,
    out: Owned,
    algorithm: Algorithm,
    /// How many bytes of memory it needs beside the arrays.
    pub(crate) workspace: usize,
}
