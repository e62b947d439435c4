// One invocation for each element of the result; the last ones have nothing to do, as there are whole workgroups.
//
// What is bound begins at a multiple of an alignment, so that the place of the first element comes beside it. All three
// arrays are writable: else one buffer could not be bound for two of them.

struct Arguments {
    a_start: u32,
    b_start: u32,
    result_start: u32,
    len: u32,
    inner: u32,
    columns: u32,
}

@group(0) @binding(0) var<storage, read_write> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> result: array<f32>;
@group(0) @binding(3) var<uniform> arguments: Arguments;

// A dispatch has two dimensions, as one holds too few workgroups.
fn element(group: vec3<u32>, groups: vec3<u32>, local: u32) -> u32 {
    return (group.y * groups.x + group.x) * 64u + local;
}

@compute @workgroup_size(64)
fn add(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let i = element(group, groups, local);
    if i < arguments.len {
        result[arguments.result_start + i] = a[arguments.a_start + i] + b[arguments.b_start + i];
    }
}

@compute @workgroup_size(64)
fn matmul(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let i = element(group, groups, local);
    if i < arguments.len {
        let row = arguments.a_start + i / arguments.columns * arguments.inner;
        let column = arguments.b_start + i % arguments.columns;
        var sum = 0.0;
        for (var k = 0u; k < arguments.inner; k++) {
            sum += a[row + k] * b[column + k * arguments.columns];
        }
        result[arguments.result_start + i] = sum;
    }
}
