//! Random numbers, drawn where they are needed: those that `kiln_tensor::compose::random_data` draws on the host for the same key, but for the last
//! bits of normal numbers in f64.

use super::{LINE, launch, line_of, program};
use crate::language::{Buffer, Builder, Kernel, Storage, Type, Value};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, held_as, require, supports};
use kiln_tensor::compose::bounds;
use kiln_tensor::{DType, Distribution, Shape};

/// What a [salt](Runtime::salt) is.
pub const SALT: DType = DType::I64;

/// Values over `[0, 1)`: so many, which f32 holds exactly.
const VALUES: f64 = 16_777_216.0;

/// Random numbers of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Random {
    /// How they are distributed.
    pub draw: Draw,
    /// The elements' dtype.
    pub dtype: DType,
    /// Whether a [salt](Runtime::salt) is mixed into the key.
    pub salted: bool,
}

/// How numbers are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Draw {
    /// Evenly over `[0, 1)`.
    Unit,
    /// 0 or 1, as often.
    Bit,
    /// 1 where one of 2²⁴ whole numbers is below a number, else 0.
    Below,
    /// Any integer of the dtype, as often: the lowest bits of two words.
    Whole,
    /// Evenly from a number on, over a range of a length; computed in f64. Integers are floored, floats stay between two numbers of their
    /// dtype.
    Uniform,
    /// About a mean with a deviation; computed in f64. An element takes two words (Box and Muller 1958).
    Normal,
}

impl Draw {
    /// How a distribution is drawn, and the numbers that say which it is; nothing where the host draws it: what is computed in f64 on devices
    /// that have none, and integers that are held as wider ones.
    fn of<R: Runtime>(
        distribution: Distribution,
        dtype: DType,
        device: &R::Device,
    ) -> Option<(Self, Vec<u32>)> {
        let doubles = |numbers: &[f64]| {
            numbers.iter().flat_map(|x| [x.to_bits() as u32, (x.to_bits() >> 32) as u32]).collect()
        };
        let has_doubles = supports::<R>(device, DType::F64);
        let is_held_wider = matches!(dtype, DType::I4 | DType::U4);
        match distribution {
            // What is below p is below p · VALUES before the division, which is exact.
            Distribution::Bernoulli(p) => Some((Self::Below, vec![(p * VALUES).ceil() as u32])),
            Distribution::Default if dtype.is_float() => Some((Self::Unit, Vec::new())),
            Distribution::Default if dtype.is_bool() => Some((Self::Bit, Vec::new())),
            _ if is_held_wider => None,
            Distribution::Default => Some((Self::Whole, Vec::new())),
            Distribution::Uniform(low, high) if has_doubles => {
                let [least, greatest] = bounds(low, high, dtype);
                Some((Self::Uniform, doubles(&[low, high - low, least, greatest])))
            }
            // A logarithm in f64 may differ in its last bits from the host's, which no other dtype sees.
            Distribution::Normal(mean, deviation) if has_doubles => {
                Some((Self::Normal, doubles(&[mean, deviation])))
            }
            Distribution::Uniform(..) | Distribution::Normal(..) => None,
        }
    }

    /// Elements of a block of words.
    fn elements(self) -> u32 {
        match self {
            Self::Unit | Self::Bit | Self::Below | Self::Uniform => 4,
            Self::Whole | Self::Normal => 2,
        }
    }
}

/// A word as a number over `[0, 1)`.
fn unit<'k>(word: Value<'k>, ty: Type) -> Value<'k> {
    let k = word.kernel();
    let part = if ty == Type::F64 { k.double(1.0 / VALUES) } else { k.value(1.0 / VALUES as f32) };
    (word >> 8_u32).to(ty) * part
}

/// 1 where something is true, else 0.
fn flag<'k>(is_one: Value<'k>, ty: Type) -> Value<'k> {
    let k = is_one.kernel();
    is_one.select(k.whole(1, ty), k.whole(0, ty))
}

/// Two words as a number about 0 with a deviation, in f64.
fn normal<'k>(words: [Value<'k>; 2], deviation: Value<'k>) -> Value<'k> {
    let k = words[0].kernel();
    let [first, second] = words.map(|word| unit(word, Type::F64));
    // 1 - u keeps the logarithm's argument above 0.
    let radius = ((k.double(1.0) - first).log() * k.double(-2.0)).sqrt();
    deviation * radius * (second * k.double(core::f64::consts::TAU)).cos()
}

impl Random {
    /// The kernel: an invocation draws the elements of a block of words. Buffers: the salt if there is one, the result. Parameters: how many
    /// there are, the key's words, the numbers of the distribution.
    pub fn kernel(&self) -> Kernel {
        let storage = held_as(self.dtype);
        Builder::kernel("random", [LINE, 1], |k| {
            let salt = salt(k, self.salted);
            let output = k.output(storage);
            let count = k.parameter();
            let key = mixed([k.parameter(), k.parameter()], salt);
            let block = k.position(LINE);
            for (place, value) in self.values(philox(block, key)).into_iter().enumerate() {
                let at = block * self.draw.elements() + place as u32;
                k.when(at.below(count), || output.set(at, value));
            }
        })
    }

    /// The elements of a block of words, with the next parameters.
    fn values<'k>(&self, words: [Value<'k>; 4]) -> Vec<Value<'k>> {
        let k = words[0].kernel();
        let storage = held_as(self.dtype);
        let ty = storage.value();
        let [a, b, c, d] = words;
        let pairs = [[a, b], [c, d]];
        let of_double = |value| program::converted(value, DType::F64, self.dtype);
        match self.draw {
            Draw::Unit => {
                let float = if ty == Type::F64 { Type::F64 } else { Type::F32 };
                let [_, greatest] = bounds(0.0, 1.0, self.dtype);
                // Of 24 bits these keep fewer: none may become 1.
                let is_short = matches!(storage, Storage::F16 | Storage::BF16);
                let value = |word| {
                    let value = unit(word, float);
                    if is_short { value.min(greatest as f32) } else { value }
                };
                words.map(value).to_vec()
            }
            Draw::Bit => words.map(|word| flag((word & 1_u32).differs(0_u32), ty)).to_vec(),
            Draw::Below => {
                let bound = k.parameter();
                words.map(|word| flag((word >> 8_u32).below(bound), ty)).to_vec()
            }
            Draw::Whole => {
                let is_long = matches!(ty, Type::I64 | Type::U64);
                let value = |[low, high]: [Value<'k>; 2]| {
                    if is_long {
                        return (low.to(Type::U64) | high.to(Type::U64) << 32_u32).bits(ty);
                    }
                    program::narrowed(low.bits(ty), self.dtype)
                };
                pairs.map(value).to_vec()
            }
            Draw::Uniform => {
                let [low, length, least, greatest] = [(); 4].map(|()| k.parameter_of(Type::F64));
                let value = |word| {
                    let value = low + length * unit(word, Type::F64);
                    if self.dtype.is_int() {
                        return of_double(value.floor());
                    }
                    let value = value.below(least).select(least, value);
                    of_double(value.above(greatest).select(greatest, value))
                };
                words.map(value).to_vec()
            }
            Draw::Normal => {
                let [mean, deviation] = [(); 2].map(|()| k.parameter_of(Type::F64));
                pairs.map(|pair| of_double(mean + normal(pair, deviation))).to_vec()
            }
        }
    }
}

/// The buffer of a [salt](Runtime::salt), if there is one.
pub(super) fn salt(k: &Builder, salted: bool) -> Option<Buffer<'_>> {
    salted.then(|| k.input(held_as(SALT)))
}

/// A key's words, a salt in them if there is one.
pub(super) fn mixed<'k>([low, high]: [Value<'k>; 2], salt: Option<Buffer<'k>>) -> [Value<'k>; 2] {
    let Some(salt) = salt else { return [low, high] };
    let salt = salt.at(low.kernel().value(0_u32)).bits(Type::U64);
    [low ^ salt.to(Type::U32), high ^ (salt >> 32_u32).to(Type::U32)]
}

/// The words of a block of [`Philox`](kiln_tensor::compose::Philox), whose number has 32 bits.
pub(super) fn philox<'k>(block: Value<'k>, [mut first, mut second]: [Value<'k>; 2]) -> [Value<'k>; 4] {
    let product = |word: Value<'k>, factor: u64| {
        let product = word.to(Type::U64) * factor;
        [(product >> 32_u32).to(Type::U32), product.to(Type::U32)]
    };
    let zero = block.kernel().value(0_u32);
    let mut counter = [block, zero, zero, zero];
    for _ in 0..10 {
        let [a, b, c, d] = counter;
        let [low_carry, low] = product(a, 0xD251_1F53);
        let [high_carry, high] = product(c, 0xCD9E_8D57);
        counter = [high_carry ^ b ^ first, high, low_carry ^ d ^ second, low];
        (first, second) = (first + 0x9E37_79B9_u32, second + 0xBB67_AE85_u32);
    }
    counter
}

/// Random numbers of a key; nothing where the host is to draw them.
pub(crate) fn random<R: Runtime>(
    key: u64,
    shape: &Shape,
    distribution: Distribution,
    dtype: DType,
    device: &R::Device,
) -> Option<GpuTensor<R>> {
    let (draw, numbers) = Draw::of::<R>(distribution, dtype, device)?;
    require::<R>(device, dtype);
    let out = GpuTensor::empty(shape.clone(), dtype, device);
    if out.is_empty() {
        return Some(out);
    }
    let count = u32::try_from(out.len()).ok().filter(|_| out.is_visible())?;
    let words = [vec![count, key as u32, (key >> 32) as u32], numbers].concat();
    let groups = line_of::<R>(device, out.len().div_ceil(draw.elements() as usize));
    let salt = R::salt(device);
    let tensors: Vec<_> = salt.iter().chain([&out]).collect();
    launch::<R>(device, Random { draw, dtype, salted: salt.is_some() }, &tensors, &words, groups);
    Some(out)
}
