//! Numbers of Rust as operands.

use super::{Builder, Op, Type, Value};

/// What can stand as an operand: a [`Value`], or a number of Rust, which takes the width of what it stands beside.
pub trait Number<'k>: Copy {
    /// As a value of the kernel; numbers of Rust that stand alone have 32 bits.
    fn value(self, kernel: &'k Builder) -> Value<'k>;

    /// As a value beside another.
    fn beside(self, other: Value<'k>) -> Value<'k>;

    /// Itself where it is a value already.
    fn known(self) -> Option<Value<'k>> {
        None
    }
}

impl<'k> Number<'k> for Value<'k> {
    fn value(self, _kernel: &'k Builder) -> Value<'k> {
        self
    }

    fn beside(self, _other: Value<'k>) -> Value<'k> {
        self
    }

    fn known(self) -> Option<Value<'k>> {
        Some(self)
    }
}

impl<'k> Number<'k> for u32 {
    fn value(self, kernel: &'k Builder) -> Value<'k> {
        kernel.number(Type::U32, Op::U32(self))
    }

    fn beside(self, other: Value<'k>) -> Value<'k> {
        match other.ty() {
            Type::U64 => other.kernel().number(Type::U64, Op::U64(u64::from(self))),
            Type::F64 | Type::F32 | Type::I64 | Type::I32 | Type::U32 | Type::Bool => {
                self.value(other.kernel())
            }
        }
    }
}

impl<'k> Number<'k> for i32 {
    fn value(self, kernel: &'k Builder) -> Value<'k> {
        kernel.number(Type::I32, Op::I32(self))
    }

    fn beside(self, other: Value<'k>) -> Value<'k> {
        match other.ty() {
            Type::I64 => other.kernel().number(Type::I64, Op::I64(i64::from(self))),
            Type::F64 | Type::F32 | Type::I32 | Type::U64 | Type::U32 | Type::Bool => {
                self.value(other.kernel())
            }
        }
    }
}

impl<'k> Number<'k> for u64 {
    fn value(self, kernel: &'k Builder) -> Value<'k> {
        kernel.number(Type::U64, Op::U64(self))
    }

    fn beside(self, other: Value<'k>) -> Value<'k> {
        self.value(other.kernel())
    }
}

impl<'k> Number<'k> for i64 {
    fn value(self, kernel: &'k Builder) -> Value<'k> {
        kernel.number(Type::I64, Op::I64(self))
    }

    fn beside(self, other: Value<'k>) -> Value<'k> {
        self.value(other.kernel())
    }
}

impl<'k> Number<'k> for f32 {
    fn value(self, kernel: &'k Builder) -> Value<'k> {
        kernel.number(Type::F32, Op::F32(self.to_bits()))
    }

    fn beside(self, other: Value<'k>) -> Value<'k> {
        f64::from(self).beside(other)
    }
}

impl<'k> Number<'k> for f64 {
    fn value(self, kernel: &'k Builder) -> Value<'k> {
        (self as f32).value(kernel)
    }

    fn beside(self, other: Value<'k>) -> Value<'k> {
        match other.ty() {
            Type::F64 => other.kernel().number(Type::F64, Op::F64(self.to_bits())),
            Type::F32 | Type::I64 | Type::I32 | Type::U64 | Type::U32 | Type::Bool => {
                self.value(other.kernel())
            }
        }
    }
}

impl<'k> Number<'k> for bool {
    fn value(self, kernel: &'k Builder) -> Value<'k> {
        kernel.number(Type::Bool, Op::Bool(self))
    }

    fn beside(self, other: Value<'k>) -> Value<'k> {
        self.value(other.kernel())
    }
}
