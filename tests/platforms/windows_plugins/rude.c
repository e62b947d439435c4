/* A library that prints, says which dialogs its process shows, and ends it. */
#include <stdio.h>
#include <stdlib.h>
#include <windows.h>

#include "device_plugin.h"

const dp_plugin *device_plugin_v0(const dp_host *host, const dp_report *report) {
    (void)host, (void)report;
    printf("dialogs that are off: %u\n", GetErrorMode());
    fflush(stdout);
    fprintf(stderr, "on the standard error\n");
    exit(7);
}
