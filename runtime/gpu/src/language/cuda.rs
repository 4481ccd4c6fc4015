//! Kernels as CUDA C++ (NVIDIA, "CUDA C++ Programming Guide").
//!
//! What a kernel computes is defined for every input: signed integers wrap, floats become integers by truncation and saturate, a
//! read beyond a buffer yields its last element and a write there does nothing. No header is needed.
//!
//! Of 64-bit floats all functions are CUDA's: they are exact to 3 ulp, unlike some of the 32-bit ones.

pub mod batch;
mod matrix;

pub use matrix::MATRICES;

use super::print::{self, Dialect, Printer, Written};
use super::{Atomic, Binary, Builtin, Id, Kernel, MatrixStep, Op, Storage, Type, Unary};
use std::fmt::Write;

/// What stands before the sources of kernels: functions that they call, and vectors that CUDA has not or will not have for long.
/// Half-precision numbers are their bits.
pub const PRELUDE: &str = r#"static __device__ inline float half_to_float(unsigned short bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

static __device__ inline unsigned short float_to_half(float x) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

static __device__ inline float bfloat_to_float(unsigned short bits) {
    return __uint_as_float((unsigned)bits << 16);
}

static __device__ inline unsigned short float_to_bfloat(float x) {
#if __CUDA_ARCH__ >= 800
    unsigned short rounded;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(x));
    return rounded;
#else
    unsigned bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (unsigned short)(bits >> 16 | 0x40u);
    return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
#endif
}

template <typename T> struct __align__(16) Four { T x, y, z, w; };

template <typename T> static __device__ inline T exchange(T x, unsigned lanes) { return __shfl_xor_sync(0xffffffffu, x, lanes); }
"#;

/// The name of a kernel's function.
pub fn entry_point(kernel: &Kernel) -> String {
    format!("kiln_{}", kernel.name)
}

/// The source of a kernel, behind a [`PRELUDE`]. Its arguments are pointers to the buffers, in order; the [last elements](last_element)
/// of the buffers, in order; the parameters, in order. Blocks are workgroups.
pub fn source(kernel: &Kernel) -> String {
    let mut printer = Printer::<Cuda>::new(kernel);
    if matrix::has_matrices(kernel) {
        printer.out.push_str(MATRICES);
    }
    shared_arrays(kernel, &mut printer.out);
    let _ = writeln!(
        printer.out,
        "extern \"C\" __global__ void {} {}(\n    {}\n) {{",
        launch_bounds(kernel),
        entry_point(kernel),
        arguments(kernel).join(",\n    ")
    );
    printer.block(&kernel.body);
    printer.out.push_str("}\n");
    printer.out
}

/// What the compiler is told of a kernel's blocks.
fn launch_bounds(kernel: &Kernel) -> String {
    let [x, y] = kernel.workgroup;
    let resident = kernel.resident.map(|blocks| format!(", {blocks}")).unwrap_or_default();
    format!("__launch_bounds__({}{resident})", x * y)
}

fn shared_arrays(kernel: &Kernel, out: &mut String) {
    // Four neighbours are read and written at a time where they are found to be such.
    for (n, (storage, length)) in kernel.shared.iter().enumerate() {
        let _ = writeln!(out, "__shared__ __align__(16) {} shared_{n}[{length}];", scalar(storage.value()));
    }
}

/// The types of pointers to the buffers.
fn pointers(kernel: &Kernel) -> impl Iterator<Item = String> {
    kernel.bindings.iter().map(|binding| {
        let constant = if binding.writable { "" } else { "const " };
        format!("{constant}{}*", element(binding.storage, binding.fours))
    })
}

/// The names of what follows them.
fn scalar_arguments(kernel: &Kernel) -> impl Iterator<Item = String> {
    let lasts = (0..kernel.bindings.len()).map(|n| format!("last_{n}"));
    lasts.chain((0..kernel.parameters).map(|n| format!("parameter_{n}")))
}

/// The arguments' declarations.
fn arguments(kernel: &Kernel) -> Vec<String> {
    // What a block writes and another reads of it is changed behind a thread's back.
    let shares = kernel.bindings.iter().any(|binding| binding.atomic == Some(Atomic::Counters));
    let buffers = kernel.bindings.iter().zip(pointers(kernel)).enumerate().map(|(n, (binding, ty))| {
        let alone = if shares && binding.writable { "" } else { "__restrict__ " };
        format!("{ty} {alone}buffer_{n}")
    });
    buffers.chain(scalar_arguments(kernel).map(|name| format!("unsigned {name}"))).collect()
}

/// The position of the last element, or the last four, that a kernel sees of so many bytes.
pub fn last_element(binding: &super::Binding, bytes: usize) -> u32 {
    let size = binding.storage.bytes();
    let elements = bytes.div_ceil(if binding.fours { 4 * size } else { size });
    u32::try_from(elements.saturating_sub(1)).unwrap_or(u32::MAX)
}

fn scalar(ty: Type) -> &'static str {
    match ty {
        Type::F64 => "double",
        Type::F32 => "float",
        Type::I64 => "long long",
        Type::I32 => "int",
        Type::U64 => "unsigned long long",
        Type::U32 => "unsigned",
        Type::Bool => "bool",
    }
}

/// The unsigned integers of as many bits: their overflow is what is meant, while that of signed ones is undefined.
fn unsigned(ty: Type) -> &'static str {
    match ty {
        Type::F64 | Type::I64 | Type::U64 => "unsigned long long",
        Type::F32 | Type::I32 | Type::U32 | Type::Bool => "unsigned",
    }
}

fn element(storage: Storage, fours: bool) -> &'static str {
    match (storage, fours) {
        (Storage::F64, false) => "double",
        (Storage::F64, true) => "Four<double>",
        (Storage::F32, false) => "float",
        (Storage::F32, true) => "float4",
        (Storage::F16 | Storage::BF16 | Storage::U16, false) => "unsigned short",
        (Storage::F16 | Storage::BF16 | Storage::U16, true) => "ushort4",
        (Storage::I64, false) => "long long",
        (Storage::I64, true) => "Four<long long>",
        (Storage::I32, false) => "int",
        (Storage::I32, true) => "int4",
        (Storage::I16, false) => "short",
        (Storage::I16, true) => "short4",
        (Storage::I8, false) => "signed char",
        (Storage::I8, true) => "char4",
        (Storage::U64, false) => "unsigned long long",
        (Storage::U64, true) => "Four<unsigned long long>",
        (Storage::U32 | Storage::Bool, false) => "unsigned",
        (Storage::U32 | Storage::Bool, true) => "uint4",
        (Storage::U8, false) => "unsigned char",
        (Storage::U8, true) => "uchar4",
    }
}

struct Cuda;

impl Dialect for Cuda {
    const BARRIER: &'static str = "__syncthreads();";

    fn number(printer: &Printer<'_, Self>, id: Id, op: &Op) -> Written {
        let (of, ty) = (|id| printer.use_of(id), printer.ty(id));
        Written::Named(match *op {
            Op::F64(bits) => return Written::Inline(double(bits)),
            Op::F32(bits) => return Written::Inline(float(bits)),
            Op::I64(i64::MIN) => return Written::Inline("(-9223372036854775807ll - 1)".to_owned()),
            Op::I64(x) if x < 0 => return Written::Inline(format!("({x}ll)")),
            Op::I64(x) => return Written::Inline(format!("{x}ll")),
            Op::I32(i32::MIN) => return Written::Inline("(-2147483647 - 1)".to_owned()),
            Op::I32(x) if x < 0 => return Written::Inline(format!("({x})")),
            Op::I32(x) => return Written::Inline(x.to_string()),
            Op::U64(x) => return Written::Inline(format!("{x}ull")),
            Op::U32(x) => return Written::Inline(format!("{x}u")),
            Op::Bool(x) => return Written::Inline(x.to_string()),
            Op::Parameter(word) => return Written::Inline(format!("parameter_{word}")),
            Op::Builtin(builtin) => return Written::Inline(place(printer.kernel, builtin)),
            Op::OfFour(four, place) => {
                let element = format!("{}.{}", print::name(four), print::component(place));
                // The four are named by the type of their elements, and that by the buffer.
                return Written::Inline(match printer.ty(four) {
                    Type::Bool => format!("({element} != 0u)"),
                    Type::F64 | Type::F32 | Type::I64 | Type::I32 | Type::U64 | Type::U32 => element,
                });
            }
            Op::Unary(op, x) => unary(op, ty, &of(x)),
            Op::Binary(op, a, b) => binary(op, ty, &of(a), &of(b)),
            Op::Compare(op, a, b) => format!("{} {} {}", of(a), print::comparison(op), of(b)),
            Op::Fma(a, b, c) if ty == Type::F32 => format!("fmaf({}, {}, {})", of(a), of(b), of(c)),
            Op::Fma(a, b, c) if ty == Type::F64 => format!("fma({}, {}, {})", of(a), of(b), of(c)),
            Op::Fma(a, b, c) => {
                let (ty, whole) = (scalar(ty), unsigned(ty));
                format!("({ty})(({whole}){} * ({whole}){} + ({whole}){})", of(a), of(b), of(c))
            }
            Op::Select { condition, then, otherwise } => {
                format!("{} ? {} : {}", of(condition), of(then), of(otherwise))
            }
            Op::Convert(x) => converted(printer.ty(x), ty, &of(x)),
            Op::Bits(x) => bits(printer.ty(x), ty, &of(x)),
            Op::Load(buffer, index) => {
                let element = format!("buffer_{buffer}[{}]", within(buffer, &of(index)));
                match printer.kernel.bindings[buffer as usize].storage {
                    Storage::F16 => format!("half_to_float({element})"),
                    Storage::BF16 => format!("bfloat_to_float({element})"),
                    Storage::Bool => format!("{element} != 0u"),
                    Storage::F64
                    | Storage::F32
                    | Storage::I64
                    | Storage::I32
                    | Storage::I16
                    | Storage::I8
                    | Storage::U64
                    | Storage::U32
                    | Storage::U16
                    | Storage::U8 => element,
                }
            }
            Op::LoadShared(array, index) => format!("shared_{array}[{}]", of(index)),
            Op::Get(variable) => print::name(variable),
            Op::Warp(op) => matrix::number(printer, op),
            Op::JoinSubgroup(..) | Op::OfQuad(..) => no_subgroups(),
            Op::Count { buffer, index, largest } => {
                format!("atomicInc(&buffer_{buffer}[{}], {})", within(buffer, &of(index)), of(largest))
            }
        })
    }

    fn constant(ty: Type, name: &str) -> String {
        format!("const {} {name}", scalar(ty))
    }

    fn variable(ty: Type, name: &str) -> String {
        format!("{} {name}", scalar(ty))
    }

    fn load_four(printer: &Printer<'_, Self>, name: &str, buffer: u32, index: &str) -> String {
        let element = format!("buffer_{buffer}[{}]", within(buffer, index));
        let parts = ["x", "y", "z", "w"];
        let halves = |function: &str| {
            let floats = parts.map(|part| format!("{function}({name}_halves.{part})")).join(", ");
            format!("const ushort4 {name}_halves = {element}; const float4 {name} = {{{floats}}};")
        };
        let widened = |storage: Storage, four: &str| {
            let narrow = self::element(storage, true);
            let numbers = parts.map(|part| format!("{name}_narrow.{part}")).join(", ");
            format!("const {narrow} {name}_narrow = {element}; const {four} {name} = {{{numbers}}};")
        };
        match printer.kernel.bindings[buffer as usize].storage {
            Storage::F16 => halves("half_to_float"),
            Storage::BF16 => halves("bfloat_to_float"),
            storage @ (Storage::I16 | Storage::I8) => widened(storage, "int4"),
            storage @ (Storage::U16 | Storage::U8) => widened(storage, "uint4"),
            storage @ (Storage::F64
            | Storage::F32
            | Storage::I64
            | Storage::I32
            | Storage::U64
            | Storage::U32
            | Storage::Bool) => format!("const {} {name} = {element};", self::element(storage, true)),
        }
    }

    fn store(printer: &Printer<'_, Self>, buffer: u32, index: &str, value: &str) -> String {
        let value = stored(printer.kernel.bindings[buffer as usize].storage, value);
        format!("if ({index} <= last_{buffer}) buffer_{buffer}[{index}] = {value};")
    }

    fn fence() -> String {
        "__threadfence();".to_owned()
    }

    fn raise(buffer: u32, index: &str, value: &str) -> String {
        format!("if ({index} <= last_{buffer}) atomicMax(&buffer_{buffer}[{index}], {value});")
    }

    fn store_four(printer: &Printer<'_, Self>, buffer: u32, index: &str, values: [String; 4]) -> String {
        let storage = printer.kernel.bindings[buffer as usize].storage;
        let values = values.map(|value| stored(storage, &value)).join(", ");
        let four = element(storage, true);
        format!("if ({index} <= last_{buffer}) buffer_{buffer}[{index}] = {four}{{{values}}};")
    }

    fn matrix(printer: &Printer<'_, Self>, step: &MatrixStep) -> String {
        matrix::step(printer, step)
    }

    fn branch(condition: &str) -> String {
        format!("if ({condition})")
    }

    fn count(counter: &str, start: &str, end: &str, step: &str) -> String {
        format!("for (unsigned {counter} = {start}; {counter} < {end}; {counter} += {step})")
    }
}

/// A position that lies in a buffer.
fn within(buffer: u32, index: &str) -> String {
    format!("min({index}, last_{buffer})")
}

/// A number, as it is written into a buffer.
fn stored(storage: Storage, value: &str) -> String {
    match storage {
        Storage::F16 => format!("float_to_half({value})"),
        Storage::BF16 => format!("float_to_bfloat({value})"),
        Storage::Bool => format!("(unsigned)({value})"),
        Storage::I16 | Storage::I8 | Storage::U16 | Storage::U8 => {
            format!("({})({value})", element(storage, false))
        }
        Storage::F64 | Storage::F32 | Storage::I64 | Storage::I32 | Storage::U64 | Storage::U32 => {
            value.to_owned()
        }
    }
}

/// A number in another type.
fn converted(from: Type, to: Type, x: &str) -> String {
    let function = match (from, to) {
        (_, Type::Bool) => return format!("{x} != 0"),
        (Type::F32, Type::I32) => "__float2int_rz",
        (Type::F32, Type::U32) => "__float2uint_rz",
        (Type::F32, Type::I64) => "__float2ll_rz",
        (Type::F32, Type::U64) => "__float2ull_rz",
        (Type::F64, Type::I32) => "__double2int_rz",
        (Type::F64, Type::U32) => "__double2uint_rz",
        (Type::F64, Type::I64) => "__double2ll_rz",
        (Type::F64, Type::U64) => "__double2ull_rz",
        (Type::F64 | Type::F32, Type::F64 | Type::F32)
        | (
            Type::I64 | Type::I32 | Type::U64 | Type::U32 | Type::Bool,
            Type::F64 | Type::F32 | Type::I64 | Type::I32 | Type::U64 | Type::U32,
        ) => return format!("({}){x}", scalar(to)),
    };
    format!("{function}({x})")
}

/// The bits of a number in another type.
fn bits(from: Type, to: Type, x: &str) -> String {
    let function = match (from, to) {
        (Type::F32, Type::I32) => "__float_as_int",
        (Type::F32, Type::U32) => "__float_as_uint",
        (Type::I32, Type::F32) => "__int_as_float",
        (Type::U32, Type::F32) => "__uint_as_float",
        (Type::F64, Type::I64 | Type::U64) => {
            return format!("({})__double_as_longlong({x})", scalar(to));
        }
        (Type::I64 | Type::U64, Type::F64) => return format!("__longlong_as_double((long long){x})"),
        (Type::I64 | Type::U64, Type::I64 | Type::U64)
        | (Type::I32 | Type::U32 | Type::Bool, Type::I32 | Type::U32 | Type::Bool) => {
            return format!("({}){x}", scalar(to));
        }
        (Type::F64, Type::F64) | (Type::F32, Type::F32) => return x.to_owned(),
        (Type::F64 | Type::I64 | Type::U64, Type::F32 | Type::I32 | Type::U32 | Type::Bool)
        | (Type::F32 | Type::I32 | Type::U32 | Type::Bool, Type::F64 | Type::I64 | Type::U64)
        | (Type::F32, Type::Bool)
        | (Type::Bool, Type::F32) => unreachable!("{from:?} and {to:?} have not as many bits"),
    };
    format!("{function}({x})")
}

fn binary(op: Binary, ty: Type, a: &str, b: &str) -> String {
    let (name, whole) = (scalar(ty), unsigned(ty));
    let wraps = |a: &str, b: &str| format!("({name})({})", print::binary(op, a, b));
    match (op, ty) {
        (Binary::Min, Type::F32) => format!("fminf({a}, {b})"),
        (Binary::Max, Type::F32) => format!("fmaxf({a}, {b})"),
        (Binary::Rem, Type::F32) => format!("fmodf({a}, {b})"),
        (Binary::Min, Type::F64) => format!("fmin({a}, {b})"),
        (Binary::Max, Type::F64) => format!("fmax({a}, {b})"),
        (Binary::Rem, Type::F64) => format!("fmod({a}, {b})"),
        (Binary::Xor, Type::Bool) => format!("{a} != {b}"),
        (Binary::Add | Binary::Sub | Binary::Mul, Type::I64 | Type::I32) => {
            wraps(&format!("({whole}){a}"), &format!("({whole}){b}"))
        }
        (Binary::ShiftLeft, Type::I64 | Type::I32) => wraps(&format!("({whole}){a}"), b),
        // The least integer over -1.
        (Binary::Div, Type::I64 | Type::I32) => {
            format!("{b} == -1 ? ({name})(({whole})0 - ({whole}){a}) : {a} / {b}")
        }
        (Binary::Rem, Type::I64 | Type::I32) => format!("{b} == -1 ? 0 : {a} % {b}"),
        (
            Binary::Add
            | Binary::Sub
            | Binary::Mul
            | Binary::Div
            | Binary::Rem
            | Binary::And
            | Binary::Or
            | Binary::Xor
            | Binary::ShiftLeft
            | Binary::ShiftRight
            | Binary::Min
            | Binary::Max
            | Binary::Pow
            | Binary::Atan2,
            Type::F64 | Type::F32 | Type::I64 | Type::I32 | Type::U64 | Type::U32 | Type::Bool,
        ) => print::binary(op, a, b),
    }
}

fn unary(op: Unary, ty: Type, x: &str) -> String {
    let (name, whole) = (scalar(ty), unsigned(ty));
    let is_double = ty == Type::F64;
    let function = match (op, ty) {
        (Unary::Neg, Type::I64 | Type::I32) => return format!("({name})(({whole})0 - ({whole}){x})"),
        (Unary::Neg, _) => return format!("-{x}"),
        (Unary::Not, Type::Bool) => return format!("!{x}"),
        (Unary::Not, _) => return format!("~{x}"),
        (Unary::Abs, Type::I64 | Type::I32) => {
            return format!("{x} < 0 ? ({name})(({whole})0 - ({whole}){x}) : {x}");
        }
        (Unary::Abs, _) => "fabs",
        (Unary::Sqrt, _) => "sqrt",
        (Unary::Sin, _) => "sin",
        (Unary::Cos, _) => "cos",
        (Unary::Floor, _) => "floor",
        (Unary::Ceil, _) => "ceil",
        (Unary::Round, _) => "rint",
        (Unary::Trunc, _) => "trunc",
        (Unary::Exp, _) => "exp",
        (Unary::ShortExp, _) => return format!("__expf({x})"),
        (Unary::ExpM1, _) => "expm1",
        (Unary::Log, _) => "log",
        (Unary::Log1p, _) => "log1p",
        (Unary::Tan, _) => "tan",
        (Unary::Asin, _) => "asin",
        (Unary::Acos, _) => "acos",
        (Unary::Atan, _) => "atan",
        (Unary::Sinh, _) => "sinh",
        (Unary::Cosh, _) => "cosh",
        (Unary::Tanh, _) => "tanh",
        (Unary::Asinh, _) => "asinh",
        (Unary::Acosh, _) => "acosh",
        (Unary::Atanh, _) => "atanh",
        (Unary::Erf, _) => "erf",
        (Unary::ToF16, _) => return format!("half_to_float(float_to_half({x}))"),
        (Unary::ToBF16, _) => return format!("bfloat_to_float(float_to_bfloat({x}))"),
    };
    format!("{function}{}({x})", if is_double { "" } else { "f" })
}

/// Stops at what only kernels with subgroups of any size have.
fn no_subgroups() -> ! {
    unreachable!("CUDA's subgroups are warps: their lanes exchange numbers")
}

fn place(kernel: &Kernel, builtin: Builtin) -> String {
    let place = match builtin {
        Builtin::LocalIndex if kernel.workgroup[1] == 1 => "threadIdx.x",
        Builtin::LocalIndex => return format!("(threadIdx.y * {}u + threadIdx.x)", kernel.workgroup[0]),
        Builtin::LocalX => "threadIdx.x",
        Builtin::LocalY => "threadIdx.y",
        Builtin::GroupX => "blockIdx.x",
        Builtin::GroupY => "blockIdx.y",
        Builtin::GroupZ => "blockIdx.z",
        Builtin::GroupsX => "gridDim.x",
        Builtin::Subgroup | Builtin::Subgroups | Builtin::SubgroupLane => no_subgroups(),
    };
    place.to_owned()
}

/// A float by its bits.
fn float(bits: u32) -> String {
    let x = f32::from_bits(bits);
    match x.is_finite() {
        true if x.is_sign_negative() => format!("({x:?}f)"),
        true => format!("{x:?}f"),
        false => format!("__uint_as_float(0x{bits:08x}u)"),
    }
}

/// A 64-bit float by its bits.
fn double(bits: u64) -> String {
    let x = f64::from_bits(bits);
    match x.is_finite() {
        true if x.is_sign_negative() => format!("({x:?})"),
        true => format!("{x:?}"),
        false => format!("__longlong_as_double((long long)0x{bits:016x}ull)"),
    }
}
