//! Images with their padding around them, so that windows need no bounds.

/// Elements behind a padded image that vectors may read.
pub(super) const SLACK: usize = 64;

/// The size of a padded image.
pub(super) fn padded_size(size: [usize; 3], padding: [(usize, usize); 3]) -> [usize; 3] {
    core::array::from_fn(|i| size[i] + padding[i].0 + padding[i].1)
}

/// Copies one channel into its padded place, with `fill` around it.
pub(super) fn pad_channel(
    from: &[f32],
    size: [usize; 3],
    padding: [(usize, usize); 3],
    fill: f32,
    to: &mut [f32],
) {
    let [depth, height, width] = size;
    let [_, padded_height, padded_width] = padded_size(size, padding);
    let mut done = 0;
    for z in 0..depth {
        for y in 0..height {
            let start = ((z + padding[0].0) * padded_height + y + padding[1].0) * padded_width + padding[2].0;
            to[done..start].fill(fill);
            to[start..start + width].copy_from_slice(&from[(z * height + y) * width..][..width]);
            done = start + width;
        }
    }
    to[done..].fill(fill);
}
