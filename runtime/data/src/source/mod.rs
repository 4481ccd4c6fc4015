//! Where datasets come from.

pub mod huggingface;
