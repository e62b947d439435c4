// One work-item for each element of the result; the last ones have nothing to do, as there is a multiple of them. A buffer
// has no address that could be added to, so that the place of the first element comes beside it.

kernel void add(
    global const float *a, ulong a_start,
    global const float *b, ulong b_start,
    global float *sum, ulong sum_start,
    uint len)
{
    uint i = get_global_id(0);
    if (i < len) {
        sum[sum_start + i] = a[a_start + i] + b[b_start + i];
    }
}

kernel void matmul(
    global const float *a, ulong a_start,
    global const float *b, ulong b_start,
    global float *product, ulong product_start,
    uint len, uint inner, uint columns)
{
    uint i = get_global_id(0);
    if (i < len) {
        uint row = i / columns, column = i % columns;
        a += a_start + row * inner;
        b += b_start + column;
        float sum = 0.0f;
        for (uint k = 0; k < inner; k++) {
            sum += a[k] * b[k * columns];
        }
        product[product_start + i] = sum;
    }
}
