//! The table of operators: two lines each, the module and the entry.

mod activation;
mod affine_grid;
mod arg_reduce;
mod array_feature_extractor;
mod attention;
mod average_pool;
mod batch_normalization;
mod bias_add;
mod binarizer;
mod binary;
mod bit_cast;
mod blocks;
mod c_dist;
mod cast;
mod causal_conv_with_state;
mod center_crop_pad;
mod clip;
mod col2im;
mod compare;
mod compress;
mod concat;
mod constant;
mod constant_of_shape;
mod conv;
mod conv_integer;
mod conv_transpose;
mod cum_sum;
mod deform_conv;
mod depth_to_space;
mod det;
mod detach;
mod dft;
mod dropout;
mod dynamic_quantize_lstm;
mod eigh;
mod einsum;
mod embed_layer_normalization;
mod expand;
mod eye_like;
mod fake_quantize;
mod feature_vectorizer;
mod flatten;
mod gated;
mod gather;
mod gather_block_quantized;
mod gather_elements;
mod gather_nd;
mod gemm;
mod global_pool;
mod grid_sample;
mod group_normalization;
mod group_query_attention;
mod grouped_matmul;
mod heads;
mod householder_product;
mod identity;
mod if_;
mod imputer;
mod is_inf;
mod kv_cache;
mod label_encoder;
mod layer_normalization;
mod limited_broadcast;
mod linear_attention;
mod linear_model;
mod loss;
mod lp_normalization;
mod lrn;
mod lu_factor;
mod matmul;
mod matmul_bnb4;
mod matmul_integer;
mod matmul_n_bits;
mod matrices;
mod matrix_function;
mod max_pool;
mod max_roi_pool;
mod max_unpool;
mod mel_weight_matrix;
mod moe;
mod multi_head_attention;
mod non_max_suppression;
mod non_zero;
mod normalizer;
mod one_hot;
mod one_hot_encoder;
mod optional;
mod pad;
mod prelu;
mod prelude;
mod qgemm;
mod qlinear_activation;
mod qlinear_average_pool;
mod qlinear_binary;
mod qlinear_concat;
mod qlinear_softmax;
mod qlinear_where;
mod qmoe;
mod qr;
mod quantization;
mod quantize_linear;
mod random;
mod range;
mod reduce;
mod reshape;
mod resize;
mod reverse_sequence;
mod rnn;
mod roi_align;
mod rotary_embedding;
mod scaler;
mod scatter_elements;
mod scatter_nd;
mod scores;
mod sequence;
mod shape;
mod slice;
mod softmax;
mod solve_triangular;
mod split;
mod squeeze;
mod svd;
mod svm;
mod swi_glu;
mod tensor_scatter;
mod tile;
mod top_k;
mod transpose;
mod tree_ensemble;
mod trilu;
mod unary;
mod unique;
mod unroll;
mod unsqueeze;
mod variadic;
mod where_;
mod window_functions;
mod zip_map;

use super::operator::{Entry, lower_form};
use std::collections::HashMap;
use std::sync::LazyLock;

/// The newest version of ONNX's operator set that the table was checked against.
pub(crate) const NEWEST_OPSET: i64 = 28;

macro_rules! operators {
    ($($module:ident :: $ty:ident,)*) => {
        static TABLE: LazyLock<Vec<Entry>> = LazyLock::new(|| {
            let mut table = Vec::new();
            $(table.extend(Entry::all::<$module::$ty>(|form, node, args, to| {
                lower_form::<$module::$ty>(form, node, args, to)
            }));)*
            table
        });
    };
}

operators! {
    activation::Activations,
    affine_grid::AffineGrid,
    arg_reduce::ArgReduce,
    array_feature_extractor::ArrayFeatureExtractor,
    attention::Attention,
    average_pool::AveragePool,
    batch_normalization::BatchNormalization,
    bias_add::BiasAdd,
    binarizer::Binarizer,
    binary::Binary,
    bit_cast::BitCast,
    c_dist::CDist,
    cast::Cast,
    causal_conv_with_state::CausalConvWithState,
    center_crop_pad::CenterCropPad,
    clip::Clip,
    col2im::Col2Im,
    compare::Compare,
    compress::Compress,
    concat::Concat,
    constant::Constant,
    constant_of_shape::ConstantOfShape,
    conv::Conv,
    conv_integer::ConvInteger,
    conv_transpose::ConvTranspose,
    cum_sum::CumSum,
    deform_conv::DeformConv,
    depth_to_space::DepthToSpace,
    det::Det,
    detach::Detach,
    dft::Dft,
    dropout::Dropout,
    dynamic_quantize_lstm::DynamicQuantizeLstm,
    eigh::Eigh,
    einsum::Einsum,
    embed_layer_normalization::EmbedLayerNormalization,
    expand::Expand,
    eye_like::EyeLike,
    fake_quantize::FakeQuantize,
    feature_vectorizer::FeatureVectorizer,
    flatten::Flatten,
    gated::Gated,
    gather::Gather,
    gather_block_quantized::GatherBlockQuantized,
    gather_elements::GatherElements,
    gather_nd::GatherNd,
    gemm::Gemm,
    global_pool::GlobalPool,
    grid_sample::GridSample,
    group_normalization::GroupNormalization,
    group_query_attention::GroupQueryAttention,
    grouped_matmul::GroupedMatMul,
    householder_product::HouseholderProduct,
    identity::Identity,
    if_::If,
    imputer::Imputer,
    is_inf::IsInf,
    label_encoder::LabelEncoder,
    layer_normalization::LayerNormalization,
    linear_attention::LinearAttention,
    linear_attention::LinearAttentionGate,
    linear_model::LinearModel,
    loss::Loss,
    lp_normalization::LpNormalization,
    lrn::Lrn,
    lu_factor::LuFactor,
    lu_factor::PivotedOrder,
    matmul::MatMul,
    matmul_bnb4::MatMulBnb4,
    matmul_integer::MatMulInteger,
    matmul_n_bits::MatMulNBits,
    matrix_function::MatrixFunction,
    max_pool::MaxPool,
    max_roi_pool::MaxRoiPool,
    max_unpool::MaxUnpool,
    mel_weight_matrix::MelWeightMatrix,
    moe::Moe,
    multi_head_attention::MultiHeadAttention,
    non_max_suppression::NonMaxSuppression,
    non_zero::NonZero,
    normalizer::Normalizer,
    one_hot::OneHot,
    one_hot_encoder::OneHotEncoder,
    optional::Optional,
    pad::Pad,
    prelu::PRelu,
    qgemm::QGemm,
    qlinear_activation::QLinearActivation,
    qlinear_average_pool::QLinearAveragePool,
    qlinear_binary::QLinearBinary,
    qlinear_concat::QLinearConcat,
    qlinear_softmax::QLinearSoftmax,
    qlinear_where::QLinearWhere,
    qmoe::QMoe,
    qr::Qr,
    quantize_linear::QuantizeLinear,
    random::Random,
    range::Range,
    reduce::Reduce,
    reshape::Reshape,
    resize::Resize,
    reverse_sequence::ReverseSequence,
    rnn::Rnn,
    roi_align::RoiAlign,
    rotary_embedding::RotaryEmbedding,
    scaler::Scaler,
    scatter_elements::ScatterElements,
    scatter_nd::ScatterNd,
    sequence::Sequence,
    shape::Shape,
    slice::Slice,
    softmax::Softmax,
    solve_triangular::SolveTriangular,
    split::Split,
    squeeze::Squeeze,
    svd::Svd,
    svm::Svm,
    swi_glu::SwiGlu,
    tensor_scatter::TensorScatter,
    tile::Tile,
    top_k::TopK,
    transpose::Transpose,
    tree_ensemble::TreeEnsemble,
    trilu::Trilu,
    unary::Unary,
    unique::Unique,
    unroll::Unroll,
    unsqueeze::Unsqueeze,
    variadic::Variadic,
    where_::Where,
    window_functions::WindowFunction,
    zip_map::ZipMap,
}

type Index = HashMap<(&'static str, &'static str), Vec<&'static Entry>>;

static INDEX: LazyLock<Index> = LazyLock::new(|| {
    let mut index = Index::new();
    for entry in &*TABLE {
        index.entry((entry.spec.domain, entry.spec.name)).or_default().push(entry);
    }
    index
});

/// The implementation of an operator in a version of its operator set.
pub(crate) fn find(domain: &str, name: &str, opset: i64) -> Option<&'static Entry> {
    let found = INDEX.get(&(domain, name))?;
    found.iter().copied().find(|entry| (entry.spec.since..=entry.spec.until).contains(&opset))
}

/// The versions in which an operator is known, as text.
pub(crate) fn versions(domain: &str, name: &str) -> Option<String> {
    let found = INDEX.get(&(domain, name))?;
    Some(found.iter().map(|entry| entry.spec.versions()).collect::<Vec<_>>().join(", "))
}

/// What to do instead of using an operator that is not imported.
pub(crate) fn advice(domain: &str, name: &str) -> Option<&'static str> {
    match (domain, name) {
        ("ai.onnx.ml", "CastMap" | "DictVectorizer") => {
            Some("it takes maps, which tensors cannot hold; give it rows of numbers")
        }
        ("", "StringNormalizer" | "StringSplit" | "StringConcat" | "RegexFullMatch")
        | ("com.microsoft", "Tokenizer" | "MurmurHash3") => Some(
            "it makes strings or numbers of what is in strings, of which tensors hold only places in a table; leave it \
             out of the exported pipeline, and do its work before the model",
        ),
        ("", "TfIdfVectorizer") => Some(
            "it counts the tokens of texts; leave it out of the exported pipeline, count before the model, and give it \
             the counts",
        ),
        ("com.microsoft.nchwc", _) => Some(
            "ONNX Runtime laid it out for one processor; save the optimized model with `ORT_ENABLE_EXTENDED`",
        ),
        ("com.microsoft", "EPContext") => {
            Some("it holds what an execution provider compiled; import the model from before that")
        }
        ("com.microsoft", "BeamSearch" | "GreedySearch" | "Sampling" | "WhisperBeamSearch") => Some(
            "it is a search around networks, which stand in its attributes; import these, each by itself",
        ),
        (
            "com.microsoft",
            "PackedAttention" | "PackedMultiHeadAttention" | "RemovePadding" | "RestorePadding",
        ) => Some("it leaves out padding for GPUs; import the model from before `convert_to_packing_mode`"),
        #[cfg(feature = "pt2")]
        (crate::pt2::DOMAIN, _) => crate::pt2::ADVICE,
        _ => None,
    }
}

/// An operator that Kiln imports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Support {
    /// Domain; empty for ONNX's own.
    pub domain: &'static str,
    /// Name.
    pub operator: &'static str,
    /// First version of the operator set.
    pub since: i64,
    /// Last version, when the operator was withdrawn or changed its meaning.
    pub until: Option<i64>,
}

/// Every operator that Kiln imports, sorted.
pub fn supported() -> Vec<Support> {
    let mut list: Vec<Support> = TABLE
        .iter()
        .map(|entry| entry.spec)
        .map(|spec| Support {
            domain: spec.domain,
            operator: spec.name,
            since: spec.since,
            until: (spec.until != i64::MAX).then_some(spec.until),
        })
        .collect();
    list.sort();
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_operator_is_listed_twice_for_one_version() {
        let list = supported();
        for pair in list.windows(2) {
            let same = (pair[0].domain, pair[0].operator) == (pair[1].domain, pair[1].operator);
            assert!(!same || pair[0].until.is_some_and(|until| until < pair[1].since), "{pair:?}");
        }
    }
}
