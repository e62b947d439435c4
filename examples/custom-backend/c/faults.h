/*
 * Fault injection, for tests: `has_faults`, `inject` and `clear_faults` of dp_device_api. With it the conformance suite
 * checks how a device fails and is lost. It fits any backend: call `faults_before` at the start of each operation, whether
 * it blocks or runs in a queue. Before its first #include, the file defines _POSIX_C_SOURCE as 200809L, for `nanosleep`.
 */
#ifndef FAULTS_H
#define FAULTS_H

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "device_plugin.h"

/* The injected faults of one device. All zero: none. */
struct faults {
    uint64_t left[DP_STALL + 1]; /* for each kind, how many operations are left until it happens; 0: it does not */
    struct timespec delay;       /* of each operation */
    unsigned cleared;            /* how often the faults were cleared, which ends stalls */
};

enum faults_effect { FAULTS_NONE, FAULTS_FAIL, FAULTS_LOSE };

static pthread_mutex_t faults_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t faults_changed = PTHREAD_COND_INITIALIZER;

/* Injects a fault of any kind but DP_UNPLUG. Returns whether it can happen. */
static int faults_inject(struct faults *faults, const dp_fault *fault) {
    const int is_slow = fault->kind == DP_SLOW;
    const int counts = !is_slow && fault->kind >= DP_FAIL_ALLOCATION && fault->kind <= DP_STALL && fault->nth > 0;
    pthread_mutex_lock(&faults_lock);
    if (is_slow) {
        faults->delay.tv_sec = (time_t)(fault->nanoseconds / 1000000000);
        faults->delay.tv_nsec = (long)(fault->nanoseconds % 1000000000);
    }
    if (counts) faults->left[fault->kind] = fault->nth;
    pthread_mutex_unlock(&faults_lock);
    return is_slow || counts;
}

/* Removes all faults, and ends stalls. Also call it when the device ends: when it is lost, reset or closed. */
static void faults_clear(struct faults *faults) {
    pthread_mutex_lock(&faults_lock);
    memset(faults->left, 0, sizeof faults->left);
    memset(&faults->delay, 0, sizeof faults->delay);
    faults->cleared += 1;
    pthread_cond_broadcast(&faults_changed);
    pthread_mutex_unlock(&faults_lock);
}

static int faults_count(struct faults *faults, uint32_t kind) {
    return faults->left[kind] > 0 && --faults->left[kind] == 0;
}

/* Counts an operation, which is an allocation, or else a write, read, copy or fill. Returns what the caller does in its place.
 * A stall or a delay is spent in here. */
static enum faults_effect faults_before(struct faults *faults, int is_allocation) {
    pthread_mutex_lock(&faults_lock);
    const int fails = faults_count(faults, is_allocation ? DP_FAIL_ALLOCATION : DP_FAIL_COPY);
    const int loses = faults_count(faults, DP_LOSE_DEVICE), stalls = faults_count(faults, DP_STALL);
    const unsigned cleared = faults->cleared;
    while (stalls && !loses && faults->cleared == cleared) pthread_cond_wait(&faults_changed, &faults_lock);
    const struct timespec delay = faults->delay;
    pthread_mutex_unlock(&faults_lock);
    if (delay.tv_sec > 0 || delay.tv_nsec > 0) nanosleep(&delay, NULL);
    return loses ? FAULTS_LOSE : fails ? FAULTS_FAIL : FAULTS_NONE;
}

#endif
