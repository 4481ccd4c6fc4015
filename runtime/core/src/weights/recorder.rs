//! Recorders that read checkpoints, in the form of Burn's.

use super::item::read_item;
use super::{ImportError, LoadArgs};
use crate::config::Config;
use crate::record::{PrecisionSettings, Record, Recorder, RecorderError};
use crate::tensor::backend::Backend;
use alloc::string::ToString;
use core::marker::PhantomData;
use serde::{Serialize, de::DeserializeOwned};
use std::path::{Path, PathBuf};

/// Declares a recorder.
macro_rules! checkpoint_recorder {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// It only loads; see [`save_weights`](super::save_weights) for the way back. A record knows the names and types
        /// of its parameters, but not their shapes, and not what its module's lists hold: to have those checked, give it to
        /// [`Module::try_load_record`](crate::module::Module::try_load_record), or use [`load_weights`](super::load_weights).
        /// Of an enum the variant is taken that the tensors fit best. The record of a generated module whose parameters are
        /// made of others in a checkpoint is refused.
        #[derive(Clone, Debug, Default)]
        pub struct $name<S: PrecisionSettings> {
            settings: PhantomData<S>,
        }

        impl<S: PrecisionSettings> $name<S> {
            /// A recorder.
            pub fn new() -> Self {
                Self::default()
            }
        }

        impl<B: Backend, S: PrecisionSettings> Recorder<B> for $name<S> {
            type Settings = S;
            type RecordArgs = PathBuf;
            type RecordOutput = ();
            type LoadArgs = LoadArgs;

            /// Loads a record. Tensors that it does not have are left aside, parameters that the file does not have are
            /// an error that lists them all.
            fn load<R: Record<B>>(&self, args: LoadArgs, device: &B::Device) -> Result<R, RecorderError> {
                let item = read_item::<R::Item<S>>(&args)?;
                Ok(R::from_item::<S>(item, device))
            }

            fn save_item<I: Serialize>(&self, _item: I, _file: PathBuf) -> Result<(), RecorderError> {
                let what = concat!(stringify!($name), " only loads; `save_weights` writes a module's parameters");
                Err(RecorderError::Unknown(what.to_string()))
            }

            fn load_item<I: DeserializeOwned>(&self, args: &mut LoadArgs) -> Result<I, RecorderError> {
                Ok(read_item(args)?)
            }
        }
    };
}

checkpoint_recorder!(
    /// Loads records from PyTorch's files (`.pt`, `.pth`, `.bin`): state dicts, alone or beside other data, and the
    /// parameters of TorchScript archives.
    PyTorchFileRecorder
);
checkpoint_recorder!(
    /// Loads records from Safetensors files, or from the index of a sharded checkpoint.
    SafetensorsFileRecorder
);

/// Reads a configuration that stands beside the weights in a file of PyTorch, under a key or at the root.
///
/// # Errors
/// When the file cannot be read, has no such key, or what it has there does not fit `C`.
pub fn config_from_file<C: Config, P: AsRef<Path>>(
    path: P,
    top_level_key: Option<&str>,
) -> Result<C, ImportError> {
    Ok(kiln_weights::config_from_file(path, top_level_key)?)
}
