//! The globals that a pickle may name: those that build tensors and plain data, and classes whose objects are not made.

use super::Dialect;
use super::numpy::Numpy;
use crate::{ErrorKind, Result};
use ElementType::{Other, Real};
use core::fmt;
use kiln_record::Stored;
use kiln_types::{DType, Minifloat};
use std::sync::Arc;

/// What a global does here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Global {
    /// Makes a container or a value of its arguments.
    Make(Make),
    /// Makes a tensor.
    Rebuild(Rebuild),
    /// Yields its first argument.
    First,
    /// A storage's type.
    Storage(ElementType),
    /// A dtype.
    DType(ElementType),
    /// A class that is only mentioned, or a constant.
    Name(&'static str),
    /// A script module's class.
    Script,
    /// A namespace: an object of attributes.
    Namespace,
    /// Makes a scalar, an array or a dtype of NumPy's.
    Numpy(Numpy),
}

/// Constructors of plain data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Make {
    /// A dict of pairs, or of a dict.
    Dict,
    /// A dict; the first argument says what missing entries would be.
    DefaultDict,
    /// A set of a list.
    Set,
    /// A list of a tuple, whose second argument would be its greatest length.
    List,
    /// A file's path of its parts: a text.
    Path,
    /// A complex number.
    Complex,
    /// Bytes of bytes, or of a text and its encoding.
    Bytes,
    /// The tuple that is a shape.
    Size,
    /// A device's name.
    Device,
}

/// Functions that put a tensor together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rebuild {
    /// Storage, offset, size, strides.
    V1,
    /// As before, then what gradients need, and marks.
    V2,
    /// As before, and a dtype.
    V3,
    /// A tensor, whether it needs gradients, hooks, and perhaps attributes.
    Parameter,
    /// A function, a class, the function's arguments, attributes.
    FromType,
    /// A tensor, and the device that it was on.
    FromDevice,
    /// Of a kind that is refused.
    Refused(&'static str),
}

/// What a storage holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ElementType {
    /// What tensors hold.
    Real(Stored),
    /// Bytes whose meaning the tensors know.
    Untyped,
    /// Elements that Kiln has no dtype for: their size in bytes, PyTorch's name, what they are.
    /// By reference, since values of pickles hold it.
    Other(&'static (usize, &'static str, &'static str)),
}

impl ElementType {
    /// Size in bytes.
    pub(crate) fn width(self) -> usize {
        match self {
            Real(stored) => stored.size(),
            ElementType::Untyped => 1,
            Other((width, ..)) => *width,
        }
    }

    /// What they are, for messages.
    pub(crate) fn name(self) -> String {
        match self {
            Real(stored) => stored.name().to_owned(),
            ElementType::Untyped => "bytes".to_owned(),
            Other((_, name, what)) => format!("{what} ({name})"),
        }
    }
}

/// Elements of a dtype.
const fn real(dtype: DType) -> ElementType {
    Real(Stored::DType(dtype))
}

const COMPLEX: &str = "complex numbers";
const QUANTIZED: &str = "quantized numbers";
const SMALL: &str = "floats of less than 8 bits";
const PACKED: &str = "integers of less than 8 bits";
const BITS: &str = "bits without a meaning";

/// Dtypes by PyTorch's names.
const DTYPES: &[(&str, ElementType)] = &[
    ("float64", real(DType::F64)),
    ("double", real(DType::F64)),
    ("float32", real(DType::F32)),
    ("float", real(DType::F32)),
    ("float16", real(DType::F16)),
    ("half", real(DType::F16)),
    ("bfloat16", real(DType::BF16)),
    ("int64", real(DType::I64)),
    ("int32", real(DType::I32)),
    ("int16", real(DType::I16)),
    ("int8", real(DType::I8)),
    ("uint64", real(DType::U64)),
    ("uint32", real(DType::U32)),
    ("uint16", real(DType::U16)),
    ("uint8", real(DType::U8)),
    ("bool", real(DType::Bool)),
    ("complex32", Other(&(4, "complex32", COMPLEX))),
    ("complex64", Other(&(8, "complex64", COMPLEX))),
    ("complex128", Other(&(16, "complex128", COMPLEX))),
    ("float8_e4m3fn", Real(Stored::Minifloat(Minifloat::E4M3Fn))),
    ("float8_e4m3fnuz", Real(Stored::Minifloat(Minifloat::E4M3Fnuz))),
    ("float8_e5m2", Real(Stored::Minifloat(Minifloat::E5M2))),
    ("float8_e5m2fnuz", Real(Stored::Minifloat(Minifloat::E5M2Fnuz))),
    ("float8_e8m0fnu", Real(Stored::Minifloat(Minifloat::E8M0Fnu))),
    ("float4_e2m1fn_x2", Other(&(1, "float4_e2m1fn_x2", SMALL))),
    ("bcomplex32", Other(&(4, "bcomplex32", COMPLEX))),
    ("int1", Other(&(1, "int1", PACKED))),
    ("int2", Other(&(1, "int2", PACKED))),
    ("int3", Other(&(1, "int3", PACKED))),
    ("int4", Other(&(1, "int4", PACKED))),
    ("int5", Other(&(1, "int5", PACKED))),
    ("int6", Other(&(1, "int6", PACKED))),
    ("int7", Other(&(1, "int7", PACKED))),
    ("uint1", Other(&(1, "uint1", PACKED))),
    ("uint2", Other(&(1, "uint2", PACKED))),
    ("uint3", Other(&(1, "uint3", PACKED))),
    ("uint4", Other(&(1, "uint4", PACKED))),
    ("uint5", Other(&(1, "uint5", PACKED))),
    ("uint6", Other(&(1, "uint6", PACKED))),
    ("uint7", Other(&(1, "uint7", PACKED))),
    ("bits1x8", Other(&(1, "bits1x8", BITS))),
    ("bits2x4", Other(&(1, "bits2x4", BITS))),
    ("bits4x2", Other(&(1, "bits4x2", BITS))),
    ("bits8", Other(&(1, "bits8", BITS))),
    ("bits16", Other(&(2, "bits16", BITS))),
    ("qint8", Other(&(1, "qint8", QUANTIZED))),
    ("quint8", Other(&(1, "quint8", QUANTIZED))),
    ("qint32", Other(&(4, "qint32", QUANTIZED))),
    ("quint4x2", Other(&(1, "quint4x2", QUANTIZED))),
    ("quint2x4", Other(&(1, "quint2x4", QUANTIZED))),
];

/// The types of storages. A tar's tensors have types of the same names, with `Tensor` for `Storage`.
const STORAGES: &[(&str, ElementType)] = &[
    ("Double", real(DType::F64)),
    ("Float", real(DType::F32)),
    ("Half", real(DType::F16)),
    ("BFloat16", real(DType::BF16)),
    ("Long", real(DType::I64)),
    ("Int", real(DType::I32)),
    ("Short", real(DType::I16)),
    ("Char", real(DType::I8)),
    ("Byte", real(DType::U8)),
    ("Bool", real(DType::Bool)),
    ("Untyped", ElementType::Untyped),
    ("ComplexFloat", Other(&(8, "complex64", COMPLEX))),
    ("ComplexDouble", Other(&(16, "complex128", COMPLEX))),
    ("QInt8", Other(&(1, "qint8", QUANTIZED))),
    ("QUInt8", Other(&(1, "quint8", QUANTIZED))),
    ("QInt32", Other(&(4, "qint32", QUANTIZED))),
    ("QUInt4x2", Other(&(1, "quint4x2", QUANTIZED))),
    ("QUInt2x4", Other(&(1, "quint2x4", QUANTIZED))),
];

/// Everything else, by module and name.
const GLOBALS: &[(&str, &str, Global)] = &[
    ("collections", "OrderedDict", Global::Make(Make::Dict)),
    ("collections", "Counter", Global::Make(Make::Dict)),
    ("collections", "defaultdict", Global::Make(Make::DefaultDict)),
    ("collections", "deque", Global::Make(Make::List)),
    ("argparse", "Namespace", Global::Namespace),
    ("types", "SimpleNamespace", Global::Namespace),
    ("pathlib", "PosixPath", Global::Make(Make::Path)),
    ("pathlib", "PurePosixPath", Global::Make(Make::Path)),
    ("pathlib", "WindowsPath", Global::Make(Make::Path)),
    ("pathlib", "PureWindowsPath", Global::Make(Make::Path)),
    ("numpy", "dtype", Global::Numpy(Numpy::DType)),
    ("numpy", "ndarray", Global::Name("numpy.ndarray")),
    ("numpy.core.multiarray", "_reconstruct", Global::Numpy(Numpy::Reconstruct)),
    ("numpy.core.multiarray", "scalar", Global::Numpy(Numpy::Scalar)),
    ("numpy.core.numeric", "_frombuffer", Global::Numpy(Numpy::FromBuffer)),
    ("builtins", "set", Global::Make(Make::Set)),
    ("builtins", "frozenset", Global::Make(Make::Set)),
    ("builtins", "complex", Global::Make(Make::Complex)),
    ("builtins", "bytes", Global::Make(Make::Bytes)),
    ("builtins", "bytearray", Global::Make(Make::Bytes)),
    ("_codecs", "encode", Global::Make(Make::Bytes)),
    ("builtins", "bool", Global::Name("bool")),
    ("builtins", "int", Global::Name("int")),
    // What Python 2 called it, and protocol 2 does.
    ("builtins", "long", Global::Name("int")),
    ("builtins", "float", Global::Name("float")),
    ("builtins", "str", Global::Name("str")),
    ("builtins", "list", Global::Name("list")),
    ("builtins", "dict", Global::Name("dict")),
    ("builtins", "tuple", Global::Name("tuple")),
    ("torch", "Size", Global::Make(Make::Size)),
    ("torch", "device", Global::Make(Make::Device)),
    ("torch", "Tensor", Global::Name("torch.Tensor")),
    ("torch.nn.parameter", "Parameter", Global::Name("torch.nn.parameter.Parameter")),
    ("torch.nn.parameter", "Buffer", Global::Name("torch.nn.parameter.Buffer")),
    (
        "torch.nested._internal.nested_tensor",
        "NestedTensor",
        Global::Name("torch.nested._internal.nested_tensor.NestedTensor"),
    ),
    ("torch", "strided", Global::Name("torch.strided")),
    ("torch", "sparse_coo", Global::Name("torch.sparse_coo")),
    ("torch", "sparse_csr", Global::Name("torch.sparse_csr")),
    ("torch", "contiguous_format", Global::Name("torch.contiguous_format")),
    ("torch", "channels_last", Global::Name("torch.channels_last")),
    ("torch", "preserve_format", Global::Name("torch.preserve_format")),
    ("torch", "per_tensor_affine", Global::Name("torch.per_tensor_affine")),
    ("torch", "per_tensor_symmetric", Global::Name("torch.per_tensor_symmetric")),
    ("torch", "per_channel_affine", Global::Name("torch.per_channel_affine")),
    ("torch", "per_channel_symmetric", Global::Name("torch.per_channel_symmetric")),
    ("torch", "per_channel_affine_float_qparams", Global::Name("torch.per_channel_affine_float_qparams")),
    ("torch.serialization", "_get_layout", Global::First),
    ("torch._utils", "_rebuild_tensor", Global::Rebuild(Rebuild::V1)),
    ("torch._utils", "_rebuild_tensor_v2", Global::Rebuild(Rebuild::V2)),
    ("torch._utils", "_rebuild_tensor_v3", Global::Rebuild(Rebuild::V3)),
    ("torch._utils", "_rebuild_parameter", Global::Rebuild(Rebuild::Parameter)),
    ("torch._utils", "_rebuild_parameter_with_state", Global::Rebuild(Rebuild::Parameter)),
    ("torch._tensor", "_rebuild_from_type", Global::Rebuild(Rebuild::FromType)),
    ("torch._tensor", "_rebuild_from_type_v2", Global::Rebuild(Rebuild::FromType)),
    ("torch.tensor", "_rebuild_from_type", Global::Rebuild(Rebuild::FromType)),
    ("torch.tensor", "_rebuild_from_type_v2", Global::Rebuild(Rebuild::FromType)),
    ("torch._utils", "_rebuild_qtensor", Global::Rebuild(Rebuild::Refused("a quantized tensor"))),
    ("torch._utils", "_rebuild_sparse_tensor", Global::Rebuild(Rebuild::Refused("a sparse tensor"))),
    ("torch._utils", "_rebuild_sparse_csr_tensor", Global::Rebuild(Rebuild::Refused("a sparse tensor"))),
    ("torch._utils", "_rebuild_nested_tensor", Global::Rebuild(Rebuild::Refused("a nested tensor"))),
    (
        "torch._utils",
        "_rebuild_wrapper_subclass",
        Global::Rebuild(Rebuild::Refused("a tensor of a subclass without data")),
    ),
    ("torch._utils", "_rebuild_device_tensor_from_cpu_tensor", Global::Rebuild(Rebuild::FromDevice)),
    ("torch._utils", "_rebuild_device_tensor_from_numpy", Global::Rebuild(Rebuild::FromDevice)),
    (
        "torch.nested._internal.nested_tensor",
        "_rebuild_njt",
        Global::Rebuild(Rebuild::Refused("a nested tensor")),
    ),
    (
        "torch._utils",
        "_rebuild_meta_tensor_no_storage",
        Global::Rebuild(Rebuild::Refused("a tensor without data (device \"meta\")")),
    ),
];

/// How much of a name is shown.
const SHOWN: usize = 200;

/// What TorchScript wraps plain data into.
const SCRIPT_GLOBALS: &[&str] =
    &["build_intlist", "build_doublelist", "build_boollist", "build_tensorlist", "restore_type_tag"];

impl Global {
    /// The global of a name, if it is on the list.
    fn find(module: &str, name: &str, dialect: Dialect<'_>) -> Option<Self> {
        // The same under the names that they had or have in other versions.
        let module = match module {
            "__builtin__" => "builtins",
            "numpy._core.multiarray" => "numpy.core.multiarray",
            "numpy._core.numeric" => "numpy.core.numeric",
            "pathlib._local" => "pathlib",
            module => module,
        };
        let common =
            GLOBALS.iter().find(|global| (global.0, global.1) == (module, name)).map(|global| global.2);
        common.or_else(|| match (module, dialect) {
            ("torch", _) => storage_type(name).or_else(|| dtype(name)),
            // Files that were saved on a GPU before types named no device.
            ("torch.cuda", _) => storage_type(name),
            ("torch.storage", _) if name == "UntypedStorage" => storage_type(name),
            ("torch.jit._pickle", Dialect::Script) if SCRIPT_GLOBALS.contains(&name) => Some(Global::First),
            (_, Dialect::Script) if module == "__torch__" || module.starts_with("__torch__.") => {
                Some(Global::Script)
            }
            _ => None,
        })
    }
}

/// What a name stands for.
pub(super) enum Named {
    Known(Global),
    /// A class of somebody else's.
    Foreign(Arc<str>),
}

impl Named {
    /// What a name stands for. Of Python's own modules and of PyTorch's nothing may be named but what is on the list: all that they
    /// would make of a checkpoint is on it, and what else they have are means of attack.
    pub(super) fn find(module: &str, name: &str, dialect: Dialect<'_>) -> Result<Self> {
        if let Some(global) = Global::find(module, name, dialect) {
            return Ok(Self::Known(global));
        }
        let shown = |name: &str| name.chars().take(SHOWN).collect::<String>();
        let full = format!("{}.{}", shown(module), shown(name));
        let package = module.split('.').next().unwrap_or(module);
        let own = package != "__main__" && package.starts_with('_') || PYTHON.binary_search(&package).is_ok();
        let inner = package == "torch" && !FOREIGN_IN_TORCH.iter().any(|prefix| module.starts_with(prefix));
        if own || inner { Err(ErrorKind::Global(full).into()) } else { Ok(Self::Foreign(full.into())) }
    }
}

/// Where PyTorch has classes of which objects may lie beside the weights: losses, say, and optimizers.
const FOREIGN_IN_TORCH: &[&str] = &["torch.nn.", "torch.optim."];

/// The packages and modules of Python's own, those of versions 2 and before 3.13 among them, in order; `_` begins all others. Not those
/// that only say what values are: `typing`, `enum`, `dataclasses`, `abc` and `numbers`.
#[rustfmt::skip]
const PYTHON: &[&str] = &[
    "StringIO", "aifc", "antigravity", "argparse", "array", "ast", "asynchat", "asyncio", "asyncore",
    "atexit", "audioop", "base64", "bdb", "binascii", "bisect", "builtins", "bz2", "cPickle", "cProfile",
    "cStringIO", "calendar", "cgi", "cgitb", "chunk", "cmath", "cmd", "code", "codecs", "codeop", "collections",
    "colorsys", "commands", "compileall", "concurrent", "configparser", "contextlib", "contextvars", "copy",
    "copy_reg", "copyreg", "crypt", "csv", "ctypes", "curses", "datetime", "dbm", "decimal",
    "difflib", "dis", "distutils", "dl", "doctest", "email", "encodings", "ensurepip", "errno",
    "exceptions", "faulthandler", "fcntl", "filecmp", "fileinput", "fnmatch", "fractions", "ftplib", "functools",
    "gc", "genericpath", "getopt", "getpass", "gettext", "glob", "graphlib", "grp", "gzip", "hashlib", "heapq",
    "hmac", "html", "http", "httplib", "idlelib", "imaplib", "imghdr", "imp", "importlib", "inspect", "io",
    "ipaddress", "itertools", "json", "keyword", "lib2to3", "linecache", "locale", "logging", "lzma", "mailbox",
    "mailcap", "marshal", "math", "mimetypes", "mmap", "modulefinder", "msilib", "msvcrt", "multiprocessing",
    "netrc", "nis", "nntplib", "nt", "ntpath", "nturl2path", "opcode", "operator", "optparse", "os",
    "os2", "ossaudiodev", "pathlib", "pdb", "pickle", "pickletools", "pipes", "pkgutil", "platform", "plistlib",
    "popen2", "poplib", "posix", "posixfile", "posixpath", "pprint", "profile", "pstats", "pty", "pwd",
    "py_compile", "pyclbr", "pydoc", "pydoc_data", "pyexpat", "queue", "quopri", "random", "re", "readline",
    "reprlib", "resource", "rlcompleter", "runpy", "sched", "secrets", "select", "selectors", "sets", "shelve",
    "shlex", "shutil", "signal", "site", "smtpd", "smtplib", "sndhdr", "socket", "socketserver", "spwd", "sqlite3",
    "sre_compile", "sre_constants", "sre_parse", "ssl", "stat", "statistics", "string", "stringprep", "struct",
    "subprocess", "sunau", "symtable", "sys", "sysconfig", "syslog", "tabnanny", "tarfile", "telnetlib", "tempfile",
    "termios", "textwrap", "this", "thread", "threading", "time", "timeit", "tkinter", "token", "tokenize",
    "tomllib", "trace", "traceback", "tracemalloc", "tty", "turtle", "turtledemo", "types", "unicodedata",
    "unittest", "urllib", "urllib2", "uu", "uuid", "venv", "warnings", "wave", "weakref", "webbrowser", "winreg",
    "winsound", "wsgiref", "xdrlib", "xml", "xmlrpc", "zipapp", "zipfile", "zipimport", "zlib", "zoneinfo",
];

fn storage_type(name: &str) -> Option<Global> {
    let element = name.strip_suffix("Storage").or_else(|| name.strip_suffix("Tensor"))?;
    STORAGES.iter().find(|storage| storage.0 == element).map(|storage| Global::Storage(storage.1))
}

fn dtype(name: &str) -> Option<Global> {
    DTYPES.iter().find(|dtype| dtype.0 == name).map(|dtype| Global::DType(dtype.1))
}

/// As Python prints the ones that may stand in plain data.
impl fmt::Display for Global {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Global::Name(name) => f.write_str(name),
            Global::DType(element) => {
                let named = DTYPES.iter().find(|dtype| dtype.1 == *element);
                write!(f, "torch.{}", named.map_or("dtype", |dtype| dtype.0))
            }
            _ => f.write_str("a class or function"),
        }
    }
}
