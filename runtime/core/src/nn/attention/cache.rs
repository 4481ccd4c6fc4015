//! What attention keeps of a sequence that grows.

use super::{MhaInput, MhaOutput, MultiHeadAttention};
use crate::nn::cache::TensorCache;
use crate::tensor::{Bool, Tensor, backend::Backend};

/// What [`MultiHeadAttention::forward_cache`] keeps of the positions that it has seen.
#[derive(Clone, Debug)]
pub struct MhaCache<B: Backend> {
    memory: Memory<B>,
    /// `[batch, heads, seq_1, seq_2]`.
    weights: TensorCache<B, 4>,
    /// `[batch, seq_1, d_model]`.
    context: TensorCache<B, 3>,
}

impl<B: Backend> MhaCache<B> {
    /// For self-attention: keys and values grow with the queries.
    pub fn autoregressive() -> Self {
        Self::over(Memory::growing())
    }

    /// For attention to a memory that stays the same: its keys and values are computed once.
    pub fn autoregressive_cross_attention() -> Self {
        Self::over(Memory::fixed())
    }

    fn over(memory: Memory<B>) -> Self {
        Self { memory, weights: TensorCache::empty(), context: TensorCache::empty() }
    }
}

/// Keys and values, `[batch, heads, seq, d_k]` each.
#[derive(Clone, Debug)]
pub(crate) struct Memory<B: Backend> {
    key: TensorCache<B, 4>,
    value: TensorCache<B, 4>,
    grows: bool,
}

impl<B: Backend> Memory<B> {
    pub(crate) fn growing() -> Self {
        Self { key: TensorCache::empty(), value: TensorCache::empty(), grows: true }
    }

    pub(crate) fn fixed() -> Self {
        Self { grows: false, ..Self::growing() }
    }
}

/// The rows from `start` on: `[batch, seq, any]`.
pub(crate) fn rows_from<B: Backend>(x: Tensor<B, 3>, start: usize) -> Tensor<B, 3> {
    let rows = x.dims()[1];
    x.narrow(1, start, rows - start)
}

/// As [`rows_from`], of a mask.
pub(crate) fn mask_from<B: Backend>(
    mask: Option<Tensor<B, 3, Bool>>,
    start: usize,
) -> Option<Tensor<B, 3, Bool>> {
    mask.map(|mask| {
        let rows = mask.dims()[1];
        mask.narrow(1, start, rows - start)
    })
}

impl<B: Backend> MultiHeadAttention<B> {
    /// [`forward`](Self::forward) of a sequence that grows from call to call: `input` is the whole sequence, of which only the
    /// positions are computed that the cache has not seen. So are the weights: an earlier position attends to no later one, as if a
    /// [mask](super::generate_autoregressive_mask) hid it; what several new positions must not see of each other is the masks' to say.
    ///
    /// # Panics
    /// When the sequence is shorter than what the cache has seen.
    pub fn forward_cache(&self, input: MhaInput<B>, cache: &mut MhaCache<B>) -> MhaOutput<B> {
        let (done, [_, seq, _]) = (cache.context.len(1), input.query.dims());
        assert!(seq >= done, "attention: the cache has seen {done} positions, the sequence has {seq}");
        if let (Some(weights), Some(context)) = (cache.weights.kept(), cache.context.kept())
            && seq == done
        {
            return MhaOutput { weights, context };
        }
        let keys = if cache.memory.grows { cache.memory.key.len(2) } else { 0 };
        let new = MhaInput {
            query: rows_from(input.query, done),
            key: rows_from(input.key, keys),
            value: rows_from(input.value, keys),
            mask_pad: input.mask_pad,
            mask_attn: mask_from(input.mask_attn, done),
        };
        let new = self.forward_after(new, &mut cache.memory);
        let weights = match cache.weights.kept() {
            Some(before) => {
                let [batch, heads, rows, columns] = before.dims();
                let more = new.weights.dims()[3] - columns;
                let hidden = Tensor::zeros([batch, heads, rows, more], &before.device()).cast(before.dtype());
                cache.weights = TensorCache::empty();
                cache.weights.append(Tensor::cat(alloc::vec![before, hidden], 3), 2);
                cache.weights.append(new.weights, 2)
            }
            None => cache.weights.append(new.weights, 2),
        };
        MhaOutput { weights, context: cache.context.append(new.context, 1) }
    }

    /// [`forward`](Self::forward), or [`forward_after`](Self::forward_after) what a memory has.
    pub(crate) fn forward_over(&self, input: MhaInput<B>, memory: Option<&mut Memory<B>>) -> MhaOutput<B> {
        match memory {
            Some(memory) => self.forward_after(input, memory),
            None => self.forward(input),
        }
    }

    /// Attends from new positions to those in the memory and, if it grows, to themselves, which it keeps.
    pub(crate) fn forward_after(&self, new: MhaInput<B>, memory: &mut Memory<B>) -> MhaOutput<B> {
        let (key, value) = if memory.grows {
            let (key, value) = (self.heads(&self.key, new.key), self.heads(&self.value, new.value));
            (memory.key.append(key, 2), memory.value.append(value, 2))
        } else {
            let key = memory.key.or_compute(|| self.heads(&self.key, new.key));
            (key, memory.value.or_compute(|| self.heads(&self.value, new.value)))
        };
        self.attend(new.query, key, value, new.mask_pad, new.mask_attn)
    }
}
