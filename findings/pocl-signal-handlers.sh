#!/bin/sh
# PoCL 3.1, Debian 12's: the first context of a program replaces its handlers of 15 signals.
#
# They are LLVM's, which a compiler has to print a stack when it crashes and to delete its temporary files. So a program that
# has its own handler of SIGUSR1, set before it made a context, never hears of that signal again. One of SIGINT or SIGTERM
# is called, as LLVM puts back what was there and raises the signal once more. But a handler that is set later, and
# that calls the one before it, as libraries for signals do, calls LLVM's: that puts back the default, which ends the program.
# What a program sets later, and calls nothing else, works. Set handlers of SIGINT and SIGTERM before the first use
# of OpenCL, and those of SIGUSR1 and SIGUSR2 after it.
#
#     sh findings/pocl-signal-handlers.sh
#
# It needs Debian 12, as root. What it printed:
#
#     a handler of INT from before is called: yes
#     a handler of INT from behind, which calls the one before it: the program ends by signal 2
#     a handler of USR1 from before is called: no
#     replaced by clCreateContext: HUP INT QUIT ILL TRAP ABRT BUS FPE USR1 SEGV USR2 TERM XCPU XFSZ SYS
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
sh "$here/../tests/install-packages.sh" gcc libc6-dev ocl-icd-libopencl1 pocl-opencl-icd >&2
case $(dpkg-query --show --showformat '${Version}' libpocl2) in
    3.1-*) ;;
    *) echo 'this is another version of PoCL' >&2 && exit 1 ;;
esac
echo libpocl.so.2 >pocl.icd

cat >signals.c <<'C'
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of the loader, whose headers are not needed for three functions. */
int clGetPlatformIDs(unsigned, void **, unsigned *);
int clGetDeviceIDs(void *, unsigned long, unsigned, void **, unsigned *);
void *clCreateContext(void *, unsigned, void **, void *, void *, int *);

static volatile sig_atomic_t heard;
static struct sigaction before;

static void hear(int signal) { heard = signal; }

static void hear_and_pass_on(int signal) {
    heard = signal;
    if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) before.sa_handler(signal);
}

static void load(void) {
    void *platform, *device;
    const unsigned long any = 0xffffffff;
    if (clGetPlatformIDs(1, &platform, NULL) || clGetDeviceIDs(platform, any, 1, &device, NULL)) _exit(9);
    if (!clCreateContext(NULL, 1, &device, NULL, NULL, NULL)) _exit(9);
}

static void set(int signal, void (*handler)(int)) {
    struct sigaction action = {0};
    action.sa_handler = handler;
    sigaction(signal, &action, &before);
}

/* Whether a handler from before the call is called after it, in a process of its own. */
static void from_before(int signal, const char *name) {
    fflush(stdout);
    if (fork() == 0) {
        set(signal, hear);
        load();
        raise(signal);
        printf("a handler of %s from before is called: %s\n", name, heard ? "yes" : "no");
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
}

int main(void) {
    int status;
    from_before(SIGUSR1, "USR1");
    from_before(SIGINT, "INT");
    if (fork() == 0) {
        load();
        set(SIGINT, hear_and_pass_on);
        raise(SIGINT);
        _exit(0);
    }
    wait(&status);
    printf("a handler of INT from behind, which calls the one before it: the program ");
    if (WIFSIGNALED(status)) printf("ends by signal %d\n", WTERMSIG(status));
    else printf("goes on\n");

    struct sigaction actions[NSIG];
    for (int signal = 1; signal < 32; signal++) sigaction(signal, NULL, &actions[signal]);
    load();
    printf("replaced by clCreateContext:");
    for (int signal = 1; signal < 32; signal++) {
        struct sigaction now;
        if (sigaction(signal, NULL, &now) == 0 && now.sa_handler != actions[signal].sa_handler)
            printf(" %s", sigabbrev_np(signal));
    }
    printf("\n");
    return 0;
}
C
gcc -O1 -o signals signals.c -l:libOpenCL.so.1
OCL_ICD_VENDORS=$folder ./signals | sort >printed
sort >expected <<'TEXT'
replaced by clCreateContext: HUP INT QUIT ILL TRAP ABRT BUS FPE USR1 SEGV USR2 TERM XCPU XFSZ SYS
a handler of USR1 from before is called: no
a handler of INT from before is called: yes
a handler of INT from behind, which calls the one before it: the program ends by signal 2
TEXT
cat printed
diff expected printed >&2
