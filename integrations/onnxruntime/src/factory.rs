//! A factory: what ONNX Runtime asks for the providers of one name. Each device is a provider of its own,
//! with the device's text as its name, as a program chooses a provider by its name alone.

use std::ffi::{c_char, c_void};
use std::ptr;

use device_registry::DeviceKind;
use ort_sys::{
    OrtAllocator, OrtAllocatorType, OrtDeviceMemoryType, OrtEpDevice, OrtHardwareDevice,
    OrtHardwareDeviceType, OrtKeyValuePairs, OrtLogger, OrtMemoryInfo, OrtMemoryInfoDeviceType,
    OrtSessionOptions, OrtStatusPtr, OrtSyncStream,
};
use parking_lot::Mutex;

use crate::abi::{self, DataTransfer, Ep, MemoryDevice, StreamImpl, VERSION};
use crate::api::{Api, text};
use crate::failure::Failure;
use crate::place::Place;
use crate::provider::Provider;
use crate::stream::{self, RunStream};
use crate::transfer::Transfer;

/// Identifies no vendor: then `bind_output(name, "gpu", number)` of Python finds the memory.
const NO_VENDOR: u32 = 0;

/// The factory of one device. ONNX Runtime sees its table, which is first.
#[repr(C)]
pub(crate) struct Factory {
    table: abi::Factory,
    pub(crate) api: Api,
    pub(crate) place: &'static Place,
    /// Describes the memory of the device. It lives as long as the factory.
    memory: *mut OrtMemoryInfo,
    /// The device as hardware, which is made once.
    hardware: Mutex<usize>,
}

impl Factory {
    /// The factory of a device for a runtime. It is never freed: sessions and tensors may outlive the
    /// registration, and the next one gets it again.
    pub(crate) fn of_place(api: Api, place: &'static Place) -> Result<*mut abi::Factory, Failure> {
        /// The factories, by the address of the runtime's table and the number of the device.
        static ALL: Mutex<Vec<(usize, u32, usize)>> = Mutex::new(Vec::new());
        let key = (ptr::from_ref(api.ort).addr(), place.number);
        let mut all = ALL.lock();
        if let Some((.., factory)) = all.iter().find(|(runtime, number, _)| (*runtime, *number) == key) {
            return Ok(ptr::with_exposed_provenance_mut(*factory));
        }
        let factory = Self::create(api, place)?;
        all.push((key.0, key.1, factory.expose_provenance()));
        Ok(factory)
    }

    fn create(api: Api, place: &'static Place) -> Result<*mut abi::Factory, Failure> {
        let mut memory = ptr::null_mut();
        // SAFETY: the name is a text. A memory with an alignment is another device to ONNX Runtime, which
        // programs cannot name.
        api.check(unsafe {
            (api.ort.CreateMemoryInfo_V2)(
                place.name.as_ptr(),
                OrtMemoryInfoDeviceType::OrtMemoryInfoDeviceType_GPU,
                NO_VENDOR,
                place.number as i32,
                OrtDeviceMemoryType::OrtDeviceMemoryType_DEFAULT,
                0,
                OrtAllocatorType::OrtDeviceAllocator,
                &raw mut memory,
            )
        })?;
        let table = abi::Factory {
            ort_version_supported: VERSION,
            GetName: Some(name),
            GetVendor: Some(vendor),
            GetSupportedDevices: Some(supported_devices),
            CreateEp: Some(create_provider),
            ReleaseEp: Some(release_provider),
            GetVendorId: Some(vendor_id),
            GetVersion: Some(version),
            ValidateCompiledModelCompatibilityInfo: None,
            CreateAllocator: Some(create_allocator),
            ReleaseAllocator: Some(release_allocator),
            CreateDataTransfer: Some(create_transfer),
            IsStreamAware: Some(is_stream_aware),
            CreateSyncStreamForDevice: Some(create_stream),
            GetHardwareDeviceIncompatibilityDetails: None,
            CreateExternalResourceImporterForDevice: None,
            GetNumCustomOpDomains: None,
            GetCustomOpDomains: None,
            InitGraphicsInterop: None,
            DeinitGraphicsInterop: None,
            SelectBestModelCandidate: None,
        };
        Ok(Box::into_raw(Box::new(Self { table, api, place, memory, hardware: Mutex::new(0) })).cast())
    }

    /// # Safety
    ///
    /// `table` is one of [`create`](Self::create).
    unsafe fn of<'a>(table: *const abi::Factory) -> &'a Self {
        // SAFETY: see above. The table is first.
        unsafe { &*table.cast() }
    }

    /// The device as ONNX Runtime lists it.
    fn list(&self, table: *mut abi::Factory) -> Result<*mut OrtEpDevice, Failure> {
        let api = self.api;
        let device = self.place.device;
        let properties = device.properties()?;
        // A policy takes any device of the type CPU before ONNX Runtime's own, so no other than `cpu` has it.
        let kind = match properties.kind {
            DeviceKind::Cpu if device.is_cpu() => OrtHardwareDeviceType::OrtHardwareDeviceType_CPU,
            DeviceKind::Accelerator => OrtHardwareDeviceType::OrtHardwareDeviceType_NPU,
            _ => OrtHardwareDeviceType::OrtHardwareDeviceType_GPU,
        };
        let mut facts = vec![("device", device.to_string()), ("name", properties.name)];
        facts.extend(properties.driver.map(|driver| ("driver", driver)));
        facts.extend(properties.pci.map(|pci| ("pci_bus_id", pci.to_string())));
        facts.push(("kind", properties.kind.to_string()));
        let facts = api.pairs(&facts);
        let vendor = text(&properties.vendor.unwrap_or_else(|| "unknown".to_owned()));
        let mut known = self.hardware.lock();
        let mut hardware = ptr::with_exposed_provenance_mut::<OrtHardwareDevice>(*known);
        let mut listed = ptr::null_mut();
        // SAFETY: all are texts and pairs of this function, which are copied. ONNX Runtime takes the device
        // that is listed; the hardware stays for it.
        unsafe {
            if hardware.is_null() {
                api.check((api.ep.CreateHardwareDevice)(
                    kind,
                    NO_VENDOR,
                    self.place.number,
                    vendor.as_ptr(),
                    facts.as_ptr(),
                    &raw mut hardware,
                ))?;
                *known = hardware.expose_provenance();
            }
            api.check((api.ep.CreateEpDevice)(
                table,
                hardware,
                facts.as_ptr(),
                ptr::null(),
                &raw mut listed,
            ))?;
            api.check((api.ep.EpDevice_AddAllocatorInfo)(listed, self.memory))?;
        }
        Ok(listed)
    }
}

unsafe extern "system" fn name(table: *const abi::Factory) -> *const c_char {
    // SAFETY: a table of this module, as in all functions here.
    unsafe { Factory::of(table) }.place.name.as_ptr()
}

unsafe extern "system" fn vendor(_: *const abi::Factory) -> *const c_char {
    c"device-registry".as_ptr()
}

unsafe extern "system" fn vendor_id(_: *const abi::Factory) -> u32 {
    NO_VENDOR
}

unsafe extern "system" fn version(_: *const abi::Factory) -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

unsafe extern "system" fn supported_devices(
    table: *mut abi::Factory,
    _: *const *const OrtHardwareDevice,
    _: usize,
    devices: *mut *mut OrtEpDevice,
    room: usize,
    count: *mut usize,
) -> OrtStatusPtr {
    // SAFETY: see `name`.
    let factory = unsafe { Factory::of(table) };
    factory.api.guard(|| {
        // SAFETY: ONNX Runtime has room for `room` devices, and for their count.
        unsafe {
            *count = 0;
            if room > 0 {
                *devices = factory.list(table)?;
                *count = 1;
            }
        }
        Ok(())
    })
}

unsafe extern "system" fn create_provider(
    table: *mut abi::Factory,
    _: *const *const OrtHardwareDevice,
    _: *const *const OrtKeyValuePairs,
    _: usize,
    _: *const OrtSessionOptions,
    logger: *const OrtLogger,
    provider: *mut *mut Ep,
) -> OrtStatusPtr {
    // SAFETY: see `name`.
    let factory = unsafe { Factory::of(table) };
    factory.api.guard(|| {
        // SAFETY: there is room for a pointer, and the logger lives as long as the session.
        unsafe { *provider = Provider::create(factory.api, factory.place, logger) };
        Ok(())
    })
}

unsafe extern "system" fn release_provider(_: *mut abi::Factory, provider: *mut Ep) {
    // SAFETY: it is one of `create_provider`, and is not used again.
    unsafe { Provider::release(provider) };
}

unsafe extern "system" fn create_transfer(
    table: *mut abi::Factory,
    transfer: *mut *mut DataTransfer,
) -> OrtStatusPtr {
    // SAFETY: see `name`.
    let factory = unsafe { Factory::of(table) };
    factory.api.guard(|| {
        // SAFETY: there is room for a pointer.
        unsafe { *transfer = Transfer::create(factory.api) };
        Ok(())
    })
}

unsafe extern "system" fn is_stream_aware(_: *const abi::Factory) -> bool {
    true
}

unsafe extern "system" fn create_stream(
    table: *mut abi::Factory,
    _: *const MemoryDevice,
    _: *const OrtKeyValuePairs,
    created: *mut *mut StreamImpl,
) -> OrtStatusPtr {
    // SAFETY: see `name`.
    let factory = unsafe { Factory::of(table) };
    factory.api.guard(|| {
        // SAFETY: there is room for a pointer.
        unsafe { *created = stream::create(factory.api, factory.place)? };
        Ok(())
    })
}

/// Allocates on a device. ONNX Runtime sees its table, which is first.
#[repr(C)]
struct Allocator {
    table: OrtAllocator,
    api: Api,
    place: &'static Place,
    memory: *const OrtMemoryInfo,
}

unsafe extern "system" fn create_allocator(
    table: *mut abi::Factory,
    memory: *const OrtMemoryInfo,
    _: *const OrtKeyValuePairs,
    allocator: *mut *mut OrtAllocator,
) -> OrtStatusPtr {
    // SAFETY: see `name`.
    let factory = unsafe { Factory::of(table) };
    factory.api.guard(|| {
        // SAFETY: a table without functions.
        let mut table = unsafe { OrtAllocator::default() };
        table.version = VERSION;
        table.Alloc = Some(allocate);
        table.Free = Some(free);
        table.Info = Some(info);
        table.Reserve = Some(reserve);
        table.AllocOnStream = Some(allocate_on_stream);
        let created = Box::new(Allocator { table, api: factory.api, place: factory.place, memory });
        // SAFETY: there is room for a pointer.
        unsafe { *allocator = Box::into_raw(created).cast() };
        Ok(())
    })
}

unsafe extern "system" fn release_allocator(_: *mut abi::Factory, allocator: *mut OrtAllocator) {
    // SAFETY: it is one of `create_allocator`, and is not used again.
    drop(unsafe { Box::from_raw(allocator.cast::<Allocator>()) });
}

/// The address of new memory, or null.
fn allocate_for(place: &Place, len: usize, stream: Option<&RunStream>) -> *mut c_void {
    let stream = stream.filter(|stream| ptr::eq(stream.place, place));
    crate::api::caught(|| Ok(place.allocate(len, stream))).ok().flatten().unwrap_or(0) as *mut c_void
}

unsafe extern "system" fn allocate(allocator: *mut OrtAllocator, len: usize) -> *mut c_void {
    // SAFETY: it is one of `create_allocator`, as in the functions below.
    allocate_for(unsafe { (*allocator.cast::<Allocator>()).place }, len, None)
}

unsafe extern "system" fn allocate_on_stream(
    allocator: *mut OrtAllocator,
    len: usize,
    stream: *mut OrtSyncStream,
) -> *mut c_void {
    // SAFETY: see `allocate`; the stream is alive.
    let (allocator, stream) = unsafe {
        let allocator = &*allocator.cast::<Allocator>();
        (allocator, stream::of_runtime(allocator.api, stream))
    };
    allocate_for(allocator.place, len, stream.map(|stream| &**stream))
}

unsafe extern "system" fn reserve(allocator: *const OrtAllocator, len: usize) -> *mut c_void {
    // SAFETY: see `allocate`, which only reads.
    unsafe { allocate(allocator.cast_mut(), len) }
}

unsafe extern "system" fn free(allocator: *mut OrtAllocator, address: *mut c_void) {
    // SAFETY: see `allocate`.
    let place = unsafe { (*allocator.cast::<Allocator>()).place };
    // A panic of a driver ends here, as the function has no result.
    let _ = crate::api::caught(|| {
        place.free(address as usize);
        Ok(())
    });
}

unsafe extern "system" fn info(allocator: *const OrtAllocator) -> *const OrtMemoryInfo {
    // SAFETY: see `allocate`.
    unsafe { (*allocator.cast::<Allocator>()).memory }
}
