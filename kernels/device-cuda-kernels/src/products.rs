//! The kernel set `cuda__cublaslt`: products of matrices by NVIDIA's library, where it is there and keeps the
//! rules of device-kernels.

use std::collections::HashMap;
use std::env;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::{Arc, OnceLock};

use device_cuda::{CudaDevice, handles};
use device_generated_kernels::Matrices;
use device_kernels::{Call, Coverage, DType, KernelSet, Operator};
use device_registry::Device;
use device_registry::backend::{BackendError, BackendErrorKind, Launch, LoadFailure, NativeDevice};
use parking_lot::Mutex;

use crate::cache;
use crate::cublaslt::{self, Bias, Chosen, CublasLt, Limits, Matrix, Number, OnDevice, Pointers, Product};
use crate::library::{Found, NotFound};
use crate::set::pointers;

/// The variable that says whether NVIDIA's libraries compute.
const VARIABLE: &str = "DEVICE_CUDA_LIBRARIES";

/// What the user allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Never,
    Always,
    /// With factors of `f32` rounded to TensorFloat-32.
    WithTf32,
}

impl Use {
    fn of(value: Option<&str>) -> Result<Self, LoadFailure> {
        match value {
            None | Some("" | "1") => Ok(Self::Always),
            Some("0") => Ok(Self::Never),
            Some("tf32") => Ok(Self::WithTf32),
            Some(other) => Err(LoadFailure::new(format_args!(
                "{VARIABLE}={other} is not known: 0 has the generated kernels compute, 1, the default, NVIDIA's libraries, \
                 and tf32 those with numbers of f32 rounded to TensorFloat-32"
            ))),
        }
    }
}

/// Products of matrices by cuBLASLt.
pub(crate) struct Products {
    allowed: Use,
}

impl Products {
    /// # Errors
    ///
    /// If the variable has an unknown value.
    pub(crate) fn new() -> Result<Self, LoadFailure> {
        let value = env::var_os(VARIABLE);
        let allowed = Use::of(value.as_ref().map(|value| value.to_string_lossy()).as_deref())?;
        Ok(Self { allowed })
    }

    fn describe(&self, call: &Call) -> Option<Described> {
        Described::of(call, self.allowed == Use::WithTf32)
    }
}

/// The library, opened at the first product. `None` where there is none.
///
/// # Errors
///
/// If the one that a variable names cannot be used.
fn library() -> Result<Option<&'static CublasLt>, &'static str> {
    static LIBRARY: OnceLock<Result<Option<CublasLt>, String>> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| match cublaslt::WANTED.find::<CublasLt>() {
        Ok(library) => {
            let (major, minor) = library.version();
            log::debug!("cuBLASLt {major}.{minor} computes products of matrices on cuda");
            Ok(Some(library))
        }
        Err(NotFound::Named(reason)) => Err(reason),
        Err(NotFound::None(reason)) => {
            log::info!("the generated kernels compute products of matrices on cuda: {reason}");
            Ok(None)
        }
    });
    library.as_ref().map(Option::as_ref).map_err(String::as_str)
}

const TYPES: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

impl KernelSet for Products {
    fn coverage(&self, _device: Device) -> Vec<Coverage> {
        if self.allowed == Use::Never || matches!(library(), Ok(None)) {
            return Vec::new();
        }
        vec![Coverage::of("matmul").dtypes(TYPES)]
    }

    fn supports(&self, device: Device, call: &Call) -> bool {
        if !matches!(call.operator(), Operator::MatMul) || self.allowed == Use::Never {
            return false;
        }
        let Some(Described { product, .. }) = self.describe(call) else { return false };
        match library() {
            Ok(None) => false,
            // The launch returns the error.
            Err(_) => true,
            Ok(Some(library)) => {
                let chosen = device.with_native(|native| {
                    Ok(OpenProducts::of(native, library)?.chosen(&product, least(call))?.is_some())
                });
                // The launch returns the error.
                chosen.unwrap_or(true)
            }
        }
    }

    fn launch_name(&self, _call: &Call) -> Option<&'static str> {
        Some("matmul by cuBLASLt")
    }

    fn launch(&self, call: &Call, launch: &Launch<'_>) -> Result<(), BackendError> {
        let unsupported = || BackendError::unsupported(format_args!("cuBLASLt does not compute {call}"));
        let described = call.kept(|call| self.describe(call)).copied().unwrap_or_else(|| self.describe(call));
        let Described { product, is_transposed, offsets } = described.ok_or_else(unsupported)?;
        let library = library().map_err(|reason| failed(BackendError::unavailable(reason)))?;
        let library = library.ok_or_else(unsupported)?;
        let arrays = pointers(call, launch)?;
        let size = call.outputs()[0].0.size() as u64;
        let at = |array: usize, offset: i64| arrays[array] + offset as u64 * size;
        let out = at(arrays.len() - 1, offsets[2]);
        let [a, b] = [at(0, offsets[0]), at(1, offsets[1])];
        // The first factor is the one with the output's rows, which are its columns here where its rows are
        // neighbours.
        let factors = if is_transposed { [b, a] } else { [a, b] };
        let bias = if product.bias == Bias::None { out } else { at(2, offsets[3]) };
        let pointers = Pointers { factors, bias, out };
        let open = OpenProducts::of(launch.native_device(), library).map_err(failed)?;
        let stream = handles::stream(launch)?;
        let limits = Limits { alignment: alignment(pointers), workspace: cublaslt::WORKSPACE };
        for limits in [limits, Limits { workspace: 0, ..limits }, least(call)] {
            let Some(chosen) = open.chosen(&product, limits).map_err(failed)? else { continue };
            let enqueued = open.device.batch(stream, |batch| {
                let chosen = chosen.lock();
                let workspace = match chosen.workspace {
                    0 => None,
                    // SAFETY: the stream is the launch's.
                    len => match unsafe { batch.temporary(len) } {
                        Ok(workspace) => Some(workspace),
                        // The memory is full, or the device has no such memory.
                        Err(error) if can_do_without(&error) => return Ok(false),
                        Err(error) => return Err(error),
                    },
                };
                let workspace = workspace.as_ref().map_or(0, device_cuda::CudaTemporary::pointer);
                // SAFETY: the context is current for the batch. The arrays have been compared with the spans.
                // The launch has handles of device-cuda's kinds, and its backend has promised that they are
                // what `handles` says.
                unsafe { open.on_device.multiply(&chosen, pointers, workspace, stream) }.map_err(failed)?;
                Ok(true)
            })?;
            if enqueued {
                return Ok(());
            }
        }
        Err(unsupported())
    }
}

/// Whether an error of temporary memory is none of the device or the stream.
fn can_do_without(error: &BackendError) -> bool {
    matches!(error.kind(), BackendErrorKind::OutOfMemory { .. } | BackendErrorKind::Unsupported)
}

/// The least that a call's arrays begin at, and no workspace: what is computed within it is computed within
/// all limits.
fn least(call: &Call) -> Limits {
    Limits { alignment: call.outputs()[0].0.size() as u32, workspace: 0 }
}

/// An error of the library, with what goes around it.
fn failed(error: BackendError) -> BackendError {
    let message = format_args!("{VARIABLE}=0 has the generated kernels compute in place of cuBLASLt");
    BackendError::new(error.kind(), message).with_source(error)
}

/// The largest power of two, up to 256, that all begin at a multiple of.
fn alignment(pointers: Pointers) -> u32 {
    let Pointers { factors: [a, b], bias, out } = pointers;
    1 << (a | b | bias | out | 256).trailing_zeros()
}

/// The largest batch. As many blocks may be on the third axis, and versions of the library have refused more.
const MOST_PRODUCTS: i32 = 65_535;

/// What the library is to compute.
#[derive(Clone, Copy)]
struct Described {
    product: Product,
    /// Whether it is the transposed product, whose factors change places: where the output's rows are
    /// neighbours in memory, they are columns for the library.
    is_transposed: bool,
    /// Where the arrays have their first elements: the first input, the second, the output, and the bias.
    offsets: [i64; 4],
}

impl Described {
    /// `None` if the library has no words for the call.
    fn of(call: &Call, tf32: bool) -> Option<Self> {
        let matrices = Matrices::of(call)?;
        let number = match call.outputs()[0].0 {
            DType::F16 => Number::F16,
            DType::BF16 => Number::BF16,
            DType::F32 if tf32 => Number::TF32,
            DType::F32 => Number::F32,
            DType::F64 => Number::F64,
            _ => return None,
        };
        let Matrices { m, n, k, a, b, out, bias, .. } = matrices;
        let (batch, [a_stride, b_stride, out_stride, bias_stride]) = matrices.batch()?;
        if [m, n, k, batch].contains(&0) {
            return None;
        }
        let is_transposed = out[1] == 1 || n == 1 && out[0] != 1;
        let swap = |[one, other]: [i64; 2]| [other, one];
        // `[rows, sum]` and `[sum, columns]` of the product here, with the strides of these.
        let (rows, columns, first, second, of_out, of_bias) = match is_transposed {
            true => (n, m, (swap(b), b_stride), (swap(a), a_stride), swap(out), bias.map(swap)),
            false => (m, n, (a, a_stride), (b, b_stride), out, bias),
        };
        let (first, first_transposed) = factor(rows, k, first)?;
        let (second, second_transposed) = factor(k, columns, second)?;
        let (out, false) = factor(rows, columns, (of_out, out_stride))? else { return None };
        let bias = match of_bias {
            None => Bias::None,
            Some([1, 0]) if bias_stride == 0 => Bias::Rows,
            Some(strides) => match factor(rows, columns, (strides, bias_stride))? {
                (matrix, false) => Bias::Matrix(matrix),
                _ => return None,
            },
        };
        let factors = [first, second];
        let transposed = [first_transposed, second_transposed];
        let batch = i32::try_from(batch).ok().filter(|&batch| batch <= MOST_PRODUCTS)?;
        let product = Product { number, factors, transposed, bias, out, batch };
        Some(Self { product, is_transposed, offsets: matrices.offsets() })
    }
}

/// A matrix of so many rows and columns with these strides, and whether it is the transposed one in memory.
fn factor(rows: i64, columns: i64, ([row, column], stride): ([i64; 2], i64)) -> Option<(Matrix, bool)> {
    if stride < 0 {
        return None;
    }
    let of = |rows: i64, columns: i64, row: i64, column: i64| {
        // A dimension of one element may have any stride.
        let leading = if columns == 1 { rows } else { column };
        (rows == 1 || row == 1).then_some(())?;
        (leading >= rows).then_some(Matrix { rows, columns, leading, stride })
    };
    let as_it_is = of(rows, columns, row, column).map(|matrix| (matrix, false));
    as_it_is.or_else(|| of(columns, rows, column, row).map(|matrix| (matrix, true)))
}

/// How products are computed, by what they are and by alignment. `None` where the library does not.
type ByProduct = HashMap<(Product, Limits), Option<Arc<Mutex<Chosen>>>>;

/// How many of them are kept. A program whose shapes grow at each step has no end of them.
const MOST: usize = 4096;

/// A device while it is open, with the library and what it has chosen.
struct OpenProducts {
    device: Arc<CudaDevice>,
    on_device: ManuallyDrop<OnDevice>,
    chosen: Mutex<ByProduct>,
}

impl OpenProducts {
    fn of(native: NativeDevice<'_>, library: &'static CublasLt) -> Result<Arc<Self>, BackendError> {
        native.value(|| {
            let device = cache::device_of(native)?;
            let on_device = device.batch(ptr::null_mut(), |_| OnDevice::create(library))?;
            Ok(Self { device, on_device: ManuallyDrop::new(on_device), chosen: Mutex::default() })
        })
    }

    fn chosen(&self, product: &Product, limits: Limits) -> Result<Option<Arc<Mutex<Chosen>>>, BackendError> {
        let key = (*product, limits);
        if let Some(known) = self.chosen.lock().get(&key) {
            return Ok(known.clone());
        }
        // Two threads may both ask the library; one answer is kept.
        let new = self.device.batch(ptr::null_mut(), |_| self.on_device.choose(product, limits))?;
        let new = new.map(|chosen| Arc::new(Mutex::new(chosen)));
        let mut all = self.chosen.lock();
        if all.len() >= MOST {
            all.clear();
        }
        Ok(all.entry(key).or_insert(new).clone())
    }
}

impl Drop for OpenProducts {
    fn drop(&mut self) {
        // With the context current, as it was created. A lost device keeps the handle.
        let _ = self.device.batch(ptr::null_mut(), |_| {
            // SAFETY: it is dropped once.
            unsafe { ManuallyDrop::drop(&mut self.on_device) };
            Ok(())
        });
    }
}
