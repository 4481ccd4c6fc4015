//! The layers that have parameters: what their records hold, in order, and what PyTorch calls that and how it lies there.
//!
//! Whoever writes a record without the runtime, recognizes layers by their tensors or finds a parameter in a checkpoint looks here.
//! A test of the runtime compares this with the layers themselves.

/// A layer of the runtime.
#[derive(Debug, PartialEq, Eq)]
pub struct Layer {
    /// The name of its type, `Conv2d`.
    pub name: &'static str,
    /// Where its type is below the runtime; its config's path has `Config` behind it.
    pub path: &'static str,
    /// Its fields in the order of its record, which formats without names depend on.
    pub fields: &'static [Field],
    /// The fields whose parameters PyTorch has one below the other in one tensor, in that order.
    pub joined: &'static [Joined],
}

/// A field of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// What it is in a record.
    pub slot: Slot,
    /// What PyTorch calls it.
    pub in_pytorch: &'static str,
    /// Whether PyTorch has the matrix transposed.
    pub transposed: bool,
}

/// What a field of a layer is in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// A parameter.
    Parameter,
    /// A parameter that may be left out.
    Optional,
    /// A number that the configuration has.
    Constant,
    /// An array of as many numbers.
    Constants(usize),
    /// The variant of an activation that the layer has unless it is told otherwise, as PyTorch's has it: its place in the
    /// runtime's enum, and its name.
    Activation(u32, &'static str),
    /// Another layer.
    Layer(&'static Layer),
}

/// A field whose parameters are a part of PyTorch's tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The field.
    pub field: &'static str,
    /// What PyTorch calls the field's weight where it is a tensor of its own.
    pub alone: Option<&'static str>,
}

/// What PyTorch calls the weights of attention's projections where they are one tensor.
pub const JOINED_PROJECTIONS: &str = "in_proj_weight";

impl Layer {
    const fn new(name: &'static str, path: &'static str, fields: &'static [Field]) -> Self {
        Self { name, path, fields, joined: &[] }
    }

    const fn joining(self, joined: &'static [Joined]) -> Self {
        Self { joined, ..self }
    }

    /// The layer whose type has a name.
    pub fn find(name: &str) -> Option<&'static Layer> {
        LAYERS.iter().copied().find(|layer| layer.name == name)
    }

    /// The fields that are parameters, in the order of the record.
    pub fn parameters(&self) -> impl Iterator<Item = &'static Field> + use<> {
        self.fields.iter().filter(|field| matches!(field.slot, Slot::Parameter | Slot::Optional))
    }

    /// The field of a name.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// What PyTorch calls a parameter of a layer, and whether the matrix is transposed there. This is where checkpoints have a
/// parameter of which nothing else is said.
pub fn in_pytorch<'f>(layer: &str, field: &'f str) -> (&'f str, bool) {
    let known = Layer::find(layer).and_then(|layer| layer.field(field));
    known.map_or((field, false), |field| (field.in_pytorch, field.transposed))
}

const fn field(name: &'static str, slot: Slot) -> Field {
    Field { name, slot, in_pytorch: name, transposed: false }
}

const fn parameter(name: &'static str) -> Field {
    field(name, Slot::Parameter)
}

const fn optional(name: &'static str) -> Field {
    field(name, Slot::Optional)
}

const fn constant(name: &'static str) -> Field {
    field(name, Slot::Constant)
}

const fn layer(name: &'static str, layer: &'static Layer) -> Field {
    field(name, Slot::Layer(layer))
}

impl Field {
    const fn called(self, in_pytorch: &'static str) -> Self {
        Self { in_pytorch, ..self }
    }

    const fn transposed(self) -> Self {
        Self { transposed: true, ..self }
    }
}

const fn joined(field: &'static str) -> Joined {
    Joined { field, alone: None }
}

const SIGMOID: Slot = Slot::Activation(5, "Sigmoid");
const TANH: Slot = Slot::Activation(6, "Tanh");

/// `Linear`.
pub static LINEAR: Layer =
    Layer::new("Linear", "nn::Linear", &[parameter("weight").transposed(), optional("bias")]);
/// `QuantizedLinear`, which generated models have.
pub static QUANTIZED_LINEAR: Layer = Layer::new(
    "QuantizedLinear",
    "nn::QuantizedLinear",
    &[
        parameter("weight"),
        optional("weight_zero_point"),
        parameter("scale"),
        optional("bias"),
        optional("input_zero_point"),
        optional("integer_bias"),
        optional("output_zero_point"),
        constant("output_dtype"),
    ],
);
/// `QuantizedAdd`, which generated models have.
pub static QUANTIZED_ADD: Layer = Layer::new(
    "QuantizedAdd",
    "nn::QuantizedAdd",
    &[parameter("lhs_scale"), parameter("rhs_scale"), parameter("offset"), constant("dtype")],
);
/// `QuantizedMul`, which generated models have.
pub static QUANTIZED_MUL: Layer = Layer::new(
    "QuantizedMul",
    "nn::QuantizedMul",
    &[
        parameter("lhs_zero_point"),
        parameter("rhs_zero_point"),
        parameter("zero_point"),
        parameter("scale"),
        constant("dtype"),
    ],
);
/// `Quantizer`, which generated models have.
pub static QUANTIZER: Layer = Layer::new(
    "Quantizer",
    "nn::Quantizer",
    &[optional("scale"), parameter("zero_point"), constant("dtype")],
);
/// `Embedding`.
pub static EMBEDDING: Layer = Layer::new("Embedding", "nn::Embedding", &[parameter("weight")]);
/// `PRelu`.
pub static PRELU: Layer =
    Layer::new("PRelu", "nn::PRelu", &[parameter("alpha").called("weight"), constant("alpha_value")]);
/// `LayerNorm`.
pub static LAYER_NORM: Layer = Layer::new(
    "LayerNorm",
    "nn::LayerNorm",
    &[parameter("gamma").called("weight"), optional("beta").called("bias"), constant("epsilon")],
);
/// `RmsNorm`.
pub static RMS_NORM: Layer =
    Layer::new("RmsNorm", "nn::RmsNorm", &[parameter("gamma").called("weight"), constant("epsilon")]);
/// `GroupNorm`.
pub static GROUP_NORM: Layer = Layer::new(
    "GroupNorm",
    "nn::GroupNorm",
    &[
        optional("gamma").called("weight"),
        optional("beta").called("bias"),
        constant("num_groups"),
        constant("num_channels"),
        constant("epsilon"),
        constant("affine"),
    ],
);
/// `InstanceNorm`.
pub static INSTANCE_NORM: Layer = Layer::new(
    "InstanceNorm",
    "nn::InstanceNorm",
    &[
        optional("gamma").called("weight"),
        optional("beta").called("bias"),
        constant("num_channels"),
        constant("epsilon"),
        constant("affine"),
    ],
);
/// `BatchNorm`.
pub static BATCH_NORM: Layer = Layer::new(
    "BatchNorm",
    "nn::BatchNorm",
    &[
        parameter("gamma").called("weight"),
        parameter("beta").called("bias"),
        parameter("running_mean"),
        parameter("running_var"),
        constant("momentum"),
        constant("epsilon"),
    ],
);

/// Declares a convolution over so many dims, a transposed one, and one of quantized integers.
macro_rules! convolutions {
    ($($doc:literal $conv:ident $transposed:ident $quantized:ident $sizes:expr;)*) => {
        $(
            #[doc = concat!("`QuantizedConv", $doc, "`, which generated models have.")]
            pub static $quantized: Layer = Layer::new(
                concat!("QuantizedConv", $doc),
                concat!("nn::conv::QuantizedConv", $doc),
                &[
                    parameter("weight"),
                    optional("weight_zero_point"),
                    parameter("scale"),
                    optional("bias"),
                    optional("input_zero_point"),
                    optional("integer_bias"),
                    optional("output_zero_point"),
                    constant("output_dtype"),
                    field("stride", $sizes),
                    field("kernel_size", $sizes),
                    field("dilation", $sizes),
                    constant("groups"),
                    constant("padding"),
                ],
            );
            #[doc = concat!("`Conv", $doc, "`.")]
            pub static $conv: Layer = Layer::new(
                concat!("Conv", $doc),
                concat!("nn::conv::Conv", $doc),
                &[
                    parameter("weight"),
                    optional("bias"),
                    field("stride", $sizes),
                    field("kernel_size", $sizes),
                    field("dilation", $sizes),
                    constant("groups"),
                    constant("padding"),
                ],
            );
            #[doc = concat!("`ConvTranspose", $doc, "`.")]
            pub static $transposed: Layer = Layer::new(
                concat!("ConvTranspose", $doc),
                concat!("nn::conv::ConvTranspose", $doc),
                &[
                    parameter("weight"),
                    optional("bias"),
                    field("stride", $sizes),
                    field("kernel_size", $sizes),
                    field("dilation", $sizes),
                    constant("groups"),
                    field("padding", $sizes),
                    field("padding_out", $sizes),
                    field("channels", Slot::Constants(2)),
                ],
            );
        )*
    };
}

convolutions! {
    "1d" CONV_1D CONV_TRANSPOSE_1D QUANTIZED_CONV_1D Slot::Constant;
    "2d" CONV_2D CONV_TRANSPOSE_2D QUANTIZED_CONV_2D Slot::Constants(2);
    "3d" CONV_3D CONV_TRANSPOSE_3D QUANTIZED_CONV_3D Slot::Constants(3);
}

/// `DeformConv2d`.
pub static DEFORM_CONV_2D: Layer = Layer::new(
    "DeformConv2d",
    "nn::conv::DeformConv2d",
    &[
        parameter("weight"),
        optional("bias"),
        field("stride", Slot::Constants(2)),
        field("kernel_size", Slot::Constants(2)),
        field("dilation", Slot::Constants(2)),
        constant("weight_groups"),
        constant("offset_groups"),
        constant("padding"),
    ],
);
/// `SwiGlu`.
pub static SWI_GLU: Layer =
    Layer::new("SwiGlu", "nn::SwiGlu", &[layer("linear_inner", &LINEAR), layer("linear_outer", &LINEAR)]);
/// `MultiHeadAttention`; PyTorch's `MultiheadAttention`.
pub static MULTI_HEAD_ATTENTION: Layer = Layer::new(
    "MultiHeadAttention",
    "nn::attention::MultiHeadAttention",
    &[
        layer("query", &LINEAR),
        layer("key", &LINEAR),
        layer("value", &LINEAR),
        layer("output", &LINEAR).called("out_proj"),
        constant("dropout"),
        constant("activation"),
        constant("d_model"),
        constant("n_heads"),
        constant("d_k"),
        constant("min_float"),
        constant("quiet_softmax"),
    ],
)
.joining(&[
    Joined { field: "query", alone: Some("q_proj_weight") },
    Joined { field: "key", alone: Some("k_proj_weight") },
    Joined { field: "value", alone: Some("v_proj_weight") },
]);

/// The two linear layers of a gate.
pub static GATE_CONTROLLER: Layer = Layer::new(
    "GateController",
    "nn::GateController",
    &[layer("input_transform", &LINEAR).called("ih"), layer("hidden_transform", &LINEAR).called("hh")],
);
/// `Gru`.
pub static GRU: Layer = Layer::new(
    "Gru",
    "nn::Gru",
    &[
        layer("update_gate", &GATE_CONTROLLER),
        layer("reset_gate", &GATE_CONTROLLER),
        layer("new_gate", &GATE_CONTROLLER),
        constant("d_hidden"),
        constant("reset_after"),
    ],
)
.joining(&[joined("reset_gate"), joined("update_gate"), joined("new_gate")]);
/// `Lstm`.
pub static LSTM: Layer = Layer::new(
    "Lstm",
    "nn::Lstm",
    &[
        layer("input_gate", &GATE_CONTROLLER),
        layer("forget_gate", &GATE_CONTROLLER),
        layer("output_gate", &GATE_CONTROLLER),
        layer("cell_gate", &GATE_CONTROLLER),
        constant("d_hidden"),
        constant("batch_first"),
        constant("reverse"),
        constant("clip"),
        constant("input_forget"),
        field("gate_activation", SIGMOID),
        field("cell_activation", TANH),
        field("hidden_activation", TANH),
    ],
)
.joining(&[joined("input_gate"), joined("forget_gate"), joined("cell_gate"), joined("output_gate")]);
/// `Rnn`.
pub static RNN: Layer = Layer::new(
    "Rnn",
    "nn::Rnn",
    &[
        layer("gate", &GATE_CONTROLLER),
        constant("d_hidden"),
        constant("batch_first"),
        constant("reverse"),
        constant("clip"),
        field("hidden_activation", TANH),
    ],
)
.joining(&[joined("gate")]);

/// The fields of a layer that reads in both directions.
const fn both(direction: &'static Layer) -> [Field; 4] {
    [layer("forward", direction), layer("reverse", direction), constant("d_hidden"), constant("batch_first")]
}

/// `BiGru`.
pub static BI_GRU: Layer = Layer::new("BiGru", "nn::BiGru", &both(&GRU));
/// `BiLstm`.
pub static BI_LSTM: Layer = Layer::new("BiLstm", "nn::BiLstm", &both(&LSTM));
/// `BiRnn`.
pub static BI_RNN: Layer = Layer::new("BiRnn", "nn::BiRnn", &both(&RNN));
/// `Recurrent`, which generated models have.
pub static RECURRENT: Layer = Layer::new(
    "Recurrent",
    "nn::Recurrent",
    &[
        parameter("weight"),
        parameter("recurrent"),
        optional("bias"),
        constant("kind"),
        constant("direction"),
        constant("batch_first"),
    ],
);

/// All of them, by name.
pub static LAYERS: &[&Layer] = &[
    &BATCH_NORM,
    &BI_GRU,
    &BI_LSTM,
    &BI_RNN,
    &CONV_1D,
    &CONV_2D,
    &CONV_3D,
    &CONV_TRANSPOSE_1D,
    &CONV_TRANSPOSE_2D,
    &CONV_TRANSPOSE_3D,
    &DEFORM_CONV_2D,
    &EMBEDDING,
    &GATE_CONTROLLER,
    &GROUP_NORM,
    &GRU,
    &INSTANCE_NORM,
    &LAYER_NORM,
    &LINEAR,
    &LSTM,
    &MULTI_HEAD_ATTENTION,
    &PRELU,
    &QUANTIZED_ADD,
    &QUANTIZED_CONV_1D,
    &QUANTIZED_CONV_2D,
    &QUANTIZED_CONV_3D,
    &QUANTIZED_LINEAR,
    &QUANTIZED_MUL,
    &QUANTIZER,
    &RECURRENT,
    &RMS_NORM,
    &RNN,
    &SWI_GLU,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_sorted_and_join_fields_that_they_have() {
        assert!(LAYERS.is_sorted_by_key(|layer| layer.name));
        for layer in LAYERS {
            assert!(layer.joined.iter().all(|joined| layer.field(joined.field).is_some()), "{}", layer.name);
            assert!(layer.path.ends_with(&alloc::format!("::{}", layer.name)), "{}", layer.path);
        }
    }

    #[test]
    fn parameters_have_pytorchs_names() {
        assert_eq!(in_pytorch("Linear", "weight"), ("weight", true));
        assert_eq!(in_pytorch("BatchNorm", "beta"), ("bias", false));
        assert_eq!(in_pytorch("PRelu", "alpha"), ("weight", false));
        assert_eq!(in_pytorch("Mine", "gamma"), ("gamma", false));
    }
}
