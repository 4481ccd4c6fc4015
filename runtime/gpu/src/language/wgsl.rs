//! Kernels as WGSL (W3C, "WebGPU Shading Language").

use super::{Binary, Builtin, Comparison, Id, Kernel, Op, Statement, Storage, Type, Unary};
use std::fmt::Write;

/// The name of a kernel's entry point.
pub const ENTRY_POINT: &str = "main";

/// The source of a kernel: its buffers are the bindings of group 0, in order; its parameters are the one uniform of group 1.
pub fn source(kernel: &Kernel) -> String {
    let mut printer =
        Printer { kernel, inline: vec![None; kernel.types.len()], out: String::new(), depth: 1 };
    printer.declarations();
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

fn scalar(ty: Type) -> &'static str {
    match ty {
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
    }
}

struct Printer<'a> {
    kernel: &'a Kernel,
    /// Numbers that are written where they are used: constants, parameters, places.
    inline: Vec<Option<String>>,
    out: String,
    depth: usize,
}

impl Printer<'_> {
    fn declarations(&mut self) {
        let kernel = self.kernel;
        if kernel.bindings.iter().any(|binding| binding.storage == Storage::F16) {
            self.out.push_str("enable f16;\n\n");
        }
        for (n, binding) in kernel.bindings.iter().enumerate() {
            let access = if binding.writable { "read_write" } else { "read" };
            let element = match (element(binding.storage), binding.fours) {
                (element, false) => element.to_owned(),
                (element, true) => format!("vec4<{element}>"),
            };
            let _ = writeln!(
                self.out,
                "@group(0) @binding({n}) var<storage, {access}> buffer_{n}: array<{element}>;"
            );
        }
        if kernel.parameters > 0 {
            let vectors = kernel.parameters.div_ceil(4);
            let _ = writeln!(
                self.out,
                "@group(1) @binding(0) var<uniform> parameters: array<vec4<u32>, {vectors}>;"
            );
        }
        for (n, (ty, length)) in kernel.shared.iter().enumerate() {
            let _ = writeln!(self.out, "var<workgroup> shared_{n}: array<{}, {length}>;", scalar(*ty));
        }
        // A constant expression may be neither NaN nor infinite: their bits come from variables.
        for bits in self.non_finite() {
            let _ = writeln!(self.out, "var<private> bits_{bits:08x}: u32 = 0x{bits:08x}u;");
        }
        self.out.push('\n');
    }

    /// The bits of the constants that are not finite, each once.
    fn non_finite(&self) -> Vec<u32> {
        fn collect(statements: &[Statement], found: &mut Vec<u32>) {
            for statement in statements {
                match statement {
                    Statement::Let(_, Op::F32(bits)) if !f32::from_bits(*bits).is_finite() => {
                        found.push(*bits)
                    }
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
        collect(&self.kernel.body, &mut found);
        found.sort_unstable();
        found.dedup();
        found
    }

    fn line(&mut self, text: &str) {
        let indent = 4 * self.depth;
        let _ = writeln!(self.out, "{:indent$}{text}", "");
    }

    fn block(&mut self, statements: &[Statement]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    fn nested(&mut self, statements: &[Statement]) {
        self.depth += 1;
        self.block(statements);
        self.depth -= 1;
    }

    /// A number, as it is written where it is used.
    fn use_of(&self, id: Id) -> String {
        self.inline[id.0 as usize].clone().unwrap_or_else(|| format!("v{}", id.0))
    }

    fn ty(&self, id: Id) -> Type {
        self.kernel.types[id.0 as usize]
    }

    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Let(id, op) => self.number(*id, op),
            Statement::Variable(id, first) => {
                let line = format!("var v{}: {} = {};", id.0, scalar(self.ty(*id)), self.use_of(*first));
                self.line(&line);
            }
            Statement::Set(id, value) => {
                let line = format!("v{} = {};", id.0, self.use_of(*value));
                self.line(&line);
            }
            Statement::Store { buffer, index, value } => {
                let value = self.stored(*buffer, *value);
                let line = format!("buffer_{buffer}[{}] = {value};", self.use_of(*index));
                self.line(&line);
            }
            Statement::LoadFour { four, buffer, index } => {
                let line = format!("let v{} = buffer_{buffer}[{}];", four.0, self.use_of(*index));
                self.line(&line);
            }
            Statement::StoreFour { buffer, index, values } => {
                let values = values.map(|value| self.stored(*buffer, value)).join(", ");
                let ty = element(self.kernel.bindings[*buffer as usize].storage);
                let line = format!("buffer_{buffer}[{}] = vec4<{ty}>({values});", self.use_of(*index));
                self.line(&line);
            }
            Statement::StoreShared { array, index, value } => {
                let line = format!("shared_{array}[{}] = {};", self.use_of(*index), self.use_of(*value));
                self.line(&line);
            }
            Statement::If(condition, then, otherwise) => {
                let line = format!("if {} {{", self.use_of(*condition));
                self.line(&line);
                self.nested(then);
                if !otherwise.is_empty() {
                    self.line("} else {");
                    self.nested(otherwise);
                }
                self.line("}");
            }
            Statement::For { counter, start, end, step, body } => {
                let (name, start) = (format!("v{}", counter.0), self.use_of(*start));
                let (end, step) = (self.use_of(*end), self.use_of(*step));
                let line = format!("for (var {name}: u32 = {start}; {name} < {end}; {name} += {step}) {{");
                self.line(&line);
                self.nested(body);
                self.line("}");
            }
            Statement::Barrier => self.line("workgroupBarrier();"),
        }
    }

    fn number(&mut self, id: Id, op: &Op) {
        let text = match *op {
            Op::F32(bits) => return self.inline_as(id, float(bits)),
            Op::I32(i32::MIN) => return self.inline_as(id, "i32(-2147483648)".to_owned()),
            Op::I32(x) if x < 0 => return self.inline_as(id, format!("({x}i)")),
            Op::I32(x) => return self.inline_as(id, format!("{x}i")),
            Op::U32(x) => return self.inline_as(id, format!("{x}u")),
            Op::Bool(x) => return self.inline_as(id, x.to_string()),
            Op::Parameter(word) => {
                let component = ["x", "y", "z", "w"][word as usize % 4];
                return self.inline_as(id, format!("parameters[{}].{component}", word / 4));
            }
            Op::Builtin(builtin) => return self.inline_as(id, place(builtin).to_owned()),
            Op::Unary(Unary::Not, x) if self.ty(x) != Type::Bool => format!("~{}", self.use_of(x)),
            Op::Unary(op, x) => unary(op, &self.use_of(x)),
            Op::Binary(op, a, b) => self.binary(op, a, b),
            Op::Compare(op, a, b) => {
                let sign = match op {
                    Comparison::Equal => "==",
                    Comparison::NotEqual => "!=",
                    Comparison::Less => "<",
                    Comparison::LessEqual => "<=",
                };
                format!("{} {sign} {}", self.use_of(a), self.use_of(b))
            }
            Op::Fma(a, b, c) if self.ty(id) == Type::F32 => {
                format!("fma({}, {}, {})", self.use_of(a), self.use_of(b), self.use_of(c))
            }
            Op::Fma(a, b, c) => {
                format!("{} * {} + {}", self.use_of(a), self.use_of(b), self.use_of(c))
            }
            Op::Select { condition, then, otherwise } => {
                let (then, otherwise) = (self.use_of(then), self.use_of(otherwise));
                format!("select({otherwise}, {then}, {})", self.use_of(condition))
            }
            Op::Convert(x) => format!("{}({})", scalar(self.ty(id)), self.use_of(x)),
            Op::Bits(x) => format!("bitcast<{}>({})", scalar(self.ty(id)), self.use_of(x)),
            Op::Load(buffer, index) => {
                let element = format!("buffer_{buffer}[{}]", self.use_of(index));
                match self.kernel.bindings[buffer as usize].storage {
                    Storage::F16 => format!("f32({element})"),
                    Storage::Bool => format!("{element} != 0u"),
                    Storage::F32 | Storage::I32 | Storage::U32 => element,
                }
            }
            Op::OfFour(four, place) => {
                let component = ["x", "y", "z", "w"][place as usize % 4];
                return self.inline_as(id, format!("{}(v{}.{component})", scalar(self.ty(id)), four.0));
            }
            Op::LoadShared(array, index) => format!("shared_{array}[{}]", self.use_of(index)),
            Op::Get(variable) => format!("v{}", variable.0),
        };
        let line = format!("let v{} = {text};", id.0);
        self.line(&line);
    }

    /// A number, as it is written into a buffer.
    fn stored(&self, buffer: u32, value: Id) -> String {
        let value = self.use_of(value);
        match self.kernel.bindings[buffer as usize].storage {
            Storage::F16 => format!("f16({value})"),
            Storage::Bool => format!("select(0u, 1u, {value})"),
            Storage::F32 | Storage::I32 | Storage::U32 => value,
        }
    }

    fn inline_as(&mut self, id: Id, text: String) {
        self.inline[id.0 as usize] = Some(text);
    }

    fn binary(&self, op: Binary, a: Id, b: Id) -> String {
        let is_bool = self.ty(a) == Type::Bool;
        let (a, b) = (self.use_of(a), self.use_of(b));
        let sign = match op {
            Binary::Add => "+",
            Binary::Sub => "-",
            Binary::Mul => "*",
            Binary::Div => "/",
            Binary::Rem => "%",
            Binary::And => "&",
            Binary::Or => "|",
            Binary::Xor if is_bool => "!=",
            Binary::Xor => "^",
            Binary::ShiftLeft => "<<",
            Binary::ShiftRight => ">>",
            Binary::Min => return format!("min({a}, {b})"),
            Binary::Max => return format!("max({a}, {b})"),
        };
        format!("{a} {sign} {b}")
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
