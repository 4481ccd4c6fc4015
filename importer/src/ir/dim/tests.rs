use super::*;

#[test]
fn equal_sizes_compare_equal() {
    let (batch, seq) = (Dim::symbol("batch"), Dim::symbol("seq"));
    let product = Dim::product([&batch, &seq, &Dim::constant(768)]);
    assert_eq!(product.floor_div(&Dim::product([&seq, &Dim::constant(768)])), batch);
    assert_eq!(&(&seq + &Dim::constant(1)) - &Dim::constant(1), seq);
    assert_eq!((&seq * &Dim::constant(2)).modulo(&Dim::constant(2)), Dim::constant(0));
}

#[test]
fn floors_like_python() {
    assert_eq!(Dim::constant(-7).floor_div(&Dim::constant(2)), Dim::constant(-4));
    assert_eq!(Dim::constant(-7).modulo(&Dim::constant(3)), Dim::constant(2));
    assert_eq!(Dim::constant(7).ceil_div(&Dim::constant(2)), Dim::constant(4));
    let half = |dim: &Dim| dim.floor_div(&Dim::constant(2));
    assert_eq!(half(&half(&Dim::symbol("h"))).to_string(), "h / 4");
    assert_eq!(half(&(&half(&Dim::symbol("h")) - &Dim::constant(4))).to_string(), "h / 4 - 2");
}

#[test]
fn sums_are_divided_by_sums() {
    let (batch, seq) = (Dim::symbol("batch"), Dim::symbol("seq"));
    let rows = &batch * &(&seq - &Dim::constant(1));
    let times = |dim: &Dim, factor: i64| dim * &Dim::constant(factor);
    assert_eq!(times(&rows, 32).floor_div(&times(&rows, 8)), Dim::constant(4));
    assert_eq!(times(&(&rows * &seq), 32).floor_div(&times(&rows, -8)), times(&seq, -4));
    assert_eq!(times(&rows, 32).modulo(&times(&rows, 8)), Dim::constant(0));
    // 3 / 2 of each term is no whole number of times.
    assert_eq!(times(&rows, 3).floor_div(&times(&rows, 2)).as_constant(), None);
    assert_eq!((&rows + &batch).floor_div(&rows).as_constant(), None);
}

#[test]
fn growth_is_bounded() {
    let mut dim = &Dim::symbol("a") + &Dim::symbol("b");
    for _ in 0..40 {
        dim = &dim * &dim.maximum(&Dim::constant(3));
    }
    assert!(dim.is_beyond());
}

#[test]
fn truncated_quotients_are_not_floors() {
    let (h, two) = (Dim::symbol("h"), Dim::constant(2));
    let half = (&h - &Dim::constant(6)).trunc_div(&two);
    assert_eq!(half.to_string(), "trunc_div(h - 6, 2)");
    for (size, expected) in [(9, 1), (6, 0), (5, 0), (3, -1), (2, -2), (1, -2)] {
        assert_eq!(half.substitute(&|_| Some(Dim::constant(size))), Dim::constant(expected), "{size}");
    }
    assert_eq!(half.bounds(&|_| (Some(1), Some(20))), (Some(-2), Some(7)));
    assert_eq!((&h * &Dim::constant(6)).trunc_div(&two), &h * &Dim::constant(3));
    assert_eq!(Dim::constant(i64::MIN).trunc_div(&Dim::constant(-1)), Dim::constant(i64::MAX));
}

/// What has no end is never taken for a number, by which a bound would become that of its axis.
#[test]
fn what_has_grown_beyond_stays_so() {
    let a = Dim::symbol("a");
    let mut beyond = &a + &Dim::symbol("b");
    for _ in 0..40 {
        beyond = &beyond * &beyond.maximum(&Dim::constant(3));
    }
    let two = Dim::constant(2);
    let results = [
        beyond.minimum(&a),
        a.maximum(&beyond),
        &beyond - &beyond,
        &two * &beyond,
        &beyond * &Dim::constant(0),
        -&beyond,
        beyond.floor_div(&two),
        beyond.floor_div(&beyond),
        a.modulo(&beyond),
        beyond.trunc_div(&two),
        Dim::compare(CompareOp::Equal, &beyond, &beyond),
        a.substitute(&|_| Some(beyond.clone())),
    ];
    for result in &results {
        assert!(result.is_beyond() && result.is_saturated(), "{result}");
        assert_eq!(result.as_constant(), None);
    }
}

/// A chain of halves ends where its divisor is beyond all numbers, whichever way it is rounded.
#[test]
fn quotients_of_quotients_end() {
    let (n, two) = (Dim::symbol("n"), Dim::constant(2));
    let value = |dim: &Dim, n: i64| dim.substitute(&|_| Some(Dim::constant(n))).as_constant();
    let (mut down, mut up) = (n.clone(), n);
    let mut last = (down.clone(), up.clone());
    for round in 0..200 {
        last = (down.clone(), up.clone());
        (down, up) = (down.floor_div(&two), up.ceil_div(&two));
        for number in [0, 1, 5, 1 << 40, (1 << 62) - 1, 1 << 62, (1 << 62) + 1, i64::MAX] {
            let divisor = 1_i128 << (round + 1).min(100);
            let number = i128::from(number);
            let (floor, ceil) = (number / divisor, (number + divisor - 1) / divisor);
            let number = number as i64;
            assert_eq!(value(&down, number), i64::try_from(floor).ok(), "{number} {down}");
            assert_eq!(value(&up, number), i64::try_from(ceil).ok(), "{number} {up}");
        }
    }
    assert_eq!(last, (down, up));
}

#[test]
fn prints_as_people_write() {
    let h = Dim::symbol("h");
    let half = (&h - &Dim::constant(1)).floor_div(&Dim::constant(2));
    assert_eq!((&half + &Dim::constant(1)).to_string(), "(h - 1) / 2 + 1");
    assert_eq!((&(&h * &Dim::constant(3)) - &Dim::constant(2)).to_string(), "3 * h - 2");
}

#[test]
fn expressions_without_end_saturate() {
    let (a, b) = (Dim::symbol("a"), Dim::symbol("b"));
    let (mut product, mut largest) = (&a + &b, a.clone());
    for _ in 0..64 {
        product = &product * &(&a + &product);
        largest = largest.maximum(&(&largest * &b));
    }
    assert!(product.count_atoms() <= 2 * MAX_ATOMS && largest.count_atoms() <= 2 * MAX_ATOMS);
    assert_eq!(Dim::constant(i64::MIN).modulo(&Dim::constant(-1)), Dim::constant(0));
}

#[test]
fn bounds_follow_from_those_of_symbols() {
    let size = |_: &Symbol| (Some(1), None);
    let (batch, seq) = (Dim::symbol("batch"), Dim::symbol("seq"));
    assert_eq!((&(&batch * &seq) - &Dim::constant(1)).bounds(&size), (Some(0), None));
    assert_eq!((-&seq).bounds(&size), (None, Some(-1)));
    assert_eq!((&seq - &batch).bounds(&size), (None, None));
    assert_eq!(seq.modulo(&Dim::constant(8)).bounds(&size), (Some(0), Some(7)));
    assert_eq!((-&seq).modulo(&batch).bounds(&size), (Some(0), None));
    assert_eq!(seq.modulo(&(&batch - &Dim::constant(1))).bounds(&size), (None, None));
    assert_eq!(seq.minimum(&Dim::constant(8)).bounds(&size), (Some(1), Some(8)));
}

#[test]
fn substitution_evaluates() {
    let h = Dim::symbol("h");
    let dim = &(&h - &Dim::constant(1)).floor_div(&Dim::constant(2)) + &Dim::constant(1);
    assert_eq!(dim.substitute(&|_| Some(Dim::constant(224))), Dim::constant(112));
}

#[test]
fn text_reads_back() {
    let texts = [
        "0",
        "-9223372036854775808",
        "9223372036854775807 * n",
        "seq + 1",
        "2 * batch * heads - 3",
        "-seq / 2 + 7 / n",
        "-(7 / n)",
        "(h - 1) / 2 + 1",
        "3 * (h / 4) * w",
        "-(h % 8) * \"2*N + 1\"",
        "max(a, b - 1) * min(a, 3)",
        "trunc_div(a - 6, 2) + 1",
        "greater(n, 0) + equal(n % 2, 1)",
        "(-n) / (-3)",
        "(2 * n) % (n + 1)",
    ];
    for text in texts {
        let dim: Dim = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        let printed = dim.to_string();
        assert_eq!(printed.parse::<Dim>().as_ref(), Ok(&dim), "{text} is printed as {printed}");
    }
    for (text, error) in [
        ("", "line 1, column 1: expected a size, found the end"),
        ("n +", "line 1, column 4: expected a size, found the end"),
        ("n m", "line 1, column 3: expected the end, found `m`"),
        ("sum(a, b)", "line 1, column 10: no function of sizes is called `sum`"),
        ("9223372036854775808", "line 1, column 1: the number 9223372036854775808 does not fit 64 bits"),
        ("\"a", "line 1, column 1: the text does not end"),
    ] {
        assert_eq!(text.parse::<Dim>().unwrap_err().to_string(), error);
    }
    let deep = "(".repeat(100_000);
    assert!(deep.parse::<Dim>().unwrap_err().to_string().contains("too deep"));
}

#[test]
fn a_table_that_was_cut_meets_what_it_was_cut_to() {
    let (seq, limit) = (Dim::symbol("seq"), Dim::constant(64));
    let cut = seq.minimum(&limit);
    assert_eq!(seq.met(&cut).as_ref(), Some(&seq));
    assert_eq!(cut.met(&seq).as_ref(), Some(&seq));
    assert_eq!(cut.met(&cut).as_ref(), Some(&cut));
    // A table without rows is met by a sequence of one.
    assert_eq!(seq.met(&seq.minimum(&Dim::constant(0))), None);
    assert_eq!(seq.met(&Dim::symbol("batch").minimum(&limit)), None);
    assert_eq!(seq.met(&(&cut + &Dim::constant(1))), None);
    let shorter = &seq - &Dim::constant(1);
    assert_eq!(shorter.met(&shorter.maximum(&Dim::constant(0))), Some(shorter.clone()));
    assert_eq!(shorter.met(&shorter.maximum(&Dim::constant(2))), None);
}
