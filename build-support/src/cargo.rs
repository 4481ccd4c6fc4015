//! What a build script says to cargo.
//!
//! Cargo reads lines, and some of them run the linker with arguments: no text of a file may end its own line. All lines are made
//! here.

use crate::BuildError;
use kiln_types::{Line, is_invisible};
use std::path::Path;

/// Lines for cargo, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct CargoLines(Vec<String>);

impl CargoLines {
    /// Has cargo run the build script again when a file or a folder changes.
    ///
    /// # Errors
    /// When the path has a character that may end a line, or that a person would not see, or is no Unicode.
    pub(crate) fn watch(&mut self, path: &Path) -> Result<(), BuildError> {
        let text = checked(path)?;
        self.0.push(format!("cargo::rerun-if-changed={text}"));
        Ok(())
    }

    /// Shows a message of one or more lines, of which each is a warning.
    pub(crate) fn warning(&mut self, message: &str) {
        self.0.extend(message.lines().map(|line| format!("cargo::warning={}", Line(line))));
    }

    /// Ends the build with a message of one or more lines.
    pub(crate) fn error(&mut self, message: &str) {
        self.0.extend(message.lines().map(|line| format!("cargo::error={}", Line(line))));
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.0
    }
}

/// The text of a path that may stand in a line for cargo or in source.
pub(crate) fn checked(path: &Path) -> Result<&str, BuildError> {
    let text = path.to_str().filter(|text| !text.contains(is_invisible));
    text.ok_or_else(|| BuildError::Path { path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_ends_its_line() {
        let mut lines = CargoLines::default();
        for path in ["a\ncargo::rustc-link-arg=x", "a\rb", "a\u{1b}[2Jb", "a\u{2028}b", "\u{202e}a"] {
            assert!(lines.watch(Path::new(path)).is_err(), "{path:?}");
        }
        #[cfg(unix)]
        {
            use std::os::unix::ffi::OsStrExt;
            let latin = std::ffi::OsStr::from_bytes(b"gr\xf6\xdfe.onnx");
            assert!(lines.watch(Path::new(latin)).is_err());
        }
        lines.watch(Path::new("fine ü.onnx")).expect("a plain path");
        lines.warning("a\ncargo::rustc-link-arg=x\rcargo::rustc-link-arg=y");
        lines.error("first\nsecond\r\ncargo::rustc-link-arg=x\rcargo::rustc-link-arg=y");
        let expected = [
            "cargo::rerun-if-changed=fine ü.onnx",
            "cargo::warning=a",
            r"cargo::warning=cargo::rustc-link-arg=x\rcargo::rustc-link-arg=y",
            "cargo::error=first",
            "cargo::error=second",
            r"cargo::error=cargo::rustc-link-arg=x\rcargo::rustc-link-arg=y",
        ];
        assert_eq!(lines.into_lines(), expected);
    }
}
