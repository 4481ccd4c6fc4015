//! "Backend extension": a program adds an operation to the backends that it uses, with a way back of its own.

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind, binary, broadcast_shape, unary};
use burn::backend::autodiff::{Autodiff, NodeID};
use burn::backend::{NdArray, autodiff};
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Distribution, Shape, Tensor, TensorMetadata, TensorPrimitive, Tolerance, activation};

/// Backends with the operation `relu(x · w + b)`.
pub trait Backend: burn::tensor::backend::Backend {
    /// `x` is `[batch, m, k]`, `w` `[batch, k, n]`, `b` `[batch, m, n]`; what has size 1 is broadcast.
    fn dense_relu(x: FloatTensor<Self>, w: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self>;
}

/// Those that also record gradients.
pub trait AutodiffBackend: Backend + burn::tensor::backend::AutodiffBackend {}

impl Backend for NdArray {
    fn dense_relu(x: FloatTensor<Self>, w: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
        use burn::tensor::ops::{ActivationOps, FloatTensorOps};
        Self::relu(Self::float_add(Self::float_matmul(x, w), b))
    }
}

impl<B: Backend, C: CheckpointStrategy> Backend for Autodiff<B, C> {
    fn dense_relu(x: FloatTensor<Self>, w: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
        #[derive(Debug)]
        struct DenseReluBackward;

        impl<B: Backend> Backward<B, 3> for DenseReluBackward {
            type State = (NodeID, NodeID, FloatTensor<B>, Shape);

            fn backward(
                self,
                ops: Ops<Self::State, 3>,
                grads: &mut Gradients,
                checkpointer: &mut Checkpointer,
            ) {
                let [node_x, node_w, node_b] = ops.parents;
                let grad = grads.consume::<B>(&ops.node);
                let (x, w, output, shape_b) = ops.state;
                let x: FloatTensor<B> = checkpointer.retrieve_node_output(x);
                let w: FloatTensor<B> = checkpointer.retrieve_node_output(w);
                let (shape_x, shape_w) = (x.shape(), w.shape());

                let grad = B::relu_backward(output, grad);
                let grad_x = B::float_matmul(grad.clone(), B::float_transpose(w));
                let grad_w = B::float_matmul(B::float_transpose(x), grad.clone());
                if let Some(node) = node_b {
                    grads.register::<B>(node.id, broadcast_shape::<B>(grad, &shape_b));
                }
                if let Some(node) = node_x {
                    grads.register::<B>(node.id, broadcast_shape::<B>(grad_x, &shape_x));
                }
                if let Some(node) = node_w {
                    grads.register::<B>(node.id, broadcast_shape::<B>(grad_w, &shape_w));
                }
            }
        }

        let nodes = [x.node.clone(), w.node.clone(), b.node.clone()];
        match DenseReluBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let (state_x, state_w) = (prep.checkpoint(&x), prep.checkpoint(&w));
                let shape_b = b.primitive.shape();
                let output = B::dense_relu(x.primitive.clone(), w.primitive.clone(), b.primitive);
                prep.finish((state_x, state_w, output.clone(), shape_b), output)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::dense_relu(x.primitive, w.primitive, b.primitive)),
        }
    }
}

impl<C: CheckpointStrategy> AutodiffBackend for Autodiff<NdArray, C> {}

/// The operation on tensors.
fn dense_relu<B: Backend>(x: Tensor<B, 3>, w: Tensor<B, 3>, b: Tensor<B, 3>) -> Tensor<B, 3> {
    let output =
        B::dense_relu(x.into_primitive().tensor(), w.into_primitive().tensor(), b.into_primitive().tensor());
    Tensor::from_primitive(TensorPrimitive::Float(output))
}

/// The same, of the backend's own operations.
fn reference<B: burn::tensor::backend::Backend>(
    x: Tensor<B, 3>,
    w: Tensor<B, 3>,
    b: Tensor<B, 3>,
) -> Tensor<B, 3> {
    activation::relu(x.matmul(w) + b)
}

fn agrees<B: AutodiffBackend>() {
    let device = Default::default();
    B::seed(&device, 7);
    let random = |shape: [usize; 3]| {
        Tensor::<B, 3>::random(shape, Distribution::Uniform(-1.0, 1.0), &device).require_grad()
    };
    // The bias and the batch dim of the weight are broadcast.
    let (x, w, b) = (random([2, 3, 4]), random([1, 4, 5]), random([1, 1, 5]));
    let ours = dense_relu(x.clone(), w.clone(), b.clone());
    let theirs = reference(x.clone(), w.clone(), b.clone());
    let close = Tolerance::<f32>::absolute(1e-5);
    ours.to_data().assert_approx_eq(&theirs.to_data(), close);

    let weights = Tensor::<B, 3>::random([2, 3, 5], Distribution::Uniform(-1.0, 1.0), &device);
    let (ours, theirs) = ((ours * weights.clone()).sum().backward(), (theirs * weights).sum().backward());
    for leaf in [x, w, b] {
        let gradient = |of| leaf.grad(of).expect("a leaf has a gradient").to_data();
        gradient(&ours).assert_approx_eq(&gradient(&theirs), close);
    }
}

#[test]
fn gradients_of_a_programs_own_operation() {
    agrees::<Autodiff<NdArray>>();
    agrees::<Autodiff<NdArray, autodiff::checkpoint::strategy::BalancedCheckpointing>>();
}

#[test]
fn nothing_is_kept_of_constants() {
    let device = Default::default();
    let ones = |shape: [usize; 3]| Tensor::<Autodiff<NdArray>, 3>::ones(shape, &device);
    let output = dense_relu(ones([1, 2, 2]), ones([1, 2, 2]), ones([1, 1, 2]));
    assert!(!output.is_tracked());
    output.to_data().assert_eq(&burn::tensor::TensorData::from([[[3.0f32, 3.0], [3.0, 3.0]]]), true);
}

/// Backends with operations that have a way everywhere, and a way back in few words.
pub trait Cubes: burn::tensor::backend::Backend {
    /// `x³`.
    fn cube(x: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::float_mul(Self::float_mul(x.clone(), x.clone()), x)
    }

    /// `2 a + b`.
    fn mixed(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::float_add(Self::float_add(a.clone(), a), b)
    }
}

impl Cubes for NdArray {}

impl<B: Cubes, C: CheckpointStrategy> Cubes for Autodiff<B, C> {
    fn cube(x: FloatTensor<Self>) -> FloatTensor<Self> {
        #[derive(Debug)]
        struct Cube;

        impl<B: Cubes> Backward<B, 1> for Cube {
            type State = FloatTensor<B>;

            fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
                unary::<B, _>(ops.parents, ops.node, grads, |grad| {
                    let square = B::float_mul(ops.state.clone(), ops.state);
                    B::float_mul(grad, B::mixed(square.clone(), square))
                });
            }
        }

        match Cube.prepare::<C>([x.node.clone()]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(x.primitive.clone(), B::cube(x.primitive)),
            OpsKind::UnTracked(prep) => prep.finish(B::cube(x.primitive)),
        }
    }

    fn mixed(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
        #[derive(Debug)]
        struct Mixed;

        impl<B: Cubes> Backward<B, 2> for Mixed {
            type State = ();

            fn backward(self, ops: Ops<(), 2>, grads: &mut Gradients, _: &mut Checkpointer) {
                let twice = |grad: FloatTensor<B>| B::float_add(grad.clone(), grad);
                binary::<B, _, _>(ops.parents, ops.node, grads, twice, |grad| grad);
            }
        }

        let nodes = [a.node.clone(), b.node.clone()];
        Mixed.prepare::<C>(nodes).compute_bound().stateless(B::mixed(a.primitive, b.primitive))
    }
}

#[test]
fn operations_of_one_and_two_operands() {
    type A = Autodiff<NdArray>;
    let device = Default::default();
    let x = Tensor::<A, 1>::from_floats([1.0, -2.0], &device).require_grad();
    let primitive = |x: Tensor<A, 1>| x.into_primitive().tensor();
    let cube =
        |x: Tensor<A, 1>| Tensor::<A, 1>::from_primitive(TensorPrimitive::Float(A::cube(primitive(x))));
    let gradients = cube(x.clone()).sum().backward();
    let is = |gradients, expected: [f32; 2]| {
        x.grad(gradients).expect("a leaf has a gradient").into_data().assert_eq(&expected.into(), true);
    };
    is(&gradients, [3.0, 12.0]);

    let mixed = A::mixed(primitive(x.clone()), primitive(cube(x.clone())));
    let mixed = Tensor::<A, 1>::from_primitive(TensorPrimitive::Float(mixed));
    mixed.to_data().assert_eq(&burn::tensor::TensorData::from([3.0f32, -12.0]), true);
    let gradients = mixed.sum().backward();
    is(&gradients, [5.0, 14.0]);
    // One operand is a constant.
    let constant = Tensor::<A, 1>::from_floats([4.0, 4.0], &device);
    let mixed = A::mixed(primitive(x.clone()), primitive(constant));
    let gradients = Tensor::<A, 1>::from_primitive(TensorPrimitive::Float(mixed)).sum().backward();
    is(&gradients, [2.0, 2.0]);
}
