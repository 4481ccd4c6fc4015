//! Layers of the runtime.

use super::{Arg, Call};
use crate::ir::ValueId;
use kiln_types::layers::{self, Field};

/// A layer of the runtime's `nn`, with the parameters it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// What the catalogue of layers says of it.
    pub declared: &'static layers::Layer,
    /// How it is made.
    pub config: Config,
    /// What its parameters are loaded from, in the catalogue's order.
    values: Vec<Option<ValueId>>,
    /// Name of the method.
    pub method: &'static str,
    /// Arguments of the method.
    pub args: Vec<Arg>,
    /// The same as a plain call, for parameters that other nodes use too.
    pub function: Arg,
}

impl Layer {
    /// A layer whose parameters are these constants, in the catalogue's order, and that is called by `forward` on the first
    /// operand. It does what `function` does.
    pub fn new<const N: usize>(config: Config, values: [Option<ValueId>; N], function: Arg) -> Self {
        let declared = config.layer;
        debug_assert_eq!(declared.parameters().count(), N, "the parameters of {}", declared.name);
        let args = vec![Arg::Operand(0)];
        Self { declared, config, values: values.to_vec(), method: "forward", args, function }
    }

    /// The same, called otherwise.
    pub fn called(self, method: &'static str, args: Vec<Arg>) -> Self {
        Self { method, args, ..self }
    }

    /// The fields that are parameters, with the constants that are loaded; optional ones may have none.
    pub fn parameters(&self) -> impl Iterator<Item = (&'static Field, Option<ValueId>)> {
        self.declared.parameters().zip(self.values.iter().copied())
    }

    /// The parameters that are there.
    pub fn values(&self) -> impl Iterator<Item = ValueId> {
        self.values.iter().copied().flatten()
    }
}

/// How a layer is made.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The layer.
    pub layer: &'static layers::Layer,
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

impl Config {
    /// A config with nothing set.
    pub fn new(layer: &'static layers::Layer, args: impl Into<Vec<Arg>>) -> Self {
        Self::by(layer, "new", args)
    }

    /// A config that another constructor makes than `new`.
    pub fn by(layer: &'static layers::Layer, constructor: &str, args: impl Into<Vec<Arg>>) -> Self {
        let new = Call::new(format!("{}Config::{constructor}", layer.path), args);
        Self { layer, new, settings: Vec::new() }
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
