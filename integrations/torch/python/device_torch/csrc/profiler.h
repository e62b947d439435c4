// What the shim calls of `profiler.cpp`.

#pragma once

// Registers the device with PyTorch's profilers. Call it once.
void register_profiler();

// Report memory to a profiler that counts it (`profile_memory=True`), after it was allocated and before it is freed.
void report_allocated(void* pointer);
void report_freed(void* pointer);
