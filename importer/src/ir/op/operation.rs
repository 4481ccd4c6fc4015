//! What is known of every operation.

use super::host::Host;
use super::site::Site;
use super::{Folding, Outcome};
use crate::ir::{
    Dim, Effect, Implementation, Infer, Loops, Region, RuleResult, RuntimeCall, Sources, Symbol, TensorType,
};
use kiln_types::{
    Activation, ArgReduceOp, AttentionOptions, BinaryOp, CompareOp, ConvOptions, ConvTransposeOptions,
    CoordinateTransform, CumulativeOp, DType, Derivation, Expression, InterpolateMode, Minifloat, PadMode,
    PoolOp, PoolOptions, ReduceOp, RnnOptions, Scalar, ScatterOp, TensorData, UnaryOp,
};

/// A core operation. Nothing has a default here: what is forgotten does not compile.
pub(super) trait Operation: Field {
    /// Names of the operands; `?` marks one that may be absent, `*` any number of them.
    const OPERANDS: &'static [&'static str];
    /// The operands that a layer of the runtime holds as parameters.
    const PARAMETERS: &'static [usize];

    /// What it does beside computing its results.
    fn effect(&self) -> Effect;
    /// Types of the results, or the rule that the operands break.
    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>>;
    /// Shape arithmetic: the contents of the single result as dims, when those of the operands determine them.
    fn host(&self, cx: &Host<'_>) -> Option<Vec<Dim>>;
    /// The results on known operands.
    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>>;
    /// What it takes to do that at build time.
    fn folding(&self) -> Folding;
    /// What becomes of the values of its operands.
    fn result(&self) -> Outcome;
    /// How the loader of a checkpoint repeats it: an expression of those of its operands. The error says what cannot be
    /// expressed.
    fn derivation(&self, of: &Sources<'_>) -> Result<Derivation, String>;
    /// What the runtime does for it.
    fn implementation(&self, cx: &Site<'_>) -> Implementation;
    /// What source without a runtime does for it, where all sizes are numbers; nothing when such source cannot.
    fn loops(&self, cx: &Site<'_>) -> Option<Loops>;
}

/// Operands with known contents.
pub(super) struct Known<'a> {
    pub(super) operands: &'a [Option<&'a TensorData>],
}

impl<'a> Known<'a> {
    /// The `n`-th operand.
    pub(super) fn get(&self, n: usize) -> Option<&'a TensorData> {
        self.operands.get(n).copied().flatten()
    }

    /// All operands, if none is absent.
    pub(super) fn all(&self) -> Option<Vec<&'a TensorData>> {
        self.operands.iter().copied().collect()
    }
}

/// An attribute of an operation, for what is looked for in all of them: dims and regions.
pub(super) trait Field {
    /// Visits the dims in it.
    fn each_dim(&self, visit: &mut dyn FnMut(&Dim));
    /// Replaces the dims in it.
    fn map_dims(&mut self, map: &mut dyn FnMut(&Dim) -> Dim);
    /// The regions in it.
    fn regions(&self) -> Vec<&Region> {
        Vec::new()
    }
    /// The regions in it, to change.
    fn regions_mut(&mut self) -> Vec<&mut Region> {
        Vec::new()
    }
}

impl Field for Dim {
    fn each_dim(&self, visit: &mut dyn FnMut(&Dim)) {
        visit(self);
    }

    fn map_dims(&mut self, map: &mut dyn FnMut(&Dim) -> Dim) {
        *self = map(self);
    }
}

impl<T: Field> Field for Vec<T> {
    fn each_dim(&self, visit: &mut dyn FnMut(&Dim)) {
        self.iter().for_each(|item| item.each_dim(visit));
    }

    fn map_dims(&mut self, map: &mut dyn FnMut(&Dim) -> Dim) {
        self.iter_mut().for_each(|item| item.map_dims(map));
    }
}

impl<T: Field> Field for Option<T> {
    fn each_dim(&self, visit: &mut dyn FnMut(&Dim)) {
        self.iter().for_each(|item| item.each_dim(visit));
    }

    fn map_dims(&mut self, map: &mut dyn FnMut(&Dim) -> Dim) {
        self.iter_mut().for_each(|item| item.map_dims(map));
    }
}

impl<A: Field, B: Field> Field for (A, B) {
    fn each_dim(&self, visit: &mut dyn FnMut(&Dim)) {
        self.0.each_dim(visit);
        self.1.each_dim(visit);
    }

    fn map_dims(&mut self, map: &mut dyn FnMut(&Dim) -> Dim) {
        self.0.map_dims(map);
        self.1.map_dims(map);
    }
}

impl Field for Region {
    fn each_dim(&self, _: &mut dyn FnMut(&Dim)) {}
    fn map_dims(&mut self, _: &mut dyn FnMut(&Dim) -> Dim) {}

    fn regions(&self) -> Vec<&Region> {
        vec![self]
    }

    fn regions_mut(&mut self) -> Vec<&mut Region> {
        vec![self]
    }
}

impl Field for RuntimeCall {
    fn each_dim(&self, visit: &mut dyn FnMut(&Dim)) {
        self.call.args.iter().for_each(|arg| arg.visit_dims(visit));
    }

    fn map_dims(&mut self, map: &mut dyn FnMut(&Dim) -> Dim) {
        self.call.args.iter_mut().for_each(|arg| arg.map_dims(map));
    }
}

/// Attributes without dims and regions.
macro_rules! plain {
    ($($ty:ty),* $(,)?) => {
        $(impl Field for $ty {
            fn each_dim(&self, _: &mut dyn FnMut(&Dim)) {}
            fn map_dims(&mut self, _: &mut dyn FnMut(&Dim) -> Dim) {}
        })*
    };
}

plain!(
    bool,
    usize,
    i64,
    f64,
    DType,
    Scalar,
    Symbol,
    super::Where,
    super::Detach,
    super::RootOfSquares,
    super::MatMul,
    super::SquaredDistances,
    super::MatMulInteger,
    super::QuantizeDynamic,
    super::Quantize,
    super::Dequantize,
    super::FakeQuantize,
    super::QuantizedAdd,
    super::QuantizedMul
);
plain!(UnaryOp, BinaryOp, CompareOp, Activation, Expression, ReduceOp, ArgReduceOp, CumulativeOp, ScatterOp);
plain!(AttentionOptions, ConvOptions, ConvTransposeOptions, PoolOp, PoolOptions, PadMode, RnnOptions);
plain!(InterpolateMode, CoordinateTransform, Minifloat);

/// Declares the attributes of an operation.
macro_rules! attributes {
    (
        $(#[$doc:meta])*
        pub struct $name:ident { $($(#[$field_doc:meta])* pub $field:ident: $ty:ty,)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        pub struct $name { $($(#[$field_doc])* pub $field: $ty,)* }

        impl $crate::ir::op::operation::Field for $name {
            fn each_dim(&self, visit: &mut dyn FnMut(&$crate::ir::Dim)) {
                $(self.$field.each_dim(visit);)*
            }

            fn map_dims(&mut self, map: &mut dyn FnMut(&$crate::ir::Dim) -> $crate::ir::Dim) {
                $(self.$field.map_dims(map);)*
            }

            fn regions(&self) -> Vec<&$crate::ir::Region> {
                [$(self.$field.regions()),*].concat()
            }

            fn regions_mut(&mut self) -> Vec<&mut $crate::ir::Region> {
                let mut regions = Vec::new();
                $(regions.append(&mut self.$field.regions_mut());)*
                regions
            }
        }
    };
}

/// What most operations say in a line: their operands, those that a layer holds as parameters, their effect, what it takes to
/// compute them at build time, and what becomes of their operands' values.
macro_rules! facts {
    (
        operands: $operands:expr, $(parameters: [$($parameters:literal),*],)?
        effect: $effect:ident, folding: $folding:ident $(($passes:expr))?, result: $result:ident
    ) => {
        const OPERANDS: &'static [&'static str] = &$operands;
        const PARAMETERS: &'static [usize] = &[$($($parameters),*)?];

        fn effect(&self) -> Effect {
            Effect::$effect
        }

        fn folding(&self) -> Folding {
            Folding::$folding $(($passes))?
        }

        fn result(&self) -> Outcome {
            Outcome::$result
        }
    };
}

/// What an operation does not have: contents in shape arithmetic (`host`), a value at build time (`evaluate`), an expression
/// that loaders of checkpoints know (`derivation`), or a form without a runtime (`loops`).
macro_rules! none {
    ($($what:ident),*) => {
        $(none!(@$what);)*
    };
    (@host) => {
        fn host(&self, _: &Host<'_>) -> Option<Vec<Dim>> {
            None
        }
    };
    (@evaluate) => {
        fn evaluate(&self, _: &Known<'_>) -> Option<Vec<TensorData>> {
            None
        }
    };
    (@derivation) => {
        fn derivation(&self, of: &Sources<'_>) -> Result<Derivation, String> {
            Err(of.unknown())
        }
    };
    (@loops) => {
        fn loops(&self, _: &Site<'_>) -> Option<Loops> {
            None
        }
    };
}
pub(super) use {attributes, facts, none};
