//! Literals and operators of generated source.

use kiln_types::{CompareOp, DType, Scalar, bf16, f16};
use proc_macro2::{Literal, TokenStream};
use quote::quote;

/// An integer without a suffix; a negative one with its sign.
pub fn int(value: i64) -> TokenStream {
    let magnitude = Literal::u64_unsuffixed(value.unsigned_abs());
    if value == i64::MIN {
        quote!(i64::MIN)
    } else if value < 0 {
        quote!(-#magnitude)
    } else {
        quote!(#magnitude)
    }
}

/// An integer to call a method on, as `i64` or as `usize`: `4i64`, `(-1i64)`.
pub fn typed_int(value: i64, signed: bool) -> TokenStream {
    let magnitude = value.unsigned_abs();
    match (i64::try_from(magnitude), signed) {
        (Err(_), _) => quote!(i64::MIN),
        (Ok(magnitude), false) => {
            let magnitude = Literal::usize_suffixed(magnitude as usize);
            quote!(#magnitude)
        }
        (Ok(magnitude), true) => {
            let magnitude = Literal::i64_suffixed(magnitude);
            if value < 0 { quote!((-#magnitude)) } else { quote!(#magnitude) }
        }
    }
}

macro_rules! constants {
    ($($name:ident),*) => {
        [$((stringify!($name), std::f64::consts::$name, std::f32::consts::$name)),*]
    };
}

/// Numbers that have a name in the standard library. Clippy takes a literal near one for a mistake.
const NAMED: [(&str, f64, f32); 19] = constants![
    E,
    FRAC_1_PI,
    FRAC_1_SQRT_2,
    FRAC_2_PI,
    FRAC_2_SQRT_PI,
    FRAC_PI_2,
    FRAC_PI_3,
    FRAC_PI_4,
    FRAC_PI_6,
    FRAC_PI_8,
    LN_2,
    LN_10,
    LOG10_2,
    LOG10_E,
    LOG2_10,
    LOG2_E,
    PI,
    SQRT_2,
    TAU
];

/// A positive number that has a name; `short` when an `f32` is right too.
fn named(value: f64, short: bool) -> Option<TokenStream> {
    NAMED.iter().find_map(|&(name, double, single)| {
        let name = crate::names::ident(name);
        if value == double {
            Some(quote!(core::f64::consts::#name))
        } else if value == f64::from(single) {
            let single = quote!(core::f32::consts::#name);
            Some(if short { single } else { quote!(f64::from(#single)) })
        } else {
            None
        }
    })
}

/// Whether clippy might take a number for a named one: three digits or more that are a named one's, the last rounded or cut off.
fn is_near_named(value: f64, text: &str) -> bool {
    let decimals = text.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let unit = 0.1f64.powi(decimals as i32);
    let digits = text.trim_start_matches(['0', '.']).chars().filter(char::is_ascii_digit).count();
    digits >= 3 && NAMED.iter().any(|(_, double, _)| (value - double).abs() < unit)
}

/// An `f64`; the shortest text that reads back as the same number.
pub fn float(value: f64) -> TokenStream {
    if value.is_nan() {
        return quote!(f64::NAN);
    }
    if value.is_infinite() {
        return if value > 0.0 { quote!(f64::INFINITY) } else { quote!(f64::NEG_INFINITY) };
    }
    if value.abs() == f64::from(f32::MAX) {
        return if value > 0.0 { quote!(f64::from(f32::MAX)) } else { quote!(f64::from(f32::MIN)) };
    }
    let magnitude = named(value.abs(), false).unwrap_or_else(|| float_text(value.abs()));
    if value.is_sign_negative() { quote!(-#magnitude) } else { quote!(#magnitude) }
}

/// A float that stands for a number of dtype f32 or narrower: `0.1`, not `0.10000000149011612`.
pub fn single(value: f64) -> TokenStream {
    let narrow = value as f32;
    if let Some(name) = named(value.abs(), true) {
        return if value < 0.0 { quote!(-#name) } else { name };
    }
    if value.abs() == f64::from(f32::MAX) {
        return if value > 0.0 { quote!(f32::MAX) } else { quote!(f32::MIN) };
    }
    if f64::from(narrow) != value || !narrow.is_finite() {
        return float(value);
    }
    match narrow.to_string().parse::<f64>() {
        Ok(short) if short as f32 == narrow => float(short),
        _ => float(value),
    }
}

/// The number with the fewest digits that a half-precision dtype rounds to this one: `0.1`, not `0.09997558593750`.
fn shortest(value: f64, dtype: DType) -> f64 {
    let rounded = |x: f64| match dtype {
        DType::F16 => f16::from_f64(x).to_f64(),
        _ => bf16::from_f64(x).to_f64(),
    };
    let shorter = |digits| format!("{value:.digits$e}").parse::<f64>().ok();
    if value.fract() == 0.0 {
        return value;
    }
    (0..5usize).filter_map(shorter).find(|&short| rounded(short) == value).unwrap_or(value)
}

/// The digits of a finite, positive float. Very large and very small ones get an exponent.
fn float_text(value: f64) -> TokenStream {
    let mut text = format!("{value:?}");
    if (value != 0.0 && !(1e-5..1e16).contains(&value)) || is_near_named(value, &text) {
        text = format!("{value:e}");
    }
    text.parse::<Literal>().map_or_else(
        |_| {
            let literal = Literal::f64_unsuffixed(value);
            quote!(#literal)
        },
        |literal| quote!(#literal),
    )
}

/// A number for a tensor of a dtype.
pub fn scalar(value: Scalar, dtype: DType) -> TokenStream {
    match value {
        _ if dtype.is_bool() => {
            let value = value.to_bool();
            quote!(#value)
        }
        Scalar::UInt(value) => {
            let literal = Literal::u64_suffixed(value);
            quote!(#literal)
        }
        _ if dtype.is_int() => {
            let value = value.to_i64();
            // Without a suffix it would be an `i32` wherever nothing else is said.
            if i32::try_from(value).is_ok() {
                return int(value);
            }
            if let (DType::U64, Ok(value)) = (dtype, u64::try_from(value)) {
                let literal = Literal::u64_suffixed(value);
                return quote!(#literal);
            }
            match i64::try_from(value.unsigned_abs()) {
                Ok(magnitude) if value < 0 => {
                    let magnitude = Literal::i64_suffixed(magnitude);
                    quote!(-#magnitude)
                }
                Ok(magnitude) => {
                    let magnitude = Literal::i64_suffixed(magnitude);
                    quote!(#magnitude)
                }
                Err(_) => quote!(i64::MIN),
            }
        }
        _ if dtype == DType::F64 => float(value.to_f64()),
        _ if matches!(dtype, DType::F16 | DType::BF16) => single(shortest(value.to_f64(), dtype)),
        _ => single(value.to_f64()),
    }
}

/// A number for a tensor of a dtype, whose Rust type is plain to see.
pub fn typed(value: Scalar, dtype: DType) -> TokenStream {
    let text = scalar(value, dtype).to_string().replace(' ', "");
    let suffix = if dtype.is_float() { "_f64" } else { "_i64" };
    let plain = text.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | 'e' | '-'));
    let literal = if plain { format!("{text}{suffix}") } else { text };
    literal.parse().unwrap_or_else(|_| scalar(value, dtype))
}

/// A string, escaped.
pub fn string(value: &str) -> TokenStream {
    // Characters that reorder text are refused by rustc even inside literals, so all but plain ASCII goes as escapes.
    if value.is_ascii() {
        let literal = Literal::string(value);
        return quote!(#literal);
    }
    let mut text = String::from("\"");
    for c in value.chars() {
        if c.is_ascii() {
            text.extend(c.escape_default());
        } else {
            text.extend(c.escape_unicode());
        }
    }
    text.push('"');
    text.parse::<Literal>().map_or_else(|_| quote!(""), |literal| quote!(#literal))
}

/// The operator of a comparison.
pub fn comparison(op: CompareOp) -> TokenStream {
    match op {
        CompareOp::Equal => quote!(==),
        CompareOp::NotEqual => quote!(!=),
        CompareOp::Greater => quote!(>),
        CompareOp::GreaterEqual => quote!(>=),
        CompareOp::Lower => quote!(<),
        CompareOp::LowerEqual => quote!(<=),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back() {
        for value in [0.0, -0.0, 1.0, 0.1, 1e-12, 1e300, -3.5, 5e-324, f64::MAX] {
            let text = float(value).to_string().replace(' ', "");
            assert_eq!(text.parse::<f64>().map(f64::to_bits), Ok(value.to_bits()), "{text}");
        }
        assert_eq!(float(std::f64::consts::PI).to_string(), "core :: f64 :: consts :: PI");
        assert_eq!(float(314_159.0 / 1e5).to_string(), "3.14159e0");
        assert_eq!(float(6_932.0 / 1e4).to_string(), "6.932e-1");
        for plain in ["0.3", "0.7", "2.3", "0.69125", "0.70710677"] {
            assert_eq!(float(plain.parse().unwrap()).to_string(), plain);
        }
        assert_eq!(single(f64::from(0.1f32)).to_string(), "0.1");
        assert_eq!(single(f64::from(f32::MIN)).to_string(), "f32 :: MIN");
        assert_eq!(scalar(Scalar::Float(f16::from_f64(0.1).to_f64()), DType::F16).to_string(), "0.1");
        assert_eq!(scalar(Scalar::Float(bf16::from_f64(-0.2).to_f64()), DType::BF16).to_string(), "- 0.2");
        assert_eq!(scalar(Scalar::Float(65504.0), DType::F16).to_string(), "65504.0");
        assert_eq!(int(-7).to_string().replace(' ', ""), "-7");
    }

    #[test]
    fn strings_cannot_escape() {
        assert_eq!(string("a\"b\n").to_string(), r#""a\"b\n""#);
        assert_eq!(string("\u{202e}x").to_string(), r#""\u{202e}x""#);
    }
}
