//! Reports of passes that were written by hand.

use super::*;
use kiln_types::{ProfiledCall, ProfiledModule, ProfiledOperation};

/// A name as a file may have it.
const HOSTILE: &str = "a]]></title></svg><script>alert(1)</script>&\"'\n\u{1b}[2J\u{202e}";

fn operation(path: &str, name: &str, flops: Option<u64>, bytes: Option<u64>) -> ProfiledOperation {
    ProfiledOperation { path: path.into(), name: name.into(), shape: vec![2, 3], flops, bytes }
}

/// Three passes, in which operations take as many microseconds as the lists say, one after another.
fn profile(operations: Vec<ProfiledOperation>, passes: [&[(usize, u64)]; 3]) -> Profile {
    let passes = passes.map(|calls| {
        let mut pass = ProfiledPass::default();
        for &(operation, microseconds) in calls {
            let start = pass.time;
            pass.time += 1000 * microseconds;
            pass.calls.push(ProfiledCall { operation, start, end: pass.time });
        }
        pass
    });
    let peaks = Peaks {
        gflops: 100.0,
        memory_gbs: 10.0,
        memory_bytes: 1 << 29,
        cache_gbs: 50.0,
        cache_bytes: 1 << 18,
    };
    Profile { threads: 2, peaks, plain_ms: vec![0.11, 0.1, 0.09], operations, passes: passes.to_vec() }
}

fn example() -> Report {
    let operations = vec![
        operation("layer.0.query", "linear", Some(1_000_000), Some(1 << 20)),
        operation("layer.1.query", "linear", Some(1_000_000), Some(1 << 20)),
        operation("layer.0", "softmax", Some(1000), Some(1000)),
        operation("", "reshape", Some(0), Some(0)),
        operation("layer.1", "sort", None, Some(64)),
    ];
    let middle: &[(usize, u64)] = &[(3, 1), (0, 20), (2, 5), (2, 5), (1, 40), (4, 10), (3, 1)];
    let mut profile = profile(
        operations,
        [
            &[(3, 2), (0, 30), (2, 1), (2, 2), (1, 80), (4, 10), (3, 1)],
            middle,
            &[(3, 1), (0, 10), (2, 5), (2, 6), (1, 30), (4, 1), (3, 1)],
        ],
    );
    let module = |path: &str, depth, start, end| ProfiledModule { path: path.into(), depth, start, end };
    profile.passes[1].modules = vec![
        module("layer.0", 0, 500, 31_500),
        module("layer.0.query", 1, 900, 21_000),
        module("layer.1", 0, 31_500, 81_500),
        module("layer.1.query", 1, 31_000, 71_000),
    ];
    Report::new(profile).expect("passes")
}

#[test]
fn rows_are_medians_in_order_of_time() {
    let report = example();
    let rows: Vec<_> =
        report.rows.iter().map(|row| (row.path.as_str(), row.name.as_str(), row.calls)).collect();
    assert_eq!(
        rows,
        [
            ("layer.1.query", "linear", 1),
            ("layer.0.query", "linear", 1),
            ("layer.0", "softmax", 2),
            ("layer.1", "sort", 1),
            ("", "reshape", 2)
        ]
    );
    let of = |n: usize| report.rows[n].cost;
    assert_eq!((of(0).ms, of(1).ms, of(2).ms, of(4).ms), (0.04, 0.02, 0.01, 0.002));
    // 10^6 FLOPs in 40 µs; a MiB at 10 GB/s takes 104.8576 µs, more than the FLOPs at 100 GFLOP/s.
    assert_eq!(of(0).gflops(), Some(25.0));
    assert!((of(0).of_bound().expect("a bound") - 104.8576 / 40.0).abs() < 1e-9);
    // Two calls of 1000 FLOPs and bytes, which caches hold.
    assert_eq!((of(2).flops, of(2).bytes), (Some(2000), Some(2000)));
    assert!((of(2).of_bound().expect("a bound") - 2.0 * 0.02 / 10.0).abs() < 1e-9);
    assert_eq!((of(3).gflops(), of(3).of_bound(), of(4).gbs(), of(4).of_bound()), (None, None, None, None));
    assert!((report.operations_ms() - 0.082).abs() < 1e-9);
    assert!((report.other_ms() - 0.018).abs() < 1e-9);
    assert!((report.percent(0.04) - 40.0).abs() < 1e-9);
}

#[test]
fn sums_are_of_kinds_and_of_modules() {
    let report = example();
    let (name, calls, cost) = report.by_name()[0];
    assert_eq!((name, calls, cost.flops), ("linear", 2, Some(2_000_000)));
    let model = tree::tree(&report);
    assert!((model.cost.ms - report.operations_ms()).abs() < 1e-9);
    assert_eq!(model.cost.flops, None, "a sum with something uncounted is none");
    // `layer` holds nothing but its items, of which there are two.
    let [layer] = model.children.as_slice() else { panic!("{model:?}") };
    let shown = |module: &tree::Module| (module.name.clone(), (module.cost.ms * 1e6).round());
    assert_eq!(shown(layer), ("layer".to_owned(), 80_000.0));
    assert_eq!(
        layer.children.iter().map(shown).collect::<Vec<_>>(),
        [("1".to_owned(), 50_000.0), ("0".to_owned(), 30_000.0)]
    );
    let one = operation("a.b.c", "add", None, None);
    let model = tree::tree(&Report::new(profile(vec![one], [&[(0, 1)]; 3])).expect("passes"));
    assert_eq!(model.children.iter().map(|module| module.name.as_str()).collect::<Vec<_>>(), ["a.b.c"]);
}

#[test]
fn the_table_has_every_part() {
    let text = table(&example());
    for part in [
        "2 threads of this machine: 100.0 GFLOP/s; 10.0 GB/s of memory (512 MB streamed), 50.0 GB/s of caches (what moves up to 256 kB)",
        "medians of 3 passes each: 0.100 ms with nothing recorded, of which operations take 0.082 ms (82.0 %) and other work 0.018 ms",
        "    0.040   40.0      1     25.0     26.2     262 %  linear     2×3     layer.1.query\n",
        "    0.010   10.0      1        –      0.0         –  sort       2×3     layer.1\n",
        "    0.060   60.0      2     33.3     35.0     350 %  linear\n",
        "    0.050   50.0               –     21.0         –      1\n",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn names_of_files_stay_text() {
    let profile = {
        let operations = vec![operation(HOSTILE, "linear", Some(100), Some(100))];
        let mut profile = profile(operations, [&[(0, 50)]; 3]);
        for pass in &mut profile.passes {
            pass.modules = vec![ProfiledModule { path: HOSTILE.into(), depth: 0, start: 0, end: pass.time }];
        }
        profile
    };
    let report = Report::new(profile).expect("passes");
    let picture = picture(&report, HOSTILE);
    assert!(!picture.contains("<script") && !picture.contains("]]>"), "{picture}");
    assert!(picture.contains("&lt;script&gt;alert(1)&lt;/script&gt;&amp;"));
    for (element, count) in [("svg", 1), ("title", 5), ("g", 2)] {
        assert_eq!(
            picture.matches(&format!("<{element}>")).count()
                + picture.matches(&format!("<{element} ")).count(),
            count,
            "{element}"
        );
        assert_eq!(picture.matches(&format!("</{element}>")).count(), count, "{element}");
    }
    for text in [&picture, &table(&report)] {
        assert!(!text.replace('\n', "").contains(kiln_types::is_invisible), "{text:?}");
    }
    let line = json::line(&report.json());
    assert!(!line.trim_end().contains(kiln_types::is_invisible));
    let object: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(object["rows"][0]["module"], HOSTILE);
}

#[test]
fn the_picture_has_a_bar_for_each_call_and_a_point_for_each_rate() {
    let picture = picture(&example(), "case");
    assert_eq!(picture.matches("class=\"call\"").count(), 7);
    assert_eq!(picture.matches("class=\"module\"").count(), 4);
    // Two linear layers and softmax; nothing is known of sort's FLOPs.
    assert_eq!(picture.matches("class=\"point\"").count(), 3);
    assert!(!picture.contains("NaN") && !picture.contains("inf"), "{picture}");
    for part in
        ["layer.1.query: 0.040 ms", ">query</text>", "memory 10.0 GB/s", "100.0 GFLOP/s", "softmax (2)"]
    {
        assert!(picture.contains(part), "{part}");
    }
}

#[test]
fn json_has_the_rows_and_what_they_are_measured_against() {
    let json = example().json();
    let row = &json["rows"][0];
    assert_eq!(
        (&row["operation"], &row["calls"], &row["flops"]),
        (&json!("linear"), &json!(1), &json!(1_000_000))
    );
    assert_eq!((&row["gflops"], &json["rows"][3]["flops"]), (&json!(25.0), &Value::Null));
    assert_eq!((&json["peak_gflops"], &json["passes"]), (&json!(100.0), &json!(3)));
}

#[test]
fn what_the_runner_prints_is_read() {
    let operations = vec![operation("a", "linear", Some(2), Some(8))];
    let profile = profile(operations, [&[(0, 5)]; 3]);
    let text = serde_json::to_string(&profile).expect("JSON");
    let report = Report::parse(&format!("median_ms 1\nprofile {text}\n")).expect("a report");
    assert_eq!(report.rows.len(), 1);
    assert!(Report::parse("median_ms 1\n").is_err());
    let nothing = Profile { passes: Vec::new(), ..profile.clone() };
    assert!(Report::parse(&format!("profile {}", serde_json::to_string(&nothing).expect("JSON"))).is_err());
    let mut wrong = profile;
    wrong.passes[0].calls[0].operation = 7;
    assert!(Report::new(wrong).is_none());
}
