//! A loader's items on several devices.

use super::DataLoader;
use kiln_tensor::backend::Backend;
use std::sync::Arc;

/// A loader for each device, of parts of the items as equal as can be. For one device it is the loader as it is.
pub fn split_dataloader<B: Backend, O>(
    dataloader: Arc<dyn DataLoader<B, O>>,
    devices: &[B::Device],
) -> Vec<Arc<dyn DataLoader<B, O>>> {
    if devices.len() <= 1 {
        return vec![dataloader];
    }
    let (items, count) = (dataloader.num_items() as u128, devices.len() as u128);
    let bound = |part: usize| (items * part as u128 / count) as usize;
    let part = |(n, device): (usize, &B::Device)| dataloader.slice(bound(n), bound(n + 1)).to_device(device);
    devices.iter().enumerate().map(part).collect()
}
