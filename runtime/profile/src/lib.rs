//! A profiler of forward passes: [`Profiled<B>`] is a [`Backend`](kiln_tensor::backend::Backend) that computes on `B` and, while a
//! [`Recorder`] records, notes what each operation took, with its FLOPs and bytes.
//!
//! `kiln bench --profile` is made of it. Generated source that is made for it tells the module that it is in ([`scope`]); other source
//! calls nothing here, and pays nothing.
//!
//! Times are those of the calling thread, so what they say of backends that compute after a call returned (GPUs) is what recording a kernel takes.
//!
//! - `cost`: what each operation is called, and what it computes and moves.
//! - `backend`: every method of the trait, timed.
//! - `recorder`: what a thread records, and its modules.
//! - [`peaks`]: what the machine can do.
#![forbid(unsafe_code)]

mod backend;
mod cost;
mod peaks;
mod recorder;

pub use backend::Profiled;
pub use kiln_types::{Peaks, Profile, ProfiledCall, ProfiledModule, ProfiledOperation, ProfiledPass};
pub use peaks::peaks;
pub use recorder::{Recorder, scope};

/// A profile as JSON, in one line.
///
/// # Panics
/// Never: a profile's numbers and texts all have a form in JSON.
pub fn to_json(profile: &Profile) -> String {
    serde_json::to_string(profile).unwrap_or_else(|error| panic!("a profile as JSON: {error}"))
}
