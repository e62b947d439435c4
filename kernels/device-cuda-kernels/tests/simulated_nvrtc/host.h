// This machine's C++ compiler and the simulated driver: the items of a group run one after the other, and in turns between
// barriers.

#define __kernel static
#define __local static
#define INFINITY __builtin_inff()
static void simulated_barrier(int line);
#define barrier(fence) simulated_barrier(__LINE__)

struct Simulated {
    uint sizes[3], block[3], item[3];
};
static Simulated simulated;
#define BLOCK_0 simulated.block[0]
#define BLOCK_1 simulated.block[1]
#define BLOCK_2 simulated.block[2]
#define SIZE_0 simulated.sizes[0]
#define SIZE_1 simulated.sizes[1]
#define SIZE_2 simulated.sizes[2]
#define ITEM_0 simulated.item[0]
#define ITEM_1 simulated.item[1]
#define ITEM_2 simulated.item[2]

struct uint4 {
    uint x, y, z, w;
};

// Mathematics, for both types.
#define ONE(name) \
    static inline float name(float x) { return __builtin_##name##f(x); } \
    static inline double simulated_##name(double x) { return __builtin_##name(x); }
#define TWO(name) \
    static inline float name(float x, float y) { return __builtin_##name##f(x, y); }
extern "C" {
double fabs(double), sqrt(double), exp(double), log(double), log1p(double), sin(double), cos(double), tan(double),
    asin(double), acos(double), atan(double), sinh(double), cosh(double), tanh(double), asinh(double), acosh(double),
    atanh(double), erf(double), erfc(double), floor(double), ceil(double), rint(double), trunc(double),
    fmax(double, double), fmin(double, double), pow(double, double), fmod(double, double), atan2(double, double),
    copysign(double, double);
}
ONE(fabs) ONE(sqrt) ONE(exp) ONE(log) ONE(log1p) ONE(sin) ONE(cos) ONE(tan) ONE(asin) ONE(acos) ONE(atan) ONE(sinh)
ONE(cosh) ONE(tanh) ONE(asinh) ONE(acosh) ONE(atanh) ONE(erf) ONE(erfc) ONE(floor) ONE(ceil) ONE(rint) ONE(trunc)
TWO(fmax) TWO(fmin) TWO(pow) TWO(fmod) TWO(atan2) TWO(copysign)

template <typename T> static inline T min(T x, T y) { return y < x ? y : x; }
template <typename T> static inline T max(T x, T y) { return x < y ? y : x; }
static inline long min(long x, int y) { return min<long>(x, y); }
static inline long min(int x, long y) { return min<long>(x, y); }
static inline long max(long x, int y) { return max<long>(x, y); }
static inline long max(int x, long y) { return max<long>(x, y); }
template <typename T> static inline T clamp(T x, T low, T high) { return min(max(x, low), high); }

// By integers: not each compiler has a type for numbers of 16 bits.
static inline float vload_half(long place, const half *array) {
    const uint bits = array[place].bits, sign = (bits & 0x8000u) << 16, size = (bits & 0x7fffu) << 13;
    const float normal = as_float(size + (size >= 0x0f800000u ? 0x70000000u : 0x38000000u));
    const float small = as_float(size + 0x38800000u) - as_float(0x38800000u);
    return as_float(as_uint(size < 0x00800000u ? small : normal) | sign);
}
static inline void vstore_half_rte(float x, long place, half *array) {
    const uint bits = as_uint(x), size = bits & 0x7fffffffu;
    const uint normal = (size + 0xfffu + ((size >> 13) & 1u) - 0x38000000u) >> 13;
    const uint limited = normal >= 0x7c00u ? 0x7c00u : normal;
    const uint small = as_uint(as_float(size) + 0.5f) - 0x3f000000u;
    const uint number = size < 0x38800000u ? small : limited;
    array[place].bits = (ushort)((size > 0x7f800000u ? 0x7e00u : number) | ((bits >> 16) & 0x8000u));
}

// Toward zero, the nearest there is for what is out of range, and zero for a NaN.
template <typename To, typename From> static inline To saturated(From x, To low, To high) {
    if (x != x) return 0;
    if (x <= (From)low) return low;
    return x >= (From)high ? high : (To)x;
}
template <typename T> static inline int convert_int_sat_rtz(T x) {
    return saturated<int>(x, -2147483647 - 1, 2147483647);
}
template <typename T> static inline long convert_long_sat_rtz(T x) {
    return saturated<long>(x, -9223372036854775807LL - 1, 9223372036854775807LL);
}
template <typename T> static inline uint convert_uint_sat_rtz(T x) { return saturated<uint>(x, 0, 4294967295u); }
template <typename T> static inline uchar convert_uchar_sat_rtz(T x) { return saturated<uchar>(x, 0, 255); }
// The nearest `float`, or the one before it toward zero.
template <typename T> static inline float convert_float_rtz(T x) {
    const float nearest = (float)x;
    const __float128 exact = x, found = nearest;
    if ((exact >= 0 && found <= exact) || (exact < 0 && found >= exact) || x != x) return nearest;
    return as_float(as_uint(nearest) - 1);
}
