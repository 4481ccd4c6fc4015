//! How tensors print.

use super::base::Tensor;
use super::kind::TensorKind;
use crate::backend::Backend;
use crate::{DType, Scalar, TensorData};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;
use core::sync::atomic::{AtomicUsize, Ordering};

/// How tensors print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrintOptions {
    /// A tensor of more elements is summarized.
    pub threshold: usize,
    /// How many elements a summary shows at each end of a dim.
    pub edge_items: usize,
    /// Decimals of floats; as many as needed when absent.
    pub precision: Option<usize>,
}

impl PrintOptions {
    /// The default options.
    pub const fn const_default() -> Self {
        Self { threshold: 1000, edge_items: 3, precision: None }
    }
}

impl Default for PrintOptions {
    fn default() -> Self {
        Self::const_default()
    }
}

/// Stands for no precision.
const NO_PRECISION: usize = usize::MAX;

static THRESHOLD: AtomicUsize = AtomicUsize::new(PrintOptions::const_default().threshold);
static EDGE_ITEMS: AtomicUsize = AtomicUsize::new(PrintOptions::const_default().edge_items);
static PRECISION: AtomicUsize = AtomicUsize::new(NO_PRECISION);

/// Sets how all tensors print from now on.
pub fn set_print_options(options: PrintOptions) {
    THRESHOLD.store(options.threshold, Ordering::Relaxed);
    EDGE_ITEMS.store(options.edge_items, Ordering::Relaxed);
    PRECISION.store(options.precision.unwrap_or(NO_PRECISION), Ordering::Relaxed);
}

/// What [`set_print_options`] set.
fn print_options() -> PrintOptions {
    let precision = PRECISION.load(Ordering::Relaxed);
    PrintOptions {
        threshold: THRESHOLD.load(Ordering::Relaxed),
        edge_items: EDGE_ITEMS.load(Ordering::Relaxed),
        precision: (precision != NO_PRECISION).then_some(precision),
    }
}

impl<B: Backend, const D: usize, K: TensorKind<B>> core::fmt::Display for Tensor<B, D, K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut options = print_options();
        options.precision = f.precision().or(options.precision);
        let (device, dtype) = (self.device(), self.dtype());
        let elements = match self.clone().try_into_data() {
            Ok(data) => Elements::new(&data, options).text(),
            Err(error) => format!("<{error}>"),
        };
        writeln!(f, "Tensor {{\n  data:\n{elements},")?;
        writeln!(f, "  shape:  {:?},", self.shape().dims)?;
        writeln!(f, "  device:  {device:?},")?;
        writeln!(f, "  backend:  {:?},", B::name(&device))?;
        writeln!(f, "  kind:  {:?},", K::name())?;
        write!(f, "  dtype:  {:?},\n}}", dtype.name())
    }
}

/// Elements being printed as nested lists.
struct Elements<'a> {
    shape: &'a [usize],
    texts: Vec<String>,
    summarized: bool,
    edge_items: usize,
}

impl<'a> Elements<'a> {
    fn new(data: &'a TensorData, options: PrintOptions) -> Self {
        let element = |scalar: Scalar| match (scalar, options.precision) {
            (Scalar::Float(x), Some(decimals)) => format!("{x:.decimals$}"),
            // The shortest text of an f32 is not that of the f64 of equal value.
            (Scalar::Float(x), None) if data.dtype != DType::F64 => format!("{:?}", x as f32),
            (Scalar::Float(x), None) => format!("{x:?}"),
            (Scalar::Int(x), _) => x.to_string(),
            (Scalar::UInt(x), _) => x.to_string(),
            (Scalar::Bool(x), _) => x.to_string(),
        };
        Self {
            shape: &data.shape,
            texts: data.scalars().map(element).collect(),
            summarized: data.num_elements() > options.threshold,
            edge_items: options.edge_items,
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text, 0, 0);
        text
    }

    /// Writes the dims from `depth` on, of the part that begins at element `start`.
    fn write(&self, text: &mut String, depth: usize, start: usize) {
        let Some(&size) = self.shape.get(depth) else {
            text.push_str(self.texts.get(start).map_or("", String::as_str));
            return;
        };
        let stride: usize = self.shape[depth + 1..].iter().product();
        let innermost = depth + 1 == self.shape.len();
        let cut = self.summarized && size > 2 * self.edge_items;
        let shown = (0..size).filter(|i| !cut || *i < self.edge_items || *i >= size - self.edge_items);
        let separate = |text: &mut String| {
            if innermost {
                text.push_str(", ");
            } else {
                let _ = write!(text, ",\n{:1$}", "", depth + 1);
            }
        };
        text.push('[');
        for i in shown {
            if i > 0 {
                separate(text);
            }
            if cut && i == size - self.edge_items {
                text.push_str("...");
                if innermost {
                    text.push_str(", ");
                } else {
                    let _ = write!(text, "\n{:1$}", "", depth + 1);
                }
            }
            self.write(text, depth + 1, start + i * stride);
        }
        text.push(']');
    }
}
