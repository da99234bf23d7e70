// How near to the arithmetic one kernel comes: mean hinge loss of the moons network (2 → 16 → 16 → 1, relu) and its
// gradient over 4,194,304 examples in float32, nothing between layers ever leaving the chip.
//
//     nvcc -O3 -arch=sm_90 benchmarks/peers/fused_moons.cu -o /tmp/fused_moons && /tmp/fused_moons
//
// A thread takes an example through the network and back in registers. The sums over examples that make up the gradient
// of the 16 × 16 matrix are a product of two matrices again: a warp lays its 32 examples side by side in shared memory,
// and teams of eight threads add up every fourth of them, 8 × 4 sums a thread. Checked against doubles on the CPU.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

constexpr int WIDTH = 16, WARP = 32, THREADS = 128, WARPS = THREADS / WARP, EXAMPLES = 1 << 22;
constexpr int W1 = 0, B1 = 32, W2 = 48, B2 = 304, W3 = 320, B3 = 336, PARAMETERS = 337;
constexpr int ROW = WIDTH + 4;  // keeps the rows of 32 threads in different banks, and aligned to 16 bytes

__global__ void __launch_bounds__(THREADS)
    gradient(const float* parameters, const float2* x, const float* y, float* result, int examples) {
    __shared__ __align__(16) float p[PARAMETERS + 3];
    __shared__ __align__(16) float first[WARPS][WARP][ROW], second[WARPS][WARP][ROW], third[WARPS][WARP][ROW];
    for (int k = threadIdx.x; k < PARAMETERS; k += THREADS) p[k] = parameters[k];
    __syncthreads();
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int team = lane / 8, member = lane % 8;
    const int rows = 8 * (member / 4), columns = 4 * (member % 4), pair = 2 * member;
    float(*h1s)[ROW] = first[warp], (*g2s)[ROW] = second[warp], (*rest)[ROW] = third[warp];
    float w2[8][4] = {}, b2[8] = {}, w1[2][2] = {}, b1[2] = {}, w3[2] = {}, b3 = 0, loss = 0;

    for (int block = blockIdx.x * THREADS; block < examples; block += gridDim.x * THREADS) {
        const int e = block + threadIdx.x;
        const float2 in = x[e];
        const float label = y[e];
        float h1[WIDTH], g1[WIDTH] = {}, score = p[B3];
#pragma unroll
        for (int i = 0; i < WIDTH; i++) {
            h1[i] = fmaxf(0, fmaf(p[W1 + 2 * i], in.x, fmaf(p[W1 + 2 * i + 1], in.y, p[B1 + i])));
            h1s[lane][i] = h1[i];
        }
        // Loops over i stay loops: unrolled, the weights would fill all registers.
#pragma unroll 4
        for (int i = 0; i < WIDTH; i++) {
            float sum = p[B2 + i];
#pragma unroll
            for (int j = 0; j < WIDTH; j++) sum = fmaf(p[W2 + WIDTH * i + j], h1[j], sum);
            rest[lane][i] = sum = fmaxf(0, sum);
            score = fmaf(p[W3 + i], sum, score);
        }
        const float margin = 1 - label * score, g3 = margin > 0 ? -label : 0;
        loss += fmaxf(0, margin);
        b3 += g3;
        *(float4*)&rest[lane][WIDTH] = make_float4(in.x, in.y, g3, 0);
#pragma unroll 4
        for (int i = 0; i < WIDTH; i++) {
            const float g2 = rest[lane][i] > 0 ? g3 * p[W3 + i] : 0;
            g2s[lane][i] = g2;
#pragma unroll
            for (int j = 0; j < WIDTH; j++) g1[j] = fmaf(p[W2 + WIDTH * i + j], g2, g1[j]);
        }
        __syncwarp();
#pragma unroll 4
        for (int k = team; k < WARP; k += 4) {
            const float2 h2 = *(const float2*)&rest[k][pair];
            const float g = rest[k][WIDTH + 2];
            w3[0] = fmaf(g, h2.x, w3[0]), w3[1] = fmaf(g, h2.y, w3[1]);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float g2 = g2s[k][rows + i];
                b2[i] += g2;
#pragma unroll
                for (int j = 0; j < 4; j++) w2[i][j] = fmaf(g2, h1s[k][columns + j], w2[i][j]);
            }
        }
        __syncwarp();
#pragma unroll
        for (int j = 0; j < WIDTH; j++) rest[lane][j] = h1[j] > 0 ? g1[j] : 0;
        __syncwarp();
#pragma unroll 4
        for (int k = team; k < WARP; k += 4) {
            const float2 g = *(const float2*)&rest[k][pair], from = *(const float2*)&rest[k][WIDTH];
            w1[0][0] = fmaf(g.x, from.x, w1[0][0]), w1[0][1] = fmaf(g.x, from.y, w1[0][1]), b1[0] += g.x;
            w1[1][0] = fmaf(g.y, from.x, w1[1][0]), w1[1][1] = fmaf(g.y, from.y, w1[1][1]), b1[1] += g.y;
        }
        __syncwarp();
    }
    // Sums of the block first: all blocks add to the same 338 numbers, one after the other.
    float* sums = &first[0][0][0];
    __syncthreads();
    for (int k = threadIdx.x; k < 1 + PARAMETERS; k += THREADS) sums[k] = 0;
    __syncthreads();
    auto add = [&](int place, float number) { atomicAdd(&sums[place], number / examples); };
    for (int i = 0; i < 8; i++) {
        for (int j = 0; j < 4; j++) add(1 + W2 + WIDTH * (rows + i) + columns + j, w2[i][j]);
        if (columns == 0) add(1 + B2 + rows + i, b2[i]);
    }
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2; j++) add(1 + W1 + 2 * (pair + i) + j, w1[i][j]);
        add(1 + B1 + pair + i, b1[i]);
        add(1 + W3 + pair + i, w3[i]);
    }
    add(0, loss);
    add(1 + B3, b3);
    __syncthreads();
    for (int k = threadIdx.x; k < 1 + PARAMETERS; k += THREADS) atomicAdd(&result[k], sums[k]);
}

static std::vector<double> in_doubles(const std::vector<float>& p, const std::vector<float2>& x,
                                      const std::vector<float>& y) {
    std::vector<double> result(1 + PARAMETERS);
    for (int e = 0; e < EXAMPLES; e++) {
        double h1[WIDTH], h2[WIDTH], g1[WIDTH] = {}, score = p[B3];
        const double a = x[e].x, b = x[e].y;
        for (int i = 0; i < WIDTH; i++) h1[i] = fmax(0, p[W1 + 2 * i] * a + p[W1 + 2 * i + 1] * b + p[B1 + i]);
        for (int i = 0; i < WIDTH; i++) {
            double sum = p[B2 + i];
            for (int j = 0; j < WIDTH; j++) sum += p[W2 + WIDTH * i + j] * h1[j];
            score += p[W3 + i] * (h2[i] = fmax(0, sum));
        }
        const double margin = 1 - y[e] * score, g3 = (margin > 0 ? -y[e] : 0) / EXAMPLES;
        result[0] += fmax(0, margin) / EXAMPLES;
        result[1 + B3] += g3;
        for (int i = 0; i < WIDTH; i++) {
            const double g = h2[i] > 0 ? g3 * p[W3 + i] : 0;
            result[1 + W3 + i] += g3 * h2[i], result[1 + B2 + i] += g;
            for (int j = 0; j < WIDTH; j++) {
                g1[j] += g * p[W2 + WIDTH * i + j];
                result[1 + W2 + WIDTH * i + j] += g * h1[j];
            }
        }
        for (int j = 0; j < WIDTH; j++) {
            const double g = h1[j] > 0 ? g1[j] : 0;
            result[1 + W1 + 2 * j] += g * a, result[1 + W1 + 2 * j + 1] += g * b, result[1 + B1 + j] += g;
        }
    }
    return result;
}

int main() {
    auto draw = [] { return 4.0f * rand() / RAND_MAX - 2.0f; };
    std::vector<float> p(PARAMETERS), y(EXAMPLES), result(1 + PARAMETERS);
    std::vector<float2> x(EXAMPLES);
    for (float& number : p) number = 0.3f * draw();
    for (int e = 0; e < EXAMPLES; e++) x[e] = {draw(), draw()}, y[e] = draw() > 0 ? 1.0f : -1.0f;
    float *dp, *dy, *dr;
    float2* dx;
    cudaMalloc(&dp, sizeof(float) * PARAMETERS), cudaMalloc(&dr, sizeof(float) * (1 + PARAMETERS));
    cudaMalloc(&dx, sizeof(float2) * EXAMPLES), cudaMalloc(&dy, sizeof(float) * EXAMPLES);
    cudaMemcpy(dp, p.data(), sizeof(float) * PARAMETERS, cudaMemcpyHostToDevice);
    cudaMemcpy(dx, x.data(), sizeof(float2) * EXAMPLES, cudaMemcpyHostToDevice);
    cudaMemcpy(dy, y.data(), sizeof(float) * EXAMPLES, cudaMemcpyHostToDevice);
    int processors, resident;
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, gradient, THREADS, 0);
    cudaEvent_t start, stop;
    cudaEventCreate(&start), cudaEventCreate(&stop);
    float best = 1e9f;
    for (int turn = 0; turn < 50; turn++) {
        float milliseconds;
        cudaEventRecord(start);
        cudaMemsetAsync(dr, 0, sizeof(float) * (1 + PARAMETERS));
        gradient<<<processors * resident, THREADS>>>(dp, dx, dy, dr, EXAMPLES);
        cudaEventRecord(stop);
        cudaEventSynchronize(stop);
        cudaEventElapsedTime(&milliseconds, start, stop);
        best = fminf(best, milliseconds);
    }
    cudaMemcpy(result.data(), dr, sizeof(float) * (1 + PARAMETERS), cudaMemcpyDeviceToHost);
    const std::vector<double> expected = in_doubles(p, x, y);
    double error = 0, largest = 0;
    for (int k = 0; k <= PARAMETERS; k++) {
        error = fmax(error, fabs(result[k] - expected[k]));
        largest = fmax(largest, fabs(expected[k]));
    }
    printf("%d examples: %.3f ms, %d blocks of %d threads a processor; loss %.6f, largest error %.1e of %.1e\n",
           EXAMPLES, best, resident, THREADS, result[0], error, largest);
    return error > 1e-4 * largest || cudaGetLastError() != cudaSuccess;
}
