// What CUDA C++ has and C++ has not, for one thread at a time.

#define __device__
#define __global__
#define __launch_bounds__(threads)
// In a section of their own, so that a block starts with arrays that hold nothing of the last.
#define __shared__ static __attribute__((section("kiln_shared")))
#define __restrict__ __restrict

extern "C" char __start_kiln_shared[] __attribute__((weak, visibility("hidden")));
extern "C" char __stop_kiln_shared[] __attribute__((weak, visibility("hidden")));

struct uint3 { unsigned x, y, z; };
struct float4 { float x, y, z, w; };
struct int4 { int x, y, z, w; };
struct uint4 { unsigned x, y, z, w; };
struct ushort4 { unsigned short x, y, z, w; };

static uint3 threadIdx, blockIdx, gridDim;
static void (*barrier)(void*);
static void* barrier_data;

#define __syncthreads() barrier(barrier_data)

extern "C" void kiln_host_begin(const uint3* grid, const uint3* block, void (*wait)(void*)) {
    gridDim = *grid;
    blockIdx = *block;
    barrier = wait;
    for (char* byte = __start_kiln_shared; byte != __stop_kiln_shared; byte++) *byte = (char)0xff;
}

extern "C" void kiln_host_thread(const uint3* thread, void* data) {
    threadIdx = *thread;
    barrier_data = data;
}

template <typename To, typename From> static inline To same_bits(From x) {
    To y;
    __builtin_memcpy(&y, &x, sizeof y);
    return y;
}

static inline int __float_as_int(float x) { return same_bits<int>(x); }
static inline unsigned __float_as_uint(float x) { return same_bits<unsigned>(x); }
static inline float __int_as_float(int x) { return same_bits<float>(x); }
static inline float __uint_as_float(unsigned x) { return same_bits<float>(x); }

static inline int __float2int_rz(float x) {
    if (x != x) return 0;
    if (x >= 2147483648.0f) return 2147483647;
    if (x <= -2147483648.0f) return -2147483647 - 1;
    return (int)x;
}

static inline unsigned __float2uint_rz(float x) {
    if (x != x || x <= 0.0f) return 0;
    if (x >= 4294967296.0f) return 4294967295u;
    return (unsigned)x;
}

static inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
static inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }

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
