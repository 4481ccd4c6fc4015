//! Compiled kernels on disk, so that a program's second start compiles nothing, and beside them what cuBLASLt advised.
//!
//! A file holds the key, the source and the code: what is found is used only where all of the source is the same, and the code is as long as it
//! was and has its hash: the driver reads code without being told where it ends. Files are written
//! aside and renamed, so that programs that run at once do not see halves. What cannot be written is compiled anew the next time, as is what was removed since it was
//! not used for longest, where files were a gibibyte together.

use kiln_gpu::{kept, tuning};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The variable that names the folder; where it is empty, nothing is kept.
pub const FOLDER: &str = "KILN_CUDA_CACHE";

/// What a file begins with, and the number of its format.
const MAGIC: &[u8; 12] = b"kiln cubin 2";

/// Compiled kernels on disk. What cuBLASLt advised is kept likewise: for "compiler" read the library, for "source" a product, for "code" an algorithm.
#[derive(Debug, Clone)]
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// The one in a folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The one in the folder that [`FOLDER`] names, or in the user's folder for such (`$XDG_CACHE_HOME`, `~/.cache`,
    /// `%LOCALAPPDATA%`); nothing where there is none.
    pub fn of_user() -> Option<Self> {
        tuning::folder(FOLDER, "cuda").map(Self::new)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The code that a compiler made of a source for an architecture, if it is there.
    pub fn find(&self, compiler: &str, architecture: &str, source: &str) -> Option<Vec<u8>> {
        let header = header(compiler, architecture, source);
        let path = self.path(architecture, &header);
        // What is no file is not opened: a pipe of the name would be waited for.
        let length = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?.len();
        let mut file = fs::File::open(path).ok()?;
        let mut begins = vec![0; header.len() + SEAL];
        file.read_exact(&mut begins).ok()?;
        // Nor is anything that may be as long as it likes read before it is known to be what was looked for.
        let sealed = begins.strip_prefix(&*header)?;
        let code_length = length.checked_sub(begins.len() as u64)?;
        if sealed[..8] != code_length.to_le_bytes() {
            return None;
        }
        let mut code = vec![0; usize::try_from(code_length).ok()?];
        file.read_exact(&mut code).ok()?;
        kept::mark_used(&file);
        (sealed == seal(&code)).then_some(code)
    }

    /// Keeps code.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep(&self, compiler: &str, architecture: &str, source: &str, code: &[u8]) -> io::Result<()> {
        let mut file = header(compiler, architecture, source);
        let path = self.path(architecture, &file);
        file.extend_from_slice(&seal(code));
        file.extend_from_slice(code);
        kept::write(&path, &file)
    }

    fn path(&self, architecture: &str, header: &[u8]) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        header.hash(&mut hasher);
        self.folder.join(architecture).join(format!("{:016x}.cubin", hasher.finish()))
    }
}

/// Bytes of what a file says of its code.
const SEAL: usize = 16;

/// What a file says of its code: its length and its hash.
fn seal(code: &[u8]) -> [u8; SEAL] {
    let mut hasher = DefaultHasher::new();
    code.hash(&mut hasher);
    let mut seal = [0; SEAL];
    seal[..8].copy_from_slice(&(code.len() as u64).to_le_bytes());
    seal[8..].copy_from_slice(&hasher.finish().to_le_bytes());
    seal
}

/// All that a file says before its code and what it says of that.
fn header(compiler: &str, architecture: &str, source: &str) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    for part in [compiler, architecture, source] {
        header.extend_from_slice(&(part.len() as u64).to_le_bytes());
        header.extend_from_slice(part.as_bytes());
    }
    header
}

#[cfg(test)]
mod tests {
    use super::Cache;

    #[test]
    fn only_the_same_source_finds_its_code() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path());
        assert_eq!(cache.find("nvrtc 13.0", "sm_90", "a"), None);
        cache.keep("nvrtc 13.0", "sm_90", "a", b"code").unwrap();
        assert_eq!(cache.find("nvrtc 13.0", "sm_90", "a").as_deref(), Some(&b"code"[..]));
        for (compiler, architecture, source) in
            [("nvrtc 13.1", "sm_90", "a"), ("nvrtc 13.0", "sm_80", "a"), ("nvrtc 13.0", "sm_90", "ab")]
        {
            assert_eq!(cache.find(compiler, architecture, source), None);
        }
    }

    #[test]
    fn code_that_is_not_whole_is_compiled_anew() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path());
        cache.keep("nvrtc", "sm_90", "a", b"code").unwrap();
        let path = cache.path("sm_90", &super::header("nvrtc", "sm_90", "a"));
        let whole = std::fs::read(&path).unwrap();
        let mut changed = whole.clone();
        *changed.last_mut().unwrap() ^= 1;
        let longer = [&whole[..], b"!"].concat();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(cache.find("nvrtc", "sm_90", "a"), None, "{length} bytes");
        }
        for other in [changed, longer] {
            std::fs::write(&path, other).unwrap();
            assert_eq!(cache.find("nvrtc", "sm_90", "a"), None);
        }
        cache.keep("nvrtc", "sm_90", "a", b"code").unwrap();
        assert_eq!(cache.find("nvrtc", "sm_90", "a").as_deref(), Some(&b"code"[..]));
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left aside");
    }

    /// What a process wrote aside that was killed meanwhile stays behind.
    #[test]
    fn what_was_written_aside_long_ago_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path());
        let beside = folder.path().join("sm_90");
        std::fs::create_dir(&beside).unwrap();
        let hours = |hours: u64| std::time::SystemTime::now() - std::time::Duration::from_secs(hours * 3600);
        let all = [
            ("0123456789abcdef.fedcba9876543210", 48, false),
            ("0123456789abcdef.1234.ThreadId(7)", 48, false),
            // Somebody may be writing it.
            ("0123456789abcdef.fedcba9876543211", 1, true),
            // Somebody else's, and what is kept.
            ("0123456789abcdef.fedcba987654321", 48, true),
            ("0123456789abcdef.cubin", 48, true),
            ("README.fedcba9876543210", 48, true),
        ];
        for (name, age, _) in all {
            std::fs::File::create_new(beside.join(name)).unwrap().set_modified(hours(age)).unwrap();
        }
        cache.keep("nvrtc", "sm_90", "a", b"code").unwrap();
        for (name, _, stays) in all {
            assert_eq!(beside.join(name).exists(), stays, "{name}");
        }
        // A process looks once.
        std::fs::File::create_new(beside.join(all[0].0)).unwrap().set_modified(hours(48)).unwrap();
        cache.keep("nvrtc", "sm_90", "b", b"code").unwrap();
        assert!(beside.join(all[0].0).exists());
    }

    /// A pipe in a file's place has no end, and no beginning until somebody writes to it.
    #[cfg(unix)]
    #[test]
    fn what_is_no_file_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path());
        cache.keep("nvrtc", "sm_90", "a", b"code").unwrap();
        let path = cache.path("sm_90", &super::header("nvrtc", "sm_90", "a"));
        std::fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let (found, is_found) = std::sync::mpsc::channel();
        let other = cache.clone();
        std::thread::spawn(move || found.send(other.find("nvrtc", "sm_90", "a")));
        assert_eq!(is_found.recv_timeout(std::time::Duration::from_secs(10)), Ok(None));
        cache.keep("nvrtc", "sm_90", "a", b"code").unwrap();
        assert_eq!(cache.find("nvrtc", "sm_90", "a").as_deref(), Some(&b"code"[..]));
    }

    #[test]
    fn another_source_of_the_same_name_is_not_taken_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path());
        cache.keep("nvrtc", "sm_90", "a", b"code").unwrap();
        // As if both had one hash.
        let path = |source| cache.path("sm_90", &super::header("nvrtc", "sm_90", source));
        std::fs::rename(path("a"), path("b")).unwrap();
        assert_eq!(cache.find("nvrtc", "sm_90", "b"), None);
    }
}
