//! Recorders in memory.

use super::{PrecisionSettings, Recorder, RecorderError};
use crate::tensor::backend::Backend;
use alloc::{format, string::String, vec::Vec};
use core::fmt::Debug;
use core::marker::PhantomData;
use kiln_record::Format;
use serde::{Serialize, de::DeserializeOwned};

/// A recorder to and from bytes in memory, which it takes as `L`.
pub trait BytesRecorder<B: Backend, L: AsRef<[u8]> + Send + Sync + Debug + Clone + Default>:
    Recorder<B, RecordArgs = (), RecordOutput = Vec<u8>, LoadArgs = L>
{
}

/// Bincode in memory; the bytes of a [`BinFileRecorder`](super::BinFileRecorder)'s file fit too.
#[derive(Debug, Default, Clone)]
pub struct BinBytesRecorder<
    S: PrecisionSettings,
    L: AsRef<[u8]> + Send + Sync + Debug + Clone + Default = Vec<u8>,
> {
    settings: PhantomData<S>,
    source: PhantomData<L>,
}

impl<S: PrecisionSettings, L: AsRef<[u8]> + Send + Sync + Debug + Clone + Default> BinBytesRecorder<S, L> {
    /// A recorder.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<B, S, L> BytesRecorder<B, L> for BinBytesRecorder<S, L>
where
    B: Backend,
    S: PrecisionSettings,
    L: AsRef<[u8]> + Send + Sync + Debug + Clone + Default,
{
}

impl<B, S, L> Recorder<B> for BinBytesRecorder<S, L>
where
    B: Backend,
    S: PrecisionSettings,
    L: AsRef<[u8]> + Send + Sync + Debug + Clone + Default,
{
    type Settings = S;
    type RecordArgs = ();
    type RecordOutput = Vec<u8>;
    type LoadArgs = L;

    fn save_item<I: Serialize>(&self, item: I, _args: ()) -> Result<Vec<u8>, RecorderError> {
        Ok(Format::Bincode.to_vec(&item)?)
    }

    fn load_item<I: DeserializeOwned>(&self, args: &mut L) -> Result<I, RecorderError> {
        Ok(Format::Bincode.read(args.as_ref())?)
    }

    fn format_name(&self) -> String {
        format!(
            "burn_core::record::memory::BinBytesRecorder<burn_core::record::settings::{}>",
            S::PRECISION.settings()
        )
    }
}

/// MessagePack with field names, in memory.
#[cfg(feature = "std")]
#[derive(Debug, Default, Clone)]
pub struct NamedMpkBytesRecorder<S: PrecisionSettings> {
    settings: PhantomData<S>,
}

#[cfg(feature = "std")]
impl<S: PrecisionSettings> NamedMpkBytesRecorder<S> {
    /// A recorder.
    pub fn new() -> Self {
        Self::default()
    }
}

#[cfg(feature = "std")]
impl<B: Backend, S: PrecisionSettings> BytesRecorder<B, Vec<u8>> for NamedMpkBytesRecorder<S> {}

#[cfg(feature = "std")]
impl<B: Backend, S: PrecisionSettings> Recorder<B> for NamedMpkBytesRecorder<S> {
    type Settings = S;
    type RecordArgs = ();
    type RecordOutput = Vec<u8>;
    type LoadArgs = Vec<u8>;

    fn save_item<I: Serialize>(&self, item: I, _args: ()) -> Result<Vec<u8>, RecorderError> {
        Ok(Format::NamedMpk.to_vec(&item)?)
    }

    fn load_item<I: DeserializeOwned>(&self, args: &mut Vec<u8>) -> Result<I, RecorderError> {
        Ok(Format::NamedMpk.read(args)?)
    }

    fn format_name(&self) -> String {
        format!(
            "burn_core::record::memory::NamedMpkBytesRecorder<burn_core::record::settings::{}>",
            S::PRECISION.settings()
        )
    }
}
