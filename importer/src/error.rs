//! What can be wrong with a model file, and where.

use crate::ir::RuleError;
use kiln_types::{Line, clipped, quoted};
use std::fmt;
use std::path::PathBuf;

/// The result of reading a model.
pub type ImportResult<T> = Result<T, ImportError>;

/// Why a model cannot be imported: a kind and, where there is one, the node that it is about.
#[derive(Debug, Clone)]
pub struct ImportError {
    /// The model file; empty for a model that came as bytes.
    pub file: PathBuf,
    /// The node at fault, when the problem lies in one.
    pub site: Option<Box<Site>>,
    /// What is wrong.
    pub kind: Box<ImportErrorKind>,
}

impl From<ImportErrorKind> for ImportError {
    fn from(kind: ImportErrorKind) -> Self {
        Self { file: PathBuf::new(), site: None, kind: Box::new(kind) }
    }
}

/// A node of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Its name; empty when it has none.
    pub node: String,
    /// Its first output, which names it when nothing else does.
    pub output: String,
    /// Its operator with the domain, unless that is ONNX's own: `Conv`, `com.microsoft.Gelu`.
    pub operator: String,
    /// Version of the operator set in effect.
    pub opset: i64,
    /// Functions around it, outermost first.
    pub functions: Vec<String>,
}

/// An operator that Kiln does not know, and the nodes that use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsupportedOperator {
    /// The operator with its domain, unless that is ONNX's own.
    pub operator: String,
    /// Version of the operator set that the file asks for.
    pub opset: i64,
    /// Versions that Kiln knows, when it knows the operator in others: `13 to 25`.
    pub known: Option<String>,
    /// Names of the nodes (first outputs where a node has no name).
    pub nodes: Vec<String>,
    /// What to do instead, where that is known.
    pub advice: Option<&'static str>,
}

/// What is wrong with a file.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ImportErrorKind {
    /// A file cannot be read.
    #[error("cannot read {path}: {reason}", path = Line(&path.to_string_lossy()))]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's words.
        reason: String,
    },
    /// The bytes are not what the format says.
    #[error("not a valid {format} file: {reason}")]
    Malformed {
        /// The format's name.
        format: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// Weights in another file cannot be taken from there.
    #[error("external data {}: {reason}", quoted(location))]
    ExternalData {
        /// The location as written in the model.
        location: String,
        /// What is wrong.
        reason: String,
    },
    /// A tensor's dims, dtype and contents do not agree.
    #[error("tensor {}: {reason}", quoted(tensor))]
    Tensor {
        /// Its name.
        tensor: String,
        /// What is wrong.
        reason: String,
    },
    /// Operators without an implementation: all of the model.
    #[error("{}", Report(.0))]
    Unsupported(Vec<UnsupportedOperator>),
    /// The file needs a version of an operator set that Kiln does not know.
    #[error("operator set {} version {version} is {}", domain_name(domain), if *version < 1 { "not a version".to_owned() } else { format!("newer than {newest}, the newest that Kiln knows") })]
    Opset {
        /// The domain.
        domain: String,
        /// The version asked for.
        version: i64,
        /// The newest that Kiln knows.
        newest: i64,
    },
    /// Nodes whose inputs depend on their own outputs.
    #[error("{}", cycle(nodes))]
    Cycle {
        /// Their names.
        nodes: Vec<String>,
    },
    /// A value that nothing defines.
    #[error("the value {} is used but nothing defines it", quoted(.0))]
    Undefined(String),
    /// A value defined twice in one graph.
    #[error("the value {} is defined more than once", quoted(.0))]
    Duplicate(String),
    /// A function defined twice in one model.
    #[error("{} is defined more than once", if .0.is_empty() { "a function without a name".to_owned() } else { format!("the function {}", quoted(.0)) })]
    DuplicateFunction(String),
    /// A graph input or output that cannot be imported.
    #[error("{} {}: {reason}", what, quoted(name))]
    Interface {
        /// `input` or `output`.
        what: &'static str,
        /// Its name.
        name: String,
        /// What is wrong and how to repair it.
        reason: String,
    },
    /// A dim to bind that no input has.
    #[error("there is no dim {} to bind; {}", quoted(name), dims_there_are(known))]
    UnknownDim {
        /// The name given.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// An input to bind that the model does not have.
    #[error("there is no input {} to bind; {}", quoted(name), inputs_there_are(known))]
    UnknownInput {
        /// The name given.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// A parameter to untie that is tied to none.
    #[error("there is no tied parameter {} to untie; {}", quoted(key), ties_there_are(known))]
    UnknownTie {
        /// The key given.
        key: String,
        /// The keys of tied parameters.
        known: Vec<String>,
    },
    /// A function that calls itself.
    #[error("the function {} calls itself", quoted(.0))]
    Recursion(String),
    /// A limit that keeps hostile files from taking all memory or time.
    #[error("{what} exceed the limit of {limit}")]
    Limit {
        /// What, as a plural.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// What a file asks for is beyond what files of its size may ask for: a few kilobytes would take all memory or time.
    #[error("{what} are out of proportion to the size of the file")]
    Disproportionate {
        /// What, as a plural.
        what: &'static str,
    },
    /// A node breaks a rule of its operator.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// More than one thing is wrong: all that could be found.
    #[error("{}", Problems(.0))]
    Several(Vec<ImportError>),
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // That a file cannot be read says which.
        let named = matches!(&*self.kind, ImportErrorKind::Io { path, .. } if *path == self.file);
        if !self.file.as_os_str().is_empty() && !named {
            write!(f, "{}: ", Line(&self.file.to_string_lossy()))?;
        }
        if let Some(site) = &self.site {
            write!(f, "{site}: ")?;
        }
        write!(f, "{}", self.kind)
    }
}

impl std::error::Error for ImportError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.kind)
    }
}

impl fmt::Display for Site {
    /// ``node `conv1` (Conv, opset 18)``.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.node.is_empty() {
            write!(f, "the node that yields {}", quoted(&self.output))?;
        } else {
            write!(f, "node {}", quoted(&self.node))?;
        }
        write!(f, " ({}, opset {}", clipped(&self.operator, LONGEST_OPERATOR), self.opset)?;
        for function in &self.functions {
            write!(f, ", in function {}", quoted(function))?;
        }
        write!(f, ")")
    }
}

/// All problems, each on lines of its own.
struct Problems<'a>(&'a [ImportError]);

impl fmt::Display for Problems<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Whoever repairs these runs Kiln again.
        const SHOWN: usize = 20;
        write!(f, "{} problems:", self.0.len())?;
        for problem in self.0.iter().take(SHOWN) {
            write!(f, "\n  {}", problem.to_string().replace('\n', "\n  "))?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more"),
        }
    }
}

/// Most characters of an operator's name, or its domain's: files may name anything.
const LONGEST_OPERATOR: usize = 120;

/// All unsupported operators, a line each.
struct Report<'a>(&'a [UnsupportedOperator]);

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0.len() == 1 { "operator is" } else { "operators are" };
        write!(f, "{} {plural} not supported:", self.0.len())?;
        for item in self.0 {
            write!(f, "\n  {} (opset {}", clipped(&item.operator, LONGEST_OPERATOR), item.opset)?;
            if let Some(known) = &item.known {
                write!(f, "; known: {known}")?;
            }
            write!(f, "), in {}", list(&item.nodes))?;
            if let Some(advice) = item.advice {
                write!(f, "; {advice}")?;
            }
        }
        Ok(())
    }
}

fn domain_name(domain: &str) -> String {
    if domain.is_empty() { "ai.onnx".to_owned() } else { clipped(domain, LONGEST_OPERATOR) }
}

fn dims_there_are(known: &[String]) -> String {
    match known {
        [] => "the inputs' dims are all numbers".to_owned(),
        known => format!("the inputs have {}", list(known)),
    }
}

fn inputs_there_are(known: &[String]) -> String {
    match known {
        [] => "the model has none".to_owned(),
        known => format!("there are {}", list(known)),
    }
}

fn ties_there_are(known: &[String]) -> String {
    match known {
        [] => "the file ties none that an exporter tells of".to_owned(),
        known => format!("there are {}", list(known)),
    }
}

/// A few names, and how many more there are.
fn cycle(nodes: &[String]) -> String {
    match nodes {
        [node] => format!("the node {} depends on its own output", quoted(node)),
        nodes => format!("the nodes {} form a cycle", list(nodes)),
    }
}

fn list(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let mut text: Vec<String> = names.iter().take(SHOWN).map(|name| quoted(name)).collect();
    if names.len() > SHOWN {
        text.push(format!("{} more", names.len() - SHOWN));
    }
    if text.is_empty() { "none".to_owned() } else { text.join(", ") }
}
