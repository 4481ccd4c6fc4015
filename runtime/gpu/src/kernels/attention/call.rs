//! What all kernels of attention are told, and what a query sees.

use super::LOWEST;
use crate::kernels::access;
use crate::kernels::direct::{Side, fours_along};
use crate::language::{Buffer, Builder, Type, Value};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, held_as};
use core::f32::consts::LOG2_E;
use kiln_tensor::backend::Layout;
use kiln_tensor::{AttentionOptions, DType, FullyMasked, Shape};

/// Queries, keys and values, as plain arithmetic reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Heads {
    /// The elements' dtype.
    pub dtype: DType,
    /// Size of a query and a key.
    pub size: u32,
    /// Size of a value.
    pub value_size: u32,
    /// Whether queries, keys, values are read four elements at a time.
    pub fours: [bool; 3],
}

impl Heads {
    /// The next buffers as queries, keys and values.
    pub(super) fn declare(self, k: &Builder) -> [Side<'_>; 3] {
        self.fours.map(|fours| Side::declare(k, self.dtype, fours))
    }
}

/// How products of queries and keys become scores, and which of them a query sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scoring {
    /// The mask's dtype, if there is a mask: truth values hide keys, numbers are added to scores.
    pub mask: Option<DType>,
    /// Whether keys after the query's position have no part.
    pub is_causal: bool,
    /// Whether scores are capped.
    pub softcap: bool,
    /// What a query without any key yields.
    pub fully_masked: Option<FullyMasked>,
}

/// Where the rows of an operand are.
pub(super) struct Place<'k> {
    start: Value<'k>,
    batch: Value<'k>,
    head: Value<'k>,
    row: Value<'k>,
    pub along: Value<'k>,
}

impl<'k> Place<'k> {
    pub fn declare(k: &'k Builder) -> Self {
        let next = || k.parameter();
        Self { start: next(), batch: next(), head: next(), row: next(), along: next() }
    }

    pub fn row(&self, [batch, head]: [Value<'k>; 2], row: Value<'k>) -> Value<'k> {
        self.start + batch * self.batch + head * self.head + row * self.row
    }

    pub fn words(layout: &Layout) -> impl Iterator<Item = u32> + '_ {
        let strides = layout.strides.iter().map(|&stride| access::word(stride));
        core::iter::once(layout.offset as u32).chain(strides)
    }
}

/// What a kernel is told: heads, queries, keys, how many heads share those of a key; the scale, the cap; where queries, keys, values and a
/// fourth operand start, each with its strides along batch, heads and rows, and along the elements; the same of the mask, whose elements are keys.
pub(super) struct Call<'k> {
    pub heads: Value<'k>,
    pub queries: Value<'k>,
    pub keys: Value<'k>,
    pub sharing: Value<'k>,
    pub scale: Value<'k>,
    pub cap: Value<'k>,
    pub places: [Place<'k>; 4],
    mask: Option<(Buffer<'k>, Place<'k>)>,
}

impl<'k> Call<'k> {
    /// The next parameters.
    pub fn declare(k: &'k Builder, mask: Option<Buffer<'k>>) -> Self {
        let [heads, queries, keys, sharing] = [k.parameter(), k.parameter(), k.parameter(), k.parameter()];
        let (scale, cap) = (k.parameter().bits(Type::F32), k.parameter().bits(Type::F32));
        let places = [0, 1, 2, 3].map(|_| Place::declare(k));
        let mask = mask.map(|buffer| (buffer, Place::declare(k)));
        Self { heads, queries, keys, sharing, scale, cap, places, mask }
    }

    /// What the mask says of a batch, a head of it, a query and a key.
    pub fn masked(&self, [batch, head, query, key]: [Value<'k>; 4]) -> Option<Value<'k>> {
        let (buffer, place) = self.mask.as_ref()?;
        Some(buffer.at(place.row([batch, head], query) + key * place.along))
    }
}

impl Scoring {
    /// The next buffer as the mask, if there is one.
    pub(super) fn mask_buffer(self, k: &Builder) -> Option<Buffer<'_>> {
        self.mask.map(|dtype| k.input(held_as(dtype)))
    }

    /// Whether the mask is one that is added.
    pub(super) fn is_added(self) -> bool {
        self.mask.is_some_and(|dtype| !dtype.is_bool())
    }

    /// Whether a query may not see all keys that there are, or sees some of them otherwise.
    pub(super) fn hides_within(self) -> bool {
        self.is_causal || self.mask.is_some() || self.keeps_hidden()
    }

    /// Whether hidden keys count where there are no others.
    pub(super) fn keeps_hidden(self) -> bool {
        self.fully_masked == Some(FullyMasked::Mean)
    }

    /// Whether a query that sees no key yields zeros: a bool mask leaves them, an added one what softmax makes of it.
    pub(super) fn leaves_zeros(self) -> bool {
        !self.is_added() || self.fully_masked.is_some()
    }

    /// Whether scores may be told in another unit: where nothing is added to them, and no key counts with the lowest there is.
    pub(super) fn has_any_unit(self) -> bool {
        !self.is_added() && !self.keeps_hidden()
    }

    /// The score that belongs to a product, already scaled.
    pub(super) fn capped<'k>(self, call: &Call<'k>, score: Value<'k>) -> Value<'k> {
        if self.softcap { (score / call.cap).tanh() * call.cap } else { score }
    }

    /// The score that belongs to a product, before the mask.
    pub(super) fn score<'k>(self, call: &Call<'k>, product: Value<'k>) -> Value<'k> {
        self.capped(call, product * call.scale)
    }

    /// The [`score`](Self::score) in units of the logarithm of 2.
    pub(super) fn binary_score<'k>(self, call: &Call<'k>, product: Value<'k>) -> Value<'k> {
        if self.softcap { self.score(call, product) * LOG2_E } else { product * (call.scale * LOG2_E) }
    }

    /// How many keys a query sees, if it sees none after its own position; the last query sees the last key.
    pub(super) fn before<'k>(self, call: &Call<'k>, query: Value<'k>) -> Value<'k> {
        let seen = query + 1_u32 + call.keys;
        seen.at_least(call.queries).select(seen - call.queries, 0_u32).min(call.keys)
    }

    /// Beyond which key there is nothing for a query.
    pub(super) fn end<'k>(self, call: &Call<'k>, query: Value<'k>) -> Value<'k> {
        if self.is_causal && !self.keeps_hidden() { self.before(call, query) } else { call.keys }
    }

    /// A score with the mask: -∞ where the key has no part.
    pub(super) fn shown<'k>(self, call: &Call<'k>, score: Value<'k>, of: [Value<'k>; 4]) -> Value<'k> {
        let [_, _, query, key] = of;
        self.shown_by(call, score, call.masked(of), [query, key])
    }

    /// A score with what the mask says of it: -∞ where the key has no part.
    pub(super) fn shown_by<'k>(
        self,
        call: &Call<'k>,
        score: Value<'k>,
        mask: Option<Value<'k>>,
        [query, key]: [Value<'k>; 2],
    ) -> Value<'k> {
        let mut score = score;
        let mut visible = key.below(self.end(call, query));
        let mut kept = None;
        match mask {
            Some(mask) if mask.ty() == Type::Bool => kept = Some(mask),
            Some(added) => score = score + added,
            None => {}
        }
        if self.keeps_hidden() {
            if self.is_causal {
                let before = key.below(self.before(call, query));
                kept = Some(kept.map_or(before, |kept| kept & before));
            }
            score = kept.map_or(score, |kept| kept.select(score, LOWEST));
            score = score.below(LOWEST).select(LOWEST, score);
        } else if let Some(kept) = kept {
            visible = visible & kept;
        }
        visible.select(score, f32::NEG_INFINITY)
    }
}

/// The tensors of an attention, and what kernels are told of them.
pub(super) struct Operands<'a, R: Runtime> {
    pub q: &'a GpuTensor<R>,
    pub k: &'a GpuTensor<R>,
    pub v: &'a GpuTensor<R>,
    pub mask: Option<&'a GpuTensor<R>>,
    pub options: AttentionOptions,
}

impl<R: Runtime> Operands<'_, R> {
    /// Batch, heads, queries, keys.
    pub fn sizes(&self) -> [usize; 4] {
        let (q, k) = (self.q.dims(), self.k.dims());
        [q[0], q[1], q[2], k[2]]
    }

    /// Scores of all heads.
    pub fn scores(&self) -> usize {
        self.sizes().into_iter().fold(1, usize::saturating_mul)
    }

    /// Whether kernels see all of it and can count it, and there is something to compute with heads no longer than that.
    pub fn fit(&self, longest: usize) -> bool {
        let [batch, heads, queries, keys] = self.sizes();
        let size = self.q.dims()[3].max(self.v.dims()[3]);
        let mut all = [self.q, self.k, self.v].into_iter().chain(self.mask);
        // Scores are nowhere in memory: there may be more of them than positions.
        let is_counted = |n: usize| n > 0 && n <= i32::MAX as usize;
        all.all(GpuTensor::is_visible)
            && size <= longest
            && is_counted(batch.saturating_mul(heads).saturating_mul(queries))
            && is_counted(keys)
            && !self.v.is_empty()
    }

    /// What plain arithmetic knows of queries, keys and values.
    pub fn heads(&self) -> Heads {
        Heads {
            dtype: self.q.dtype,
            size: self.q.dims()[3] as u32,
            value_size: self.v.dims()[3] as u32,
            fours: [self.q, self.k, self.v].map(|tensor| fours_along(&tensor.layout)),
        }
    }

    /// What kernels know of its scores.
    pub fn scoring(&self) -> Scoring {
        let AttentionOptions { is_causal, softcap, fully_masked, .. } = self.options;
        let mask = self.mask.map(|mask| mask.dtype);
        Scoring { mask, is_causal, softcap: softcap.is_some(), fully_masked }
    }

    /// Whether tiles do not serve it: what an added mask leaves of the keys before a query decides what that yields.
    pub fn is_refused(&self) -> bool {
        let [_, _, queries, keys] = self.sizes();
        let scoring = self.scoring();
        scoring.is_added() && scoring.is_causal && (scoring.fully_masked.is_some() || queries > keys)
    }

    /// The parameters of a [`Call`] with a fourth operand.
    pub fn words(&self, fourth: &GpuTensor<R>) -> Vec<u32> {
        let [batch, heads, queries, keys] = self.sizes();
        let key_heads = self.k.dims()[1];
        let mut words = [heads, queries, keys, heads / key_heads.max(1)].map(|n| n as u32).to_vec();
        let AttentionOptions { scale, softcap, .. } = self.options;
        let scale = scale.unwrap_or_else(|| 1.0 / (self.q.dims()[3] as f64).sqrt());
        words.extend([scale, softcap.unwrap_or(1.0)].map(|x| (x as f32).to_bits()));
        for tensor in [self.q, self.k, self.v, fourth] {
            words.extend(Place::words(&tensor.layout));
        }
        let scores = Shape::from([batch, heads, queries, keys]);
        let mask = self.mask.map(|mask| mask.layout.expand(&scores));
        words.extend(mask.iter().flat_map(Place::words));
        words
    }

    /// Where the result goes: the heads of a query lie together, as what comes next wants them.
    pub fn result(&self) -> GpuTensor<R> {
        let [batch, heads, queries, _] = self.sizes();
        let shape = Shape::from([batch, queries, heads, self.v.dims()[3]]);
        let out = GpuTensor::empty(shape, self.q.dtype, &self.q.device);
        let layout = out.layout.permute(&[0, 2, 1, 3]);
        out.with_layout(layout)
    }
}
