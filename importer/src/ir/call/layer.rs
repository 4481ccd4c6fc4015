//! Layers of the runtime.

use super::{Arg, Call};
use crate::ir::ValueId;

/// A layer of the runtime's `nn`, with the parameters it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// The type: `nn::conv::Conv2d`.
    pub ty: &'static str,
    /// Whether the type takes the backend: `Linear<B>` against `Dropout`.
    pub generic: bool,
    /// How it is made.
    pub config: Config,
    /// Every field of the layer's record, in the record's order.
    pub fields: Vec<(&'static str, LayerField)>,
    /// Name of the method.
    pub method: &'static str,
    /// Arguments of the method.
    pub args: Vec<Arg>,
    /// The same as a plain call, for parameters that other nodes use too.
    pub function: Arg,
}

/// How a layer is made.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The constructor of its config: `nn::conv::Conv2dConfig::new`.
    pub new: Call,
    /// What is set after that.
    pub settings: Vec<Setting>,
}

/// One setting of a layer's config.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Its name: `stride`.
    pub name: &'static str,
    /// Its value.
    pub value: Arg,
    /// Whether the value is what the layer has anyway. The setting is left out then, unless modules that share their code
    /// differ there.
    pub default: bool,
}

/// What a layer's record holds in one field.
#[derive(Clone, Debug, PartialEq)]
pub enum LayerField {
    /// A parameter, loaded from a constant.
    Parameter(ValueId),
    /// A parameter that may be absent.
    Optional(Option<ValueId>),
    /// A number or an option: records hold nothing.
    Constant,
    /// An array of this many numbers, such as the stride of a `Conv2d`: records hold a tuple of as many nothings
    /// (`RecordNode::Tuple` of `RecordNode::Constant`), and bincode does not load anything else.
    Constants(usize),
}

impl Config {
    /// A config with nothing set.
    pub fn new(constructor: &'static str, args: impl Into<Vec<Arg>>) -> Self {
        Self { new: Call::new(constructor, args), settings: Vec::new() }
    }

    /// The same with a setting; `default` says that it changes nothing.
    pub fn with(mut self, name: &'static str, value: Arg, default: bool) -> Self {
        self.settings.push(Setting { name, value, default });
        self
    }

    /// Visits the arguments and everything in them.
    pub fn visit(&self, f: &mut dyn FnMut(&Arg)) {
        let settings = self.settings.iter().map(|setting| &setting.value);
        self.new.args.iter().chain(settings).for_each(|arg| arg.visit(f));
    }
}

impl LayerField {
    /// The constant that is loaded.
    pub fn value(&self) -> Option<ValueId> {
        match self {
            LayerField::Parameter(value) => Some(*value),
            LayerField::Optional(value) => *value,
            LayerField::Constant | LayerField::Constants(_) => None,
        }
    }
}
