//! The side of execution providers in ONNX Runtime's C interface, which `ort-sys` does not have: the table of
//! functions that a provider calls, and the structs that it fills. From `onnxruntime_ep_c_api.h` of ONNX
//! Runtime, whose order is fixed: each version adds to the end.

// Named as in the header.
#![allow(non_snake_case)]

use std::ffi::{c_char, c_int, c_void};

use ort_sys::{
    ONNXTensorElementDataType, OrtAllocator, OrtEpDevice, OrtGraph, OrtHardwareDevice, OrtHardwareDeviceType,
    OrtKernelContext, OrtKernelInfo, OrtKeyValuePairs, OrtLogger, OrtMemType, OrtMemoryInfo, OrtNode,
    OrtSessionOptions, OrtStatusPtr, OrtSyncStream, OrtValue,
};

/// The version of the interface that the structs below are of, and the lowest that a runtime may have.
pub(crate) const VERSION: u32 = 28;

/// A function that is not used.
type Unused = Option<unsafe extern "system" fn()>;

macro_rules! opaque {
    ($($name:ident)*) => {
        $(
            /// A type of ONNX Runtime, known by pointers alone.
            #[repr(C)]
            pub(crate) struct $name {
                _opaque: [u8; 0],
            }
        )*
    };
}

opaque! { EventsContainer GraphSupportInfo KernelRegistry KernelDefBuilder KernelDef MemoryDevice ProfilingEvent }

/// `OrtEpApi`: what a provider calls.
#[repr(C)]
pub(crate) struct EpApi {
    pub(crate) CreateEpDevice: unsafe extern "system" fn(
        *mut Factory,
        *const OrtHardwareDevice,
        *const OrtKeyValuePairs,
        *const OrtKeyValuePairs,
        *mut *mut OrtEpDevice,
    ) -> OrtStatusPtr,
    ReleaseEpDevice: Unused,
    EpGraphSupportInfo_AddNodesToFuse: Unused,
    pub(crate) EpGraphSupportInfo_AddSingleNode:
        unsafe extern "system" fn(*mut GraphSupportInfo, *const OrtNode) -> OrtStatusPtr,
    NodeComputeContext_NodeName: Unused,
    pub(crate) EpDevice_AddAllocatorInfo:
        unsafe extern "system" fn(*mut OrtEpDevice, *const OrtMemoryInfo) -> OrtStatusPtr,
    MemoryInfo_GetMemoryDevice: Unused,
    pub(crate) Value_GetMemoryDevice: unsafe extern "system" fn(*const OrtValue) -> *const MemoryDevice,
    MemoryDevice_AreEqual: Unused,
    pub(crate) MemoryDevice_GetDeviceType: unsafe extern "system" fn(*const MemoryDevice) -> c_int,
    MemoryDevice_GetMemoryType: Unused,
    pub(crate) MemoryDevice_GetVendorId: unsafe extern "system" fn(*const MemoryDevice) -> u32,
    pub(crate) MemoryDevice_GetDeviceId: unsafe extern "system" fn(*const MemoryDevice) -> u32,
    SyncStream_GetImpl: Unused,
    SyncStream_GetSyncId: Unused,
    GetSyncIdForLastWaitOnSyncStream: Unused,
    pub(crate) CreateHardwareDevice: unsafe extern "system" fn(
        OrtHardwareDeviceType,
        u32,
        u32,
        *const c_char,
        *const OrtKeyValuePairs,
        *mut *mut OrtHardwareDevice,
    ) -> OrtStatusPtr,
    ReleaseHardwareDevice: Unused,
    pub(crate) CreateKernelRegistry: unsafe extern "system" fn(*mut *mut KernelRegistry) -> OrtStatusPtr,
    pub(crate) ReleaseKernelRegistry: unsafe extern "system" fn(*mut KernelRegistry),
    pub(crate) KernelRegistry_AddKernel: unsafe extern "system" fn(
        *mut KernelRegistry,
        *const KernelDef,
        CreateKernel,
        *mut c_void,
    ) -> OrtStatusPtr,
    pub(crate) CreateKernelDefBuilder: unsafe extern "system" fn(*mut *mut KernelDefBuilder) -> OrtStatusPtr,
    pub(crate) ReleaseKernelDefBuilder: unsafe extern "system" fn(*mut KernelDefBuilder),
    pub(crate) KernelDefBuilder_SetOperatorType:
        unsafe extern "system" fn(*mut KernelDefBuilder, *const c_char) -> OrtStatusPtr,
    pub(crate) KernelDefBuilder_SetDomain:
        unsafe extern "system" fn(*mut KernelDefBuilder, *const c_char) -> OrtStatusPtr,
    pub(crate) KernelDefBuilder_SetSinceVersion:
        unsafe extern "system" fn(*mut KernelDefBuilder, c_int, c_int) -> OrtStatusPtr,
    pub(crate) KernelDefBuilder_SetExecutionProvider:
        unsafe extern "system" fn(*mut KernelDefBuilder, *const c_char) -> OrtStatusPtr,
    pub(crate) KernelDefBuilder_SetInputMemType:
        unsafe extern "system" fn(*mut KernelDefBuilder, usize, OrtMemType) -> OrtStatusPtr,
    pub(crate) KernelDefBuilder_SetOutputMemType:
        unsafe extern "system" fn(*mut KernelDefBuilder, usize, OrtMemType) -> OrtStatusPtr,
    KernelDefBuilder_AddTypeConstraint: Unused,
    pub(crate) KernelDefBuilder_AddInputOutputAliases:
        unsafe extern "system" fn(*mut KernelDefBuilder, *const c_int, *const c_int, usize) -> OrtStatusPtr,
    pub(crate) KernelDefBuilder_AddInputOutputMutableAliases:
        unsafe extern "system" fn(*mut KernelDefBuilder, *const c_int, *const c_int, usize) -> OrtStatusPtr,
    pub(crate) KernelDefBuilder_Build:
        unsafe extern "system" fn(*mut KernelDefBuilder, *mut *mut KernelDef) -> OrtStatusPtr,
    pub(crate) ReleaseKernelDef: unsafe extern "system" fn(*mut KernelDef),
    KernelDef_GetOperatorType: Unused,
    KernelDef_GetDomain: Unused,
    KernelDef_GetSinceVersion: Unused,
    KernelDef_GetExecutionProvider: Unused,
    KernelDef_GetInputMemType: Unused,
    KernelDef_GetOutputMemType: Unused,
    GetTensorDataType: Unused,
    EpGraphSupportInfo_LookUpKernel: Unused,
    SharedPrePackedWeightCache_StoreWeightData: Unused,
    KernelInfo_GetEp: Unused,
    DeviceEpIncompatibilityDetails_SetDetails: Unused,
    pub(crate) CreateIfKernel:
        unsafe extern "system" fn(*const OrtKernelInfo, *mut *mut KernelImpl) -> OrtStatusPtr,
    pub(crate) CreateLoopKernel: unsafe extern "system" fn(
        *const OrtKernelInfo,
        *mut LoopHelper,
        *mut *mut KernelImpl,
    ) -> OrtStatusPtr,
    pub(crate) CreateScanKernel: unsafe extern "system" fn(
        *const OrtKernelInfo,
        *mut ScanHelper,
        *mut *mut KernelImpl,
    ) -> OrtStatusPtr,
    ReleaseKernelImpl: Unused,
    GetEnvConfigEntries: Unused,
    GetOpSchema: Unused,
    ReleaseOpSchema: Unused,
    OpSchema_GetSinceVersion: Unused,
    OpSchema_GetNumInputs: Unused,
    OpSchema_GetInputName: Unused,
    OpSchema_GetInputTypeConstraint: Unused,
    OpSchema_GetNumOutputs: Unused,
    OpSchema_GetOutputName: Unused,
    OpSchema_GetOutputTypeConstraint: Unused,
    OpSchema_GetTypeConstraintCount: Unused,
    OpSchema_GetTypeConstraint: Unused,
    OpSchemaTypeConstraint_GetTypeParamName: Unused,
    OpSchemaTypeConstraint_GetAllowedTypes: Unused,
    OpSchemaTypeConstraint_GetInputIndices: Unused,
    OpSchemaTypeConstraint_GetOutputIndices: Unused,
    pub(crate) CreateProfilingEvent: unsafe extern "system" fn(
        EventCategory,
        i32,
        i32,
        *const c_char,
        i64,
        i64,
        *const *const c_char,
        *const *const c_char,
        usize,
        *mut *mut ProfilingEvent,
    ) -> OrtStatusPtr,
    pub(crate) ReleaseProfilingEvent: unsafe extern "system" fn(*mut ProfilingEvent),
    ProfilingEvent_GetCategory: Unused,
    pub(crate) ProfilingEvent_GetName:
        unsafe extern "system" fn(*const ProfilingEvent, *mut *const c_char) -> OrtStatusPtr,
    ProfilingEvent_GetTimestampUs: Unused,
    ProfilingEvent_GetDurationUs: Unused,
    ProfilingEvent_GetArgValue: Unused,
    pub(crate) ProfilingEventsContainer_AddEvents:
        unsafe extern "system" fn(*mut EventsContainer, *const *const ProfilingEvent, usize) -> OrtStatusPtr,
}

/// `OrtProfilingEventCategory`
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct EventCategory(c_int);

impl EventCategory {
    pub(crate) const KERNEL: Self = Self(2);
}

/// `OrtEpProfilerImpl`: what adds to the profile of a session.
#[repr(C)]
pub(crate) struct ProfilerImpl {
    pub(crate) ort_version_supported: u32,
    pub(crate) Release: Option<unsafe extern "system" fn(*mut ProfilerImpl)>,
    /// The number is the nanoseconds since the profile began.
    pub(crate) StartProfiling: Option<unsafe extern "system" fn(*mut ProfilerImpl, i64) -> OrtStatusPtr>,
    pub(crate) StartEvent: Option<unsafe extern "system" fn(*mut ProfilerImpl, u64) -> OrtStatusPtr>,
    pub(crate) StopEvent:
        Option<unsafe extern "system" fn(*mut ProfilerImpl, u64, *const ProfilingEvent) -> OrtStatusPtr>,
    pub(crate) EndProfiling:
        Option<unsafe extern "system" fn(*mut ProfilerImpl, *mut EventsContainer) -> OrtStatusPtr>,
}

/// `OrtLoopKernelHelper`: what the kernel of a `Loop` needs of a device.
#[repr(C)]
pub(crate) struct LoopHelper {
    pub(crate) ort_version_supported: u32,
    pub(crate) Release: Option<unsafe extern "system" fn(*mut LoopHelper)>,
    /// Puts the values of all turns one after the other: with the handle of a stream, the values and their
    /// number, and the output and its length in bytes.
    pub(crate) ConcatOutput: Option<
        unsafe extern "system" fn(
            *mut LoopHelper,
            *mut c_void,
            *const *const OrtValue,
            usize,
            *mut c_void,
            usize,
        ) -> OrtStatusPtr,
    >,
}

/// `OrtScanKernelHelper`: what the kernel of a `Scan` needs of a device.
#[repr(C)]
pub(crate) struct ScanHelper {
    pub(crate) ort_version_supported: u32,
    pub(crate) Release: Option<unsafe extern "system" fn(*mut ScanHelper)>,
    /// Writes the input to the output with its dimensions in another order.
    pub(crate) Transpose: Option<
        unsafe extern "system" fn(
            *mut ScanHelper,
            *const usize,
            usize,
            *const OrtValue,
            *mut OrtSyncStream,
            *mut OrtValue,
        ) -> OrtStatusPtr,
    >,
}

/// `OrtKernelCreateFunc`
pub(crate) type CreateKernel =
    unsafe extern "system" fn(*mut c_void, *const OrtKernelInfo, *mut *mut KernelImpl) -> OrtStatusPtr;

/// `OrtKernelImpl`: the kernel of a node.
#[repr(C)]
pub(crate) struct KernelImpl {
    pub(crate) ort_version_supported: u32,
    pub(crate) flags: u32,
    pub(crate) Compute:
        Option<unsafe extern "system" fn(*mut KernelImpl, *mut OrtKernelContext) -> OrtStatusPtr>,
    pub(crate) Release: Option<unsafe extern "system" fn(*mut KernelImpl)>,
    pub(crate) PrePackWeight: Unused,
    pub(crate) SetSharedPrePackedWeight: Unused,
}

/// `OrtDataTransferImpl`: copies from, to and between the devices of a factory.
#[repr(C)]
pub(crate) struct DataTransfer {
    pub(crate) ort_version_supported: u32,
    pub(crate) Release: Option<unsafe extern "system" fn(*mut DataTransfer)>,
    pub(crate) CanCopy: Option<
        unsafe extern "system" fn(*const DataTransfer, *const MemoryDevice, *const MemoryDevice) -> bool,
    >,
    pub(crate) CopyTensors: Option<
        unsafe extern "system" fn(
            *mut DataTransfer,
            *const *const OrtValue,
            *const *mut OrtValue,
            *const *mut OrtSyncStream,
            usize,
        ) -> OrtStatusPtr,
    >,
}

/// `OrtSyncStreamImpl`: a stream of a device.
#[repr(C)]
pub(crate) struct StreamImpl {
    pub(crate) ort_version_supported: u32,
    pub(crate) Release: Option<unsafe extern "system" fn(*mut StreamImpl)>,
    pub(crate) GetHandle: Option<unsafe extern "system" fn(*mut StreamImpl) -> *mut c_void>,
    pub(crate) CreateNotification:
        Option<unsafe extern "system" fn(*mut StreamImpl, *mut *mut Notification) -> OrtStatusPtr>,
    pub(crate) Flush: Option<unsafe extern "system" fn(*mut StreamImpl) -> OrtStatusPtr>,
    pub(crate) OnSessionRunEnd: Option<unsafe extern "system" fn(*mut StreamImpl) -> OrtStatusPtr>,
}

/// `OrtSyncNotificationImpl`: an event of a stream.
#[repr(C)]
pub(crate) struct Notification {
    pub(crate) ort_version_supported: u32,
    pub(crate) Release: Option<unsafe extern "system" fn(*mut Notification)>,
    pub(crate) Activate: Option<unsafe extern "system" fn(*mut Notification) -> OrtStatusPtr>,
    pub(crate) WaitOnDevice:
        Option<unsafe extern "system" fn(*mut Notification, *mut OrtSyncStream) -> OrtStatusPtr>,
    pub(crate) WaitOnHost: Option<unsafe extern "system" fn(*mut Notification) -> OrtStatusPtr>,
}

/// `OrtEp`: the provider of a session.
#[repr(C)]
pub(crate) struct Ep {
    pub(crate) ort_version_supported: u32,
    pub(crate) GetName: Option<unsafe extern "system" fn(*const Ep) -> *const c_char>,
    pub(crate) GetCapability:
        Option<unsafe extern "system" fn(*mut Ep, *const OrtGraph, *mut GraphSupportInfo) -> OrtStatusPtr>,
    pub(crate) Compile: Unused,
    pub(crate) ReleaseNodeComputeInfos: Unused,
    pub(crate) GetPreferredDataLayout: Unused,
    pub(crate) ShouldConvertDataLayoutForOp: Unused,
    pub(crate) SetDynamicOptions: Unused,
    pub(crate) OnRunStart: Unused,
    pub(crate) OnRunEnd: Unused,
    pub(crate) CreateAllocator: Unused,
    pub(crate) CreateSyncStreamForDevice: Unused,
    pub(crate) GetCompiledModelCompatibilityInfo: Unused,
    pub(crate) GetKernelRegistry:
        Option<unsafe extern "system" fn(*mut Ep, *mut *const KernelRegistry) -> OrtStatusPtr>,
    pub(crate) IsConcurrentRunSupported:
        Option<unsafe extern "system" fn(*mut Ep, *mut bool) -> OrtStatusPtr>,
    pub(crate) Sync: Option<unsafe extern "system" fn(*mut Ep) -> OrtStatusPtr>,
    pub(crate) CreateProfiler:
        Option<unsafe extern "system" fn(*mut Ep, *mut *mut ProfilerImpl) -> OrtStatusPtr>,
    pub(crate) IsGraphCaptureEnabled: Unused,
    pub(crate) IsGraphCaptured: Unused,
    pub(crate) ReplayGraph: Unused,
    pub(crate) GetGraphCaptureNodeAssignmentPolicy: Unused,
    pub(crate) GetAvailableResource: Unused,
    pub(crate) OnSessionInitializationEnd: Option<unsafe extern "system" fn(*mut Ep) -> OrtStatusPtr>,
    pub(crate) GetDefaultMemoryDevice: Unused,
    pub(crate) ReleaseCapturedGraph: Unused,
}

/// `OrtEpFactory`: what makes the providers of one name.
#[repr(C)]
pub(crate) struct Factory {
    pub(crate) ort_version_supported: u32,
    pub(crate) GetName: Option<unsafe extern "system" fn(*const Factory) -> *const c_char>,
    pub(crate) GetVendor: Option<unsafe extern "system" fn(*const Factory) -> *const c_char>,
    pub(crate) GetSupportedDevices: Option<
        unsafe extern "system" fn(
            *mut Factory,
            *const *const OrtHardwareDevice,
            usize,
            *mut *mut OrtEpDevice,
            usize,
            *mut usize,
        ) -> OrtStatusPtr,
    >,
    pub(crate) CreateEp: Option<
        unsafe extern "system" fn(
            *mut Factory,
            *const *const OrtHardwareDevice,
            *const *const OrtKeyValuePairs,
            usize,
            *const OrtSessionOptions,
            *const OrtLogger,
            *mut *mut Ep,
        ) -> OrtStatusPtr,
    >,
    pub(crate) ReleaseEp: Option<unsafe extern "system" fn(*mut Factory, *mut Ep)>,
    pub(crate) GetVendorId: Option<unsafe extern "system" fn(*const Factory) -> u32>,
    pub(crate) GetVersion: Option<unsafe extern "system" fn(*const Factory) -> *const c_char>,
    pub(crate) ValidateCompiledModelCompatibilityInfo: Unused,
    pub(crate) CreateAllocator: Option<
        unsafe extern "system" fn(
            *mut Factory,
            *const OrtMemoryInfo,
            *const OrtKeyValuePairs,
            *mut *mut OrtAllocator,
        ) -> OrtStatusPtr,
    >,
    pub(crate) ReleaseAllocator: Option<unsafe extern "system" fn(*mut Factory, *mut OrtAllocator)>,
    pub(crate) CreateDataTransfer:
        Option<unsafe extern "system" fn(*mut Factory, *mut *mut DataTransfer) -> OrtStatusPtr>,
    pub(crate) IsStreamAware: Option<unsafe extern "system" fn(*const Factory) -> bool>,
    pub(crate) CreateSyncStreamForDevice: Option<
        unsafe extern "system" fn(
            *mut Factory,
            *const MemoryDevice,
            *const OrtKeyValuePairs,
            *mut *mut StreamImpl,
        ) -> OrtStatusPtr,
    >,
    pub(crate) GetHardwareDeviceIncompatibilityDetails: Unused,
    pub(crate) CreateExternalResourceImporterForDevice: Unused,
    pub(crate) GetNumCustomOpDomains: Unused,
    pub(crate) GetCustomOpDomains: Unused,
    pub(crate) InitGraphicsInterop: Unused,
    pub(crate) DeinitGraphicsInterop: Unused,
    pub(crate) SelectBestModelCandidate: Unused,
}

/// A tensor's type as the number that ONNX Runtime has for it: a newer one may have more than the enum.
pub(crate) type TypeNumber = c_int;

/// A type for which a function of ONNX Runtime writes its number.
pub(crate) fn as_type(number: &mut TypeNumber) -> *mut ONNXTensorElementDataType {
    std::ptr::from_mut(number).cast()
}
