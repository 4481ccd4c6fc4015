//! Variables of the environment that choose how kernels compute. One that says something else than it may is not obeyed, and said so once.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

/// Which of the allowed values a variable has, if it has any.
#[cfg(target_arch = "x86_64")]
pub(crate) fn choice(variable: &'static str, allowed: &[&'static str]) -> Option<&'static str> {
    obeyed(variable, chosen(variable, &value(variable)?, allowed))
}

/// The number, from 1 on, that a variable has, if it has any.
pub(crate) fn count(variable: &'static str) -> Option<usize> {
    obeyed(variable, counted(variable, &value(variable)?))
}

/// What a variable says, if it is there. What is no Unicode is as wrong as any other text that means nothing.
fn value(variable: &str) -> Option<String> {
    std::env::var_os(variable).map(|value| value.to_string_lossy().into_owned())
}

/// What a text chooses; nothing if it is empty.
#[cfg(target_arch = "x86_64")]
fn chosen(variable: &str, value: &str, allowed: &[&'static str]) -> Result<Option<&'static str>, String> {
    match allowed.iter().find(|&&allowed| allowed == value) {
        Some(&chosen) => Ok(Some(chosen)),
        None if value.is_empty() => Ok(None),
        None => {
            Err(format!("{variable} is {value:?}, which is not obeyed: it may be {}", allowed.join(", ")))
        }
    }
}

fn counted(variable: &str, value: &str) -> Result<Option<usize>, String> {
    match value.trim().parse() {
        Ok(count @ 1..) => Ok(Some(count)),
        _ if value.is_empty() => Ok(None),
        _ => Err(format!("{variable} is {value:?}, which is not obeyed: it may be a number from 1 on")),
    }
}

/// What a variable says; where it says what it may not, that is printed, once for each variable.
fn obeyed<T>(variable: &'static str, value: Result<Option<T>, String>) -> Option<T> {
    static REPORTED: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    value.unwrap_or_else(|problem| {
        let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
        if !reported.contains(&variable) {
            reported.push(variable);
            // Who reads no warnings is not told.
            let _ = writeln!(std::io::stderr(), "warning: {problem}");
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn choices_are_those_allowed() {
        let of = |value| chosen("KILN_SIMD", value, &["scalar", "avx2"]);
        assert_eq!((of("avx2"), of("")), (Ok(Some("avx2")), Ok(None)));
        let problem = of("AVX\n2").unwrap_err();
        assert_eq!(problem, r#"KILN_SIMD is "AVX\n2", which is not obeyed: it may be scalar, avx2"#);
    }

    #[test]
    fn counts_are_numbers_from_1_on() {
        let of = |value| counted("KILN_NUM_THREADS", value);
        assert_eq!((of(" 2 "), of("")), (Ok(Some(2)), Ok(None)));
        for value in ["0", "-1", "two"] {
            let problem = of(value).unwrap_err();
            assert!(problem.contains("it may be a number from 1 on"), "{problem}");
        }
    }
}
