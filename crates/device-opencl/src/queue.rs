//! How the queues of a device are made.

use device_registry::backend::{BackendError, Priority, Version};

use crate::context::Context;
use crate::error::OpenClError;
use crate::handle::Handle;
use crate::properties::Facts;
use crate::sys::*;

/// The options with which the queues of a stream, or of blocking calls, are made.
pub(crate) struct QueueOptions {
    profiling: cl_command_queue_properties,
    /// For devices from OpenCL 2.0 on: names and values, then 0.
    list: Option<Vec<cl_queue_properties>>,
}

impl QueueOptions {
    pub(crate) fn new(facts: &Facts, priority: Priority) -> Self {
        let profiling = if facts.properties.timed_events { CL_QUEUE_PROFILING_ENABLE } else { 0 };
        let hint = match priority {
            _ if !facts.priorities => None,
            Priority::High => Some(CL_QUEUE_PRIORITY_HIGH_KHR),
            Priority::Low => Some(CL_QUEUE_PRIORITY_LOW_KHR),
            _ => None,
        };
        let list = (facts.version >= Version::new(2, 0)).then(|| {
            let mut list = vec![CL_QUEUE_PROPERTIES, profiling];
            list.extend(hint.into_iter().flat_map(|hint| [CL_QUEUE_PRIORITY_KHR, hint]));
            list.push(0);
            list
        });
        Self { profiling, list }
    }

    /// Makes a queue.
    pub(crate) fn create(&self, context: &Context) -> Result<Handle, BackendError> {
        let functions = context.functions();
        let device = context.device();
        // SAFETY: the context is valid, and the device is the one that it was made for.
        let without_list =
            || unsafe { functions.clCreateCommandQueue(context.get(), device, self.profiling) };
        let created = match &self.list {
            None => without_list(),
            // SAFETY: the context is valid, the device is the one that it was made for, and the list ends
            // with 0.
            Some(list) => match unsafe {
                functions.clCreateCommandQueueWithProperties(context.get(), device, list.as_ptr())
            } {
                // The loader may be older than the device.
                Err(error) if error.is_missing() => without_list(),
                created => created,
            },
        };
        // SAFETY: the call above made the queue and gave its one reference to this function.
        Ok(unsafe { Handle::queue(functions, created.map_err(OpenClError::own)?) })
    }
}
