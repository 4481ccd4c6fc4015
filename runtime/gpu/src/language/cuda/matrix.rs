//! Products of matrices by tensor cores as CUDA C++.

use super::Cuda;
use crate::language::matrix::{Factors, MatrixStep, WarpOp};
use crate::language::print::{self, Printer};
use crate::language::{Kernel, Op, Statement};

/// What stands before the sources of kernels that multiply matrices, behind the [prelude](super::PRELUDE). Turing has shorter products:
/// two or four of them make one, of the same words.
pub const MATRICES: &str = r#"static __device__ inline unsigned to_tf32(float x) {
    unsigned word;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(x));
    return word;
}

static __device__ inline unsigned halves(float low, float high) {
    return (unsigned)float_to_half(low) | (unsigned)float_to_half(high) << 16;
}

static __device__ inline unsigned upper_halves(float low, float high) {
    unsigned word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

static __device__ inline float rough_power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ inline unsigned anew(unsigned x) {
    asm volatile("" : "+r"(x));
    return x;
}

#define MULTIPLY(name, instruction, T, constraint)                                                                    \
    static __device__ inline void name(T& s0, T& s1, T& s2, T& s3, unsigned a0, unsigned a1, unsigned a2, unsigned a3, \
                                       unsigned b0, unsigned b1) {                                                    \
        asm volatile("mma.sync.aligned." instruction " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "                 \
                     "{%0, %1, %2, %3};"                                                                              \
                     : "+" constraint(s0), "+" constraint(s1), "+" constraint(s2), "+" constraint(s3)                 \
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));                                         \
    }
#if __CUDA_ARCH__ >= 800
MULTIPLY(multiply_f16, "m16n8k16.row.col.f32.f16.f16.f32", float, "f")
MULTIPLY(multiply_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32", float, "f")
MULTIPLY(multiply_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32", float, "f")
MULTIPLY(multiply_i8, "m16n8k32.row.col.s32.s8.s8.s32", int, "r")
MULTIPLY(multiply_u8, "m16n8k32.row.col.s32.u8.u8.s32", int, "r")
#else
static __device__ inline void multiply_f16(float& s0, float& s1, float& s2, float& s3, unsigned a0, unsigned a1, unsigned a2,
                                           unsigned a3, unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%8}, {%0, %1, %2, %3};\n"
                 "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%6, %7}, {%9}, {%0, %1, %2, %3};"
                 : "+f"(s0), "+f"(s1), "+f"(s2), "+f"(s3)
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
#define MULTIPLY_BYTES(name, types)                                                                                  \
    static __device__ inline void name(int& s0, int& s1, int& s2, int& s3, unsigned a0, unsigned a1, unsigned a2,       \
                                       unsigned a3, unsigned b0, unsigned b1) {                                      \
        asm volatile("mma.sync.aligned.m8n8k16.row.col." types " {%0, %1}, {%4}, {%8}, {%0, %1};\n"                    \
                     "mma.sync.aligned.m8n8k16.row.col." types " {%0, %1}, {%6}, {%9}, {%0, %1};\n"                    \
                     "mma.sync.aligned.m8n8k16.row.col." types " {%2, %3}, {%5}, {%8}, {%2, %3};\n"                    \
                     "mma.sync.aligned.m8n8k16.row.col." types " {%2, %3}, {%7}, {%9}, {%2, %3};"                      \
                     : "+r"(s0), "+r"(s1), "+r"(s2), "+r"(s3)                                                        \
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));                                        \
    }
MULTIPLY_BYTES(multiply_i8, "s32.s8.s8.s32")
MULTIPLY_BYTES(multiply_u8, "s32.u8.u8.s32")
#endif

#define LOAD_MATRICES(name, layout)                                                                                  \
    static __device__ inline void name(unsigned& w0, unsigned& w1, unsigned& w2, unsigned& w3, const unsigned* row) { \
        asm volatile("ldmatrix.sync.aligned.m8n8.x4" layout ".shared.b16 {%0, %1, %2, %3}, [%4];"                      \
                     : "=r"(w0), "=r"(w1), "=r"(w2), "=r"(w3)                                                        \
                     : "r"((unsigned)__cvta_generic_to_shared(row))                                                  \
                     : "memory");                                                                                    \
    }
LOAD_MATRICES(load_matrices, "")
LOAD_MATRICES(load_transposed, ".trans")

#if __CUDA_ARCH__ >= 800
static __device__ inline void copy_four(unsigned* to, const void* from, bool within) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(within ? 16 : 0)
                 : "memory");
}

static __device__ inline void copies_done() {
    asm volatile("cp.async.wait_all;" : : : "memory");
}
#else
static __device__ inline void copy_four(unsigned* to, const void* from, bool within) {
    *(uint4*)to = within ? *(const uint4*)from : uint4{0, 0, 0, 0};
}

static __device__ inline void copies_done() {
}
#endif
"#;

/// Whether a kernel needs [`MATRICES`].
pub(super) fn has_matrices(kernel: &Kernel) -> bool {
    fn any(statements: &[Statement]) -> bool {
        statements.iter().any(|statement| match statement {
            Statement::Matrix(_) => true,
            Statement::Let(_, Op::Warp(op)) => match op {
                // The prelude has it.
                WarpOp::Half(_) | WarpOp::Exchange(..) => false,
                WarpOp::Single(_)
                | WarpOp::Halves(..)
                | WarpOp::UpperHalves(..)
                | WarpOp::PowerOfTwo(_)
                | WarpOp::RoughPowerOfTwo(_)
                | WarpOp::Anew(_) => true,
            },
            Statement::If(_, then, otherwise) => any(then) || any(otherwise),
            Statement::For { body, .. } => any(body),
            Statement::Let(..)
            | Statement::Variable(..)
            | Statement::Set(..)
            | Statement::Store { .. }
            | Statement::Raise { .. }
            | Statement::LoadFour { .. }
            | Statement::StoreFour { .. }
            | Statement::StoreShared { .. }
            | Statement::Barrier
            | Statement::Fence => false,
        })
    }
    any(&kernel.body)
}

/// A number, as it is computed.
pub(super) fn number(printer: &Printer<'_, Cuda>, op: WarpOp) -> String {
    let of = |id| printer.use_of(id);
    match op {
        WarpOp::Single(x) => format!("to_tf32({})", of(x)),
        WarpOp::Halves(low, high) => format!("halves({}, {})", of(low), of(high)),
        WarpOp::UpperHalves(low, high) => format!("upper_halves({}, {})", of(low), of(high)),
        WarpOp::Half(x) => format!("half_to_float((unsigned short){})", of(x)),
        WarpOp::PowerOfTwo(x) => format!("exp2f({})", of(x)),
        WarpOp::RoughPowerOfTwo(x) => format!("rough_power_of_two({})", of(x)),
        WarpOp::Anew(x) => format!("anew({})", of(x)),
        WarpOp::Exchange(x, lanes) => format!("exchange({}, {lanes}u)", of(x)),
    }
}

/// A step, as a statement.
pub(super) fn step(printer: &Printer<'_, Cuda>, step: &MatrixStep) -> String {
    let of = |id| printer.use_of(id);
    let list = |ids: &[_]| ids.iter().map(|&id| of(id)).collect::<Vec<_>>().join(", ");
    match step {
        MatrixStep::Multiply { factors, left, right, sums } => {
            let name = match factors {
                Factors::F16 => "f16",
                Factors::BF16 => "bf16",
                Factors::TF32 => "tf32",
                Factors::I8 => "i8",
                Factors::U8 => "u8",
            };
            let sums = sums.map(print::name).join(", ");
            format!("multiply_{name}({sums}, {}, {});", list(left), list(right))
        }
        MatrixStep::Load { words, array, index, transposed } => {
            let name = if *transposed { "load_transposed" } else { "load_matrices" };
            let words = words.map(print::name).join(", ");
            format!("unsigned {words}; {name}({words}, &shared_{array}[{}]);", of(*index))
        }
        MatrixStep::StoreFour { array, index, words } => {
            format!("*(uint4*)&shared_{array}[{}] = uint4{{{}}};", of(*index), list(words))
        }
        MatrixStep::CopyFour { array, index, buffer, four, within } => {
            let from = super::within(*buffer, &of(*four));
            format!("copy_four(&shared_{array}[{}], &buffer_{buffer}[{from}], {});", of(*index), of(*within))
        }
        MatrixStep::CopiesDone => String::from("copies_done();"),
    }
}
