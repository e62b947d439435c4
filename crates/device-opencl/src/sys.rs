//! Types and constants of OpenCL, with the names and values of Khronos' headers.
//!
//! These are what [`OpenClFunctions`](crate::OpenClFunctions) takes and what the kernels of this project use.
//! Handles are plain pointers, as in other OpenCL crates: their `cl_mem` works here. For a constant that is
//! missing here, use the number from the headers.

#![allow(non_camel_case_types, reason = "the names are those of Khronos' headers")]
#![allow(missing_docs, reason = "the specification of OpenCL describes each")]

use std::ffi::c_void;

pub type cl_int = i32;
pub type cl_uint = u32;
pub type cl_ulong = u64;

pub type cl_platform_id = *mut c_void;
pub type cl_device_id = *mut c_void;
pub type cl_context = *mut c_void;
pub type cl_command_queue = *mut c_void;
pub type cl_mem = *mut c_void;
pub type cl_program = *mut c_void;
pub type cl_kernel = *mut c_void;
pub type cl_event = *mut c_void;

pub type cl_bool = cl_uint;
pub type cl_bitfield = cl_ulong;
pub type cl_properties = cl_ulong;
pub type cl_platform_info = cl_uint;
pub type cl_device_type = cl_bitfield;
pub type cl_device_info = cl_uint;
pub type cl_context_properties = isize;
pub type cl_command_queue_properties = cl_bitfield;
pub type cl_queue_properties = cl_properties;
pub type cl_mem_flags = cl_bitfield;
pub type cl_map_flags = cl_bitfield;
pub type cl_program_info = cl_uint;
pub type cl_program_build_info = cl_uint;
pub type cl_event_info = cl_uint;
pub type cl_profiling_info = cl_uint;

// cl_bool
pub const CL_FALSE: cl_bool = 0;
pub const CL_TRUE: cl_bool = 1;
pub const CL_NON_BLOCKING: cl_bool = CL_FALSE;
pub const CL_BLOCKING: cl_bool = CL_TRUE;

// cl_platform_info
pub const CL_PLATFORM_VERSION: cl_platform_info = 0x0901;
pub const CL_PLATFORM_NAME: cl_platform_info = 0x0902;
pub const CL_PLATFORM_VENDOR: cl_platform_info = 0x0903;

// cl_device_type
pub const CL_DEVICE_TYPE_CPU: cl_device_type = 1 << 1;
pub const CL_DEVICE_TYPE_GPU: cl_device_type = 1 << 2;
pub const CL_DEVICE_TYPE_ACCELERATOR: cl_device_type = 1 << 3;
pub const CL_DEVICE_TYPE_ALL: cl_device_type = 0xffff_ffff;

// cl_device_info
pub const CL_DEVICE_TYPE: cl_device_info = 0x1000;
pub const CL_DEVICE_MAX_COMPUTE_UNITS: cl_device_info = 0x1002;
pub const CL_DEVICE_MAX_WORK_GROUP_SIZE: cl_device_info = 0x1004;
pub const CL_DEVICE_MAX_CLOCK_FREQUENCY: cl_device_info = 0x100c;
pub const CL_DEVICE_ADDRESS_BITS: cl_device_info = 0x100d;
pub const CL_DEVICE_MAX_MEM_ALLOC_SIZE: cl_device_info = 0x1010;
/// In bits.
pub const CL_DEVICE_MEM_BASE_ADDR_ALIGN: cl_device_info = 0x1019;
pub const CL_DEVICE_GLOBAL_MEM_CACHE_SIZE: cl_device_info = 0x101e;
pub const CL_DEVICE_GLOBAL_MEM_SIZE: cl_device_info = 0x101f;
pub const CL_DEVICE_LOCAL_MEM_SIZE: cl_device_info = 0x1023;
/// In nanoseconds.
pub const CL_DEVICE_PROFILING_TIMER_RESOLUTION: cl_device_info = 0x1025;
pub const CL_DEVICE_AVAILABLE: cl_device_info = 0x1027;
pub const CL_DEVICE_QUEUE_ON_HOST_PROPERTIES: cl_device_info = 0x102a;
pub const CL_DEVICE_NAME: cl_device_info = 0x102b;
pub const CL_DEVICE_VENDOR: cl_device_info = 0x102c;
pub const CL_DRIVER_VERSION: cl_device_info = 0x102d;
pub const CL_DEVICE_PROFILE: cl_device_info = 0x102e;
pub const CL_DEVICE_VERSION: cl_device_info = 0x102f;
pub const CL_DEVICE_EXTENSIONS: cl_device_info = 0x1030;
pub const CL_DEVICE_PLATFORM: cl_device_info = 0x1031;
pub const CL_DEVICE_DOUBLE_FP_CONFIG: cl_device_info = 0x1032;
pub const CL_DEVICE_HOST_UNIFIED_MEMORY: cl_device_info = 0x1035;

// cl_device_info of extensions
pub const CL_UUID_SIZE_KHR: usize = 16;
pub const CL_DEVICE_UUID_KHR: cl_device_info = 0x106a;
pub const CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV: cl_device_info = 0x4000;
pub const CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV: cl_device_info = 0x4001;
pub const CL_DEVICE_PCI_BUS_ID_NV: cl_device_info = 0x4008;
pub const CL_DEVICE_PCI_SLOT_ID_NV: cl_device_info = 0x4009;
/// From `cl_nv_device_attribute_query`. Only NVIDIA's headers have it.
pub const CL_DEVICE_PCI_DOMAIN_ID_NV: cl_device_info = 0x400a;
pub const CL_DEVICE_TOPOLOGY_AMD: cl_device_info = 0x4037;
pub const CL_DEVICE_PCI_BUS_INFO_KHR: cl_device_info = 0x410f;

// cl_context_properties
pub const CL_CONTEXT_PLATFORM: cl_context_properties = 0x1084;

// cl_command_queue_properties
pub const CL_QUEUE_PROFILING_ENABLE: cl_command_queue_properties = 1 << 1;

// cl_queue_properties, and the values of one of them
pub const CL_QUEUE_PROPERTIES: cl_queue_properties = 0x1093;
pub const CL_QUEUE_PRIORITY_KHR: cl_queue_properties = 0x1096;
pub const CL_QUEUE_PRIORITY_HIGH_KHR: cl_queue_properties = 1 << 0;
pub const CL_QUEUE_PRIORITY_LOW_KHR: cl_queue_properties = 1 << 2;

// cl_mem_flags
pub const CL_MEM_READ_WRITE: cl_mem_flags = 1 << 0;
pub const CL_MEM_ALLOC_HOST_PTR: cl_mem_flags = 1 << 4;

// cl_map_flags
pub const CL_MAP_READ: cl_map_flags = 1 << 0;
pub const CL_MAP_WRITE: cl_map_flags = 1 << 1;

// cl_program_info
pub const CL_PROGRAM_BINARY_SIZES: cl_program_info = 0x1165;
pub const CL_PROGRAM_BINARIES: cl_program_info = 0x1166;
pub const CL_PROGRAM_NUM_KERNELS: cl_program_info = 0x1167;
pub const CL_PROGRAM_KERNEL_NAMES: cl_program_info = 0x1168;

// cl_program_build_info
pub const CL_PROGRAM_BUILD_LOG: cl_program_build_info = 0x1183;

// cl_event_info, and the status of a command that is done
pub const CL_EVENT_COMMAND_EXECUTION_STATUS: cl_event_info = 0x11d3;
pub const CL_COMPLETE: cl_int = 0;

// cl_profiling_info
pub const CL_PROFILING_COMMAND_END: cl_profiling_info = 0x1283;

/// Constants for the statuses of calls and commands, and their names for messages.
macro_rules! statuses {
    ($($name:ident = $status:literal)*) => {
        $(pub const $name: cl_int = $status;)*

        /// The name of a status.
        pub(crate) fn status_name(status: cl_int) -> Option<&'static str> {
            match status {
                $($name => Some(stringify!($name)),)*
                _ => None,
            }
        }
    };
}

statuses! {
    CL_SUCCESS = 0
    CL_DEVICE_NOT_FOUND = -1
    CL_DEVICE_NOT_AVAILABLE = -2
    CL_COMPILER_NOT_AVAILABLE = -3
    CL_MEM_OBJECT_ALLOCATION_FAILURE = -4
    CL_OUT_OF_RESOURCES = -5
    CL_OUT_OF_HOST_MEMORY = -6
    CL_PROFILING_INFO_NOT_AVAILABLE = -7
    CL_MEM_COPY_OVERLAP = -8
    CL_IMAGE_FORMAT_MISMATCH = -9
    CL_IMAGE_FORMAT_NOT_SUPPORTED = -10
    CL_BUILD_PROGRAM_FAILURE = -11
    CL_MAP_FAILURE = -12
    CL_MISALIGNED_SUB_BUFFER_OFFSET = -13
    CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST = -14
    CL_COMPILE_PROGRAM_FAILURE = -15
    CL_LINKER_NOT_AVAILABLE = -16
    CL_LINK_PROGRAM_FAILURE = -17
    CL_DEVICE_PARTITION_FAILED = -18
    CL_KERNEL_ARG_INFO_NOT_AVAILABLE = -19
    CL_INVALID_VALUE = -30
    CL_INVALID_DEVICE_TYPE = -31
    CL_INVALID_PLATFORM = -32
    CL_INVALID_DEVICE = -33
    CL_INVALID_CONTEXT = -34
    CL_INVALID_QUEUE_PROPERTIES = -35
    CL_INVALID_COMMAND_QUEUE = -36
    CL_INVALID_HOST_PTR = -37
    CL_INVALID_MEM_OBJECT = -38
    CL_INVALID_IMAGE_FORMAT_DESCRIPTOR = -39
    CL_INVALID_IMAGE_SIZE = -40
    CL_INVALID_SAMPLER = -41
    CL_INVALID_BINARY = -42
    CL_INVALID_BUILD_OPTIONS = -43
    CL_INVALID_PROGRAM = -44
    CL_INVALID_PROGRAM_EXECUTABLE = -45
    CL_INVALID_KERNEL_NAME = -46
    CL_INVALID_KERNEL_DEFINITION = -47
    CL_INVALID_KERNEL = -48
    CL_INVALID_ARG_INDEX = -49
    CL_INVALID_ARG_VALUE = -50
    CL_INVALID_ARG_SIZE = -51
    CL_INVALID_KERNEL_ARGS = -52
    CL_INVALID_WORK_DIMENSION = -53
    CL_INVALID_WORK_GROUP_SIZE = -54
    CL_INVALID_WORK_ITEM_SIZE = -55
    CL_INVALID_GLOBAL_OFFSET = -56
    CL_INVALID_EVENT_WAIT_LIST = -57
    CL_INVALID_EVENT = -58
    CL_INVALID_OPERATION = -59
    CL_INVALID_GL_OBJECT = -60
    CL_INVALID_BUFFER_SIZE = -61
    CL_INVALID_MIP_LEVEL = -62
    CL_INVALID_GLOBAL_WORK_SIZE = -63
    CL_INVALID_PROPERTY = -64
    CL_INVALID_IMAGE_DESCRIPTOR = -65
    CL_INVALID_COMPILER_OPTIONS = -66
    CL_INVALID_LINKER_OPTIONS = -67
    CL_INVALID_DEVICE_PARTITION_COUNT = -68
    CL_INVALID_PIPE_SIZE = -69
    CL_INVALID_DEVICE_QUEUE = -70
    CL_INVALID_SPEC_ID = -71
    CL_MAX_SIZE_RESTRICTION_EXCEEDED = -72
    CL_PLATFORM_NOT_FOUND_KHR = -1001
    CL_COMMAND_TERMINATED_ITSELF_WITH_FAILURE_ARM = -1108
    CL_CONTEXT_TERMINATED_KHR = -1121
    CL_INVALID_SEMAPHORE_KHR = -1142
}
