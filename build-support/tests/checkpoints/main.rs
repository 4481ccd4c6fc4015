//! `kiln convert` and `kiln inspect` of checkpoints, as they are run, and what they write in modules.

mod command;
mod matrix;
#[path = "../../../runtime/tests/shared/net.rs"]
mod net;
mod places;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A file under `fixtures/weights`.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/weights").join(name)
}

/// Runs the command.
fn kiln(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kiln")).args(arguments).output().unwrap()
}

/// What a run printed on standard output; it must have ended well.
fn printed(arguments: &[&str]) -> String {
    let output = kiln(arguments);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}
