//! The gradient, over any backend that has the operation.

use crate::{AutodiffBackend, Backend};
use kiln::backend::autodiff::checkpoint::base::Checkpointer;
use kiln::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use kiln::backend::autodiff::grads::Gradients;
use kiln::backend::autodiff::ops::{Backward, Ops, OpsKind, broadcast_shape};
use kiln::backend::autodiff::{Autodiff, NodeID};
use kiln::backend::{NdArray, Wgpu};
use kiln::tensor::ops::FloatTensor;
use kiln::tensor::{Shape, TensorMetadata};

impl<C: CheckpointStrategy> AutodiffBackend for Autodiff<NdArray, C> {}
impl<C: CheckpointStrategy> AutodiffBackend for Autodiff<Wgpu, C> {}

/// The step back: where the result is above 0, its gradient goes to both factors and the bias.
#[derive(Debug)]
struct DenseReluBackward;

/// What the step back needs of the way there: the nodes of both factors, the result, and the bias's shape.
type State<B> = (NodeID, NodeID, FloatTensor<B>, Shape);

impl<B: Backend> Backward<B, 3> for DenseReluBackward {
    type State = State<B>;

    fn backward(self, ops: Ops<State<B>, 3>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let [x_node, weight_node, bias_node] = ops.parents;
        let (x, weight, y, bias_shape) = ops.state;
        let x: FloatTensor<B> = checkpointer.retrieve_node_output(x);
        let weight: FloatTensor<B> = checkpointer.retrieve_node_output(weight);
        let (x_shape, weight_shape) = (x.shape(), weight.shape());

        let grad = B::relu_backward(y, grads.consume::<B>(&ops.node));
        // What was broadcast has the sum of the gradients of all that it served.
        if let Some(node) = x_node {
            let grad = B::float_matmul(grad.clone(), B::float_transpose(weight));
            grads.register::<B>(node.id, broadcast_shape::<B>(grad, &x_shape));
        }
        if let Some(node) = weight_node {
            let grad = B::float_matmul(B::float_transpose(x), grad.clone());
            grads.register::<B>(node.id, broadcast_shape::<B>(grad, &weight_shape));
        }
        if let Some(node) = bias_node {
            grads.register::<B>(node.id, broadcast_shape::<B>(grad, &bias_shape));
        }
    }
}

impl<B: Backend, C: CheckpointStrategy> Backend for Autodiff<B, C> {
    fn dense_relu(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let nodes = [x.node.clone(), weight.node.clone(), bias.node.clone()];
        match DenseReluBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let (x_state, weight_state) = (prep.checkpoint(&x), prep.checkpoint(&weight));
                let bias_shape = bias.primitive.shape();
                let y = B::dense_relu(x.primitive, weight.primitive, bias.primitive);
                prep.finish((x_state, weight_state, y.clone(), bias_shape), y)
            }
            OpsKind::UnTracked(prep) => {
                prep.finish(B::dense_relu(x.primitive, weight.primitive, bias.primitive))
            }
        }
    }
}
