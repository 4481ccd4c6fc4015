//! What can go wrong with a checkpoint, and where.

use core::fmt;
use kiln_types::Message;

/// A checkpoint could not be read: a rule that was broken, and the place.
#[derive(Debug)]
pub struct WeightsError {
    /// The rule.
    pub kind: Box<ErrorKind>,
    /// The place.
    pub site: Box<Site>,
}

/// Where an error is, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Site {
    /// The file or folder.
    pub file: Option<String>,
    /// The archive's entry inside the file.
    pub entry: Option<String>,
    /// The path of the tensor, or of the value that was being read.
    pub key: Option<String>,
    /// The position inside the pickle, in bytes.
    pub position: Option<usize>,
}

/// Which rule a checkpoint breaks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The file system refused.
    #[error("{0}")]
    Io(std::io::Error),
    /// The file is of no format that is known.
    #[error("this is no checkpoint: {0}")]
    NotACheckpoint(String),
    /// The zip or tar archive is broken.
    #[error("the archive is broken: {0}")]
    Archive(String),
    /// The pickle is no valid one.
    #[error("the pickle is broken: {0}")]
    Pickle(String),
    /// The pickle names something that builds neither tensors nor plain data.
    #[error(
        "the pickle refers to `{0}`, which builds neither tensors nor plain data; nothing in a checkpoint is run. \
         If the file holds a whole module or other objects, load it in Python and save the weights alone: \
         `torch.save(model.state_dict(), path)`"
    )]
    Global(String),
    /// The tensor contradicts itself or its storage.
    #[error("the tensor is broken: {0}")]
    Tensor(String),
    /// The tensor is valid, but Kiln has no tensors of its kind.
    #[error("{0} cannot be read; convert the tensor before saving")]
    Unsupported(String),
    /// A limit of [`limits`](crate::limits).
    #[error("{what}, and the limit is {limit}")]
    Limit {
        /// What is too large.
        what: String,
        /// The limit.
        limit: u64,
    },
    /// The tensors show the same bytes of the file again and again, beyond
    /// [`MAX_EXPANDED`](crate::limits::MAX_EXPANDED) and [`MAX_EXPANSION`](crate::limits::MAX_EXPANSION).
    #[error(
        "the tensors are {bytes} bytes when each has elements of its own, and {limit} is the limit for a file of \
         {file_bytes} bytes: the larger of {floor} and {times} times the file{tensors}",
        floor = crate::limits::MAX_EXPANDED,
        times = crate::limits::MAX_EXPANSION
    )]
    Expanded {
        /// Those that show the same elements again and again, as the end of the sentence.
        tensors: String,
        /// Bytes of all tensors of the file.
        bytes: usize,
        /// Bytes of the file.
        file_bytes: usize,
        /// How many bytes the tensors may be.
        limit: usize,
    },
    /// The Safetensors file is broken.
    #[error("{0}")]
    Safetensors(String),
    /// The index of a sharded checkpoint is broken, or does not agree with the shards.
    #[error("{0}")]
    Shards(String),
    /// There is no such key.
    #[error("there is no key {key:?}; {candidates}")]
    NoSuchKey {
        /// What was asked for.
        key: String,
        /// What there is, as a sentence.
        candidates: String,
    },
    /// A rule for keys cannot be used.
    #[error("the pattern {pattern:?} cannot be used: {reason}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it, or with its replacement.
        reason: String,
    },
    /// Two keys became one.
    #[error("the keys {first:?} and {second:?} both become {key:?}")]
    SameKey {
        /// A key in the file.
        first: String,
        /// Another key in the file.
        second: String,
        /// What both became.
        key: String,
    },
    /// The plain data in a file do not fit the type that they are read into.
    #[error("{0}")]
    Data(String),
}

impl WeightsError {
    pub(crate) fn archive(rule: impl Into<String>) -> Self {
        ErrorKind::Archive(rule.into()).into()
    }

    pub(crate) fn pickle(rule: impl Into<String>) -> Self {
        ErrorKind::Pickle(rule.into()).into()
    }

    pub(crate) fn tensor(rule: impl Into<String>) -> Self {
        ErrorKind::Tensor(rule.into()).into()
    }

    pub(crate) fn shards(rule: impl Into<String>) -> Self {
        ErrorKind::Shards(rule.into()).into()
    }

    pub(crate) fn not_a_checkpoint(rule: impl Into<String>) -> Self {
        ErrorKind::NotACheckpoint(rule.into()).into()
    }

    pub(crate) fn limit(what: impl Into<String>, limit: usize) -> Self {
        ErrorKind::Limit { what: what.into(), limit: limit as u64 }.into()
    }

    /// Adds the file; what is known already stays, here and below.
    pub(crate) fn in_file(mut self, file: &str) -> Self {
        self.site.file.get_or_insert_with(|| file.to_owned());
        self
    }

    pub(crate) fn in_entry(mut self, entry: &str) -> Self {
        self.site.entry.get_or_insert_with(|| entry.to_owned());
        self
    }

    pub(crate) fn at_key(mut self, key: impl Into<String>) -> Self {
        let key = key.into();
        self.site.key.get_or_insert(key);
        self
    }

    pub(crate) fn at_position(mut self, position: usize) -> Self {
        self.site.position.get_or_insert(position);
        self
    }
}

impl From<ErrorKind> for WeightsError {
    fn from(kind: ErrorKind) -> Self {
        Self { kind: Box::new(kind), site: Box::default() }
    }
}

impl fmt::Display for WeightsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Message(&format!("{}{}", self.site, self.kind)).fmt(f)
    }
}

impl std::error::Error for WeightsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.kind {
            ErrorKind::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// `model.pt, entry "archive/data.pkl", byte 17, key "conv.weight": `; nothing when nothing is known.
impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.file.clone(),
            self.entry.as_ref().map(|entry| format!("entry {entry:?}")),
            self.position.map(|position| format!("byte {position}")),
            self.key.as_ref().map(|key| format!("key {key:?}")),
        ];
        let known: Vec<_> = parts.into_iter().flatten().collect();
        if known.is_empty() { Ok(()) } else { write!(f, "{}: ", known.join(", ")) }
    }
}
