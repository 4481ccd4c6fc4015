//! Operators for classical machine learning.

use super::*;

fn floats(name: &str, floats: &[f32]) -> AttributeProto {
    let floats = floats.to_vec();
    AttributeProto { name: name.into(), r#type: attribute_type::FLOATS, floats, ..AttributeProto::default() }
}

fn strings(name: &str, texts: &[&str]) -> AttributeProto {
    let strings = texts.iter().map(|text| text.as_bytes().to_vec().into()).collect();
    AttributeProto {
        name: name.into(),
        r#type: attribute_type::STRINGS,
        strings,
        ..AttributeProto::default()
    }
}

fn refused(operator: &str, attributes: Vec<AttributeProto>, outputs: &[&str]) -> String {
    let mut node = node("n", operator, &["x"], outputs);
    node.domain = "ai.onnx.ml".into();
    node.attribute = attributes;
    let mut model = model(vec![value("x", &[size(2), size(3)])], vec![node], outputs);
    model.opset_import.push(OperatorSetIdProto { domain: "ai.onnx.ml".into(), version: 3 });
    error(&model)
}

/// Three nodes, of which the first asks for the first feature.
fn trees(changes: Vec<AttributeProto>) -> Vec<AttributeProto> {
    let mut all = vec![
        ints("nodes_treeids", &[0, 0, 0]),
        ints("nodes_nodeids", &[0, 1, 2]),
        ints("nodes_featureids", &[0, 0, 0]),
        floats("nodes_values", &[0.5, 0.0, 0.0]),
        strings("nodes_modes", &["BRANCH_LEQ", "LEAF", "LEAF"]),
        ints("nodes_truenodeids", &[1, 0, 0]),
        ints("nodes_falsenodeids", &[2, 0, 0]),
        ints("target_treeids", &[0, 0]),
        ints("target_nodeids", &[1, 2]),
        ints("target_ids", &[0, 0]),
        floats("target_weights", &[1.0, 2.0]),
    ];
    all.retain(|old| changes.iter().all(|new| new.name != old.name));
    all.extend(changes);
    all
}

#[test]
fn strings_are_no_numbers() {
    let labels = || strings("classlabels_strings", &["cat", "dog"]);
    let message = refused("OneHotEncoder", vec![strings("cats_strings", &["a"])], &["y"]);
    assert!(message.contains("a tensor of numbers as the input `X`, a tensor of strings"), "{message}");
    let keys = vec![strings("keys_strings", &["a"]), ints("values_int64s", &[1])];
    let message = refused("LabelEncoder", keys, &["y"]);
    assert!(message.contains("a tensor of numbers as the input `X`, a tensor of strings"), "{message}");
    let message = refused("ZipMap", vec![labels()], &["y"]);
    assert!(message.contains("has 3 columns for 2 keys"), "{message}");
    let both = vec![labels(), ints("classlabels_int64s", &[0, 1])];
    let message = refused("ZipMap", both, &["y"]);
    assert!(message.contains("`classlabels_int64s` stands beside strings for the same"), "{message}");
    let message = refused("DictVectorizer", vec![], &["y"]);
    assert!(message.contains("it takes maps, which tensors cannot hold"), "{message}");

    // What looks into strings says what to do instead.
    for (operator, domain) in
        [("StringNormalizer", ""), ("TfIdfVectorizer", ""), ("Tokenizer", "com.microsoft")]
    {
        let mut unknown = node("n", operator, &["x"], &["y"]);
        unknown.domain = domain.into();
        let mut model = model(vec![value("x", &[size(2)])], vec![unknown], &["y"]);
        model.opset_import.push(OperatorSetIdProto { domain: "com.microsoft".into(), version: 1 });
        let message = error(&model);
        assert!(message.contains("leave it out of the exported pipeline"), "{message}");
    }

    let mut classifier = node("n", "LinearClassifier", &["x"], &["label", "scores"]);
    classifier.domain = "ai.onnx.ml".into();
    classifier.attribute = vec![labels(), floats("coefficients", &[1.0; 3]), floats("intercepts", &[0.0])];
    let used = |uses: NodeProto| {
        let mut model = model(vec![value("x", &[size(2), size(3)])], vec![classifier.clone(), uses], &["y"]);
        model.opset_import.push(OperatorSetIdProto { domain: "ai.onnx.ml".into(), version: 3 });
        error(&model)
    };
    let message = used(node("sum", "Add", &["label", "scores"], &["y"]));
    assert!(message.contains("a tensor of strings as the input `A`"), "{message}");
    let message = used(node("join", "Concat", &["label", "scores"], &["y"]));
    assert!(
        message.contains("a tensor of numbers where the first input is a tensor of strings"),
        "{message}"
    );
    let message = used(node("same", "Equal", &["label", "label"], &["y"]));
    assert!(message.contains("a comparison of strings of which neither are constants"), "{message}");
    let mut cast = node("cast", "Cast", &["scores"], &["y"]);
    cast.attribute = vec![int("to", 8)];
    assert!(used(cast.clone()).contains("numbers that become strings"));
    cast.input = vec!["label".into()];
    cast.attribute = vec![int("to", 1)];
    assert!(used(cast).contains("a tensor of strings as the input `input`"));
}

#[test]
fn numbers_that_do_not_fit_are_named() {
    let two = || floats("coefficients", &[1.0, 2.0]);
    let cases: [(&str, Vec<AttributeProto>, &str); 10] = [
        ("Scaler", vec![floats("offset", &[1.0, 2.0])], "`offset` has 2 numbers for 3 features"),
        ("Imputer", vec![], "`imputed_value_floats` is missing"),
        ("LinearRegressor", vec![two()], "`coefficients` is for 2 features, the samples have 3"),
        (
            "LinearRegressor",
            vec![two(), int("targets", 0)],
            "`coefficients` has 2 numbers, must have as many for each of 0",
        ),
        ("FeatureVectorizer", vec![ints("inputdimensions", &[4])], "`inputdimensions` has 4 for 3 features"),
        ("SVMRegressor", vec![two()], "`coefficients` is for 2 features"),
        (
            "SVMRegressor",
            vec![two(), int("n_supports", 2), floats("support_vectors", &[1.0; 5])],
            "`support_vectors` has 5 numbers, must have as many for each of 2",
        ),
        (
            "SVMClassifier",
            vec![two(), ints("classlabels_ints", &[0, 1]), ints("vectors_per_class", &[1, i64::MAX])],
            "`support_vectors` has 0 numbers",
        ),
        (
            "SVMClassifier",
            vec![two(), ints("classlabels_ints", &[0, 1]), ints("vectors_per_class", &[1, -1])],
            "`vectors_per_class` has -1",
        ),
        (
            "SVMClassifier",
            vec![
                two(),
                ints("classlabels_ints", &[0, 1]),
                ints("vectors_per_class", &[i64::MAX, i64::MAX]),
                string("kernel_type", "RBF"),
            ],
            "`support_vectors` has 0 numbers",
        ),
    ];
    for (operator, attributes, text) in cases {
        let message = refused(operator, attributes, &["y"]);
        assert!(message.contains(text), "{operator}: {message}");
    }
}

#[test]
fn broken_trees_are_named() {
    let cases: [(Vec<AttributeProto>, &str); 13] = [
        (vec![ints("nodes_nodeids", &[0, 1, 1])], "`nodes_nodeids` has node 1 of tree 0 twice"),
        (
            vec![ints("nodes_truenodeids", &[7, 0, 0])],
            "`nodes_truenodeids` has node 7 of tree 0, which is not there",
        ),
        (vec![ints("nodes_falsenodeids", &[2, 0])], "`nodes_falsenodeids` has 2 entries, must have 3"),
        (vec![ints("nodes_falsenodeids", &[0, 0, 0])], "lead back to a node above"),
        (vec![strings("nodes_modes", &["BRANCH_LEQ", "BRANCH_LEQ", "BRANCH_LEQ"])], "tree 0 without a root"),
        (
            vec![
                strings("nodes_modes", &["BRANCH_LEQ", "BRANCH_LEQ", "BRANCH_LEQ"]),
                ints("nodes_truenodeids", &[1, 2, 1]),
                ints("nodes_falsenodeids", &[2, 2, 1]),
            ],
            "lead back to a node above",
        ),
        (vec![ints("nodes_featureids", &[3, 0, 0])], "`nodes_featureids` has 3 for 3 features"),
        (vec![ints("nodes_featureids", &[-1, 0, 0])], "`nodes_featureids` has -1"),
        (vec![strings("nodes_modes", &["BRANCH", "LEAF", "LEAF"])], "`nodes_modes` has `BRANCH`"),
        (vec![ints("target_nodeids", &[1, 9])], "has node 9 of tree 0, which is not there"),
        (vec![ints("target_ids", &[0, 1])], "has 1 for 1 targets"),
        (vec![int("n_targets", i64::MAX)], "weights of 9223372036854775807 targets"),
        (vec![strings("nodes_modes", &[])], "`nodes_treeids` has 3 entries, must have 0"),
    ];
    for (changes, text) in cases {
        let message = refused("TreeEnsembleRegressor", trees(changes), &["y"]);
        assert!(message.contains(text), "{message}");
    }
    let whole = trees(vec![]);
    let mut node = node("n", "TreeEnsembleRegressor", &["x"], &["y"]);
    node.domain = "ai.onnx.ml".into();
    node.attribute = whole;
    let mut model = model(vec![value("x", &[size(2), size(3)])], vec![node], &["y"]);
    model.opset_import.push(OperatorSetIdProto { domain: "ai.onnx.ml".into(), version: 1 });
    import(&model).expect("whole trees are imported");
}
