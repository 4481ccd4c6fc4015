//! Where local copies of datasets lie.

use std::env;
use std::path::PathBuf;

/// Names another folder for the local copies of datasets than [`folder`]'s usual one.
pub(crate) const VARIABLE: &str = "KILN_DATASETS";

/// The folder of all local copies: `$KILN_DATASETS`, else the one that Burn uses, `~/.cache/burn-dataset`, so that what
/// was fetched once serves both.
pub(crate) fn folder() -> PathBuf {
    match env::var_os(VARIABLE).filter(|folder| !folder.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None => env::home_dir().unwrap_or_default().join(".cache").join("burn-dataset"),
    }
}

/// A name without what cannot stand in a file's name, or would lead out of its folder. Empty when nothing is left.
#[cfg(feature = "sqlite")]
pub(crate) fn file_name(name: &str) -> String {
    let forbidden = |c: char| c.is_control() || r#"/\?<>:*|""#.contains(c);
    let kept: String = name.chars().filter(|&c| !forbidden(c)).collect();
    if kept.chars().all(|c| c == '.') { String::new() } else { kept }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use super::file_name;

    #[test]
    fn names_stay_in_their_folder() {
        assert_eq!(file_name("dbpedia_14"), "dbpedia_14");
        assert_eq!(file_name("someone/things"), "someonethings");
        assert_eq!(file_name("../../etc/passwd\0"), "....etcpasswd");
        assert_eq!(file_name("../.."), "");
    }
}
