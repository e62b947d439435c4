//! The table of OpenCL's functions, looked up by name when the loader is opened.

use std::ffi::{c_char, c_uchar, c_void};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr;

use libloading::Library;

use crate::error::OpenClError;
use crate::sys::*;

/// A table of function pointers, with a method for each.
macro_rules! functions {
    (
        $(fn $name:ident($($argument:ident: $type:ty),* $(,)?);)*
        // Functions that return an object, and write their status to a last argument.
        makers:
        $(fn $maker:ident($($maker_argument:ident: $maker_type:ty),* $(,)?) -> $object:ty;)*
    ) => {
        /// The functions of OpenCL, for kernels. [`OpenClDevice::functions`](crate::OpenClDevice::functions)
        /// returns them.
        ///
        /// Each method calls the function of its name with the arguments of the OpenCL specification, with
        /// one exception: a function that returns an object writes its status to a last argument, which the
        /// method passes itself. A status that is not `CL_SUCCESS` is an [`OpenClError`] with the function's
        /// name, which `?` turns into a [`BackendError`](device_registry::backend::BackendError).
        ///
        /// A function that the loader lacks is an error only when it is called: loaders and devices may be
        /// older than this crate. [`other`](Self::other) looks up functions for which there is
        /// no method.
        #[allow(non_snake_case, reason = "the names are OpenCL's")]
        pub struct OpenClFunctions {
            $($name: Option<unsafe extern "system" fn($($type),*) -> cl_int>,)*
            $($maker: Option<unsafe extern "system" fn($($maker_type,)* *mut cl_int) -> $object>,)*
            /// Never closed: a driver's threads may run in it until the process ends, and not every library
            /// survives it.
            library: ManuallyDrop<Library>,
        }

        #[allow(non_snake_case, reason = "the names are OpenCL's")]
        #[allow(clippy::too_many_arguments, reason = "the arguments are OpenCL's")]
        impl OpenClFunctions {
            /// Looks all functions up in the library. It may lack any of them.
            pub(crate) fn look_up(library: Library) -> Self {
                Self {
                    $($name: {
                        // SAFETY: the OpenCL specification gives the function of this name this type.
                        unsafe { library.get(stringify!($name)) }.ok().map(|function| *function)
                    },)*
                    $($maker: {
                        // SAFETY: the OpenCL specification gives the function of this name this type.
                        unsafe { library.get(stringify!($maker)) }.ok().map(|function| *function)
                    },)*
                    library: ManuallyDrop::new(library),
                }
            }

            $(
                #[doc = concat!("Calls `", stringify!($name), "`.")]
                ///
                /// # Errors
                ///
                /// If the function returns another status than `CL_SUCCESS`, or the loader lacks it.
                ///
                /// # Safety
                ///
                /// The arguments are as the OpenCL specification requires.
                pub unsafe fn $name(&self $(, $argument: $type)*) -> Result<(), OpenClError> {
                    let function = self.$name.ok_or(OpenClError::missing(stringify!($name)))?;
                    // SAFETY: the caller passes arguments that the specification allows, and the pointer is
                    // of this function.
                    OpenClError::check(stringify!($name), unsafe { function($($argument),*) })
                }
            )*
            $(
                #[doc = concat!("Calls `", stringify!($maker), "`, without its last argument.")]
                ///
                /// # Errors
                ///
                /// If the function writes another status than `CL_SUCCESS`, or the loader lacks it.
                ///
                /// # Safety
                ///
                /// The arguments are as the OpenCL specification requires.
                pub unsafe fn $maker(&self $(, $maker_argument: $maker_type)*) -> Result<$object, OpenClError> {
                    let function = self.$maker.ok_or(OpenClError::missing(stringify!($maker)))?;
                    let mut status = CL_SUCCESS;
                    // SAFETY: the caller passes arguments that the specification allows, the pointer is of
                    // this function, and `status` is a place for a status.
                    let object = unsafe { function($($maker_argument,)* &mut status) };
                    OpenClError::check(stringify!($maker), status).map(|()| object)
                }
            )*
        }
    };
}

functions! {
    fn clGetPlatformIDs(num_entries: cl_uint, platforms: *mut cl_platform_id, num_platforms: *mut cl_uint);
    fn clGetPlatformInfo(
        platform: cl_platform_id,
        param_name: cl_platform_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    );
    fn clGetDeviceIDs(
        platform: cl_platform_id,
        device_type: cl_device_type,
        num_entries: cl_uint,
        devices: *mut cl_device_id,
        num_devices: *mut cl_uint,
    );
    fn clGetDeviceInfo(
        device: cl_device_id,
        param_name: cl_device_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    );
    fn clRetainContext(context: cl_context);
    fn clReleaseContext(context: cl_context);
    fn clReleaseCommandQueue(command_queue: cl_command_queue);
    fn clReleaseMemObject(memobj: cl_mem);
    fn clBuildProgram(
        program: cl_program,
        num_devices: cl_uint,
        device_list: *const cl_device_id,
        options: *const c_char,
        pfn_notify: Option<unsafe extern "system" fn(cl_program, *mut c_void)>,
        user_data: *mut c_void,
    );
    fn clGetProgramInfo(
        program: cl_program,
        param_name: cl_program_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    );
    fn clGetProgramBuildInfo(
        program: cl_program,
        device: cl_device_id,
        param_name: cl_program_build_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    );
    fn clReleaseProgram(program: cl_program);
    fn clSetKernelArg(kernel: cl_kernel, arg_index: cl_uint, arg_size: usize, arg_value: *const c_void);
    fn clReleaseKernel(kernel: cl_kernel);
    fn clWaitForEvents(num_events: cl_uint, event_list: *const cl_event);
    fn clGetEventInfo(
        event: cl_event,
        param_name: cl_event_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    );
    fn clGetEventProfilingInfo(
        event: cl_event,
        param_name: cl_profiling_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    );
    // OpenCL 1.1.
    fn clSetEventCallback(
        event: cl_event,
        command_exec_callback_type: cl_int,
        pfn_notify: Option<unsafe extern "system" fn(cl_event, cl_int, *mut c_void)>,
        user_data: *mut c_void,
    );
    fn clReleaseEvent(event: cl_event);
    // OpenCL 1.1.
    fn clSetUserEventStatus(event: cl_event, execution_status: cl_int);
    fn clFlush(command_queue: cl_command_queue);
    fn clFinish(command_queue: cl_command_queue);
    fn clEnqueueReadBuffer(
        command_queue: cl_command_queue,
        buffer: cl_mem,
        blocking_read: cl_bool,
        offset: usize,
        size: usize,
        ptr: *mut c_void,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    );
    fn clEnqueueWriteBuffer(
        command_queue: cl_command_queue,
        buffer: cl_mem,
        blocking_write: cl_bool,
        offset: usize,
        size: usize,
        ptr: *const c_void,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    );
    fn clEnqueueCopyBuffer(
        command_queue: cl_command_queue,
        src_buffer: cl_mem,
        dst_buffer: cl_mem,
        src_offset: usize,
        dst_offset: usize,
        size: usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    );
    // OpenCL 1.2.
    fn clEnqueueFillBuffer(
        command_queue: cl_command_queue,
        buffer: cl_mem,
        pattern: *const c_void,
        pattern_size: usize,
        offset: usize,
        size: usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    );
    fn clEnqueueUnmapMemObject(
        command_queue: cl_command_queue,
        memobj: cl_mem,
        mapped_ptr: *mut c_void,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    );
    fn clEnqueueNDRangeKernel(
        command_queue: cl_command_queue,
        kernel: cl_kernel,
        work_dim: cl_uint,
        global_work_offset: *const usize,
        global_work_size: *const usize,
        local_work_size: *const usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    );
    // OpenCL 1.2.
    fn clEnqueueMarkerWithWaitList(
        command_queue: cl_command_queue,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    );
    // OpenCL 1.2.
    fn clEnqueueBarrierWithWaitList(
        command_queue: cl_command_queue,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    );
    makers:
    fn clCreateContext(
        properties: *const cl_context_properties,
        num_devices: cl_uint,
        devices: *const cl_device_id,
        pfn_notify: Option<unsafe extern "system" fn(*const c_char, *const c_void, usize, *mut c_void)>,
        user_data: *mut c_void,
    ) -> cl_context;
    // From OpenCL 1; every loader has it.
    fn clCreateCommandQueue(
        context: cl_context,
        device: cl_device_id,
        properties: cl_command_queue_properties,
    ) -> cl_command_queue;
    // OpenCL 2.0.
    fn clCreateCommandQueueWithProperties(
        context: cl_context,
        device: cl_device_id,
        properties: *const cl_queue_properties,
    ) -> cl_command_queue;
    fn clCreateBuffer(
        context: cl_context,
        flags: cl_mem_flags,
        size: usize,
        host_ptr: *mut c_void,
    ) -> cl_mem;
    // OpenCL 1.1.
    fn clCreateUserEvent(context: cl_context) -> cl_event;
    fn clCreateProgramWithSource(
        context: cl_context,
        count: cl_uint,
        strings: *const *const c_char,
        lengths: *const usize,
    ) -> cl_program;
    fn clCreateProgramWithBinary(
        context: cl_context,
        num_devices: cl_uint,
        device_list: *const cl_device_id,
        lengths: *const usize,
        binaries: *const *const c_uchar,
        binary_status: *mut cl_int,
    ) -> cl_program;
    fn clCreateKernel(program: cl_program, kernel_name: *const c_char) -> cl_kernel;
    fn clEnqueueMapBuffer(
        command_queue: cl_command_queue,
        buffer: cl_mem,
        blocking_map: cl_bool,
        map_flags: cl_map_flags,
        offset: usize,
        size: usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> *mut c_void;
}

impl OpenClFunctions {
    /// Looks up a function of the loader for which there is no method. `F` is the type of a pointer to it.
    ///
    /// # Errors
    ///
    /// If the loader lacks the function.
    ///
    /// # Safety
    ///
    /// `F` is `unsafe extern "system" fn(…) -> …` with the arguments and the result of this function.
    pub unsafe fn other<F: Copy>(&self, name: &'static str) -> Result<F, OpenClError> {
        // SAFETY: the caller promises the type.
        unsafe { self.library.get(name) }.map(|function| *function).map_err(|_| OpenClError::missing(name))
    }

    /// Whether the library has the function without which nothing else works.
    pub(crate) fn is_loader(&self) -> bool {
        self.clGetPlatformIDs.is_some()
    }

    /// The value of `clGetDeviceInfo`.
    ///
    /// # Safety
    ///
    /// The device is valid.
    pub(crate) unsafe fn device_info(
        &self,
        device: cl_device_id,
        what: cl_device_info,
    ) -> Result<Vec<u8>, OpenClError> {
        // SAFETY: the caller promises a valid device, and `value` passes a place together with its size.
        value(|size, place, written| unsafe { self.clGetDeviceInfo(device, what, size, place, written) })
    }
}

impl fmt::Debug for OpenClFunctions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenClFunctions").field("library", &self.library).finish_non_exhaustive()
    }
}

/// The value of a query, which is called with a size, a place of that size and a place for the value's size:
/// first without a place for the value, for its size.
pub(crate) fn value(
    query: impl Fn(usize, *mut c_void, *mut usize) -> Result<(), OpenClError>,
) -> Result<Vec<u8>, OpenClError> {
    let mut size = 0;
    query(0, ptr::null_mut(), &mut size)?;
    // The place is aligned for any value: drivers may write numbers to it as numbers.
    let mut words = vec![0_u64; size.div_ceil(8)];
    if size > 0 {
        query(size, words.as_mut_ptr().cast(), ptr::null_mut())?;
    }
    Ok(words.into_iter().flat_map(u64::to_ne_bytes).take(size).collect())
}

/// The members of a list, by a query that is called with a length, a place of that length and a place for the
/// list's length: first without a place for the members, for their number.
pub(crate) fn list(
    query: impl Fn(cl_uint, *mut *mut c_void, *mut cl_uint) -> Result<(), OpenClError>,
) -> Result<Vec<*mut c_void>, OpenClError> {
    let mut count = 0;
    query(0, ptr::null_mut(), &mut count)?;
    let mut members = vec![ptr::null_mut(); count as usize];
    if count > 0 {
        let mut found = count;
        query(count, members.as_mut_ptr(), &mut found)?;
        // The list may have become shorter since it was counted.
        members.truncate(found as usize);
    }
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_the_size_that_its_query_says() {
        for len in [0, 1, 8, 11] {
            let bytes: Vec<u8> = (1..=len).collect();
            let value = value(|size, place: *mut c_void, written: *mut usize| {
                if !written.is_null() {
                    // SAFETY: `written` is a place for a size.
                    unsafe { *written = bytes.len() };
                }
                if !place.is_null() {
                    assert_eq!(size, bytes.len());
                    // SAFETY: `place` has space for `size` bytes.
                    unsafe { place.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), size) };
                }
                Ok(())
            });
            assert_eq!(value.unwrap(), bytes);
        }
    }

    #[test]
    fn a_list_that_becomes_shorter_has_no_members_that_were_not_written() {
        let member = ptr::without_provenance_mut(7);
        let listed = list(|len, place: *mut *mut c_void, count: *mut cl_uint| {
            // SAFETY: `count` is a place for a number, and `place` for one member if the length says so.
            unsafe {
                *count = if len == 0 { 2 } else { 1 };
                if len > 0 {
                    *place = member;
                }
            }
            Ok(())
        });
        assert_eq!(listed.unwrap(), [member]);
    }
}
