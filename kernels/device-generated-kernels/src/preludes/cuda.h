// CUDA C++ as NVRTC compiles it without any header. A function with no word in front is the device's, by the option
// --device-as-default-execution-space.

#define __kernel extern "C" __global__
#define __local __shared__
#define reqd_work_group_size(x, y, z) launch_bounds((x) * (y) * (z))
#define INFINITY __int_as_float(0x7f800000)
#define barrier(fence) __syncthreads()

#define BLOCK_0 blockIdx.x
#define BLOCK_1 blockIdx.y
#define BLOCK_2 blockIdx.z
#define SIZE_0 blockDim.x
#define SIZE_1 blockDim.y
#define SIZE_2 blockDim.z
#define ITEM_0 threadIdx.x
#define ITEM_1 threadIdx.y
#define ITEM_2 threadIdx.z

inline float vload_half(long place, const half *array) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(array[place].bits));
    return x;
}
inline void vstore_half_rte(float x, long place, half *array) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(array[place].bits) : "f"(x));
}

// Toward zero, the nearest there is for what is out of range.
inline int convert_int_sat_rtz(float x) { return __float2int_rz(x); }
inline int convert_int_sat_rtz(double x) { return __double2int_rz(x); }
inline long convert_long_sat_rtz(float x) { return __float2ll_rz(x); }
inline long convert_long_sat_rtz(double x) { return __double2ll_rz(x); }
inline uint convert_uint_sat_rtz(float x) { return __float2uint_rz(x); }
inline uint convert_uint_sat_rtz(double x) { return __double2uint_rz(x); }
inline uchar convert_uchar_sat_rtz(float x) { return (uchar)min(__float2uint_rz(x), 255u); }
inline uchar convert_uchar_sat_rtz(double x) { return (uchar)min(__double2uint_rz(x), 255u); }
inline float convert_float_rtz(double x) { return __double2float_rz(x); }
inline float convert_float_rtz(int x) { return __int2float_rz(x); }
inline float convert_float_rtz(uint x) { return __uint2float_rz(x); }
inline float convert_float_rtz(long x) { return __ll2float_rz(x); }
inline float convert_float_rtz(ulong x) { return __ull2float_rz(x); }

template <typename T> T clamp(T x, T low, T high) { return min(max(x, low), high); }
