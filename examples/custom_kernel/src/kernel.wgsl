// relu(x · weight + bias), one square of the result a workgroup. Both factors pass through shared memory in squares, so that each
// of their numbers is read from the device's memory once a square instead of once a product.

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

struct Parameters {
    rows: u32,
    columns: u32,
    depth: u32,
    // How far apart two batches are; 0 where one serves all.
    x_batch: u32,
    weight_batch: u32,
    bias_batch: u32,
    // The same of a bias's rows and columns.
    bias_row: u32,
    bias_column: u32,
}
@group(1) @binding(0) var<uniform> parameters: Parameters;

const SIDE: u32 = 16;
var<workgroup> left: array<f32, 256>;
var<workgroup> right: array<f32, 256>;

@compute @workgroup_size(16, 16)
fn dense_relu(@builtin(global_invocation_id) at: vec3<u32>, @builtin(local_invocation_id) own: vec3<u32>) {
    let column = at.x;
    let row = at.y;
    let x_start = at.z * parameters.x_batch;
    let weight_start = at.z * parameters.weight_batch;
    let place = own.y * SIDE + own.x;

    var sum = 0.0;
    for (var step: u32 = 0; step < parameters.depth; step += SIDE) {
        let x_column = step + own.x;
        let weight_row = step + own.y;
        var a = 0.0;
        if row < parameters.rows && x_column < parameters.depth {
            a = x[x_start + row * parameters.depth + x_column];
        }
        var b = 0.0;
        if weight_row < parameters.depth && column < parameters.columns {
            b = weight[weight_start + weight_row * parameters.columns + column];
        }
        left[place] = a;
        right[place] = b;
        workgroupBarrier();
        for (var k: u32 = 0; k < SIDE; k++) {
            sum += left[own.y * SIDE + k] * right[k * SIDE + own.x];
        }
        workgroupBarrier();
    }

    if row < parameters.rows && column < parameters.columns {
        let shift = at.z * parameters.bias_batch + row * parameters.bias_row + column * parameters.bias_column;
        y[(at.z * parameters.rows + row) * parameters.columns + column] = max(sum + bias[shift], 0.0);
    }
}
