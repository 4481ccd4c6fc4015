// What CUDA C++ has and C++ has not, for one thread at a time.

#define __device__
#define __global__
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
// In a section of their own, so that a block starts with arrays that hold nothing of the last.
#define __shared__ static __attribute__((section("kiln_shared")))
#define __restrict__ __restrict

extern "C" char __start_kiln_shared[] __attribute__((weak, visibility("hidden")));
extern "C" char __stop_kiln_shared[] __attribute__((weak, visibility("hidden")));

struct uint3 { unsigned x, y, z; };
struct float4 { float x, y, z, w; };
struct int4 { int x, y, z, w; };
struct uint4 { unsigned x, y, z, w; };
struct short4 { short x, y, z, w; };
struct ushort4 { unsigned short x, y, z, w; };
struct char4 { signed char x, y, z, w; };
struct uchar4 { unsigned char x, y, z, w; };
template <typename T> struct __attribute__((aligned(16))) Four { T x, y, z, w; };

static uint3 threadIdx, blockIdx, gridDim;
static void (*barrier)(void*);
static void* barrier_data;

template <typename To, typename From> static inline To same_bits(From x) {
    To y;
    __builtin_memcpy(&y, &x, sizeof y);
    return y;
}

static inline int __float_as_int(float x) { return same_bits<int>(x); }
static inline unsigned __float_as_uint(float x) { return same_bits<unsigned>(x); }
static inline float __int_as_float(int x) { return same_bits<float>(x); }
static inline float __expf(float x) { return __builtin_expf(x); }
static inline float __uint_as_float(unsigned x) { return same_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return same_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return same_bits<double>(x); }

// Towards zero, from the least to the greatest integer.
template <typename To, typename From> static inline To towards_zero(From x, From beyond, To least) {
    if (x != x) return 0;
    if (x >= beyond) return ~least;
    if (x <= -beyond || (least == 0 && x <= 0)) return least;
    return (To)x;
}

#define CONVERSIONS(name, From)                                                                     \
    static inline int name##2int_rz(From x) { return towards_zero<int, From>(x, 0x1p31, 1 << 31); }               \
    static inline unsigned name##2uint_rz(From x) { return towards_zero<unsigned, From>(x, 0x1p32, 0); }           \
    static inline long long name##2ll_rz(From x) { return towards_zero<long long, From>(x, 0x1p63, 1ll << 63); }   \
    static inline unsigned long long name##2ull_rz(From x) { return towards_zero<unsigned long long, From>(x, 0x1p64, 0); }
CONVERSIONS(__float, float)
CONVERSIONS(__double, double)

#define ORDER(T)                                               \
    static inline T min(T a, T b) { return a < b ? a : b; }     \
    static inline T max(T a, T b) { return a > b ? a : b; }
ORDER(unsigned)
ORDER(int)
ORDER(unsigned long long)
ORDER(long long)

// Threads take turns at barriers alone.
static inline unsigned atomicMax(unsigned* place, unsigned x) {
    unsigned before = *place;
    if (x > before) *place = x;
    return before;
}

#define fmaf __builtin_fmaf
#define fminf __builtin_fminf
#define fmaxf __builtin_fmaxf
#define fmodf __builtin_fmodf
#define fabsf __builtin_fabsf
#define sqrtf __builtin_sqrtf
#define sinf __builtin_sinf
#define cosf __builtin_cosf
#define floorf __builtin_floorf
#define ceilf __builtin_ceilf
#define rintf __builtin_rintf
#define truncf __builtin_truncf

#define fma __builtin_fma
#define fmin __builtin_fmin
#define fmax __builtin_fmax
#define fmod __builtin_fmod
#define fabs __builtin_fabs
#define sqrt __builtin_sqrt
#define sin __builtin_sin
#define cos __builtin_cos
#define tan __builtin_tan
#define asin __builtin_asin
#define acos __builtin_acos
#define atan __builtin_atan
#define atan2 __builtin_atan2
#define sinh __builtin_sinh
#define cosh __builtin_cosh
#define tanh __builtin_tanh
#define asinh __builtin_asinh
#define acosh __builtin_acosh
#define atanh __builtin_atanh
#define exp __builtin_exp
#define expm1 __builtin_expm1
#define log __builtin_log
#define log1p __builtin_log1p
#define erf __builtin_erf
#define pow __builtin_pow
#define floor __builtin_floor
#define ceil __builtin_ceil
#define rint __builtin_rint
#define trunc __builtin_trunc

static inline float bfloat_to_float(unsigned short bits) { return same_bits<float>((unsigned)bits << 16); }

static inline unsigned short float_to_bfloat(float x) {
    unsigned bits = same_bits<unsigned>(x), kept = bits >> 16, rest = bits & 0xffff;
    if (x != x) return kept | 0x40;
    // More than half of the last place rounds up, half of it where that is odd.
    return kept + (rest > 0x8000 || (rest == 0x8000 && kept & 1));
}

static inline float half_to_float(unsigned short bits) {
    unsigned sign = (unsigned)(bits & 0x8000) << 16, magnitude = bits & 0x7fff;
    if (magnitude >= 0x7c00) return same_bits<float>(sign | 0x7f800000u | (magnitude & 0x3ff) << 13);
    // Half's exponent is 112 less; a product brings subnormal numbers along.
    float x = same_bits<float>(magnitude << 13) * 0x1p112f;
    return same_bits<float>(same_bits<unsigned>(x) | sign);
}

static inline unsigned short float_to_half(float x) {
    unsigned bits = same_bits<unsigned>(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return sign | 0x7fff;
    // Half of the last place above the largest is rounded to infinity.
    if (magnitude >= 0x477ff000) return sign | 0x7c00;
    if (magnitude < 0x38800000) {
        // A sum with a number whose last place is the least half rounds to a multiple of it, to even.
        return sign | (same_bits<unsigned>(same_bits<float>(magnitude) + 0.5f) - 0x3f000000);
    }
    return sign | ((magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13) - 0x1c000;
}

