"""The public names of `torch.cuda` and `torch.xpu` that a device does not have, each with a reason or what to use
instead. They are an `AttributeError`, so that `hasattr` is right."""

_GRAPHS = "devices do not record work in graphs"
_ALLOCATOR = "the registry allocates, and PyTorch's allocators are not used; `empty_cache` gives memory back"
_POOLS = "the registry has one pool of memory for each device"
_PINNED = "pinned memory is not counted"
_SENSORS = "the registry reads no sensors; `get_device_properties` says what is known of a device"
_EXTERNAL = "streams of other libraries cannot be adopted; `torch.Stream` makes one"
_CUDA = "it is of CUDA alone"
_BUILD = "PyTorch has no compiled kernels for it; `counts` says what kernels computed"
_TYPES = "use `torch.tensor(…, dtype=…, device=…)`; the text works in `tensor.type(…)`"

_ABSENT = {
    **dict.fromkeys(("CUDAGraph", "XPUGraph", "graph", "graphs", "graph_pool_handle", "graph_annotations"), _GRAPHS),
    **dict.fromkeys(("make_graphed_callables", "export_dot", "export_graph_data"), _GRAPHS),
    **dict.fromkeys(("caching_allocator_alloc", "caching_allocator_delete"), _ALLOCATOR),
    **dict.fromkeys(("caching_allocator_enable", "caching_allocator_disabled"), _ALLOCATOR),
    **dict.fromkeys(("change_current_allocator", "get_allocator_backend", "memory_snapshot"), _ALLOCATOR),
    **dict.fromkeys(("CUDAPluggableAllocator", "XPUPluggableAllocator"), _ALLOCATOR),
    **dict.fromkeys(("get_per_process_memory_fraction", "set_per_process_memory_fraction"), _ALLOCATOR),
    **dict.fromkeys(("MemPool", "use_mem_pool"), _POOLS),
    **dict.fromkeys(("host_memory_stats", "host_memory_stats_as_nested_dict"), _PINNED),
    **dict.fromkeys(("reset_accumulated_host_memory_stats", "reset_peak_host_memory_stats"), _PINNED),
    **dict.fromkeys(("temperature", "power_draw", "clock_rate", "utilization", "memory_usage"), _SENSORS),
    "list_gpu_processes": _SENSORS,
    **dict.fromkeys(("ExternalStream", "get_stream_from_external", "GreenContext"), _EXTERNAL),
    **dict.fromkeys(("cudart", "cudaStatus", "check_error", "CudaError", "DeferredCudaCallError"), _CUDA),
    **dict.fromkeys(("current_blas_handle", "current_solver_handle", "has_magma", "has_half"), _CUDA),
    **dict.fromkeys(("nccl", "nvtx", "tunable", "jiterator", "sparse"), _CUDA),
    **dict.fromkeys(("get_sync_debug_mode", "set_sync_debug_mode"), _CUDA),
    **dict.fromkeys(("get_arch_list", "get_gencode_flags"), _BUILD),
    "amp": "use `torch.amp`, with the name of the device",
    "memory": "its functions are here, and in `torch.accelerator.memory`",
    "random": "its functions are here",
    "streams": "`Stream`, `Event` and `stream` are here",
    "default_generators": "this PyTorch does not give them out; `manual_seed` and `get_rng_state` are here",
    "StreamContext": "use `stream`",
    "profiler": "use `torch.profiler`",
    "ipc_collect": "no memory of a device is shared between processes",
    "memory_cached": "use `memory_reserved`",
    "max_memory_cached": "use `max_memory_reserved`",
    "reset_max_memory_allocated": "use `reset_peak_memory_stats`",
    "reset_max_memory_cached": "use `reset_peak_memory_stats`",
}


def reason(name):
    """Why a device does not have a name of `torch.cuda`, and what to use instead; None for names of no device."""
    if name in _ABSENT:
        return _ABSENT[name]
    is_type = name.endswith(("Tensor", "Storage")) and name[0].isupper()
    return _TYPES if is_type else None
