//! Copies between the host and devices, and between devices.

use std::ptr;
use std::slice;

use ort_sys::{OrtStatusPtr, OrtSyncStream, OrtValue};

use crate::abi::{DataTransfer, MemoryDevice, VERSION};
use crate::api::Api;
use crate::failure::Failure;
use crate::place::Place;
use crate::stream::{self, RunStream};

/// ONNX Runtime's number of the host's memory, and of memory of devices.
const HOST: i32 = 0;
const DEVICE: i32 = 1;

/// ONNX Runtime sees its table, which is first.
#[repr(C)]
pub(crate) struct Transfer {
    table: DataTransfer,
    api: Api,
}

impl Transfer {
    /// One that ONNX Runtime owns and releases.
    pub(crate) fn create(api: Api) -> *mut DataTransfer {
        let table = DataTransfer {
            ort_version_supported: VERSION,
            Release: Some(release),
            CanCopy: Some(can_copy),
            CopyTensors: Some(copy_tensors),
        };
        Box::into_raw(Box::new(Self { table, api })).cast()
    }
}

unsafe extern "system" fn release(transfer: *mut DataTransfer) {
    // SAFETY: it is one of `create`, and is not used again.
    drop(unsafe { Box::from_raw(transfer.cast::<Transfer>()) });
}

/// Whether memory is the host's; `None` if it is neither that nor of a device of the registry.
fn is_host(api: Api, memory: *const MemoryDevice) -> Option<bool> {
    // SAFETY: ONNX Runtime gives descriptions that are alive.
    let (kind, vendor, number) = unsafe {
        (
            (api.ep.MemoryDevice_GetDeviceType)(memory),
            (api.ep.MemoryDevice_GetVendorId)(memory),
            (api.ep.MemoryDevice_GetDeviceId)(memory),
        )
    };
    match kind {
        HOST => Some(true),
        DEVICE if vendor == 0 && Place::numbered(number).is_some() => Some(false),
        _ => None,
    }
}

unsafe extern "system" fn can_copy(
    transfer: *const DataTransfer,
    source: *const MemoryDevice,
    destination: *const MemoryDevice,
) -> bool {
    // SAFETY: it is one of `create`.
    let api = unsafe { (*transfer.cast::<Transfer>()).api };
    match (is_host(api, source), is_host(api, destination)) {
        (Some(source), Some(destination)) => !(source && destination),
        _ => false,
    }
}

unsafe extern "system" fn copy_tensors(
    transfer: *mut DataTransfer,
    sources: *const *const OrtValue,
    destinations: *const *mut OrtValue,
    streams: *const *mut OrtSyncStream,
    count: usize,
) -> OrtStatusPtr {
    // SAFETY: it is one of `create`.
    let api = unsafe { (*transfer.cast::<Transfer>()).api };
    api.guard(|| {
        for at in 0..count {
            // SAFETY: there are as many of both.
            let (source, destination) = unsafe { (*sources.add(at), *destinations.add(at)) };
            // SAFETY: there is one for each, or none at all.
            let stream = unsafe {
                let stream = if streams.is_null() { ptr::null_mut() } else { *streams.add(at) };
                stream::of_runtime(api, stream)
            };
            let stream = stream.map(|stream| &**stream);
            copy(api, source, destination, stream).inspect_err(|_| {
                stream.inspect(|stream| stream.forget_failures());
            })?;
        }
        Ok(())
    })
}

/// Copies a tensor to another of the same length, in the order of a run's stream if it has one.
pub(crate) fn copy(
    api: Api,
    source: *const OrtValue,
    destination: *mut OrtValue,
    stream: Option<&RunStream>,
) -> Result<(), Failure> {
    let mut len = 0;
    let mut from = ptr::null();
    let mut to = ptr::null_mut();
    // SAFETY: both are tensors that are alive, and there is room for what is asked.
    let (from_host, to_host) = unsafe {
        api.check((api.ort.GetTensorSizeInBytes)(source, &raw mut len))?;
        api.check((api.ort.GetTensorData)(source, &raw mut from))?;
        api.check((api.ort.GetTensorMutableData)(destination, &raw mut to))?;
        let memory = |value| (api.ep.Value_GetMemoryDevice)(value);
        (is_host(api, memory(source)), is_host(api, memory(destination)))
    };
    if len == 0 {
        return Ok(());
    }
    match (from_host, to_host) {
        (Some(true), Some(false)) => {
            // SAFETY: the tensor has so many bytes, in memory of the host.
            let bytes = unsafe { slice::from_raw_parts(from.cast::<u8>(), len) };
            let (place, buffer, offset) = found(to as usize)?;
            match of_place(stream, place) {
                Some(stream) => stream.enqueue(|stream| stream.write(&buffer, offset, bytes)),
                None => {
                    // A run that fails meanwhile reports it itself.
                    let _ = place.wait_for_runs();
                    Ok(buffer.write(offset, bytes)?)
                }
            }
        }
        (Some(false), Some(true)) => {
            let (place, buffer, offset) = found(from as usize)?;
            match of_place(stream, place) {
                Some(stream) => stream.synchronize()?,
                // Which run has written the bytes is not known: all of them have to be right.
                None => place.wait_for_runs()?,
            }
            // SAFETY: the tensor has so many bytes, in memory of the host that nothing else uses.
            let bytes = unsafe { slice::from_raw_parts_mut(to.cast::<u8>(), len) };
            Ok(buffer.read(offset, bytes)?)
        }
        (Some(false), Some(false)) => copy_on_devices(from as usize, to as usize, len, stream),
        _ => Err(Failure::new("a copy between memory that is of no device of the registry")),
    }
}

/// Copies between addresses of devices.
pub(crate) fn copy_on_devices(
    from: usize,
    to: usize,
    len: usize,
    stream: Option<&RunStream>,
) -> Result<(), Failure> {
    let (from, source, from_offset) = found(from)?;
    let (to, destination, to_offset) = found(to)?;
    let source = source.slice(from_offset..from_offset.saturating_add(len))?;
    let destination = destination.slice(to_offset..to_offset.saturating_add(len))?;
    if let Some(stream) = of_place(stream, from).filter(|_| ptr::eq(from, to)) {
        return stream.enqueue(|stream| stream.copy(&source, &destination));
    }
    // Between devices, a copy is outside of runs.
    from.wait_for_runs()?;
    let _ = to.wait_for_runs();
    Ok(destination.copy_from(&source)?)
}

/// The stream, if it is of the device.
fn of_place<'a>(stream: Option<&'a RunStream>, place: &Place) -> Option<&'a RunStream> {
    stream.filter(|stream| ptr::eq(stream.place, place))
}

/// Where an address leads. None is where there was no memory.
pub(crate) fn found(address: usize) -> Result<(&'static Place, device_registry::Buffer, usize), Failure> {
    Place::find(address).ok_or_else(|| {
        if address == 0 {
            return Place::any_failure();
        }
        Failure::new(format_args!("{address:#x} is no address of a device, or of memory that was freed"))
    })
}
