//! Dependencies alone: see `Cargo.toml`.
