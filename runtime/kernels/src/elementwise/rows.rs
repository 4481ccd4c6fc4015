//! Operations on rows of elements: the inner loops of broadcasting and of programs.

use super::scalar::binary_of;
use crate::simd::{Simd, dispatched};
use kiln_types::{BinaryOp, CompareOp};

/// A row to read.
#[derive(Clone, Copy)]
pub(crate) enum Row {
    /// Contiguous elements.
    Elements(*const f32),
    /// One number for all.
    Scalar(f32),
    /// Every `n`-th element.
    Stepped(*const f32, isize),
}

impl Row {
    /// The row that starts at `start` with a stride.
    ///
    /// # Safety
    /// `start` is valid for reading if the stride is 0.
    pub unsafe fn new(start: *const f32, stride: isize) -> Self {
        match stride {
            // SAFETY: the caller's promise.
            0 => Row::Scalar(unsafe { *start }),
            1 => Row::Elements(start),
            stride => Row::Stepped(start, stride),
        }
    }

    /// The row from its `at`-th element on.
    ///
    /// # Safety
    /// The row has `at` elements.
    pub unsafe fn from(self, at: usize) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Row::Elements(start) => Row::Elements(start.add(at)),
                Row::Scalar(x) => Row::Scalar(x),
                Row::Stepped(start, step) => Row::Stepped(start.offset(at as isize * step), step),
            }
        }
    }

    /// One element.
    ///
    /// # Safety
    /// The row has it.
    #[inline(always)]
    pub unsafe fn at(self, i: usize) -> f32 {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Row::Elements(start) => *start.add(i),
                Row::Scalar(x) => x,
                Row::Stepped(start, step) => *start.offset(i as isize * step),
            }
        }
    }
}

/// `out[i] = f(a[i], b[i])`.
#[inline(always)]
unsafe fn zip<S: Simd>(s: S, a: Row, b: Row, out: *mut f32, n: usize, f: impl Fn(S::F, S::F) -> S::F) {
    // SAFETY: rows and output hold `n` elements, as the caller says.
    unsafe {
        match (a, b) {
            (Row::Elements(a), Row::Elements(b)) => {
                let mut i = 0;
                while i + S::LANES <= n {
                    s.store(out.add(i), f(s.load(a.add(i)), s.load(b.add(i))));
                    i += S::LANES;
                }
                if i < n {
                    s.store_first(
                        out.add(i),
                        n - i,
                        f(s.load_first(a.add(i), n - i), s.load_first(b.add(i), n - i)),
                    );
                }
            }
            (Row::Elements(a), Row::Scalar(b)) => {
                let b = s.splat(b);
                one(
                    s,
                    a,
                    out,
                    n,
                    #[inline(always)]
                    |a| f(a, b),
                );
            }
            (Row::Scalar(a), Row::Elements(b)) => {
                let a = s.splat(a);
                one(
                    s,
                    b,
                    out,
                    n,
                    #[inline(always)]
                    |b| f(a, b),
                );
            }
            _ => {
                // Steps, or two scalars: lanes are filled one by one.
                let mut i = 0;
                while i < n {
                    let count = S::LANES.min(n - i);
                    let (mut x, mut y) = ([0.0; 16], [0.0; 16]);
                    for lane in 0..count {
                        (x[lane], y[lane]) = (a.at(i + lane), b.at(i + lane));
                    }
                    s.store_up_to(out.add(i), count, f(s.load(x.as_ptr()), s.load(y.as_ptr())));
                    i += count;
                }
            }
        }
    }
}

/// `out[i] = f(x[i])`.
#[inline(always)]
unsafe fn one<S: Simd>(s: S, x: *const f32, out: *mut f32, n: usize, f: impl Fn(S::F) -> S::F) {
    let mut i = 0;
    // SAFETY: as for `zip`.
    unsafe {
        while i + S::LANES <= n {
            s.store(out.add(i), f(s.load(x.add(i))));
            i += S::LANES;
        }
        if i < n {
            s.store_first(out.add(i), n - i, f(s.load_first(x.add(i), n - i)));
        }
    }
}

/// `x ^ 0.5`: a power of -0 is 0, one of -∞ is ∞.
#[inline(always)]
fn positive_root<S: Simd>(s: S, x: S::F) -> S::F {
    let root = s.add(s.sqrt(x), s.splat(0.0));
    s.select(s.eq(x, s.splat(f32::NEG_INFINITY)), s.splat(f32::INFINITY), root)
}

/// `x ^ y` for the exponents that need no logarithm; `false` for others.
#[inline(always)]
unsafe fn simple_power<S: Simd>(s: S, x: *const f32, y: f32, out: *mut f32, n: usize) -> bool {
    // SAFETY: as for `zip`.
    unsafe {
        if y == 2.0 {
            one(
                s,
                x,
                out,
                n,
                #[inline(always)]
                |x| s.mul(x, x),
            );
        } else if y == 3.0 {
            one(
                s,
                x,
                out,
                n,
                #[inline(always)]
                |x| s.mul(s.mul(x, x), x),
            );
        } else if y == 1.0 {
            one(
                s,
                x,
                out,
                n,
                #[inline(always)]
                |x| x,
            );
        } else if y == -1.0 {
            one(
                s,
                x,
                out,
                n,
                #[inline(always)]
                |x| s.div(s.splat(1.0), x),
            );
        } else if y == 0.5 {
            one(
                s,
                x,
                out,
                n,
                #[inline(always)]
                |x| positive_root(s, x),
            );
        } else if y == -0.5 {
            one(
                s,
                x,
                out,
                n,
                #[inline(always)]
                |x| s.div(s.splat(1.0), positive_root(s, x)),
            );
        } else if y == 0.25 {
            one(
                s,
                x,
                out,
                n,
                #[inline(always)]
                |x| s.sqrt(positive_root(s, x)),
            );
        } else if y == 0.75 {
            one(
                s,
                x,
                out,
                n,
                #[inline(always)]
                |x| {
                    let root = positive_root(s, x);
                    s.mul(root, s.sqrt(root))
                },
            );
        } else if y == 1.5 {
            one(
                s,
                x,
                out,
                n,
                #[inline(always)]
                |x| {
                    let root = positive_root(s, x);
                    // The root of -∞ is ∞, which it would make negative.
                    s.mul(s.abs(x), root)
                },
            );
        } else {
            return false;
        }
    }
    true
}

dispatched! {
    /// `out[i] = op(a[i], b[i])` for `n` elements; the output may be one of the operands.
    ///
    /// # Safety
    /// Rows and output hold `n` elements.
    pub(crate) unsafe fn binary_row<S>(s, op: BinaryOp, a: Row, b: Row, out: *mut f32, n: usize) {
        match op {
            BinaryOp::Add => zip(s, a, b, out, n, #[inline(always)] |x, y| s.add(x, y)),
            BinaryOp::Sub => zip(s, a, b, out, n, #[inline(always)] |x, y| s.sub(x, y)),
            BinaryOp::Mul => zip(s, a, b, out, n, #[inline(always)] |x, y| s.mul(x, y)),
            BinaryOp::Div => zip(s, a, b, out, n, #[inline(always)] |x, y| s.div(x, y)),
            // `max` yields its second operand for NaN; a NaN in the first is put back.
            BinaryOp::Max => {
                zip(s, a, b, out, n, #[inline(always)] |x, y| s.select(s.eq(x, x), s.max(x, y), x));
            }
            BinaryOp::Min => {
                zip(s, a, b, out, n, #[inline(always)] |x, y| s.select(s.eq(x, x), s.min(x, y), x));
            }
            _ => {
                if let (BinaryOp::Pow, Row::Elements(x), Row::Scalar(y)) = (op, a, b)
                    && simple_power(s, x, y, out, n)
                {
                    return;
                }
                for i in 0..n {
                    *out.add(i) = binary_of(op, a.at(i), b.at(i));
                }
            }
        }
    }
}

/// `out[i] = yes or no`, as the type of the output says it.
#[inline(always)]
unsafe fn compare<T>(op: CompareOp, a: Row, b: Row, n: usize, out: *mut T, say: impl Fn(bool) -> T) {
    /// A loop for each operation and form of rows, so that compilers see plain ones.
    macro_rules! loops {
        ($($op:ident: $test:expr),*) => {
            match op {
                $(CompareOp::$op => {
                    let test = $test;
                    match (a, b) {
                        (Row::Elements(a), Row::Elements(b)) => {
                            for i in 0..n {
                                *out.add(i) = say(test(*a.add(i), *b.add(i)));
                            }
                        }
                        (Row::Elements(a), Row::Scalar(b)) => {
                            for i in 0..n {
                                *out.add(i) = say(test(*a.add(i), b));
                            }
                        }
                        _ => {
                            for i in 0..n {
                                *out.add(i) = say(op.holds(a.at(i), b.at(i)));
                            }
                        }
                    }
                })*
            }
        };
    }
    // SAFETY: rows and output hold `n` elements, as the caller says.
    unsafe {
        loops!(
            Equal: |a: f32, b: f32| a == b,
            NotEqual: |a: f32, b: f32| a != b,
            Greater: |a: f32, b: f32| a > b,
            GreaterEqual: |a: f32, b: f32| a >= b,
            Lower: |a: f32, b: f32| a < b,
            LowerEqual: |a: f32, b: f32| a <= b
        );
    }
}

dispatched! {
    /// `out[i] = op(a[i], b[i])` as bytes.
    ///
    /// # Safety
    /// Rows and output hold `n` elements.
    pub(crate) unsafe fn compare_row<S>(_s, op: CompareOp, a: Row, b: Row, out: *mut u8, n: usize) {
        compare(op, a, b, n, out, u8::from);
    }
}

dispatched! {
    /// `out[i] = op(a[i], b[i])` as 0.0 or 1.0.
    ///
    /// # Safety
    /// Rows and output hold `n` elements.
    pub(crate) unsafe fn compare_row_f32<S>(_s, op: CompareOp, a: Row, b: Row, out: *mut f32, n: usize) {
        compare(op, a, b, n, out, #[inline(always)] |yes| if yes { 1.0 } else { 0.0 });
    }
}

dispatched! {
    /// `out[i] = mask[i] != 0 ? a[i] : b[i]`.
    ///
    /// # Safety
    /// Rows and output hold `n` elements.
    pub(crate) unsafe fn select_row<S>(s, mask: Row, a: Row, b: Row, out: *mut f32, n: usize) {
        // One loop for each form of rows, so that none is asked for its form inside.
        match (mask, a, b) {
            (Row::Elements(mask), Row::Elements(a), Row::Elements(b)) => {
                select(s, mask, out, n, #[inline(always)] |i, n| (s.load_up_to(a.add(i), n), s.load_up_to(b.add(i), n)));
            }
            (Row::Elements(mask), Row::Elements(a), Row::Scalar(b)) => {
                let b = s.splat(b);
                select(s, mask, out, n, #[inline(always)] |i, n| (s.load_up_to(a.add(i), n), b));
            }
            (Row::Elements(mask), Row::Scalar(a), Row::Elements(b)) => {
                let a = s.splat(a);
                select(s, mask, out, n, #[inline(always)] |i, n| (a, s.load_up_to(b.add(i), n)));
            }
            _ => {
                for i in 0..n {
                    *out.add(i) = if mask.at(i) != 0.0 { a.at(i) } else { b.at(i) };
                }
            }
        }
    }
}

/// `out[i] = mask[i] != 0 ? a[i] : b[i]`, where `at` reads some elements of both.
#[inline(always)]
unsafe fn select<S: Simd>(
    s: S,
    mask: *const f32,
    out: *mut f32,
    n: usize,
    at: impl Fn(usize, usize) -> (S::F, S::F),
) {
    let zero = s.splat(0.0);
    for i in (0..n).step_by(S::LANES) {
        let count = S::LANES.min(n - i);
        // SAFETY: mask and output hold `n` elements, as the caller says.
        unsafe {
            let no = s.eq(s.load_up_to(mask.add(i), count), zero);
            let (yes, other) = at(i, count);
            s.store_up_to(out.add(i), count, s.select(no, other, yes));
        }
    }
}
