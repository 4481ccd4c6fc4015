"""Operators of ONNX's domain for classical machine learning, in which scikit-learn's, LightGBM's and XGBoost's models are written."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from fixture_lib.graph import BOOL, F32, F64, I64, STRING, Graph
from fixture_lib.registry import Case, case

DOMAIN = "ai.onnx.ml"


def floats(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def whole(rng, *shape):
    """Small whole numbers and some between."""
    return (rng.integers(-6, 7, shape) / 2).astype(np.float32)


class MlGraph(Graph):
    """A graph whose nodes are in the domain unless they say otherwise."""

    def __init__(self, name, version=3, opset=18):
        super().__init__(name, opset=opset)
        self.domains[DOMAIN] = version

    def ml(self, label, op_type, *operands, dtype=F32, dims=None, **attributes):
        """A node whose only output is the graph's output `label`."""
        return self.show(label, op_type, *operands, domain=DOMAIN, dtype=dtype, dims=dims, **attributes)

    def classifier(self, label, op_type, x, classes, **attributes):
        """A node with labels and scores as outputs."""
        self.op(op_type, x, out=[f"{label}_label", f"{label}_scores"], domain=DOMAIN, **attributes)
        self.output(f"{label}_label", I64, ["n"])
        self.output(f"{label}_scores", F32, ["n", classes])


@case("op_ml_features")
def features(rng):
    """What is done to features before a model sees them."""
    g = MlGraph("features")
    x, line, whole = g.input("x", F32, ["n", 3]), g.input("line", F32, [3]), g.input("whole", I64, ["n", 3])
    wide = g.input("wide", F64, ["n", 3])
    offset, scale = [0.5, -1.0, 2.0], [2.0, 0.25, 1.5]
    for label, value, dims in (("x", x, ["n", 3]), ("line", line, [3]), ("whole", whole, ["n", 3]), ("wide", wide, ["n", 3])):
        g.ml(f"scaled_{label}", "Scaler", value, offset=offset, scale=scale, dims=dims)
        for norm in ("MAX", "L1", "L2"):
            g.ml(f"{norm.lower()}_{label}", "Normalizer", value, norm=norm, dims=dims)
    g.ml("scaled", "Scaler", x, offset=[0.5], scale=[2.0], dims=["n", 3])
    g.ml("binary", "Binarizer", x, threshold=0.25, dims=["n", 3])
    nan = float("nan")
    nans = g.input("nans", F32, ["n", 3])
    g.ml("imputed", "Imputer", nans, imputed_value_floats=[7.0, 8.0, 9.0], replaced_value_float=nan, dims=["n", 3])
    g.ml("imputed_zero", "Imputer", x, imputed_value_floats=[5.0], dims=["n", 3])
    g.ml("imputed_line", "Imputer", line, imputed_value_floats=[7.0, 8.0, 9.0], replaced_value_float=1.0, dims=[3])
    options = dict(dtype=I64, dims=["n", 3])
    g.ml("imputed_whole", "Imputer", whole, imputed_value_int64s=[7, 8, 9], replaced_value_int64=-1, **options)
    g.ml("columns", "ArrayFeatureExtractor", x, [2, 0], dims=["n", 2])
    g.ml("column", "ArrayFeatureExtractor", line, g.const(np.array([[1]])), dims=[1, 1])
    # Of classes that are numbered from 0 the position is the class.
    best = g.op("ArgMax", x, axis=1, keepdims=0)
    table = lambda *classes: g.const(np.array(classes, np.int32))
    for label, classes in (("numbered", table(0, 1, 2)), ("numbered_more", table(0, 1, 2, 3)), ("from_one", table(1, 2, 3))):
        g.ml(label, "ArrayFeatureExtractor", classes, best, dtype=TensorProto.INT32, dims=[1, "n"])
    g.ml("joined", "FeatureVectorizer", whole, whole, inputdimensions=[3, 3], dims=["n", 6])

    def inputs(n):
        x, whole = floats(rng, n, 3), rng.integers(-2, 3, (n, 3))
        x[-1, 2] = 0
        nans = floats(rng, n, 3)
        nans[0, 1] = nans[-1, 2] = nan
        return [x, np.array([1, -2, 0.5], np.float32), whole, floats(rng, n, 3).astype(np.float64), nans]

    zeros = [np.zeros((2, 3), dtype) for dtype in (np.float32, np.int64)]
    zeros = [zeros[0], zeros[0][0], zeros[1], -np.ones((2, 3)), zeros[0]]
    return Case(g.model(), [inputs(4), zeros], checked=False)


@case("op_ml_encoders")
def encoders(rng):
    g = MlGraph("encoders", version=2)
    x, y, z = g.input("x", I64, ["n"]), g.input("y", F32, ["n", 2]), g.input("z", F32, ["n", 2])
    g.ml("hot", "OneHotEncoder", x, cats_int64s=[1, 5, 2], zeros=1, dims=["n", 3])
    g.ml("hot_floats", "OneHotEncoder", g.op("Abs", z), cats_int64s=[0, 1, 2], dims=["n", 2, 3])
    g.ml("ints", "LabelEncoder", x, keys_int64s=[1, 5, 9], values_int64s=[10, 50, 90], dtype=I64, dims=["n"])
    g.ml("floats", "LabelEncoder", x, keys_int64s=[1, 5], values_floats=[0.5, 0.25], default_float=7.5, dims=["n"])
    keys = dict(keys_floats=[1.0, float("nan"), 0.5])
    g.ml("of_floats", "LabelEncoder", y, **keys, values_int64s=[3, 4, 5], default_int64=8, dtype=I64, dims=["n", 2])
    g.ml("to_floats", "LabelEncoder", y, **keys, values_floats=[3.5, 4.5, 5.5], dims=["n", 2])
    first = [np.array([1, 5, 2, 9, 7]), np.array([[1, 2], [0.5, 0], [1, 0], [2, 1], [1, np.nan]], np.float32)]
    first.append(whole(rng, 5, 2))
    return Case(g.model(), [first, [np.array([5]), np.array([[0, 1]], np.float32), whole(rng, 1, 2)]], checked=False)


def texts(*rows):
    return np.array(rows, object)


def maps(key):
    """A map from keys to floats for each row."""
    return helper.make_sequence_type_proto(helper.make_map_type_proto(key, helper.make_tensor_type_proto(F32, [])))


@case("op_ml_strings")
def strings(rng):
    """Strings that go in, are compared with, moved and looked up, and come out."""
    g = MlGraph("strings", version=2, opset=19)
    x, y, z = g.input("x", STRING, ["n"]), g.input("y", STRING, ["n", 2]), g.input("z", I64, ["n"])
    g.ml("hot", "OneHotEncoder", x, cats_strings=["red", "green", "blue"], zeros=1, dims=["n", 3])
    g.ml("category", "CategoryMapper", x, cats_strings=["green", "red"], cats_int64s=[7, 3], default_int64=-5, dtype=I64, dims=["n"])
    g.ml("colour", "CategoryMapper", z, cats_strings=["green", "red"], cats_int64s=[7, 3], dtype=STRING, dims=["n"])
    sizes = dict(keys_strings=["small", "large", "tiny"])
    g.ml("place", "LabelEncoder", y, **sizes, values_int64s=[0, 1, 2], dtype=I64, dims=["n", 2])
    g.ml("weight", "LabelEncoder", y, **sizes, values_floats=[2.5, 9.0, 1.0], default_float=-1.0, dims=["n", 2])
    words = dict(keys_strings=["red", "small", "blue"], values_strings=["rot", "klein", "blau"], default_string="?")
    g.ml("word", "LabelEncoder", x, **words, dtype=STRING, dims=["n"])
    g.ml("size", "LabelEncoder", z, keys_int64s=[3, 7, 8], values_strings=["tiny", "small", "large"], dtype=STRING, dims=["n"])
    column = g.ml("column", "ArrayFeatureExtractor", y, [1], dtype=STRING, dims=["n", 1])
    g.show("turned", "Reshape", column, [1, -1], dtype=STRING, dims=[1, "n"])
    g.show("both", "Concat", y, column, axis=1, dtype=STRING, dims=["n", 3])
    best = g.op("ArgMax", g.input("scores", F32, ["n", 3]), axis=1, keepdims=0)
    g.show("best", "Gather", g.const(texts("small", "crème brûlée", "red")), best, dtype=STRING, dims=["n"])
    g.show("is_red", "Equal", x, g.op("Constant", value_strings=["red"]), dtype=BOOL, dims=["n"])
    g.show("is_one", "Equal", g.op("Constant", value=numpy_helper.from_array(texts("large"))), y, dtype=BOOL, dims=["n", 2])
    g.show("same", "Cast", x, to=STRING, dtype=STRING, dims=["n"])
    first = [texts("red", "blue", "grey", "green"), texts(["small", "tiny"], ["large", "?"], ["_", "tiny"], ["red", "large"])]
    first += [np.array([7, 3, 0, 8]), floats(rng, 4, 3)]
    return Case(g.model(), [first, [texts("blue"), texts(["tiny", "small"]), np.array([3]), floats(rng, 1, 3)]], checked=False)


@case("op_ml_strings_1")
def strings_1(rng):
    """The first version of `LabelEncoder`, either way."""
    g = MlGraph("strings_1", version=1)
    x, y = g.input("x", STRING, ["n"]), g.input("y", I64, ["n"])
    classes = dict(classes_strings=["no", "perhaps", "yes"])
    g.ml("number", "LabelEncoder", x, **classes, dtype=I64, dims=["n"])
    g.ml("answer", "LabelEncoder", y, **classes, default_string="unknown", dtype=STRING, dims=["n"])
    return Case(g.model(), [[texts("yes", "no", "maybe"), np.array([1, 2, 7])], [texts("perhaps"), np.array([0])]], checked=False)


@case("op_ml_classes")
def classes(rng):
    """Classifiers whose classes are strings, and maps of what their scores are for, as scikit-learn's converter writes both."""
    g = MlGraph("classes")
    x = g.input("x", F32, ["n", 2])
    three, two = ["setosa", "versicolor", "virginica"], ["no", "yes"]

    def show(label, names, key, *, post_transform="SOFTMAX", keys=None, **scores):
        options = dict(classlabels_ints=names) if key == I64 else dict(classlabels_strings=names)
        outs = [f"{label}_label", g.fresh("scores")]
        g.op("LinearClassifier", x, out=outs, domain=DOMAIN, post_transform=post_transform, **options, **scores)
        g.output(outs[0], key, ["n"])
        options = dict(classlabels_int64s=names) if key == I64 else dict(classlabels_strings=names)
        g.ml(f"{label}_probability", "ZipMap", outs[1], **options, dtype=maps(key))

    show("three", three, STRING, **THREE)
    show("two", two, STRING, post_transform="LOGISTIC", **ONE)
    show("numbers", [4, 7, 5], I64, **THREE)
    leaves = Forest(rng, 2, 2, depth=2).attributes(rng, "class", lambda tree: range(3))
    g.op("TreeEnsembleClassifier", x, out=["forest_label", "forest_scores"], domain=DOMAIN, classlabels_strings=three, **leaves)
    g.output("forest_label", STRING, ["n"])
    g.output("forest_scores", F32, ["n", 3])
    return Case(g.model(), [[floats(rng, n, 2)] for n in (5, 1)], checked=False)


@case("op_ml_label_encoder_4")
def label_encoder_4(rng):
    """Keys and values as tensors of any dtype."""
    g = MlGraph("label_encoder_4", version=4)
    x, y = g.input("x", F64, ["n"]), g.input("y", I64, ["n"])
    tensor = lambda *numbers, dtype: numpy_helper.from_array(np.array(numbers, dtype))
    g.ml(
        "doubles", "LabelEncoder", x, keys_tensor=tensor(0.5, 1, dtype=np.float64), dtype=F64, dims=["n"],
        values_tensor=tensor(5, 1e-9, dtype=np.float64), default_tensor=tensor(-2.5, dtype=np.float64),
    )  # fmt: skip
    g.ml(
        "ints", "LabelEncoder", y, keys_tensor=tensor(3, 4, dtype=np.int64), dtype=I64, dims=["n"],
        values_tensor=tensor(30, 40, dtype=np.int64), default_tensor=tensor(-7, dtype=np.int64),
    )  # fmt: skip
    words = lambda *words: numpy_helper.from_array(texts(*words))
    g.ml(
        "words", "LabelEncoder", y, keys_tensor=tensor(3, 4, dtype=np.int64), dtype=STRING, dims=["n"],
        values_tensor=words("three", "four"), default_tensor=words("many"),
    )  # fmt: skip
    z = g.input("z", F32, ["n"])
    nan = dict(keys_floats=[1.0, float("nan")], values_floats=[3.0, 4.0], default_float=-1.0)
    g.ml("nan", "LabelEncoder", z, **nan, dims=["n"])
    z = np.array([np.nan, 1, 7], np.float32)
    return Case(g.model(), [[np.array([0.5, 1, 2]), np.array([3, 9, 4]), z]], checked=False)


TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")


ONE = dict(coefficients=[0.25, 0.125], intercepts=[0.3])
THREE = dict(coefficients=[0.1, 0.05, 0.08, -0.1, 0.0, 0.1], intercepts=[0.5, 0.4, 0.3])


def linear_models(g, x, transform):
    label, options = transform.lower(), dict(post_transform=transform)
    g.ml(f"one_{label}", "LinearRegressor", x, **ONE, **options, dims=["n", 1])
    g.ml(f"three_{label}", "LinearRegressor", x, **THREE, targets=3, **options, dims=["n", 3])
    if transform != "PROBIT":
        g.classifier(f"two_{label}", "LinearClassifier", x, 2, classlabels_ints=[0, 1], **ONE, **options)
    options["multi_class"] = 1
    g.classifier(f"classes_{label}", "LinearClassifier", x, 3, classlabels_ints=[4, 7, 5], **THREE, **options)


@case("op_ml_linear")
def linear(rng):
    g = MlGraph("linear", version=1)
    x, whole = g.input("x", F32, ["n", 2]), g.input("whole", I64, ["n", 2])
    for transform in TRANSFORMS[:-1]:
        linear_models(g, x, transform)
    g.ml("plain", "LinearRegressor", x, coefficients=[0.25, 0.125, 1.0, 2.0], targets=2, dims=["n", 2])
    g.classifier("whole", "LinearClassifier", whole, 2, classlabels_ints=[3, 9], **ONE)
    data = [[rng.uniform(-1, 1, (n, 2)).astype(np.float32), rng.integers(-3, 4, (n, 2))] for n in (5, 1)]
    data[0][0][0] = [0, 3]
    return Case(g.model(), data, checked=False)


@case("op_ml_probit")
def probit(rng):
    """Logarithms of numbers beside 1."""
    g = MlGraph("probit", version=1)
    linear_models(g, g.input("x", F32, ["n", 2]), "PROBIT")
    return Case(g.model(), [[rng.uniform(-1, 1, (n, 2)).astype(np.float32)] for n in (5, 1)], checked=False)


MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


class Forest:
    """Random trees as the attributes of versions 1 to 4 list them; features are whole numbers now and then met by thresholds."""

    def __init__(self, rng, trees, features, modes=MODES[:1], depth=4, missing=False):
        self.nodes = {name: [] for name in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")}
        self.missing, self.leaves = [], []
        for tree in range(trees):
            self.grow(rng, tree, features, modes, rng.integers(1, depth + 1) if tree else depth, missing)

    def grow(self, rng, tree, features, modes, depth, missing):
        work, count = [(0, depth)], 1
        while work:
            node, left = work.pop()
            is_leaf = left == 0 or (left < depth and rng.random() < 0.2)
            mode = "LEAF" if is_leaf else str(rng.choice(modes))
            yes, no = (0, 0) if is_leaf else (count, count + 1)
            entry = (tree, node, 0 if is_leaf else int(rng.integers(features)), float(rng.integers(-2, 3)), mode, yes, no)
            for name, value in zip(self.nodes, entry):
                self.nodes[name].append(value)
            self.missing.append(int(missing and not is_leaf and rng.random() < 0.5))
            if is_leaf:
                self.leaves.append((tree, node))
            else:
                work += [(no, left - 1), (yes, left - 1)]
                count += 2

    def attributes(self, rng, what, targets, low=-1.0, as_tensor=False):
        """`targets` says for a tree which targets its leaves tell of."""
        weights = [(tree, node, target) for tree, node in self.leaves for target in targets(tree)]
        nodes = {f"nodes_{name}": values for name, values in self.nodes.items()}
        if any(self.missing):
            nodes["nodes_missing_value_tracks_true"] = self.missing
        numbers = {"nodes_values": nodes.pop("nodes_values"), f"{what}_weights": rng.uniform(low, 1, len(weights)).tolist()}
        if as_tensor:
            numbers = {f"{name}_as_tensor": numpy_helper.from_array(np.array(values)) for name, values in numbers.items()}
        ids = {f"{what}_{name}": list(ids) for name, ids in zip(("treeids", "nodeids", "ids"), zip(*weights))}
        return {**nodes, **numbers, **ids}


@case("op_ml_tree_regressor")
def tree_regressor(rng):
    g = MlGraph("tree_regressor", version=1)
    x, nans, counts = g.input("x", F32, ["n", 5]), g.input("nans", F32, ["n", 5]), g.input("counts", I64, ["n", 5])
    one, two, each = lambda tree: [0], lambda tree: [0, 1], lambda tree: [tree % 3]

    def show(label, x, forest, targets, count, **options):
        g.ml(label, "TreeEnsembleRegressor", x, n_targets=count, dims=["n", count], **forest.attributes(rng, "target", targets), **options)

    forest = Forest(rng, 6, 5)
    for aggregate in ("SUM", "AVERAGE", "MIN", "MAX"):
        show(aggregate.lower(), x, forest, one, 1, aggregate_function=aggregate, base_values=[0.25])
        show(f"{aggregate.lower()}_two", x, forest, two, 2, aggregate_function=aggregate, base_values=[0.5, -1.0])
    show("each", x, forest, each, 3, post_transform="SOFTMAX")
    show("uneven", x, Forest(rng, 4, 5), each, 3, post_transform="LOGISTIC")
    show("uneven_most", x, Forest(rng, 4, 5), each, 3, aggregate_function="MAX")
    show("few", x, Forest(rng, 3, 5), lambda tree: [1], 4)
    for mode in MODES:
        label = mode.lower().replace("branch_", "")
        show(label, x, Forest(rng, 3, 5, modes=[mode]), one, 1)
        show(f"{label}_missing", nans, Forest(rng, 3, 5, modes=[mode], missing=True), one, 1)
    show("modes", nans, Forest(rng, 5, 5, modes=MODES), one, 1)
    show("modes_missing", nans, Forest(rng, 5, 5, modes=MODES, missing=True), two, 2)
    attributes = Forest(rng, 5, 5, modes=MODES).attributes(rng, "class", lambda tree: range(3))
    g.classifier("whole", "TreeEnsembleClassifier", counts, 3, classlabels_int64s=[0, 1, 2], **attributes)
    show("stump", x, Forest(rng, 1, 5, depth=1), one, 1)

    def inputs(n):
        nans = whole(rng, n, 5)
        nans[rng.random((n, 5)) < 0.3] = np.nan
        return [whole(rng, n, 5), nans, rng.integers(-3, 4, (n, 5))]

    return Case(g.model(), [inputs(9), inputs(1)], checked=False)


@case("op_ml_tree_targets")
def tree_targets(rng):
    """Targets of which some leaves say nothing, or all, beside base values; leaves that say something of the only target several times, as scikit-learn's converter writes the places of leaves."""
    g = MlGraph("tree_targets", version=3)
    x = g.input("x", F32, ["n", 4])

    def show(label, forest, targets, count, keep=1.0, **options):
        attributes = forest.attributes(rng, "target", targets)
        # Where a leaf has no weight for the only target ONNX Runtime takes the threshold that it has instead of a test.
        attributes["nodes_values"] = [
            0.0 if mode == "LEAF" else value for mode, value in zip(attributes["nodes_modes"], attributes["nodes_values"])
        ]
        weights = [name for name in attributes if name.startswith("target_")]
        kept = rng.random(len(attributes[weights[0]])) < keep
        for name in weights:
            attributes[name] = [value for value, stays in zip(attributes[name], kept) if stays]
        g.ml(label, "TreeEnsembleRegressor", x, n_targets=count, dims=["n", count], **attributes, **options)

    for aggregate in ("SUM", "AVERAGE", "MIN", "MAX"):
        name, options = aggregate.lower(), dict(aggregate_function=aggregate)
        show(f"{name}_some", Forest(rng, 3, 4), lambda tree: [0, 1, 2], 3, keep=0.3, base_values=[0.5, 0.0, -1.5], **options)
        show(f"{name}_plain", Forest(rng, 3, 4), lambda tree: [0, 1], 2, keep=0.3, **options)
        show(f"{name}_never", Forest(rng, 4, 4), lambda tree: [2 * (tree % 2)], 4, base_values=[0.5, 0.25, -1.5, 2.0], **options)
        show(f"{name}_one", Forest(rng, 2, 4), lambda tree: [0], 1, keep=0.5, base_values=[0.75], **options)
        show(f"{name}_again", Forest(rng, 2, 4), lambda tree: [0, 0, 0], 1, **options)
        show(f"{name}_both_again", Forest(rng, 2, 4), lambda tree: [1, 0, 1], 2, **options)
    again = Forest(rng, 3, 4).attributes(rng, "class", lambda tree: [0, 0])
    g.classifier("two", "TreeEnsembleClassifier", x, 2, classlabels_int64s=[0, 1], **again)
    return Case(g.model(), [[whole(rng, n, 4)] for n in (9, 1)], checked=False)


@case("op_ml_trees_apart")
def trees_apart(rng):
    """An operator for each tree, breadth first, as scikit-learn's converter writes isolation forests: leaves by their numbers, of which formulas follow, and a sum. Others joined."""
    g = MlGraph("trees_apart", version=2)
    x = g.input("x", F32, ["n", 4])
    count = 20
    forests = [Forest(rng, 1, 4) for _ in range(count)]

    def tree(forest, weights):
        attributes = forest.attributes(rng, "target", lambda tree: [0])
        return g.op("TreeEnsembleRegressor", x, n_targets=1, domain=DOMAIN, **{**attributes, "target_weights": weights})

    leaves = [tree(forest, [float(node) for _, node in forest.leaves]) for forest in forests]
    leaves = [g.op("Cast", leaf, to=I64) for leaf in leaves]
    leaves = [g.op("Reshape", leaf, g.const([-1, 1])) for leaf in leaves]

    def lookup(forest, leaf, low):
        keys = [node for _, node in forest.leaves]
        values = rng.integers(low, 9, len(keys)).astype(float).tolist()
        return g.op("LabelEncoder", leaf, keys_int64s=keys, values_floats=values, domain=DOMAIN)

    depths = [lookup(forest, leaf, 1) for forest, leaf in zip(forests, leaves)]
    samples = [lookup(forest, leaf, 1) for forest, leaf in zip(forests, leaves)]
    one, two = (g.const(np.array([number], np.float32)) for number in (1, 2))
    many = [g.op("Cast", g.op("Greater", samples[i], two), to=F32) for i in range(count)]
    logs = [g.op("Log", g.op("Max", samples[i], one)) for i in range(count)]
    paths = [g.op("Mul", log, flag) for log, flag in zip(logs, many)]
    paths = [g.op("Add", depth, path) for depth, path in zip(depths, paths)]
    g.show("score", "Div", g.op("Sum", *paths), g.const(np.array([count], np.float32)), dtype=F32, dims=["n", 1])
    joined = [tree(forest, rng.uniform(-1, 1, len(forest.leaves)).tolist()) for forest in forests[:3]]
    g.show("joined", "Concat", *joined, axis=1, dtype=F32, dims=["n", 3])
    return Case(g.model(), [[whole(rng, n, 4)] for n in (9, 1)], checked=False)


@case("op_ml_lookups")
def lookups(rng):
    """Keys with gaps between them, close to each other or not; strings of which some are replaced, as imputers do, and their shape."""
    g = MlGraph("lookups", version=2, opset=19)
    x, narrow = g.input("x", I64, ["n", 2]), g.input("names", STRING, ["n"])
    keys = [-3, 4, 0, 9, 7, 4, 2, 11]
    integers = dict(values_int64s=[5, 6, 7, 8, 9, 10, 11, 12], default_int64=-1)
    g.ml("ints", "LabelEncoder", x, keys_int64s=keys, **integers, dtype=I64, dims=["n", 2])
    g.ml("floats", "LabelEncoder", x, keys_int64s=keys, values_floats=floats(rng, 8).tolist(), default_float=0.125, dims=["n", 2])
    words = [f"w{n}" for n in range(8)]
    g.ml("words", "LabelEncoder", x, keys_int64s=keys, values_strings=words, default_string="none", dtype=STRING, dims=["n", 2])
    g.ml("far", "LabelEncoder", x, keys_int64s=[-(2**40), 2**62, 0, 5, 7, 4, 2, 11], **integers, dtype=I64, dims=["n", 2])
    g.ml("from_names", "LabelEncoder", narrow, keys_strings=["b", "d", "a"], values_floats=[1.5, 2.5, 3.5], default_float=-1.0, dims=["n"])
    missing = g.op("Equal", narrow, g.op("Constant", value_strings=[""]))
    filled = g.show("filled", "Where", missing, g.op("Constant", value_strings=["b"]), narrow, dtype=STRING, dims=["n"])
    g.ml("hot", "OneHotEncoder", filled, cats_strings=["a", "b"], zeros=1, dims=["n", 2])
    g.show("zeros", "ConstantOfShape", g.op("Shape", filled), dims=["n"])
    first = np.array([[-3, 4], [0, 9], [7, 2], [11, 12], [-4, 3], [2**62, -(2**40)], [2**63 - 1, -(2**63)]])
    names = texts("a", "", "b", "c", "d", "", "a")
    return Case(g.model(), [[first, names], [np.array([[1, 4]]), texts("")]], checked=False)


@case("op_ml_tree_classifier")
def tree_classifier(rng):
    g = MlGraph("tree_classifier", version=1)
    x = g.input("x", F32, ["n", 4])
    first, second, both = lambda tree: [0], lambda tree: [1], lambda tree: [0, 1]
    for label, targets in (("first", first), ("second", second), ("both", both)):
        for name, base in (("none", {}), ("one", dict(base_values=[0.1])), ("two", dict(base_values=[0.1, -0.2]))):
            for low in (-1.0, 0.0):
                for transform in ("NONE", "LOGISTIC", "SOFTMAX"):
                    attributes = Forest(rng, 2, 4, depth=2).attributes(rng, "class", targets, low)
                    tag = f"{label}_{name}_{transform.lower()}{'' if low else '_positive'}"
                    g.classifier(tag, "TreeEnsembleClassifier", x, 2, classlabels_int64s=[0, 1], post_transform=transform, **attributes, **base)
    named = Forest(rng, 3, 4).attributes(rng, "class", first)
    g.classifier("labels", "TreeEnsembleClassifier", x, 2, classlabels_int64s=[3, 7], **named)
    for transform in TRANSFORMS:
        low = 0.01 if transform == "PROBIT" else -1.0
        options = dict(classlabels_int64s=[5, 2, 9], post_transform=transform)
        every = Forest(rng, 3, 4).attributes(rng, "class", lambda tree: range(3), low / 9)
        each = Forest(rng, 6, 4).attributes(rng, "class", lambda tree: [tree % 3], low)
        g.classifier(f"every_{transform.lower()}", "TreeEnsembleClassifier", x, 3, **every, **options)
        g.classifier(f"each_{transform.lower()}", "TreeEnsembleClassifier", x, 3, **each, **options, base_values=[0.1, 0.0, 0.05])
    return Case(g.model(), [[whole(rng, n, 4)] for n in (7, 1)], checked=False)


@case("op_ml_tree_doubles")
def tree_doubles(rng):
    """Thresholds that only doubles tell apart."""
    g = MlGraph("tree_doubles", version=3)
    x = g.input("x", F64, ["n", 3])
    forest = Forest(rng, 4, 3, modes=MODES)
    forest.nodes["values"] = [value + (1e-12 if n % 2 else 0) for n, value in enumerate(forest.nodes["values"])]
    wide = forest.attributes(rng, "target", lambda tree: [0], as_tensor=True)
    base = numpy_helper.from_array(np.array([0.1]))
    g.ml("sum", "TreeEnsembleRegressor", x, n_targets=1, base_values_as_tensor=base, dims=["n", 1], **wide)
    wide = forest.attributes(rng, "class", lambda tree: range(3), as_tensor=True)
    g.classifier("classes", "TreeEnsembleClassifier", x, 3, classlabels_int64s=[0, 1, 2], **wide)
    x = rng.integers(-2, 3, (12, 3)) + rng.choice([0, 1e-12, -1e-12], (12, 3))
    return Case(g.model(), [[x], [x[:1]]], checked=False)


@case("op_ml_tree_ensemble")
def tree_ensemble(rng):
    """Version 5: nodes and leaves by their places, and sets of members."""
    g = MlGraph("tree_ensemble", version=5)
    modes = np.array([6, 0, 4, 6, 5, 3], np.uint8)
    nan = np.nan
    for dtype, kind in ((np.float32, F32), (np.float64, F64)):
        name = np.dtype(dtype).name
        x = g.input(f"x_{name}", kind, ["n", 3])
        tensor = lambda *numbers: numpy_helper.from_array(np.array(numbers, dtype))
        for label, aggregate, count in (("sum", 1, 2), ("average", 0, 1), ("most", 3, 1)):
            g.ml(
                f"{label}_{name}", "TreeEnsemble", x, n_targets=count, aggregate_function=aggregate, dtype=kind, dims=["n", count],
                tree_roots=[0, 3], nodes_modes=numpy_helper.from_array(modes), nodes_splits=tensor(0, 0.5, 1, 0, 2, -1),
                membership_values=tensor(1, 2, 4, 3, 7, nan, 9, 1, nan), nodes_featureids=[0, 1, 2, 1, 0, 2],
                nodes_truenodeids=[1, 0, 2, 4, 4, 5], nodes_trueleafs=[0, 1, 1, 0, 1, 1],
                nodes_falsenodeids=[2, 1, 3, 5, 5, 6], nodes_falseleafs=[0, 1, 1, 0, 1, 1],
                nodes_missing_value_tracks_true=[1, 0, 0, 0, 0, 1],
                leaf_targetids=[target % count for target in (0, 1, 0, 1, 1, 0, 0)], leaf_weights=tensor(0.5, 1.25, -2, 3, 0.75, -0.5, 4),
            )  # fmt: skip
    x = np.array([[a, b, c] for a in (1, 2.5, nan) for b in (0, 0.5, 1) for c in (1, -1, 0.25, nan)])
    return Case(g.model(), [[x.astype(np.float32), x]], checked=False)


@case("op_ml_svm")
def svm(rng):
    g = MlGraph("svm", version=1)
    x = g.input("x", F32, ["n", 3])
    numbers = lambda *shape: rng.standard_normal(shape).astype(np.float32).ravel().tolist()
    kernels = {"LINEAR": 1, "POLY": 2, "RBF": 1, "SIGMOID": 1}
    for kernel, degree in kernels.items():
        label, options = kernel.lower(), dict(kernel_type=kernel, kernel_params=[0.5, 0.25, float(degree)])
        support = dict(support_vectors=numbers(5, 3), coefficients=numbers(5), rho=[0.1], n_supports=5, **options)
        g.ml(f"{label}_one", "SVMRegressor", x, **support, dims=["n", 1])
        g.ml(f"{label}_inside", "SVMRegressor", x, **support, one_class=1, dims=["n", 1])
        support = dict(support_vectors=numbers(5, 3), coefficients=numbers(5), rho=[0.1], vectors_per_class=[2, 3], **options)
        g.classifier(f"{label}_two", "SVMClassifier", x, 2, classlabels_ints=[0, 1], **support)
        support = dict(support_vectors=numbers(6, 3), coefficients=numbers(2, 6), rho=numbers(3), vectors_per_class=[1, 3, 2], **options)
        g.classifier(f"{label}_three", "SVMClassifier", x, 3, classlabels_ints=[4, 2, 7], **support)
    for transform in ("LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        two = dict(support_vectors=numbers(5, 3), coefficients=numbers(5), rho=[0.1], vectors_per_class=[2, 3], **options)
        g.classifier(f"two_{transform.lower()}", "SVMClassifier", x, 2, classlabels_ints=[3, 7], post_transform=transform, **two)
        support["post_transform"] = transform
        g.classifier(f"three_{transform.lower()}", "SVMClassifier", x, 3, classlabels_ints=[0, 1, 2], **support)
    del support["post_transform"]
    curves = dict(prob_a=[-1.5], prob_b=[0.2])
    g.classifier("two_chances", "SVMClassifier", x, 2, classlabels_ints=[0, 1], **two, **curves)
    curves = dict(prob_a=[-1.5, -0.7, -2.0], prob_b=[0.2, 0.0, -0.3])
    g.classifier("three_chances", "SVMClassifier", x, 3, classlabels_ints=[0, 1, 2], **support, **curves)
    linear = dict(kernel_type="LINEAR", kernel_params=[0.0, 0.0, 3.0], rho=[0.1])
    g.ml("plain_one", "SVMRegressor", x, coefficients=numbers(3), **linear, dims=["n", 1])
    g.classifier("plain_two", "SVMClassifier", x, 2, classlabels_ints=[3, 7], coefficients=numbers(2, 3), **linear)
    positive = np.abs(numbers(2, 3)).tolist()
    g.classifier("plain_positive", "SVMClassifier", x, 2, classlabels_ints=[3, 7], coefficients=positive, **linear)
    g.classifier("plain_three", "SVMClassifier", x, 3, classlabels_ints=[0, 1, 2], coefficients=numbers(3, 3), **linear)
    return Case(g.model(), [[floats(rng, n, 3)] for n in (6, 1)], checked=False)
