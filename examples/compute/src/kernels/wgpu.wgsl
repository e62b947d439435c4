// One invocation for each element of the result; the last ones have nothing to do, as there are whole workgroups.
//
// What is bound begins at a multiple of an alignment, so that the place of the first element comes beside it. All three
// arrays are writable: else one buffer could not be bound for two of them. That what is bound may overlap then is wgpu's
// (seen in 30.0.1): WebGPU itself forbids it for writable ranges, and a program that is to run in browsers keeps its arrays
// in buffers of their own, and the arguments in a uniform buffer.

struct Arguments {
    a_start: u32,
    b_start: u32,
    result_start: u32,
    len: u32,
    inner: u32,
    columns: u32,
    // Which terms a dispatch of `matmul` adds.
    start: u32,
    end: u32,
}

@group(0) @binding(0) var<storage, read_write> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> result: array<f32>;
var<immediate> arguments: Arguments;

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

// The terms from `start` to `end`, added to those before them. A long sum takes several dispatches, for drivers have limits:
// Mesa's llvmpipe leaves the loops of a kernel after 65535 steps, all of them together, and says nothing.
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
        // What the dispatch before has come to.
        var sum = 0.0;
        if arguments.start > 0u {
            sum = result[arguments.result_start + i];
        }
        for (var k = arguments.start; k < arguments.end; k++) {
            sum += a[row + k] * b[column + k * arguments.columns];
        }
        result[arguments.result_start + i] = sum;
    }
}
