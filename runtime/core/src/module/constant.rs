//! Modules without parameters: numbers, texts, tensors that are not parameters, markers, ignored values.

use super::{
    AutodiffModule, Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper,
    ModuleVisitor,
};
use crate::record::{PrecisionSettings, Record};
use crate::tensor::backend::{AutodiffBackend, Backend};
use alloc::{format, string::String};
use core::fmt::{Debug, Display, Formatter};
use core::marker::PhantomData;
use serde::de::{IgnoredAny, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The record of what has no state.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConstantRecord;

impl ConstantRecord {
    /// The one value.
    pub fn new() -> Self {
        Self
    }
}

impl Serialize for ConstantRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_none()
    }
}

impl<'de> Deserialize<'de> for ConstantRecord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(kiln_record::CONSTANT, Skipped)
    }
}

/// Takes whatever an older module had where a constant is now. An error is no value: behind it a list would go on as long as a file
/// claims, and who reads MessagePack loses count of how deep it is.
struct Skipped;

impl<'de> Visitor<'de> for Skipped {
    type Value = ConstantRecord;

    fn expecting(&self, f: &mut Formatter<'_>) -> core::fmt::Result {
        f.write_str("a constant")
    }

    fn visit_none<E>(self) -> Result<ConstantRecord, E> {
        Ok(ConstantRecord)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<ConstantRecord, D::Error> {
        deserializer.deserialize_option(IgnoredAny).map(|_| ConstantRecord)
    }
}

impl<B: Backend> Record<B> for ConstantRecord {
    type Item<S: PrecisionSettings> = ConstantRecord;

    fn into_item<S: PrecisionSettings>(self) -> Self::Item<S> {
        self
    }

    fn from_item<S: PrecisionSettings>(item: Self::Item<S>, _device: &B::Device) -> Self {
        item
    }
}

/// The methods of `Module` for a type without state.
macro_rules! constant_methods {
    () => {
        type Record = ConstantRecord;

        fn num_params(&self) -> usize {
            0
        }

        fn visit<V: ModuleVisitor<B>>(&self, _visitor: &mut V) {}

        fn map<M: ModuleMapper<B>>(self, _mapper: &mut M) -> Self {
            self
        }

        fn load_record(self, _record: Self::Record) -> Self {
            self
        }

        fn into_record(self) -> Self::Record {
            ConstantRecord
        }
    };
    (anywhere) => {
        constant_methods!();

        fn to_device(self, _device: &B::Device) -> Self {
            self
        }

        fn fork(self, _device: &B::Device) -> Self {
            self
        }

        fn collect_devices(&self, devices: Devices<B>) -> Devices<B> {
            devices
        }
    };
}

pub(crate) use constant_methods;

/// Implements everything for plain values.
macro_rules! constants {
    ($($ty:ty),*) => {
        $(
            impl<B: Backend> Module<B> for $ty {
                constant_methods!(anywhere);
            }

            impl<B: AutodiffBackend> AutodiffModule<B> for $ty {
                type InnerModule = $ty;

                fn valid(&self) -> Self::InnerModule {
                    self.clone()
                }
            }

            impl ModuleDisplayDefault for $ty {
                fn content(&self, content: Content) -> Option<Content> {
                    content.add_formatted(self).optional()
                }
            }

            impl ModuleDisplay for $ty {}
        )*
    };
}

constants!(String, bool, f64, f32, half::bf16, half::f16);
constants!(crate::tensor::Activation);
constants!(usize, u64, u32, u16, u8, isize, i64, i32, i16, i8);

impl ModuleDisplayDefault for str {
    fn content(&self, content: Content) -> Option<Content> {
        content.add_formatted(self).optional()
    }
}

impl ModuleDisplay for str {}

impl<B: Backend> Module<B> for PhantomData<B> {
    constant_methods!(anywhere);
}

impl<B: AutodiffBackend> AutodiffModule<B> for PhantomData<B> {
    type InnerModule = PhantomData<B::InnerBackend>;

    fn valid(&self) -> Self::InnerModule {
        PhantomData
    }
}

impl<B: Backend> ModuleDisplayDefault for PhantomData<B> {
    fn content(&self, content: Content) -> Option<Content> {
        content.add_formatted("PhantomData").optional()
    }
}

impl<B: Backend> ModuleDisplay for PhantomData<B> {}

/// A value in a module that is none of Kiln's business: it is kept and cloned, never recorded or visited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ignored<T>(pub T);

impl<T> core::ops::Deref for Ignored<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Debug> Display for Ignored<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl<B: Backend, T: Sync + Send + Debug + Clone> Module<B> for Ignored<T> {
    constant_methods!(anywhere);
}

impl<B: AutodiffBackend, T: Sync + Send + Debug + Clone> AutodiffModule<B> for Ignored<T> {
    type InnerModule = Ignored<T>;

    fn valid(&self) -> Self::InnerModule {
        self.clone()
    }
}

impl<T: Sync + Send + Debug + Clone> ModuleDisplayDefault for Ignored<T> {
    fn content(&self, content: Content) -> Option<Content> {
        content.add_formatted(&format!("{:?}", self.0)).optional()
    }
}

impl<T: Sync + Send + Debug + Clone> ModuleDisplay for Ignored<T> {}
