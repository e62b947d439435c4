#!/bin/sh
# llvmpipe of Mesa 22.3.6, Debian 12's: a kernel stops after 65,535 iterations of its loops, in all, and is a success.
#
# Each work item has so many, for all loops of the kernel together. What is left of a loop is skipped, and the kernel goes
# on behind it, so that a sum over a long row lacks its end. No call returns an error, and no event has one. It is a
# constant of llvmpipe's translator, LP_MAX_TGSI_LOOP_ITERATIONS, which was made for shaders that do not end. Seen by OpenCL,
# with Rusticl. Mesa 25.0.7 runs all iterations. A kernel that is to be right there splits long loops among work items.
#
#     sh findings/llvmpipe-loop-iterations.sh
#
# It needs Debian 12, as root. What it printed:
#
#     one loop of 60000: 60000
#     one loop of 100000: 65535
#     two loops of 50000: 65534
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
# The libraries that the driver needs. The driver itself is on for this program alone.
sh "$here/../tests/install-packages.sh" gcc libc6-dev libclang-cpp15 libllvmspirvlib15 libclc-15 ocl-icd-libopencl1 >&2
apt-get download --quiet=2 -o APT::Sandbox::User=root mesa-opencl-icd=22.3.6-1+deb12u2 opencl-c-headers=3.0~2023.02.06-1 >&2
for package in *.deb; do dpkg --extract "$package" .; done
libraries=$folder/usr/lib/x86_64-linux-gnu
echo "$libraries/libRusticlOpenCL.so.1" >driver.icd

cat >loops.c <<'C'
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>

static const char *const SOURCES[] = {
    "kernel void count(global int *out, int n) {\n"
    "    int counted = 0;\n"
    "    for (int i = 0; i < n; i++) counted += out[1];\n"
    "    out[0] = counted;\n"
    "}\n",
    "kernel void count(global int *out, int n) {\n"
    "    int counted = 0;\n"
    "    for (int i = 0; i < n; i++) counted += out[1];\n"
    "    for (int i = 0; i < n; i++) counted += out[1];\n"
    "    out[0] = counted;\n"
    "}\n",
};

static cl_context context;
static cl_device_id device;
static cl_command_queue queue;

/* What the kernel has counted, or the code of a call that failed. */
static int count(const char *source, int iterations) {
    int numbers[2] = {0, 1};
    const size_t items = 1;
    cl_int status;
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &status);
    if ((status = clBuildProgram(program, 1, &device, "", NULL, NULL))) return status;
    cl_kernel kernel = clCreateKernel(program, "count", &status);
    cl_mem memory = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof numbers, numbers, &status);
    clSetKernelArg(kernel, 0, sizeof memory, &memory);
    clSetKernelArg(kernel, 1, sizeof iterations, &iterations);
    if ((status = clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL))) return status;
    status = clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, sizeof numbers, numbers, 0, NULL, NULL);
    return status ? status : numbers[0];
}

int main(void) {
    cl_platform_id platform;
    cl_int status;
    if (clGetPlatformIDs(1, &platform, NULL) || clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL)) return 1;
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    queue = clCreateCommandQueue(context, device, 0, &status);
    printf("one loop of 60000: %d\n", count(SOURCES[0], 60000));
    printf("one loop of 100000: %d\n", count(SOURCES[0], 100000));
    printf("two loops of 50000: %d\n", count(SOURCES[1], 50000));
    return 0;
}
C
gcc -I usr/include loops.c -o loops -l:libOpenCL.so.1
LD_LIBRARY_PATH=$libraries RUSTICL_ENABLE=llvmpipe OCL_ICD_VENDORS=$folder ./loops | tee printed
diff - printed <<'EXPECTED'
one loop of 60000: 60000
one loop of 100000: 65535
two loops of 50000: 65534
EXPECTED
