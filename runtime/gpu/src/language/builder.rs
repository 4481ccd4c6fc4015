//! Kernels as Rust code: formulas over [`Value`]s, loops and branches as closures.

use super::{
    Atomic, Binary, Binding, Builtin, Comparison, Id, Kernel, Number, Op, Statement, Storage, Type, Unary,
};
use std::cell::RefCell;
use std::ops;

/// Writes down a kernel.
#[derive(Debug)]
pub struct Builder {
    kernel: RefCell<Kernel>,
    /// The blocks that are open, innermost last.
    blocks: RefCell<Vec<Vec<Statement>>>,
}

/// A number of a kernel that is being built.
#[derive(Clone, Copy, Debug)]
pub struct Value<'k> {
    kernel: &'k Builder,
    id: Id,
}

/// A variable of a kernel that is being built.
#[derive(Clone, Copy, Debug)]
pub struct Variable<'k> {
    kernel: &'k Builder,
    id: Id,
}

/// A buffer of a kernel that is being built.
#[derive(Clone, Copy, Debug)]
pub struct Buffer<'k> {
    kernel: &'k Builder,
    index: u32,
}

/// A buffer of a kernel that is being built, of which four elements are read and written at a time.
#[derive(Clone, Copy, Debug)]
pub struct Fours<'k> {
    kernel: &'k Builder,
    index: u32,
}

/// A buffer of a kernel that is being built, in which invocations leave the largest of what they have.
#[derive(Clone, Copy, Debug)]
pub struct Maxima<'k> {
    kernel: &'k Builder,
    index: u32,
}

/// A buffer of a kernel that is being built, with whose elements workgroups count.
#[derive(Clone, Copy, Debug)]
pub struct Counters<'k> {
    kernel: &'k Builder,
    index: u32,
}

/// A shared array of a kernel that is being built.
#[derive(Clone, Copy, Debug)]
pub struct Array<'k> {
    kernel: &'k Builder,
    index: u32,
}

impl Builder {
    /// The kernel that `write` writes down, with workgroups of the given sizes along x and y.
    pub fn kernel(name: impl Into<String>, workgroup: [u32; 2], write: impl FnOnce(&Builder)) -> Kernel {
        let kernel = Kernel {
            name: name.into(),
            workgroup,
            resident: None,
            bindings: Vec::new(),
            shared: Vec::new(),
            subgroups: false,
            parameters: 0,
            types: Vec::new(),
            body: Vec::new(),
        };
        let builder = Builder { kernel: RefCell::new(kernel), blocks: RefCell::new(vec![Vec::new()]) };
        write(&builder);
        let body = builder.blocks.into_inner().into_iter().flatten().collect();
        Kernel { body, ..builder.kernel.into_inner() }
    }

    /// Tells the compiler how many workgroups a multiprocessor is to hold at once, and thereby how many registers an invocation may have. Left to
    /// itself it takes so few of them for some kernels with numbers of 64 bits that these go to memory and back.
    pub fn resident(&self, workgroups: u32) {
        self.kernel.borrow_mut().resident = Some(workgroups);
    }

    /// Names what a statement is about to compute.
    pub(super) fn name(&self, ty: Type) -> Value<'_> {
        Value { kernel: self, id: self.id(ty) }
    }

    fn id(&self, ty: Type) -> Id {
        let types = &mut self.kernel.borrow_mut().types;
        types.push(ty);
        Id(types.len() as u32 - 1)
    }

    fn type_of(&self, id: Id) -> Type {
        self.kernel.borrow().types[id.0 as usize]
    }

    pub(super) fn push(&self, statement: Statement) {
        if let Some(block) = self.blocks.borrow_mut().last_mut() {
            block.push(statement);
        }
    }

    pub(super) fn number(&self, ty: Type, op: Op) -> Value<'_> {
        let id = self.id(ty);
        self.push(Statement::Let(id, op));
        Value { kernel: self, id }
    }

    fn block(&self, write: impl FnOnce()) -> Vec<Statement> {
        self.blocks.borrow_mut().push(Vec::new());
        write();
        self.blocks.borrow_mut().pop().unwrap_or_default()
    }

    /// The next buffer, which the kernel reads.
    pub fn input(&self, storage: Storage) -> Buffer<'_> {
        self.binding(Binding { storage, writable: false, fours: false, atomic: None })
    }

    /// The next buffer, which the kernel writes to.
    pub fn output(&self, storage: Storage) -> Buffer<'_> {
        self.binding(Binding { storage, writable: true, fours: false, atomic: None })
    }

    /// The next buffer, of which the kernel reads four elements at a time.
    pub fn input_of_fours(&self, storage: Storage) -> Fours<'_> {
        let binding = Binding { storage, writable: false, fours: true, atomic: None };
        let Buffer { kernel, index } = self.binding(binding);
        Fours { kernel, index }
    }

    /// The next buffer, of which the kernel writes four elements at a time.
    pub fn output_of_fours(&self, storage: Storage) -> Fours<'_> {
        let binding = Binding { storage, writable: true, fours: true, atomic: None };
        let Buffer { kernel, index } = self.binding(binding);
        Fours { kernel, index }
    }

    /// The next buffer, of `u32`, in which the kernel leaves the largest of what its invocations have.
    pub fn maxima(&self) -> Maxima<'_> {
        let binding =
            Binding { storage: Storage::U32, writable: true, fours: false, atomic: Some(Atomic::Maxima) };
        let Buffer { kernel, index } = self.binding(binding);
        Maxima { kernel, index }
    }

    /// The last buffer, the device's own, whose elements are 0 before the kernel and behind it.
    pub fn counters(&self) -> Counters<'_> {
        let atomic = Some(Atomic::Counters);
        let Buffer { kernel, index } =
            self.binding(Binding { storage: Storage::U32, writable: true, fours: false, atomic });
        Counters { kernel, index }
    }

    fn binding(&self, binding: Binding) -> Buffer<'_> {
        let bindings = &mut self.kernel.borrow_mut().bindings;
        bindings.push(binding);
        Buffer { kernel: self, index: bindings.len() as u32 - 1 }
    }

    /// An array that the workgroup shares.
    pub fn shared(&self, ty: Type, length: u32) -> Array<'_> {
        self.shared_elements(
            match ty {
                Type::F64 => Storage::F64,
                Type::F32 => Storage::F32,
                Type::I64 => Storage::I64,
                Type::I32 => Storage::I32,
                Type::U64 => Storage::U64,
                Type::U32 => Storage::U32,
                Type::Bool => Storage::Bool,
            },
            length,
        )
    }

    /// An array that the workgroup shares, of elements as a buffer has them: it may take no more room for each than the buffer does.
    pub fn shared_elements(&self, storage: Storage, length: u32) -> Array<'_> {
        let shared = &mut self.kernel.borrow_mut().shared;
        shared.push((storage, length));
        Array { kernel: self, index: shared.len() as u32 - 1 }
    }

    /// The next word of the parameters, as a `u32`.
    pub fn parameter(&self) -> Value<'_> {
        let word = self.kernel.borrow().parameters;
        self.kernel.borrow_mut().parameters += 1;
        self.number(Type::U32, Op::Parameter(word))
    }

    /// The next words of the parameters.
    pub fn parameters(&self, count: usize) -> Vec<Value<'_>> {
        (0..count).map(|_| self.parameter()).collect()
    }

    /// The next parameter that is a number of a type.
    pub fn parameter_of(&self, ty: Type) -> Value<'_> {
        self.from_words(&self.parameters(ty.words()), ty)
    }

    /// A number of a type from the words in which it was told: the lower first; truth is not 0.
    pub fn from_words<'k>(&'k self, words: &[Value<'k>], ty: Type) -> Value<'k> {
        match (ty, words) {
            (Type::Bool, &[word]) => word.differs(0_u32),
            (Type::F32 | Type::I32 | Type::U32, &[word]) => word.bits(ty),
            (Type::F64 | Type::I64 | Type::U64, &[low, high]) => {
                ((high.to(Type::U64) << 32_u32) | low.to(Type::U64)).bits(ty)
            }
            _ => unreachable!("{} words of a number that takes {}", words.len(), ty.words()),
        }
    }

    /// The invocation's place.
    pub fn builtin(&self, builtin: Builtin) -> Value<'_> {
        self.number(Type::U32, Op::Builtin(builtin))
    }

    /// The position of the invocation in a grid that is thought of as a line: workgroups of `size` invocations, x before y.
    pub fn position(&self, size: u32) -> Value<'_> {
        let group =
            self.builtin(Builtin::GroupY) * self.builtin(Builtin::GroupsX) + self.builtin(Builtin::GroupX);
        group * size + self.builtin(Builtin::LocalIndex)
    }

    /// The position of the workgroup in a grid that is thought of as a line.
    pub fn group(&self) -> Value<'_> {
        self.builtin(Builtin::GroupY) * self.builtin(Builtin::GroupsX) + self.builtin(Builtin::GroupX)
    }

    /// A number of Rust.
    pub fn value<'k>(&'k self, number: impl Number<'k>) -> Value<'k> {
        number.value(self)
    }

    /// A whole number in a type; a truth value unless it is 0.
    pub fn whole(&self, number: i32, ty: Type) -> Value<'_> {
        match ty {
            Type::F64 => self.double(f64::from(number)),
            Type::F32 => self.value(number as f32),
            Type::I64 => self.value(i64::from(number)),
            Type::I32 => self.value(number),
            Type::U64 => self.value(number as u64),
            Type::U32 => self.value(number as u32),
            Type::Bool => self.value(number != 0),
        }
    }

    /// A 64-bit float.
    pub fn double(&self, number: f64) -> Value<'_> {
        self.number(Type::F64, Op::F64(number.to_bits()))
    }

    /// A variable with its first value.
    pub fn variable<'k>(&'k self, first: impl Number<'k>) -> Variable<'k> {
        let first = first.value(self);
        let id = self.id(first.ty());
        self.push(Statement::Variable(id, first.id));
        Variable { kernel: self, id }
    }

    /// Does something only where a condition holds.
    pub fn when(&self, condition: Value<'_>, then: impl FnOnce()) {
        let then = self.block(then);
        self.push(Statement::If(condition.id, then, Vec::new()));
    }

    /// Does one of two things.
    pub fn either(&self, condition: Value<'_>, then: impl FnOnce(), otherwise: impl FnOnce()) {
        let (then, otherwise) = (self.block(then), self.block(otherwise));
        self.push(Statement::If(condition.id, then, otherwise));
    }

    /// Does something for the numbers from `start` below `end`, in steps.
    pub fn range<'k>(
        &'k self,
        start: impl Number<'k>,
        end: impl Number<'k>,
        step: impl Number<'k>,
        each: impl FnOnce(Value<'k>),
    ) {
        let (start, end, step) = (start.value(self).id, end.value(self).id, step.value(self).id);
        let counter = self.id(Type::U32);
        let body = self.block(|| each(Value { kernel: self, id: counter }));
        self.push(Statement::For { counter, start, end, step, body });
    }

    /// See [`Statement::Barrier`].
    pub fn barrier(&self) {
        self.push(Statement::Barrier);
    }
}

impl<'k> Buffer<'k> {
    fn storage(self) -> Storage {
        self.kernel.kernel.borrow().bindings[self.index as usize].storage
    }

    /// The element at a position.
    pub fn at(self, index: Value<'k>) -> Value<'k> {
        self.kernel.number(self.storage().value(), Op::Load(self.index, index.id))
    }

    /// Writes an element.
    pub fn set(self, index: Value<'k>, value: Value<'k>) {
        self.kernel.push(Statement::Store { buffer: self.index, index: index.id, value: value.id });
    }
}

impl<'k> Fours<'k> {
    pub(super) fn index(self) -> u32 {
        self.index
    }

    pub(super) fn kernel(self) -> &'k Builder {
        self.kernel
    }

    /// The four elements from `4 · index` on.
    pub fn at(self, index: Value<'k>) -> [Value<'k>; 4] {
        let k = self.kernel;
        let ty = k.kernel.borrow().bindings[self.index as usize].storage.value();
        let four = k.id(ty);
        k.push(Statement::LoadFour { four, buffer: self.index, index: index.id });
        [0, 1, 2, 3].map(|place| k.number(ty, Op::OfFour(four, place)))
    }

    /// Writes the four elements from `4 · index` on.
    pub fn set(self, index: Value<'k>, values: [Value<'k>; 4]) {
        let values = values.map(|value| value.id);
        self.kernel.push(Statement::StoreFour { buffer: self.index, index: index.id, values });
    }
}

impl<'k> Maxima<'k> {
    /// Makes an element at least as large as a number.
    pub fn raise(self, index: Value<'k>, value: Value<'k>) {
        self.kernel.push(Statement::Raise { buffer: self.index, index: index.id, value: value.id });
    }
}

impl<'k> Counters<'k> {
    /// Does something in the last of `groups` workgroups that come here with an element, which sees what all of them wrote before. The whole workgroup is here,
    /// and nobody has read what it shares.
    pub fn when_last(self, element: Value<'k>, groups: Value<'k>, then: impl FnOnce()) {
        let k = self.kernel;
        let is_last = k.shared(Type::Bool, 1);
        let (only, largest) = (k.value(0_u32), groups - 1_u32);
        k.push(Statement::Fence);
        k.barrier();
        k.when(k.builtin(Builtin::LocalIndex).equals(0_u32), || {
            let count = Op::Count { buffer: self.index, index: element.id, largest: largest.id };
            is_last.set(only, k.number(Type::U32, count).equals(largest));
        });
        k.barrier();
        k.when(is_last.at(only), || {
            k.push(Statement::Fence);
            then();
        });
    }
}

impl<'k> Array<'k> {
    pub(super) fn index(self) -> u32 {
        self.index
    }

    /// The element at a position.
    pub fn at(self, index: Value<'k>) -> Value<'k> {
        let ty = self.kernel.kernel.borrow().shared[self.index as usize].0.value();
        self.kernel.number(ty, Op::LoadShared(self.index, index.id))
    }

    /// Writes an element.
    pub fn set(self, index: Value<'k>, value: Value<'k>) {
        self.kernel.push(Statement::StoreShared { array: self.index, index: index.id, value: value.id });
    }
}

impl<'k> Variable<'k> {
    pub(super) fn id(self) -> Id {
        self.id
    }

    /// What it holds now.
    pub fn get(self) -> Value<'k> {
        self.kernel.number(self.kernel.type_of(self.id), Op::Get(self.id))
    }

    /// Gives it another value.
    pub fn set(self, value: Value<'k>) {
        self.kernel.push(Statement::Set(self.id, value.id));
    }
}

impl<'k> Value<'k> {
    pub(super) fn id(self) -> Id {
        self.id
    }

    /// Its type.
    pub fn ty(self) -> Type {
        self.kernel.type_of(self.id)
    }

    /// The kernel that it belongs to.
    pub fn kernel(self) -> &'k Builder {
        self.kernel
    }

    /// A number of its kernel.
    pub(super) fn of(self, number: impl Number<'k>) -> Value<'k> {
        number.value(self.kernel)
    }

    pub(super) fn unary(self, op: Unary) -> Value<'k> {
        self.kernel.number(self.ty(), Op::Unary(op, self.id))
    }

    pub(super) fn binary(self, op: Binary, other: impl Number<'k>) -> Value<'k> {
        let other = match op {
            Binary::ShiftLeft | Binary::ShiftRight => other.value(self.kernel),
            Binary::Add
            | Binary::Sub
            | Binary::Mul
            | Binary::Div
            | Binary::Rem
            | Binary::And
            | Binary::Or
            | Binary::Xor
            | Binary::Min
            | Binary::Max
            | Binary::Pow
            | Binary::Atan2 => other.beside(self),
        };
        self.kernel.number(self.ty(), Op::Binary(op, self.id, other.id))
    }

    fn compare(self, op: Comparison, other: Value<'k>) -> Value<'k> {
        self.kernel.number(Type::Bool, Op::Compare(op, self.id, other.id))
    }

    /// `self == other`.
    pub fn equals(self, other: impl Number<'k>) -> Value<'k> {
        self.compare(Comparison::Equal, other.beside(self))
    }

    /// `self != other`; NaN differs from everything.
    pub fn differs(self, other: impl Number<'k>) -> Value<'k> {
        match self.ty() {
            // What a device says of NaN is its own, but that nothing equals it.
            Type::F64 | Type::F32 => !self.equals(other),
            Type::I64 | Type::I32 | Type::U64 | Type::U32 | Type::Bool => {
                self.compare(Comparison::NotEqual, other.beside(self))
            }
        }
    }

    /// `self < other`.
    pub fn below(self, other: impl Number<'k>) -> Value<'k> {
        self.compare(Comparison::Less, other.beside(self))
    }

    /// `self <= other`.
    pub fn at_most(self, other: impl Number<'k>) -> Value<'k> {
        self.compare(Comparison::LessEqual, other.beside(self))
    }

    /// `self > other`.
    pub fn above(self, other: impl Number<'k>) -> Value<'k> {
        other.beside(self).compare(Comparison::Less, self)
    }

    /// `self >= other`.
    pub fn at_least(self, other: impl Number<'k>) -> Value<'k> {
        other.beside(self).compare(Comparison::LessEqual, self)
    }

    /// `self ? then : otherwise`; both are computed.
    pub fn select(self, then: impl Number<'k>, otherwise: impl Number<'k>) -> Value<'k> {
        let (then, otherwise) = match (then.known(), otherwise.known()) {
            (Some(then), _) => (then, otherwise.beside(then)),
            (None, Some(otherwise)) => (then.beside(otherwise), otherwise),
            (None, None) => (then.value(self.kernel), otherwise.value(self.kernel)),
        };
        let op = Op::Select { condition: self.id, then: then.id, otherwise: otherwise.id };
        self.kernel.number(then.ty(), op)
    }

    /// `self · factor + summand`, for floats in one rounding where the device has that.
    pub fn fma(self, factor: impl Number<'k>, summand: impl Number<'k>) -> Value<'k> {
        let (factor, summand) = (factor.beside(self), summand.beside(self));
        self.kernel.number(self.ty(), Op::Fma(self.id, factor.id, summand.id))
    }

    /// The numbers of all invocations of the subgroup, joined; see [`Op::JoinSubgroup`].
    pub fn join_subgroup(self, op: Binary) -> Value<'k> {
        self.kernel.kernel.borrow_mut().subgroups = true;
        self.kernel.number(self.ty(), Op::JoinSubgroup(op, self.id))
    }

    /// The number that one of four neighbours of the subgroup has; see [`Op::OfQuad`].
    pub fn of_quad(self, place: u32) -> Value<'k> {
        self.kernel.kernel.borrow_mut().subgroups = true;
        self.kernel.number(self.ty(), Op::OfQuad(self.id, place))
    }

    /// The smaller; of NaN and a number either.
    pub fn min(self, other: impl Number<'k>) -> Value<'k> {
        self.binary(Binary::Min, other)
    }

    /// The larger; of NaN and a number either.
    pub fn max(self, other: impl Number<'k>) -> Value<'k> {
        self.binary(Binary::Max, other)
    }

    /// The number in another type; floats are truncated to integers and saturate, NaN becomes 0.
    pub fn to(self, ty: Type) -> Value<'k> {
        match (self.ty(), ty) {
            (from, to) if from == to => self,
            // What a device makes of NaN is its own, and the largest integer is no float.
            (Type::F64 | Type::F32, Type::I64 | Type::I32 | Type::U64 | Type::U32) => {
                let number = self.is_nan().select(0.0, self);
                let converted = self.kernel.number(ty, Op::Convert(number.id));
                match ty {
                    Type::I32 => self.at_least(2_147_483_648.0).select(i32::MAX, converted),
                    Type::U32 => self.at_least(4_294_967_296.0).select(u32::MAX, converted),
                    Type::I64 => self.at_least(9_223_372_036_854_775_808.0).select(i64::MAX, converted),
                    Type::U64 => self.at_least(18_446_744_073_709_551_616.0).select(u64::MAX, converted),
                    Type::F64 | Type::F32 | Type::Bool => converted,
                }
            }
            (Type::F64 | Type::F32, Type::Bool) => self.differs(0.0),
            _ => self.kernel.number(ty, Op::Convert(self.id)),
        }
    }

    /// The same bits in another type of as many.
    pub fn bits(self, ty: Type) -> Value<'k> {
        if self.ty() == ty { self } else { self.kernel.number(ty, Op::Bits(self.id)) }
    }
}

macro_rules! operator {
    ($($trait:ident $method:ident $op:ident;)*) => {
        $(impl<'k, N: Number<'k>> ops::$trait<N> for Value<'k> {
            type Output = Value<'k>;

            fn $method(self, other: N) -> Value<'k> {
                self.binary(Binary::$op, other)
            }
        })*
    };
}

operator! {
    Add add Add;
    Sub sub Sub;
    Mul mul Mul;
    Div div Div;
    Rem rem Rem;
    BitAnd bitand And;
    BitOr bitor Or;
    BitXor bitxor Xor;
    Shl shl ShiftLeft;
    Shr shr ShiftRight;
}

impl<'k> ops::Neg for Value<'k> {
    type Output = Value<'k>;

    fn neg(self) -> Value<'k> {
        self.unary(Unary::Neg)
    }
}

impl<'k> ops::Not for Value<'k> {
    type Output = Value<'k>;

    fn not(self) -> Value<'k> {
        self.unary(Unary::Not)
    }
}
