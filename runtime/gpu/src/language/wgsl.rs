//! Kernels as WGSL (W3C, "WebGPU Shading Language").
//!
//! WGSL has numbers of 32 bits, and 16-bit floats; some implementations have those of 64 bits besides, others get integers of 64 bits as
//! pairs of words ([`Wide`]). Of kernels with any other numbers there is no source: no tensor has their dtypes on a device whose runtime
//! does not support them, so that they are not made for it.

mod doubles;
mod pairs;

use super::print::{self, Dialect, Printer, Written};
use super::{Binary, Builtin, Id, Kernel, MatrixStep, Op, Statement, Storage, Type, Unary};
use std::fmt::Write;

/// The name of a kernel's entry point.
pub const ENTRY_POINT: &str = "main";

/// How numbers of 64 bits are written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wide {
    /// As `naga` writes them: `i64`, `u64` and, where the device has them, `f64`.
    Native,
    /// Integers as pairs of words, which any implementation has. There are no floats of 64 bits.
    Pairs,
}

/// Where a kernel finds its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameters {
    /// In the one uniform of group 1.
    Uniform,
    /// In what is set with each launch: not in all browsers.
    Immediate,
}

/// The source of a kernel: its buffers are the bindings of group 0, in order.
///
/// # Panics
/// When the kernel has numbers that the language has not.
pub fn source(kernel: &Kernel, wide: Wide, parameters: Parameters) -> String {
    match wide {
        Wide::Native => source_in::<true>(kernel, parameters),
        Wide::Pairs => source_in::<false>(kernel, parameters),
    }
}

fn source_in<const NATIVE: bool>(kernel: &Kernel, parameters: Parameters) -> String {
    let mut printer = Printer::<Wgsl<NATIVE>>::new(kernel);
    declarations(&mut printer, parameters);
    let [x, y] = kernel.workgroup;
    let _ = writeln!(printer.out, "@compute @workgroup_size({x}, {y})");
    let _ = writeln!(
        printer.out,
        "fn {ENTRY_POINT}(\n    @builtin(local_invocation_index) local_index: u32,\n    \
         @builtin(local_invocation_id) local: vec3<u32>,\n    @builtin(workgroup_id) workgroup: vec3<u32>,\n    \
         @builtin(num_workgroups) workgroups: vec3<u32>,{}\n) {{",
        if kernel.subgroups { SUBGROUP_PLACES } else { "" }
    );
    printer.block(&kernel.body);
    printer.out.push_str("}\n");
    printer.out
}

/// The parameters of an entry point that tell where an invocation is among subgroups.
const SUBGROUP_PLACES: &str = "\n    @builtin(subgroup_id) subgroup: u32,\n    \
     @builtin(num_subgroups) subgroups: u32,\n    @builtin(subgroup_invocation_id) lane: u32,";

/// Stops at what no kernel for a device of WebGPU's has.
fn absent(what: &dyn std::fmt::Debug) -> ! {
    unreachable!(
        "WGSL has no {what:?}: runtimes that print it support no dtype, and have no limits, that ask for it"
    )
}

/// Whether numbers of a type are written down as pairs of words.
fn is_pair<const NATIVE: bool>(ty: Type) -> bool {
    !NATIVE && matches!(ty, Type::I64 | Type::U64)
}

fn scalar<const NATIVE: bool>(ty: Type) -> &'static str {
    match ty {
        Type::F64 if NATIVE => "f64",
        Type::I64 if NATIVE => "i64",
        Type::U64 if NATIVE => "u64",
        Type::I64 | Type::U64 => "vec2<u32>",
        Type::F64 => absent(&ty),
        Type::F32 => "f32",
        Type::I32 => "i32",
        Type::U32 => "u32",
        Type::Bool => "bool",
    }
}

fn element<const NATIVE: bool>(storage: Storage) -> &'static str {
    match storage {
        Storage::F16 => "f16",
        Storage::Bool => "u32",
        Storage::F64 | Storage::F32 | Storage::I64 | Storage::I32 | Storage::U64 | Storage::U32 => {
            scalar::<NATIVE>(storage.value())
        }
        Storage::BF16 | Storage::I16 | Storage::I8 | Storage::U16 | Storage::U8 => absent(&storage),
    }
}

/// Whether what is shared takes 16 bits.
fn is_half(storage: Storage) -> bool {
    storage == Storage::F16
}

/// Four elements of a buffer of fours. There are no vectors of vectors, but arrays.
fn four_elements<const NATIVE: bool>(storage: Storage) -> String {
    let element = element::<NATIVE>(storage);
    if is_pair::<NATIVE>(storage.value()) {
        format!("array<{element}, 4>")
    } else {
        format!("vec4<{element}>")
    }
}

fn declarations<const NATIVE: bool>(printer: &mut Printer<'_, Wgsl<NATIVE>>, parameters: Parameters) {
    let (kernel, out) = (printer.kernel, &mut printer.out);
    let storages = kernel.bindings.iter().map(|binding| binding.storage);
    if storages.chain(kernel.shared.iter().map(|&(storage, _)| storage)).any(is_half)
        || rounds_to_halves(kernel)
    {
        out.push_str("enable f16;\n\n");
    }
    for (n, binding) in kernel.bindings.iter().enumerate() {
        let access = if binding.writable { "read_write" } else { "read" };
        let element = match (binding.atomic.is_some(), binding.fours) {
            (true, _) => format!("atomic<{}>", element::<NATIVE>(binding.storage)),
            (false, false) => element::<NATIVE>(binding.storage).to_owned(),
            (false, true) => four_elements::<NATIVE>(binding.storage),
        };
        let _ = writeln!(out, "@group(0) @binding({n}) var<storage, {access}> buffer_{n}: array<{element}>;");
    }
    if kernel.parameters > 0 {
        let vectors = kernel.parameters.div_ceil(4);
        let place = match parameters {
            Parameters::Uniform => "@group(1) @binding(0) var<uniform>",
            Parameters::Immediate => "var<immediate>",
        };
        let _ = writeln!(out, "{place} parameters: array<vec4<u32>, {vectors}>;");
    }
    for (n, (storage, length)) in kernel.shared.iter().enumerate() {
        let element = if is_half(*storage) { "f16" } else { scalar::<NATIVE>(storage.value()) };
        let _ = writeln!(out, "var<workgroup> shared_{n}: array<{element}, {length}>;");
    }
    // A constant expression may be neither NaN nor infinite: their bits come from variables.
    for bits in non_finite(kernel) {
        let _ = match bits {
            Bits::Single(bits) => writeln!(out, "var<private> bits_{bits:08x}: u32 = 0x{bits:08x}u;"),
            Bits::Double(bits) => writeln!(out, "var<private> bits_{bits:016x}: u64 = 0x{bits:016x}lu;"),
        };
    }
    out.push('\n');
    if kernel.types.iter().any(|&ty| is_pair::<NATIVE>(ty)) {
        out.push_str(pairs::FUNCTIONS);
        out.push('\n');
    }
    if calls(kernel, |op| op == Unary::ShortExp) {
        out.push_str(SHORT);
        out.push('\n');
    }
    if calls(kernel, |op| matches!(op, Unary::Sin | Unary::Cos)) {
        out.push_str(ANGLES);
        out.push('\n');
    }
    if kernel.types.contains(&Type::F64) && calls_doubles(&kernel.body, kernel) {
        out.push_str(doubles::FUNCTIONS);
        out.push('\n');
    }
}

/// A float that is not finite.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Bits {
    Single(u32),
    Double(u64),
}

/// Does something with every number of a kernel's statements.
fn each_number(statements: &[Statement], each: &mut impl FnMut(Id, &Op)) {
    for statement in statements {
        match statement {
            Statement::Let(id, op) => each(*id, op),
            Statement::If(_, then, otherwise) => {
                each_number(then, each);
                each_number(otherwise, each);
            }
            Statement::For { body, .. } => each_number(body, each),
            Statement::Variable(..)
            | Statement::Set(..)
            | Statement::Store { .. }
            | Statement::Raise { .. }
            | Statement::LoadFour { .. }
            | Statement::StoreFour { .. }
            | Statement::StoreShared { .. }
            | Statement::Barrier
            | Statement::Fence
            | Statement::Matrix(_) => {}
        }
    }
}

/// The constants that are not finite, each once.
fn non_finite(kernel: &Kernel) -> Vec<Bits> {
    let mut found = Vec::new();
    each_number(&kernel.body, &mut |_, op| match *op {
        Op::F32(bits) if !f32::from_bits(bits).is_finite() => found.push(Bits::Single(bits)),
        Op::F64(bits) if !f64::from_bits(bits).is_finite() => found.push(Bits::Double(bits)),
        _ => {}
    });
    found.sort_unstable();
    found.dedup();
    found
}

/// Sine and cosine of large 32-bit floats.
const ANGLES: &str = include_str!("wgsl/angles.wgsl");

/// The exponential of what is rounded to 16 bits.
const SHORT: &str = include_str!("wgsl/short.wgsl");

/// Whether any number is such a function of a 32-bit float.
fn calls(kernel: &Kernel, is_such: impl Fn(Unary) -> bool) -> bool {
    let mut any = false;
    each_number(&kernel.body, &mut |id, op| {
        let is_one = matches!(*op, Op::Unary(op, _) if is_such(op));
        any |= is_one && kernel.types[id.0 as usize] == Type::F32;
    });
    any
}

/// Whether any number is rounded to one of 16 bits.
fn rounds_to_halves(kernel: &Kernel) -> bool {
    let mut any = false;
    each_number(&kernel.body, &mut |_, op| any |= matches!(op, Op::Unary(Unary::ToF16, _)));
    any
}

/// Whether any number is had by one of the [functions of 64-bit floats](doubles).
fn calls_doubles(statements: &[Statement], kernel: &Kernel) -> bool {
    let mut any = false;
    each_number(statements, &mut |id, op| {
        any |= kernel.types[id.0 as usize] == Type::F64
            && match *op {
                Op::Unary(op, _) => doubles::unary(op).is_some(),
                Op::Binary(op, ..) => doubles::binary(op).is_some(),
                _ => false,
            };
    });
    any
}

struct Wgsl<const NATIVE: bool>;

impl<const NATIVE: bool> Dialect for Wgsl<NATIVE> {
    const BARRIER: &'static str = "workgroupBarrier();";

    fn number(printer: &Printer<'_, Self>, id: Id, op: &Op) -> Written {
        let (of, ty) = (|id| printer.use_of(id), printer.ty(id));
        let is_pair = is_pair::<NATIVE>;
        Written::Named(match *op {
            Op::F64(bits) => return Written::Inline(double(bits)),
            Op::F32(bits) => return Written::Inline(float(bits)),
            Op::I64(x) if !NATIVE => return Written::Inline(pairs::literal(x as u64)),
            Op::U64(x) if !NATIVE => return Written::Inline(pairs::literal(x)),
            Op::I64(i64::MIN) => return Written::Inline("bitcast<i64>(0x8000000000000000lu)".to_owned()),
            Op::I64(x) if x < 0 => return Written::Inline(format!("({x}li)")),
            Op::I64(x) => return Written::Inline(format!("{x}li")),
            Op::I32(i32::MIN) => return Written::Inline("i32(-2147483648)".to_owned()),
            Op::I32(x) if x < 0 => return Written::Inline(format!("({x}i)")),
            Op::I32(x) => return Written::Inline(format!("{x}i")),
            Op::U64(x) => return Written::Inline(format!("{x}lu")),
            Op::U32(x) => return Written::Inline(format!("{x}u")),
            Op::Bool(x) => return Written::Inline(x.to_string()),
            Op::Parameter(word) => {
                return Written::Inline(format!("parameters[{}].{}", word / 4, print::component(word)));
            }
            Op::Builtin(builtin) => return Written::Inline(place(builtin).to_owned()),
            Op::OfFour(four, place) if is_pair(ty) => {
                return Written::Inline(format!("{}[{place}]", print::name(four)));
            }
            Op::OfFour(four, place) => {
                let (four, place) = (print::name(four), print::component(place));
                return Written::Inline(format!("{}({four}.{place})", scalar::<NATIVE>(ty)));
            }
            Op::Unary(op, x) if is_pair(ty) => pairs::unary(op, &of(x)),
            Op::Unary(Unary::Not, x) if printer.ty(x) != Type::Bool => format!("~{}", of(x)),
            Op::Unary(op, x) => unary(op, ty, &of(x)),
            Op::Binary(op, a, b) if is_pair(ty) => pairs::binary(op, ty, &of(a), &of(b)),
            Op::Binary(Binary::Xor, a, b) if ty == Type::Bool => format!("{} != {}", of(a), of(b)),
            Op::Binary(op, a, b) => match doubles::binary(op).filter(|_| ty == Type::F64) {
                Some(function) => format!("{function}({}, {})", of(a), of(b)),
                None => print::binary(op, &of(a), &of(b)),
            },
            Op::Compare(op, a, b) if is_pair(printer.ty(a)) => {
                pairs::compare(op, printer.ty(a), &of(a), &of(b))
            }
            Op::Compare(op, a, b) => format!("{} {} {}", of(a), print::comparison(op), of(b)),
            Op::Fma(a, b, c) if ty.is_float() => format!("fma({}, {}, {})", of(a), of(b), of(c)),
            Op::Fma(a, b, c) if is_pair(ty) => {
                let product = pairs::binary(Binary::Mul, ty, &of(a), &of(b));
                pairs::binary(Binary::Add, ty, &product, &of(c))
            }
            Op::Fma(a, b, c) => format!("{} * {} + {}", of(a), of(b), of(c)),
            Op::Select { condition, then, otherwise } => {
                format!("select({}, {}, {})", of(otherwise), of(then), of(condition))
            }
            Op::Convert(x) if is_pair(ty) || is_pair(printer.ty(x)) => {
                pairs::convert(printer.ty(x), ty, &of(x))
            }
            // `naga` widens by the sign of what comes of it.
            Op::Convert(x) if (printer.ty(x), ty) == (Type::I32, Type::U64) => {
                format!("bitcast<u64>(i64({}))", of(x))
            }
            Op::Convert(x) if (printer.ty(x), ty) == (Type::U32, Type::I64) => {
                format!("bitcast<i64>(u64({}))", of(x))
            }
            Op::Convert(x) => format!("{}({})", scalar::<NATIVE>(ty), of(x)),
            // Both have the same words.
            Op::Bits(x) if is_pair(ty) => of(x),
            Op::Bits(x) => format!("bitcast<{}>({})", scalar::<NATIVE>(ty), of(x)),
            Op::Load(buffer, index) => {
                let element = format!("buffer_{buffer}[{}]", of(index));
                match printer.kernel.bindings[buffer as usize].storage {
                    Storage::F16 => format!("f32({element})"),
                    Storage::Bool => format!("{element} != 0u"),
                    Storage::F64
                    | Storage::F32
                    | Storage::I64
                    | Storage::I32
                    | Storage::U64
                    | Storage::U32 => element,
                    storage @ (Storage::BF16 | Storage::I16 | Storage::I8 | Storage::U16 | Storage::U8) => {
                        absent(&storage)
                    }
                }
            }
            Op::LoadShared(array, index) if is_half(printer.kernel.shared[array as usize].0) => {
                format!("f32(shared_{array}[{}])", of(index))
            }
            Op::LoadShared(array, index) => format!("shared_{array}[{}]", of(index)),
            Op::Get(variable) => print::name(variable),
            Op::Warp(op) => absent(&op),
            Op::Count { .. } => absent(op),
            Op::JoinSubgroup(op, x) => format!("{}({})", subgroup(op), of(x)),
            Op::OfQuad(x, place) => format!("quadBroadcast({}, {place}u)", of(x)),
        })
    }

    fn constant(_ty: Type, name: &str) -> String {
        format!("let {name}")
    }

    fn variable(ty: Type, name: &str) -> String {
        format!("var {name}: {}", scalar::<NATIVE>(ty))
    }

    fn load_four(_printer: &Printer<'_, Self>, name: &str, buffer: u32, index: &str) -> String {
        format!("let {name} = buffer_{buffer}[{index}];")
    }

    fn store(printer: &Printer<'_, Self>, buffer: u32, index: &str, value: &str) -> String {
        let value = stored(printer.kernel.bindings[buffer as usize].storage, value);
        format!("buffer_{buffer}[{index}] = {value};")
    }

    fn fence() -> String {
        absent(&Statement::Fence)
    }

    fn raise(buffer: u32, index: &str, value: &str) -> String {
        format!("atomicMax(&buffer_{buffer}[{index}], {value});")
    }

    fn shared(storage: Storage, value: &str) -> String {
        if is_half(storage) { stored(storage, value) } else { value.to_owned() }
    }

    fn store_four(printer: &Printer<'_, Self>, buffer: u32, index: &str, values: [String; 4]) -> String {
        let storage = printer.kernel.bindings[buffer as usize].storage;
        let values = values.map(|value| stored(storage, &value)).join(", ");
        format!("buffer_{buffer}[{index}] = {}({values});", four_elements::<NATIVE>(storage))
    }

    fn matrix(_printer: &Printer<'_, Self>, step: &MatrixStep) -> String {
        absent(step)
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
        Storage::F64 | Storage::F32 | Storage::I64 | Storage::I32 | Storage::U64 | Storage::U32 => {
            value.to_owned()
        }
        Storage::BF16 | Storage::I16 | Storage::I8 | Storage::U16 | Storage::U8 => absent(&storage),
    }
}

fn unary(op: Unary, ty: Type, x: &str) -> String {
    if let Some(function) = doubles::unary(op).filter(|_| ty == Type::F64) {
        return format!("{function}({x})");
    }
    let function = match op {
        Unary::Neg => return format!("-{x}"),
        Unary::Not => return format!("!{x}"),
        Unary::Abs => "abs",
        Unary::Sqrt => "sqrt",
        // Of 32-bit floats those are asked for that are large; most devices compute them to no digit.
        Unary::Sin => "far_sin",
        Unary::Cos => "far_cos",
        Unary::ShortExp => "short_exp",
        Unary::Floor => "floor",
        Unary::Ceil => "ceil",
        Unary::Round => "round",
        Unary::Trunc => "trunc",
        Unary::ToF16 => return format!("f32(f16({x}))"),
        Unary::ToBF16 => absent(&op),
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

/// The function that joins the numbers of a subgroup.
fn subgroup(op: Binary) -> &'static str {
    match op {
        Binary::Add => "subgroupAdd",
        Binary::Mul => "subgroupMul",
        Binary::Min => "subgroupMin",
        Binary::Max => "subgroupMax",
        // Of truth values alone.
        Binary::And => "subgroupAll",
        Binary::Or => "subgroupAny",
        Binary::Sub
        | Binary::Div
        | Binary::Rem
        | Binary::Xor
        | Binary::ShiftLeft
        | Binary::ShiftRight
        | Binary::Pow
        | Binary::Atan2 => unreachable!("{op:?} of a subgroup depends on its order"),
    }
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
        Builtin::Subgroup => "subgroup",
        Builtin::Subgroups => "subgroups",
        Builtin::SubgroupLane => "lane",
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

/// A 64-bit float by its bits.
fn double(bits: u64) -> String {
    let x = f64::from_bits(bits);
    match x.is_finite() {
        true if x.is_sign_negative() => format!("({x:?}lf)"),
        true => format!("{x:?}lf"),
        false => format!("bitcast<f64>(bits_{bits:016x})"),
    }
}
