// Products of matrices by the lanes of a warp, which hear what the others need.

#define exp2f __builtin_exp2f

// Products of the elements of two words. They and their sums are exact, as far as 64 bits hold them; then they are rounded.
struct Halves {
    typedef double Sum;
    static double product(unsigned a, unsigned b) {
        return (double)half_to_float(a) * half_to_float(b) + (double)half_to_float(a >> 16) * half_to_float(b >> 16);
    }
};
struct UpperHalves {
    typedef double Sum;
    static double product(unsigned a, unsigned b) {
        return (double)bfloat_to_float(a) * bfloat_to_float(b) + (double)bfloat_to_float(a >> 16) * bfloat_to_float(b >> 16);
    }
};
struct Singles {
    typedef double Sum;
    static double product(unsigned a, unsigned b) {
        // What was not rounded is not read.
        return (double)same_bits<float>(a & ~0x1fffu) * same_bits<float>(b & ~0x1fffu);
    }
};
template <typename Byte> struct Bytes {
    typedef unsigned Sum;
    static unsigned product(unsigned a, unsigned b) {
        unsigned sum = 0;
        for (int n = 0; n < 32; n += 8) sum += (unsigned)((int)(Byte)(a >> n) * (int)(Byte)(b >> n));
        return sum;
    }
};

template <typename Words, typename T>
static __attribute__((noinline)) void multiply(T& s0, T& s1, T& s2, T& s3, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
    const unsigned own[6] = {a0, a1, a2, a3, b0, b1};
    unsigned (*lanes)[6] = hear(own);
    unsigned g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    T* sums[4] = {&s0, &s1, &s2, &s3};
    for (unsigned n = 0; n < 4; n++) {
        unsigned column = 2 * t + n % 2;
        typename Words::Sum sum = (typename Words::Sum)*sums[n];
        for (unsigned word = 0; word < 8; word++) {
            unsigned left = lanes[4 * g + word % 4][n / 2 + word / 4 * 2];
            unsigned right = lanes[4 * column + word % 4][4 + word / 4];
            sum += Words::product(left, right);
        }
        *sums[n] = (T)sum;
    }
}

#define multiply_f16 multiply<Halves>
#define multiply_bf16 multiply<UpperHalves>
#define multiply_tf32 multiply<Singles>
#define multiply_i8 multiply<Bytes<signed char>>
#define multiply_u8 multiply<Bytes<unsigned char>>

static inline float rough_power_of_two(float x) {
    const float y = exp2f(x);
    return y < 0x1p-126f ? 0.0f : y;
}

static inline unsigned to_tf32(float x) {
    unsigned bits = same_bits<unsigned>(x);
    return x != x ? 0x7fffe000u : (bits + 0x1000u) & ~0x1fffu;
}

static inline unsigned anew(unsigned x) { return x; }

static inline unsigned halves(float low, float high) { return float_to_half(low) | (unsigned)float_to_half(high) << 16; }
static inline unsigned upper_halves(float low, float high) { return float_to_bfloat(low) | (unsigned)float_to_bfloat(high) << 16; }

template <typename Row> static inline unsigned (*hear_row(Row row))[6] {
    unsigned own[4] = {};
    row.read(own);
    return hear(own);
}

template <typename Row> static __attribute__((noinline)) void load_matrices(unsigned& w0, unsigned& w1, unsigned& w2, unsigned& w3, Row row) {
    unsigned (*lanes)[6] = hear_row(row);
    unsigned g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    unsigned* words[4] = {&w0, &w1, &w2, &w3};
    for (unsigned n = 0; n < 4; n++) *words[n] = lanes[8 * n + g][t];
}

template <typename Row> static __attribute__((noinline)) void load_transposed(unsigned& w0, unsigned& w1, unsigned& w2, unsigned& w3, Row row) {
    unsigned (*lanes)[6] = hear_row(row);
    unsigned g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    unsigned* words[4] = {&w0, &w1, &w2, &w3};
    for (unsigned n = 0; n < 4; n++) {
        unsigned low = lanes[8 * n + 2 * t][g / 2] >> g % 2 * 16, high = lanes[8 * n + 2 * t + 1][g / 2] >> g % 2 * 16;
        *words[n] = (low & 0xffff) | high << 16;
    }
}

// What a device copies later is not there before it is waited for.
template <typename Place> static inline void copy_four(Place to, const void* from, bool within) { to.copy(from, within); }

static inline void copies_done() { tell(COPIES_DONE); }
