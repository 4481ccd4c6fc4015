//! The network, on the GPU or the CPU.

use crate::digits::Model;
use kiln::backend::NdArray;
#[cfg(feature = "webgpu")]
use kiln::backend::{WebGpu, wgpu};
use kiln::tensor::activation::softmax;
use kiln::tensor::backend::{Backend, ExecutionError};
use kiln::tensor::{Tensor, TensorData};
use wasm_bindgen::prelude::{JsError, wasm_bindgen};

/// The network with its weights.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Classifier(Placed);

/// On which backend it is.
#[derive(Debug)]
enum Placed {
    Cpu(Model<NdArray>),
    #[cfg(feature = "webgpu")]
    Gpu(Model<WebGpu>),
}

#[wasm_bindgen]
impl Classifier {
    /// Loads the network onto the CPU.
    pub fn on_cpu() -> Self {
        Self(Placed::Cpu(Model::from_embedded(&Default::default())))
    }

    /// Opens the GPU, without blocking the page, and loads the network onto it.
    ///
    /// # Errors
    /// When the browser gives no GPU.
    #[cfg(feature = "webgpu")]
    pub async fn on_gpu() -> Result<Self, JsError> {
        let device = wgpu::WgpuDevice::default();
        wgpu::init_async(&device).await?;
        Ok(Self(Placed::Gpu(Model::from_embedded(&device))))
    }

    /// The backend and its device.
    pub fn backend(&self) -> String {
        match &self.0 {
            Placed::Cpu(_) => NdArray::<f32>::name(&Default::default()),
            #[cfg(feature = "webgpu")]
            Placed::Gpu(_) => WebGpu::<f32>::name(&Default::default()),
        }
    }

    /// How likely an image of 8×8 pixels from 0 to 1, row by row, is each digit.
    ///
    /// # Errors
    /// When the GPU fails.
    pub async fn probabilities(&self, pixels: Vec<f32>) -> Result<Vec<f32>, JsError> {
        let read = match &self.0 {
            Placed::Cpu(model) => probabilities(model, pixels, &Default::default()).await,
            #[cfg(feature = "webgpu")]
            Placed::Gpu(model) => probabilities(model, pixels, &Default::default()).await,
        };
        read.map_err(JsError::from)
    }
}

async fn probabilities<B: Backend>(
    model: &Model<B>,
    pixels: Vec<f32>,
    device: &B::Device,
) -> Result<Vec<f32>, ExecutionError> {
    let image = Tensor::<B, 4>::from_data(TensorData::new(pixels, [1, 1, 8, 8]), device);
    let probabilities = softmax(model.forward(image), 1).into_data_async().await?;
    Ok(probabilities.iter::<f32>().collect())
}
