//! How much a file may make the readers do. Each limit is far above what real checkpoints need, and low enough that a
//! file made to exhaust memory or time is refused first.

/// Longest pickle, inflated. Tensors lie outside of it; those of the largest models take a few megabytes.
pub const MAX_PICKLE_BYTES: usize = 64 << 20;

/// Most values in all of a pickle's containers together. A tensor takes about forty.
pub const MAX_VALUES: usize = 8 << 20;

/// Most values on a pickle's stack. Picklers flush containers every thousand entries.
pub const MAX_STACK: usize = 1 << 20;

/// Most marks open at once, one for each level of nesting.
pub const MAX_MARKS: usize = 10_000;

/// Deepest nesting of containers. A module tree takes one level a submodule.
pub const MAX_DEPTH: usize = 200;

/// Longest integer, in decimal digits: Python's own limit.
pub const MAX_DIGITS: usize = 4300;

/// Longest text of a dict's key, as it becomes part of a path.
pub const MAX_KEY_BYTES: usize = 64 << 10;

/// Longest name of a storage. They are numbers.
pub const MAX_STORAGE_KEY_BYTES: usize = 256;

/// Most bytes of all tensors' paths together, and of all keys that lead to them.
pub const MAX_PATH_BYTES: usize = 64 << 20;

/// Most entries of an archive.
pub const MAX_ENTRIES: usize = 1 << 20;

/// Most tensors of a checkpoint, counted once for each path that leads to them.
pub const MAX_TENSORS: usize = 1 << 20;

/// Most values of the plain data beside the tensors once every shared value is spelled out.
pub const MAX_SPELLED_OUT: usize = 4 << 20;

/// Most bytes that the compressed entries of an archive may inflate to, unless the file is a hundredth of it.
/// PyTorch writes its storages uncompressed.
pub const MAX_INFLATED: u64 = MAX_EXPANDED as u64;

/// Above which size a tensor may not be larger than the storage that it views (by strides of zero, say), and all tensors of a
/// checkpoint together not larger than [`MAX_EXPANSION`] times its file.
pub const MAX_EXPANDED: usize = 256 << 20;

/// How many times the size of its file all tensors of a checkpoint may be, once those that share elements have their own. Tied
/// weights are a few times, a layer that is used at every depth as many times as the network is deep.
pub const MAX_EXPANSION: usize = 100;

/// Highest rank of a tensor: PyTorch's own limit.
pub const MAX_RANK: usize = 64;

/// Longest index of a sharded checkpoint.
pub const MAX_INDEX_BYTES: u64 = 64 << 20;

/// Most values beside the tensors in such an index. There are one or two.
pub const MAX_INDEX_METADATA: usize = 1 << 16;

/// Longest text of an exported program, or of a list of its tensors. That of a large model takes some tens of megabytes.
pub const MAX_PROGRAM_BYTES: usize = 256 << 20;

/// Most bytes that a compressed text of a program may inflate to, unless it is [`MAX_EXPANSION`] times as long as what it is packed in. PyTorch writes
/// texts uncompressed; tools that pack archives anew make them up to 33 times smaller.
pub const MAX_INFLATED_TEXT: usize = 16 << 20;
