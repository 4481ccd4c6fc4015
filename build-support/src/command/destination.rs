//! What `kiln convert` finds where it is going to write and does not replace: what people wrote, and weights that others saved.

use super::CommandError;
use kiln_codegen::GENERATED_MARK;
use kiln_record::safetensors::Safetensors;
use std::io::Read;
use std::path::Path;

/// Refuses to replace source that Kiln did not generate.
pub(super) fn check_source(path: &Path) -> Result<(), CommandError> {
    let mut start = vec![0; GENERATED_MARK.len()];
    match std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut start)) {
        Ok(()) if start == GENERATED_MARK.as_bytes() => Ok(()),
        // One that is not there, and what cannot be read, which writing tells of.
        Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => Ok(()),
        Ok(()) | Err(_) => Err(CommandError::Usage(format!(
            "the source would replace {}, which does not begin with `{}`; give another folder, or move the file away",
            path.display(),
            GENERATED_MARK.trim_end()
        ))),
    }
}

/// Refuses to replace weights that Kiln did not write, such as a model's own that lie beside it.
pub(super) fn check_record(path: &Path) -> Result<(), CommandError> {
    let safetensors = path.extension().is_some_and(|extension| extension == "safetensors") && path.is_file();
    if safetensors && Safetensors::open(path).is_ok_and(|file| file.version().is_none()) {
        return Err(CommandError::Usage(format!(
            "the record would replace {}, which Kiln did not write; give another folder",
            path.display()
        )));
    }
    Ok(())
}

/// Whether the skeleton at this path is another than the one that was made: people complete skeletons, and what they wrote stays.
pub(super) fn is_anothers(path: &Path, made: &str) -> bool {
    std::fs::read(path).is_ok_and(|there| there != made.as_bytes())
}
