//! Transformer encoder and decoder (Vaswani et al. 2017).

mod decoder;
mod encoder;
mod feed_forward;

pub use decoder::{
    TransformerDecoder, TransformerDecoderAutoregressiveCache, TransformerDecoderConfig,
    TransformerDecoderInput, TransformerDecoderLayer,
};
pub use encoder::{
    TransformerEncoder, TransformerEncoderAutoregressiveCache, TransformerEncoderConfig,
    TransformerEncoderInput, TransformerEncoderLayer,
};
pub use feed_forward::{PositionWiseFeedForward, PositionWiseFeedForwardConfig};
