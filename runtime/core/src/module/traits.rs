//! What every module can do, and what can walk through one.

use super::{NothingSelected, Origin, Param, ParamId, RunningState, adapter, selection};
use crate::record::Record;
use crate::tensor::backend::{AutodiffBackend, Backend};
use crate::tensor::{Bool, Int, Tensor};
use alloc::{string::String, vec::Vec};
use core::fmt::Debug;

pub use kiln_derive::Module;

/// The devices that a module lives on.
pub type Devices<B> = Vec<<B as Backend>::Device>;

/// A neural network or a part of one: a container of parameters.
///
/// `#[derive(Module)]` implements it for a struct or an enum whose fields are modules: other derived types, layers of
/// [`nn`](crate::nn), [`Param`]s, tensors (constants, not recorded), numbers, strings, [`Ignored`](super::Ignored)
/// values, and `Option`, `Vec`, arrays and tuples of modules. The backend is the type parameter called `B`; a type
/// without it is a constant.
///
/// Attributes:
/// - `#[module(custom_display)]` on the type: its [`ModuleDisplay`](super::ModuleDisplay) is written by hand.
/// - `#[module(replaceable)]` on a struct: there is a method `with_<field>` for each field that replaces it, as in
///   `model.with_fc(LinearConfig::new(512, 5).init(&device))`; generated models that are to be trained have them.
/// - `#[module(rename = "0")]` on a field: the name in records and in the paths that visitors see, for names that Rust
///   does not have. Tuple structs have the names `0`, `1`, ….
/// - `#[module(batch_norm = "bn1")]` on a layer: a checkpoint has the layer and a batch normalization beside it, which is
///   folded into the layer's weight and bias when they are loaded. `epsilon = 1e-3` says what is added to the variance if
///   that is not `1e-5`; `biased`, that the layer had a bias before.
/// - `#[module(from = "transpose(::embedding.weight)")]` on a parameter, `#[module(from(weight = "…", bias = "…"))]` on a
///   layer: a checkpoint has other tensors, from which the parameter is computed as it lies here. Keys are relative to the
///   struct, after `::` to the root; there is arithmetic, `transpose`, `reshape`, `slice`, `cat` and more, see
///   [`Derivation`](super::Derivation).
/// - `#[module(constant)]` on a field: no checkpoint has it.
///
/// On a list of layers these say it of every item; `{}` stands for its number, as in `batch_norm = "norms.{}"`.
///
/// The last three are about checkpoints of PyTorch and Safetensors alone; records know nothing of them.
///
/// ```
/// use kiln::module::{Module, Param};
/// use kiln::tensor::{Tensor, backend::Backend};
///
/// #[derive(Module, Debug)]
/// struct Scale<B: Backend> {
///     factor: Param<Tensor<B, 1>>,
/// }
///
/// impl<B: Backend> Scale<B> {
///     fn forward(&self, x: Tensor<B, 1>) -> Tensor<B, 1> {
///         x * self.factor.val()
///     }
/// }
/// ```
pub trait Module<B: Backend>: Clone + Send + Debug {
    /// The module's state, away from its structure.
    type Record: Record<B>;

    /// Adds the devices of this module to those in `devices`.
    fn collect_devices(&self, devices: Devices<B>) -> Devices<B>;

    /// All devices that hold a part of this module, each once.
    fn devices(&self) -> Devices<B> {
        self.collect_devices(Devices::<B>::new())
    }

    /// Copies the module to a device, its parameters being leaves there: not connected to where they came from.
    #[must_use]
    fn fork(self, device: &B::Device) -> Self;

    /// Moves the module to a device.
    #[must_use]
    fn to_device(self, device: &B::Device) -> Self;

    /// The module without gradients: an optimizer leaves it as it is, and so do its layers their running statistics.
    #[must_use]
    fn no_grad(self) -> Self {
        self.map(&mut selection::Freezer::all())
    }

    /// The module with the parameters whose paths fit a pattern as they are: they get no gradients, an optimizer leaves
    /// them, and a batch normalization in whose running statistics the pattern fits works with them as in inference and
    /// moves them no more.
    ///
    /// A pattern is a path, of a parameter or of a module with all in it, in which `*` stands for any text, dots too, and
    /// `?` for one character. Paths are those of the original's `state_dict` (`layer1.0.bn1.weight`) or the fields' own
    /// (`layer1.0.bn1.gamma`), as visitors see them.
    ///
    /// # Errors
    /// When no parameter's path fits.
    fn freeze(self, pattern: &str) -> Result<Self, NothingSelected> {
        selection::set_frozen::<B, _>(self, pattern, true)
    }

    /// The module with the parameters whose paths fit a pattern trained again; the reverse of [`Module::freeze`].
    ///
    /// # Errors
    /// When no parameter's path fits.
    fn unfreeze(self, pattern: &str) -> Result<Self, NothingSelected> {
        selection::set_frozen::<B, _>(self, pattern, false)
    }

    /// The float parameters whose paths fit a pattern, running statistics too; for patterns see [`Module::freeze`]. With
    /// these an optimizer takes the gradients of a part of a module.
    ///
    /// # Errors
    /// When no parameter's path fits.
    fn select_params(&self, pattern: &str) -> Result<Vec<ParamId>, NothingSelected> {
        selection::Selection::of::<B, Self>(self, pattern, |_| true).params()
    }

    /// A layer whose parameters in these fields are not trained: generated modules say so of what the original network
    /// does not train.
    #[must_use]
    fn with_fixed(self, fields: &[&str]) -> Self {
        self.map(&mut selection::Freezer::fields(fields))
    }

    /// The module with a pair of small matrices beside each weight whose path fits a pattern, and everything else frozen:
    /// low-rank adaptation (Hu et al. 2021, LoRA). See [`LowRank`](super::LowRank).
    ///
    /// Weights are those of [`Linear`](crate::nn::Linear), [`Embedding`](crate::nn::Embedding) and the convolutions that are not transposed;
    /// for patterns see [`Module::freeze`]. The weight acts as `W + alpha / rank · B · A`. `A` starts as PyTorch's
    /// linear layers do and `B` with zeros (an embedding's the other way round), so that the module first computes what it did.
    /// A weight that has a pair already keeps that one, trained as before; more that should be trained beside the pairs, a new head
    /// say, is named to [`Module::unfreeze`] then.
    ///
    /// # Errors
    /// When no such weight's path fits.
    ///
    /// # Panics
    /// When `rank` is 0.
    fn with_low_rank(
        self,
        pattern: &str,
        rank: usize,
        alpha: impl Into<f64>,
    ) -> Result<Self, NothingSelected> {
        adapter::attach::<B, _>(self, pattern, rank, alpha.into())
    }

    /// The module with every pair of [`Module::with_low_rank`] added to its weight, which then is a weight like any other. It
    /// stays frozen until [`Module::unfreeze`] says otherwise.
    #[must_use]
    fn merge_low_rank(self) -> Self {
        self.map(&mut adapter::Merger)
    }

    /// Number of elements of all float parameters.
    fn num_params(&self) -> usize {
        struct Count(usize);
        impl<B: Backend> ModuleVisitor<B> for Count {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
                self.0 += param.lazy_shape().num_elements();
            }
        }
        let mut count = Count(0);
        self.visit(&mut count);
        count.0
    }

    /// Whether there is any parameter: of floats, of integers or of bools.
    fn has_params(&self) -> bool {
        struct Any(bool);
        impl<B: Backend> ModuleVisitor<B> for Any {
            fn visit_float<const D: usize>(&mut self, _: &Param<Tensor<B, D>>) {
                self.0 = true;
            }

            fn visit_int<const D: usize>(&mut self, _: &Param<Tensor<B, D, Int>>) {
                self.0 = true;
            }

            fn visit_bool<const D: usize>(&mut self, _: &Param<Tensor<B, D, Bool>>) {
                self.0 = true;
            }
        }
        let mut any = Any(false);
        self.visit(&mut any);
        any.0
    }

    /// Shows each parameter to a visitor.
    fn visit<Visitor: ModuleVisitor<B>>(&self, visitor: &mut Visitor);

    /// Replaces each parameter by what the mapper makes of it.
    #[must_use]
    fn map<Mapper: ModuleMapper<B>>(self, mapper: &mut Mapper) -> Self;

    /// The module with the state of a record. Parameters get the shapes that they have in the record, whatever they were;
    /// [`Module::try_load_record`] takes only what fits.
    ///
    /// # Panics
    /// When a list in the record is of another length, or an enum another variant.
    #[must_use]
    fn load_record(self, record: Self::Record) -> Self;

    /// Tells a check what of a record does not fit. A module that implements it by hand need not.
    #[allow(unused_variables)]
    fn check_record(&self, record: &Self::Record, check: &mut crate::record::RecordCheck) {}

    /// The module with the state of a record that has the same shapes, lists and variants.
    ///
    /// # Errors
    /// [`RecorderError::Parameters`](crate::record::RecorderError::Parameters) names all that is different.
    fn try_load_record(self, record: Self::Record) -> Result<Self, crate::record::RecorderError> {
        let mut check = crate::record::RecordCheck::default();
        self.check_record(&record, &mut check);
        check.finish("the record")?;
        Ok(self.load_record(record))
    }

    /// The state of the module.
    fn into_record(self) -> Self::Record;

    /// The module with float parameters of a dtype, which also those get that are loaded later; see
    /// [`Param::with_dtype`].
    #[must_use]
    fn with_float_dtype(self, dtype: crate::tensor::DType) -> Self {
        struct WithDtype(crate::tensor::DType);
        impl<B: Backend> ModuleMapper<B> for WithDtype {
            fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
                param.with_dtype(self.0)
            }
        }
        self.map(&mut WithDtype(dtype))
    }

    /// The module with quantized float parameters.
    #[must_use]
    fn quantize_weights<S: Into<crate::tensor::quantization::QuantScheme> + Clone>(
        self,
        quantizer: &mut super::Quantizer<S>,
    ) -> Self {
        self.map(quantizer)
    }

    /// Saves the module's record to a file; the recorder appends its extension.
    #[cfg(feature = "std")]
    fn save_file<FR, PB>(&self, file_path: PB, recorder: &FR) -> Result<(), crate::record::RecorderError>
    where
        FR: crate::record::FileRecorder<B>,
        PB: Into<std::path::PathBuf>,
    {
        recorder.record(self.clone().into_record(), file_path.into())
    }

    /// The module with the state in a file; the recorder appends its extension.
    ///
    /// # Errors
    /// When the file cannot be read, or what it has does not fit the module: see [`Module::try_load_record`].
    #[cfg(feature = "std")]
    fn load_file<FR, PB>(
        self,
        file_path: PB,
        recorder: &FR,
        device: &B::Device,
    ) -> Result<Self, crate::record::RecorderError>
    where
        FR: crate::record::FileRecorder<B>,
        PB: Into<std::path::PathBuf>,
    {
        let path = file_path.into();
        let record = recorder.load(path.clone(), device)?;
        let mut check = crate::record::RecordCheck::default();
        self.check_record(&record, &mut check);
        let path = crate::record::with_extension(path, FR::file_extension());
        check.finish(&path.to_string_lossy())?;
        Ok(self.load_record(record))
    }
}

/// A module that can be trained.
pub trait AutodiffModule<B: AutodiffBackend>: Module<B> + Send + Debug {
    /// The same module on the backend that only computes.
    type InnerModule: Module<B::InnerBackend>;

    /// The module for validation and inference: no gradients are recorded, and layers such as dropout do nothing.
    fn valid(&self) -> Self::InnerModule;
}

/// Looks at the parameters of a module, one after the other. Every method does nothing unless it is overridden.
#[allow(unused_variables)]
pub trait ModuleVisitor<B: Backend> {
    /// A float parameter.
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {}

    /// An integer parameter.
    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<B, D, Int>>) {}

    /// A bool parameter.
    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<B, D, Bool>>) {}

    /// What follows, up to [`ModuleVisitor::exit_module`], is in the field `name` of a container such as
    /// `Struct:Model`, `Enum:Layer`, `Vec`, `Array` or `Tuple`.
    fn enter_module(&mut self, name: &str, container_type: &str) {}

    /// The field is over.
    fn exit_module(&mut self, name: &str, container_type: &str) {}

    /// The field that was just entered was made of others; see [`Origin`].
    fn visit_origin(&mut self, origin: Origin) {}

    /// A float parameter with a low-rank pair: the parameter by itself, then the pair as two parameters in the fields
    /// `lora_A` and `lora_B` of a container `LowRank`, unless overridden.
    fn visit_low_rank<const D: usize>(&mut self, param: &Param<Tensor<B, D>>)
    where
        Self: Sized,
    {
        adapter::visit(param, self);
    }

    /// A statistic that a layer moves by itself: shown as a float parameter, unless overridden.
    fn visit_running<const D: usize>(&mut self, state: &RunningState<Tensor<B, D>>)
    where
        Self: Sized,
    {
        state.visit_param(self);
    }

    /// For containers that know the whole path of a float parameter.
    fn visit_float_with_path<const D: usize>(&mut self, path: &[String], id: ParamId, tensor: &Tensor<B, D>) {
    }

    /// For containers that know the whole path of an integer parameter.
    fn visit_int_with_path<const D: usize>(
        &mut self,
        path: &[String],
        id: ParamId,
        tensor: &Tensor<B, D, Int>,
    ) {
    }

    /// For containers that know the whole path of a bool parameter.
    fn visit_bool_with_path<const D: usize>(
        &mut self,
        path: &[String],
        id: ParamId,
        tensor: &Tensor<B, D, Bool>,
    ) {
    }
}

/// Replaces the parameters of a module, one after the other. Every method keeps its parameter unless it is overridden;
/// one that was not initialized stays so.
#[allow(unused_variables)]
pub trait ModuleMapper<B: Backend> {
    /// See [`ModuleVisitor::enter_module`].
    fn enter_module(&mut self, name: &str, container_type: &str) {}

    /// See [`ModuleVisitor::exit_module`].
    fn exit_module(&mut self, name: &str, container_type: &str) {}

    /// A float parameter.
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        param
    }

    /// A float parameter with a low-rank pair, in parts as in [`ModuleVisitor::visit_low_rank`] unless overridden.
    fn map_low_rank<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>>
    where
        Self: Sized,
    {
        adapter::map(param, self)
    }

    /// A statistic that a layer moves by itself: mapped as a float parameter, unless overridden.
    fn map_running<const D: usize>(&mut self, state: RunningState<Tensor<B, D>>) -> RunningState<Tensor<B, D>>
    where
        Self: Sized,
    {
        state.map_param(self)
    }

    /// An integer parameter.
    fn map_int<const D: usize>(&mut self, param: Param<Tensor<B, D, Int>>) -> Param<Tensor<B, D, Int>> {
        param
    }

    /// A bool parameter.
    fn map_bool<const D: usize>(&mut self, param: Param<Tensor<B, D, Bool>>) -> Param<Tensor<B, D, Bool>> {
        param
    }
}
