//! Kernels as CUDA C++ (NVIDIA, "CUDA C++ Programming Guide").
//!
//! What a kernel computes is defined for every input: signed integers wrap, floats become integers by truncation and saturate, a
//! read beyond a buffer yields its last element and a write there does nothing. No header is needed.

use super::print::{self, Dialect, Printer, Written};
use super::{Binary, Builtin, Id, Kernel, Op, Storage, Type, Unary};
use std::fmt::Write;

/// What stands before the sources of kernels: functions that they call. Half-precision numbers are their bits.
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
"#;

/// The name of a kernel's function.
pub fn entry_point(kernel: &Kernel) -> String {
    format!("kiln_{}", kernel.name)
}

/// The source of a kernel, behind a [`PRELUDE`]. Its arguments are pointers to the buffers, in order; the [last elements](last_element)
/// of the buffers, in order; the parameters, in order. Blocks are workgroups.
pub fn source(kernel: &Kernel) -> String {
    let mut printer = Printer::<Cuda>::new(kernel);
    for (n, (ty, length)) in kernel.shared.iter().enumerate() {
        let _ = writeln!(printer.out, "__shared__ {} shared_{n}[{length}];", scalar(*ty));
    }
    let buffer = |(n, binding): (usize, &super::Binding)| {
        let constant = if binding.writable { "" } else { "const " };
        format!("{constant}{}* __restrict__ buffer_{n}", element(binding.storage, binding.fours))
    };
    let buffers = kernel.bindings.iter().enumerate().map(buffer);
    let lasts = (0..kernel.bindings.len()).map(|n| format!("unsigned last_{n}"));
    let parameters = (0..kernel.parameters).map(|n| format!("unsigned parameter_{n}"));
    let arguments: Vec<String> = buffers.chain(lasts).chain(parameters).collect();
    let [x, y] = kernel.workgroup;
    let _ = writeln!(
        printer.out,
        "extern \"C\" __global__ void __launch_bounds__({}) {}(\n    {}\n) {{",
        x * y,
        entry_point(kernel),
        arguments.join(",\n    ")
    );
    printer.block(&kernel.body);
    printer.out.push_str("}\n");
    printer.out
}

/// The position of the last element, or the last four, that a kernel sees of so many bytes.
pub fn last_element(binding: &super::Binding, bytes: usize) -> u32 {
    let size = match binding.storage {
        Storage::F16 => 2,
        Storage::F32 | Storage::I32 | Storage::U32 | Storage::Bool => 4,
    };
    let elements = bytes.div_ceil(if binding.fours { 4 * size } else { size });
    u32::try_from(elements.saturating_sub(1)).unwrap_or(u32::MAX)
}

fn scalar(ty: Type) -> &'static str {
    match ty {
        Type::F32 => "float",
        Type::I32 => "int",
        Type::U32 => "unsigned",
        Type::Bool => "bool",
    }
}

fn element(storage: Storage, fours: bool) -> &'static str {
    match (storage, fours) {
        (Storage::F32, false) => "float",
        (Storage::F32, true) => "float4",
        (Storage::F16, false) => "unsigned short",
        (Storage::F16, true) => "ushort4",
        (Storage::I32, false) => "int",
        (Storage::I32, true) => "int4",
        (Storage::U32 | Storage::Bool, false) => "unsigned",
        (Storage::U32 | Storage::Bool, true) => "uint4",
    }
}

struct Cuda;

impl Dialect for Cuda {
    const BARRIER: &'static str = "__syncthreads();";

    fn number(printer: &Printer<'_, Self>, id: Id, op: &Op) -> Written {
        let (of, ty) = (|id| printer.use_of(id), printer.ty(id));
        Written::Named(match *op {
            Op::F32(bits) => return Written::Inline(float(bits)),
            Op::I32(i32::MIN) => return Written::Inline("(-2147483647 - 1)".to_owned()),
            Op::I32(x) if x < 0 => return Written::Inline(format!("({x})")),
            Op::I32(x) => return Written::Inline(x.to_string()),
            Op::U32(x) => return Written::Inline(format!("{x}u")),
            Op::Bool(x) => return Written::Inline(x.to_string()),
            Op::Parameter(word) => return Written::Inline(format!("parameter_{word}")),
            Op::Builtin(builtin) => return Written::Inline(place(printer.kernel, builtin)),
            Op::OfFour(four, place) => {
                let element = format!("{}.{}", print::name(four), print::component(place));
                // The four are named by the type of their elements, and that by the buffer.
                return Written::Inline(match printer.ty(four) {
                    Type::Bool => format!("({element} != 0u)"),
                    Type::F32 | Type::I32 | Type::U32 => element,
                });
            }
            Op::Unary(op, x) => unary(op, ty, &of(x)),
            Op::Binary(op, a, b) => binary(op, ty, &of(a), &of(b)),
            Op::Compare(op, a, b) => format!("{} {} {}", of(a), print::comparison(op), of(b)),
            Op::Fma(a, b, c) if ty == Type::F32 => format!("fmaf({}, {}, {})", of(a), of(b), of(c)),
            Op::Fma(a, b, c) => {
                format!("({})((unsigned){} * (unsigned){} + (unsigned){})", scalar(ty), of(a), of(b), of(c))
            }
            Op::Select { condition, then, otherwise } => {
                format!("{} ? {} : {}", of(condition), of(then), of(otherwise))
            }
            Op::Convert(x) => match (printer.ty(x), ty) {
                (Type::F32, Type::I32) => format!("__float2int_rz({})", of(x)),
                (Type::F32, Type::U32) => format!("__float2uint_rz({})", of(x)),
                (_, Type::Bool) => format!("{} != 0", of(x)),
                (Type::F32 | Type::I32 | Type::U32 | Type::Bool, Type::F32 | Type::I32 | Type::U32) => {
                    format!("({}){}", scalar(ty), of(x))
                }
            },
            Op::Bits(x) => match (printer.ty(x), ty) {
                (Type::F32, Type::I32) => format!("__float_as_int({})", of(x)),
                (Type::F32, Type::U32) => format!("__float_as_uint({})", of(x)),
                (Type::I32, Type::F32) => format!("__int_as_float({})", of(x)),
                (Type::U32, Type::F32) => format!("__uint_as_float({})", of(x)),
                (Type::F32 | Type::I32 | Type::U32 | Type::Bool, _) => format!("({}){}", scalar(ty), of(x)),
            },
            Op::Load(buffer, index) => {
                let element = format!("buffer_{buffer}[{}]", within(buffer, &of(index)));
                match printer.kernel.bindings[buffer as usize].storage {
                    Storage::F16 => format!("half_to_float({element})"),
                    Storage::Bool => format!("{element} != 0u"),
                    Storage::F32 | Storage::I32 | Storage::U32 => element,
                }
            }
            Op::LoadShared(array, index) => format!("shared_{array}[{}]", of(index)),
            Op::Get(variable) => print::name(variable),
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
        match printer.kernel.bindings[buffer as usize].storage {
            Storage::F16 => {
                let halves = format!("const ushort4 {name}_halves = {element};");
                let floats = ["x", "y", "z", "w"].map(|part| format!("half_to_float({name}_halves.{part})"));
                format!("{halves} const float4 {name} = {{{}}};", floats.join(", "))
            }
            storage => format!("const {} {name} = {element};", self::element(storage, true)),
        }
    }

    fn store(printer: &Printer<'_, Self>, buffer: u32, index: &str, value: &str) -> String {
        let value = stored(printer.kernel.bindings[buffer as usize].storage, value);
        format!("if ({index} <= last_{buffer}) buffer_{buffer}[{index}] = {value};")
    }

    fn store_four(printer: &Printer<'_, Self>, buffer: u32, index: &str, values: [String; 4]) -> String {
        let storage = printer.kernel.bindings[buffer as usize].storage;
        let values = values.map(|value| stored(storage, &value)).join(", ");
        let four = element(storage, true);
        format!("if ({index} <= last_{buffer}) buffer_{buffer}[{index}] = {four}{{{values}}};")
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
        Storage::Bool => format!("(unsigned)({value})"),
        Storage::F32 | Storage::I32 | Storage::U32 => value.to_owned(),
    }
}

fn binary(op: Binary, ty: Type, a: &str, b: &str) -> String {
    let wraps = |a: &str, b: &str| format!("(int)({})", print::binary(op, a, b));
    match (op, ty) {
        (Binary::Min, Type::F32) => format!("fminf({a}, {b})"),
        (Binary::Max, Type::F32) => format!("fmaxf({a}, {b})"),
        (Binary::Rem, Type::F32) => format!("fmodf({a}, {b})"),
        (Binary::Xor, Type::Bool) => format!("{a} != {b}"),
        // Overflow of signed integers is undefined; of unsigned ones it is what is meant.
        (Binary::Add | Binary::Sub | Binary::Mul, Type::I32) => {
            wraps(&format!("(unsigned){a}"), &format!("(unsigned){b}"))
        }
        (Binary::ShiftLeft, Type::I32) => wraps(&format!("(unsigned){a}"), b),
        // The least integer over -1.
        (Binary::Div, Type::I32) => format!("{b} == -1 ? (int)(0u - (unsigned){a}) : {a} / {b}"),
        (Binary::Rem, Type::I32) => format!("{b} == -1 ? 0 : {a} % {b}"),
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
            | Binary::Max,
            Type::F32 | Type::I32 | Type::U32 | Type::Bool,
        ) => print::binary(op, a, b),
    }
}

fn unary(op: Unary, ty: Type, x: &str) -> String {
    let function = match (op, ty) {
        (Unary::Neg, Type::I32) => return format!("(int)(0u - (unsigned){x})"),
        (Unary::Neg, _) => return format!("-{x}"),
        (Unary::Not, Type::Bool) => return format!("!{x}"),
        (Unary::Not, _) => return format!("~{x}"),
        (Unary::Abs, Type::I32) => return format!("{x} < 0 ? (int)(0u - (unsigned){x}) : {x}"),
        (Unary::Abs, _) => "fabsf",
        (Unary::Sqrt, _) => "sqrtf",
        (Unary::Sin, _) => "sinf",
        (Unary::Cos, _) => "cosf",
        (Unary::Floor, _) => "floorf",
        (Unary::Ceil, _) => "ceilf",
        (Unary::Round, _) => "rintf",
        (Unary::Trunc, _) => "truncf",
    };
    format!("{function}({x})")
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
