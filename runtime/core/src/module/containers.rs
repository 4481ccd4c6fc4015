//! Modules of modules: options, vectors, arrays, tuples.

use super::{
    AutodiffModule, Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper,
    ModuleVisitor,
};
use crate::record::RecordCheck;
use crate::tensor::backend::{AutodiffBackend, Backend};
use alloc::{format, string::ToString, vec::Vec};
use core::fmt::Debug;

impl<B: Backend, T: Module<B>> Module<B> for Option<T> {
    type Record = Option<T::Record>;

    fn num_params(&self) -> usize {
        self.as_ref().map_or(0, Module::num_params)
    }

    fn visit<V: ModuleVisitor<B>>(&self, visitor: &mut V) {
        if let Some(module) = self {
            module.visit(visitor);
        }
    }

    fn map<M: ModuleMapper<B>>(self, mapper: &mut M) -> Self {
        Option::map(self, |module| module.map(mapper))
    }

    /// A module without parameters stays; of others, those that the record lacks become `None`.
    fn load_record(self, record: Self::Record) -> Self {
        if !self.has_params() {
            return self;
        }
        self.zip(record).map(|(module, record)| module.load_record(record))
    }

    fn check_record(&self, record: &Self::Record, check: &mut RecordCheck) {
        match (self, record) {
            (Some(module), Some(record)) => module.check_record(record, check),
            // A module without parameters takes nothing from a record.
            (Some(module), None) if module.has_params() => check.missing_part(),
            (None, Some(_)) => check.unknown_part(),
            (Some(_) | None, None) => {}
        }
    }

    fn into_record(self) -> Self::Record {
        Option::map(self, Module::into_record)
    }

    fn to_device(self, device: &B::Device) -> Self {
        Option::map(self, |module| module.to_device(device))
    }

    fn fork(self, device: &B::Device) -> Self {
        Option::map(self, |module| module.fork(device))
    }

    fn collect_devices(&self, devices: Devices<B>) -> Devices<B> {
        match self {
            Some(module) => module.collect_devices(devices),
            None => devices,
        }
    }
}

impl<B: AutodiffBackend, T: AutodiffModule<B>> AutodiffModule<B> for Option<T> {
    type InnerModule = Option<T::InnerModule>;

    fn valid(&self) -> Self::InnerModule {
        self.as_ref().map(AutodiffModule::valid)
    }
}

impl<T: ModuleDisplay> ModuleDisplayDefault for Option<T> {
    fn content(&self, content: Content) -> Option<Content> {
        match self {
            Some(module) => content.add_single(module).optional(),
            None => content.add_single("None").optional(),
        }
    }
}

impl<T: ModuleDisplay> ModuleDisplay for Option<T> {}

/// Shows one item of a sequence to a visitor, under its index.
fn visit_item<B: Backend, T: Module<B>, V: ModuleVisitor<B>>(
    module: &T,
    index: usize,
    container: &str,
    visitor: &mut V,
) {
    let name = index.to_string();
    visitor.enter_module(&name, container);
    module.visit(visitor);
    visitor.exit_module(&name, container);
}

/// Maps one item of a sequence, under its index.
fn map_item<B: Backend, T: Module<B>, M: ModuleMapper<B>>(
    module: T,
    index: usize,
    container: &str,
    mapper: &mut M,
) -> T {
    let name = index.to_string();
    mapper.enter_module(&name, container);
    let module = module.map(mapper);
    mapper.exit_module(&name, container);
    module
}

/// The items of a sequence as fields named by their index.
fn add_items<T: ModuleDisplay>(items: &[T], content: Content) -> Content {
    items.iter().enumerate().fold(content, |content, (index, module)| content.add(&index.to_string(), module))
}

/// Checks a record's items against a module's, as far as both have them.
fn check_items<B: Backend, T: Module<B>>(modules: &[T], records: &[T::Record], check: &mut RecordCheck) {
    for (index, (module, record)) in modules.iter().zip(records).enumerate() {
        check_item(module, record, index, check);
    }
}

fn check_item<B: Backend, T: Module<B>>(
    module: &T,
    record: &T::Record,
    index: usize,
    check: &mut RecordCheck,
) {
    check.enter(&index.to_string());
    module.check_record(record, check);
    check.exit();
}

impl<B: Backend, T: Module<B>> Module<B> for Vec<T> {
    type Record = Vec<T::Record>;

    fn num_params(&self) -> usize {
        self.iter().map(Module::num_params).sum()
    }

    fn visit<V: ModuleVisitor<B>>(&self, visitor: &mut V) {
        self.iter().enumerate().for_each(|(index, module)| visit_item(module, index, "Vec", visitor));
    }

    fn map<M: ModuleMapper<B>>(self, mapper: &mut M) -> Self {
        self.into_iter().enumerate().map(|(index, module)| map_item(module, index, "Vec", mapper)).collect()
    }

    /// # Panics
    /// When the record has another number of items.
    fn load_record(self, record: Self::Record) -> Self {
        assert_eq!(self.len(), record.len(), "the record's list is not as long as the module's");
        self.into_iter().zip(record).map(|(module, record)| module.load_record(record)).collect()
    }

    fn check_record(&self, record: &Self::Record, check: &mut RecordCheck) {
        check.length(self.len(), record.len());
        check_items(self, record, check);
    }

    fn into_record(self) -> Self::Record {
        self.into_iter().map(Module::into_record).collect()
    }

    fn to_device(self, device: &B::Device) -> Self {
        self.into_iter().map(|module| module.to_device(device)).collect()
    }

    fn fork(self, device: &B::Device) -> Self {
        self.into_iter().map(|module| module.fork(device)).collect()
    }

    fn collect_devices(&self, devices: Devices<B>) -> Devices<B> {
        self.iter().fold(devices, |devices, module| module.collect_devices(devices))
    }
}

impl<B: AutodiffBackend, T: AutodiffModule<B>> AutodiffModule<B> for Vec<T> {
    type InnerModule = Vec<T::InnerModule>;

    fn valid(&self) -> Self::InnerModule {
        self.iter().map(AutodiffModule::valid).collect()
    }
}

impl<T: ModuleDisplay> ModuleDisplayDefault for Vec<T> {
    fn content(&self, content: Content) -> Option<Content> {
        add_items(self, content).set_top_level_type(&format!("Vec<0..{}>", self.len())).optional()
    }
}

impl<T: ModuleDisplay> ModuleDisplay for Vec<T> {}

impl<const N: usize, B: Backend, T: Module<B>> Module<B> for [T; N] {
    type Record = [T::Record; N];

    fn num_params(&self) -> usize {
        self.iter().map(Module::num_params).sum()
    }

    fn visit<V: ModuleVisitor<B>>(&self, visitor: &mut V) {
        self.iter().enumerate().for_each(|(index, module)| visit_item(module, index, "Array", visitor));
    }

    fn map<M: ModuleMapper<B>>(self, mapper: &mut M) -> Self {
        let mut index = 0..;
        // The range has no end, so there always is a next index.
        <[T; N]>::map(self, |module| map_item(module, index.next().unwrap_or_default(), "Array", mapper))
    }

    fn load_record(self, record: Self::Record) -> Self {
        let mut records = record.into_iter();
        <[T; N]>::map(self, |module| match records.next() {
            Some(record) => module.load_record(record),
            None => unreachable!("both arrays have {N} items"),
        })
    }

    fn check_record(&self, record: &Self::Record, check: &mut RecordCheck) {
        check_items(self, record, check);
    }

    fn into_record(self) -> Self::Record {
        <[T; N]>::map(self, Module::into_record)
    }

    fn to_device(self, device: &B::Device) -> Self {
        <[T; N]>::map(self, |module| module.to_device(device))
    }

    fn fork(self, device: &B::Device) -> Self {
        <[T; N]>::map(self, |module| module.fork(device))
    }

    fn collect_devices(&self, devices: Devices<B>) -> Devices<B> {
        self.iter().fold(devices, |devices, module| module.collect_devices(devices))
    }
}

impl<const N: usize, B: AutodiffBackend, T: AutodiffModule<B>> AutodiffModule<B> for [T; N]
where
    T::InnerModule: Debug,
{
    type InnerModule = [T::InnerModule; N];

    fn valid(&self) -> Self::InnerModule {
        self.each_ref().map(AutodiffModule::valid)
    }
}

impl<const N: usize, T: ModuleDisplay> ModuleDisplayDefault for [T; N] {
    fn content(&self, content: Content) -> Option<Content> {
        add_items(self, content).set_top_level_type(&format!("[0..{N}]")).optional()
    }
}

impl<const N: usize, T: ModuleDisplay> ModuleDisplay for [T; N] {}

/// Implements everything for the tuples of one length.
macro_rules! tuple_module {
    ($($ty:ident $index:tt),*) => {
        impl<B: Backend, $($ty: Module<B>),*> Module<B> for ($($ty,)*) {
            type Record = ($($ty::Record,)*);

            fn num_params(&self) -> usize {
                0 $(+ self.$index.num_params())*
            }

            fn visit<V: ModuleVisitor<B>>(&self, visitor: &mut V) {
                $(visit_item(&self.$index, $index, "Tuple", visitor);)*
            }

            fn map<M: ModuleMapper<B>>(self, mapper: &mut M) -> Self {
                ($(map_item(self.$index, $index, "Tuple", mapper),)*)
            }

            fn load_record(self, record: Self::Record) -> Self {
                ($(self.$index.load_record(record.$index),)*)
            }

            fn check_record(&self, record: &Self::Record, check: &mut RecordCheck) {
                $(check_item(&self.$index, &record.$index, $index, check);)*
            }

            fn into_record(self) -> Self::Record {
                ($(self.$index.into_record(),)*)
            }

            fn to_device(self, device: &B::Device) -> Self {
                ($(self.$index.to_device(device),)*)
            }

            fn fork(self, device: &B::Device) -> Self {
                ($(self.$index.fork(device),)*)
            }

            fn collect_devices(&self, devices: Devices<B>) -> Devices<B> {
                $(let devices = self.$index.collect_devices(devices);)*
                devices
            }
        }

        impl<B: AutodiffBackend, $($ty: AutodiffModule<B>),*> AutodiffModule<B> for ($($ty,)*) {
            type InnerModule = ($($ty::InnerModule,)*);

            fn valid(&self) -> Self::InnerModule {
                ($(self.$index.valid(),)*)
            }
        }

        impl<$($ty: ModuleDisplay),*> ModuleDisplayDefault for ($($ty,)*) {
            fn content(&self, content: Content) -> Option<Content> {
                let names = [$(stringify!($ty)),*];
                content
                    $(.add(stringify!($index), &self.$index))*
                    .set_top_level_type(&format!("({})", names.join(", ")))
                    .optional()
            }
        }

        impl<$($ty: ModuleDisplay),*> ModuleDisplay for ($($ty,)*) {}
    };
}

tuple_module!(L0 0, L1 1);
tuple_module!(L0 0, L1 1, L2 2);
tuple_module!(L0 0, L1 1, L2 2, L3 3);
tuple_module!(L0 0, L1 1, L2 2, L3 3, L4 4);
tuple_module!(L0 0, L1 1, L2 2, L3 3, L4 4, L5 5);
tuple_module!(L0 0, L1 1, L2 2, L3 3, L4 4, L5 5, L6 6);
tuple_module!(L0 0, L1 1, L2 2, L3 3, L4 4, L5 5, L6 6, L7 7);
tuple_module!(L0 0, L1 1, L2 2, L3 3, L4 4, L5 5, L6 6, L7 7, L8 8);
tuple_module!(L0 0, L1 1, L2 2, L3 3, L4 4, L5 5, L6 6, L7 7, L8 8, L9 9);
