//! The vocabulary that Kiln's importer and its runtime share.
//!
//! A dtype, a block of tensor data, a scalar, the operation enums and their options mean the same thing in an
//! imported graph, in a record file and in a backend, so they are declared once, here. The crate computes nothing
//! heavier than one scalar; it compiles in moments, which is why the importer may depend on it (design, law 10).
#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

mod bytes;
mod convert;
mod data;
mod derivation;
mod distribution;
mod dtype;
mod element;
mod expression;
pub mod golden;
mod inline;
pub mod layers;
pub mod minifloat;
mod ops;
mod options;
mod philox;
mod precision;
mod profile;
mod resize;
mod scalar;
mod serialize;
mod shape;
mod text;
mod windows;

pub use bytes::{Bytes, Refetched};
pub use data::{DataError, TensorData, Tolerance};
pub use derivation::{Derivation, DerivationError, DerivationTarget, KeyBase, Misfit};
pub use distribution::Distribution;
pub use dtype::{DType, DTypeKind, FloatDType, IntDType};
pub use element::{Element, ElementConversion, ToElement};
pub use expression::{Expression, Step, StepId};
pub use half::{bf16, f16};
pub use inline::{Dims, InlineVec};
pub use layers::in_pytorch;
pub use minifloat::Minifloat;
pub use ops::{Activation, ArgReduceOp, BinaryOp, CompareOp, CumulativeOp, ReduceOp, ScatterOp, UnaryOp};
pub use options::{
    AttentionOptions, ConvOptions, ConvTransposeOptions, CoordinateTransform, FullyMasked, InterpolateMode,
    InterpolateOptions, NearestRounding, PadMode, PoolOp, PoolOptions, RnnDirection, RnnKind, RnnOptions,
};
pub use philox::Philox;
pub use precision::Precision;
pub use profile::{Peaks, Profile, ProfiledCall, ProfiledModule, ProfiledOperation, ProfiledPass};
pub use resize::{ResizedAxis, Taps, resized_axes};
pub use scalar::Scalar;
pub use shape::Shape;
pub use text::{Line, Lines, Message, clipped, is_invisible, quoted};
pub use windows::{Windows, spatial};
