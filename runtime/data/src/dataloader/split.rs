//! A loader's items on several devices.

use super::DataLoader;
use kiln_tensor::backend::Backend;
use std::sync::Arc;

/// A loader for each device, of equal parts of the items; the last part has what remains. For one device it is the loader as it is.
pub fn split_dataloader<B: Backend, O>(
    dataloader: Arc<dyn DataLoader<B, O>>,
    devices: &[B::Device],
) -> Vec<Arc<dyn DataLoader<B, O>>> {
    if devices.len() <= 1 {
        return vec![dataloader];
    }
    let items = dataloader.num_items();
    let step = items / devices.len();
    let part = |(n, device): (usize, &B::Device)| {
        let end = if n + 1 == devices.len() { items } else { (n + 1) * step };
        dataloader.slice(n * step, end).to_device(device)
    };
    devices.iter().enumerate().map(part).collect()
}
