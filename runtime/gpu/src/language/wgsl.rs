//! Kernels as WGSL (W3C, "WebGPU Shading Language").
//!
//! WGSL has numbers of 32 bits, and 16-bit floats. Of kernels with any others there is no source: no tensor has their dtypes on a device
//! whose runtime does not support them, so that they are not made for it.

use super::print::{self, Dialect, Printer, Written};
use super::{Binary, Builtin, Id, Kernel, Op, Statement, Storage, Type, Unary};
use std::fmt::Write;

/// The name of a kernel's entry point.
pub const ENTRY_POINT: &str = "main";

/// The source of a kernel: its buffers are the bindings of group 0, in order; its parameters are the one uniform of group 1.
pub fn source(kernel: &Kernel) -> String {
    let mut printer = Printer::<Wgsl>::new(kernel);
    declarations(&mut printer);
    let [x, y] = kernel.workgroup;
    let _ = writeln!(printer.out, "@compute @workgroup_size({x}, {y})");
    let _ = writeln!(
        printer.out,
        "fn {ENTRY_POINT}(\n    @builtin(local_invocation_index) local_index: u32,\n    \
         @builtin(local_invocation_id) local: vec3<u32>,\n    @builtin(workgroup_id) workgroup: vec3<u32>,\n    \
         @builtin(num_workgroups) workgroups: vec3<u32>,\n) {{"
    );
    printer.block(&kernel.body);
    printer.out.push_str("}\n");
    printer.out
}

/// Stops at what no kernel for a device of WebGPU's has.
fn absent(what: &dyn std::fmt::Debug) -> ! {
    unreachable!("WGSL has no {what:?}: runtimes that print it support no dtype that needs it")
}

fn scalar(ty: Type) -> &'static str {
    match ty {
        Type::F64 | Type::I64 | Type::U64 => absent(&ty),
        Type::F32 => "f32",
        Type::I32 => "i32",
        Type::U32 => "u32",
        Type::Bool => "bool",
    }
}

fn element(storage: Storage) -> &'static str {
    match storage {
        Storage::F32 => "f32",
        Storage::F16 => "f16",
        Storage::I32 => "i32",
        Storage::U32 | Storage::Bool => "u32",
        Storage::F64
        | Storage::BF16
        | Storage::I64
        | Storage::I16
        | Storage::I8
        | Storage::U64
        | Storage::U16
        | Storage::U8 => absent(&storage),
    }
}

fn declarations(printer: &mut Printer<'_, Wgsl>) {
    let (kernel, out) = (printer.kernel, &mut printer.out);
    if kernel.bindings.iter().any(|binding| binding.storage == Storage::F16) {
        out.push_str("enable f16;\n\n");
    }
    for (n, binding) in kernel.bindings.iter().enumerate() {
        let access = if binding.writable { "read_write" } else { "read" };
        let element = match (element(binding.storage), binding.fours) {
            (element, false) => element.to_owned(),
            (element, true) => format!("vec4<{element}>"),
        };
        let _ = writeln!(out, "@group(0) @binding({n}) var<storage, {access}> buffer_{n}: array<{element}>;");
    }
    if kernel.parameters > 0 {
        let vectors = kernel.parameters.div_ceil(4);
        let _ = writeln!(out, "@group(1) @binding(0) var<uniform> parameters: array<vec4<u32>, {vectors}>;");
    }
    for (n, (ty, length)) in kernel.shared.iter().enumerate() {
        let _ = writeln!(out, "var<workgroup> shared_{n}: array<{}, {length}>;", scalar(*ty));
    }
    // A constant expression may be neither NaN nor infinite: their bits come from variables.
    for bits in non_finite(kernel) {
        let _ = writeln!(out, "var<private> bits_{bits:08x}: u32 = 0x{bits:08x}u;");
    }
    out.push('\n');
}

/// The bits of the constants that are not finite, each once.
fn non_finite(kernel: &Kernel) -> Vec<u32> {
    fn collect(statements: &[Statement], found: &mut Vec<u32>) {
        for statement in statements {
            match statement {
                Statement::Let(_, Op::F32(bits)) if !f32::from_bits(*bits).is_finite() => found.push(*bits),
                Statement::If(_, then, otherwise) => {
                    collect(then, found);
                    collect(otherwise, found);
                }
                Statement::For { body, .. } => collect(body, found),
                Statement::Let(..)
                | Statement::Variable(..)
                | Statement::Set(..)
                | Statement::Store { .. }
                | Statement::LoadFour { .. }
                | Statement::StoreFour { .. }
                | Statement::StoreShared { .. }
                | Statement::Barrier => {}
            }
        }
    }
    let mut found = Vec::new();
    collect(&kernel.body, &mut found);
    found.sort_unstable();
    found.dedup();
    found
}

struct Wgsl;

impl Dialect for Wgsl {
    const BARRIER: &'static str = "workgroupBarrier();";

    fn number(printer: &Printer<'_, Self>, id: Id, op: &Op) -> Written {
        let (of, ty) = (|id| printer.use_of(id), printer.ty(id));
        Written::Named(match *op {
            Op::F64(_) | Op::I64(_) | Op::U64(_) => absent(&ty),
            Op::F32(bits) => return Written::Inline(float(bits)),
            Op::I32(i32::MIN) => return Written::Inline("i32(-2147483648)".to_owned()),
            Op::I32(x) if x < 0 => return Written::Inline(format!("({x}i)")),
            Op::I32(x) => return Written::Inline(format!("{x}i")),
            Op::U32(x) => return Written::Inline(format!("{x}u")),
            Op::Bool(x) => return Written::Inline(x.to_string()),
            Op::Parameter(word) => {
                return Written::Inline(format!("parameters[{}].{}", word / 4, print::component(word)));
            }
            Op::Builtin(builtin) => return Written::Inline(place(builtin).to_owned()),
            Op::OfFour(four, place) => {
                let (four, place) = (print::name(four), print::component(place));
                return Written::Inline(format!("{}({four}.{place})", scalar(ty)));
            }
            Op::Unary(Unary::Not, x) if printer.ty(x) != Type::Bool => format!("~{}", of(x)),
            Op::Unary(op, x) => unary(op, &of(x)),
            Op::Binary(Binary::Xor, a, b) if ty == Type::Bool => format!("{} != {}", of(a), of(b)),
            Op::Binary(op, a, b) => print::binary(op, &of(a), &of(b)),
            Op::Compare(op, a, b) => format!("{} {} {}", of(a), print::comparison(op), of(b)),
            Op::Fma(a, b, c) if ty == Type::F32 => format!("fma({}, {}, {})", of(a), of(b), of(c)),
            Op::Fma(a, b, c) => format!("{} * {} + {}", of(a), of(b), of(c)),
            Op::Select { condition, then, otherwise } => {
                format!("select({}, {}, {})", of(otherwise), of(then), of(condition))
            }
            Op::Convert(x) => format!("{}({})", scalar(ty), of(x)),
            Op::Bits(x) => format!("bitcast<{}>({})", scalar(ty), of(x)),
            Op::Load(buffer, index) => {
                let element = format!("buffer_{buffer}[{}]", of(index));
                match printer.kernel.bindings[buffer as usize].storage {
                    Storage::F16 => format!("f32({element})"),
                    Storage::Bool => format!("{element} != 0u"),
                    Storage::F32 | Storage::I32 | Storage::U32 => element,
                    storage @ (Storage::F64
                    | Storage::BF16
                    | Storage::I64
                    | Storage::I16
                    | Storage::I8
                    | Storage::U64
                    | Storage::U16
                    | Storage::U8) => absent(&storage),
                }
            }
            Op::LoadShared(array, index) => format!("shared_{array}[{}]", of(index)),
            Op::Get(variable) => print::name(variable),
        })
    }

    fn constant(_ty: Type, name: &str) -> String {
        format!("let {name}")
    }

    fn variable(ty: Type, name: &str) -> String {
        format!("var {name}: {}", scalar(ty))
    }

    fn load_four(_printer: &Printer<'_, Self>, name: &str, buffer: u32, index: &str) -> String {
        format!("let {name} = buffer_{buffer}[{index}];")
    }

    fn store(printer: &Printer<'_, Self>, buffer: u32, index: &str, value: &str) -> String {
        let value = stored(printer.kernel.bindings[buffer as usize].storage, value);
        format!("buffer_{buffer}[{index}] = {value};")
    }

    fn store_four(printer: &Printer<'_, Self>, buffer: u32, index: &str, values: [String; 4]) -> String {
        let storage = printer.kernel.bindings[buffer as usize].storage;
        let values = values.map(|value| stored(storage, &value)).join(", ");
        format!("buffer_{buffer}[{index}] = vec4<{}>({values});", element(storage))
    }

    fn branch(condition: &str) -> String {
        format!("if {condition}")
    }

    fn count(counter: &str, start: &str, end: &str, step: &str) -> String {
        format!("for (var {counter}: u32 = {start}; {counter} < {end}; {counter} += {step})")
    }
}

/// A number, as it is written into a buffer.
fn stored(storage: Storage, value: &str) -> String {
    match storage {
        Storage::F16 => format!("f16({value})"),
        Storage::Bool => format!("select(0u, 1u, {value})"),
        Storage::F32 | Storage::I32 | Storage::U32 => value.to_owned(),
        Storage::F64
        | Storage::BF16
        | Storage::I64
        | Storage::I16
        | Storage::I8
        | Storage::U64
        | Storage::U16
        | Storage::U8 => absent(&storage),
    }
}

fn unary(op: Unary, x: &str) -> String {
    let function = match op {
        Unary::Neg => return format!("-{x}"),
        Unary::Not => return format!("!{x}"),
        Unary::Abs => "abs",
        Unary::Sqrt => "sqrt",
        Unary::Sin => "sin",
        Unary::Cos => "cos",
        Unary::Floor => "floor",
        Unary::Ceil => "ceil",
        Unary::Round => "round",
        Unary::Trunc => "trunc",
        // Only of 64-bit floats.
        Unary::Exp
        | Unary::ExpM1
        | Unary::Log
        | Unary::Log1p
        | Unary::Tan
        | Unary::Asin
        | Unary::Acos
        | Unary::Atan
        | Unary::Sinh
        | Unary::Cosh
        | Unary::Tanh
        | Unary::Asinh
        | Unary::Acosh
        | Unary::Atanh
        | Unary::Erf => absent(&op),
    };
    format!("{function}({x})")
}

fn place(builtin: Builtin) -> &'static str {
    match builtin {
        Builtin::LocalIndex => "local_index",
        Builtin::LocalX => "local.x",
        Builtin::LocalY => "local.y",
        Builtin::GroupX => "workgroup.x",
        Builtin::GroupY => "workgroup.y",
        Builtin::GroupZ => "workgroup.z",
        Builtin::GroupsX => "workgroups.x",
    }
}

/// A float by its bits.
fn float(bits: u32) -> String {
    let x = f32::from_bits(bits);
    match x.is_finite() {
        // The shortest digits that mean the largest number are those of a larger one, which browsers refuse.
        true if x.abs() == f32::MAX => format!("({:?}f)", f64::from(x)),
        true if x.is_sign_negative() => format!("({x:?}f)"),
        true => format!("{x:?}f"),
        false => format!("bitcast<f32>(bits_{bits:08x})"),
    }
}
